//===- InsertPrefetch.cpp - When the rows of a step are asked for ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowUses.h"

#include "stem/Dialect/Stem/Count.h"
#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/OptionChecks.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace stem {
#define GEN_PASS_DEF_STEMINSERTPREFETCHPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// What the store rounds the memory of a ticket up to.
constexpr int64_t kStagingAlignment = 64;

/// A table of an entry. Lookups are numbered in the order in which they are
/// first read.
struct Lookup {
  TableRowsOp op;
  Value ids;
  Operation *first, *last; ///< that read it
  Count bytes;             ///< of its rows in a step
  Value ticket = {};
};

/// Casts of one vector of ids are still the same ids.
Value withoutCasts(Value ids) {
  while (auto cast = ids.getDefiningOp<tensor::CastOp>()) {
    if (!isa<RankedTensorType>(cast.getSource().getType()))
      break;
    ids = cast.getSource();
  }
  return ids;
}

Count bytesOfRows(TableType table, Value ids, int64_t tokens) {
  int64_t rows = cast<ShapedType>(ids.getType()).getDimSize(0);
  if (ShapedType::isDynamic(rows))
    rows = tokens;
  rows = std::min(rows, table.getRows());
  int64_t element = table.getElementType().getIntOrFloatBitWidth() / 8;
  Count lines =
      Count(table.getColumns()) * rows * element + (kStagingAlignment - 1);
  if (!lines.isExact())
    return lines;
  return Count(std::max<int64_t>(lines.get() / kStagingAlignment, 1)) *
         kStagingAlignment;
}

class Scheduler {
public:
  Scheduler(func::FuncOp entry, RowUses &uses, int64_t tokens)
      : entry(entry), uses(uses), tokens(tokens) {}

  LogicalResult collect();
  bool empty() const { return lookups.empty(); }
  int64_t size() const { return static_cast<int64_t>(lookups.size()); }
  int64_t peakBytes(int64_t distance);
  void insert(int64_t distance);

private:
  LogicalResult collect(TableRowsOp op);
  Operation *anchor(size_t number, int64_t distance) {
    bool isAtStart = static_cast<int64_t>(number) < distance;
    return isAtStart ? start : lookups[number - distance].first;
  }
  void prefetch(Lookup &lookup, Operation *before);
  void awaitAndRelease(Lookup &lookup);

  func::FuncOp entry;
  RowUses &uses;
  int64_t tokens;
  SmallVector<Lookup> lookups;
  struct Plan {
    Value value;
    Operation *last = nullptr; ///< that uses it so far
  };
  llvm::DenseMap<Value, Plan> plans;
  Operation *start = nullptr; ///< the first lookup, as the graph has them
};

LogicalResult Scheduler::collect() {
  SmallVector<TableRowsOp> ops;
  entry.walk([&](TableRowsOp op) { ops.push_back(op); });
  if (ops.empty())
    return success();
  bool areGood = true;
  for (TableRowsOp op : ops)
    areGood &= succeeded(collect(op));
  if (!areGood)
    return failure();
  if (!lookups.empty())
    start = lookups.front().op;
  llvm::sort(lookups, [](const Lookup &a, const Lookup &b) {
    return a.first == b.first ? a.op->isBeforeInBlock(b.op)
                              : a.first->isBeforeInBlock(b.first);
  });
  return success();
}

LogicalResult Scheduler::collect(TableRowsOp op) {
  if (!entry->hasAttr(StemDialect::kEntryAttr))
    return op.emitOpError() << "stands in '" << entry.getSymName()
                            << "', which is no entry: pass the rows as "
                               "arguments";
  if (op->getParentOp() != entry || !entry.getBody().hasOneBlock())
    return op.emitOpError("stands in a region or among several blocks: an "
                          "entry looks its tables up in straight-line code");
  if (!isa<BlockArgument>(op.getTable()))
    return op.emitOpError("reads a table that is no argument of the entry: run "
                          "stem-bind-params first");
  llvm::SetVector<Operation *> readers;
  for (Value value : op->getResults())
    readers.insert_range(uses.readers(value));
  if (readers.empty()) {
    op.erase();
    return success();
  }
  auto isBefore = [](Operation *a, Operation *b) {
    return a->isBeforeInBlock(b);
  };
  Operation *first = *llvm::min_element(readers, isBefore);
  Operation *last = *llvm::max_element(readers, isBefore);
  if (last == &op->getBlock()->back())
    return op.emitOpError("has rows, or an index, that the entry returns: they "
                          "are the table store's, look them up first");
  for (Operation *reader : readers)
    if (isa<TableRowsOp>(reader))
      return reader->emitOpError("has the index of another lookup for ids: the "
                                 "store numbers rows as it likes");
  Value ids = withoutCasts(op.getIds());
  lookups.push_back({op, ids, first, last,
                     bytesOfRows(op.getTable().getType(), ids, tokens)});
  return success();
}

/// The most that rows of tickets take at one time.
int64_t Scheduler::peakBytes(int64_t distance) {
  llvm::DenseMap<Operation *, int64_t> positions;
  for (auto [position, op] : llvm::enumerate(entry.getBody().front()))
    positions[&op] = static_cast<int64_t>(position);
  // What is given back behind an op is there for what the next one asks for.
  SmallVector<std::pair<int64_t, size_t>> begins, ends;
  for (size_t i = 0; i < lookups.size(); ++i) {
    int64_t begin = positions[anchor(i, distance)];
    if (Operation *ids = lookups[i].ids.getDefiningOp())
      begin = std::max(begin, positions[ids] + 1);
    begins.emplace_back(begin, i);
    ends.emplace_back(positions[lookups[i].last], i);
  }
  llvm::sort(begins);
  llvm::sort(ends);
  int64_t peak = 0;
  llvm::BitVector held(lookups.size());
  const auto *end = ends.begin();
  for (auto [position, lookup] : begins) {
    for (; end != ends.end() && end->first < position; ++end)
      held.reset(end->second);
    held.set(lookup);
    Count sum;
    for (unsigned i : held.set_bits())
      sum += lookups[i].bytes;
    peak = std::max(peak, sum.get());
  }
  return peak;
}

/// Asks for the rows in front of `before`, or as soon as their ids are known.
void Scheduler::prefetch(Lookup &lookup, Operation *before) {
  Plan &plan = plans[lookup.ids];
  OpBuilder builder(before);
  Operation *behind = plan.last ? plan.last : lookup.ids.getDefiningOp();
  if (behind && !behind->isBeforeInBlock(before))
    builder.setInsertionPointAfter(behind);
  Location loc = lookup.op.getLoc();
  // Of the lookups by the same ids, none asks before the first.
  if (!plan.value)
    plan.value = PlanRowsOp::create(
        builder, loc, RowPlanType::get(builder.getContext()), lookup.ids);
  TableType table = lookup.op.getTable().getType();
  lookup.ticket = PrefetchOp::create(builder, loc,
                                     TicketType::get(builder.getContext(),
                                                     table.getColumns(),
                                                     table.getElementType()),
                                     lookup.op.getTable(), plan.value);
  plan.last = lookup.ticket.getDefiningOp();
}

void Scheduler::awaitAndRelease(Lookup &lookup) {
  OpBuilder builder(lookup.first);
  auto await = AwaitOp::create(builder, lookup.op.getLoc(),
                               lookup.op.getRows().getType(),
                               lookup.op.getIndex().getType(), lookup.ticket);
  builder.setInsertionPointAfter(lookup.last);
  ReleaseOp::create(builder, lookup.op.getLoc(), lookup.ticket);
  lookup.op->replaceAllUsesWith(await);
}

void Scheduler::insert(int64_t distance) {
  for (size_t i = 0; i < lookups.size(); ++i)
    prefetch(lookups[i], anchor(i, distance));
  for (Lookup &lookup : lookups)
    awaitAndRelease(lookup);
  for (Lookup &lookup : lookups)
    lookup.op.erase();
}

struct InsertPrefetchPass
    : public stem::impl::StemInsertPrefetchPassBase<InsertPrefetchPass> {
  using StemInsertPrefetchPassBase::StemInsertPrefetchPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    if (failed(checkOption(context, staging, {.least = 0})) ||
        failed(checkOption(context, tokens, {.least = 1})))
      return failure();
    if (distance.getValue() == "auto" || number())
      return success();
    return emitError(UnknownLoc::get(context))
           << distance.ArgStr << " is '" << distance.getValue()
           << "'; wanted auto, or a number of tables, 0 or more";
  }

  void runOnOperation() override {
    RowUses uses;
    bool isGood = true;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      Scheduler scheduler(function, uses, tokens);
      if (failed(scheduler.collect())) {
        isGood = false;
        continue;
      }
      if (scheduler.empty())
        continue;
      FailureOr<int64_t> chosen = choose(function, scheduler);
      if (failed(chosen)) {
        isGood = false;
        continue;
      }
      scheduler.insert(*chosen);
    }
    if (!isGood)
      signalPassFailure();
  }

private:
  FailureOr<int64_t> choose(func::FuncOp entry, Scheduler &scheduler);
  void report(func::FuncOp entry, Scheduler &scheduler, int64_t chosen);

  /// The distance that is asked for; none: as far as the staging allows.
  std::optional<int64_t> number() const {
    int64_t value;
    if (StringRef(distance.getValue()).getAsInteger(10, value) || value < 0)
      return std::nullopt;
    return value;
  }
};

FailureOr<int64_t> InsertPrefetchPass::choose(func::FuncOp entry,
                                              Scheduler &scheduler) {
  const int64_t all = scheduler.size();
  const std::optional<int64_t> wanted = number();
  int64_t chosen = std::min(wanted.value_or(all), all);
  auto fits = [&](int64_t candidate) {
    return staging == 0 || scheduler.peakBytes(candidate) <= staging;
  };
  // Rows that are asked for earlier are held for longer, never for less.
  if (!wanted && !fits(all)) {
    int64_t good = 0;
    for (int64_t bad = all; bad - good > 1;)
      (fits(good + (bad - good) / 2) ? good : bad) = good + (bad - good) / 2;
    chosen = good;
  }
  if (!fits(chosen)) {
    entry.emitOpError() << "needs " << scheduler.peakBytes(chosen)
                        << " bytes of staging for the rows of "
                        << static_cast<int64_t>(tokens) << " tokens at "
                        << "a distance of " << chosen << ", but "
                        << staging.ArgStr << " is "
                        << static_cast<int64_t>(staging)
                        << (chosen > 0 ? "; a shorter distance takes less"
                                       : "; it is the least that this entry "
                                         "takes");
    return failure();
  }
  report(entry, scheduler, chosen);
  return chosen;
}

void InsertPrefetchPass::report(func::FuncOp entry, Scheduler &scheduler,
                                int64_t chosen) {
  const int64_t all = scheduler.size(), tokenCount = tokens;
  remark::analysis(entry.getLoc(),
                   remark::RemarkOpts::name("StemInsertPrefetch")
                       .category("stem-insert-prefetch")
                       .function(entry.getSymName()))
      << remark::metric("Distance", chosen) << remark::metric("Tables", all)
      << remark::metric("Tokens", tokenCount)
      << remark::metric("StagingBytes", scheduler.peakBytes(chosen));
  if (number() || chosen == all)
    return;
  remark::missed(entry.getLoc(), remark::RemarkOpts::name("StemInsertPrefetch")
                                     .category("stem-insert-prefetch")
                                     .function(entry.getSymName()))
      << remark::reason(
             "rows are asked for {0} tables ahead, not all {1} at the start: "
             "{2} ahead would take {3} bytes of staging for {4} tokens, and "
             "{5} is {6}",
             chosen, all, chosen + 1, scheduler.peakBytes(chosen + 1),
             tokenCount, staging.ArgStr, static_cast<int64_t>(staging));
}

} // namespace
