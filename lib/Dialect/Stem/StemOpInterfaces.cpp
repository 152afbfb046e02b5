//===- StemOpInterfaces.cpp - Effects, cost and token operands -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/Count.h"
#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace stem;

//===----------------------------------------------------------------------===//
// Memory effects
//===----------------------------------------------------------------------===//

using Effects =
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

void AttentionOp::getEffects(Effects &effects) {
  if (!getCache())
    return;
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}

// Reads the store: stays where it is among its other uses, and goes only where
// nothing reads the rows.
void TableRowsOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get());
}

template <typename OpT>
static void addDestinationEffects(OpT op, ArrayRef<OpOperand *> inputs,
                                  bool readsDestination, Effects &effects) {
  OpOperand *destination = op.getDpsInitOperand(0);
  if (!isa<MemRefType>(destination->get().getType()))
    return;
  for (OpOperand *input : inputs)
    effects.emplace_back(MemoryEffects::Read::get(), input);
  if (readsDestination)
    effects.emplace_back(MemoryEffects::Read::get(), destination);
  effects.emplace_back(MemoryEffects::Write::get(), destination);
}

void PackedMatmulOp::getEffects(Effects &effects) {
  addDestinationEffects(*this, {&getAMutable()}, getAccumulate(), effects);
}

void PackedGatherOp::getEffects(Effects &effects) {
  addDestinationEffects(*this, {&getIdsMutable()}, false, effects);
}

void PackTokensOp::getEffects(Effects &effects) {
  addDestinationEffects(*this, {&getXMutable()}, false, effects);
}

void TransposeTokensOp::getEffects(Effects &effects) {
  addDestinationEffects(*this, {&getXMutable()}, false, effects);
}

void PanelMatmulOp::getEffects(Effects &effects) {
  addDestinationEffects(*this, {&getAMutable(), &getBMutable()}, true, effects);
}

void KVAppendOp::getEffects(Effects &effects) {
  for (OpOperand *operand : {&getKMutable(), &getVMutable(),
                             &getPositionsMutable(), &getSequencesMutable()})
    if (isa<MemRefType>(operand->get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), operand);
  effects.emplace_back(MemoryEffects::Write::get());
}

void AttendOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get());
}

void AttendVjpOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get());
}

void KVPageOp::getEffects(Effects &effects) {
  effects.emplace_back(MemoryEffects::Read::get());
}

//===----------------------------------------------------------------------===//
// Token operands
//===----------------------------------------------------------------------===//

/// Whether the operand at `index` is one of `operands`. Not by value: the same
/// matrix may be the tokens and the weight of one op.
static bool isOneOf(Operation *op, unsigned index,
                    ArrayRef<OpOperand *> operands) {
  return llvm::is_contained(operands, &op->getOpOperand(index));
}

bool EmbeddingOp::isTokenOperand(unsigned index) { return index == 0; }
bool RMSNormOp::isTokenOperand(unsigned index) { return index == 0; }
bool SiluOp::isTokenOperand(unsigned index) { return true; }
bool SiluVjpOp::isTokenOperand(unsigned index) { return true; }
bool RMSNormInputVjpOp::isTokenOperand(unsigned index) { return index != 1; }
bool GateVjpOp::isTokenOperand(unsigned index) { return true; }
bool LinearInputVjpOp::isTokenOperand(unsigned index) { return index == 0; }
bool KeepSelectedOp::isTokenOperand(unsigned index) { return index < 2; }
bool LinearOp::isTokenOperand(unsigned index) { return index == 0; }
bool RotaryAnglesOp::isTokenOperand(unsigned index) { return true; }
bool RopeOp::isTokenOperand(unsigned index) { return true; }
bool DenseFFNOp::isTokenOperand(unsigned index) { return index == 0; }
bool CrossEntropyOp::isTokenOperand(unsigned index) { return index != 1; }
bool DistillationOp::isTokenOperand(unsigned index) {
  return !isOneOf(*this, index, {&getHeadMutable(), &getTeacherHeadMutable()});
}
bool LookupOp::isTokenOperand(unsigned index) { return index == 1; }
bool MapIdsOp::isTokenOperand(unsigned index) { return index == 0; }
bool GatedFFNOp::isTokenOperand(unsigned index) {
  return isOneOf(*this, index, {&getXMutable(), &getUpMutable()});
}
bool FusedFFNOp::isTokenOperand(unsigned index) {
  return isOneOf(*this, index, {&getXMutable(), &getIndexMutable()});
}
bool AttendOp::isTokenOperand(unsigned index) { return index < 3; }
bool KVAppendOp::isTokenOperand(unsigned index) { return index < 4; }
bool MixOp::isTokenOperand(unsigned index) {
  return isOneOf(*this, index, {&getUpMutable(), &getXMutable()});
}
bool SelectUpOp::isTokenOperand(unsigned index) {
  return isOneOf(*this, index,
                 {&getUpMutable(), &getXMutable(), &getIdsMutable()});
}

//===----------------------------------------------------------------------===//
// Cost
//===----------------------------------------------------------------------===//

/// Elements of a tensor or packed matrix; an unknown size counts as `tokens`.
static Count countElements(Type type, int64_t tokens) {
  if (auto packed = dyn_cast<PackedType>(type))
    return Count(packed.getRows()) * packed.getColumns();
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasRank())
    return 0;
  Count count = 1;
  for (int64_t size : shaped.getShape())
    count *= ShapedType::isDynamic(size) ? tokens : size;
  return count;
}

static Count bytesOf(Type type, int64_t tokens) {
  Type element;
  if (auto packed = dyn_cast<PackedType>(type))
    element = packed.getElementType();
  else if (auto shaped = dyn_cast<ShapedType>(type))
    element = shaped.getElementType();
  if (!element || !element.isIntOrIndexOrFloat())
    return 0;
  Count bits = countElements(type, tokens) *
               (element.isIndex() ? 64 : element.getIntOrFloatBitWidth());
  return bits.isExact() ? Count(bits.get() / 8) : bits;
}

int64_t stem::countBytes(Type type, int64_t tokens) {
  return bytesOf(type, tokens).get();
}

static OpCost costOf(Count flops, Count bytes, Count parameters) {
  return {flops.get(), bytes.get(), parameters.get()};
}

static int64_t sizeOf(Value value, int64_t dim, int64_t tokens) {
  int64_t size = cast<ShapedType>(value.getType()).getDimSize(dim);
  return ShapedType::isDynamic(size) ? tokens : size;
}

static Count rowsOf(Value value, int64_t tokens) {
  return sizeOf(value, 0, tokens);
}

/// All operands and results are read or written once.
static Count streamedBytes(Operation *op, int64_t tokens) {
  Count bytes = 0;
  for (Value value : op->getOperands())
    bytes += bytesOf(value.getType(), tokens);
  for (Value value : op->getResults())
    bytes += bytesOf(value.getType(), tokens);
  return bytes;
}

/// A product with each of `weights`, and `elementwise` operations per element
/// of `hidden` columns.
static OpCost matrixCost(Operation *op, Value x, ArrayRef<Value> weights,
                         Count elementwise, int64_t tokens) {
  Count rows = rowsOf(x, tokens), parameters;
  for (Value weight : weights)
    parameters += countElements(weight.getType(), tokens);
  return costOf(2 * rows * parameters + rows * elementwise,
                streamedBytes(op, tokens), parameters);
}

/// Of a tensor or packed matrix; nothing for elements without a width.
static int64_t elementBytes(Type type) {
  Type element = isa<PackedType>(type) ? cast<PackedType>(type).getElementType()
                                       : getElementTypeOrSelf(type);
  return element.isIntOrFloat() ? element.getIntOrFloatBitWidth() / 8 : 0;
}

/// A gather reads the rows that the tokens name, not the whole matrix.
static OpCost gatherCost(Type matrix, Value result, int64_t tokens) {
  Count rows = rowsOf(result, tokens);
  return costOf(
      0,
      rows * (Count(sizeOf(result, 1, tokens)) * elementBytes(matrix) + 4) +
          bytesOf(result.getType(), tokens),
      countElements(matrix, tokens));
}

// SiLU and the product: exp, add, divide, two multiplies.
static constexpr int64_t kGateFlops = 5;

OpCost EmbeddingOp::getCost(int64_t tokens) {
  return gatherCost(getWeight().getType(), getResult(), tokens);
}

OpCost RMSNormOp::getCost(int64_t tokens) {
  return costOf(4 * countElements(getX().getType(), tokens),
                streamedBytes(*this, tokens),
                countElements(getWeight().getType(), tokens));
}

// Exp, negate, add, divide.
OpCost SiluOp::getCost(int64_t tokens) {
  return costOf(4 * countElements(getX().getType(), tokens),
                streamedBytes(*this, tokens), 0);
}

OpCost LinearOp::getCost(int64_t tokens) {
  return matrixCost(*this, getX(), {getWeight()}, getBias() ? 1 : 0, tokens);
}

OpCost RotaryAnglesOp::getCost(int64_t tokens) {
  return costOf(3 * countElements(getCos().getType(), tokens),
                streamedBytes(*this, tokens), 0);
}

OpCost RopeOp::getCost(int64_t tokens) {
  return costOf(3 * countElements(getX().getType(), tokens),
                streamedBytes(*this, tokens), 0);
}

// Causal: on average half of the keys, within the window.
template <typename Op> static OpCost attentionCost(Op op, int64_t tokens) {
  Count rows = rowsOf(op.getQ(), tokens);
  int64_t keys = llvm::divideCeil(rows.get(), 2);
  if (op.getWindow() > 0)
    keys = std::min(keys, static_cast<int64_t>(op.getWindow()));
  Count heads = op.getQueryHeads();
  Count columns = heads * op.getHeadDim();
  return costOf(4 * rows * keys * columns + 5 * rows * keys * heads,
                streamedBytes(op, tokens), 0);
}

OpCost AttentionOp::getCost(int64_t tokens) {
  return attentionCost(*this, tokens);
}
// One product of two, and its exponentials.
OpCost AttentionLogSumExpOp::getCost(int64_t tokens) {
  OpCost cost = attentionCost(*this, tokens);
  cost.flops /= 2;
  return cost;
}
OpCost AttendOp::getCost(int64_t tokens) {
  return attentionCost(*this, tokens);
}

OpCost DenseFFNOp::getCost(int64_t tokens) {
  int64_t columns = getWeightShape(getGate().getType()).outputs;
  return matrixCost(*this, getX(), {getGate(), getUp(), getDown()},
                    Count(kGateFlops) * columns, tokens);
}

OpCost CrossEntropyOp::getCost(int64_t tokens) {
  int64_t vocabulary = getWeightShape(getHead().getType()).outputs;
  return matrixCost(*this, getX(), {getHead()}, Count(2) * vocabulary, tokens);
}

OpCost DistillationOp::getCost(int64_t tokens) {
  int64_t vocabulary = getWeightShape(getHead().getType()).outputs;
  return matrixCost(*this, getX(), {getHead(), getTeacherHead()},
                    Count(6) * vocabulary, tokens);
}

OpCost LookupOp::getCost(int64_t tokens) {
  return gatherCost(getRows().getType(), getResult(), tokens);
}

OpCost GatedFFNOp::getCost(int64_t tokens) {
  int64_t columns = getWeightShape(getGate().getType()).outputs;
  return matrixCost(*this, getX(), {getGate(), getDown()},
                    Count(kGateFlops) * columns, tokens);
}

OpCost FusedFFNOp::getCost(int64_t tokens) {
  int64_t columns = getWeightShape(getGate().getType()).outputs;
  Count rows = rowsOf(getX(), tokens);
  Count bytes = bytesOf(getResult().getType(), tokens);
  // The table's rows that the tokens name, not all of them.
  for (Value value : (*this)->getOperands())
    if (value != getRows())
      bytes += bytesOf(value.getType(), tokens);
  bytes += rows * columns * elementBytes(getRows().getType());
  OpCost cost = matrixCost(*this, getX(), {getGate(), getDown()},
                           Count(kGateFlops) * columns, tokens);
  return {cost.flops, bytes.get(), cost.parameters};
}

OpCost MapIdsOp::getCost(int64_t tokens) {
  return costOf(0, 3 * 4 * rowsOf(getIds(), tokens),
                countElements(getMap().getType(), tokens));
}

OpCost MixOp::getCost(int64_t tokens) {
  return matrixCost(*this, getX(), {getA(), getB()}, sizeOf(getUp(), 1, tokens),
                    tokens);
}

OpCost SelectUpOp::getCost(int64_t tokens) {
  return matrixCost(*this, getX(), {getWeight()},
                    getBias() ? Count(sizeOf(getUp(), 1, tokens)) : Count(0),
                    tokens);
}

OpCost PackedMatmulOp::getCost(int64_t tokens) {
  PackedType b = getB().getType();
  auto columnsOf = [&](Value matrix, int64_t largest) {
    int64_t size = cast<ShapedType>(matrix.getType()).getDimSize(1);
    return ShapedType::isDynamic(size) ? std::min(tokens, largest) : size;
  };
  // The block of `b`, not the whole matrix.
  Count k = columnsOf(getA(), b.getRows()),
        n = columnsOf(getAcc(), b.getColumns());
  bool isPage = getB().getDefiningOp<KVPageOp>() != nullptr;
  return costOf(2 * rowsOf(getA(), tokens) * k * n,
                bytesOf(getA().getType(), tokens) + k * n * elementBytes(b) +
                    (getAccumulate() ? 2 : 1) *
                        bytesOf(getAcc().getType(), tokens),
                isPage ? 0 : countElements(b, tokens));
}

OpCost PackedGatherOp::getCost(int64_t tokens) {
  return gatherCost(getB().getType(), getOut(), tokens);
}

OpCost PackTokensOp::getCost(int64_t tokens) {
  return costOf(0, 2 * bytesOf(getX().getType(), tokens), 0);
}
OpCost TransposeTokensOp::getCost(int64_t tokens) {
  return costOf(0, 2 * bytesOf(getX().getType(), tokens), 0);
}
OpCost PanelMatmulOp::getCost(int64_t tokens) {
  // The depth of the product are tokens.
  int64_t depth = cast<ShapedType>(getA().getType()).getDimSize(1);
  if (ShapedType::isDynamic(depth))
    depth = tokens;
  return costOf(2 * countElements(getAcc().getType(), tokens) * depth,
                bytesOf(getA().getType(), tokens) +
                    bytesOf(getB().getType(), tokens) +
                    2 * bytesOf(getAcc().getType(), tokens),
                0);
}

OpCost KVAppendOp::getCost(int64_t tokens) {
  return costOf(0,
                streamedBytes(*this, tokens) +
                    bytesOf(getK().getType(), tokens) +
                    bytesOf(getV().getType(), tokens),
                0);
}

// A handle: the product that reads the page counts its bytes.
OpCost KVPageOp::getCost(int64_t) { return {}; }

//===----------------------------------------------------------------------===//
// Cost of gradients: two products for each one of the forward, and those that
// are computed again.
//===----------------------------------------------------------------------===//

/// Reads and writes everything once, with `flops` for each element of `x`.
static OpCost elementwiseCost(Operation *op, Value x, int64_t flops,
                              int64_t tokens) {
  return costOf(Count(flops) * countElements(x.getType(), tokens),
                streamedBytes(op, tokens), 0);
}

OpCost RMSNormVjpOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getX(), 10, tokens);
}
OpCost RMSNormInputVjpOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getX(), 8, tokens);
}
OpCost GateVjpOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getGate(), 12, tokens);
}
OpCost SumRowsOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getX(), 1, tokens);
}
OpCost SumSquaresOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getX(), 2, tokens);
}
OpCost GradientScaleOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getSums(), 1, tokens);
}
OpCost AdamWOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getWeight(), 15, tokens);
}
OpCost SiluVjpOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getX(), 8, tokens);
}
OpCost SumTokensOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getX(), 1, tokens);
}
OpCost EmbeddingVjpOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getCotangent(), 1, tokens);
}
OpCost KeepSelectedOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getX(), 0, tokens);
}
OpCost RowGradientOp::getCost(int64_t tokens) {
  return elementwiseCost(*this, getCotangent(), 0, tokens);
}
// Reads the pairs too, as many as there are tokens.
OpCost TableGradientOp::getCost(int64_t tokens) {
  RowGradientType pairs = getPairs().getType();
  Count row = Count(pairs.getColumns()) * elementBytes(getRows().getType()) + 4;
  return costOf(Count(tokens) * pairs.getColumns(),
                streamedBytes(*this, tokens) + Count(tokens) * row, 0);
}

// The pairs are named twice, not moved.
OpCost MergeRowGradientsOp::getCost(int64_t) { return {}; }

OpCost LinearInputVjpOp::getCost(int64_t tokens) {
  return matrixCost(*this, getCotangent(), {getWeight()}, 0, tokens);
}

OpCost LinearWeightVjpOp::getCost(int64_t tokens) {
  return costOf(2 * rowsOf(getX(), tokens) *
                    countElements(getResult().getType(), tokens),
                streamedBytes(*this, tokens), 0);
}

// Five products of the probabilities' size in place of two: the scores again,
// the cotangents of the probabilities, dv, dq and dk.
template <typename Op> static OpCost attentionVjpCost(Op op, int64_t tokens) {
  Count rows = rowsOf(op.getQ(), tokens);
  int64_t keys = llvm::divideCeil(rows.get(), 2);
  if (op.getWindow() > 0)
    keys = std::min(keys, static_cast<int64_t>(op.getWindow()));
  Count heads = op.getQueryHeads();
  return costOf(10 * rows * keys * heads * op.getHeadDim() +
                    10 * rows * keys * heads,
                streamedBytes(op, tokens), 0);
}

OpCost AttentionVjpOp::getCost(int64_t tokens) {
  return attentionVjpCost(*this, tokens);
}
OpCost AttendVjpOp::getCost(int64_t tokens) {
  return attentionVjpCost(*this, tokens);
}

/// Two products for each of `weights`, one more for each of `again`.
static OpCost ffnVjpCost(Operation *op, Value x, ArrayRef<Value> weights,
                         ArrayRef<Value> again, int64_t columns,
                         int64_t tokens) {
  SmallVector<Value> products(weights);
  llvm::append_range(products, weights);
  llvm::append_range(products, again);
  OpCost cost =
      matrixCost(op, x, products, Count(2 * kGateFlops) * columns, tokens);
  Count parameters;
  for (Value weight : weights)
    parameters += countElements(weight.getType(), tokens);
  return {cost.flops, cost.bytes, parameters.get()};
}

OpCost DenseFFNVjpOp::getCost(int64_t tokens) {
  return ffnVjpCost(*this, getX(), {getGate(), getUp(), getDown()},
                    {getGate(), getUp()},
                    getWeightShape(getGate().getType()).outputs, tokens);
}

OpCost GatedFFNVjpOp::getCost(int64_t tokens) {
  return ffnVjpCost(*this, getX(), {getGate(), getDown()}, {getGate()},
                    getWeightShape(getGate().getType()).outputs, tokens);
}

OpCost CrossEntropyVjpOp::getCost(int64_t tokens) {
  return ffnVjpCost(*this, getX(), {getHead()}, {getHead()},
                    getWeightShape(getHead().getType()).outputs, tokens);
}

OpCost CrossEntropyStepOp::getCost(int64_t tokens) {
  return ffnVjpCost(*this, getX(), {getHead()}, {getHead()},
                    getWeightShape(getHead().getType()).outputs, tokens);
}

/// The teacher's product is there once.
template <typename Op>
static OpCost distillationVjpCost(Op op, int64_t tokens) {
  return ffnVjpCost(op, op.getX(), {op.getHead()},
                    {op.getHead(), op.getTeacherHead()},
                    getWeightShape(op.getHead().getType()).outputs, tokens);
}

OpCost DistillationVjpOp::getCost(int64_t tokens) {
  return distillationVjpCost(*this, tokens);
}
OpCost DistillationStepOp::getCost(int64_t tokens) {
  return distillationVjpCost(*this, tokens);
}
