//===- RunState.h - Where a run is, beside its tensors ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_RUNSTATE_H
#define STEM_TOOLS_STEM_RUN_RUNSTATE_H

#include "Json.h"
#include "stem/Data/SequenceOrder.h"
#include "stem/Model/Checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace stem {

/// run.json of a checkpoint. Nothing random has a state: what is drawn depends
/// on the seed, the step and the place alone.
struct RunState {
  int64_t step = 0;
  DataPosition position; ///< of the next micro-batch
  int64_t labels = 0;
  int64_t skipped = 0;
  double loss = 0;
  double seconds = 0; ///< for the report
  Json options;       ///< what the bits depend on

  std::string text() const;
  /// An Error names what is missing or wrong.
  static RunState parse(const std::string &text,
                        const std::filesystem::path &path);

  /// Throws with a list of what differs. `run` stands for the run.
  void requireOptions(const Json &now, const std::string &run) const;
};

/// SHA-256 of the config and of every tensor that the model uses.
std::string modelFingerprint(const Checkpoint &checkpoint);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_RUNSTATE_H
