//===- VerifyTables.cpp - Every ticket is awaited and released ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowUses.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace stem {
#define GEN_PASS_DEF_STEMVERIFYTABLESPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

bool isStoreOp(Operation *op) {
  return isa<PlanRowsOp, PrefetchOp, AwaitOp, ReleaseOp>(op);
}

class TableVerifier {
public:
  explicit TableVerifier(ModuleOp module) : module(module) {}

  LogicalResult run() {
    module.walk([&](Operation *op) {
      verifyOp(op);
      if (auto prefetch = dyn_cast<PrefetchOp>(op))
        prefetches.push_back(prefetch);
    });
    // The rest reads one block from its start to its end.
    if (!hasErrors)
      for (PrefetchOp prefetch : prefetches)
        verifyTicket(prefetch);
    return failure(hasErrors);
  }

private:
  void verifyOp(Operation *op);
  void verifyPlace(Operation *op);
  void verifyOperand(Operation *op, OpOperand &operand);
  void verifyTicket(PrefetchOp prefetch);
  void verifyUses(AwaitOp await, ReleaseOp release);

  InFlightDiagnostic error(Operation *op) {
    hasErrors = true;
    return op->emitOpError();
  }

  ModuleOp module;
  RowUses uses;
  SmallVector<PrefetchOp> prefetches;
  bool hasErrors = false;
};

void TableVerifier::verifyOp(Operation *op) {
  // V1
  if (isa<TableRowsOp>(op)) {
    error(op) << "reads rows that nothing asks for: run stem-insert-prefetch";
    return;
  }
  if (isStoreOp(op))
    verifyPlace(op);
  for (OpOperand &operand : op->getOpOperands())
    verifyOperand(op, operand);
}

// V2
void TableVerifier::verifyPlace(Operation *op) {
  auto function = dyn_cast_or_null<func::FuncOp>(op->getParentOp());
  if (!function) {
    error(op) << "stands inside '"
              << (op->getParentOp()
                      ? op->getParentOp()->getName().getStringRef()
                      : "nothing")
              << "', so that not every path takes it: move it to the top level "
                 "of an entry";
    return;
  }
  if (!function->hasAttr(StemDialect::kEntryAttr))
    error(op) << "stands in '" << function.getSymName()
              << "', which is no entry, so that nothing could report its "
                 "failure: pass the rows as arguments";
  else if (!function.getBody().hasOneBlock())
    error(op) << "stands in '" << function.getSymName()
              << "', which has several blocks: an entry looks its tables up in "
                 "straight-line code";
}

// V3
void TableVerifier::verifyOperand(Operation *op, OpOperand &operand) {
  Value value = operand.get();
  if (isa<TableType>(value.getType())) {
    if (!isa<PrefetchOp>(op))
      error(op) << "takes a table: only stem.prefetch does";
  } else if (isa<RowPlanType>(value.getType())) {
    if (!isa<PrefetchOp>(op))
      error(op) << "takes a plan: only stem.prefetch does";
    else if (!value.getDefiningOp<PlanRowsOp>())
      error(op) << "takes a plan that is not that of a stem.plan_rows of its "
                   "entry";
  } else if (isa<TicketType>(value.getType())) {
    if (!isa<AwaitOp, ReleaseOp>(op))
      error(op) << "takes a ticket: only stem.await and stem.release do";
    else if (!value.getDefiningOp<PrefetchOp>())
      error(op) << "takes a ticket that is not that of a stem.prefetch of its "
                   "entry";
  }
}

void TableVerifier::verifyTicket(PrefetchOp prefetch) {
  SmallVector<AwaitOp> awaits;
  SmallVector<ReleaseOp> releases;
  for (Operation *user : prefetch.getTicket().getUsers()) {
    if (auto await = dyn_cast<AwaitOp>(user))
      awaits.push_back(await);
    else
      releases.push_back(cast<ReleaseOp>(user));
  }
  llvm::sort(releases,
             [](ReleaseOp a, ReleaseOp b) { return a->isBeforeInBlock(b); });
  // V4
  if (awaits.empty())
    error(prefetch) << "asks for rows that nothing awaits";
  // V5
  if (releases.empty()) {
    error(prefetch) << "gives a ticket that is not released: its rows stay in "
                       "the staging memory";
    return;
  }
  for (ReleaseOp again : ArrayRef(releases).drop_front()) {
    InFlightDiagnostic diag = error(again) << "ends a ticket once more";
    diag.attachNote(releases.front()->getLoc())
        << "it is released here already";
  }
  for (AwaitOp await : awaits)
    verifyUses(await, releases.front());
}

// V6
void TableVerifier::verifyUses(AwaitOp await, ReleaseOp release) {
  if (release->isBeforeInBlock(await)) {
    InFlightDiagnostic diag = error(await)
                              << "awaits a ticket that was released";
    diag.attachNote(release->getLoc()) << "the ticket is released here";
    return;
  }
  llvm::SetVector<Operation *> readers;
  for (Value value : await->getResults())
    readers.insert_range(uses.readers(value));
  for (Operation *reader : readers) {
    // A size is not the contents.
    if (isa<tensor::DimOp, memref::DimOp>(reader) ||
        !release->isBeforeInBlock(reader))
      continue;
    InFlightDiagnostic diag = error(reader) << "may read rows, or their index, "
                                               "that were given back";
    diag.attachNote(await->getLoc()) << "the rows are awaited here";
    diag.attachNote(release->getLoc()) << "the ticket is released here";
  }
}

struct VerifyTablesPass
    : public stem::impl::StemVerifyTablesPassBase<VerifyTablesPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (failed(verifyTables(getOperation())))
      signalPassFailure();
  }
};

} // namespace

LogicalResult stem::verifyTables(ModuleOp module) {
  return TableVerifier(module).run();
}
