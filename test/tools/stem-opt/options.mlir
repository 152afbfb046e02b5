// Numbers outside of an option's range are one message that names it, before
// any pass runs.

// RUN: not stem-opt %s --stem-host-pipeline=stem-ffn-block=63 2>&1 | FileCheck %s --check-prefix=FFN
// RUN: not stem-opt %s --stem-host-pipeline=stem-ffn-block=0 2>&1 | FileCheck %s --check-prefix=FFN
// RUN: not stem-opt %s --stem-host-pipeline=stem-ffn-block=-64 2>&1 | FileCheck %s --check-prefix=FFN
// FFN: error: stem-ffn-block is {{63|0|-64}}; wanted a multiple of 64, at least 64
// FFN-NOT: error:
// RUN: not stem-opt %s --pass-pipeline='builtin.module(func.func(stem-to-linalg{stem-vocabulary-block=100}))' 2>&1 | FileCheck %s --check-prefix=VOCABULARY
// VOCABULARY: error: stem-vocabulary-block is 100; wanted a multiple of 64, at least 64

// RUN: not stem-opt %s --stem-externalize-constants='stem-file=%t.w stem-min-elements=0' 2>&1 | FileCheck %s --check-prefix=ELEMENTS
// RUN: not stem-opt %s --stem-verify-import=stem-min-elements=-1 2>&1 | FileCheck %s --check-prefix=ELEMENTS
// ELEMENTS: error: stem-min-elements is {{0|-1}}; wanted at least 1
// RUN: not stem-opt %s --stem-target-pipeline=stem-isa=5 2>&1 | FileCheck %s --check-prefix=ISA
// RUN: not stem-opt %s --stem-target-pipeline=stem-isa=-1 2>&1 | FileCheck %s --check-prefix=ISA
// ISA: error: stem-isa is {{5|-1}}; wanted at least 0 and at most 4

// RUN: not stem-opt %s --stem-interpret=stem-tokens=-2 2>&1 | FileCheck %s --check-prefix=TOKENS
// RUN: not stem-opt %s --stem-interpret=stem-tokens=4611686018427387904 2>&1 | FileCheck %s --check-prefix=TOKENS
// TOKENS: error: stem-tokens is {{-2|4611686018427387904}}; wanted at least -1 and at most 2147483647
// RUN: not stem-opt %s --stem-interpret=stem-sequences=0 2>&1 | FileCheck %s --check-prefix=SEQUENCES
// SEQUENCES: error: stem-sequences is 0; wanted at least 1 and at most 2147483647
// RUN: not stem-opt %s --stem-interpret=stem-past=9223372036854775807 2>&1 | FileCheck %s --check-prefix=PAST
// PAST: error: stem-past is 9223372036854775807; wanted at least 0 and at most 2147483647
// RUN: not stem-opt %s --stem-interpret=stem-id-bound=0 2>&1 | FileCheck %s --check-prefix=BOUND
// BOUND: error: stem-id-bound is 0; wanted at least 1 and at most 2147483647
// RUN: not stem-opt %s --stem-interpret=stem-max-steps=0 2>&1 | FileCheck %s --check-prefix=STEPS
// STEPS: error: stem-max-steps is 0; wanted at least 1
// RUN: not stem-opt %s --stem-differential='stem-pipeline=cse stem-past=-1' 2>&1 | FileCheck %s --check-prefix=DIFFERENTIAL
// DIFFERENTIAL: error: stem-past is -1; wanted at least 0 and at most 2147483647
// RUN: not stem-opt %s --stem-differential='stem-pipeline=cse stem-tolerance=-1' 2>&1 | FileCheck %s --check-prefix=TOLERANCE
// RUN: not stem-opt %s --stem-differential='stem-pipeline=cse stem-tolerance=nan' 2>&1 | FileCheck %s --check-prefix=TOLERANCE
// TOLERANCE: error: stem-tolerance is {{.*}}; wanted a number of at least 0

// RUN: not stem-opt %s --stem-print-cost=stem-tokens=0 2>&1 | FileCheck %s --check-prefix=COST
// COST: error: stem-tokens is 0; wanted at least 1
// RUN: not stem-opt %s --stem-print-cost=stem-gflops=0 2>&1 | FileCheck %s --check-prefix=RATE
// RUN: not stem-opt %s --stem-print-cost=stem-bandwidth-gbs=inf 2>&1 | FileCheck %s --check-prefix=RATE
// RATE: error: {{stem-gflops|stem-bandwidth-gbs}} is {{.*}}; wanted a number above 0

func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
