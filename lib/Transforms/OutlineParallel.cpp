//===- OutlineParallel.cpp - Functions of parallel bodies -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

namespace stem {
#define GEN_PASS_DEF_STEMOUTLINEPARALLELPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// The bounds of a loop as values.
struct Bounds {
  SmallVector<Value> lower, upper, step;
};

/// Values from outside of a loop; its function clones the constants.
struct Captures {
  SmallVector<Value> values;
  SmallVector<Operation *> constants;
};

Bounds getBounds(OpBuilder &builder, scf::ForallOp forall) {
  return {forall.getLowerBound(builder), forall.getUpperBound(builder),
          forall.getStep(builder)};
}

bool isConstant(Value value, int64_t wanted) {
  return getConstantIntValue(value) == wanted;
}

/// Functions that do the same are one.
struct BodyInfo : llvm::DenseMapInfo<Operation *> {
  static unsigned getHashValue(Operation *body) {
    llvm::hash_code hash(0);
    body->walk([&](Operation *op) {
      if (op != body)
        hash = llvm::hash_combine(hash,
                                  OperationEquivalence::computeHash(
                                      op, OperationEquivalence::ignoreHashValue,
                                      OperationEquivalence::ignoreHashValue,
                                      OperationEquivalence::IgnoreLocations));
    });
    return hash;
  }
  static bool isEqual(Operation *a, Operation *b) {
    auto isKey = [](Operation *op) {
      return op != getEmptyKey() && op != getTombstoneKey();
    };
    return a == b || (isKey(a) && isKey(b) &&
                      OperationEquivalence::isRegionEquivalentTo(
                          &a->getRegion(0), &b->getRegion(0),
                          OperationEquivalence::IgnoreLocations));
  }
};

class Outliner {
public:
  explicit Outliner(ModuleOp module) : module(module), symbols(module) {}
  LogicalResult run();

private:
  LogicalResult check(func::FuncOp function);
  LogicalResult checkOp(Operation *op);
  bool hasParallelWork(func::FuncOp function);
  void sequentialize(scf::ForallOp forall);
  bool outline(func::FuncOp function, scf::ForallOp forall, unsigned number);
  SmallVector<Value> countTasks(OpBuilder &builder, scf::ForallOp forall,
                                const Bounds &bounds, Value &tasks);
  Captures findCaptures(scf::ForallOp forall, const Bounds &bounds,
                        ArrayRef<Value> counts);
  func::FuncOp createBody(OpBuilder &builder, func::FuncOp function,
                          Location loc, unsigned number,
                          const Captures &captures, IRMapping &mapping);
  void mapVariables(OpBuilder &builder, scf::ForallOp forall,
                    const Bounds &bounds, ArrayRef<Value> counts, Value task,
                    IRMapping &mapping);

  ModuleOp module;
  SymbolTable symbols;
  /// All that were made.
  llvm::DenseSet<Operation *, BodyInfo> bodies;
};

LogicalResult Outliner::run() {
  SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
  for (func::FuncOp function : functions)
    if (failed(check(function)))
      return failure();
  for (func::FuncOp function : functions) {
    SmallVector<scf::ForallOp> inner, outer;
    // Innermost first: what is moved holds no parallel loop any more.
    function.walk([&](scf::ForallOp forall) {
      (forall->getParentOfType<scf::ForallOp>() ? inner : outer)
          .push_back(forall);
    });
    for (scf::ForallOp forall : inner)
      sequentialize(forall);
    unsigned number = 0;
    for (scf::ForallOp forall : outer)
      number += outline(function, forall, number);
    function.walk([](ThreadIndexOp thread) {
      OpBuilder builder(thread);
      thread.getResult().replaceAllUsesWith(
          arith::ConstantIndexOp::create(builder, thread.getLoc(), 0));
      thread.erase();
    });
  }
  return success();
}

/// Whether calling the function runs a parallel loop or reads the thread.
bool Outliner::hasParallelWork(func::FuncOp root) {
  SmallVector<func::FuncOp> worklist{root};
  llvm::SmallPtrSet<Operation *, 8> seen{root};
  while (!worklist.empty()) {
    func::FuncOp function = worklist.pop_back_val();
    WalkResult walk = function.walk([&](Operation *op) {
      if (isa<scf::ForallOp, ThreadIndexOp, ParallelCallOp>(op))
        return WalkResult::interrupt();
      if (auto call = dyn_cast<func::CallOp>(op))
        if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
          if (seen.insert(callee).second)
            worklist.push_back(callee);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return true;
  }
  return false;
}

LogicalResult Outliner::checkOp(Operation *op) {
  if (auto forall = dyn_cast<scf::ForallOp>(op)) {
    if (forall.getNumResults() == 0)
      return success();
    return forall.emitOpError("has results: parallel loops are outlined on "
                              "buffers, after bufferization");
  }
  if (!op->getParentOfType<scf::ForallOp>())
    return success();
  if (isa<ParallelCallOp>(op))
    return op->emitOpError("stands in a parallel loop: the threads are busy "
                           "already");
  auto call = dyn_cast<func::CallOp>(op);
  auto callee =
      call ? symbols.lookup<func::FuncOp>(call.getCallee()) : func::FuncOp();
  if (!callee || !hasParallelWork(callee))
    return success();
  return call.emitOpError()
         << "calls '" << callee.getSymName()
         << "' from inside a parallel loop, but that function has parallel "
            "loops or asks for its thread: inline it, or move the call out of "
            "the loop";
}

LogicalResult Outliner::check(func::FuncOp function) {
  return failure(
      function.walk([&](Operation *op) -> WalkResult { return checkOp(op); })
          .wasInterrupted());
}

/// Pattern: forall (i, j) in (n, m) { X } -> for i in n { for j in m { X } }
void Outliner::sequentialize(scf::ForallOp forall) {
  IRRewriter rewriter(forall);
  Bounds bounds = getBounds(rewriter, forall);
  scf::LoopNest nest = scf::buildLoopNest(
      rewriter, forall.getLoc(), bounds.lower, bounds.upper, bounds.step);
  Block *body = forall.getBody();
  body->getTerminator()->erase();
  SmallVector<Value> variables;
  for (scf::ForOp loop : nest.loops)
    variables.push_back(loop.getInductionVar());
  rewriter.inlineBlockBefore(body, nest.loops.back().getBody()->getTerminator(),
                             variables);
  rewriter.eraseOp(forall);
}

/// The number of iterations in each dimension, and of all in `tasks`.
SmallVector<Value> Outliner::countTasks(OpBuilder &builder,
                                        scf::ForallOp forall,
                                        const Bounds &bounds, Value &tasks) {
  Location loc = forall.getLoc();
  SmallVector<Value> counts;
  for (auto [lower, upper, step] :
       llvm::zip_equal(bounds.lower, bounds.upper, bounds.step)) {
    Value count = upper;
    if (!isConstant(lower, 0))
      count = builder.createOrFold<arith::SubIOp>(loc, count, lower);
    if (!isConstant(step, 1))
      count = builder.createOrFold<arith::CeilDivSIOp>(loc, count, step);
    // A loop whose upper bound is below the lower one has no tasks; two of
    // them must not make a positive product.
    if (forall.getRank() > 1 && !getConstantIntValue(count))
      count = builder.createOrFold<arith::MaxSIOp>(
          loc, count, arith::ConstantIndexOp::create(builder, loc, 0));
    counts.push_back(count);
    tasks =
        tasks ? builder.createOrFold<arith::MulIOp>(loc, tasks, count) : count;
  }
  return counts;
}

/// What the body of the loop and the way to its indices read from outside.
Captures Outliner::findCaptures(scf::ForallOp forall, const Bounds &bounds,
                                ArrayRef<Value> counts) {
  llvm::SetVector<Value> outside;
  getUsedValuesDefinedAbove(forall.getRegion(), outside);
  for (ArrayRef<Value> values :
       {ArrayRef<Value>(bounds.lower), ArrayRef<Value>(bounds.step)})
    outside.insert(values.begin(), values.end());
  // The leading count is not needed to tell the dimensions apart.
  outside.insert(counts.begin() + 1, counts.end());
  Captures captures;
  for (Value value : outside) {
    if (matchPattern(value, m_Constant()))
      captures.constants.push_back(value.getDefiningOp());
    else
      captures.values.push_back(value);
  }
  return captures;
}

/// The function that runs one task, behind `function`; `mapping` gets what
/// stands in it for the captures. Leaves the builder inside.
func::FuncOp Outliner::createBody(OpBuilder &builder, func::FuncOp function,
                                  Location loc, unsigned number,
                                  const Captures &captures,
                                  IRMapping &mapping) {
  Type index = builder.getIndexType();
  SmallVector<Type> types{index, index};
  llvm::append_range(types, ValueRange(captures.values).getTypes());
  builder.clearInsertionPoint();
  auto body = func::FuncOp::create(
      builder, loc, (function.getSymName() + "_par" + Twine(number)).str(),
      builder.getFunctionType(types, {}));
  body.setPrivate();
  symbols.insert(body, std::next(Block::iterator(function)));

  Block *block = body.addEntryBlock();
  builder.setInsertionPointToStart(block);
  for (Operation *constant : captures.constants)
    builder.clone(*constant, mapping);
  for (auto [value, argument] :
       llvm::zip_equal(captures.values, block->getArguments().drop_front(2)))
    mapping.map(value, argument);
  return body;
}

/// Maps the induction variables of the loop to those of task `task`; the last
/// dimension runs fastest.
void Outliner::mapVariables(OpBuilder &builder, scf::ForallOp forall,
                            const Bounds &bounds, ArrayRef<Value> counts,
                            Value task, IRMapping &mapping) {
  Location loc = forall.getLoc();
  Value rest = task;
  for (int64_t dim = forall.getRank() - 1; dim >= 0; --dim) {
    Value position = rest;
    if (dim > 0) {
      Value count = mapping.lookup(counts[dim]);
      position = arith::RemUIOp::create(builder, loc, rest, count);
      rest = arith::DivUIOp::create(builder, loc, rest, count);
    }
    if (!isConstant(bounds.step[dim], 1))
      position = arith::MulIOp::create(builder, loc, position,
                                       mapping.lookup(bounds.step[dim]));
    if (!isConstant(bounds.lower[dim], 0))
      position = arith::AddIOp::create(builder, loc, position,
                                       mapping.lookup(bounds.lower[dim]));
    mapping.map(forall.getInductionVar(dim), position);
  }
}

/// Gives whether there was no function yet that does the same.
bool Outliner::outline(func::FuncOp function, scf::ForallOp forall,
                       unsigned number) {
  Location loc = forall.getLoc();
  OpBuilder builder(forall);
  Bounds bounds = getBounds(builder, forall);
  Value tasks;
  SmallVector<Value> counts = countTasks(builder, forall, bounds, tasks);
  Captures captures = findCaptures(forall, bounds, counts);

  IRMapping mapping;
  func::FuncOp body =
      createBody(builder, function, loc, number, captures, mapping);
  mapVariables(builder, forall, bounds, counts, body.getArgument(0), mapping);
  for (Operation &op : forall.getBody()->without_terminator())
    builder.clone(op, mapping);
  func::ReturnOp::create(builder, loc);
  body.walk([&](ThreadIndexOp op) {
    op.getResult().replaceAllUsesWith(body.getArgument(1));
    op.erase();
  });
  auto [known, isNew] = bodies.insert(body);
  if (!isNew)
    symbols.erase(body);

  builder.setInsertionPoint(forall);
  ParallelCallOp::create(builder, loc,
                         SymbolTable::getSymbolName(*known).getValue(), tasks,
                         captures.values);
  forall.erase();
  return isNew;
}

struct OutlineParallelPass
    : public stem::impl::StemOutlineParallelPassBase<OutlineParallelPass> {
  void runOnOperation() override {
    if (failed(Outliner(getOperation()).run()))
      signalPassFailure();
  }
};

} // namespace
