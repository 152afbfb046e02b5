//===- ModelWriter.cpp - Text that a model writes itself ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModelWriter.h"

#include "Progress.h"

#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

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

namespace {

/// An estimate after the first steps, then the fact.
class WritingClock {
public:
  WritingClock(const std::string &what, int64_t most)
      : what(what), most(most),
        progress("writing " + what, static_cast<double>(most)) {}

  void add(int64_t tokens) {
    constexpr int64_t kStepsMeasured = 16;
    // Beyond `most` there is no saying how much is left.
    if (written < most)
      progress.update(static_cast<double>(std::min(written + tokens, most)));
    written += tokens;
    if (++steps != kStepsMeasured || written >= most)
      return;
    printStderr("calibration: the model writes {}, {} tokens, which takes "
                "about {}\n",
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

struct ModelWriter::Slot {
  size_t number = 0;                 ///< of the task
  const WritingTask *task = nullptr; ///< null: free
  std::vector<int32_t> *written = nullptr;
  std::optional<Sampler> sampler;
  LoopFinder loop;
  int32_t last = 0;
};

/// What is being written.
struct ModelWriter::Desk {
  Desk(size_t slots, const std::string &what, int64_t most)
      : slots(slots), clock(what, most) {}

  bool hasRoom() const { return free() < slots.size(); }
  size_t free() const {
    return static_cast<size_t>(
        std::find_if(slots.begin(), slots.end(),
                     [](const Slot &slot) { return !slot.task; }) -
        slots.begin());
  }
  /// Tokens of a text as far as it has come, its prompt included.
  int64_t length(size_t number) const {
    return static_cast<int64_t>(tasks[number].prompt.size() +
                                written[number].size());
  }
  bool isWriting() const {
    return std::ranges::any_of(slots,
                               [](const Slot &slot) { return slot.task; });
  }
  int64_t expected() const;
  void dropBeyond(int64_t tokens);

  std::vector<Slot> slots;
  std::deque<WritingTask> tasks;            ///< begun
  std::deque<std::vector<int32_t>> written; ///< of each
  std::vector<int32_t> started;             ///< slots without a token yet
  int64_t finished = 0, tokensOfFinished = 0;
  /// Texts at the front that are complete, and their tokens.
  size_t complete = 0;
  int64_t tokensOfComplete = 0;
  WritingClock clock;
};

/// Tokens of all that is begun, prompts included. An end is taken to be as
/// likely at every token: the mean is what has been written, by texts that go
/// on too, over the ends that were seen. A whole text put beside them keeps few
/// early ends from saying that all texts are short.
int64_t ModelWriter::Desk::expected() const {
  int64_t seen = tokensOfFinished;
  for (const Slot &slot : slots)
    seen += slot.task ? length(slot.number) : 0;
  int64_t sum = tokensOfFinished;
  for (const Slot &slot : slots) {
    if (!slot.task)
      continue;
    const int64_t most =
        static_cast<int64_t>(slot.task->prompt.size()) + slot.task->most;
    const int64_t mean = (seen + most) / (finished + 1);
    sum += std::min(most, length(slot.number) + mean);
  }
  return sum;
}

/// Stops texts behind others that have so many tokens already: nobody will take
/// them.
void ModelWriter::Desk::dropBeyond(int64_t tokens) {
  size_t firstWriting = tasks.size();
  for (const Slot &slot : slots)
    if (slot.task)
      firstWriting = std::min(firstWriting, slot.number);
  for (; complete < firstWriting; ++complete)
    tokensOfComplete += length(complete);
  int64_t sum = tokensOfComplete;
  size_t needed = complete;
  while (needed < tasks.size() && sum < tokens)
    sum += length(needed++);
  for (Slot &slot : slots)
    if (slot.number >= needed)
      slot.task = nullptr;
}

ModelWriter::ModelWriter(Engine &engine, size_t slots, uint64_t seed,
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

/// In the first free slot.
void ModelWriter::begin(Desk &desk, WritingTask task) {
  if (task.prompt.empty())
    fail("a text for the model to go on with has no token; one is the least");
  SamplerOptions sampling;
  sampling.temperature = 1;
  sampling.seed = seed;
  sampling.stream = task.stream;
  const size_t index = desk.free();
  desk.slots[index] = {desk.tasks.size(),
                       &desk.tasks.emplace_back(std::move(task)),
                       &desk.written.emplace_back(),
                       Sampler(sampling),
                       {},
                       0};
  desk.started.push_back(static_cast<int32_t>(index));
}

/// A token for each of these slots, whose logits are rows.
void ModelWriter::draw(Desk &desk, std::span<const int32_t> active,
                       std::span<const float> logits) {
  const size_t vocab = static_cast<size_t>(engine.vocabSize());
  parallelFor(
      context.get(), static_cast<int64_t>(active.size()), [&](int64_t row) {
        Slot &slot = desk.slots[static_cast<size_t>(active[row])];
        Sampler likeliest{SamplerOptions()};
        const bool isGreedy =
            static_cast<int64_t>(slot.written->size()) < slot.task->greedy;
        slot.last =
            (isGreedy ? likeliest : *slot.sampler)
                .sample(logits.subspan(static_cast<size_t>(row) * vocab, vocab),
                        {});
      });
  for (const int32_t index : active) {
    Slot &slot = desk.slots[static_cast<size_t>(index)];
    if (take(slot, slot.last))
      continue;
    ++desk.finished;
    desk.tokensOfFinished +=
        static_cast<int64_t>(slot.task->prompt.size() + slot.written->size());
    slot.task = nullptr;
  }
  desk.clock.add(static_cast<int64_t>(active.size()));
}

/// A token for every text.
void ModelWriter::step(Desk &desk) {
  std::vector<int32_t> active, last;
  for (size_t i = 0; i < desk.slots.size(); ++i)
    if (desk.slots[i].task && !desk.slots[i].written->empty()) {
      active.push_back(static_cast<int32_t>(i));
      last.push_back(desk.slots[i].last);
    }
  if (!active.empty())
    draw(desk, active, engine.decode(active, last));
  const std::vector<int32_t> started = std::exchange(desk.started, {});
  std::vector<PrefillChunk> prompts;
  for (const int32_t index : started) {
    engine.truncate(index, 0);
    prompts.push_back(
        {index, desk.slots[static_cast<size_t>(index)].task->prompt, false});
  }
  if (!started.empty())
    draw(desk, started, engine.prefill(prompts));
}

std::vector<std::vector<int32_t>>
ModelWriter::write(std::span<const WritingTask> tasks,
                   const std::string &what) {
  int64_t most = 0;
  for (const WritingTask &task : tasks)
    most += task.most;
  Desk desk(slots, what, most);
  for (size_t next = 0; desk.finished < static_cast<int64_t>(tasks.size());) {
    while (next < tasks.size() && desk.hasRoom())
      begin(desk, tasks[next++]);
    step(desk);
  }
  desk.clock.finish();
  return {desk.written.begin(), desk.written.end()};
}

std::vector<std::vector<int32_t>>
ModelWriter::writeUntil(int64_t tokens,
                        const std::function<WritingTask()> &nextTask,
                        const std::string &what) {
  Desk desk(slots, what, tokens);
  for (;;) {
    while (desk.hasRoom() && desk.expected() < tokens)
      begin(desk, nextTask());
    if (!desk.isWriting())
      break;
    step(desk);
    desk.dropBeyond(tokens);
  }
  desk.clock.finish();
  std::vector<std::vector<int32_t>> texts;
  int64_t sum = 0;
  for (size_t i = 0; i < desk.tasks.size() && sum < tokens; ++i) {
    sum += desk.length(i);
    texts.push_back(std::move(desk.tasks[i].prompt));
    texts.back().insert(texts.back().end(), desk.written[i].begin(),
                        desk.written[i].end());
  }
  return texts;
}
