//===- VerifyStructured.cpp - End of the structured phase -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"
#include "stem/Transforms/Phases.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace stem {
#define GEN_PASS_DEF_STEMVERIFYSTRUCTUREDPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

bool isStructuredOp(Operation *op) {
  Dialect *dialect = op->getDialect();
  // T2: elementwise ops on tensors are linalg by now.
  if (isa_and_present<arith::ArithDialect, math::MathDialect>(dialect))
    return isa<arith::ConstantOp>(op) ||
           llvm::none_of(op->getResultTypes(), llvm::IsaPred<TensorType>);
  // T1
  return isa<ParamOp, TableOp, PlanRowsOp, PrefetchOp, AwaitOp, ReleaseOp,
             PackedMatmulOp, PackedGatherOp, PackTokensOp, TransposeTokensOp,
             PanelMatmulOp, KVAppendOp, KVPageOp>(op) ||
         isa_and_present<func::FuncDialect, linalg::LinalgDialect,
                         scf::SCFDialect, tensor::TensorDialect>(dialect);
}

struct VerifyStructuredPass
    : public stem::impl::StemVerifyStructuredPassBase<VerifyStructuredPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (failed(verifyPhase(getOperation(), "structured", isStructuredOp)))
      signalPassFailure();
  }
};

} // namespace
