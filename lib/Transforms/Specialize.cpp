//===- Specialize.cpp - One copy of a function for each tile size ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMSPECIALIZEPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

struct SpecializePass
    : public stem::impl::StemSpecializePassBase<SpecializePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable table(module);
    symbols = &table;
    clones.clear();
    SmallVector<func::FuncOp> worklist;
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function->hasAttr(StemDialect::kTileAttr))
        worklist.push_back(function);
      else if (function->hasAttr(StemDialect::kEntryAttr)) {
        function.emitOpError() << "is an entry without the attribute '"
                               << StemDialect::kTileAttr << "'";
        return signalPassFailure();
      }
    }
    // Clones are appended while their callers are visited.
    for (size_t i = 0; i < worklist.size(); ++i)
      if (failed(specializeCalls(worklist[i], worklist)))
        return signalPassFailure();
    eraseOriginals(module);
  }

  LogicalResult specializeCalls(func::FuncOp caller,
                                SmallVectorImpl<func::FuncOp> &worklist) {
    auto tile = caller->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr);
    WalkResult result = caller.walk([&](func::CallOp call) -> WalkResult {
      auto callee = symbols->lookup<func::FuncOp>(call.getCallee());
      if (!callee || callee.isExternal())
        return WalkResult::advance();
      if (auto size =
              callee->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr)) {
        if (tile.getInt() % size.getInt() == 0)
          return WalkResult::advance();
        return call.emitOpError()
               << "passes tiles of " << tile.getInt()
               << " tokens to a function with '" << StemDialect::kTileAttr
               << "' " << size.getInt() << ", which does not divide it";
      }
      func::FuncOp &clone = clones[{callee, tile.getInt()}];
      if (!clone) {
        clone = callee.clone();
        clone.setName(
            (callee.getName() + "_tile" + Twine(tile.getInt())).str());
        clone->setAttr(StemDialect::kTileAttr, tile);
        symbols->insert(clone, std::next(Block::iterator(callee)));
        worklist.push_back(clone);
      }
      call.setCallee(clone.getName());
      return WalkResult::advance();
    });
    return failure(result.wasInterrupted());
  }

  void eraseOriginals(ModuleOp module) {
    llvm::SmallPtrSet<Operation *, 4> originals;
    for (auto &[key, clone] : clones)
      originals.insert(key.first);
    for (Operation *original : originals)
      if (cast<func::FuncOp>(original).isPrivate() &&
          SymbolTable::symbolKnownUseEmpty(original, module))
        symbols->erase(original);
  }

  SymbolTable *symbols = nullptr;
  llvm::MapVector<std::pair<Operation *, int64_t>, func::FuncOp> clones;
};

} // namespace
