//===- Schedule.h - The learning rate of each step --------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRAINING_SCHEDULE_H
#define STEM_TRAINING_SCHEDULE_H

#include <cstdint>
#include <string_view>

namespace stem {

enum class ScheduleKind { Constant, Linear, Cosine, WarmupStableDecay };

/// "constant", "linear", "cosine", "wsd".
std::string_view scheduleName(ScheduleKind kind);
/// An Error that lists the names for another.
ScheduleKind parseScheduleKind(std::string_view name);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::Constant;
  double peak = 0;    ///< the largest learning rate
  int64_t steps = 0;  ///< of the run; a constant schedule needs none
  int64_t warmup = 0; ///< steps of the rise
  int64_t decay = 0;  ///< wsd: steps of the fall at the end
  double final = 0;   ///< where the fall ends, as a fraction of the peak
};

/// A function of the step alone, counted from 1.
///
/// Step s of the warm-up has peak · s / warmup: the first moves the weights,
/// the last has the peak. A fall over n steps that follows step b has
/// peak · (final + (1 - final) · f(p)) with p = (s - 1 - b) / n, f(p) = 1 - p
/// for linear and wsd and (1 + cos πp) / 2 for cosine: it begins at the peak,
/// and reaches `final` with the step after the last.
class Schedule {
public:
  /// Throws an Error for settings that contradict each other.
  explicit Schedule(const ScheduleOptions &options);

  double at(int64_t step) const;
  const ScheduleOptions &options() const { return settings; }

private:
  ScheduleOptions settings;
};

} // namespace stem

#endif // STEM_TRAINING_SCHEDULE_H
