// RUN: stem-opt %s --stem-verify-tables -verify-diagnostics=only-expected

// V6: what may lie in the memory of rows: what a function may return, itself or
// through others, a region, a view.
func.func private @identity(%rows: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %0 = call @identity2(%rows) : (tensor<?x16xf32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}
func.func private @identity2(%rows: tensor<?x16xf32>) -> tensor<?x16xf32> {
  return %rows : tensor<?x16xf32>
}
func.func private @forever(%rows: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %0 = call @forever(%rows) : (tensor<?x16xf32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}
func.func private @external(%rows: tensor<?x16xf32>) -> tensor<?x16xf32>
func.func @late(%ids: tensor<?xi32>, %t: !stem.table<9x16xf32>, %c: i1, %l: index) -> tensor<?x16xf32> attributes {stem.entry} {
  %p = stem.plan_rows %ids : tensor<?xi32>
  %k = stem.prefetch %t, %p : !stem.table<9x16xf32> -> !stem.ticket<16xf32>
  %r, %i = stem.await %k : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  %r1 = call @identity(%r) : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %r2 = call @forever(%r) : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %r3 = call @external(%r) : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %r4 = scf.if %c -> tensor<?x16xf32> {
    scf.yield %r : tensor<?x16xf32>
  } else {
    scf.yield %r1 : tensor<?x16xf32>
  }
  %r5 = tensor.cast %r : tensor<?x16xf32> to tensor<4x16xf32>
  stem.release %k : !stem.ticket<16xf32>
  // expected-error @+1 {{'stem.lookup' op may read rows, or their index, that were given back}}
  %0 = stem.lookup %r1, %ids : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  // expected-error @+1 {{'stem.lookup' op may read rows}}
  %1 = stem.lookup %r2, %ids : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  // expected-error @+1 {{'stem.lookup' op may read rows}}
  %2 = stem.lookup %r3, %ids : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  // expected-error @+1 {{'stem.lookup' op may read rows}}
  %3 = stem.lookup %r4, %ids : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  // expected-error @+1 {{'tensor.extract' op may read rows}}
  %4 = tensor.extract %r5[%l, %l] : tensor<4x16xf32>
  // expected-error @+1 {{'scf.for' op may read rows}}
  scf.for %n = %l to %l step %l {
    %5 = tensor.extract %i[%n] : tensor<?xi32>
  }
  // expected-error @+1 {{'func.return' op may read rows}}
  return %r : tensor<?x16xf32>
}
