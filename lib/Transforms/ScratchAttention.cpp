//===- ScratchAttention.cpp - A cache for attention without one -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMSCRATCHATTENTIONPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// The scratch caches that a function may take, in the order of its arguments.
enum Scratch { Keys, Queries, kScratches };
constexpr StringLiteral kNames[] = {"scratch", "scratch_queries"};

/// A function that attends without a cache, or calls one that does.
struct Needy {
  SmallVector<AttentionOp> attentions;
  SmallVector<AttentionLogSumExpOp> logSumExps;
  SmallVector<AttentionVjpOp> vjps;
  SmallVector<std::pair<func::CallOp, func::FuncOp>> calls;
  /// Whether a cache is needed, and the argument once there is one.
  std::array<bool, kScratches> needs = {};
  std::array<Value, kScratches> caches;
};

struct ScratchAttentionPass
    : public stem::impl::StemScratchAttentionPassBase<ScratchAttentionPass> {
  void runOnOperation() override {
    needy.clear();
    bool canChange = succeeded(findAttention());
    findCallers();
    for (auto &[function, need] : needy)
      if (failed(verifyUses(function)))
        canChange = false;
    if (!canChange)
      return signalPassFailure();
    for (auto &[function, need] : needy)
      if (failed(addArguments(function, need)))
        return signalPassFailure();
    for (auto &[function, need] : needy)
      rewrite(need);
  }

private:
  LogicalResult findAttention() {
    bool areLowerable = true;
    for (auto function : getOperation().getOps<func::FuncOp>())
      function.walk([&](Operation *op) {
        if (auto attention = dyn_cast<AttentionOp>(op)) {
          if (attention.getCache())
            return;
          Needy &need = needy[function];
          need.attentions.push_back(attention);
          need.needs[Keys] = true;
        } else if (auto logSumExp = dyn_cast<AttentionLogSumExpOp>(op)) {
          if (failed(verify(function, logSumExp)))
            areLowerable = false;
          Needy &need = needy[function];
          need.logSumExps.push_back(logSumExp);
          need.needs[Keys] = true;
        } else if (auto vjp = dyn_cast<AttentionVjpOp>(op)) {
          if (failed(verify(function, vjp)))
            areLowerable = false;
          Needy &need = needy[function];
          need.vjps.push_back(vjp);
          need.needs = {true, true};
        }
      });
    return success(areLowerable);
  }

  static LogicalResult verify(func::FuncOp function, AttentionLogSumExpOp op) {
    RankedTensorType q = op.getQ().getType(), k = op.getK().getType();
    Type element = q.getElementType();
    if ((!element.isF32() && !element.isBF16()) ||
        k.getElementType() != element)
      return op.emitOpError() << "has queries " << q << " and keys " << k
                              << "; a cache holds one type, f32 or bf16";
    if (!op.getType().getElementType().isF32())
      return op.emitOpError() << "gives " << op.getType()
                              << ", which is f32 outside of the interpreter";
    auto tile = function->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr);
    if (tile && tile.getInt() > 1)
      return success();
    return op.emitOpError()
           << "works on tiles of tokens, but function '"
           << function.getSymName() << "' has '" << StemDialect::kTileAttr
           << "' " << (tile ? tile.getInt() : 0) << ", wanted 2 at least";
  }

  static LogicalResult verify(func::FuncOp function, AttentionVjpOp op) {
    RankedTensorType q = op.getQ().getType(), k = op.getK().getType();
    Type element = q.getElementType();
    if ((!element.isF32() && !element.isBF16()) ||
        k.getElementType() != element ||
        op.getV().getType().getElementType() != element)
      return op.emitOpError()
             << "has queries " << q << ", keys " << k << " and values "
             << op.getV().getType() << "; a cache holds one type, f32 or bf16";
    if (op.getCotangent().getType().getElementType().isF64())
      return op.emitOpError("computes in f64, which only the interpreter does");
    auto tile = function->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr);
    if (tile && tile.getInt() % KVPageOp::kPageTokens == 0)
      return success();
    return op.emitOpError()
           << "works on " << KVPageOp::kPageTokens
           << " tokens of one sequence at a time, but function '"
           << function.getSymName() << "' has '" << StemDialect::kTileAttr
           << "' " << (tile ? tile.getInt() : 0)
           << ", wanted a multiple of them";
  }

  /// Callers of callers too, until nothing is new.
  void findCallers() {
    SymbolTable symbols(getOperation());
    llvm::MapVector<func::FuncOp, SmallVector<func::CallOp>> callersOf;
    for (auto function : getOperation().getOps<func::FuncOp>())
      function.walk([&](func::CallOp call) {
        if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
          callersOf[callee].push_back(call);
      });
    SmallVector<func::FuncOp> open;
    for (auto &[function, need] : needy)
      open.push_back(function);
    while (!open.empty()) {
      func::FuncOp callee = open.pop_back_val();
      std::array<bool, kScratches> needs = needy[callee].needs;
      for (func::CallOp call : callersOf.lookup(callee)) {
        Needy &caller = needy[call->getParentOfType<func::FuncOp>()];
        auto before = caller.needs;
        for (Scratch scratch : {Keys, Queries})
          caller.needs[scratch] |= needs[scratch];
        if (caller.needs != before)
          open.push_back(call->getParentOfType<func::FuncOp>());
      }
    }
    for (auto &[callee, calls] : callersOf)
      if (needy.contains(callee))
        for (func::CallOp call : calls)
          needy[call->getParentOfType<func::FuncOp>()].calls.emplace_back(
              call, callee);
  }

  /// All that refers to a function whose arguments change is a call of it.
  LogicalResult verifyUses(func::FuncOp function) {
    std::optional<SymbolTable::UseRange> uses =
        SymbolTable::getSymbolUses(function, getOperation());
    if (!uses)
      return function.emitOpError("attends without a cache, and it is unknown "
                                  "what else refers to it");
    for (SymbolTable::SymbolUse use : *uses)
      if (!isa<func::CallOp>(use.getUser()))
        return use.getUser()->emitOpError()
               << "refers to '" << function.getSymName()
               << "', which attends without a cache and takes one as a further "
                  "argument: only calls can pass it";
    return success();
  }

  LogicalResult addArguments(func::FuncOp function, Needy &need) {
    MLIRContext *context = &getContext();
    for (Scratch scratch : {Keys, Queries}) {
      if (!need.needs[scratch])
        continue;
      unsigned index = function.getNumArguments();
      NamedAttrList attributes;
      attributes.set(StemDialect::kNameAttr,
                     StringAttr::get(context, kNames[scratch]));
      attributes.set(StemDialect::kScratchCacheAttr, UnitAttr::get(context));
      if (failed(function.insertArgument(index, KVCacheType::get(context),
                                         attributes.getDictionary(context),
                                         function.getLoc())))
        return failure();
      need.caches[scratch] = function.getArgument(index);
    }
    return success();
  }

  void rewrite(Needy &need) {
    for (auto [call, callee] : need.calls)
      for (Scratch scratch : {Keys, Queries})
        if (needy[callee].needs[scratch])
          call.getOperandsMutable().append(need.caches[scratch]);
    for (AttentionLogSumExpOp op : need.logSumExps)
      if (AttentionOp attention = attentionOf(op, need)) {
        llvm::erase(need.attentions, attention);
        attend(op, attention, need.caches[Keys]);
      } else {
        attend(op, need.caches[Keys]);
      }
    for (AttentionOp op : need.attentions) {
      OpBuilder b(op);
      Value layer = arith::ConstantIndexOp::create(b, op.getLoc(), 0);
      op.getCacheMutable().append(need.caches[Keys]);
      op.getLayerMutable().append(layer);
    }
    for (AttentionVjpOp op : need.vjps)
      split(op, need.caches[Keys], need.caches[Queries]);
  }

  /// The attention that computes the logarithms too, null if there is none.
  static AttentionOp attentionOf(AttentionLogSumExpOp op, const Needy &need) {
    for (AttentionOp attention : need.attentions)
      if (attention->getBlock() == op->getBlock() &&
          attention->isBeforeInBlock(op) && attention.getQ() == op.getQ() &&
          attention.getK() == op.getK() &&
          attention.getV().getType() == op.getK().getType() &&
          attention.getPositions() == op.getPositions() &&
          attention.getSequences() == op.getSequences() &&
          attention.getHeadDim() == op.getHeadDim() &&
          attention.getScale() == op.getScale() &&
          attention.getWindow() == op.getWindow())
        return attention;
    return {};
  }

  // Pattern: attention(q, k, v), attention_logsumexp(q, k) ->
  //   kv_append(k, v), attend(q) with both results
  static void attend(AttentionLogSumExpOp op, AttentionOp attention,
                     Value cache) {
    OpBuilder b(attention);
    auto made = attend(b, op, attention.getV(), attention.getType(), cache);
    attention.replaceAllUsesWith(made.getResult());
    attention.erase();
    op.replaceAllUsesWith(made.getLogsumexp());
    op.erase();
  }

  // Pattern: attention_logsumexp(q, k) -> kv_append(k, k), attend(q)
  static void attend(AttentionLogSumExpOp op, Value cache) {
    OpBuilder b(op);
    auto made = attend(b, op, op.getK(), op.getQ().getType(), cache);
    op.replaceAllUsesWith(made.getLogsumexp());
    op.erase();
  }

  static AttendOp attend(OpBuilder &b, AttentionLogSumExpOp op, Value values,
                         Type result, Value cache) {
    Location loc = op.getLoc();
    Value layer = arith::ConstantIndexOp::create(b, loc, 0);
    KVAppendOp::create(b, loc, op.getK(), values, op.getPositions(),
                       op.getSequences(), cache, layer);
    return AttendOp::create(b, loc, result, op.getType(), op.getQ(),
                            op.getPositions(), op.getSequences(), cache, layer,
                            op.getHeadDimAttr(),
                            b.getI64IntegerAttr(op.getKeyValueHeads()),
                            op.getScaleAttr(), op.getWindowAttr());
  }

  // Pattern: attention_vjp(q, k, v, g) ->
  //   kv_append k and v in keys; kv_append q and g in queries; attend_vjp
  static void split(AttentionVjpOp op, Value keys, Value queries) {
    OpBuilder b(op);
    Location loc = op.getLoc();
    Value cotangent =
        convert(b, op.getCotangent(), op.getQ().getType().getElementType());
    Value zero = arith::ConstantIndexOp::create(b, loc, 0);
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    for (auto [matrix, cache, layer] :
         {std::tuple<Value, Value, Value>(op.getK(), keys, zero),
          {op.getV(), keys, one},
          {op.getQ(), queries, zero},
          {cotangent, queries, one}})
      KVAppendOp::create(b, loc, matrix, matrix, op.getPositions(),
                         op.getSequences(), cache, layer);
    auto vjp = AttendVjpOp::create(
        b, loc, op.getDq().getType(), op.getDk().getType(),
        op.getDv().getType(), op.getQ(), op.getK(), op.getV(), cotangent,
        op.getForward(), op.getPositions(), op.getSequences(), keys, queries,
        op.getHeadDimAttr(), op.getScaleAttr(), op.getWindowAttr());
    op.replaceAllUsesWith(vjp);
    op.erase();
  }

  static Value convert(OpBuilder &b, Value value, Type element) {
    auto type = cast<RankedTensorType>(value.getType());
    Type from = type.getElementType();
    if (from == element)
      return value;
    Type f32 = b.getF32Type(), to = type.clone(element);
    if (from.getIntOrFloatBitWidth() < 32 && element != f32) {
      // f16 and bf16 meet in f32.
      value = arith::ExtFOp::create(b, value.getLoc(), type.clone(f32), value);
      from = f32;
    }
    if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
      return arith::ExtFOp::create(b, value.getLoc(), to, value);
    return arith::TruncFOp::create(b, value.getLoc(), to, value);
  }

  llvm::MapVector<func::FuncOp, Needy> needy;
};

} // namespace
