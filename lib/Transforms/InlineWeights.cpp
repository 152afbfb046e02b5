//===- InlineWeights.cpp - Constants that are weights ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "InlineWeights.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tosa/IR/TosaOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"

using namespace mlir;
using namespace stem;

static std::optional<DType> getDType(Type type) {
  if (type.isF64())
    return DType::F64;
  if (type.isF32())
    return DType::F32;
  if (type.isF16())
    return DType::F16;
  if (type.isBF16())
    return DType::BF16;
  if (isa<Float8E5M2Type>(type))
    return DType::F8E5M2;
  if (isa<Float8E4M3FNType>(type))
    return DType::F8E4M3;
  return std::nullopt;
}

/// A splat that is no weight by its use: what an op with a destination starts
/// from, or an operand of elementwise ops on tensors of its own shape.
static bool isHelper(Operation *op, ElementsAttr values) {
  if (!values.isSplat())
    return false;
  return llvm::all_of(op->getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto dps = dyn_cast<DestinationStyleOpInterface>(user);
        dps && dps.isDpsInit(&use))
      return true;
    auto linalgOp = dyn_cast<linalg::LinalgOp>(user);
    const bool elementwise =
        linalgOp ? linalgOp.getNumLoops() == linalgOp.getNumParallelLoops() &&
                       linalgOp.getMatchingIndexingMap(&use) ==
                           linalgOp.getIndexingMapsArray().back()
                 : user->hasTrait<OpTrait::tosa::TosaElementwiseOperator>() ||
                       user->getName().getStringRef() == "tosa.mul" ||
                       OpTrait::hasElementwiseMappableTraits(user);
    return elementwise && llvm::all_of(user->getResultTypes(), [&](Type type) {
             return llvm::equal(cast<ShapedType>(type).getShape(),
                                cast<ShapedType>(values.getType()).getShape());
           });
  });
}

std::optional<InlineWeight> stem::getInlineWeight(Operation *op,
                                                  int64_t minElements) {
  ElementsAttr values;
  if (!op->hasTrait<OpTrait::ConstantLike>() || op->getNumResults() != 1 ||
      !matchPattern(op, m_Constant(&values)) ||
      !isa<DenseElementsAttr, DenseResourceElementsAttr>(values))
    return std::nullopt;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  std::optional<DType> dtype =
      type ? getDType(type.getElementType()) : std::nullopt;
  if (!dtype || type != values.getType() || type.getEncoding() ||
      type.getNumElements() < minElements || isHelper(op, values))
    return std::nullopt;
  return InlineWeight{values, *dtype};
}
