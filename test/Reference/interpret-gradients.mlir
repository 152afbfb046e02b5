// RUN: stem-opt %s --stem-interpret='stem-function=staged stem-print=full' -o /dev/null | FileCheck %s --check-prefix=STAGED
// RUN: stem-opt %s --stem-interpret='stem-function=pairs stem-tokens=3 stem-id-bound=2 stem-print=full' -o /dev/null | FileCheck %s --check-prefix=PAIRS
// RUN: stem-opt %s --stem-interpret='stem-function=roles stem-tokens=4 stem-sequences=2 stem-print=full' -o /dev/null | FileCheck %s --check-prefix=ROLES

// A row gradient is a matrix of pairs, the row's number first. Staged rows have
// numbers of their own: 1 is row 7 of the table, 0 is row 3. Of two that are
// merged the first comes before.
// STAGED: @staged
// STAGED-NEXT: result 0 [6x3]:
// STAGED-NEXT: 1 1 2
// STAGED-NEXT: 0 3 4
// STAGED-NEXT: 1 5 6
// STAGED-NEXT: 0 10 20
// STAGED-NEXT: 0 30 40
// STAGED-NEXT: 0 50 60
// STAGED-NEXT: result 1 [2]:
// STAGED-NEXT: 3 7
// STAGED-NEXT: result 2 [2x2]:
// STAGED-NEXT: 93 124
// STAGED-NEXT: 6 8
func.func @staged() -> (!stem.row_gradient<2xf32>, tensor<?xi32>, tensor<?x2xf32>) {
  %index = arith.constant dense<[1, 0, 1]> : tensor<3xi32>
  %zero = arith.constant dense<0> : tensor<3xi32>
  %ids = arith.constant dense<[7, 3, 7]> : tensor<3xi32>
  %c = arith.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
  %d = arith.constant dense<[[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]]> : tensor<3x2xf32>
  %0 = stem.row_gradient %index, %c : tensor<3xi32>, tensor<3x2xf32> -> !stem.row_gradient<2xf32>
  %1 = stem.row_gradient %zero, %d : tensor<3xi32>, tensor<3x2xf32> -> !stem.row_gradient<2xf32>
  %2 = stem.merge_row_gradients %0, %1 : !stem.row_gradient<2xf32>
  %u, %r = stem.table_gradient %2 index %index ids %ids : (!stem.row_gradient<2xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<?xi32>, tensor<?x2xf32>)
  return %2, %u, %r : !stem.row_gradient<2xf32>, tensor<?xi32>, tensor<?x2xf32>
}

// Seeded pairs have numbers below the bound on ids.
// PAIRS: @pairs
// PAIRS-NEXT: result 0 [3x3]:
// PAIRS-COUNT-3: {{^ +[01] [-0-9.]+ [-0-9.]+$}}
func.func @pairs(%r: !stem.row_gradient<2xf32>) -> !stem.row_gradient<2xf32> {
  return %r : !stem.row_gradient<2xf32>
}

// The ids of a derivative alone: positions, sequences, selected ids that rise,
// ids and labels within their bounds.
// ROLES: @roles
// ROLES-NEXT: result 0 [4]:
// ROLES-NEXT: 0 1 0 1
// ROLES-NEXT: result 1 [4]:
// ROLES-NEXT: 0 0 1 1
func.func @roles(%x: tensor<?x2xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %in: tensor<?xi32>, %ids: tensor<?xi32>, %labels: tensor<?xi32>, %h: tensor<3x2xf32>, %c: tensor<?xf32>) -> (tensor<?xi32>, tensor<?xi32>) {
  %0:3 = stem.attention_vjp %x, %x, %x, %x at %p of %s {head_dim = 2 : i64, scale = 0.5 : f64} : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
  %1 = stem.keep_selected %x ids %ids in %in : (tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2xf32>
  %2 = stem.embedding_vjp %ids, %x : (tensor<?xi32>, tensor<?x2xf32>) -> tensor<2x2xf32>
  %3:2 = stem.cross_entropy_vjp %x, %h, %labels, %c : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>)
  return %p, %s : tensor<?xi32>, tensor<?xi32>
}
