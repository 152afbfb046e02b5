//===- StemOpVjps.cpp - Vector-Jacobian products of the stem ops ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rule an op. Where it has one result, cotangents[0] is there. What a rule
// computes stands in the description of the op that it builds.
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Dialect/Stem/StemVjp.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace stem;

using Cotangents = ArrayRef<Value>;
using Adjoints = MutableArrayRef<Value>;

bool stem::hasCotangent(Type type) {
  if (isa<PackedType>(type))
    return true;
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa<FloatType>(tensor.getElementType()) &&
         tensor.getElementTypeBitWidth() <= 64;
}

Type stem::getCotangentType(Type type) {
  MLIRContext *context = type.getContext();
  auto elementOf = [&](Type element) -> Type {
    return element.isF64() ? element : Float32Type::get(context);
  };
  if (auto packed = dyn_cast<PackedType>(type))
    return RankedTensorType::get({packed.getColumns(), packed.getRows()},
                                 elementOf(packed.getElementType()));
  auto tensor = cast<RankedTensorType>(type);
  return tensor.clone(elementOf(tensor.getElementType()));
}

static Type cotangentType(Value value) {
  return getCotangentType(value.getType());
}

/// Where the adjoint of an operand goes.
static Value &at(Adjoints adjoints, OpOperand &operand) {
  return adjoints[operand.getOperandNumber()];
}

LogicalResult EmbeddingOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                    Adjoints adjoints) {
  if (ShapedType::isDynamic(getWeightShape(getWeight().getType()).outputs))
    return emitOpError("has no derivative: its gradient is a matrix, whose "
                       "number of rows must be static");
  at(adjoints, getWeightMutable()) =
      EmbeddingVjpOp::create(b, getLoc(), cotangentType(getWeight()), getIds(),
                             cotangents[0], getPaddingIdAttr());
  return success();
}

LogicalResult RMSNormOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                  Adjoints adjoints) {
  auto vjp = RMSNormVjpOp::create(b, getLoc(), cotangentType(getX()),
                                  cotangentType(getWeight()), getX(),
                                  getWeight(), cotangents[0], getEpsAttr());
  at(adjoints, getXMutable()) = vjp.getDx();
  at(adjoints, getWeightMutable()) = vjp.getDweight();
  return success();
}

LogicalResult SiluOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                               Adjoints adjoints) {
  at(adjoints, getXMutable()) = SiluVjpOp::create(
      b, getLoc(), cotangentType(getX()), getX(), cotangents[0]);
  return success();
}

static Value inputVjp(OpBuilder &b, Location loc, Value x, Value cotangent,
                      Value weight) {
  return LinearInputVjpOp::create(b, loc, cotangentType(x), cotangent, weight);
}

static Value weightVjp(OpBuilder &b, Location loc, Value weight, Value x,
                       Value cotangent) {
  return LinearWeightVjpOp::create(b, loc, cotangentType(weight), x, cotangent);
}

static Value biasVjp(OpBuilder &b, Location loc, Value bias, Value cotangent) {
  return SumTokensOp::create(b, loc, cotangentType(bias), cotangent);
}

LogicalResult LinearOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                 Adjoints adjoints) {
  at(adjoints, getXMutable()) =
      inputVjp(b, getLoc(), getX(), cotangents[0], getWeight());
  at(adjoints, getWeightMutable()) =
      weightVjp(b, getLoc(), getWeight(), getX(), cotangents[0]);
  if (getBias())
    adjoints[2] = biasVjp(b, getLoc(), getBias(), cotangents[0]);
  return success();
}

bool RopeOp::isDataOperand(unsigned index) { return index > 0; }

// The rotation by the negative angle.
LogicalResult RopeOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                               Adjoints adjoints) {
  Value sin = arith::NegFOp::create(b, getLoc(), getSin());
  at(adjoints, getXMutable()) = RopeOp::create(
      b, getLoc(), cotangentType(getX()), cotangents[0], getCos(), sin);
  return success();
}

LogicalResult AttentionOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                    Adjoints adjoints) {
  if (getCache())
    return emitOpError("with a cache has no derivative: the keys and values of "
                       "past positions are not in the function");
  // Beside the op: like its result, a value of the forward function.
  OpBuilder forward(getContext());
  forward.setInsertionPointAfter(*this);
  auto queries = cast<RankedTensorType>(cotangentType(getQ()));
  Value logSumExp = AttentionLogSumExpOp::create(
      forward, getLoc(),
      queries.clone({queries.getDimSize(0), getQueryHeads()}), getQ(), getK(),
      getPositions(), getSequences(), getHeadDimAttr(), getScaleAttr(),
      getWindowAttr());
  auto vjp = AttentionVjpOp::create(
      b, getLoc(), cotangentType(getQ()), cotangentType(getK()),
      cotangentType(getV()), getQ(), getK(), getV(), cotangents[0],
      ValueRange{getResult(), logSumExp}, getPositions(), getSequences(),
      getHeadDimAttr(), getScaleAttr(), getWindowAttr());
  at(adjoints, getQMutable()) = vjp.getDq();
  at(adjoints, getKMutable()) = vjp.getDk();
  at(adjoints, getVMutable()) = vjp.getDv();
  return success();
}

/// The place of an optional operand, which is there.
static Value &at(Adjoints adjoints, MutableOperandRange operand) {
  return at(adjoints, operand[0]);
}

namespace {

/// The rules of the gated FFNs. What the gate and the up-projection give before
/// SiLU stands beside the op, a value of the forward function in the type of x:
/// stem-recompute decides whether it is kept, and stem-to-linalg takes it out
/// of the op's own products.
template <typename FFNOp> struct FFNRule {
  FFNRule(FFNOp op, OpBuilder &b, Value cotangent, Adjoints adjoints)
      : op(op), b(b), cotangent(cotangent), adjoints(adjoints) {}

  Value projection(Value weight, Value bias) {
    OpBuilder forward(op.getContext());
    forward.setInsertionPointAfter(op);
    return LinearOp::create(forward, op.getLoc(), ofColumns(op.getX()),
                            op.getX(), weight, bias);
  }

  /// From the cotangent of the product to those of gate and up.
  GateVjpOp through(Value gate, Value up, Type upCotangent) {
    auto type = cast<RankedTensorType>(cotangentType(op.getX()));
    Value dproduct = LinearInputVjpOp::create(
        b, op.getLoc(), ofColumns(op.getX()).clone(type.getElementType()),
        cotangent, op.getDown());
    RankedTensorType narrow = ofColumns(op.getX());
    return GateVjpOp::create(b, op.getLoc(), narrow, upCotangent, narrow, gate,
                             up, dproduct);
  }

  void addWeight(OpOperand &weight, Value x, Value of) {
    at(adjoints, weight) = weightVjp(b, op.getLoc(), weight.get(), x, of);
  }
  void addBias(Value bias, MutableOperandRange operand, Value of) {
    if (bias)
      at(adjoints, operand) = biasVjp(b, op.getLoc(), bias, of);
  }
  void addInput(Value of, Value weight) {
    Value &dx = at(adjoints, op.getXMutable());
    Value more = inputVjp(b, op.getLoc(), op.getX(), of, weight);
    dx =
        dx ? arith::AddFOp::create(b, op.getLoc(), dx, more).getResult() : more;
  }

  /// T x d_ff of the type of `x`.
  RankedTensorType ofColumns(Value x) {
    auto type = cast<RankedTensorType>(x.getType());
    return type.clone(
        {type.getDimSize(0), getWeightShape(op.getGate().getType()).outputs});
  }

  FFNOp op;
  OpBuilder &b;
  Value cotangent;
  Adjoints adjoints;
};

} // namespace

// In both rules what is added up over tokens comes after what is not: it ends
// a run of ops on tiles.

LogicalResult DenseFFNOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                   Adjoints adjoints) {
  FFNRule rule(*this, b, cotangents[0], adjoints);
  Value up = rule.projection(getUp(), getUpBias());
  Value gate = rule.projection(getGate(), getGateBias());
  auto vjp = rule.through(gate, up, rule.ofColumns(getX()));
  rule.addInput(vjp.getDgate(), getGate());
  rule.addInput(vjp.getDup(), getUp());
  rule.addWeight(getGateMutable(), getX(), vjp.getDgate());
  rule.addWeight(getUpMutable(), getX(), vjp.getDup());
  rule.addWeight(getDownMutable(), vjp.getProduct(), cotangents[0]);
  rule.addBias(getGateBias(), getGateBiasMutable(), vjp.getDgate());
  rule.addBias(getUpBias(), getUpBiasMutable(), vjp.getDup());
  rule.addBias(getDownBias(), getDownBiasMutable(), cotangents[0]);
  return success();
}

LogicalResult GatedFFNOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                   Adjoints adjoints) {
  FFNRule rule(*this, b, cotangents[0], adjoints);
  Value gate = rule.projection(getGate(), getGateBias());
  auto vjp = rule.through(gate, getUp(), cotangentType(getUp()));
  at(adjoints, getUpMutable()) = vjp.getDup();
  rule.addInput(vjp.getDgate(), getGate());
  rule.addWeight(getGateMutable(), getX(), vjp.getDgate());
  rule.addWeight(getDownMutable(), vjp.getProduct(), cotangents[0]);
  rule.addBias(getGateBias(), getGateBiasMutable(), vjp.getDgate());
  rule.addBias(getDownBias(), getDownBiasMutable(), cotangents[0]);
  return success();
}

LogicalResult CrossEntropyOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                       Adjoints adjoints) {
  auto vjp = CrossEntropyVjpOp::create(b, getLoc(), cotangentType(getX()),
                                       cotangentType(getHead()), getX(),
                                       getHead(), getLabels(), cotangents[0]);
  at(adjoints, getXMutable()) = vjp.getDx();
  at(adjoints, getHeadMutable()) = vjp.getDhead();
  return success();
}

bool DistillationOp::isDataOperand(unsigned index) { return index > 1; }
LogicalResult DistillationOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                       Adjoints adjoints) {
  if (!cotangents[0] || !cotangents[1])
    return emitOpError("has no derivative of one result alone: return both, "
                       "and let a cotangent be zero");
  auto vjp = DistillationVjpOp::create(
      b, getLoc(), cotangentType(getX()), cotangentType(getHead()), getX(),
      getHead(), getLabels(), getTeacher(), getTeacherHead(), cotangents[0],
      cotangents[1]);
  at(adjoints, getXMutable()) = vjp.getDx();
  at(adjoints, getHeadMutable()) = vjp.getDhead();
  return success();
}

LogicalResult LookupOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                 Adjoints adjoints) {
  Value cotangent =
      convertCotangent(b, getLoc(), cotangents[0], cotangentType(getRows()));
  auto matrix = cast<RankedTensorType>(cotangent.getType());
  int64_t columns = matrix.getDimSize(1);
  if (ShapedType::isDynamic(columns) || columns == 0)
    return emitOpError("has no derivative: its result must have a static "
                       "number of columns, and one at least");
  auto type =
      RowGradientType::get(b.getContext(), columns, matrix.getElementType());
  at(adjoints, getRowsMutable()) =
      RowGradientOp::create(b, getLoc(), type, getIndex(), cotangent);
  return success();
}

// up + A (B x): that of two linear ops, with B x computed again.
LogicalResult MixOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                              Adjoints adjoints) {
  auto x = cast<RankedTensorType>(getX().getType());
  int64_t rank = getWeightShape(getB().getType()).outputs;
  auto narrow =
      RankedTensorType::get({x.getDimSize(0), rank}, x.getElementType());
  Value inner =
      LinearOp::create(b, getLoc(), narrow, getX(), getB(), /*bias=*/Value());
  Value dinner = inputVjp(b, getLoc(), inner, cotangents[0], getA());
  at(adjoints, getUpMutable()) = cotangents[0];
  at(adjoints, getXMutable()) = inputVjp(b, getLoc(), getX(), dinner, getB());
  at(adjoints, getAMutable()) =
      weightVjp(b, getLoc(), getA(), inner, cotangents[0]);
  at(adjoints, getBMutable()) = weightVjp(b, getLoc(), getB(), getX(), dinner);
  return success();
}

LogicalResult SelectUpOp::buildVjp(OpBuilder &b, Cotangents cotangents,
                                   Adjoints adjoints) {
  auto keep = [&](bool others) -> Value {
    return KeepSelectedOp::create(b, getLoc(), cotangents[0].getType(),
                                  cotangents[0], getIds(), getSelected(),
                                  others);
  };
  Value projected = keep(/*others=*/false);
  at(adjoints, getUpMutable()) = keep(/*others=*/true);
  at(adjoints, getXMutable()) =
      inputVjp(b, getLoc(), getX(), projected, getWeight());
  at(adjoints, getWeightMutable()) =
      weightVjp(b, getLoc(), getWeight(), getX(), projected);
  if (getBias())
    at(adjoints, getBiasMutable()) = biasVjp(b, getLoc(), getBias(), projected);
  return success();
}
