//===- ModelWriter.cpp - Text that a model writes itself ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModelWriter.h"

#include "Progress.h"

#include "stem/Runtime/Parallel.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <optional>

using namespace stem;

bool LoopFinder::add(int32_t id) {
  ids.push_back(id);
  bool isLoop = false;
  for (size_t period = 1; period <= kLongestPeriod; ++period) {
    const bool isSame =
        ids.size() > period && ids[ids.size() - 1 - period] == id;
    matches[period] = isSame ? matches[period] + 1 : 0;
    isLoop |= matches[period] + period >= kLength;
  }
  return isLoop;
}

struct ModelWriter::Slot {
  const WritingTask *task = nullptr; ///< null: free
  std::vector<int32_t> *written = nullptr;
  std::optional<Sampler> sampler;
  LoopFinder loop;
};

namespace {

/// An estimate after the first steps, then the fact.
class WritingClock {
public:
  WritingClock(const std::string &what, int64_t most)
      : what(what), most(most),
        progress("writing " + what, static_cast<double>(most)) {}

  void add(int64_t tokens) {
    constexpr int64_t kStepsMeasured = 16;
    written += tokens;
    progress.update(static_cast<double>(written));
    if (++steps != kStepsMeasured || written >= most)
      return;
    printStderr("calibration: the model writes {}, {} tokens at most, which "
                "takes about {}\n",
                what, most,
                formatSeconds(watch.seconds() * static_cast<double>(most) /
                              static_cast<double>(written)));
  }

  void finish() const {
    const double seconds = watch.seconds();
    printStderr("calibration: the model has written {}, {} tokens in {} "
                "({:.0f} tokens/s)\n",
                what, written, formatSeconds(seconds),
                static_cast<double>(written) / seconds);
  }

private:
  std::string what;
  int64_t most, written = 0, steps = 0;
  Progress progress;
  Stopwatch watch;
};

} // namespace

ModelWriter::ModelWriter(Engine &engine, int64_t slots, uint64_t seed,
                         std::vector<int32_t> ends)
    : engine(engine), slots(slots), seed(seed), ends(std::move(ends)),
      context(createContext(engine.report().threads)) {}

/// Whether the slot goes on.
bool ModelWriter::take(Slot &slot, int32_t id) {
  slot.written->push_back(id);
  const bool isFull =
      static_cast<int64_t>(slot.written->size()) >= slot.task->most;
  const bool isEnd = std::binary_search(ends.begin(), ends.end(), id);
  return !isEnd && !slot.loop.add(id) && !isFull;
}

std::vector<std::vector<int32_t>>
ModelWriter::write(std::span<const WritingTask> tasks,
                   const std::string &what) {
  int64_t most = 0;
  for (const WritingTask &task : tasks)
    most += task.most;
  WritingClock clock(what, most);
  std::vector<std::vector<int32_t>> results(tasks.size());
  std::vector<Slot> all(static_cast<size_t>(slots));
  std::vector<int32_t> drawn(all.size());
  const size_t vocab = static_cast<size_t>(engine.vocabSize());
  // Draws a token for each slot of a step, whose logits are rows.
  const auto draw = [&](std::span<const int32_t> active,
                        std::span<const float> logits) {
    parallelFor(
        context.get(), static_cast<int64_t>(active.size()), [&](int64_t row) {
          const size_t index = static_cast<size_t>(active[row]);
          Slot &slot = all[index];
          const bool isGreedy =
              static_cast<int64_t>(slot.written->size()) < slot.task->greedy;
          Sampler likeliest{SamplerOptions()};
          Sampler &sampler = isGreedy ? likeliest : *slot.sampler;
          drawn[index] = sampler.sample(
              logits.subspan(static_cast<size_t>(row) * vocab, vocab), {});
        });
    for (const int32_t index : active) {
      Slot &slot = all[static_cast<size_t>(index)];
      if (!take(slot, drawn[static_cast<size_t>(index)]))
        slot.task = nullptr;
    }
    clock.add(static_cast<int64_t>(active.size()));
  };
  for (size_t next = 0;;) {
    std::vector<int32_t> active, started, last;
    std::vector<PrefillChunk> prompts;
    for (size_t i = 0; i < all.size(); ++i) {
      const int32_t index = static_cast<int32_t>(i);
      if (all[i].task) {
        active.push_back(index);
        last.push_back(drawn[i]);
      } else if (next < tasks.size()) {
        SamplerOptions sampling;
        sampling.temperature = 1;
        sampling.seed = seed;
        sampling.stream = tasks[next].stream;
        all[i] = {&tasks[next], &results[next], Sampler(sampling), {}};
        engine.truncate(index, 0);
        started.push_back(index);
        prompts.push_back({index, tasks[next].prompt, false});
        ++next;
      }
    }
    if (active.empty() && started.empty())
      break;
    if (!active.empty())
      draw(active, engine.decode(active, last));
    if (!started.empty())
      draw(started, engine.prefill(prompts));
  }
  clock.finish();
  return results;
}
