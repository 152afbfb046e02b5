// RUN: stem-opt %s --stem-interpret='stem-function=ramp stem-tokens=3 stem-print=full' -o /dev/null | FileCheck %s --check-prefix=RAMP
// RUN: stem-opt %s --stem-interpret='stem-function=roles stem-tokens=6 stem-sequences=2 stem-past=5 stem-print=full' -o /dev/null | FileCheck %s --check-prefix=ROLES
// RUN: stem-opt %s --stem-interpret='stem-function=number' -o /dev/null | FileCheck %s --check-prefix=NUMBER
// RUN: stem-opt %s --stem-interpret='stem-function=param stem-seed=7 stem-print=full' --canonicalize --stem-interpret='stem-function=bound stem-seed=7 stem-print=full' --stem-interpret='stem-function=table stem-seed=7 stem-print=full' -o /dev/null | FileCheck %s --check-prefix=PARAM
// RUN: stem-opt %s --stem-interpret='stem-tokens=4' -o /dev/null | FileCheck %s --check-prefix=ALL
// RUN: not stem-opt %s --stem-interpret='stem-function=missing' 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not stem-opt %s --stem-interpret='stem-print=some' 2>&1 | FileCheck %s --check-prefix=PRINT
// RUN: not stem-opt %s --stem-interpret='stem-max-steps=3' 2>&1 | FileCheck %s --check-prefix=STEPS

// RUN: echo 'func.func private @f() { return }' | not stem-opt --stem-interpret 2>&1 | FileCheck %s --check-prefix=PRIVATE
// PRIVATE: error: there is no public function to interpret; name one with stem-function
// MISSING: error: there is no function 'missing' to interpret
// PRINT: error: stem-print must be summary or full, got 'some'
// STEPS: error: the interpreter stops after 3 steps; use a smaller program or raise stem-max-steps

stem.param @w = "key" : tensor<2x3xf32>

// Every public function with a body, and no other.
// ALL: @ramp
// ALL-NEXT: result 0 [4x2]: sum 16 min 0 max 4 first 0 1 1 2
// ALL: @roles
// ALL: @number
// ALL: @param
// ALL: @bound
// ALL: @table
// ALL-NOT: @hidden

// RAMP: @ramp
// RAMP-NEXT: result 0 [3x2]:
// RAMP-NEXT: 0 1
// RAMP-NEXT: 1 2
// RAMP-NEXT: 2 3
func.func @ramp(%ids: tensor<?xi32>) -> tensor<?x2xindex> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %ids, %c0 : tensor<?xi32>
  %0 = tensor.generate %n {
  ^bb0(%i: index, %j: index):
    %s = arith.addi %i, %j : index
    tensor.yield %s : index
  } : tensor<?x2xindex>
  return %0 : tensor<?x2xindex>
}

// The uses of a vector say what it holds; so does an attribute.
// ROLES: @roles
// ROLES-NEXT: result 0 [6]:
// ROLES-NEXT: 5 6 7 5 6 7
// ROLES-NEXT: result 1 [6]:
// ROLES-NEXT: 0 0 0 1 1 1
// ROLES-NEXT: result 2 [6]:
// ROLES-NEXT: 0 0 0 0 0 0
func.func @roles(%p: tensor<?xi32>, %s: tensor<?xi32> {stem.role = "sequences"}, %one: tensor<?xi32> {stem.id_bound = 1 : i64}) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>) {
  %p2 = func.call @hidden(%p) : (tensor<?xi32>) -> tensor<?xi32>
  return %p2, %s, %one : tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
}

func.func private @hidden(%p: tensor<?xi32>) -> tensor<?xi32> {
  %c, %s = stem.rotary_angles %p {inv_freq = array<f32: 1.0>} : tensor<?xi32> -> tensor<?x1xf32>, tensor<?x1xf32>
  return %p : tensor<?xi32>
}

// NUMBER: @number
// NUMBER-NEXT: result 0: 0.25
func.func @number() -> f32 {
  %0 = arith.constant 0.25 : f32
  return %0 : f32
}

// A parameter keeps its values when it becomes a packed argument.
// PARAM: @param
// PARAM-NEXT: result 0 [2x3]:
// PARAM-NEXT: [[A:[-0-9.]+]] [[B:[-0-9.]+]] [[C:[-0-9.]+]]
// PARAM-NEXT: [[D:[-0-9.]+]] [[E:[-0-9.]+]] [[F:[-0-9.]+]]
// PARAM: @bound
// PARAM-NEXT: result 0 [1x2]:
// PARAM-NEXT: [[B]] [[E]]
func.func @param() -> tensor<2x3xf32> {
  %0 = stem.param_load @w : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @bound(%w: !stem.packed<3x2xf32> {stem.param = @w}) -> tensor<1x2xf32> {
  %x = arith.constant dense<[[0.0, 1.0, 0.0]]> : tensor<1x3xf32>
  %0 = stem.linear %x, %w : tensor<1x3xf32>, !stem.packed<3x2xf32> -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// PARAM: @table
// PARAM-NEXT: result 0 [1x3]:
// PARAM-NEXT: [[D]] [[E]] [[F]]
stem.table @t = "key" : !stem.table<2x3xf32>
func.func @table(%t: !stem.table<2x3xf32> {stem.table = @t}) -> tensor<1x3xf32> {
  %ids = arith.constant dense<1> : tensor<1xi32>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<2x3xf32>, tensor<1xi32> -> tensor<2x3xf32>, tensor<1xi32>
  %0 = stem.lookup %rows, %index : tensor<2x3xf32>, tensor<1xi32> -> tensor<1x3xf32>
  return %0 : tensor<1x3xf32>
}
