//===- Phases.cpp - What ends a phase -------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Transforms/Phases.h"

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

LogicalResult stem::verifyPhase(ModuleOp module, StringRef phase,
                                function_ref<bool(Operation *)> isLegal) {
  bool allLegal = true;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op != module && !isLegal(op)) {
      op->emitOpError() << "does not belong at the end of the " << phase
                        << " phase; a pass should have replaced it";
      allLegal = false;
    }
    return isa<linalg::LinalgOp>(op) ? WalkResult::skip()
                                     : WalkResult::advance();
  });
  return success(allLegal);
}

bool stem::isStructuredStemOp(Operation *op) {
  return isa<PackedMatmulOp, PackedGatherOp, PackTokensOp, TransposeTokensOp,
             PanelMatmulOp, KVAppendOp, KVPageOp, AttendOp, AttendVjpOp,
             ThreadIndexOp, ParallelCallOp>(op);
}

bool stem::isGraphStemOp(Operation *op) {
  return isa_and_present<StemDialect>(op->getDialect()) &&
         !isStructuredStemOp(op) &&
         !isa<FusedFFNOp, PlanRowsOp, PrefetchOp, AwaitOp, ReleaseOp>(op);
}

bool stem::isElementwiseOrReshape(Operation *op) {
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return linalgOp.hasPureTensorSemantics() &&
           linalgOp.getNumParallelLoops() == linalgOp.getNumLoops();
  return isa<tensor::CastOp, tensor::CollapseShapeOp, tensor::DimOp,
             tensor::EmptyOp, tensor::ExpandShapeOp, tensor::ExtractOp,
             tensor::FromElementsOp>(op);
}
