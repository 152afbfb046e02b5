//===- StemStepVerifiers.cpp - Constraints of the step's ops --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Each check carries the number that the op's description gives it.

#include "Verify.h"
#include "stem/Dialect/Stem/StemDialect.h"

using namespace mlir;
using namespace stem;
using namespace stem::verify;

LogicalResult RMSNormInputVjpOp::verify() {
  // C1, C2
  if (failed(expectNorm(*this, getX(), getWeight(), getEps())))
    return failure();
  // C3
  if (failed(expectShapeOf(*this, "cotangent", getCotangent(), getX(), "x")))
    return failure();
  return expectShapeOf(*this, "result", getResult(), getX(), "x");
}

LogicalResult GateVjpOp::verify() {
  // C1
  const std::pair<const char *, Value> others[] = {
      {"up", getUp()},
      {"cotangent", getCotangent()},
      {"dgate", getDgate()},
      {"dup", getDup()},
      {"product", getProduct()}};
  for (auto [what, value] : others)
    if (failed(expectShapeOf(*this, what, value, getGate(), "gate")))
      return failure();
  return success();
}

LogicalResult SumRowsOp::verify() {
  // C1
  if (failed(expectSize(*this, "rows of x", dim(getX(), 0), dim(getIndex(), 0),
                        "the length of index")))
    return failure();
  // C2
  if (failed(expectSize(*this, "columns of the result", dim(getResult(), 1),
                        dim(getX(), 1), "the columns of x")))
    return failure();
  // C3
  if (getInitial() && getInitial().getType() != getResult().getType())
    return emitOpError() << "initial must have the type of the result, "
                         << getResult().getType() << ", got "
                         << getInitial().getType();
  // C4
  return expectPaddingId(*this, getPaddingId(), dim(getResult(), 0));
}

LogicalResult CrossEntropyStepOp::verify() {
  WeightShape head = getWeightShape(getHead().getType());
  // C1
  if (failed(expectSize(*this, "columns of x", dim(getX(), 1), head.inputs,
                        "the inputs of head")))
    return failure();
  // C2
  const std::pair<const char *, Value> vectors[] = {
      {"length of labels", getLabels()},
      {"length of cotangent", getCotangent()},
      {"length of nll", getNll()}};
  for (auto [what, value] : vectors)
    if (failed(expectSize(*this, what, dim(value, 0), dim(getX(), 0),
                          "the rows of x")))
      return failure();
  // C3
  if (failed(expectShapeOf(*this, "dx", getDx(), getX(), "x")) ||
      failed(expectSize(*this, "rows of dhead", dim(getDhead(), 0),
                        head.outputs, "the outputs of head")) ||
      failed(expectSize(*this, "columns of dhead", dim(getDhead(), 1),
                        head.inputs, "the inputs of head")))
    return failure();
  if (!getTransposed())
    return success();
  // C4
  WeightShape transposed = getWeightShape(getTransposed().getType());
  if (failed(expectSize(*this, "inputs of transposed", transposed.inputs,
                        head.outputs, "the outputs of head")))
    return failure();
  return expectSize(*this, "outputs of transposed", transposed.outputs,
                    head.inputs, "the inputs of head");
}

//===----------------------------------------------------------------------===//
// Products over tokens
//===----------------------------------------------------------------------===//

static LogicalResult expectOneElementType(Operation *op, Value lhs, Value rhs) {
  Type left = cast<ShapedType>(lhs.getType()).getElementType();
  Type right = cast<ShapedType>(rhs.getType()).getElementType();
  if (left == right)
    return success();
  return op->emitOpError() << "operands must have the same element type, got "
                           << left << " and " << right;
}

LogicalResult PackTokensOp::verify() {
  // C1
  if (failed(expectOneElementType(*this, getX(), getPanel())))
    return failure();
  // C2
  int64_t columns = dim(getX(), 1);
  if (!ShapedType::isDynamic(columns) && columns > PackedType::kPanelColumns)
    return emitOpError() << "a panel has " << PackedType::kPanelColumns
                         << " columns, x has " << columns;
  // C3
  return verifyDestination(*this, getX(), getPanel(), "panel");
}

LogicalResult TransposeTokensOp::verify() {
  // C1
  if (failed(expectOneElementType(*this, getX(), getOut())))
    return failure();
  // C2
  return verifyDestination(*this, getX(), getOut(), "out");
}

LogicalResult PanelMatmulOp::verify() {
  // C1
  if (failed(expectSize(*this, "rows of acc", dim(getAcc(), 0), dim(getA(), 0),
                        "the rows of a")))
    return failure();
  // C2
  if (failed(expectOneElementType(*this, getA(), getB())))
    return failure();
  // C3
  if (failed(verifyDestination(*this, getA(), getAcc(), "acc")))
    return failure();
  // C4
  int64_t depth = getDepth(), columns = dim(getAcc(), 1);
  if (depth <= 0 || depth % 2 != 0)
    return emitOpError() << "depth must be positive and even, got " << depth;
  if (failed(expectSize(*this, "columns of b", dim(getB(), 1),
                        depth * PackedType::kPanelColumns,
                        "the size of a panel")))
    return failure();
  if (ShapedType::isDynamic(columns))
    return success();
  return expectSize(*this, "rows of b", dim(getB(), 0),
                    llvm::divideCeil(columns, PackedType::kPanelColumns),
                    "the panels of acc");
}
