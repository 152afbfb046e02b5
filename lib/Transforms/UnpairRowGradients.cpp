//===- UnpairRowGradients.cpp - Row gradients as matrices -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/BitVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMUNPAIRROWGRADIENTSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

RankedTensorType matrixOf(RowGradientType type) {
  return RankedTensorType::get({ShapedType::kDynamic, type.getColumns()},
                               type.getElementType());
}

void updateType(func::FuncOp function) {
  Block &block = function.getBody().front();
  function.setType(FunctionType::get(function.getContext(),
                                     block.getArgumentTypes(),
                                     block.getTerminator()->getOperandTypes()));
}

struct UnpairRowGradientsPass
    : public stem::impl::StemUnpairRowGradientsPassBase<
          UnpairRowGradientsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(returnMatrices(function)))
        return signalPassFailure();
    module.walk([&](func::CallOp call) { takeMatrices(call); });
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(sumTables(function)))
        return signalPassFailure();
  }

private:
  /// Lets a function return the rows of its row gradients.
  LogicalResult returnMatrices(func::FuncOp function) {
    if (function.isExternal() || !function.getBody().hasOneBlock() ||
        llvm::none_of(function.getResultTypes(),
                      llvm::IsaPred<RowGradientType>))
      return success();
    if (!function.isPrivate())
      return function.emitOpError("returns a row gradient, and only private "
                                  "functions can be changed to return its "
                                  "rows");
    for (OpOperand &result :
         function.getBody().front().getTerminator()->getOpOperands()) {
      if (!isa<RowGradientType>(result.get().getType()))
        continue;
      auto pairs = result.get().getDefiningOp<RowGradientOp>();
      if (!pairs)
        return function.emitOpError()
               << "returns a row gradient that is not of one stem.lookup, and "
                  "compiled code has one matrix of rows for each table";
      result.set(pairs.getCotangent());
      if (pairs->use_empty())
        pairs.erase();
    }
    updateType(function);
    return success();
  }

  void takeMatrices(func::CallOp call) {
    for (Value result : call.getResults())
      if (auto type = dyn_cast<RowGradientType>(result.getType()))
        result.setType(matrixOf(type));
  }

  /// The argument with the number of each token's row among the rows of a
  /// step.
  Value rowIndex(func::FuncOp function) {
    for (BlockArgument argument : function.getArguments())
      if (function.getArgAttr(argument.getArgNumber(),
                              StemDialect::kOutputIndexAttr))
        return argument;
    Builder builder(&getContext());
    auto attributes = builder.getDictionaryAttr(
        {builder.getNamedAttr(StemDialect::kNameAttr,
                              builder.getStringAttr("row_index")),
         builder.getNamedAttr(StemDialect::kRowsAttr,
                              builder.getStringAttr("tokens")),
         builder.getNamedAttr(StemDialect::kOutputIndexAttr,
                              builder.getUnitAttr())});
    unsigned position = function.getNumArguments();
    auto type =
        RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
    (void)function.insertArgument(position, type, attributes,
                                  function.getLoc());
    return function.getArgument(position);
  }

  /// The rows of one lookup, which the pairs of a table's gradient are.
  static Value rowsOf(Value pairs) {
    if (auto local = pairs.getDefiningOp<RowGradientOp>())
      return local.getCotangent();
    return isa<RankedTensorType>(pairs.getType()) ? pairs : Value();
  }

  LogicalResult sumTables(func::FuncOp function) {
    SmallVector<TableGradientOp> gradients;
    function.walk([&](TableGradientOp op) { gradients.push_back(op); });
    if (gradients.empty())
      return success();
    Operation *terminator = function.getBody().front().getTerminator();
    llvm::BitVector dropped(terminator->getNumOperands());
    for (TableGradientOp op : gradients) {
      Value rows = rowsOf(op->getOperand(0));
      if (!rows)
        return op.emitOpError("adds up the rows of several stem.lookup, and "
                              "compiled code has one matrix of rows for each "
                              "table");
      for (OpOperand &use : op.getUnique().getUses()) {
        if (use.getOwner() != terminator)
          return op.emitOpError("has ids that something else than the return "
                                "reads; compiled code does not give them out");
        dropped.set(use.getOperandNumber());
      }
      OpBuilder builder(op);
      Value sum =
          SumRowsOp::create(builder, op.getLoc(), op.getRows().getType(),
                            rowIndex(function), rows, /*initial=*/Value(),
                            /*padding_id=*/IntegerAttr());
      op.getRows().replaceAllUsesWith(sum);
    }
    if (failed(function.eraseResults(dropped)))
      return failure();
    terminator->eraseOperands(dropped);
    for (TableGradientOp op : gradients) {
      Operation *pairs = op->getOperand(0).getDefiningOp();
      op.erase();
      if (isOpTriviallyDead(pairs))
        pairs->erase();
    }
    return success();
  }
};

} // namespace
