//===- LowerToHostTables.cpp - Tables of a step ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a step takes from the store it gives back in the opposite order, on
// every way out. The blocks that do so form a chain: block k releases what was
// taken k-th and goes on to block k - 1; block 0 returns the status.
//
//===----------------------------------------------------------------------===//

#include "LowerToHost.h"

#include "stem-c/Runtime.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace stem;

namespace {

class TableRowsLowering {
public:
  TableRowsLowering(HostEntry &entry, const LLVMTypeConverter &converter)
      : entry(entry), converter(converter), builder(entry.body.getLoc()) {}

  LogicalResult run();

private:
  LogicalResult check();
  void takeStatus();
  void takeStore();
  void startGroup(TableRowsOp op);
  void lower(TableRowsOp op);
  Block *addReleaseBlock();
  void checkStatus(Value status);

  HostEntry &entry;
  const LLVMTypeConverter &converter;
  HostBuilder builder;
  Value context, store;
  /// The end of the chain that holds everything taken so far.
  Block *release = nullptr;
  /// The ops that read rows of the same ids share a plan.
  llvm::MapVector<Value, SmallVector<TableRowsOp>> groups;
  llvm::DenseMap<Operation *, Value> tickets;
  llvm::DenseMap<Operation *, int64_t> tables;
};

/// Casts of one vector of ids are still the same ids.
Value getIds(TableRowsOp op) {
  Value ids = op.getIds();
  while (auto cast = ids.getDefiningOp<memref::CastOp>())
    ids = cast.getSource();
  return ids;
}

LogicalResult TableRowsLowering::check() {
  func::FuncOp body = entry.body;
  WalkResult walk = body.walk([&](TableRowsOp op) {
    auto table = dyn_cast<BlockArgument>(op.getTable());
    if (op->getParentOp() != body || !body.getBody().hasOneBlock() || !table) {
      op.emitOpError("must stand at the top level of an entry and read one of "
                     "its arguments");
      return WalkResult::interrupt();
    }
    // The context came in front of the arguments.
    tables[op] = entry.tables.lookup(table.getArgNumber() - 1);
    groups[getIds(op)].push_back(op);
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  for (auto [number, table] : entry.tables)
    for (Operation *user : body.getArgument(number + 1).getUsers())
      if (!isa<TableRowsOp>(user))
        return user->emitOpError(
            "takes a table: only stem.table_rows in the entry itself does");
  return success();
}

/// The body returns a status; so far every way out is a success.
void TableRowsLowering::takeStatus() {
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
void TableRowsLowering::takeStore() {
  func::FuncOp body = entry.body;
  (void)body.insertArgument(body.getNumArguments(), builder.ptr(), {},
                            body.getLoc());
  store = body.getArguments().back();
}

/// A new end of the chain: the caller fills in the release.
Block *TableRowsLowering::addReleaseBlock() {
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
void TableRowsLowering::checkStatus(Value status) {
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

/// Plans the lookup of the ids and starts all reads that share the plan.
void TableRowsLowering::startGroup(TableRowsOp op) {
  Location loc = op.getLoc();
  Region &region = entry.body.getBody();
  Value ids = getIds(op);
  auto type = cast<MemRefType>(ids.getType());
  MemRefDescriptor descriptor(builder.cast(converter.convertType(type), ids));
  Value planSlot = builder.stackSlot(region, builder.ptr());
  checkStatus(builder.call("stem_table_make_plan",
                           {context, store,
                            descriptor.bufferPtr(builder, loc, converter, type),
                            descriptor.size(builder, loc, 0), planSlot}));
  Value plan = builder.load(builder.ptr(), planSlot, 0);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(addReleaseBlock());
    builder.call("stem_table_release_plan", {store, plan});
  }
  for (TableRowsOp reader : groups[ids]) {
    Value slot = builder.stackSlot(region, builder.getI64Type());
    checkStatus(builder.call(
        "stem_table_prefetch",
        {context, store, builder.i64(tables[reader]), plan, slot}));
    Value ticket = builder.load(builder.getI64Type(), slot, 0);
    tickets[reader] = ticket;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(addReleaseBlock());
    builder.call("stem_table_release", {store, ticket});
  }
}

void TableRowsLowering::lower(TableRowsOp op) {
  builder.setInsertionPoint(op);
  if (!tickets.contains(op))
    startGroup(op);
  Type tensor =
      LLVM::LLVMArrayType::get(builder.getI64Type(), sizeof(stem_tensor) / 8);
  Value rows = builder.stackSlot(entry.body.getBody(), tensor);
  Value index = builder.stackSlot(entry.body.getBody(), tensor);
  checkStatus(builder.call("stem_table_await",
                           {context, store, tickets[op], rows, index}));
  for (auto [result, tensor] :
       {std::pair(op.getRows(), rows), std::pair(op.getIndex(), index)})
    result.replaceAllUsesWith(
        builder.buffer(converter, cast<MemRefType>(result.getType()), tensor));
  op.erase();
}

LogicalResult TableRowsLowering::run() {
  if (failed(check()))
    return failure();
  Block *first = &entry.body.getBody().front();
  takeStatus();
  context = first->getArgument(0);
  if (!entry.takesStore)
    return success();
  takeStore();
  Block *returned = release;
  SmallVector<TableRowsOp> readers;
  for (Operation &op : *first)
    if (auto reader = dyn_cast<TableRowsOp>(op))
      readers.push_back(reader);
  Operation *leave = first->getTerminator();
  for (TableRowsOp reader : readers)
    lower(reader);
  // Success leaves through all of the chain.
  if (release != returned)
    leave->setSuccessor(release, 0);
  llvm::BitVector tableArguments(entry.body.getNumArguments());
  for (auto [number, table] : entry.tables)
    tableArguments.set(number + 1);
  return entry.body.eraseArguments(tableArguments);
}

} // namespace

LogicalResult stem::lowerTableRows(HostEntry &entry,
                                   const LLVMTypeConverter &converter) {
  return TableRowsLowering(entry, converter).run();
}
