//===- PackWeights.cpp - Matrices in the kernels' layout ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A weight flows from stem.param_load through calls into the weight operands
// of matrix products. Where every use on the way is such an operand or an
// argument whose uses are, the whole flow changes type.

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

namespace stem {
#define GEN_PASS_DEF_STEMPACKWEIGHTSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

bool isAmong(MutableOperandRange operands, OpOperand &use) {
  return llvm::any_of(operands, [&](OpOperand &o) { return &o == &use; });
}

/// Whether `use` reads a whole matrix as the right-hand side of a product.
/// Not by value: the same matrix may be the tokens of that product, too.
bool isPackableUse(OpOperand &use) {
  return llvm::TypeSwitch<Operation *, bool>(use.getOwner())
      .Case<LinearOp, SelectUpOp>(
          [&](auto op) { return &use == &op.getWeightMutable(); })
      .Case<DenseFFNOp>([&](DenseFFNOp op) {
        return &use == &op.getGateMutable() || &use == &op.getUpMutable() ||
               &use == &op.getDownMutable();
      })
      .Case<GatedFFNOp, FusedFFNOp>([&](auto op) {
        return &use == &op.getGateMutable() || &use == &op.getDownMutable();
      })
      .Case<CrossEntropyOp>(
          [&](CrossEntropyOp op) { return &use == &op.getHeadMutable(); })
      .Case<CrossEntropyStepOp>([&](CrossEntropyStepOp op) {
        return &use == &op.getHeadMutable() ||
               isAmong(op.getTransposedMutable(), use);
      })
      .Case<DistillationOp>([&](DistillationOp op) {
        return &use == &op.getHeadMutable() ||
               &use == &op.getTeacherHeadMutable();
      })
      .Case<DistillationStepOp>([&](DistillationStepOp op) {
        return &use == &op.getHeadMutable() ||
               &use == &op.getTeacherHeadMutable() ||
               isAmong(op.getTransposedMutable(), use);
      })
      .Case<MixOp>([&](MixOp op) {
        return &use == &op.getAMutable() || &use == &op.getBMutable();
      })
      .Default(false);
}

struct PackWeightsPass
    : public stem::impl::StemPackWeightsPassBase<PackWeightsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    packable.clear();
    calls.clear();
    SymbolTableCollection tables;
    symbols = &tables;
    collectCandidates(module);
    // What remains is packable when all of it is.
    while (packable.remove_if(
        [&](BlockArgument argument) { return !staysPackable(argument); })) {
    }
    module.walk([&](ParamLoadOp load) { packUses(load); });
    retypeArguments(module);
  }

  func::FuncOp calleeOf(func::CallOp call) {
    return symbols->lookupNearestSymbolFrom<func::FuncOp>(call,
                                                          call.getCalleeAttr());
  }

  /// Matrix arguments of functions whose calls are all known.
  void collectCandidates(ModuleOp module) {
    module.walk([&](func::FuncOp function) {
      auto users = SymbolTable::getSymbolUses(function, module);
      if (function.isExternal() || !function.isPrivate() || !users ||
          users->empty() ||
          !llvm::all_of(*users, [](const SymbolTable::SymbolUse &use) {
            return isa<func::CallOp>(use.getUser());
          }))
        return;
      for (const SymbolTable::SymbolUse &use : *users)
        calls[function].push_back(cast<func::CallOp>(use.getUser()));
      for (BlockArgument argument : function.getArguments())
        if (packedType(argument.getType()) && !argument.use_empty())
          packable.insert(argument);
    });
  }

  bool canReadPacked(OpOperand &use) {
    auto call = dyn_cast<func::CallOp>(use.getOwner());
    if (!call)
      return isPackableUse(use);
    func::FuncOp callee = calleeOf(call);
    return callee && !callee.isExternal() &&
           packable.contains(callee.getArgument(use.getOperandNumber()));
  }

  /// Whether all that reads `argument` can read it packed, and all that is
  /// passed for it is a parameter or such an argument.
  bool staysPackable(BlockArgument argument) {
    auto isPackedWhenPassed = [&](func::CallOp call) {
      Value passed = call.getOperand(argument.getArgNumber());
      if (auto outer = dyn_cast<BlockArgument>(passed))
        return packable.contains(outer);
      return passed.getDefiningOp<ParamLoadOp>() != nullptr;
    };
    return llvm::all_of(argument.getUses(),
                        [&](OpOperand &use) { return canReadPacked(use); }) &&
           llvm::all_of(calls[argument.getOwner()->getParentOp()],
                        isPackedWhenPassed);
  }

  static PackedType packedType(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || tensor.getRank() != 2 || !tensor.hasStaticShape() ||
        tensor.getNumElements() == 0 ||
        !(tensor.getElementType().isF32() || tensor.getElementType().isBF16()))
      return {};
    return PackedType::get(type.getContext(), tensor.getDimSize(1),
                           tensor.getDimSize(0), tensor.getElementType());
  }

  /// Moves the packable uses of `load` to a packed load of the same symbol.
  void packUses(ParamLoadOp load) {
    PackedType type = packedType(load.getType());
    if (!type)
      return;
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : load->getUses())
      if (canReadPacked(use))
        uses.push_back(&use);
    if (uses.empty())
      return;
    // A tied embedding reads the packed form too: the matrix is held once.
    for (OpOperand &use : load->getUses())
      if (auto embedding = dyn_cast<EmbeddingOp>(use.getOwner()))
        if (use.get() == embedding.getWeight())
          uses.push_back(&use);
    OpBuilder builder(load);
    auto packed = ParamLoadOp::create(builder, load.getLoc(), type,
                                      load.getParam(), load.getTransposed());
    for (OpOperand *use : uses)
      use->set(packed);
    if (load->use_empty())
      load->erase();
  }

  void retypeArguments(ModuleOp module) {
    for (BlockArgument argument : packable)
      argument.setType(packedType(argument.getType()));
    for (auto &[function, callers] : calls) {
      auto callee = cast<func::FuncOp>(function);
      callee.setType(FunctionType::get(&getContext(),
                                       callee.getBody().getArgumentTypes(),
                                       callee.getFunctionType().getResults()));
    }
  }

  SymbolTableCollection *symbols = nullptr;
  llvm::DenseMap<Operation *, SmallVector<func::CallOp>> calls;
  llvm::SetVector<BlockArgument> packable;
};

} // namespace
