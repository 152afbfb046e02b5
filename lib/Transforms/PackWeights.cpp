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
#include "llvm/ADT/MapVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMPACKWEIGHTSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// Whether `use` reads a whole matrix as the right-hand side of a product.
bool isPackableUse(OpOperand &use) {
  Operation *op = use.getOwner();
  Value value = use.get();
  if (auto linear = dyn_cast<LinearOp>(op))
    return value == linear.getWeight() && value != linear.getX();
  if (auto ffn = dyn_cast<DenseFFNOp>(op))
    return llvm::is_contained({ffn.getGate(), ffn.getUp(), ffn.getDown()},
                              value);
  if (auto ffn = dyn_cast<GatedFFNOp>(op))
    return value == ffn.getGate() || value == ffn.getDown();
  if (auto ffn = dyn_cast<FusedFFNOp>(op))
    return value == ffn.getGate() || value == ffn.getDown();
  if (auto loss = dyn_cast<CrossEntropyOp>(op))
    return value == loss.getHead();
  if (auto mix = dyn_cast<MixOp>(op))
    return value == mix.getA() || value == mix.getB();
  if (auto select = dyn_cast<SelectUpOp>(op))
    return value == select.getWeight();
  return false;
}

struct PackWeightsPass
    : public stem::impl::StemPackWeightsPassBase<PackWeightsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable table(module);
    symbols = &table;
    collectCalls(module);
    // Callees first would need an order; instead iterate: an argument is
    // packable when its uses are, which only depends on deeper functions.
    SmallVector<ParamLoadOp> loads;
    module.walk([&](ParamLoadOp load) { loads.push_back(load); });
    for (ParamLoadOp load : loads)
      packUses(load);
    retypeArguments(module);
  }

  void collectCalls(ModuleOp module) {
    module.walk([&](func::CallOp call) {
      if (auto callee = symbols->lookup<func::FuncOp>(call.getCallee()))
        calls[callee].push_back(call);
    });
  }

  /// The argument that an operand of a call becomes, if its body is known.
  BlockArgument calleeArgument(OpOperand &use) {
    auto call = dyn_cast<func::CallOp>(use.getOwner());
    if (!call)
      return {};
    auto callee = symbols->lookup<func::FuncOp>(call.getCallee());
    if (!callee || callee.isExternal() || !callee.isPrivate())
      return {};
    return callee.getArgument(use.getOperandNumber());
  }

  /// Whether all that reads `argument` can read it packed, and all that is
  /// passed for it is a parameter.
  bool isPackable(BlockArgument argument) {
    auto [it, inserted] = packable.try_emplace(argument, false);
    if (!inserted)
      return it->second;
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    bool result = packedType(argument.getType()) && !argument.use_empty() &&
                  llvm::all_of(argument.getUses(), [&](OpOperand &use) {
                    if (BlockArgument next = calleeArgument(use))
                      return isPackable(next);
                    return isPackableUse(use);
                  });
    for (func::CallOp call : calls[function]) {
      Value passed = call.getOperand(argument.getArgNumber());
      if (auto outer = dyn_cast<BlockArgument>(passed))
        result = result && isPackable(outer);
      else
        result = result && passed.getDefiningOp<ParamLoadOp>();
    }
    packable[argument] = result;
    return result;
  }

  static PackedType packedType(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || tensor.getRank() != 2 || !tensor.hasStaticShape() ||
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
    for (OpOperand &use : load->getUses()) {
      BlockArgument next = calleeArgument(use);
      if (next ? isPackable(next) : isPackableUse(use))
        uses.push_back(&use);
    }
    if (uses.empty())
      return;
    // A tied embedding reads the packed form too: the matrix is held once.
    for (OpOperand &use : load->getUses())
      if (auto embedding = dyn_cast<EmbeddingOp>(use.getOwner()))
        if (use.get() == embedding.getWeight())
          uses.push_back(&use);
    OpBuilder builder(load);
    auto packed =
        ParamLoadOp::create(builder, load.getLoc(), type, load.getParamAttr());
    for (OpOperand *use : uses)
      use->set(packed);
    if (load->use_empty())
      load->erase();
  }

  void retypeArguments(ModuleOp module) {
    for (auto &[argument, isPacked] : packable)
      if (isPacked)
        argument.setType(packedType(argument.getType()));
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      function.setType(FunctionType::get(
          &getContext(), function.getBody().getArgumentTypes(),
          function.getFunctionType().getResults()));
    }
  }

  SymbolTable *symbols = nullptr;
  llvm::DenseMap<Operation *, SmallVector<func::CallOp>> calls;
  llvm::MapVector<BlockArgument, bool> packable;
};

} // namespace
