// RUN: stem-opt %s --stem-insert-prefetch --stem-verify-tables | FileCheck %s
// RUN: stem-opt %s --stem-insert-prefetch=stem-distance=3 | FileCheck %s
// RUN: stem-opt %s --stem-insert-prefetch=stem-distance=9 | FileCheck %s
// RUN: stem-opt %s --stem-insert-prefetch=stem-distance=0 --stem-verify-tables | FileCheck %s --check-prefixes=NONE
// RUN: stem-opt %s --stem-insert-prefetch=stem-distance=1 --stem-verify-tables | FileCheck %s --check-prefixes=ONE
// RUN: stem-opt %s --stem-insert-prefetch=stem-distance=2 --stem-verify-tables --stem-differential='stem-function=step stem-pipeline=canonicalize,cse' 2>&1 -o /dev/null | FileCheck %s --check-prefix=SAME
// RUN: stem-opt %s --stem-differential='stem-function=step stem-pipeline=stem-insert-prefetch{stem-distance=1}' 2>&1 -o /dev/null | FileCheck %s --check-prefix=SAME
// No cleanup moves one of the ops over another or drops it.
// RUN: stem-opt %s --stem-insert-prefetch=stem-distance=1 --canonicalize --cse --control-flow-sink --stem-verify-tables | FileCheck %s --check-prefixes=ONE
// SAME: remark: {{[0-9]+}} comparisons agree

// A table of 9 rows of 16 numbers takes 576 bytes, and 256 for 4 ids.
// RUN: stem-opt %s --stem-insert-prefetch='stem-staging=512 stem-tokens=4' | FileCheck %s --check-prefixes=ONE
// RUN: stem-opt %s --stem-insert-prefetch='stem-staging=575 stem-tokens=4' --remarks-filter=stem-insert-prefetch -o /dev/null 2>&1 | FileCheck %s --check-prefix=LIMITED
// LIMITED: StemInsertPrefetch | Category:stem-insert-prefetch | Function=step | Distance=1, StagingBytes=512, Tables=3, Tokens=4
// LIMITED: StemInsertPrefetch | Category:stem-insert-prefetch | Function=step | Reason="rows are asked for 1 tables ahead, not all 3 at the start: 2 ahead would take 768 bytes of staging for 4 tokens, and stem-staging is 575"
// RUN: stem-opt %s --stem-insert-prefetch='stem-tokens=100' --remarks-filter=stem-insert-prefetch -o /dev/null 2>&1 | FileCheck %s --check-prefix=ALL
// ALL-NOT: Reason
// ALL: StemInsertPrefetch | Category:stem-insert-prefetch | Function=step | Distance=3, StagingBytes=1728, Tables=3, Tokens=100
// ALL-NOT: Reason

// RUN: not stem-opt %s --stem-insert-prefetch='stem-staging=255 stem-tokens=4' 2>&1 | FileCheck %s --check-prefix=LITTLE
// LITTLE: 'func.func' op needs 256 bytes of staging for the rows of 4 tokens at a distance of 0, but stem-staging is 255; it is the least that this entry takes
// RUN: not stem-opt %s --stem-insert-prefetch='stem-staging=512 stem-tokens=4 stem-distance=2' 2>&1 | FileCheck %s --check-prefix=FAR
// FAR: 'func.func' op needs 768 bytes of staging for the rows of 4 tokens at a distance of 2, but stem-staging is 512; a shorter distance takes less
// RUN: not stem-opt %s --stem-insert-prefetch=stem-distance=-1 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not stem-opt %s --stem-insert-prefetch=stem-distance=far 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: error: stem-distance is '{{-1|far}}'; wanted auto, or a number of tables, 0 or more
// RUN: not stem-opt %s --stem-insert-prefetch=stem-staging=-1 2>&1 | FileCheck %s --check-prefix=STAGING
// STAGING: error: stem-staging is -1; wanted at least 0
// RUN: not stem-opt %s --stem-insert-prefetch=stem-tokens=0 2>&1 | FileCheck %s --check-prefix=TOKENS
// TOKENS: error: stem-tokens is 0; wanted at least 1

stem.table @t0 = "t0" : !stem.table<9x16xf32>
stem.table @t1 = "t1" : !stem.table<9x16xf32>
stem.table @t2 = "t2" : !stem.table<9x16xf32>

func.func private @layer(%x: tensor<?x16xf32>, %rows: tensor<?x16xf32>, %index: tensor<?xi32>) -> tensor<?x16xf32> {
  %up = stem.lookup %rows, %index : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  %0 = arith.addf %x, %up : tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// All at the start, each awaited where it is needed, in the order of the layers
// and not of the lookups.
// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x16xf32>, %[[IDS:[a-z0-9]+]]: tensor<?xi32>, %[[T0:[a-z0-9]+]]: !stem.table<9x16xf32> {stem.table = @t0}, %[[T1:[a-z0-9]+]]: !stem.table<9x16xf32> {stem.table = @t1}, %[[T2:[a-z0-9]+]]: !stem.table<9x16xf32> {stem.table = @t2}
// CHECK-NEXT: %[[P:.*]] = stem.plan_rows %[[IDS]] : tensor<?xi32>
// CHECK-NEXT: %[[K0:.*]] = stem.prefetch %[[T0]], %[[P]]
// CHECK-NEXT: %[[K1:.*]] = stem.prefetch %[[T1]], %[[P]]
// CHECK-NEXT: %[[K2:.*]] = stem.prefetch %[[T2]], %[[P]]
// CHECK-NEXT: stem.silu
// CHECK-NEXT: %[[R0:.*]], %[[I0:.*]] = stem.await %[[K0]]
// CHECK-NEXT: call @layer(%{{.*}}, %[[R0]], %[[I0]])
// CHECK-NEXT: stem.release %[[K0]]
// CHECK-NEXT: %[[R1:.*]], %[[I1:.*]] = stem.await %[[K1]]
// CHECK-NEXT: call @layer(%{{.*}}, %[[R1]], %[[I1]])
// CHECK-NEXT: stem.release %[[K1]]
// CHECK-NEXT: %[[R2:.*]], %[[I2:.*]] = stem.await %[[K2]]
// CHECK-NEXT: call @layer(%{{.*}}, %[[R2]], %[[I2]])
// CHECK-NEXT: stem.release %[[K2]]
// CHECK-NEXT: return

// NONE-LABEL: func.func @step
// NONE-NEXT: stem.silu
// NONE-NEXT: %[[P:.*]] = stem.plan_rows
// NONE-NEXT: %[[K0:.*]] = stem.prefetch %{{.*}}, %[[P]]
// NONE-NEXT: stem.await %[[K0]]
// NONE-NEXT: call @layer
// NONE-NEXT: stem.release %[[K0]]
// NONE-NEXT: %[[K1:.*]] = stem.prefetch %{{.*}}, %[[P]]
// NONE-NEXT: stem.await %[[K1]]
// NONE-NEXT: call @layer
// NONE-NEXT: stem.release %[[K1]]
// NONE-NEXT: %[[K2:.*]] = stem.prefetch %{{.*}}, %[[P]]
// NONE-NEXT: stem.await %[[K2]]

// ONE-LABEL: func.func @step
// ONE-NEXT: %[[P:.*]] = stem.plan_rows
// ONE-NEXT: %[[K0:.*]] = stem.prefetch %{{.*}}, %[[P]]
// ONE-NEXT: stem.silu
// ONE-NEXT: %[[K1:.*]] = stem.prefetch %{{.*}}, %[[P]]
// ONE-NEXT: stem.await %[[K0]]
// ONE-NEXT: call @layer
// ONE-NEXT: stem.release %[[K0]]
// ONE-NEXT: %[[K2:.*]] = stem.prefetch %{{.*}}, %[[P]]
// ONE-NEXT: stem.await %[[K1]]
// ONE-NEXT: call @layer
// ONE-NEXT: stem.release %[[K1]]
// ONE-NEXT: stem.await %[[K2]]
// ONE-NEXT: call @layer
// ONE-NEXT: stem.release %[[K2]]
// ONE-NEXT: return
func.func @step(%x: tensor<?x16xf32>, %ids: tensor<?xi32>, %t0: !stem.table<9x16xf32> {stem.table = @t0}, %t1: !stem.table<9x16xf32> {stem.table = @t1}, %t2: !stem.table<9x16xf32> {stem.table = @t2}) -> tensor<?x16xf32> attributes {stem.entry} {
  %r2, %i2 = stem.table_rows %t2, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %r0, %i0 = stem.table_rows %t0, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %r1, %i1 = stem.table_rows %t1, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %x0 = stem.silu %x : tensor<?x16xf32> -> tensor<?x16xf32>
  %x1 = call @layer(%x0, %r0, %i0) : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>) -> tensor<?x16xf32>
  %x2 = call @layer(%x1, %r1, %i1) : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>) -> tensor<?x16xf32>
  %x3 = call @layer(%x2, %r2, %i2) : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>) -> tensor<?x16xf32>
  return %x3 : tensor<?x16xf32>
}

// Rows that are read again further down, as a backward pass does, are held until
// then; of ids that are found out on the way, rows are asked for as soon as they
// are known; what nothing reads is not asked for.
// CHECK-LABEL: func.func @again
// CHECK: %[[P:.*]] = stem.plan_rows
// CHECK-NEXT: %[[K0:.*]] = stem.prefetch %{{.*}}, %[[P]]
// CHECK-NEXT: %[[M:.*]] = stem.map_ids
// CHECK-NEXT: %[[Q:.*]] = stem.plan_rows %[[M]]
// CHECK-NEXT: %[[K1:.*]] = stem.prefetch %{{.*}}, %[[Q]]
// CHECK-NEXT: %[[K2:.*]] = stem.prefetch %{{.*}}, %[[Q]]
// CHECK-NEXT: tensor.cast
// CHECK-NEXT: %[[R0:.*]], %[[I0:.*]] = stem.await %[[K0]]
// CHECK-NEXT: %[[V0:.*]] = tensor.cast %[[R0]]
// CHECK-NEXT: stem.lookup %[[R0]], %[[I0]]
// CHECK-NEXT: stem.await %[[K1]]
// CHECK-NEXT: stem.lookup
// CHECK-NEXT: stem.release %[[K1]]
// CHECK-NEXT: stem.await %[[K2]]
// CHECK-NEXT: stem.lookup
// CHECK-NEXT: stem.release %[[K2]]
// CHECK-NEXT: stem.lookup %[[V0]]
// CHECK-NEXT: stem.release %[[K0]]
// CHECK-NEXT: return
func.func @again(%ids: tensor<?xi32>, %map: tensor<9xi32>, %t: !stem.table<9x16xf32> {stem.table = @t0}) -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) attributes {stem.entry} {
  %unread, %unused = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %r0, %i0 = stem.table_rows %t, %ids : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %mapped = stem.map_ids %ids, %map {unknown = 0 : i32} : tensor<?xi32>, tensor<9xi32> -> tensor<?xi32>
  %r1, %i1 = stem.table_rows %t, %mapped : !stem.table<9x16xf32>, tensor<?xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %four = tensor.cast %mapped : tensor<?xi32> to tensor<4xi32>
  %r2, %i2 = stem.table_rows %t, %four : !stem.table<9x16xf32>, tensor<4xi32> -> tensor<?x16xf32>, tensor<?xi32>
  %view = tensor.cast %r0 : tensor<?x16xf32> to tensor<4x16xf32>
  %a = stem.lookup %r0, %i0 : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  %b = stem.lookup %r1, %i1 : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  %c = stem.lookup %r2, %i2 : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  %d = stem.lookup %view, %ids : tensor<4x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  return %a, %b, %c, %d : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>
}
