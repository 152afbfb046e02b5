// RUN: not stem-opt %s --stem-interpret -o /dev/null 2>&1 | FileCheck %s

// A loop that would take years ends within seconds unless one asks for more.
// CHECK: error: the interpreter stops after 268435456 steps; use a smaller program or raise stem-max-steps
func.func @f() -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 9223372036854775807 : index
  %one = arith.constant 1.0 : f32
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %one) -> f32 {
    %b = arith.addf %a, %one : f32
    scf.yield %b : f32
  }
  return %r : f32
}
