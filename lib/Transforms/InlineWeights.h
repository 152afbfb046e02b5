//===- InlineWeights.h - Constants that are weights -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_INLINEWEIGHTS_H
#define STEM_LIB_TRANSFORMS_INLINEWEIGHTS_H

#include "stem/Model/DType.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

namespace stem {

struct InlineWeight {
  mlir::ElementsAttr values; // dense or a resource
  DType dtype;
};

/// The values of `op` where it is a constant of floats that is a weight by its
/// size and use: what the import phase moves out of the IR.
std::optional<InlineWeight> getInlineWeight(mlir::Operation *op,
                                            int64_t minElements);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_INLINEWEIGHTS_H
