//===- PackWeights.cpp - Matrices in the kernels' layout ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A weight flows from stem.param_load through calls into the weight operands
// of matrix products. Where every use on the way is such an operand or an
// argument whose uses are, the whole flow changes type.

#include "MissedRemark.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

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
    whyArgumentPlain.clear();
    SymbolTableCollection tables;
    symbols = &tables;
    collectCandidates(module);
    // What remains is packable when all of it is.
    while (packable.remove_if([&](BlockArgument argument) {
      std::string reason = whyNotPackable(argument);
      if (reason.empty())
        return false;
      whyArgumentPlain[argument] = std::move(reason);
      return true;
    })) {
    }
    module.walk([&](ParamLoadOp load) { packUses(load); });
    retypeArguments(module);
    module.walk([&](Operation *op) {
      for (OpOperand &use : op->getOpOperands())
        if (isPackableUse(use) && !isa<PackedType>(use.get().getType()))
          explain(op, whyPlain(use.get()));
    });
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

  /// Empty when all that reads `argument` can read it packed, and all that is
  /// passed for it is a parameter or such an argument.
  std::string whyNotPackable(BlockArgument argument) {
    for (OpOperand &use : argument.getUses())
      if (!canReadPacked(use))
        return whyReadPlain(use);
    for (func::CallOp call : calls[argument.getOwner()->getParentOp()]) {
      Value passed = call.getOperand(argument.getArgNumber());
      auto outer = dyn_cast<BlockArgument>(passed);
      if (outer ? packable.contains(outer)
                : passed.getDefiningOp<ParamLoadOp>() != nullptr)
        continue;
      return llvm::formatv("a call of @{0} passes {1}", call.getCallee(),
                           outer ? "an argument that is not packed"
                                 : "what is no parameter")
          .str();
    }
    return "";
  }

  static std::string whyReadPlain(OpOperand &use) {
    Operation *reader = use.getOwner();
    if (auto call = dyn_cast<func::CallOp>(reader))
      return llvm::formatv("@{0} takes it plain", call.getCallee()).str();
    return llvm::formatv("'{0}' reads it plain", reader->getName()).str();
  }

  /// Why a weight of a product was not packed.
  std::string whyPlain(Value weight) {
    if (!packedType(weight.getType()))
      return llvm::formatv("{0} has no packed form: wanted a matrix of f32 or "
                           "bf16 of a static size, not empty",
                           weight.getType())
          .str();
    auto argument = dyn_cast<BlockArgument>(weight);
    auto function =
        argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp())
                 : func::FuncOp();
    if (!function || !argument.getOwner()->isEntryBlock())
      return "it is no parameter, nor an argument that is given one";
    if (std::string reason = whyArgumentPlain.lookup(argument); !reason.empty())
      return reason;
    return llvm::formatv("it is an argument of @{0}, whose callers are not all "
                         "known: the function is public, or something other "
                         "than a call refers to it",
                         function.getSymName())
        .str();
  }

  static void explain(Operation *op, StringRef reason) {
    remarkMissed(op, "NotPacked", "stem-pack-weights", reason);
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
      return load->erase();
    explain(load,
            llvm::formatv("{0} is held twice, packed and plain: {1}",
                          load.getParamAttr(), whyReadPlain(*load->use_begin()))
                .str());
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
  llvm::DenseMap<Value, std::string> whyArgumentPlain;
};

} // namespace
