//===- stem-lsp-server.cpp - Editors on IR with stem ops ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Speaks the Language Server Protocol on standard input and output: errors
// while typing, definitions and uses of values and symbols, and hover text.

#include "Guard.h"
#include "Registration.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/LLVM.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  stem::guardAgainstCrashes("stem-lsp-server");
  mlir::DialectRegistry registry;
  stem::registerDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
