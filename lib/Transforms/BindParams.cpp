//===- BindParams.cpp - Parameters as arguments of entries ----------------===//
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
#define GEN_PASS_DEF_STEMBINDPARAMSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

struct BindParamsPass
    : public stem::impl::StemBindParamsPassBase<BindParamsPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function->hasAttr(StemDialect::kEntryAttr)) {
        if (!SymbolTable::symbolKnownUseEmpty(function, getOperation())) {
          function.emitOpError("is an entry, which only the runtime calls, but "
                               "the module refers to it");
          signalPassFailure();
          continue;
        }
        bind<ParamLoadOp>(function, StemDialect::kParamAttr);
        bind<TableLoadOp>(function, StemDialect::kTableAttr);
        // The artefact's description names it; nothing links against it.
        function.setPrivate();
        continue;
      }
      function.walk([&](Operation *op) {
        if (!isa<ParamLoadOp, TableLoadOp>(op))
          return;
        op->emitOpError("stands in a function that is not an entry; pass the "
                        "value as an argument");
        signalPassFailure();
      });
    }
  }

  static FlatSymbolRefAttr symbolOf(ParamLoadOp op) {
    return op.getParamAttr();
  }
  static FlatSymbolRefAttr symbolOf(TableLoadOp op) {
    return op.getTableAttr();
  }
  static bool isTransposed(ParamLoadOp op) { return op.getTransposed(); }
  static bool isTransposed(TableLoadOp) { return false; }

  /// The attributes of the argument that takes the place of `load`.
  template <typename LoadOp>
  DictionaryAttr attributesOf(LoadOp load, StringRef attribute) {
    Builder builder(&getContext());
    SmallVector<NamedAttribute> attributes = {
        builder.getNamedAttr(attribute, symbolOf(load))};
    if (isTransposed(load))
      attributes.push_back(builder.getNamedAttr(StemDialect::kTransposedAttr,
                                                builder.getUnitAttr()));
    return builder.getDictionaryAttr(attributes);
  }

  /// One argument for each distinct value, in order of first load.
  template <typename LoadOp>
  void bind(func::FuncOp function, StringRef attribute) {
    SmallVector<LoadOp> loads;
    function.walk([&](LoadOp load) { loads.push_back(load); });
    unsigned first = function.getNumArguments();
    llvm::MapVector<std::pair<Attribute, Type>, SmallVector<LoadOp>> bound;
    for (LoadOp load : loads)
      bound[{attributesOf(load, attribute), load.getType()}].push_back(load);
    SmallVector<Type> types;
    SmallVector<DictionaryAttr> attributes;
    SmallVector<Location> locations;
    for (auto &[binding, users] : bound) {
      types.push_back(binding.second);
      attributes.push_back(cast<DictionaryAttr>(binding.first));
      locations.push_back(users.front().getLoc());
    }
    // All at once: each insertion copies the attributes of all arguments.
    if (failed(
            function.insertArguments(SmallVector<unsigned>(types.size(), first),
                                     types, attributes, locations)))
      return signalPassFailure();
    for (auto [index, entry] : llvm::enumerate(bound))
      for (LoadOp load : entry.second) {
        load.replaceAllUsesWith(function.getArgument(first + index));
        load.erase();
      }
  }
};

} // namespace
