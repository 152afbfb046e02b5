//===- Registration.h - What the tools on IR know ---------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_REGISTRATION_H
#define STEM_TOOLS_REGISTRATION_H

#include "mlir/IR/DialectRegistry.h"

namespace stem {

/// The dialects of MLIR and `stem`, with their extensions.
void registerDialects(mlir::DialectRegistry &registry);

/// The passes and pipelines of MLIR and of Stem, by their names.
void registerPasses();

} // namespace stem

#endif // STEM_TOOLS_REGISTRATION_H
