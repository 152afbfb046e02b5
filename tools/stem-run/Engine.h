//===- Engine.h - A model, compiled and ready to run ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_ENGINE_H
#define STEM_TOOLS_STEM_RUN_ENGINE_H

#include "EngineMemory.h"
#include "EngineWeights.h"
#include "stem-c/Runtime.h"
#include "stem/Model/Checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// Tokens of a step, unless a longer sequence asks for more.
inline constexpr int64_t kStepTokens = 2048;

/// Tokens of a step, whole tiles up to kStepTokens, whose logits are at most
/// `bytes`, as far as one tile allows.
int64_t stepTokensForLogits(int64_t bytes, int64_t vocabSize);

struct EngineOptions {
  /// Compute type; default: the model's own (bf16 without bf16 arithmetic runs
  /// in f32, and the report says so).
  std::optional<DType> dtype;
  int threads = 0; ///< 0: physical cores
  stem_isa maxIsa = STEM_ISA_NATIVE;
  /// Where compiled modules are kept; empty: the user's cache folder.
  std::filesystem::path cacheDirectory;
  bool useCache = true;
  /// Writes the module after each phase here; empty: nowhere.
  std::filesystem::path dumpDirectory;
  int64_t maxPositions = 0; ///< of one sequence; 0: the model's own
  int64_t maxSequences = 1;
  int64_t maxStepTokens = kStepTokens; ///< longest prefill or score step
  TablePlacement tables = TablePlacement::Resident;
  /// Of these layers another one.
  std::vector<LayerPlace> layerPlaces;
  /// Resident tables that do not fit into memory stay in the model's files.
  bool tablesMayStayInFiles = false;
  /// How many tables ahead their rows are asked for; none: all at the start of
  /// a step.
  std::optional<int64_t> prefetchDistance;
  /// Rows of one table that staging holds; none: those of the largest step.
  std::optional<int64_t> stagingRows;
  /// Ids whose rows are kept of tables in files: so many, and this share of the
  /// vocabulary.
  int64_t cacheIds = 0;
  double cacheShare = 0;
  int64_t memory = 0; ///< that the process keeps within; 0: what is available
  /// What to do where that is too little, in the words of the command's flags.
  std::string memoryAdvice =
      "--dtype=bf16 halves the weights and the cache of f32, a shorter context "
      "(--ctx, -n) or fewer prompts make the cache smaller";
  /// Called with the printed memory plan before anything large is allocated.
  std::function<void(const std::string &)> onPlan;
};

struct ComputeType {
  DType dtype;
  std::string note; ///< why it is not the model's own; else empty
};

/// `wanted`, or what suits the model and the instruction set.
ComputeType chooseComputeType(const ModelConfig &config,
                              std::optional<DType> wanted, stem_isa isa);

struct EngineReport {
  DType dtype = DType::F32;
  std::string dtypeNote; ///< why it is not the model's own; else empty
  bool cacheHit = false;
  double compileSeconds = 0;
  double loadSeconds = 0;
  int threads = 1;
  std::string isa;
  /// How many tables ahead rows of files are asked for.
  std::optional<int64_t> prefetchDistance;
  MemoryPlan plan;
  std::vector<PlacedTable> tables;
};

/// Tokens appended to one sequence.
struct PrefillChunk {
  int32_t sequence = 0;
  std::span<const int32_t> ids;
  bool allLogits = false; ///< else of the last token only
};

/// A window scored on its own: nll[i] = -log p(labels[i] | ids[0..i]).
struct ScoreWindow {
  std::span<const int32_t> ids;
  std::span<const int32_t> labels; ///< -100: not scored (nll 0)
};

/// One model in memory. Not thread-safe. Every failure is an Error. A step that
/// fails appends nothing; of a call in several steps, those before it count. A
/// call takes several where it has more tokens than a step, or more different
/// ids than staging has rows for.
class Engine {
public:
  static std::unique_ptr<Engine> create(const Checkpoint &checkpoint,
                                        const EngineOptions &options);
  ~Engine();

  const EngineReport &report() const;
  int64_t vocabSize() const;
  /// Largest number of positions of one sequence.
  int64_t maxPositions() const;
  int64_t length(int32_t sequence) const;

  /// Logits of the wanted rows, in order of the chunks, [rows, V]. Valid until
  /// the next call. Chunks longer than maxStepTokens run in several steps.
  std::span<const float> prefill(std::span<const PrefillChunk> chunks);

  /// One token for each of several sequences; logits [n, V], valid until the
  /// next call.
  std::span<const float> decode(std::span<const int32_t> sequences,
                                std::span<const int32_t> ids);

  /// nll of all windows' tokens, one after the other. Uses sequence slot 0 and
  /// up; forgets what they held.
  std::vector<float> score(std::span<const ScoreWindow> windows);

  /// Steps so far, and how many of them ended because staging was full.
  int64_t steps() const;
  int64_t stagingCuts() const;

  /// Of lookups so far.
  stem_table_statistics tableStatistics() const;

  void truncate(int32_t sequence, int64_t length);
  void fork(int32_t from, int32_t to);

private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_ENGINE_H
