//===- ResultsToArguments.cpp - A place for every result ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TilingUtils.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

namespace stem {
#define GEN_PASS_DEF_STEMRESULTSTOARGUMENTSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// The rows of `value` are tokens: not those of a table, nor of a list of ids
/// whose length is known.
bool hasTokens(Value value) {
  if (auto cast = value.getDefiningOp<tensor::CastOp>())
    value = cast.getSource();
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getRank() == 0 || !type.isDynamicDim(0))
    return false;
  auto rows = value.getDefiningOp<TableRowsOp>();
  return !rows || value == rows.getIndex();
}

/// An argument, or sums that begin with one: what a layer adds to.
bool isStream(Value value) {
  if (auto sum = value.getDefiningOp<arith::AddFOp>())
    return isStream(sum.getLhs()) || isStream(sum.getRhs());
  return isa<BlockArgument>(value);
}

struct ResultsToArgumentsPass
    : public stem::impl::StemResultsToArgumentsPassBase<
          ResultsToArgumentsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal() || !needsArguments(function))
        continue;
      if (failed(addArguments(function)))
        return signalPassFailure();
    }
    WalkResult walk = module.walk([&](func::CallOp call) {
      auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
      return callee ? WalkResult(passPlaces(call, callee))
                    : WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }

private:
  /// One result is built in the argument marked for it, or in that of the
  /// residual stream. A table's layer below which nothing is trained gives the
  /// cotangent of its rows alone, which is neither.
  bool needsArguments(func::FuncOp function) {
    unsigned outputs = countOutputs(function);
    if (function.getNumResults() != 1 || outputs > 0 ||
        function->hasAttr(StemDialect::kEntryAttr))
      return function.getNumResults() > std::max(outputs, 1u);
    Operation *terminator = function.getBody().back().getTerminator();
    return !isStream(terminator->getOperand(0));
  }

  LogicalResult addArguments(func::FuncOp function) {
    Builder builder(&getContext());
    bool isEntry = function->hasAttr(StemDialect::kEntryAttr);
    for (unsigned i = countOutputs(function); i < function.getNumResults();
         ++i) {
      auto type = dyn_cast<RankedTensorType>(function.getResultTypes()[i]);
      if (!type)
        return function.emitOpError()
               << "result " << i << " is " << function.getResultTypes()[i]
               << "; only tensors are built in arguments";
      SmallVector<NamedAttribute> attributes = {builder.getNamedAttr(
          StemDialect::kOutputAttr, builder.getUnitAttr())};
      if (auto symbol = function.getResultAttrOfType<FlatSymbolRefAttr>(
              i, StemDialect::kGradientOfAttr)) {
        attributes.push_back(
            builder.getNamedAttr(StemDialect::kGradientOfAttr, symbol));
        attributes.push_back(builder.getNamedAttr(
            StemDialect::kNameAttr,
            builder.getStringAttr("gradient of " + symbol.getValue())));
      }
      if (isEntry && type.getRank() > 0 && type.isDynamicDim(0))
        attributes.push_back(builder.getNamedAttr(
            StemDialect::kRowsAttr, builder.getStringAttr("outputs")));
      if (failed(function.insertArgument(function.getNumArguments(), type,
                                         builder.getDictionaryAttr(attributes),
                                         function.getLoc())))
        return failure();
    }
    return success();
  }

  /// The output argument of an entry that this result of a call is returned
  /// in, or a new tensor.
  LogicalResult passPlaces(func::CallOp call, func::FuncOp callee) {
    unsigned missing = callee.getNumArguments() - call.getNumOperands();
    OpBuilder builder(call);
    SmallVector<Value> places;
    for (Value result : call.getResults().take_back(missing)) {
      Value place = returnedPlace(result);
      if (!place)
        place = newPlace(builder, call, result);
      if (!place)
        return call.emitOpError() << "has a result " << result.getType()
                                  << " with dynamic sizes, and no operand has "
                                     "tokens that would tell them";
      places.push_back(place);
    }
    call.getOperandsMutable().append(places);
    return success();
  }

  Value returnedPlace(Value result) {
    for (OpOperand &use : result.getUses()) {
      auto terminator = dyn_cast<func::ReturnOp>(use.getOwner());
      if (!terminator)
        continue;
      auto function = terminator->getParentOfType<func::FuncOp>();
      unsigned number = use.getOperandNumber();
      for (BlockArgument argument : function.getArguments())
        if (function.getArgAttr(argument.getArgNumber(),
                                StemDialect::kOutputAttr) &&
            number-- == 0)
          return argument.getType() == result.getType() && argument.use_empty()
                     ? argument
                     : Value();
    }
    return {};
  }

  Value newPlace(OpBuilder &builder, func::CallOp call, Value result) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<Value> sizes;
    if (!type.hasStaticShape()) {
      const auto *tokens =
          llvm::find_if(call->getOpOperands(), [](OpOperand &operand) {
            return hasTokens(operand.get());
          });
      if (tokens == call->getOpOperands().end() ||
          type.getNumDynamicDims() != 1 || !type.isDynamicDim(0))
        return {};
      sizes.push_back(
          tensor::DimOp::create(builder, call.getLoc(), tokens->get(), 0));
    }
    return tensor::EmptyOp::create(builder, call.getLoc(), type, sizes);
  }
};

} // namespace
