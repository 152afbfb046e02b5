//===- TrainingMetrics.h - What a run measured, line by line ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAININGMETRICS_H
#define STEM_TOOLS_STEM_RUN_TRAININGMETRICS_H

#include "Json.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>

namespace stem {

/// metrics.jsonl: an object for each step and each validation. Each line is
/// written at once, so that a run that is killed leaves what it measured.
class TrainingMetrics {
public:
  /// Keeps the lines of the steps up to `step` that are there, of a run that is
  /// resumed; 0 begins anew.
  TrainingMetrics(std::filesystem::path path, int64_t step);

  void add(const Json &line);

  /// Every line of the file.
  void read(const std::function<void(const Json &)> &onLine) const;

private:
  struct Closer {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };

  std::filesystem::path path;
  std::unique_ptr<std::FILE, Closer> file;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAININGMETRICS_H
