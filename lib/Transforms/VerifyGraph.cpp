//===- VerifyGraph.cpp - End of the graph phase ---------------------------===//
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
#define GEN_PASS_DEF_STEMVERIFYGRAPHPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

bool isGraphOp(Operation *op) {
  if (isa<ModuleOp>(op) ||
      isa<func::FuncDialect, arith::ArithDialect>(op->getDialect()))
    return true;
  // The schedule ops belong to later phases.
  if (isa<PackedMatmulOp, PackedGatherOp, KVAppendOp, KVPageOp, ThreadIndexOp,
          ParallelCallOp, FusedFFNOp>(op))
    return false;
  return isa<StemDialect>(op->getDialect()) || isa<linalg::TransposeOp>(op) ||
         isa<tensor::EmptyOp>(op);
}

struct VerifyGraphPass
    : public stem::impl::StemVerifyGraphPassBase<VerifyGraphPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (failed(verifyPhase(getOperation(), "graph", isGraphOp)))
      signalPassFailure();
  }
};

} // namespace
