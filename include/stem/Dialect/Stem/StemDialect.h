//===- StemDialect.h - The stem dialect -------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_STEMDIALECT_H
#define STEM_DIALECT_STEM_STEMDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace stem {

/// What one execution of an op costs.
struct OpCost {
  int64_t flops = 0;
  int64_t bytes = 0;
  int64_t parameters = 0;
};

} // namespace stem

#include "stem/Dialect/Stem/StemDialect.h.inc"

#include "stem/Dialect/Stem/StemInterfaces.h.inc"

#define GET_TYPEDEF_CLASSES
#include "stem/Dialect/Stem/StemTypes.h.inc"

#define GET_OP_CLASSES
#include "stem/Dialect/Stem/StemOps.h.inc"

namespace stem {

/// The input size K and output size N of a weight, `[N, K]` as a tensor or
/// packed `K x N`.
struct WeightShape {
  int64_t inputs;
  int64_t outputs;
};
WeightShape getWeightShape(mlir::Type type);

/// Whether values of this type have cotangents: ranked tensors of
/// floating-point numbers, of f64 at most, and packed weights.
bool hasCotangent(mlir::Type type);

/// The type of a value's cotangent: a tensor of its shape in f32, or in f64 for
/// f64. `type` has one.
mlir::Type getCotangentType(mlir::Type type);

/// Bytes of a tensor, buffer or packed matrix, 0 for other types. A size that
/// is not known counts as `tokens`.
int64_t countBytes(mlir::Type type, int64_t tokens);

} // namespace stem

#endif // STEM_DIALECT_STEM_STEMDIALECT_H
