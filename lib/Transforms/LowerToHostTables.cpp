//===- LowerToHostTables.cpp - Tables of a step ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Plans are given back on every way out, and with a plan the tickets of it that
// are outstanding: those that the step did not come to release. The blocks that
// do so form a chain: block k gives back the k-th plan and goes on to block
// k - 1; block 0 returns the status.
//
//===----------------------------------------------------------------------===//

#include "LowerToHost.h"

#include "stem-c/Runtime.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace stem;

namespace {

class TablesLowering {
public:
  TablesLowering(HostEntry &entry, const LLVMTypeConverter &converter)
      : entry(entry), converter(converter), builder(entry.body.getLoc()) {}

  LogicalResult run();

private:
  LogicalResult check();
  void takeStatus();
  void takeStore();
  void lower(Operation *op);
  void lower(PlanRowsOp op);
  void lower(PrefetchOp op);
  void lower(AwaitOp op);
  Block *addReleaseBlock();
  void checkStatus(Value status);

  HostEntry &entry;
  const LLVMTypeConverter &converter;
  HostBuilder builder;
  Value context, store;
  /// The end of the chain that holds everything taken so far.
  Block *release = nullptr;
  /// The runtime's plans and tickets.
  llvm::DenseMap<Value, Value> handles;
};

LogicalResult TablesLowering::check() {
  func::FuncOp body = entry.body;
  WalkResult walk = body.walk([&](PrefetchOp op) {
    if (isa<BlockArgument>(op.getTable()))
      return WalkResult::advance();
    op.emitOpError("must read a table that is an argument of the entry");
    return WalkResult::interrupt();
  });
  return failure(walk.wasInterrupted());
}

/// The body returns a status; so far every way out is a success.
void TablesLowering::takeStatus() {
  func::FuncOp body = entry.body;
  Location loc = body.getLoc();
  body.setFunctionType(
      builder.getFunctionType(body.getArgumentTypes(), builder.getI32Type()));
  release = new Block();
  Value status = release->addArgument(builder.getI32Type(), loc);
  SmallVector<func::ReturnOp> returns;
  body.walk([&](func::ReturnOp op) { returns.push_back(op); });
  body.getBody().push_back(release);
  builder.setInsertionPointToStart(release);
  func::ReturnOp::create(builder, loc, status);
  for (func::ReturnOp op : returns) {
    builder.setInsertionPoint(op);
    cf::BranchOp::create(builder, loc, release,
                         ValueRange(builder.i32(STEM_OK)));
    op.erase();
  }
}

/// One argument in place of the tables, behind all others.
void TablesLowering::takeStore() {
  func::FuncOp body = entry.body;
  (void)body.insertArgument(body.getNumArguments(), builder.ptr(), {},
                            body.getLoc());
  store = body.getArguments().back();
}

/// A new end of the chain: the caller fills in the release.
Block *TablesLowering::addReleaseBlock() {
  auto *block = new Block();
  Value status = block->addArgument(builder.getI32Type(), builder.getLoc());
  entry.body.getBody().getBlocks().insert(release->getIterator(), block);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(block);
  cf::BranchOp::create(builder, builder.getLoc(), release, ValueRange(status));
  release = block;
  return block;
}

/// Leaves through the chain unless `status` is 0.
void TablesLowering::checkStatus(Value status) {
  Value ok =
      LLVM::ICmpOp::create(builder, builder.getLoc(), LLVM::ICmpPredicate::eq,
                           status, builder.i32(STEM_OK));
  Block *block = builder.getInsertionBlock();
  Block *rest = block->splitBlock(builder.getInsertionPoint());
  builder.setInsertionPointToEnd(block);
  cf::CondBranchOp::create(builder, builder.getLoc(), ok, rest, ValueRange(),
                           release, ValueRange(status));
  builder.setInsertionPointToStart(rest);
}

void TablesLowering::lower(PlanRowsOp op) {
  Location loc = op.getLoc();
  auto type = cast<MemRefType>(op.getIds().getType());
  MemRefDescriptor descriptor(
      builder.cast(converter.convertType(type), op.getIds()));
  Value slot = builder.stackSlot(entry.body.getBody(), builder.ptr());
  checkStatus(builder.call("stem_table_make_plan",
                           {context, store,
                            descriptor.bufferPtr(builder, loc, converter, type),
                            descriptor.size(builder, loc, 0), slot}));
  Value plan = builder.load(builder.ptr(), slot, 0);
  handles[op.getPlan()] = plan;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(addReleaseBlock());
  builder.call("stem_table_release_plan", {store, plan});
}

void TablesLowering::lower(PrefetchOp op) {
  // The context came in front of the arguments.
  auto argument = cast<BlockArgument>(op.getTable());
  int64_t table = entry.tables.lookup(argument.getArgNumber() - 1);
  Value slot = builder.stackSlot(entry.body.getBody(), builder.getI64Type());
  checkStatus(
      builder.call("stem_table_prefetch", {context, store, builder.i64(table),
                                           handles[op.getPlan()], slot}));
  handles[op.getTicket()] = builder.load(builder.getI64Type(), slot, 0);
}

void TablesLowering::lower(AwaitOp op) {
  Type tensor =
      LLVM::LLVMArrayType::get(builder.getI64Type(), sizeof(stem_tensor) / 8);
  Value rows = builder.stackSlot(entry.body.getBody(), tensor);
  Value index = builder.stackSlot(entry.body.getBody(), tensor);
  checkStatus(
      builder.call("stem_table_await",
                   {context, store, handles[op.getTicket()], rows, index}));
  for (auto [result, tensor] :
       {std::pair(op.getRows(), rows), std::pair(op.getIndex(), index)})
    result.replaceAllUsesWith(
        builder.buffer(converter, cast<MemRefType>(result.getType()), tensor));
}

void TablesLowering::lower(Operation *op) {
  builder.setInsertionPoint(op);
  if (auto plan = dyn_cast<PlanRowsOp>(op))
    lower(plan);
  else if (auto prefetch = dyn_cast<PrefetchOp>(op))
    lower(prefetch);
  else if (auto await = dyn_cast<AwaitOp>(op))
    lower(await);
  else
    builder.call("stem_table_release",
                 {store, handles[cast<ReleaseOp>(op).getTicket()]});
}

LogicalResult TablesLowering::run() {
  if (failed(check()))
    return failure();
  Block *first = &entry.body.getBody().front();
  takeStatus();
  context = first->getArgument(0);
  // A plan that no prefetch takes may be all that an entry has.
  for (auto plan : llvm::make_early_inc_range(first->getOps<PlanRowsOp>()))
    if (plan->use_empty())
      plan.erase();
  if (!entry.takesStore)
    return success();
  takeStore();
  Block *returned = release;
  SmallVector<Operation *> ops;
  for (Operation &op : *first)
    if (isa<PlanRowsOp, PrefetchOp, AwaitOp, ReleaseOp>(op))
      ops.push_back(&op);
  Operation *leave = first->getTerminator();
  for (Operation *op : ops)
    lower(op);
  // Users come behind what they use.
  for (Operation *op : llvm::reverse(ops))
    op->erase();
  // Success leaves through all of the chain.
  if (release != returned)
    leave->setSuccessor(release, 0);
  llvm::BitVector tableArguments(entry.body.getNumArguments());
  for (auto [number, table] : entry.tables)
    tableArguments.set(number + 1);
  return entry.body.eraseArguments(tableArguments);
}

} // namespace

LogicalResult stem::lowerTables(HostEntry &entry,
                                const LLVMTypeConverter &converter) {
  return TablesLowering(entry, converter).run();
}
