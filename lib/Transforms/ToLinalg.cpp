//===- ToLinalg.cpp - Stem ops on tensors to linalg and loops -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToLinalg.h"
#include "TilingUtils.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/OptionChecks.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/DialectConversion.h"

namespace stem {
#define GEN_PASS_DEF_STEMTOLINALGPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

int64_t stem::chooseBlock(int64_t columns, int64_t limit) {
  constexpr int64_t panel = PackedType::kPanelColumns;
  // Beyond any matrix that fits into memory; keeps the search short.
  constexpr int64_t largest = int64_t{1} << 30;
  int64_t first = std::min({limit, columns, largest}) / panel * panel;
  for (int64_t block = first; block >= panel; block -= panel)
    if (columns % block == 0)
      return block;
  return columns;
}

namespace {

/// Blocks of 64 tokens, all operands and results of one shape of them.
LogicalResult verifyTokenBlocks(AttendVjpOp op) {
  int64_t tokens = op.getQ().getType().getDimSize(0);
  for (Type type :
       llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes())) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (tensor && (tensor.getDimSize(0) != tokens ||
                   tensor.getNumDynamicDims() != tensor.isDynamicDim(0)))
      return op.emitOpError()
             << "has an operand or result " << tensor << " where q is "
             << op.getQ().getType()
             << "; the number of tokens may be dynamic, of all or of none";
  }
  if (!ShapedType::isDynamic(tokens) && tokens % KVPageOp::kPageTokens != 0)
    return op.emitOpError()
           << "has " << tokens << " tokens, which is not a multiple of "
           << KVPageOp::kPageTokens;
  return success();
}

/// Says why an op has no lowering, which the conversion itself would not.
LogicalResult verifyLowerable(Operation *op) {
  if (isa<ParamLoadOp, TableLoadOp>(op))
    return op->emitOpError("is not bound to an argument; run "
                           "stem-bind-params first");
  if (isa<TableRowsOp>(op))
    return op->emitOpError("has no ticket; run stem-insert-prefetch first");
  if (isa<AttentionOp>(op))
    return op->emitOpError("reads and writes its cache in one; run "
                           "stem-split-attention first");
  if (isa<AttentionVjpOp, AttentionLogSumExpOp>(op))
    return op->emitOpError("has no pages to read; run stem-scratch-attention "
                           "first");
  if (auto vjp = dyn_cast<AttendVjpOp>(op))
    return verifyTokenBlocks(vjp);
  if (failed(verifyStepOp(op)))
    return failure();
  auto tokenwise = dyn_cast<TokenwiseOpInterface>(op);
  if (!tokenwise)
    return success();
  if (failed(verifyTokenShapes(tokenwise)))
    return failure();
  for (Type type :
       llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (getElementTypeOrSelf(type).isF64())
      return op->emitOpError("computes in f64, which only the interpreter "
                             "does");
  if (auto attend = dyn_cast<AttendOp>(op)) {
    RankedTensorType type = attend.getQ().getType();
    if (type.isDynamicDim(0))
      return op->emitOpError("has no fixed number of tokens; run "
                             "stem-tile-tokens or stem-tile-columns first");
    if (!type.getElementType().isF32() && !type.getElementType().isBF16())
      return op->emitOpError() << "has queries of " << type.getElementType()
                               << "; a cache holds f32 or bf16";
  }
  Value head;
  if (auto loss = dyn_cast<CrossEntropyOp>(op))
    head = loss.getHead();
  if (auto loss = dyn_cast<DistillationOp>(op))
    head = loss.getHead();
  if (head && getWeightShape(head.getType()).outputs == 0)
    return op->emitOpError("has a head without outputs");
  return success();
}

/// Copies a returned value into the argument marked for it, where no op builds
/// it there: after bufferization a function returns nothing but its arguments.
void copyToOutputs(func::FuncOp function) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return;
  Operation *terminator = function.getBody().front().getTerminator();
  OpBuilder builder(terminator);
  for (OpOperand &result : terminator->getOpOperands()) {
    Value output = outputArgument(function, result.getOperandNumber());
    if (!output || !output.use_empty() ||
        output.getType() != result.get().getType())
      continue;
    result.set(linalg::CopyOp::create(builder, terminator->getLoc(),
                                      result.get(), output)
                   .getResult(0));
  }
}

/// What the caller of an entry passes is not overwritten, outputs apart: where
/// a layer works in place, bufferization copies.
void protectInputs(func::FuncOp function) {
  if (!function->hasAttr(StemDialect::kEntryAttr))
    return;
  for (auto [index, type] : llvm::enumerate(function.getArgumentTypes()))
    if (isa<TensorType>(type) &&
        !function.getArgAttr(index, StemDialect::kOutputAttr))
      function.setArgAttr(
          index, bufferization::BufferizationDialect::kWritableAttrName,
          BoolAttr::get(function.getContext(), false));
}

struct ToLinalgPass : public stem::impl::StemToLinalgPassBase<ToLinalgPass> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    OptionRange panels{.least = PackedType::kPanelColumns,
                       .multiple = PackedType::kPanelColumns};
    return success(succeeded(checkOption(context, ffnBlock, panels)) &&
                   succeeded(checkOption(context, vocabularyBlock, panels)));
  }

  void runOnOperation() override {
    bool areLowerable = true;
    getOperation()->walk([&](Operation *op) {
      if (failed(verifyLowerable(op)))
        areLowerable = false;
    });
    if (!areLowerable)
      return signalPassFailure();
    ConversionTarget target(getContext());
    target.addLegalDialect<arith::ArithDialect, func::FuncDialect,
                           linalg::LinalgDialect, math::MathDialect,
                           scf::SCFDialect, tensor::TensorDialect>();
    target.addIllegalDialect<StemDialect>();
    target.addLegalOp<PackedMatmulOp, PackedGatherOp, PackTokensOp,
                      TransposeTokensOp, PanelMatmulOp, KVAppendOp, KVPageOp,
                      PlanRowsOp, PrefetchOp, AwaitOp, ReleaseOp>();

    ToLinalgOptions options = {ffnBlock, vocabularyBlock};
    lowerKeptGates(getOperation(), options.ffnBlock);
    RewritePatternSet patterns(&getContext());
    populateElementwisePatterns(patterns);
    populateMatrixPatterns(patterns, options);
    populateFFNPatterns(patterns, options);
    populateAttentionPatterns(patterns);
    populateGradientPatterns(patterns);
    populateStepPatterns(patterns);
    populateOptimizerPatterns(patterns);
    ConversionConfig config;
    config.allowPatternRollback = false;
    if (failed(applyFullConversion(getOperation(), target, std::move(patterns),
                                   config)))
      return signalPassFailure();
    copyToOutputs(getOperation());
    protectInputs(getOperation());
  }
};

} // namespace
