//===- VerifySchedule.cpp - End of the schedule phase ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"
#include "stem/Transforms/Phases.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace stem {
#define GEN_PASS_DEF_STEMVERIFYSCHEDULEPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

// S1
bool isScheduleOp(Operation *op) {
  Dialect *dialect = op->getDialect();
  if (isa_and_present<func::FuncDialect, arith::ArithDialect,
                      math::MathDialect>(dialect))
    return true;
  // Loads are bound to arguments by now, and lookups have tickets.
  if (isa<ParamLoadOp, TableLoadOp, TableRowsOp>(op) || isStructuredStemOp(op))
    return false;
  return isa_and_present<StemDialect>(dialect) || isElementwiseOrReshape(op);
}

// S2
LogicalResult verifyTiles(ModuleOp module) {
  bool allHold = true;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function->hasAttr(StemDialect::kTileAttr) && !function.isExternal())
      continue;
    allHold = false;
    InFlightDiagnostic diag = function.emitOpError();
    if (function.isExternal())
      diag << "has no body: a compiled module calls nothing but the runtime";
    else
      diag << "has no '" << StemDialect::kTileAttr
           << "': mark it as an entry with '" << StemDialect::kEntryAttr
           << "' and '" << StemDialect::kTileAttr
           << "', call it from one, or remove it";
  }
  return success(allHold);
}

struct VerifySchedulePass
    : public stem::impl::StemVerifySchedulePassBase<VerifySchedulePass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    bool allHold =
        succeeded(verifyPhase(getOperation(), "schedule", isScheduleOp));
    allHold &= succeeded(verifyTiles(getOperation()));
    if (!allHold)
      signalPassFailure();
  }
};

} // namespace
