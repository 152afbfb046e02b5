// RUN: stem-opt %s --stem-interpret='stem-function=losses stem-print=full' -o /dev/null | FileCheck %s --check-prefix=LOSSES
// RUN: stem-opt %s --stem-interpret='stem-function=gradients stem-print=full' -o /dev/null | FileCheck %s --check-prefix=GRADIENTS
// RUN: stem-opt %s --stem-interpret='stem-function=step stem-print=full' -o /dev/null | FileCheck %s --check-prefix=STEP
// RUN: stem-opt %s --stem-interpret='stem-function=itself stem-print=full' -o /dev/null | FileCheck %s --check-prefix=ITSELF
// RUN: stem-opt %s --stem-print-cost='stem-tokens=4 stem-gflops=1 stem-bandwidth-gbs=1' -o /dev/null | FileCheck %s --check-prefix=COST

// The student gives both words 1/2, the teacher 3/4 and 1/4: log 2 and
// 3/4 log 3/2 + 1/4 log 1/2. The second token has no label.
// LOSSES: @losses
// LOSSES-NEXT: result 0 [2]:
// LOSSES-NEXT: 0.693147{{[0-9]*}} 0
// LOSSES-NEXT: result 1 [2]:
// LOSSES-NEXT: 0.130812{{[0-9]*}} 0
func.func @losses() -> (tensor<2xf64>, tensor<2xf64>) {
  %x = arith.constant dense<[[2.0, 0.0], [3.0, 4.0]]> : tensor<2x2xf64>
  %h = arith.constant dense<[[0.0, 1.0], [0.0, 3.0]]> : tensor<2x2xf64>
  %l = arith.constant dense<[0, -100]> : tensor<2xi32>
  %y = arith.constant dense<[[1.0986122886681098], [1.0]]> : tensor<2x1xf64>
  %g = arith.constant dense<[[1.0], [0.0]]> : tensor<2x1xf64>
  %nll, %kl = stem.distillation %x, %h, %l from %y, %g : (tensor<2x2xf64>, tensor<2x2xf64>, tensor<2xi32>, tensor<2x1xf64>, tensor<2x1xf64>) -> (tensor<2xf64>, tensor<2xf64>)
  return %nll, %kl : tensor<2xf64>, tensor<2xf64>
}

// 1 (1/2 - 1) + 2 (1/2 - 3/4) = -1 for the first word, 1 for the second.
// GRADIENTS: @gradients
// GRADIENTS-NEXT: result 0 [2x2]:
// GRADIENTS-NEXT: 0 2
// GRADIENTS-NEXT: 0 0
// GRADIENTS-NEXT: result 1 [2x2]:
// GRADIENTS-NEXT: -2 0
// GRADIENTS-NEXT: 2 0
func.func @gradients() -> (tensor<2x2xf64>, tensor<2x2xf64>) {
  %x = arith.constant dense<[[2.0, 0.0], [3.0, 4.0]]> : tensor<2x2xf64>
  %h = arith.constant dense<[[0.0, 1.0], [0.0, 3.0]]> : tensor<2x2xf64>
  %l = arith.constant dense<[0, -100]> : tensor<2xi32>
  %y = arith.constant dense<[[1.0986122886681098], [1.0]]> : tensor<2x1xf64>
  %g = arith.constant dense<[[1.0], [0.0]]> : tensor<2x1xf64>
  %c = arith.constant dense<[1.0, 5.0]> : tensor<2xf64>
  %d = arith.constant dense<[2.0, 6.0]> : tensor<2xf64>
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<2x2xf64>, tensor<2x2xf64>, tensor<2xi32>, tensor<2x1xf64>, tensor<2x1xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<2x2xf64>, tensor<2x2xf64>)
  return %0#0, %0#1 : tensor<2x2xf64>, tensor<2x2xf64>
}

// All four at once.
// STEP: @step
// STEP-NEXT: result 0 [2]:
// STEP-NEXT: 0.693147{{[0-9]*}} 0
// STEP-NEXT: result 1 [2]:
// STEP-NEXT: 0.130812{{[0-9]*}} 0
// STEP-NEXT: result 2 [2x2]:
// STEP-NEXT: 0 2
// STEP-NEXT: 0 0
// STEP-NEXT: result 3 [2x2]:
// STEP-NEXT: -2 0
// STEP-NEXT: 2 0
func.func @step() -> (tensor<2xf64>, tensor<2xf64>, tensor<2x2xf64>, tensor<2x2xf64>) {
  %x = arith.constant dense<[[2.0, 0.0], [3.0, 4.0]]> : tensor<2x2xf64>
  %h = arith.constant dense<[[0.0, 1.0], [0.0, 3.0]]> : tensor<2x2xf64>
  %l = arith.constant dense<[0, -100]> : tensor<2xi32>
  %y = arith.constant dense<[[1.0986122886681098], [1.0]]> : tensor<2x1xf64>
  %g = arith.constant dense<[[1.0], [0.0]]> : tensor<2x1xf64>
  %c = arith.constant dense<[1.0, 5.0]> : tensor<2xf64>
  %d = arith.constant dense<[2.0, 6.0]> : tensor<2xf64>
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<2x2xf64>, tensor<2x2xf64>, tensor<2xi32>, tensor<2x1xf64>, tensor<2x1xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>, tensor<2x2xf64>, tensor<2x2xf64>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<2xf64>, tensor<2xf64>, tensor<2x2xf64>, tensor<2x2xf64>
}

// A student that is its teacher has nothing to learn of it.
// ITSELF: @itself
// ITSELF-NEXT: result 0 [2]:
// ITSELF-NEXT: 0 0
// ITSELF-NEXT: result 1 [2x2]:
// ITSELF-NEXT: 0 0
// ITSELF-NEXT: 0 0
// ITSELF-NEXT: result 2 [2x2]:
// ITSELF-NEXT: 0 0
// ITSELF-NEXT: 0 0
func.func @itself() -> (tensor<2xf64>, tensor<2x2xf64>, tensor<2x2xf64>) {
  %x = arith.constant dense<[[2.0, 0.5], [3.0, 4.0]]> : tensor<2x2xf64>
  %h = arith.constant dense<[[0.5, 1.0], [0.0, -3.0]]> : tensor<2x2xf64>
  %l = arith.constant dense<[0, 1]> : tensor<2xi32>
  %c = arith.constant dense<0.0> : tensor<2xf64>
  %d = arith.constant dense<[2.0, 6.0]> : tensor<2xf64>
  %0:4 = stem.distillation_step %x, %h, %l from %x, %h by %c, %d : (tensor<2x2xf64>, tensor<2x2xf64>, tensor<2xi32>, tensor<2x2xf64>, tensor<2x2xf64>, tensor<2xf64>, tensor<2xf64>) -> (tensor<2xf64>, tensor<2xf64>, tensor<2x2xf64>, tensor<2x2xf64>)
  return %0#1, %0#2, %0#3 : tensor<2xf64>, tensor<2x2xf64>, tensor<2x2xf64>
}

// 6 weights and 6 elementwise FLOPs a logit; backwards the student's head three
// times and the teacher's once.
// COST: @losses
// COST: stem.distillation {{ *}}48 {{ *}}136 {{ *}}6
// COST: @gradients
// COST: stem.distillation_vjp {{ *}}96 {{ *}}200 {{ *}}4
// COST: @step
// COST: stem.distillation_step {{ *}}96 {{ *}}232 {{ *}}4
