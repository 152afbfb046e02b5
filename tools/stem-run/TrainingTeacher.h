//===- TrainingTeacher.h - The model that a run distils from ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAININGTEACHER_H
#define STEM_TOOLS_STEM_RUN_TRAININGTEACHER_H

#include "EngineWeights.h"
#include "EntryRunner.h"
#include "ScratchCaches.h"
#include "TiledBatch.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace stem {

/// Throws unless both models have one vocabulary and, where both have a
/// tokenizer, the same one.
void requireTeacher(const Checkpoint &student, const Checkpoint &teacher);

/// The teacher's states after its final norm, compiled; its head is a part of
/// the student's step.
class TrainingTeacher {
public:
  /// What the student's graph knows of it. The head's values are
  /// weights().head of the checkpoint.
  static GraphTeacher graph(const Checkpoint &checkpoint);

  /// Compiles; nothing large is allocated before load(). `type` is the
  /// student's compute type, `tile` the tokens of its tile.
  TrainingTeacher(const Checkpoint &checkpoint, EngineOptions engine,
                  DType type, int64_t tile);

  double compileSeconds() const { return runner.report.compileSeconds; }

  int64_t weightBytes() const;
  /// The arena, the states and what attention works in.
  int64_t activationBytes(const BatchBound &bound) const;

  void load();
  /// The states of the batch; valid until the next call.
  stem_tensor run(TiledBatch &batch);

private:
  int64_t stateBytes(int64_t count) const;

  const Checkpoint &checkpoint;
  EntryRunner runner;
  const stem_entry *entry = nullptr;
  std::unique_ptr<EngineWeights> weights;
  StorePtr store;
  ScratchCaches scratch;
  Arena states;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAININGTEACHER_H
