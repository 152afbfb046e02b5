// The layers of a model in one module: biases, sliding window, norms of queries
// and keys, tables, low-rank terms, selected ids, tied embedding, loss. d_ff is
// 100, 192 and 130, the vocabulary 130: not whole panels.

// No pass from the graph phase to linalg changes a number, for two sequences of
// one tile, one of three, and tokens that decode together.
// RUN: stem-opt %s --stem-differential='stem-function=prefill stem-tokens=128 stem-sequences=2 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %s --stem-differential='stem-function=prefill stem-tokens=192 stem-past=70 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %s --stem-differential='stem-function=decode stem-id-bound=3 stem-tokens=3 stem-sequences=3 stem-past=70 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %s --stem-differential='stem-function=decode stem-id-bound=1 stem-tokens=1 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %s --stem-differential='stem-function=score stem-tokens=128 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// Weights and activations in bf16, sums and the residual stream in f32.
// RUN: sed 's/xf32> \/\/ compute$/xbf16>/' %s > %t.bf16.mlir
// RUN: stem-opt %t.bf16.mlir --stem-differential='stem-function=prefill stem-tokens=128 stem-sequences=2 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %t.bf16.mlir --stem-differential='stem-function=decode stem-id-bound=3 stem-tokens=3 stem-sequences=3 stem-past=70 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %t.bf16.mlir --stem-differential='stem-function=score stem-tokens=64 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s

// CHECK-NOT: not compared
// CHECK: remark: {{[0-9]+}} comparisons agree, largest difference {{[^;]*$}}

// The rest of the way, to machine code: f32 up to rounding, bf16 within what
// its seven bits allow.
// RUN: stem-opt %s --stem-compile-to=target | mlir-translate --mlir-to-llvmir -o %t.ll
// RUN: clang-22 -Wno-override-module -O2 -march=native -I%stem_src/include %t.ll %S/Inputs/run_host.c -o %t.f32 -L%stem_lib -lStemRuntime -Wl,-rpath,%stem_lib -lm
// RUN: %python %stem_src/test/tools/compare_interpreted.py %s %t.f32 prefill 128 2 2e-5 2 16 | FileCheck %s --check-prefix=RUN-PREFILL
// RUN: %python %stem_src/test/tools/compare_interpreted.py %s %t.f32 prefill 192 1 2e-5 2 16 | FileCheck %s --check-prefix=RUN-LONG
// RUN: %python %stem_src/test/tools/compare_interpreted.py %s %t.f32 decode 3 3 2e-5 2 16 | FileCheck %s --check-prefix=RUN-DECODE
// RUN: %python %stem_src/test/tools/compare_interpreted.py %s %t.f32 score 64 1 2e-5 2 16 | FileCheck %s --check-prefix=RUN-SCORE
// RUN: stem-opt %t.bf16.mlir --stem-compile-to=target | mlir-translate --mlir-to-llvmir -o %t.bf16.ll
// RUN: clang-22 -Wno-override-module -O2 -march=native -I%stem_src/include %t.bf16.ll %S/Inputs/run_host.c -o %t.bf16 -L%stem_lib -lStemRuntime -Wl,-rpath,%stem_lib -lm
// RUN: %python %stem_src/test/tools/compare_interpreted.py %t.bf16.mlir %t.bf16 prefill 128 2 0.02 2 16 1 | FileCheck %s --check-prefix=RUN-PREFILL
// RUN: %python %stem_src/test/tools/compare_interpreted.py %t.bf16.mlir %t.bf16 decode 3 3 0.02 2 16 1 | FileCheck %s --check-prefix=RUN-DECODE
// RUN: %python %stem_src/test/tools/compare_interpreted.py %t.bf16.mlir %t.bf16 score 64 1 0.02 2 16 1 | FileCheck %s --check-prefix=RUN-SCORE

// RUN-PREFILL: prefill: 16640 values agree
// RUN-LONG: prefill: 24960 values agree
// RUN-DECODE: decode: 390 values agree
// RUN-SCORE: score: 64 values agree

!ids = tensor<?xi32>
!x = tensor<?x64xf32>
!angles = tensor<?x8xf32>
!logits = tensor<?x130xf32>
!rows = tensor<?x192xf32>
!v64 = tensor<64xf32>
!v100 = tensor<100xf32>
!v130 = tensor<130xf32>
!h = tensor<?x64xf32> // compute
!k = tensor<?x32xf32> // compute
!u130 = tensor<?x130xf32> // compute
!u192 = tensor<?x192xf32> // compute
!wq = tensor<64x64xf32> // compute
!wk = tensor<32x64xf32> // compute
!w100 = tensor<100x64xf32> // compute
!d100 = tensor<64x100xf32> // compute
!w192 = tensor<192x64xf32> // compute
!d192 = tensor<64x192xf32> // compute
!w130 = tensor<130x64xf32> // compute
!d130 = tensor<64x130xf32> // compute
!a130 = tensor<130x8xf32> // compute
!b130 = tensor<8x64xf32> // compute

stem.param @embed = "embed" : !w130
stem.param @norm = "norm" : !v64
stem.param @headnorm = "headnorm" : tensor<16xf32>
stem.param @wq = "wq" : !wq
stem.param @bq = "bq" : !v64
stem.param @wk = "wk" : !wk
stem.param @wo = "wo" : !wq
stem.param @g100 = "g100" : !w100
stem.param @u100 = "u100" : !w100
stem.param @d100 = "d100" : !d100
stem.param @bg = "bg" : !v100
stem.param @bu = "bu" : !v100
stem.param @bd = "bd" : !v64
stem.param @g192 = "g192" : !w192
stem.param @d192 = "d192" : !d192
stem.param @g130 = "g130" : !w130
stem.param @d130 = "d130" : !d130
stem.param @a = "a" : !a130
stem.param @b = "b" : !b130
stem.param @bu130 = "bu130" : !v130
stem.param @up130 = "up130" : !w130
stem.table @t192 = "t192" : !stem.table<130x192xf32>
stem.table @t130 = "t130" : !stem.table<130x130xf32>

// Biases, and a dense FFN.
func.func private @dense(%x: !x, %p: !ids, %s: !ids, %cos: !angles, %sin: !angles, %c: !stem.kv_cache, %l: index, %n: !v64, %wq: !wq, %bq: !v64, %wk: !wk, %wo: !wq, %g: !w100, %u: !w100, %d: !d100, %bg: !v100, %bu: !v100, %bd: !v64) -> !x {
  %h = stem.rms_norm %x, %n {eps = 1.0e-5 : f64} : !x, !v64 -> !h
  %q0 = stem.linear %h, %wq bias %bq : !h, !wq, !v64 -> !h
  %k0 = stem.linear %h, %wk : !h, !wk -> !k
  %q = stem.rope %q0, %cos, %sin : !h, !angles, !angles -> !h
  %k = stem.rope %k0, %cos, %sin : !k, !angles, !angles -> !k
  %a = stem.attention %q, %k, %k0 at %p of %s cache %c[%l] {head_dim = 16 : i64, scale = 0.25 : f64} : !h, !k, !k, !ids, !ids -> !h
  %o = stem.linear %a, %wo : !h, !wq -> !x
  %x1 = arith.addf %x, %o : !x
  %h1 = stem.rms_norm %x1, %n {eps = 1.0e-5 : f64} : !x, !v64 -> !h
  %f = stem.dense_ffn %h1 gate %g up %u down %d gate_bias %bg up_bias %bu down_bias %bd : (!h, !w100, !w100, !d100, !v100, !v100, !v64) -> !x
  %s1 = stem.silu %f : !x -> !x
  %y = arith.addf %x1, %s1 : !x
  return %y : !x
}

// Norms of queries and keys, a window, and rows in place of the up-projection.
func.func private @table_layer(%x: !x, %p: !ids, %s: !ids, %cos: !angles, %sin: !angles, %c: !stem.kv_cache, %l: index, %n: !v64, %hn: tensor<16xf32>, %wq: !wq, %wk: !wk, %wo: !wq, %rows: !rows, %i: !ids, %g: !w192, %d: !d192) -> !x {
  %h = stem.rms_norm %x, %n {eps = 1.0e-5 : f64} : !x, !v64 -> !h
  %q0 = stem.linear %h, %wq : !h, !wq -> !h
  %k0 = stem.linear %h, %wk : !h, !wk -> !k
  %q1 = stem.rms_norm %q0, %hn {eps = 1.0e-6 : f64} : !h, tensor<16xf32> -> !h
  %k1 = stem.rms_norm %k0, %hn {eps = 1.0e-6 : f64} : !k, tensor<16xf32> -> !k
  %q = stem.rope %q1, %cos, %sin : !h, !angles, !angles -> !h
  %k = stem.rope %k1, %cos, %sin : !k, !angles, !angles -> !k
  %a = stem.attention %q, %k, %k0 at %p of %s cache %c[%l] {head_dim = 16 : i64, scale = 0.25 : f64, window = 20 : i64} : !h, !k, !k, !ids, !ids -> !h
  %o = stem.linear %a, %wo : !h, !wq -> !x
  %x1 = arith.addf %x, %o : !x
  %h1 = stem.rms_norm %x1, %n {eps = 1.0e-5 : f64} : !x, !v64 -> !h
  %u = stem.lookup %rows, %i : !rows, !ids -> !rows
  %f = stem.gated_ffn %h1 gate %g rows %u down %d : (!h, !w192, !rows, !d192) -> !x
  %y = arith.addf %x1, %f : !x
  return %y : !x
}

// Rows with a low-rank term, and the up-projection for some ids.
func.func private @hybrid(%x: !x, %ids: !ids, %n: !v64, %rows: !logits, %i: !ids, %a: !a130, %b: !b130, %up: !w130, %bias: !v130, %g: !w130, %d: !d130) -> !x {
  %some = arith.constant dense<[1, 3, 9]> : tensor<3xi32>
  %selected = tensor.cast %some : tensor<3xi32> to !ids
  %map = arith.constant dense<[5, 4, 3, 2, 1, 0, -1, 7, 8, 9, 10, 11]> : tensor<12xi32>
  %ids1 = stem.map_ids %ids, %map {unknown = 9 : i32} : !ids, tensor<12xi32> -> !ids
  %h = stem.rms_norm %x, %n {eps = 1.0e-5 : f64} : !x, !v64 -> !h
  %u0 = stem.lookup %rows, %i : !logits, !ids -> !u130
  %u1 = stem.mix %u0, %h a %a b %b : (!u130, !h, !a130, !b130) -> !u130
  %u2 = stem.select_up %u1, %h weight %up bias %bias ids %ids1 in %selected : (!u130, !h, !w130, !ids, !ids, !v130) -> !u130
  %f = stem.gated_ffn %h gate %g rows %u2 down %d : (!h, !w130, !u130, !d130) -> !x
  %y = arith.addf %x, %f : !x
  return %y : !x
}

func.func private @head(%x: !x, %i: !ids, %n: !v64, %w: !w130, %out: !logits {stem.output}) -> !logits attributes {stem.tile = 1 : i64} {
  %rows = stem.embedding %i, %x : !ids, !x -> !x
  %h = stem.rms_norm %rows, %n {eps = 1.0e-5 : f64} : !x, !v64 -> !h
  %y = stem.linear %h, %w : !h, !w130 -> !logits
  return %y : !logits
}

func.func @prefill(%ids: !ids {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 16 : i64}, %p: !ids {stem.name = "positions", stem.rows = "tokens"}, %s: !ids {stem.name = "sequences", stem.rows = "tokens"}, %i: !ids {stem.name = "output_rows", stem.rows = "outputs"}, %c: !stem.kv_cache {stem.name = "cache"}, %out: !logits {stem.name = "logits", stem.rows = "outputs", stem.output}) -> !logits attributes {stem.entry, stem.tile = 64 : i64} {
  %embed = stem.param_load @embed : !w130
  %norm = stem.param_load @norm : !v64
  %headnorm = stem.param_load @headnorm : tensor<16xf32>
  %wq = stem.param_load @wq : !wq
  %bq = stem.param_load @bq : !v64
  %wk = stem.param_load @wk : !wk
  %wo = stem.param_load @wo : !wq
  %g100 = stem.param_load @g100 : !w100
  %u100 = stem.param_load @u100 : !w100
  %d100 = stem.param_load @d100 : !d100
  %bg = stem.param_load @bg : !v100
  %bu = stem.param_load @bu : !v100
  %bd = stem.param_load @bd : !v64
  %g192 = stem.param_load @g192 : !w192
  %d192 = stem.param_load @d192 : !d192
  %g130 = stem.param_load @g130 : !w130
  %d130 = stem.param_load @d130 : !d130
  %a = stem.param_load @a : !a130
  %b = stem.param_load @b : !b130
  %bu130 = stem.param_load @bu130 : !v130
  %up130 = stem.param_load @up130 : !w130
  %t192 = stem.table_load @t192 : !stem.table<130x192xf32>
  %t130 = stem.table_load @t130 : !stem.table<130x130xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r192, %i192 = stem.table_rows %t192, %ids : !stem.table<130x192xf32>, !ids -> !rows, !ids
  %r130, %i130 = stem.table_rows %t130, %ids : !stem.table<130x130xf32>, !ids -> !logits, !ids
  %x0 = stem.embedding %ids, %embed : !ids, !w130 -> !x
  %cos, %sin = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005>} : !ids -> !angles, !angles
  %x1 = call @dense(%x0, %p, %s, %cos, %sin, %c, %c0, %norm, %wq, %bq, %wk, %wo, %g100, %u100, %d100, %bg, %bu, %bd) : (!x, !ids, !ids, !angles, !angles, !stem.kv_cache, index, !v64, !wq, !v64, !wk, !wq, !w100, !w100, !d100, !v100, !v100, !v64) -> !x
  %x2 = call @table_layer(%x1, %p, %s, %cos, %sin, %c, %c1, %norm, %headnorm, %wq, %wk, %wo, %r192, %i192, %g192, %d192) : (!x, !ids, !ids, !angles, !angles, !stem.kv_cache, index, !v64, tensor<16xf32>, !wq, !wk, !wq, !rows, !ids, !w192, !d192) -> !x
  %x3 = call @hybrid(%x2, %ids, %norm, %r130, %i130, %a, %b, %up130, %bu130, %g130, %d130) : (!x, !ids, !v64, !logits, !ids, !a130, !b130, !w130, !v130, !w130, !d130) -> !x
  %y = call @head(%x3, %i, %norm, %embed, %out) : (!x, !ids, !v64, !w130, !logits) -> !logits
  return %y : !logits
}

func.func @decode(%ids: !ids {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 16 : i64}, %p: !ids {stem.name = "positions", stem.rows = "tokens"}, %s: !ids {stem.name = "sequences", stem.rows = "tokens"}, %i: !ids {stem.name = "output_rows", stem.rows = "outputs"}, %c: !stem.kv_cache {stem.name = "cache"}, %out: !logits {stem.name = "logits", stem.rows = "outputs", stem.output}) -> !logits attributes {stem.entry, stem.tile = 1 : i64} {
  %embed = stem.param_load @embed : !w130
  %norm = stem.param_load @norm : !v64
  %headnorm = stem.param_load @headnorm : tensor<16xf32>
  %wq = stem.param_load @wq : !wq
  %bq = stem.param_load @bq : !v64
  %wk = stem.param_load @wk : !wk
  %wo = stem.param_load @wo : !wq
  %g100 = stem.param_load @g100 : !w100
  %u100 = stem.param_load @u100 : !w100
  %d100 = stem.param_load @d100 : !d100
  %bg = stem.param_load @bg : !v100
  %bu = stem.param_load @bu : !v100
  %bd = stem.param_load @bd : !v64
  %g192 = stem.param_load @g192 : !w192
  %d192 = stem.param_load @d192 : !d192
  %g130 = stem.param_load @g130 : !w130
  %d130 = stem.param_load @d130 : !d130
  %a = stem.param_load @a : !a130
  %b = stem.param_load @b : !b130
  %bu130 = stem.param_load @bu130 : !v130
  %up130 = stem.param_load @up130 : !w130
  %t192 = stem.table_load @t192 : !stem.table<130x192xf32>
  %t130 = stem.table_load @t130 : !stem.table<130x130xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r192, %i192 = stem.table_rows %t192, %ids : !stem.table<130x192xf32>, !ids -> !rows, !ids
  %r130, %i130 = stem.table_rows %t130, %ids : !stem.table<130x130xf32>, !ids -> !logits, !ids
  %x0 = stem.embedding %ids, %embed : !ids, !w130 -> !x
  %cos, %sin = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005>} : !ids -> !angles, !angles
  %x1 = call @dense(%x0, %p, %s, %cos, %sin, %c, %c0, %norm, %wq, %bq, %wk, %wo, %g100, %u100, %d100, %bg, %bu, %bd) : (!x, !ids, !ids, !angles, !angles, !stem.kv_cache, index, !v64, !wq, !v64, !wk, !wq, !w100, !w100, !d100, !v100, !v100, !v64) -> !x
  %x2 = call @table_layer(%x1, %p, %s, %cos, %sin, %c, %c1, %norm, %headnorm, %wq, %wk, %wo, %r192, %i192, %g192, %d192) : (!x, !ids, !ids, !angles, !angles, !stem.kv_cache, index, !v64, tensor<16xf32>, !wq, !wk, !wq, !rows, !ids, !w192, !d192) -> !x
  %x3 = call @hybrid(%x2, %ids, %norm, %r130, %i130, %a, %b, %up130, %bu130, %g130, %d130) : (!x, !ids, !v64, !logits, !ids, !a130, !b130, !w130, !v130, !w130, !d130) -> !x
  %y = call @head(%x3, %i, %norm, %embed, %out) : (!x, !ids, !v64, !w130, !logits) -> !logits
  return %y : !logits
}

func.func @score(%ids: !ids {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 16 : i64}, %p: !ids {stem.name = "positions", stem.rows = "tokens"}, %s: !ids {stem.name = "sequences", stem.rows = "tokens"}, %labels: !ids {stem.name = "labels", stem.rows = "tokens"}, %c: !stem.kv_cache {stem.name = "cache"}, %out: tensor<?xf32> {stem.name = "nll", stem.rows = "tokens", stem.output}) -> tensor<?xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %embed = stem.param_load @embed : !w130
  %norm = stem.param_load @norm : !v64
  %headnorm = stem.param_load @headnorm : tensor<16xf32>
  %wq = stem.param_load @wq : !wq
  %bq = stem.param_load @bq : !v64
  %wk = stem.param_load @wk : !wk
  %wo = stem.param_load @wo : !wq
  %g100 = stem.param_load @g100 : !w100
  %u100 = stem.param_load @u100 : !w100
  %d100 = stem.param_load @d100 : !d100
  %bg = stem.param_load @bg : !v100
  %bu = stem.param_load @bu : !v100
  %bd = stem.param_load @bd : !v64
  %g192 = stem.param_load @g192 : !w192
  %d192 = stem.param_load @d192 : !d192
  %g130 = stem.param_load @g130 : !w130
  %d130 = stem.param_load @d130 : !d130
  %a = stem.param_load @a : !a130
  %b = stem.param_load @b : !b130
  %bu130 = stem.param_load @bu130 : !v130
  %up130 = stem.param_load @up130 : !w130
  %t192 = stem.table_load @t192 : !stem.table<130x192xf32>
  %t130 = stem.table_load @t130 : !stem.table<130x130xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r192, %i192 = stem.table_rows %t192, %ids : !stem.table<130x192xf32>, !ids -> !rows, !ids
  %r130, %i130 = stem.table_rows %t130, %ids : !stem.table<130x130xf32>, !ids -> !logits, !ids
  %x0 = stem.embedding %ids, %embed : !ids, !w130 -> !x
  %cos, %sin = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005>} : !ids -> !angles, !angles
  %x1 = call @dense(%x0, %p, %s, %cos, %sin, %c, %c0, %norm, %wq, %bq, %wk, %wo, %g100, %u100, %d100, %bg, %bu, %bd) : (!x, !ids, !ids, !angles, !angles, !stem.kv_cache, index, !v64, !wq, !v64, !wk, !wq, !w100, !w100, !d100, !v100, !v100, !v64) -> !x
  %x2 = call @table_layer(%x1, %p, %s, %cos, %sin, %c, %c1, %norm, %headnorm, %wq, %wk, %wo, %r192, %i192, %g192, %d192) : (!x, !ids, !ids, !angles, !angles, !stem.kv_cache, index, !v64, tensor<16xf32>, !wq, !wk, !wq, !rows, !ids, !w192, !d192) -> !x
  %x3 = call @hybrid(%x2, %ids, %norm, %r130, %i130, %a, %b, %up130, %bu130, %g130, %d130) : (!x, !ids, !v64, !logits, !ids, !a130, !b130, !w130, !v130, !w130, !d130) -> !x
  %h = stem.rms_norm %x3, %norm {eps = 1.0e-5 : f64} : !x, !v64 -> !h
  %y = stem.cross_entropy %h, %embed, %labels : !h, !w130, !ids -> tensor<?xf32>
  return %y : tensor<?xf32>
}
