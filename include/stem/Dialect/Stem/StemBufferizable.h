//===- StemBufferizable.h - Stem ops under one-shot bufferize -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_STEMBUFFERIZABLE_H
#define STEM_DIALECT_STEM_STEMBUFFERIZABLE_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace stem {

/// Attaches BufferizableOpInterface to the ops that reach that pass.
void registerBufferizableModels(mlir::DialectRegistry &registry);

} // namespace stem

#endif // STEM_DIALECT_STEM_STEMBUFFERIZABLE_H
