//===- Schedule.cpp - The learning rate of each step ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/Schedule.h"
#include "stem/Support/Error.h"

#include <cmath>
#include <numbers>
#include <utility>

using namespace stem;

namespace {

constexpr std::pair<ScheduleKind, std::string_view> names[] = {
    {ScheduleKind::Constant, "constant"},
    {ScheduleKind::Linear, "linear"},
    {ScheduleKind::Cosine, "cosine"},
    {ScheduleKind::WarmupStableDecay, "wsd"},
};

/// The last step before the fall.
int64_t fallBegins(const ScheduleOptions &options) {
  return options.kind == ScheduleKind::WarmupStableDecay
             ? options.steps - options.decay
             : options.warmup;
}

void check(const ScheduleOptions &options) {
  std::string_view name = scheduleName(options.kind);
  if (!(options.peak >= 0) || std::isinf(options.peak))
    fail("the learning rate is {}: wanted 0 or a finite number above",
         options.peak);
  if (options.warmup < 0)
    fail("the warm-up takes {} steps: wanted 0 or more", options.warmup);
  if (options.kind != ScheduleKind::WarmupStableDecay && options.decay != 0)
    fail("the schedule {} takes no steps of decay, but got {}: only wsd does",
         name, options.decay);
  if (options.kind == ScheduleKind::Constant) {
    if (options.final != 0)
      fail("the schedule constant does not fall, but got a final fraction of "
           "{}: leave it out, or take linear, cosine or wsd",
           options.final);
    return;
  }
  if (options.steps < 1)
    fail("the schedule {} needs the number of steps, at least 1, but got {}",
         name, options.steps);
  if (!(options.final >= 0 && options.final <= 1))
    fail("the final fraction of the learning rate is {}: wanted 0 to 1",
         options.final);
  if (options.kind == ScheduleKind::WarmupStableDecay && options.decay < 1)
    fail("the schedule wsd needs the steps of its decay, at least 1, but got "
         "{}",
         options.decay);
  // Without overflow, whatever the numbers.
  if (options.warmup > options.steps ||
      options.decay > options.steps - options.warmup)
    fail("a warm-up of {} steps and a decay of {} do not fit into {} steps",
         options.warmup, options.decay, options.steps);
}

} // namespace

std::string_view stem::scheduleName(ScheduleKind kind) {
  for (const auto &[known, name] : names)
    if (known == kind)
      return name;
  fail("no schedule has the number {}", static_cast<int>(kind));
}

ScheduleKind stem::parseScheduleKind(std::string_view name) {
  for (const auto &[kind, known] : names)
    if (known == name)
      return kind;
  fail("'{}' is not a schedule: wanted constant, linear, cosine or wsd", name);
}

Schedule::Schedule(const ScheduleOptions &options) : settings(options) {
  check(settings);
}

double Schedule::at(int64_t step) const {
  if (step < 1)
    fail("the schedule was asked for step {}: steps count from 1", step);
  if (step <= settings.warmup)
    return settings.peak * double(step) / double(settings.warmup);
  if (settings.kind == ScheduleKind::Constant)
    return settings.peak;
  if (step > settings.steps)
    return settings.peak * settings.final;
  int64_t begin = fallBegins(settings);
  if (step <= begin)
    return settings.peak;
  double part = double(step - 1 - begin) / double(settings.steps - begin);
  double left = settings.kind == ScheduleKind::Cosine
                    ? (1 + std::cos(std::numbers::pi * part)) / 2
                    : 1 - part;
  return settings.peak * (settings.final + (1 - settings.final) * left);
}
