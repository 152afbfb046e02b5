//===- Constants.h - Scalar constants -------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_CONSTANTS_H
#define STEM_LIB_TRANSFORMS_CONSTANTS_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace stem {

inline mlir::Value constantIndex(mlir::OpBuilder &builder, mlir::Location loc,
                                 int64_t value) {
  return mlir::arith::ConstantIndexOp::create(builder, loc, value);
}

inline mlir::Value constantF32(mlir::OpBuilder &builder, mlir::Location loc,
                               double value) {
  return mlir::arith::ConstantOp::create(
      builder, loc, builder.getF32FloatAttr(static_cast<float>(value)));
}

inline mlir::Value constantF64(mlir::OpBuilder &builder, mlir::Location loc,
                               double value) {
  return mlir::arith::ConstantOp::create(builder, loc,
                                         builder.getF64FloatAttr(value));
}

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_CONSTANTS_H
