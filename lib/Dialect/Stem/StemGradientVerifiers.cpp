//===- StemGradientVerifiers.cpp - Constraints of the gradient ops --------===//
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

/// A value, and its cotangent as a result. Weights may be packed.
static LogicalResult expectCotangent(Operation *op, const char *what,
                                     Value cotangent, Value of) {
  if (auto packed = dyn_cast<PackedType>(of.getType())) {
    std::string rows = std::string("rows of ") + what;
    std::string columns = std::string("columns of ") + what;
    if (failed(expectSize(op, rows.c_str(), dim(cotangent, 0),
                          packed.getColumns(), "the outputs of its weight")))
      return failure();
    return expectSize(op, columns.c_str(), dim(cotangent, 1), packed.getRows(),
                      "the inputs of its weight");
  }
  return expectShapeOf(op, what, cotangent, of, "its value");
}

LogicalResult RMSNormVjpOp::verify() {
  // C1, C2
  if (failed(expectNorm(*this, getX(), getWeight(), getEps())))
    return failure();
  // C3
  if (failed(expectShapeOf(*this, "cotangent", getCotangent(), getX(), "x")) ||
      failed(expectCotangent(*this, "dx", getDx(), getX())))
    return failure();
  // C4
  return expectCotangent(*this, "dweight", getDweight(), getWeight());
}

LogicalResult SiluVjpOp::verify() {
  // C1
  if (failed(expectShapeOf(*this, "cotangent", getCotangent(), getX(), "x")))
    return failure();
  // C2
  return expectShapeOf(*this, "result", getResult(), getX(), "x");
}

LogicalResult LinearInputVjpOp::verify() {
  WeightShape weight = getWeightShape(getWeight().getType());
  // C1
  if (failed(expectSize(*this, "columns of cotangent", dim(getCotangent(), 1),
                        weight.outputs, "the outputs of the weight")))
    return failure();
  // C2
  if (failed(expectSize(*this, "columns of the result", dim(getResult(), 1),
                        weight.inputs, "the inputs of the weight")))
    return failure();
  return expectSize(*this, "rows of the result", dim(getResult(), 0),
                    dim(getCotangent(), 0), "the rows of cotangent");
}

LogicalResult LinearWeightVjpOp::verify() {
  // C1
  if (failed(expectSize(*this, "rows of cotangent", dim(getCotangent(), 0),
                        dim(getX(), 0), "the rows of x")))
    return failure();
  // C2
  if (failed(expectSize(*this, "rows of the result", dim(getResult(), 0),
                        dim(getCotangent(), 1), "the columns of cotangent")))
    return failure();
  return expectSize(*this, "columns of the result", dim(getResult(), 1),
                    dim(getX(), 1), "the columns of x");
}

LogicalResult SumTokensOp::verify() {
  // C1
  int64_t columns = dim(getX(), 1), length = dim(getResult(), 0);
  if (ShapedType::isDynamic(columns) || ShapedType::isDynamic(length) ||
      (length > 0 && columns % length == 0))
    return success();
  return emitOpError() << "length of the result (" << length
                       << ") must divide the columns of x (" << columns << ")";
}

template <typename Op> static LogicalResult verifyAttentionVjp(Op op) {
  // C1, C2, C3
  if (failed(expectHeads(op, op.getQ(), op.getK(), op.getV(), op.getHeadDim())))
    return failure();
  // C5
  if (failed(expectShapeOf(op, "cotangent", op.getCotangent(), op.getQ(), "q")))
    return failure();
  // C6
  if (int64_t window = op.getWindow(); window < 0)
    return op.emitOpError() << "window must not be negative, got " << window;
  // C7
  for (Value operand :
       {Value(op.getK()), Value(op.getPositions()), Value(op.getSequences())})
    if (failed(expectSize(op, "rows of a token operand", dim(operand, 0),
                          dim(op.getQ(), 0), "the rows of q")))
      return failure();
  // C8
  if (failed(expectCotangent(op, "dq", op.getDq(), op.getQ())) ||
      failed(expectCotangent(op, "dk", op.getDk(), op.getK())) ||
      failed(expectCotangent(op, "dv", op.getDv(), op.getV())))
    return failure();
  // C9
  OperandRange forward = op.getForward();
  if (forward.empty())
    return success();
  if (forward.size() != 2)
    return op.emitOpError() << "forward must be nothing, or what attention "
                               "gave and its logarithms, got "
                            << forward.size() << " values";
  if (failed(
          expectShapeOf(op, "the forward result", forward[0], op.getQ(), "q")))
    return failure();
  return expectLogSumExp(op, "the forward logarithms", forward[1], op.getQ(),
                         op.getHeadDim());
}

LogicalResult AttentionLogSumExpOp::verify() {
  // C1, C3
  if (failed(expectHeads(*this, getQ(), getK(), getK(), getHeadDim())))
    return failure();
  // C6
  if (int64_t window = getWindow(); window < 0)
    return emitOpError() << "window must not be negative, got " << window;
  // C7
  for (Value operand :
       {Value(getK()), Value(getPositions()), Value(getSequences())})
    if (failed(expectSize(*this, "rows of a token operand", dim(operand, 0),
                          dim(getQ(), 0), "the rows of q")))
      return failure();
  // C2
  return expectLogSumExp(*this, "the result", getResult(), getQ(),
                         getHeadDim());
}

LogicalResult AttentionVjpOp::verify() { return verifyAttentionVjp(*this); }

LogicalResult AttendVjpOp::verify() {
  if (failed(verifyAttentionVjp(*this)))
    return failure();
  // C10
  Type element = getQ().getType().getElementType();
  if (!element.isF32() && !element.isBF16())
    return emitOpError() << "pages are f32 or bf16, got queries of " << element;
  for (auto [name, operand] : {std::pair("k", getK()), std::pair("v", getV()),
                               std::pair("cotangent", getCotangent())})
    if (operand.getType().getElementType() != element)
      return emitOpError() << name << " must have the elements of q, "
                           << element << ", got " << operand.getType();
  return success();
}

/// A bias, its cotangent, and their names.
struct BiasPair {
  Value bias, cotangent;
  const char *biasName, *name;
};

/// A cotangent comes with its bias.
static LogicalResult expectBiasCotangents(Operation *op, int64_t outputs,
                                          ArrayRef<BiasPair> pairs) {
  for (const BiasPair &pair : pairs) {
    std::string length = std::string("length of ") + pair.biasName;
    if (failed(expectBias(op, pair.bias, outputs, length.c_str())))
      return failure();
    if (bool(pair.bias) != bool(pair.cotangent))
      return op->emitOpError()
             << pair.biasName << " and " << pair.name << " must come together";
    if (pair.bias &&
        failed(expectCotangent(op, pair.name, pair.cotangent, pair.bias)))
      return failure();
  }
  return success();
}

/// Gate and down face x and the cotangent of the result.
template <typename Op> static LogicalResult expectGateAndDown(Op op) {
  WeightShape gate = getWeightShape(op.getGate().getType());
  WeightShape down = getWeightShape(op.getDown().getType());
  if (failed(expectSize(op, "columns of x", dim(op.getX(), 1), gate.inputs,
                        "the inputs of gate")) ||
      failed(expectSize(op, "inputs of down", down.inputs, gate.outputs,
                        "the outputs of gate")) ||
      failed(expectSize(op, "outputs of down", down.outputs, gate.inputs,
                        "the inputs of gate")))
    return failure();
  return expectShapeOf(op, "cotangent", op.getCotangent(), op.getX(), "x");
}

template <typename Op> static LogicalResult expectFFNCotangents(Op op) {
  if (failed(expectCotangent(op, "dx", op.getDx(), op.getX())) ||
      failed(expectCotangent(op, "dgate", op.getDgate(), op.getGate())) ||
      failed(expectCotangent(op, "dup", op.getDup(), op.getUp())))
    return failure();
  return expectCotangent(op, "ddown", op.getDdown(), op.getDown());
}

LogicalResult DenseFFNVjpOp::verify() {
  WeightShape gate = getWeightShape(getGate().getType());
  WeightShape up = getWeightShape(getUp().getType());
  // C1
  if (gate.inputs != up.inputs || gate.outputs != up.outputs)
    return emitOpError() << "gate and up must have the same shape, got "
                         << getGate().getType() << " and " << getUp().getType();
  // C1, C2, C4
  if (failed(expectGateAndDown(*this)))
    return failure();
  // C5
  if (failed(expectFFNCotangents(*this)))
    return failure();
  // C3, C6
  return expectBiasCotangents(
      *this, gate.outputs,
      {{getGateBias(), getDgateBias(), "gate_bias", "dgate_bias"},
       {getUpBias(), getDupBias(), "up_bias", "dup_bias"}});
}

LogicalResult GatedFFNVjpOp::verify() {
  WeightShape gate = getWeightShape(getGate().getType());
  // C1, C3, C4
  if (failed(expectGateAndDown(*this)))
    return failure();
  // C2
  if (failed(expectSize(*this, "rows of up", dim(getUp(), 0), dim(getX(), 0),
                        "the rows of x")) ||
      failed(expectSize(*this, "columns of up", dim(getUp(), 1), gate.outputs,
                        "the outputs of gate")))
    return failure();
  // C5
  if (failed(expectFFNCotangents(*this)))
    return failure();
  // C6
  return expectBiasCotangents(
      *this, gate.outputs,
      {{getGateBias(), getDgateBias(), "gate_bias", "dgate_bias"}});
}

LogicalResult CrossEntropyVjpOp::verify() {
  // C1
  if (failed(expectSize(*this, "columns of x", dim(getX(), 1),
                        getWeightShape(getHead().getType()).inputs,
                        "the inputs of head")))
    return failure();
  // C2
  if (failed(expectSize(*this, "length of labels", dim(getLabels(), 0),
                        dim(getX(), 0), "the rows of x")) ||
      failed(expectSize(*this, "length of cotangent", dim(getCotangent(), 0),
                        dim(getX(), 0), "the rows of x")))
    return failure();
  // C3
  if (failed(expectCotangent(*this, "dx", getDx(), getX())))
    return failure();
  return expectCotangent(*this, "dhead", getDhead(), getHead());
}

LogicalResult EmbeddingVjpOp::verify() {
  // C1
  if (failed(expectSize(*this, "rows of cotangent", dim(getCotangent(), 0),
                        dim(getIds(), 0), "the number of ids")))
    return failure();
  // C2
  if (failed(expectSize(*this, "columns of the result", dim(getResult(), 1),
                        dim(getCotangent(), 1), "the columns of cotangent")))
    return failure();
  // C3
  if (ShapedType::isDynamic(dim(getResult(), 0)))
    return emitOpError() << "rows of the result must be static, got "
                         << getResult().getType();
  // C4
  return expectPaddingId(*this, getPaddingId(), dim(getResult(), 0));
}

LogicalResult KeepSelectedOp::verify() {
  // C1
  if (failed(expectSize(*this, "length of ids", dim(getIds(), 0),
                        dim(getX(), 0), "the rows of x")))
    return failure();
  // C2
  return expectShapeOf(*this, "result", getResult(), getX(), "x");
}

LogicalResult RowGradientOp::verify() {
  // C1
  if (failed(expectSize(*this, "rows of cotangent", dim(getCotangent(), 0),
                        dim(getIndex(), 0), "the length of index")))
    return failure();
  // C2
  RowGradientType type = getResult().getType();
  auto cotangent = cast<ShapedType>(getCotangent().getType());
  if (cotangent.getDimSize(1) == type.getColumns() &&
      cotangent.getElementType() == type.getElementType())
    return success();
  return emitOpError() << "result must have the columns and element type of "
                          "cotangent ("
                       << cotangent << "), got " << type;
}

LogicalResult TableGradientOp::verify() {
  // C1
  if (failed(expectSize(*this, "length of ids", dim(getIds(), 0),
                        dim(getIndex(), 0), "the length of index")))
    return failure();
  // C2
  if (failed(expectSize(*this, "rows of rows", dim(getRows(), 0),
                        dim(getUnique(), 0), "the length of unique")))
    return failure();
  // C3
  RowGradientType type = getPairs().getType();
  auto rows = cast<ShapedType>(getRows().getType());
  if (rows.getDimSize(1) == type.getColumns() &&
      rows.getElementType() == type.getElementType())
    return success();
  return emitOpError() << "rows must have the columns and element type of "
                       << type << ", got " << rows;
}
