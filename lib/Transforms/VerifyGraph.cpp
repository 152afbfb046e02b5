//===- VerifyGraph.cpp - End of the graph phase ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"
#include "stem/Transforms/Phases.h"

#include "mlir/Analysis/CallGraph.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/SCCIterator.h"

namespace stem {
#define GEN_PASS_DEF_STEMVERIFYGRAPHPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

// G1
bool isGraphOp(Operation *op) {
  Dialect *dialect = op->getDialect();
  if (isa_and_present<func::FuncDialect, arith::ArithDialect,
                      math::MathDialect>(dialect))
    return true;
  return isGraphStemOp(op) || isElementwiseOrReshape(op);
}

// G2
LogicalResult verifyEntries(ModuleOp module) {
  bool allHold = true;
  for (auto function : module.getOps<func::FuncOp>())
    if (function->hasAttr(StemDialect::kEntryAttr) &&
        !SymbolTable::symbolKnownUseEmpty(function, module)) {
      function.emitOpError("is an entry, which only the runtime calls, but the "
                           "module refers to it");
      allHold = false;
    }
  return success(allHold);
}

// G3
LogicalResult verifyNoRecursion(ModuleOp module) {
  bool allHold = true;
  const CallGraph graph(module);
  for (auto it = llvm::scc_begin(&graph); !it.isAtEnd(); ++it) {
    const CallGraphNode *node = it->front();
    if (!it.hasCycle() || node->isExternal())
      continue;
    node->getCallableRegion()->getParentOp()->emitOpError(
        "calls itself, directly or through other functions");
    allHold = false;
  }
  return success(allHold);
}

struct VerifyGraphPass
    : public stem::impl::StemVerifyGraphPassBase<VerifyGraphPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    bool allHold = succeeded(verifyPhase(getOperation(), "graph", isGraphOp));
    allHold &= succeeded(verifyEntries(getOperation()));
    allHold &= succeeded(verifyNoRecursion(getOperation()));
    if (!allHold)
      signalPassFailure();
  }
};

} // namespace
