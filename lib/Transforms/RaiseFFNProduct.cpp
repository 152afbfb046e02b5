//===- RaiseFFNProduct.cpp - Products of rows with a weight ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RaiseFFN.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tosa/IR/TosaOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace stem::raise;

bool Weight::isOutIn() const {
  return llvm::find(dims, WeightDim::Output) <
         llvm::find(dims, WeightDim::Input);
}

Value stem::raise::getReshapeSource(Operation *op) {
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ReshapeOp,
          tensor::CastOp, tosa::ReshapeOp, tosa::IdentityOp>(op) &&
      isa<RankedTensorType>(op->getOperand(0).getType()) &&
      isa<RankedTensorType>(op->getResult(0).getType()))
    return op->getOperand(0);
  return {};
}

/// The one input of an elementwise linalg op whose body is `yield cast(input)`
/// for a widening cast, or with `copy` `yield input`.
static OpOperand *getForwardedInput(linalg::LinalgOp op, bool copy) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 1 ||
      op.getNumDpsInits() != 1 || op.getNumLoops() != op.getNumParallelLoops())
    return nullptr;
  Block *body = op.getBlock();
  Value yielded = body->getTerminator()->getOperand(0);
  if (auto cast = yielded.getDefiningOp<arith::ExtFOp>(); cast && !copy)
    yielded = cast.getIn();
  else if (!copy)
    return nullptr;
  if (body->getNumArguments() == 0 || yielded != body->getArgument(0))
    return nullptr;
  return op.getDpsInputOperand(0);
}

Value stem::raise::getWideningSource(Operation *op) {
  if (auto cast = dyn_cast<arith::ExtFOp>(op))
    return cast.getIn();
  if (auto cast = dyn_cast<tosa::CastOp>(op)) {
    auto from =
        dyn_cast<FloatType>(getElementTypeOrSelf(cast.getInput().getType()));
    auto to = dyn_cast<FloatType>(getElementTypeOrSelf(cast.getType()));
    if (from && to && from.getWidth() < to.getWidth())
      return cast.getInput();
  }
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    if (OpOperand *input = getForwardedInput(linalgOp, /*copy=*/false)) {
      AffineMap inputMap = linalgOp.getMatchingIndexingMap(input);
      if (inputMap.isPermutation() &&
          inputMap == linalgOp.getIndexingMapsArray().back())
        return input->get();
    }
  return {};
}

Value stem::raise::peelRows(Value rows, bool throughCasts) {
  for (unsigned step = 0; step < kMaxChain; ++step) {
    Operation *op = rows.getDefiningOp();
    if (!op)
      break;
    Value source = getReshapeSource(op);
    if (!source && throughCasts)
      source = getWideningSource(op);
    auto from = source ? dyn_cast<RankedTensorType>(source.getType())
                       : RankedTensorType();
    auto to = dyn_cast<RankedTensorType>(rows.getType());
    if (!from || !to || from.getRank() < 2 ||
        from.getShape().back() != to.getShape().back())
      break;
    rows = source;
  }
  return rows;
}

/// Whether a body is `yield out + cast(a) * cast(b)`, multiplied and summed in
/// the type of `out`, casts being optional and widening.
static bool isMultiplyAdd(Block *body) {
  if (body->getNumArguments() != 3 ||
      body->getTerminator()->getNumOperands() != 1)
    return false;
  auto sum =
      body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  auto product = sum.getLhs().getDefiningOp<arith::MulFOp>();
  Value accumulator = sum.getRhs();
  if (!product || accumulator != body->getArgument(2)) {
    product = sum.getRhs().getDefiningOp<arith::MulFOp>();
    accumulator = sum.getLhs();
  }
  if (!product || accumulator != body->getArgument(2))
    return false;
  auto source = [](Value v) {
    auto cast = v.getDefiningOp<arith::ExtFOp>();
    return cast ? cast.getIn() : v;
  };
  Value a = source(product.getLhs()), b = source(product.getRhs());
  return (a == body->getArgument(0) && b == body->getArgument(1)) ||
         (b == body->getArgument(0) && a == body->getArgument(1));
}

/// The dimensions of `source` when `op` is a transpose, broadcast or copy of it
/// and its result has `dims`; empty when the op drops an input or output.
static SmallVector<WeightDim> dimsBeforeCopy(linalg::LinalgOp op,
                                             OpOperand *source,
                                             ArrayRef<WeightDim> dims) {
  AffineMap to = op.getIndexingMapsArray().back();
  AffineMap from = op.getMatchingIndexingMap(source);
  if (!to.isPermutation() || !from.isProjectedPermutation())
    return {};
  SmallVector<WeightDim> result;
  for (AffineExpr expr : from.getResults())
    result.push_back(dims[*to.getResultPosition(expr)]);
  if (!llvm::is_contained(result, WeightDim::Input) ||
      !llvm::is_contained(result, WeightDim::Output))
    return {};
  return result;
}

/// Likewise for a reshape that only adds or removes unit dimensions.
static SmallVector<WeightDim> dimsBeforeReshape(RankedTensorType from,
                                                RankedTensorType to,
                                                ArrayRef<WeightDim> dims) {
  SmallVector<std::pair<int64_t, WeightDim>> sized;
  for (auto [size, dim] : llvm::zip_equal(to.getShape(), dims)) {
    if (dim == WeightDim::Unit ? size != 1 : size <= 1)
      return {};
    if (dim != WeightDim::Unit)
      sized.push_back({size, dim});
  }
  SmallVector<WeightDim> result;
  unsigned next = 0;
  for (int64_t size : from.getShape()) {
    if (size == 1) {
      result.push_back(WeightDim::Unit);
      continue;
    }
    if (next == sized.size() || sized[next].first != size)
      return {};
    result.push_back(sized[next++].second);
  }
  return next == sized.size() ? result : SmallVector<WeightDim>();
}

static SmallVector<WeightDim> permuted(ArrayRef<WeightDim> dims,
                                       ArrayRef<int32_t> permutation) {
  SmallVector<WeightDim> result(dims.size(), WeightDim::Unit);
  for (auto [position, source] : llvm::enumerate(permutation))
    result[source] = dims[position];
  return result;
}

/// Follows the ops before `value` as long as they move whole elements.
static Weight peelWeight(Value value, ArrayRef<WeightDim> dims,
                         bool throughCasts) {
  Weight weight{value, SmallVector<WeightDim>(dims), {}};
  for (unsigned step = 0; step < kMaxChain; ++step) {
    Operation *op = weight.base.getDefiningOp();
    if (!op)
      break;
    Value source;
    SmallVector<WeightDim> before;
    if (auto transpose = dyn_cast<tosa::TransposeOp>(op)) {
      source = transpose.getInput1();
      before = permuted(weight.dims, transpose.getPerms());
    } else if (Value reshaped = getReshapeSource(op)) {
      source = reshaped;
      before = dimsBeforeReshape(cast<RankedTensorType>(source.getType()),
                                 weight.getType(), weight.dims);
    } else if (Value narrow = throughCasts ? getWideningSource(op) : Value()) {
      source = narrow;
      before = weight.dims;
    } else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
      if (OpOperand *input = getForwardedInput(linalgOp, /*copy=*/true)) {
        source = input->get();
        before = dimsBeforeCopy(linalgOp, input, weight.dims);
      }
    }
    if (!source || before.empty() || !isa<RankedTensorType>(source.getType()))
      break;
    weight.chain.push_back(op);
    weight.base = source;
    weight.dims = before;
  }
  return weight;
}

/// Completes a product whose operands and weight dimensions are known; nothing
/// when the weight has batch dimensions.
static std::optional<Product> finishProduct(Operation *op, Value lhs,
                                            Value weight,
                                            ArrayRef<WeightDim> dims,
                                            Value init) {
  Product product{op,
                  lhs,
                  peelWeight(weight, dims, /*throughCasts=*/false),
                  peelWeight(weight, dims, /*throughCasts=*/true),
                  0,
                  0,
                  getElementTypeOrSelf(op->getResult(0).getType()),
                  init,
                  {}};
  for (const Weight *w : {&product.weight, &product.narrowWeight})
    for (auto [size, dim] : llvm::zip_equal(w->getType().getShape(), w->dims))
      if (dim == WeightDim::Unit && size != 1)
        return std::nullopt;
  for (auto [size, dim] : llvm::zip_equal(product.weight.getType().getShape(),
                                          product.weight.dims)) {
    if (dim == WeightDim::Input)
      product.inputs = size;
    if (dim == WeightDim::Output)
      product.outputs = size;
  }
  if (ShapedType::isDynamic(product.inputs) ||
      ShapedType::isDynamic(product.outputs))
    product.problem = "the shape of a weight is not static";
  return product;
}

static std::optional<Product> analyzeContraction(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || op.getNumReductionLoops() != 1 ||
      op.getNumLoops() != op.getNumParallelLoops() + 1 ||
      !isMultiplyAdd(op.getBlock()))
    return std::nullopt;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (AffineMap map : maps)
    if (!map.isProjectedPermutation() || map.getNumResults() < 2)
      return std::nullopt;
  SmallVector<unsigned> reductions;
  op.getReductionDims(reductions);
  MLIRContext *context = op.getContext();
  AffineExpr k = getAffineDimExpr(reductions.front(), context);
  AffineExpr n = maps[2].getResults().back();
  // The weight is the operand that has the last dimension of the result.
  auto reads = [&](unsigned operand, AffineExpr dim) {
    return maps[operand].getResultPosition(dim).has_value();
  };
  if (reads(0, n) == reads(1, n) || !reads(0, k) || !reads(1, k))
    return std::nullopt;
  const unsigned rhs = reads(1, n) ? 1 : 0;
  SmallVector<WeightDim> dims;
  for (AffineExpr expr : maps[rhs].getResults())
    dims.push_back(expr == k   ? WeightDim::Input
                   : expr == n ? WeightDim::Output
                               : WeightDim::Unit);
  std::optional<Product> product = finishProduct(
      op, op.getDpsInputOperand(1 - rhs)->get(),
      op.getDpsInputOperand(rhs)->get(), dims, op.getDpsInitOperand(0)->get());
  if (!product)
    return std::nullopt;
  SmallVector<AffineExpr> rows(maps[2].getResults().drop_back());
  rows.push_back(k);
  if (maps[1 - rhs].getResults() != ArrayRef<AffineExpr>(rows))
    product->problem = "the left operand of a product is not laid out with its "
                       "tokens first and the summed dimension last";
  return product;
}

std::optional<Product> stem::raise::analyzeProduct(Operation *op) {
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return analyzeContraction(linalgOp);
  auto matmul = dyn_cast<tosa::MatMulOp>(op);
  if (!matmul ||
      !isa<FloatType>(getElementTypeOrSelf(matmul.getA().getType())) ||
      !isa<RankedTensorType>(matmul.getA().getType()) ||
      !isa<RankedTensorType>(matmul.getB().getType()) ||
      !isa<RankedTensorType>(matmul.getOutput().getType()))
    return std::nullopt;
  std::optional<Product> product = finishProduct(
      op, matmul.getA(), matmul.getB(),
      {WeightDim::Unit, WeightDim::Input, WeightDim::Output}, Value());
  if (product && (!matchPattern(matmul.getAZp(), m_AnyZeroFloat()) ||
                  !matchPattern(matmul.getBZp(), m_AnyZeroFloat())))
    product->problem = "a zero point of tosa.matmul is not zero";
  return product;
}

Value stem::raise::materializeWeight(OpBuilder &builder, Location loc,
                                     const Weight &weight) {
  Value matrix = weight.base;
  RankedTensorType type = weight.getType();
  if (type.getRank() > 2) {
    // Unit dimensions go with the first other one that follows, the last with
    // the second.
    SmallVector<ReassociationIndices> groups(2);
    unsigned group = 0;
    for (auto [position, dim] : llvm::enumerate(weight.dims)) {
      groups[group].push_back(position);
      if (dim != WeightDim::Unit)
        group = 1;
    }
    matrix = tensor::CollapseShapeOp::create(builder, loc, matrix, groups);
    type = cast<RankedTensorType>(matrix.getType());
  }
  if (weight.isOutIn())
    return matrix;
  Value empty = tensor::EmptyOp::create(
      builder, loc, ArrayRef<int64_t>{type.getDimSize(1), type.getDimSize(0)},
      type.getElementType());
  return linalg::TransposeOp::create(builder, loc, matrix, empty,
                                     ArrayRef<int64_t>{1, 0})
      ->getResult(0);
}
