//===- Registration.cpp - What the tools on IR know -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Registration.h"

#include "stem/Dialect/Stem/StemBufferizable.h"
#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"
#include "stem/Transforms/Pipelines.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"

void stem::registerDialects(mlir::DialectRegistry &registry) {
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  registry.insert<StemDialect>();
  registerBufferizableModels(registry);
}

void stem::registerPasses() {
  mlir::registerAllPasses();
  registerStemPasses();
  registerStemPipelines();
}
