// Every named pipeline does one phase. What one prints, the next reads; all
// together give what the whole does, and --stem-compile-to stops in between.
// RUN: stem-opt %s --stem-import-pipeline -o %t.import.mlir
// RUN: stem-opt %t.import.mlir --stem-graph-pipeline -o %t.graph.mlir
// RUN: stem-opt %t.graph.mlir --stem-schedule-pipeline -o %t.schedule.mlir
// RUN: stem-opt %t.schedule.mlir --stem-structured-pipeline -o %t.structured.mlir
// RUN: stem-opt %t.structured.mlir --stem-buffer-pipeline -o %t.buffers.mlir
// RUN: stem-opt %t.buffers.mlir --stem-target-pipeline -o %t.target.mlir
// RUN: stem-opt %s --stem-host-pipeline -o %t.host.mlir

// RUN: stem-opt %s --stem-compile-to=import | diff - %t.import.mlir
// RUN: stem-opt %s --stem-compile-to=graph | diff - %t.graph.mlir
// RUN: stem-opt %s --stem-compile-to=schedule | diff - %t.schedule.mlir
// RUN: stem-opt %s --stem-compile-to=structured | diff - %t.structured.mlir
// RUN: stem-opt %s --stem-compile-to=buffers | diff - %t.buffers.mlir
// RUN: stem-opt %s --stem-compile-to=target | diff - %t.target.mlir
// RUN: diff %t.host.mlir %t.target.mlir

// RUN: FileCheck %s --check-prefix=GRAPH < %t.import.mlir
// RUN: FileCheck %s --check-prefix=GRAPH < %t.graph.mlir
// RUN: FileCheck %s --check-prefix=SCHEDULE < %t.schedule.mlir
// RUN: FileCheck %s --check-prefix=STRUCTURED < %t.structured.mlir
// RUN: FileCheck %s --check-prefix=BUFFERS < %t.buffers.mlir
// RUN: FileCheck %s --check-prefix=TARGET < %t.target.mlir
// RUN: mlir-translate --mlir-to-llvmir %t.target.mlir -o /dev/null

// Options reach their passes.
// RUN: stem-opt %t.schedule.mlir --stem-structured-pipeline=stem-ffn-block=64 | FileCheck %s --check-prefix=BLOCK
// A limit beyond any matrix is the whole matrix, found at once.
// RUN: stem-opt %t.schedule.mlir --stem-structured-pipeline=stem-ffn-block=1000000000000 | FileCheck %s --check-prefix=STRUCTURED
// RUN: stem-opt %s --stem-host-pipeline=stem-isa=1 | FileCheck %s --check-prefix=ISA
// RUN: not stem-opt %t.schedule.mlir --stem-structured-pipeline=stem-vocabulary-block=100 2>&1 | FileCheck %s --check-prefix=VOCABULARY
// RUN: not stem-opt %s --stem-host-pipeline=stem-vocabulary-block=100 2>&1 | FileCheck %s --check-prefix=VOCABULARY
// VOCABULARY: error: stem-vocabulary-block is 100; wanted a multiple of 64, at least 64
// What a phase does not use, its pipeline does not take.
// RUN: not stem-opt %s --stem-import-pipeline=stem-isa=1 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not stem-opt %t.schedule.mlir --stem-structured-pipeline=stem-isa=1 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not stem-opt %t.buffers.mlir --stem-target-pipeline=stem-ffn-block=64 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: no such option stem-{{isa|ffn-block}}

// GRAPH: stem.gated_ffn
// GRAPH: stem.param_load @g
// SCHEDULE: stem.fused_ffn %{{.*}} gate %{{.*}} : (tensor<?x32xf32>, !stem.packed<32x128xf32>
// SCHEDULE: %{{.*}}: !stem.packed<32x128xf32> {stem.param = @g}
// STRUCTURED: scf.forall
// STRUCTURED: stem.packed_matmul {{.*}} -> tensor<64x128xf32>
// STRUCTURED: func.func private @prefill({{.*}} {bufferization.writable = false, stem.name = "x", {{.*}}: tensor<?x32xf32> {stem.name = "y",
// BUFFERS-NOT: linalg.
// BUFFERS: stem.parallel_call
// BUFFERS: stem.packed_matmul {{.*}} : (memref<
// TARGET: llvm.call @stem_packed_matmul
// TARGET: llvm.func @stem_module_query
// BLOCK: stem.packed_matmul {{.*}} -> tensor<64x64xf32>
// ISA: llvm.func @stem_module_query

stem.param @g = "g" : tensor<128x32xf32>
stem.param @d = "d" : tensor<32x128xf32>
stem.table @t = "t" : !stem.table<100x128xf32>

func.func private @layer(%x: tensor<?x32xf32>, %g: tensor<128x32xf32>, %rows: tensor<?x128xf32>, %i: tensor<?xi32>, %d: tensor<32x128xf32>) -> tensor<?x32xf32> {
  %u = stem.lookup %rows, %i : tensor<?x128xf32>, tensor<?xi32> -> tensor<?x128xf32>
  %f = stem.gated_ffn %x gate %g rows %u down %d : (tensor<?x32xf32>, tensor<128x32xf32>, tensor<?x128xf32>, tensor<32x128xf32>) -> tensor<?x32xf32>
  %y = arith.addf %x, %f : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
func.func @prefill(%ids: tensor<?xi32> {stem.name = "ids", stem.rows = "tokens"}, %x: tensor<?x32xf32> {stem.name = "x", stem.rows = "tokens"}, %out: tensor<?x32xf32> {stem.name = "y", stem.rows = "tokens", stem.output}) -> tensor<?x32xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %g = stem.param_load @g : tensor<128x32xf32>
  %d = stem.param_load @d : tensor<32x128xf32>
  %t = stem.table_load @t : !stem.table<100x128xf32>
  %rows, %i = stem.table_rows %t, %ids : !stem.table<100x128xf32>, tensor<?xi32> -> tensor<?x128xf32>, tensor<?xi32>
  %y = call @layer(%x, %g, %rows, %i, %d) : (tensor<?x32xf32>, tensor<128x32xf32>, tensor<?x128xf32>, tensor<?xi32>, tensor<32x128xf32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
