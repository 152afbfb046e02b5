//===- VerifyImport.cpp - End of the import phase -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "InlineWeights.h"

#include "stem/Transforms/OptionChecks.h"
#include "stem/Transforms/Passes.h"
#include "stem/Transforms/Phases.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Index/IR/IndexDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tosa/IR/TosaOps.h"

namespace stem {
#define GEN_PASS_DEF_STEMVERIFYIMPORTPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

// I1
bool isImportOp(Operation *op) {
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return linalgOp.hasPureTensorSemantics();
  return isGraphStemOp(op) ||
         isa<affine::AffineApplyOp, affine::AffineMaxOp, affine::AffineMinOp,
             scf::ForOp, scf::ForallOp, scf::IfOp, scf::InParallelOp,
             scf::YieldOp>(op) ||
         isa_and_present<arith::ArithDialect, func::FuncDialect,
                         index::IndexDialect, math::MathDialect,
                         tensor::TensorDialect, tosa::TosaDialect>(
             op->getDialect());
}

// I2
LogicalResult verifyNoWeights(ModuleOp module, int64_t minElements) {
  bool allHold = true;
  module.walk([&](Operation *op) {
    std::optional<InlineWeight> weight = getInlineWeight(op, minElements);
    if (!weight)
      return;
    op->emitOpError() << "holds a weight of " << weight->values.getNumElements()
                      << " elements in the IR: run stem-externalize-constants "
                         "first, or give the pipeline stem-file=PATH";
    allHold = false;
  });
  return success(allHold);
}

// I3
LogicalResult verifyRanks(ModuleOp module) {
  bool allHold = true;
  auto check = [&](Operation *op, Type type) {
    if (!isa<UnrankedTensorType>(type))
      return;
    op->emitOpError() << "has a value of type " << type
                      << ": export the model with the rank of every tensor";
    allHold = false;
  };
  module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      check(op, type);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (Type type : block.getArgumentTypes())
          check(op, type);
  });
  return success(allHold);
}

struct VerifyImportPass
    : public stem::impl::StemVerifyImportPassBase<VerifyImportPass> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    return checkOption(context, minElements, {.least = 1});
  }

  void runOnOperation() override {
    markAllAnalysesPreserved();
    bool allHold = succeeded(verifyPhase(getOperation(), "import", isImportOp));
    allHold &= succeeded(verifyNoWeights(getOperation(), minElements));
    allHold &= succeeded(verifyRanks(getOperation()));
    if (!allHold)
      signalPassFailure();
  }
};

} // namespace
