//===- ToLinalg.cpp - Stem ops on tensors to linalg and loops -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToLinalg.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/DialectConversion.h"

namespace stem {
#define GEN_PASS_DEF_STEMTOLINALGPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

int64_t stem::chooseBlock(int64_t columns, int64_t limit) {
  constexpr int64_t panel = 64;
  for (int64_t block = limit / panel * panel; block >= panel; block -= panel)
    if (columns % block == 0)
      return block;
  return columns;
}

namespace {

struct ToLinalgPass : public stem::impl::StemToLinalgPassBase<ToLinalgPass> {
  using Base::Base;

  void runOnOperation() override {
    ConversionTarget target(getContext());
    target.addLegalDialect<arith::ArithDialect, func::FuncDialect,
                           linalg::LinalgDialect, math::MathDialect,
                           scf::SCFDialect, tensor::TensorDialect>();
    target.addIllegalDialect<StemDialect>();
    target.addLegalOp<PackedMatmulOp, PackedGatherOp, KVAppendOp, KVPageOp,
                      TableRowsOp>();

    ToLinalgOptions options = {ffnBlock, vocabularyBlock};
    RewritePatternSet patterns(&getContext());
    populateElementwisePatterns(patterns);
    populateMatrixPatterns(patterns, options);
    populateFFNPatterns(patterns, options);
    populateAttentionPatterns(patterns);
    ConversionConfig config;
    config.allowPatternRollback = false;
    if (failed(applyFullConversion(getOperation(), target, std::move(patterns),
                                   config)))
      signalPassFailure();
  }
};

} // namespace
