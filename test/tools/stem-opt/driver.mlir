// RUN: stem-opt --help | FileCheck %s --check-prefix=HELP
// HELP: OVERVIEW: Runs passes of Stem and MLIR on IR.
// HELP: stem-opt model.mlir --stem-compile-to=schedule
// HELP: --stem-compile-to=<phase>

// RUN: not stem-opt %s --stem-compile-to=machine -o %t.none 2>&1 | FileCheck %s --check-prefix=PHASE
// RUN: not ls %t.none
// PHASE: stem-opt: --stem-compile-to='machine' is not a phase; phases are import, graph, schedule, structured, buffers and target

// RUN: not stem-opt %t.gone 2>&1 | FileCheck %s --check-prefix=GONE
// GONE: stem-opt: {{.*}}.gone: cannot open input file: 
// RUN: not stem-opt %s -o %t.gone/out.mlir 2>&1 | FileCheck %s --check-prefix=OUTPUT
// OUTPUT: stem-opt: cannot open output file
// RUN: stem-opt --show-dialects | FileCheck %s --check-prefix=DIALECTS
// DIALECTS: stem

// A failure leaves a file that repeats it: its first line says what was run.
// RUN: mkdir -p %t.tmp && rm -f %t.tmp/*
// RUN: not env TMPDIR=%t.tmp stem-opt %s --stem-specialize -o /dev/null 2> %t.err
// RUN: FileCheck %s --check-prefix=FAIL < %t.err
// FAIL: error: 'func.func' op is an entry without the attribute 'stem.tile'
// FAIL: stem-opt: to repeat this failure: stem-opt --run-reproducer {{.*}}stem-opt-{{[0-9a-f]+}}.mlir
// RUN: cat %t.tmp/stem-opt-*.mlir | FileCheck %s --check-prefix=FILE
// FILE: // {{.*}}stem-opt {{.*}}driver.mlir --stem-specialize -o /dev/null
// FILE: func.func @entry() attributes {stem.entry}
// FILE: pipeline: "builtin.module(stem-specialize)"
// RUN: cp %t.tmp/stem-opt-*.mlir %t.again.mlir
// RUN: not env TMPDIR=%t.tmp stem-opt --run-reproducer %t.again.mlir 2>&1 | FileCheck %s --check-prefix=AGAIN
// AGAIN: error: 'func.func' op is an entry without the attribute 'stem.tile'
// AGAIN-NOT: to repeat this failure

// One's own file is used instead, and a folder that cannot be written is said.
// RUN: not stem-opt %s --stem-specialize --mlir-pass-pipeline-crash-reproducer=%t.own.mlir 2>&1 | FileCheck %s --check-prefix=OWN
// OWN-NOT: to repeat this failure
// OWN: reproducer generated at `{{.*}}.own.mlir`
// RUN: not env TMPDIR=%t.gone stem-opt %s --stem-specialize 2>&1 | FileCheck %s --check-prefix=FOLDER
// FOLDER: error: 'func.func' op is an entry without the attribute 'stem.tile'
// FOLDER: cannot create a file in the temporary directory

func.func @entry() attributes {stem.entry} {
  return
}
