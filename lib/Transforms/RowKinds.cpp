//===- RowKinds.cpp - What a dynamic size counts --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKinds.h"

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stem;

LogicalResult RowKinds::findCalls(ModuleOp module) {
  SymbolTable symbols(module);
  for (auto function : module.getOps<func::FuncOp>()) {
    WalkResult walk = function.walk([&](func::CallOp call) {
      auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
      if (!callee) {
        call.emitOpError() << "calls '" << call.getCallee()
                           << "', which is not a function of this module";
        return WalkResult::interrupt();
      }
      callees[call] = callee;
      calls[function].push_back(call);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return failure();
  }
  return success();
}

LogicalResult RowKinds::run(ModuleOp module) {
  if (failed(findCalls(module)))
    return failure();
  for (auto function : module.getOps<func::FuncOp>())
    if (failed(visit(function)))
      return failure();
  std::reverse(callersFirst.begin(), callersFirst.end());

  llvm::DenseMap<Operation *, SmallVector<func::CallOp>> callers;
  for (func::FuncOp function : callersFirst) {
    auto &kind = kinds[function];
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      kind.push_back(ofArgument(function, i, callers[function]));
    if (failed(readAttributes(function)))
      return failure();
    for (func::CallOp call : calls[function])
      callers[callees[call]].push_back(call);
  }
  return success();
}

/// What all callers pass; tokens where nothing calls a function that is no
/// entry.
RowKind RowKinds::ofArgument(func::FuncOp function, unsigned number,
                             ArrayRef<func::CallOp> callers) const {
  auto type = dyn_cast<MemRefType>(function.getArgumentTypes()[number]);
  if (!type || type.getRank() == 0 || !type.isDynamicDim(0))
    return RowKind::Unknown;
  if (callers.empty())
    return function->hasAttr(StemDialect::kEntryAttr) ? RowKind::Unknown
                                                      : RowKind::Tokens;
  RowKind kind = ofDim(callers.front()->getOperand(number), 0);
  for (func::CallOp call : callers.drop_front())
    if (ofDim(call->getOperand(number), 0) != kind)
      return RowKind::Unknown;
  return kind;
}

LogicalResult RowKinds::readAttributes(func::FuncOp function) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    Attribute attribute = function.getArgAttr(i, StemDialect::kRowsAttr);
    if (!attribute)
      continue;
    auto text = dyn_cast<StringAttr>(attribute);
    if (text && text.getValue() == "tokens")
      kinds[function][i] = RowKind::Tokens;
    else if (text && text.getValue() == "outputs")
      kinds[function][i] = RowKind::Outputs;
    else
      return function.emitOpError()
             << "argument " << i << " has " << StemDialect::kRowsAttr << " = "
             << attribute << ", expected \"tokens\" or \"outputs\"";
  }
  return success();
}

/// Appends `function` behind all that it calls.
LogicalResult RowKinds::visit(func::FuncOp function) {
  auto [entry, isNew] = finished.try_emplace(function, false);
  if (!isNew) {
    if (entry->second)
      return success();
    return function.emitOpError(
        "calls itself: frames of memory are laid out for a call tree");
  }
  for (func::CallOp call : calls[function])
    if (failed(visit(callees[call])))
      return failure();
  finished[function] = true;
  callersFirst.push_back(function);
  return success();
}

RowKind RowKinds::ofSize(Value size) const {
  Operation *op = size.getDefiningOp();
  if (!op)
    return RowKind::Unknown;
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(op))
    return ofSize(op->getOperand(0));
  auto dim = dyn_cast<memref::DimOp>(op);
  if (!dim || !dim.getConstantIndex())
    return RowKind::Unknown;
  return ofDim(dim.getSource(), *dim.getConstantIndex());
}

RowKind RowKinds::ofDim(Value buffer, int64_t dim) const {
  auto type = dyn_cast<MemRefType>(buffer.getType());
  if (!type || dim < 0 || dim >= type.getRank() || !type.isDynamicDim(dim))
    return RowKind::Unknown;
  if (auto argument = dyn_cast<BlockArgument>(buffer)) {
    auto found = kinds.find(argument.getOwner()->getParentOp());
    if (found == kinds.end() || !argument.getOwner()->isEntryBlock() ||
        dim != 0)
      return RowKind::Unknown;
    return found->second[argument.getArgNumber()];
  }
  auto ofDynamicSize = [&](OperandRange sizes) {
    return ofSize(sizes[type.getDynamicDimIndex(dim)]);
  };
  return llvm::TypeSwitch<Operation *, RowKind>(buffer.getDefiningOp())
      .Case<memref::AllocOp, memref::AllocaOp>(
          [&](auto op) { return ofDynamicSize(op.getDynamicSizes()); })
      .Case<memref::ViewOp, memref::ReinterpretCastOp>(
          [&](auto op) { return ofDynamicSize(op.getSizes()); })
      .Case([&](memref::SubViewOp op) {
        if (op.getSourceType().getRank() != type.getRank())
          return RowKind::Unknown;
        return ofDynamicSize(op.getSizes());
      })
      .Case([&](memref::CastOp op) { return ofDim(op.getSource(), dim); })
      .Case([&](memref::ExpandShapeOp op) {
        return ofDynamicSize(op.getOutputShape());
      })
      .Case([&](memref::CollapseShapeOp op) {
        SmallVector<int64_t, 2> group = op.getReassociationIndices()[dim];
        return group.size() == 1 ? ofDim(op.getSrc(), group[0])
                                 : RowKind::Unknown;
      })
      // There is one index for each id.
      .Case([&](AwaitOp op) {
        Value ids = op.getIds();
        return ids && buffer == op.getIndex() ? ofDim(ids, 0)
                                              : RowKind::Unknown;
      })
      .Default([](Operation *) { return RowKind::Unknown; });
}

Value RowKinds::findArgument(func::FuncOp function, RowKind kind) const {
  auto found = kinds.find(function);
  for (auto [index, seen] : llvm::enumerate(found->second)) {
    auto type = dyn_cast<MemRefType>(function.getArgument(index).getType());
    if (seen == kind && type && type.getRank() > 0 && type.isDynamicDim(0))
      return function.getArgument(index);
  }
  return {};
}
