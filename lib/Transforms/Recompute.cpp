//===- Recompute.cpp - What the backward pass computes again --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/Count.h"
#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMRECOMPUTEPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// FLOPs for a byte below which computing is cheaper than writing and reading:
/// norms, lookups and what works element by element, no products.
constexpr double kCheap = 16;

bool isTokenwise(Operation *op) {
  return isa<TokenwiseOpInterface>(op) ||
         OpTrait::hasElementwiseMappableTraits(op) ||
         op->hasTrait<OpTrait::ConstantLike>();
}

/// A result of a forward function that backward calls alone read.
struct Residual {
  unsigned result;   ///< of the forward function
  unsigned argument; ///< of the backward function
  /// The ops that compute it from arguments and residuals that are kept; empty:
  /// it cannot be computed again.
  SmallVector<Operation *> ops;
  int64_t bytes = 0; ///< of all calls, for the tokens in question
  int64_t flops = 0;
  bool isKept = true;

  double cost() const {
    return static_cast<double>(flops) / std::max<int64_t>(bytes, 1);
  }
  /// Attention is not: what it costs grows with the tokens.
  bool isCheap() const {
    return cost() <= kCheap && llvm::all_of(ops, isTokenwise);
  }
};

/// A forward function, its backward function, and the calls of both.
struct FunctionPair {
  func::FuncOp forward, backward;
  SmallVector<std::pair<func::CallOp, func::CallOp>> calls;
  SmallVector<Residual> residuals;
};

/// The calls that read a result, if nothing else does: of one function, each
/// at the same operand, once.
std::optional<unsigned> residualOperand(OpResult result,
                                        func::CallOp &backward) {
  if (!result.hasOneUse())
    return std::nullopt;
  OpOperand &use = *result.use_begin();
  backward = dyn_cast<func::CallOp>(use.getOwner());
  return backward ? std::optional(use.getOperandNumber()) : std::nullopt;
}

struct RecomputePass : public stem::impl::StemRecomputePassBase<RecomputePass> {
  using Base::Base;
  RecomputePass(const StemRecomputePassOptions &options,
                std::function<void(int64_t)> onExcess)
      : Base(options), onExcess(std::move(onExcess)) {}

  LogicalResult initialize(MLIRContext *context) override {
    if (tokens >= 1 && budget >= 0)
      return success();
    emitError(UnknownLoc::get(context))
        << "stem-tokens is " << static_cast<int64_t>(tokens)
        << " and stem-budget " << static_cast<int64_t>(budget)
        << "; expected 1 or more tokens, and no negative budget";
    return failure();
  }

  void runOnOperation() override {
    SmallVector<FunctionPair> pairs = findPairs();
    for (FunctionPair &pair : pairs)
      for (Residual &residual : pair.residuals)
        measure(pair, residual);
    choose(pairs);
    for (FunctionPair &pair : pairs)
      if (failed(rewrite(pair)))
        return signalPassFailure();
  }

private:
  std::function<void(int64_t)> onExcess;

  SmallVector<FunctionPair> findPairs() {
    SymbolTable symbols(getOperation());
    llvm::MapVector<func::FuncOp, SmallVector<func::CallOp>> calls;
    getOperation().walk([&](func::CallOp call) {
      if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
        calls[callee].push_back(call);
    });
    SmallVector<FunctionPair> pairs;
    for (auto &[function, callers] : calls) {
      if (function.isExternal() || !function.isPrivate() ||
          !function.getBody().hasOneBlock())
        continue;
      FunctionPair pair;
      pair.forward = function;
      if (findBackward(pair, callers, symbols, calls))
        pairs.push_back(std::move(pair));
    }
    return pairs;
  }

  /// Residuals of `pair.forward`: the same operands of one function in all
  /// calls.
  bool findBackward(
      FunctionPair &pair, ArrayRef<func::CallOp> callers, SymbolTable &symbols,
      const llvm::MapVector<func::FuncOp, SmallVector<func::CallOp>> &calls) {
    for (func::CallOp call : callers) {
      SmallVector<Residual> found;
      func::CallOp reader;
      for (OpResult result : call->getResults()) {
        func::CallOp backward;
        std::optional<unsigned> operand = residualOperand(result, backward);
        if (!operand || (reader && backward != reader))
          continue;
        auto callee = symbols.lookup<func::FuncOp>(backward.getCallee());
        if (!callee || !callee.isPrivate() || callee.isExternal() ||
            callee == pair.forward || !callee.getBody().hasOneBlock())
          continue;
        // The stream goes on to another layer, residuals to the layer's own
        // backward function.
        if (pair.backward && callee != pair.backward)
          continue;
        reader = backward;
        pair.backward = callee;
        found.push_back({result.getResultNumber(), *operand, {}});
      }
      if (!reader)
        return false;
      pair.calls.emplace_back(call, reader);
      keepCommon(pair, found);
    }
    auto readers = calls.find(pair.backward);
    return !pair.residuals.empty() && readers != calls.end() &&
           readers->second.size() == pair.calls.size();
  }

  static void keepCommon(FunctionPair &pair, ArrayRef<Residual> found) {
    if (pair.calls.size() == 1) {
      llvm::append_range(pair.residuals, found);
      return;
    }
    llvm::erase_if(pair.residuals, [&](const Residual &known) {
      return llvm::none_of(found, [&](const Residual &other) {
        return other.result == known.result && other.argument == known.argument;
      });
    });
  }

  Value valueOf(FunctionPair &pair, const Residual &residual) {
    return pair.forward.getBody().front().getTerminator()->getOperand(
        residual.result);
  }

  /// The ops that give a residual again, and what that costs.
  void measure(FunctionPair &pair, Residual &residual) {
    Value value = valueOf(pair, residual);
    residual.bytes =
        (Count(countBytes(value.getType(), tokens)) * pair.calls.size()).get();
    llvm::SetVector<Operation *> ops;
    if (!collect(pair, value, residual, ops))
      return;
    residual.ops = llvm::to_vector(ops);
    Count flops;
    for (Operation *op : residual.ops)
      if (auto cost = dyn_cast<CostOpInterface>(op))
        flops += cost.getCost(tokens).flops;
    residual.flops = (flops * pair.calls.size()).get();
  }

  /// Appends what computes `value` from arguments and other residuals, operands
  /// first.
  bool collect(FunctionPair &pair, Value value, const Residual &residual,
               llvm::SetVector<Operation *> &ops) {
    Operation *op = value.getDefiningOp();
    if (!op || ops.contains(op))
      return true;
    for (const Residual &other : pair.residuals)
      if (&other != &residual && other.isKept && valueOf(pair, other) == value)
        return true;
    if (!isMemoryEffectFree(op) || op->getNumRegions() > 0 ||
        isa<func::CallOp>(op))
      return false;
    for (Value operand : op->getOperands())
      if (!collect(pair, operand, residual, ops))
        return false;
    ops.insert(op);
    return true;
  }

  /// The cheap ones always; then the cheapest for each byte until the budget
  /// holds. A residual that another one is computed from costs that too, once
  /// it is no longer kept: costs are taken anew after each choice.
  void choose(SmallVectorImpl<FunctionPair> &pairs) {
    while (true) {
      int64_t kept = 0;
      Residual *best = nullptr;
      FunctionPair *owner = nullptr;
      for (FunctionPair &pair : pairs)
        for (Residual &residual : pair.residuals) {
          if (!residual.isKept)
            continue;
          kept += residual.bytes;
          if (residual.ops.empty() && !isArgument(pair, residual))
            continue;
          if (!best || std::pair(!residual.isCheap(), residual.cost()) <
                           std::pair(!best->isCheap(), best->cost())) {
            best = &residual;
            owner = &pair;
          }
        }
      bool isOver = budget > 0 && kept > budget;
      if (!best || (!best->isCheap() && !isOver))
        return report(pairs, kept);
      best->isKept = false;
      for (Residual &residual : owner->residuals)
        if (residual.isKept)
          measure(*owner, residual);
      // What was dropped before may have read this one.
      for (Residual &residual : owner->residuals)
        if (!residual.isKept)
          measure(*owner, residual);
    }
  }

  bool isArgument(FunctionPair &pair, const Residual &residual) {
    return isa<BlockArgument>(valueOf(pair, residual));
  }

  void report(ArrayRef<FunctionPair> pairs, int64_t kept) {
    int64_t again = 0, flops = 0, count = 0;
    for (const FunctionPair &pair : pairs)
      for (const Residual &residual : pair.residuals)
        if (!residual.isKept) {
          again += residual.bytes;
          flops += residual.flops;
          ++count;
        }
    remark::analysis(
        getOperation().getLoc(),
        remark::RemarkOpts::name("StemRecompute").category("stem-recompute"))
        << remark::metric("Tokens", static_cast<int64_t>(tokens))
        << remark::metric("KeptBytes", kept)
        << remark::metric("RecomputedBytes", again)
        << remark::metric("RecomputedValues", count)
        << remark::metric("Flops", flops);
    if (budget == 0 || kept <= budget)
      return;
    if (onExcess)
      onExcess(kept);
    else
      getOperation().emitWarning()
          << "residuals of " << static_cast<int64_t>(tokens) << " tokens take "
          << kept << " bytes where stem-budget is "
          << static_cast<int64_t>(budget)
          << ", with all computed again that can be";
  }

  LogicalResult rewrite(FunctionPair &pair) {
    Block &forward = pair.forward.getBody().front();
    Block &backward = pair.backward.getBody().front();
    Operation *terminator = forward.getTerminator();
    IRMapping mapping;
    llvm::BitVector results(terminator->getNumOperands()),
        arguments(backward.getNumArguments());
    for (const Residual &residual : pair.residuals) {
      if (residual.isKept) {
        mapping.map(valueOf(pair, residual),
                    backward.getArgument(residual.argument));
        continue;
      }
      results.set(residual.result);
      arguments.set(residual.argument);
    }
    if (results.none())
      return success();
    OpBuilder builder = OpBuilder::atBlockBegin(&backward);
    for (const Residual &residual : pair.residuals) {
      if (residual.isKept)
        continue;
      for (Operation *op : residual.ops)
        cloneOnce(pair, op, builder, mapping);
      Value again = passArgument(pair, valueOf(pair, residual), mapping);
      backward.getArgument(residual.argument).replaceAllUsesWith(again);
    }
    arguments.resize(backward.getNumArguments());
    return drop(pair, results, arguments);
  }

  void cloneOnce(FunctionPair &pair, Operation *op, OpBuilder &builder,
                 IRMapping &mapping) {
    if (op->getNumResults() > 0 && mapping.contains(op->getResult(0)))
      return;
    for (Value operand : op->getOperands())
      (void)passArgument(pair, operand, mapping);
    builder.clone(*op, mapping);
  }

  /// The value in the backward function; an argument of the forward function is
  /// passed to it as well.
  Value passArgument(FunctionPair &pair, Value value, IRMapping &mapping) {
    if (Value known = mapping.lookupOrNull(value))
      return known;
    auto argument = cast<BlockArgument>(value);
    // Perhaps it is passed already.
    for (unsigned i = 0; i < pair.backward.getNumArguments(); ++i)
      if (llvm::all_of(pair.calls, [&](auto &calls) {
            return i < calls.second.getNumOperands() &&
                   calls.second.getOperand(i) ==
                       calls.first.getOperand(argument.getArgNumber());
          })) {
        mapping.map(value, pair.backward.getArgument(i));
        return pair.backward.getArgument(i);
      }
    unsigned position = pair.backward.getNumArguments();
    (void)pair.backward.insertArgument(position, value.getType(), {},
                                       value.getLoc());
    for (auto &[forward, backward] : pair.calls)
      backward.getOperandsMutable().append(
          forward.getOperand(argument.getArgNumber()));
    mapping.map(value, pair.backward.getArgument(position));
    return pair.backward.getArgument(position);
  }

  LogicalResult drop(FunctionPair &pair, const llvm::BitVector &results,
                     const llvm::BitVector &arguments) {
    for (auto &[forward, backward] : pair.calls)
      backward->eraseOperands(arguments);
    if (failed(pair.backward.eraseArguments(arguments)))
      return failure();
    Operation *terminator = pair.forward.getBody().front().getTerminator();
    if (failed(pair.forward.eraseResults(results)))
      return failure();
    terminator->eraseOperands(results);
    for (auto &[forward, backward] : pair.calls)
      forward = withoutResults(forward, results);
    return success();
  }

  static func::CallOp withoutResults(func::CallOp call,
                                     const llvm::BitVector &dropped) {
    OpBuilder builder(call);
    SmallVector<Type> types;
    SmallVector<Value> kept;
    for (OpResult result : call->getResults())
      if (!dropped.test(result.getResultNumber())) {
        types.push_back(result.getType());
        kept.push_back(result);
      }
    auto shorter =
        func::CallOp::create(builder, call.getLoc(), types,
                             call.getCalleeAttr(), call.getOperands());
    for (auto [before, after] : llvm::zip_equal(kept, shorter.getResults()))
      before.replaceAllUsesWith(after);
    call.erase();
    return shorter;
  }
};

} // namespace

std::unique_ptr<Pass>
stem::createStemRecomputePass(const StemRecomputePassOptions &options,
                              std::function<void(int64_t)> onExcess) {
  return std::make_unique<RecomputePass>(options, std::move(onExcess));
}
