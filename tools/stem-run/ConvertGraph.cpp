//===- ConvertGraph.cpp - A conversion on the model's IR ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvertGraph.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Graph/ModelGraph.h"
#include "stem/Support/Error.h"
#include "stem/Support/Files.h"
#include "stem/Support/LayerSelection.h"
#include "stem/Target/HostCompiler.h"
#include "stem/Transforms/Passes.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <fmt/ranges.h>

using namespace stem;
namespace fs = std::filesystem;

std::vector<uint64_t> stem::chooseLayers(const std::string &choice,
                                         const ModelConfig &config,
                                         std::string_view also) {
  std::vector<uint64_t> layers;
  try {
    layers = parseLayerSelection(choice, config.layerCount(), also);
  } catch (const Error &error) {
    fail("--layers={}: {}", choice, error.what());
  }
  const bool isList = choice != "all" && choice.find('/') == std::string::npos;
  for (const uint64_t layer : layers)
    if (isList && config.layers[layer].isStem)
      fail("--layers={}: layer {} is STEM already; only dense layers can be "
           "converted",
           choice, layer);
  std::erase_if(layers,
                [&](uint64_t layer) { return config.layers[layer].isStem; });
  if (layers.empty())
    fail("--layers={}: every layer that it chooses is STEM already", choice);
  return layers;
}

static std::set<std::string> tensorKeys(mlir::ModuleOp module) {
  std::set<std::string> keys;
  for (auto param : module.getOps<ParamOp>())
    keys.insert(param.getKey().str());
  for (auto table : module.getOps<TableOp>())
    keys.insert(table.getKey().str());
  return keys;
}

static void dump(mlir::ModuleOp module, const fs::path &directory,
                 const char *name) {
  if (directory.empty())
    return;
  std::error_code code;
  fs::create_directories(directory, code);
  if (code)
    fail("cannot create {}: {}", directory.string(), code.message());
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  replaceFile(directory / name, text);
}

static void runPass(mlir::ModuleOp module, const std::vector<uint64_t> &layers,
                    const std::string &init) {
  std::string diagnostics;
  mlir::ScopedDiagnosticHandler handler(
      module.getContext(), [&](mlir::Diagnostic &diagnostic) {
        diagnostics += diagnostic.str() + "\n";
        return mlir::success();
      });
  StemDenseToLookupPassOptions options;
  options.layers = fmt::format("{}", fmt::join(layers, ","));
  options.init = init;
  mlir::PassManager passes(module.getContext());
  passes.addPass(createStemDenseToLookupPass(options));
  if (mlir::failed(passes.run(module)))
    fail("stem-dense-to-lookup: {}", diagnostics);
}

GraphConversion stem::convertGraph(const Checkpoint &checkpoint,
                                   const std::vector<uint64_t> &layers,
                                   const std::string &init,
                                   const fs::path &dumpDirectory) {
  mlir::DialectRegistry registry;
  registerHostCompiler(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      buildModelGraph(context, checkpoint.config(), checkpoint.weights(),
                      checkpoint.tensors(), GraphOptions());
  dump(*module, dumpDirectory, "00-dense.mlir");
  const std::set<std::string> before = tensorKeys(*module);
  runPass(*module, layers, init);
  dump(*module, dumpDirectory, "01-stem.mlir");
  const std::set<std::string> after = tensorKeys(*module);

  GraphConversion result;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::inserter(result.dropped, result.dropped.end()));
  for (const uint64_t layer : layers)
    for (auto table : module->getOps<TableOp>()) {
      const auto from =
          table->getAttrOfType<mlir::StringAttr>(StemDialect::kFromAttr);
      if (!from || from.getValue() != checkpoint.weights().layers[layer].upProj)
        continue;
      const TableType type = table.getTableType();
      result.tables.push_back({layer, table.getKey().str(),
                               static_cast<uint64_t>(type.getRows()),
                               static_cast<uint64_t>(type.getColumns())});
    }
  return result;
}
