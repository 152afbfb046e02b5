//===- stem-reduce.cpp - Make a failing module small ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Drops what a failure does not need: a script says whether a smaller module
// still fails.
//   stem-reduce model.mlir -reduction-tree='traversal-mode=0 test=fails.sh'

#include "Registration.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"

int main(int argc, char **argv) {
  stem::registerPasses();
  mlir::DialectRegistry registry;
  stem::registerDialects(registry);
  mlir::MLIRContext context(registry);
  return mlir::failed(mlir::mlirReduceMain(argc, argv, context));
}
