//===- HostCompiler.h - From stem IR to a loadable module -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TARGET_HOSTCOMPILER_H
#define STEM_TARGET_HOSTCOMPILER_H

#include "stem/Support/ScratchFolder.h"
#include "stem/Target/HostTarget.h"
#include "stem/Transforms/Defaults.h"

#include "mlir/IR/DialectRegistry.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stem {

/// How a compiled step updates dense parameters, see stem-insert-optimizer.
struct StepOptimizer {
  double beta1 = kDefaultBeta1, beta2 = kDefaultBeta2;
  double epsilon = kDefaultEpsilon;
};

/// A function whose gradient is compiled beside it, as NAME_vjp.
struct TrainedFunction {
  std::string name;
  /// Updates dense parameters in that gradient's place.
  std::optional<StepOptimizer> optimizer;
  /// Bytes that a step of `tokens` may keep for its backward pass, see
  /// stem-recompute; 0: any.
  int64_t residualBudget = 0;
  int64_t tokens = 1;
  /// What to warn of when so many bytes are kept at least, more than the
  /// budget; empty: the pass's own words.
  std::function<std::string(int64_t)> describeExcess = nullptr;
};

struct HostCompileOptions {
  HostTarget target;
  std::optional<TrainedFunction> trained;
  /// How many tables ahead rows are asked for, see stem-insert-prefetch; none:
  /// all at the start of a step.
  std::optional<int64_t> prefetchDistance;
  /// Keeps compiled modules; empty: the default, see cacheDirectory().
  std::filesystem::path cacheDirectory;
  bool useCache = true;
  /// Writes the module after each phase as NN-phase.mlir; empty: nowhere.
  std::filesystem::path dumpDirectory;
};

struct HostCompileResult {
  std::filesystem::path path;
  bool cacheHit = false;
  double seconds = 0;
  /// What passes warned of, and why the module is not in the cache. One that is
  /// warned of is not kept there: the next run warns again.
  std::vector<std::string> warnings;
  /// Holds the file when it is not in the cache: it goes with the result. What
  /// is loaded needs no name.
  std::unique_ptr<ScratchFolder> scratch;
};

/// All that a context needs to compile.
void registerHostCompiler(mlir::DialectRegistry &registry);

/// $STEM_CACHE_DIR, else $XDG_CACHE_HOME/stem, else ~/.cache/stem.
std::filesystem::path cacheDirectory();

/// Compiles a module of the graph phase, which is consumed. The cache is keyed
/// by the module, the options, the target and the builds of this program and of
/// the libraries that compile; an entry that is torn or was changed is built
/// again. A cache that cannot be written is a warning: the module is built in
/// the folder for temporary files.
/// Throws an Error with the diagnostics of the pass that failed and the path of
/// a reproducer, where one could be written.
HostCompileResult compileForHost(mlir::ModuleOp module,
                                 const HostCompileOptions &options);

} // namespace stem

#endif // STEM_TARGET_HOSTCOMPILER_H
