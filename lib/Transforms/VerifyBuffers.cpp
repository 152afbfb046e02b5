//===- VerifyBuffers.cpp - End of the buffer phase ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"
#include "stem/Transforms/Phases.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace stem {
#define GEN_PASS_DEF_STEMVERIFYBUFFERSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

bool isBufferOp(Operation *op) {
  // B2: memory is the arena's.
  if (isa<memref::AllocOp, memref::AllocaOp, memref::DeallocOp>(op))
    return false;
  // B3
  if (isa<scf::ForallOp, scf::ParallelOp>(op))
    return false;
  // B4
  if (llvm::any_of(op->getResultTypes(), llvm::IsaPred<TensorType>))
    return false;
  // B1
  if (isa<ParamOp, TableOp, PlanRowsOp, PrefetchOp, AwaitOp, ReleaseOp,
          PackedMatmulOp, PackedGatherOp, PackTokensOp, TransposeTokensOp,
          PanelMatmulOp, KVAppendOp, KVPageOp, ParallelCallOp>(op))
    return true;
  return isa_and_present<affine::AffineDialect, arith::ArithDialect,
                         func::FuncDialect, math::MathDialect,
                         memref::MemRefDialect, scf::SCFDialect,
                         vector::VectorDialect>(op->getDialect());
}

struct VerifyBuffersPass
    : public stem::impl::StemVerifyBuffersPassBase<VerifyBuffersPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (failed(verifyPhase(getOperation(), "buffer", isBufferOp)))
      signalPassFailure();
  }
};

} // namespace
