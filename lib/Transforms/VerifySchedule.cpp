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
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace stem {
#define GEN_PASS_DEF_STEMVERIFYSCHEDULEPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

bool isScheduleOp(Operation *op) {
  if (auto function = dyn_cast<func::FuncOp>(op))
    return function->hasAttr(StemDialect::kTileAttr);
  if (isa<ModuleOp, linalg::TransposeOp, tensor::EmptyOp>(op) ||
      isa<func::FuncDialect, arith::ArithDialect>(op->getDialect()))
    return true;
  // Bound to arguments, or made by the structured phase.
  if (isa<ParamLoadOp, TableLoadOp, PackedMatmulOp, PackedGatherOp, KVAppendOp,
          KVPageOp, AttendOp, ThreadIndexOp, ParallelCallOp>(op))
    return false;
  return isa<StemDialect>(op->getDialect());
}

struct VerifySchedulePass
    : public stem::impl::StemVerifySchedulePassBase<VerifySchedulePass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (failed(verifyPhase(getOperation(), "schedule", isScheduleOp)))
      signalPassFailure();
  }
};

} // namespace
