//===- TilingUtils.cpp - Slices, destinations and generics ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TilingUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"

using namespace mlir;
using namespace stem;

namespace {

struct SliceOperands {
  SmallVector<OpFoldResult> offsets, sizes, strides;

  SliceOperands(OpBuilder &builder, ArrayRef<SliceRange> ranges) {
    for (auto [offset, size] : ranges) {
      offsets.push_back(offset);
      sizes.push_back(size);
      strides.push_back(builder.getIndexAttr(1));
    }
  }
};

} // namespace

/// Whether an operand is gathered from or searched, so that the number of its
/// rows need not be known.
static bool isGathered(OpOperand &operand) {
  Operation *op = operand.getOwner();
  if (auto embedding = dyn_cast<EmbeddingOp>(op))
    return &operand == &embedding.getWeightMutable();
  if (auto lookup = dyn_cast<LookupOp>(op))
    return &operand == &lookup.getRowsMutable();
  if (auto ffn = dyn_cast<FusedFFNOp>(op))
    return &operand == &ffn.getRowsMutable();
  if (auto select = dyn_cast<SelectUpOp>(op))
    return &operand == &select.getSelectedMutable();
  if (auto keep = dyn_cast<KeepSelectedOp>(op))
    return &operand == &keep.getSelectedMutable();
  return false;
}

LogicalResult stem::verifyTokenShapes(TokenwiseOpInterface op) {
  std::optional<int64_t> tokens;
  auto verify = [&](Type type, bool hasTokens,
                    bool mayBeDynamic) -> LogicalResult {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor)
      return success();
    if (tensor.getNumDynamicDims() >
        (mayBeDynamic && tensor.isDynamicDim(0) ? 1 : 0))
      return op->emitOpError() << "has an operand or result " << tensor
                               << "; only the number of tokens and of rows to "
                                  "gather from may be dynamic";
    if (!hasTokens)
      return success();
    if (llvm::is_contained(tensor.getShape(), 0))
      return op->emitOpError()
             << "has an operand or result without elements, " << tensor;
    if (tokens && *tokens != tensor.getDimSize(0))
      return op->emitOpError("has a number of tokens that is static in one "
                             "operand or result and dynamic in another; cast "
                             "them to one type");
    tokens = tensor.getDimSize(0);
    return success();
  };
  for (OpOperand &operand : op->getOpOperands()) {
    bool hasTokens = op.isTokenOperand(operand.getOperandNumber());
    if (failed(verify(operand.get().getType(), hasTokens,
                      hasTokens || isGathered(operand))))
      return failure();
  }
  for (Type type : op->getResultTypes())
    if (failed(verify(type, /*hasTokens=*/true, /*mayBeDynamic=*/true)))
      return failure();
  return success();
}

Value stem::extractSlice(OpBuilder &builder, Location loc, Value source,
                         ArrayRef<SliceRange> ranges) {
  SliceOperands slice(builder, ranges);
  return tensor::ExtractSliceOp::create(builder, loc, source, slice.offsets,
                                        slice.sizes, slice.strides);
}

Value stem::insertSlice(OpBuilder &builder, Location loc, Value source,
                        Value dest, ArrayRef<SliceRange> ranges) {
  SliceOperands slice(builder, ranges);
  return tensor::InsertSliceOp::create(
      builder, loc, source, dest, slice.offsets, slice.sizes, slice.strides);
}

void stem::parallelInsertSlice(OpBuilder &builder, Location loc, Value source,
                               Value dest, ArrayRef<SliceRange> ranges) {
  SliceOperands slice(builder, ranges);
  tensor::ParallelInsertSliceOp::create(
      builder, loc, source, dest, slice.offsets, slice.sizes, slice.strides);
}

SliceRange stem::fullRange(OpBuilder &builder, Location loc, Value source,
                           unsigned index) {
  return {builder.getIndexAttr(0),
          tensor::getMixedSize(builder, loc, source, index)};
}

Value stem::emptyTensor(OpBuilder &builder, Location loc,
                        ArrayRef<OpFoldResult> sizes, Type elementType) {
  return tensor::EmptyOp::create(builder, loc, sizes, elementType);
}

Value stem::emptyLike(OpBuilder &builder, Location loc, Value like,
                      Type elementType) {
  return emptyTensor(builder, loc, tensor::getMixedSizes(builder, loc, like),
                     elementType);
}

int64_t stem::spreadColumns(int64_t columns, Type elementType) {
  constexpr int64_t line = 64, halfPage = 2048;
  const int64_t bytes = elementType.getIntOrFloatBitWidth() / 8;
  return columns * bytes % halfPage == 0 ? columns + line / bytes : columns;
}

Value stem::outputArgument(func::FuncOp function, unsigned result) {
  for (BlockArgument argument : function.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), StemDialect::kOutputAttr))
      if (result-- == 0)
        return argument;
  return {};
}

unsigned stem::countOutputs(func::FuncOp function) {
  unsigned count = 0;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    count += function.getArgAttr(i, StemDialect::kOutputAttr) != nullptr;
  return count;
}

std::optional<unsigned> stem::returnedIndex(Value value) {
  for (OpOperand &use : value.getUses())
    if (isa<func::ReturnOp>(use.getOwner()))
      return use.getOperandNumber();
  return std::nullopt;
}

Value stem::convertFloat(OpBuilder &builder, Location loc, Value value,
                         Type type) {
  unsigned from = value.getType().getIntOrFloatBitWidth();
  unsigned to = type.getIntOrFloatBitWidth();
  if (value.getType() == type)
    return value;
  if (from < to)
    return arith::ExtFOp::create(builder, loc, type, value);
  if (from > to)
    return arith::TruncFOp::create(builder, loc, type, value);
  // f16 and bf16 meet in f32.
  Value wide = arith::ExtFOp::create(builder, loc, builder.getF32Type(), value);
  return arith::TruncFOp::create(builder, loc, type, wide);
}

ValueRange stem::buildGeneric(OpBuilder &builder, Location loc, unsigned loops,
                              bool reduceLast, ArrayRef<Access> inputs,
                              ArrayRef<Access> outputs, GenericBody body) {
  SmallVector<utils::IteratorType> iterators(loops,
                                             utils::IteratorType::parallel);
  if (reduceLast)
    iterators.back() = utils::IteratorType::reduction;
  SmallVector<AffineMap> maps;
  SmallVector<Value> ins, outs;
  SmallVector<Type> results;
  MLIRContext *context = builder.getContext();
  auto addMap = [&](const Access &access) {
    SmallVector<AffineExpr> exprs;
    for (unsigned dim : access.dims)
      exprs.push_back(getAffineDimExpr(dim, context));
    maps.push_back(AffineMap::get(loops, 0, exprs, context));
  };
  for (const Access &input : inputs) {
    addMap(input);
    ins.push_back(input.value);
  }
  for (const Access &output : outputs) {
    addMap(output);
    outs.push_back(output.value);
    results.push_back(output.value.getType());
  }
  auto generic = linalg::GenericOp::create(
      builder, loc, results, ins, outs, maps, iterators,
      [&](OpBuilder &nested, Location nestedLoc, ValueRange arguments) {
        linalg::YieldOp::create(nested, nestedLoc,
                                body(nested, nestedLoc, arguments));
      });
  return generic.getResults();
}

Value stem::convertTensor(OpBuilder &builder, Location loc, Value source,
                          Type elementType, Value dest) {
  auto type = cast<RankedTensorType>(source.getType());
  if (type.getElementType() == elementType)
    return source;
  if (!dest)
    dest = emptyLike(builder, loc, source, elementType);
  auto dims = llvm::to_vector(llvm::seq<unsigned>(0, type.getRank()));
  return buildGeneric(builder, loc, type.getRank(), /*reduceLast=*/false,
                      {{source, dims}}, {{dest, dims}},
                      [&](OpBuilder &b, Location l, ValueRange arguments) {
                        return SmallVector<Value>{
                            convertFloat(b, l, arguments[0], elementType)};
                      })[0];
}

Value stem::splitColumns(OpBuilder &b, Location loc, Value x, int64_t group) {
  auto type = cast<RankedTensorType>(x.getType());
  int64_t groups = type.getDimSize(1) / group;
  auto split = type.clone({type.getDimSize(0), groups, group});
  return tensor::ExpandShapeOp::create(
      b, loc, split, x, ArrayRef<ReassociationIndices>{{0}, {1, 2}});
}

Value stem::joinColumns(OpBuilder &b, Location loc, Value x, Type type) {
  return tensor::CollapseShapeOp::create(
      b, loc, type, x, ArrayRef<ReassociationIndices>{{0}, {1, 2}});
}
