//===- ModelWriter.h - Text that a model writes itself --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_MODELWRITER_H
#define STEM_TOOLS_STEM_RUN_MODELWRITER_H

#include "Engine.h"

#include "stem/Runtime/Context.h"
#include "stem/Runtime/Sampler.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// A text to continue.
struct WritingTask {
  std::vector<int32_t> prompt;
  int64_t most = 0;    ///< tokens to write
  int64_t greedy = 0;  ///< the first so many are the likeliest
  uint64_t stream = 0; ///< of random numbers
};

/// Finds a text that goes round in a circle: its last 64 tokens repeat with a
/// period of 16 or less.
class LoopFinder {
public:
  /// Whether the text with this token at its end does.
  bool add(int32_t id);

private:
  static constexpr size_t kLongestPeriod = 16, kLength = 64;
  std::vector<int32_t> ids;
  size_t matches[kLongestPeriod + 1] = {}; ///< at its end, by period
};

/// Continues many texts at temperature 1, a slot of the engine each; a slot
/// that is free takes the next. What a task gives depends on the model, the
/// task and the seed alone.
class ModelWriter {
public:
  /// The engine has so many slots for sequences.
  ModelWriter(Engine &engine, size_t slots, uint64_t seed,
              std::vector<int32_t> ends);

  /// What follows each prompt: until an end token, which is part of it, the
  /// most that the task allows, or a text that goes round in a circle. How long
  /// it takes goes to standard error.
  std::vector<std::vector<int32_t>> write(std::span<const WritingTask> tasks,
                                          const std::string &what);

  /// The prompt and what follows, task after task until there are `tokens`. A
  /// task is begun as long as fewer are expected of those before it; texts that
  /// turn out to be more than that are not written to their ends.
  std::vector<std::vector<int32_t>>
  writeUntil(int64_t tokens, const std::function<WritingTask()> &nextTask,
             const std::string &what);

private:
  struct Slot;
  struct Desk;
  bool take(Slot &slot, int32_t id);
  void begin(Desk &desk, WritingTask task);
  void step(Desk &desk);
  void draw(Desk &desk, std::span<const int32_t> active,
            std::span<const float> logits);

  Engine &engine;
  size_t slots;
  uint64_t seed;
  std::vector<int32_t> ends;
  ContextPtr context; ///< draws for several texts at once
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_MODELWRITER_H
