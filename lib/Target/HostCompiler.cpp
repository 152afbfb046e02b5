//===- HostCompiler.cpp - From stem IR to a loadable module ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Target/HostCompiler.h"

#include "ArtefactCache.h"
#include "BuildIdentity.h"

#include "stem/Dialect/Stem/StemBufferizable.h"
#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Support/Files.h"
#include "stem/Support/Hash.h"
#include "stem/Transforms/Pipelines.h"

#include "mlir/Conversion/ConvertToLLVM/ToLLVMInterface.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/AllInterfaces.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/IR/TensorInferTypeOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cstdlib>

using namespace mlir;
using namespace stem;
namespace fs = std::filesystem;

void stem::registerHostCompiler(DialectRegistry &registry) {
  registry.insert<StemDialect, func::FuncDialect, linalg::LinalgDialect,
                  tensor::TensorDialect, bufferization::BufferizationDialect>();
  registerBufferizableModels(registry);
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(
      registry);
  linalg::registerAllDialectInterfaceImplementations(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerInferTypeOpInterfaceExternalModels(registry);
}

fs::path stem::cacheDirectory() {
  auto variable = [](const char *name) -> fs::path {
    const char *value = std::getenv(name);
    return value ? value : "";
  };
  if (fs::path own = variable("STEM_CACHE_DIR"); !own.empty())
    return own;
  if (fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache / "stem";
  if (fs::path home = variable("HOME"); !home.empty())
    return home / ".cache" / "stem";
  return {};
}

namespace {

std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

std::string describe(const std::optional<TrainedFunction> &trained) {
  if (!trained)
    return "nothing";
  std::string text = trained->name;
  if (const auto &optimizer = trained->optimizer)
    text += fmt::format(" optimizer {} {} {}", optimizer->beta1,
                        optimizer->beta2, optimizer->epsilon);
  if (trained->residualBudget > 0)
    text += fmt::format(" budget {} of {}", trained->residualBudget,
                        trained->tokens);
  return text;
}

void addTraining(OpPassManager &manager, const TrainedFunction &trained,
                 std::vector<std::string> &warnings) {
  TrainingPipelineOptions options;
  options.function = trained.name;
  options.residualBudget = trained.residualBudget;
  if (trained.describeExcess)
    options.onExcess = [&](int64_t bytes) {
      warnings.push_back(trained.describeExcess(bytes));
    };
  options.tokens = trained.tokens;
  options.optimizer = trained.optimizer.has_value();
  if (const auto &optimizer = trained.optimizer) {
    options.beta1 = optimizer->beta1;
    options.beta2 = optimizer->beta2;
    options.epsilon = optimizer->epsilon;
  }
  buildTrainingPipeline(manager, options);
}

/// As the option of the pipeline has it.
std::string describe(std::optional<int64_t> distance) {
  return distance ? std::to_string(*distance) : "auto";
}

std::string cacheKey(ModuleOp module, const HostCompileOptions &options) {
  return hashText(fmt::format(
      "abi {}\n{}\n{} {} {}\ntrained {}\nprefetch {}\n{}", STEM_ABI_VERSION,
      buildIdentity(), static_cast<int>(options.target.isa), options.target.cpu,
      options.target.features, describe(options.trained),
      describe(options.prefetchDistance), print(module)));
}

/// Runs the phases one by one.
class PhaseRunner {
public:
  PhaseRunner(ModuleOp module, const HostCompileOptions &options,
              std::vector<std::string> &warnings)
      : module(module), options(options), warnings(warnings) {
    pipeline.isa = options.target.isa;
    pipeline.nativeBf16 = options.target.hasNativeBf16();
    pipeline.distance = describe(options.prefetchDistance);
  }

  void run() {
    ScopedDiagnosticHandler handler(
        module.getContext(), [&](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
            errors += diagnostic.str() + "\n";
          if (diagnostic.getSeverity() == DiagnosticSeverity::Warning)
            warnings.push_back(diagnostic.str());
          return success();
        });
    runPhase(Phase::Graph, [&](OpPassManager &manager) {
      if (options.trained)
        addTraining(manager, *options.trained, warnings);
      buildGraphPipeline(manager);
    });
    runPhase(Phase::Schedule, [&](OpPassManager &manager) {
      buildSchedulePipeline(manager, pipeline);
    });
    runPhase(Phase::Structured, [&](OpPassManager &manager) {
      buildStructuredPipeline(manager, pipeline);
    });
    runPhase(Phase::Buffers, buildBufferPipeline);
    runPhase(Phase::Target, [&](OpPassManager &manager) {
      buildTargetPipeline(manager, pipeline);
    });
  }

private:
  void runPhase(Phase phase, llvm::function_ref<void(OpPassManager &)> build) {
    PassManager manager(module.getContext());
    fs::path reproducer;
    if (scratch) {
      reproducer =
          scratch->path() / fmt::format("{}.mlir", phaseName(phase).str());
      manager.enableCrashReproducerGeneration(reproducer.string());
    }
    build(manager);
    if (failed(manager.run(module)))
      reportFailure(phase, reproducer);
    if (!options.dumpDirectory.empty())
      replaceFile(options.dumpDirectory / fmt::format("{:02}-{}.mlir",
                                                      static_cast<int>(phase),
                                                      phaseName(phase).str()),
                  print(module));
  }

  [[noreturn]] void reportFailure(Phase phase, const fs::path &reproducer) {
    // There is none of options that a pass refuses before anything runs.
    std::error_code ignored;
    if (!scratch || !fs::exists(reproducer, ignored))
      fail("compilation failed in the {} phase: {}", phaseName(phase).str(),
           errors);
    scratch->keep();
    fail("compilation failed in the {} phase: {}\nthe module and the passes "
         "that fail are in {}; `stem-opt --run-reproducer` repeats it",
         phaseName(phase).str(), errors, reproducer.string());
  }

  /// Where a reproducer goes, of a crash of the process too; null where there
  /// is no room for it.
  static std::unique_ptr<ScratchFolder> reproducerFolder() {
    std::error_code error;
    fs::path temporary = fs::temp_directory_path(error);
    return error ? nullptr : ScratchFolder::tryMake(temporary, "stem-compile-");
  }

  ModuleOp module;
  const HostCompileOptions &options;
  std::vector<std::string> &warnings;
  std::unique_ptr<ScratchFolder> scratch = reproducerFolder();
  HostPipelineOptions pipeline;
  std::string errors;
};

/// Runs all phases.
void lower(ModuleOp module, const HostCompileOptions &options,
           std::vector<std::string> &warnings) {
  if (!options.dumpDirectory.empty()) {
    std::error_code error;
    fs::create_directories(options.dumpDirectory, error);
    if (error)
      fail("cannot create {}: {}", options.dumpDirectory.string(),
           error.message());
    replaceFile(options.dumpDirectory / "00-import.mlir", print(module));
  }
  PhaseRunner(module, options, warnings).run();
}

/// The name in the cache of the shared object of a lowered module; throws an
/// OutputError when it cannot be kept there.
fs::path emitInCache(ModuleOp module, const HostCompileOptions &options,
                     const ArtefactCache &cache, const std::string &key) {
  ScratchFolder scratch = cache.reserve();
  fs::path built = scratch.path() / "module.so";
  emitSharedObject(module, options.target, built);
  return cache.commit(key, built);
}

} // namespace

HostCompileResult stem::compileForHost(ModuleOp module,
                                       const HostCompileOptions &options) {
  auto start = std::chrono::steady_clock::now();
  HostCompileResult result;
  auto finish = [&] {
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    result.seconds = elapsed.count();
    return std::move(result);
  };
  ArtefactCache cache(options.cacheDirectory.empty() ? cacheDirectory()
                                                     : options.cacheDirectory);
  std::string key = cacheKey(module, options);
  // A dump has to run the passes.
  bool mayRead = options.useCache && options.dumpDirectory.empty();
  if (mayRead)
    if (auto entry = cache.find(key)) {
      result.path = *entry;
      result.cacheHit = true;
      return finish();
    }
  lower(module, options, result.warnings);
  if (options.useCache && result.warnings.empty()) {
    try {
      result.path = emitInCache(module, options, cache, key);
      return finish();
    } catch (const OutputError &error) {
      result.warnings.push_back(fmt::format(
          "{}; the compiled module is not kept, and the next run compiles it "
          "again",
          error.what()));
    }
  }
  result.scratch =
      std::make_unique<ScratchFolder>(temporaryFolder(), "stem-module-");
  result.path = result.scratch->path() / "module.so";
  emitSharedObject(module, options.target, result.path);
  return finish();
}
