//===- ScheduleTest.cpp - The learning rate of each step ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/Schedule.h"
#include "TestSupport.h"

#include <limits>

using namespace stem;
using namespace stem::test;

namespace {

Doubles ratesOf(const ScheduleOptions &options, int64_t steps) {
  Schedule schedule(options);
  Doubles rates;
  for (int64_t step = 1; step <= steps; ++step)
    rates.push_back(schedule.at(step));
  return rates;
}

void expectRates(const ScheduleOptions &options, const Doubles &wanted) {
  Doubles seen = ratesOf(options, int64_t(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(seen[i], wanted[i], 1e-15) << "step " << i + 1;
}

TEST(Schedule, Constant) {
  expectRates({.peak = 2}, {2, 2, 2});
  expectRates({.peak = 2, .warmup = 4}, {0.5, 1, 1.5, 2, 2, 2});
  EXPECT_EQ(Schedule({.peak = 2}).at(1'000'000'000'000), 2);
}

TEST(Schedule, Linear) {
  expectRates({.kind = ScheduleKind::Linear, .peak = 4, .steps = 4},
              {4, 3, 2, 1, 0, 0});
  expectRates({.kind = ScheduleKind::Linear,
               .peak = 4,
               .steps = 6,
               .warmup = 2,
               .final = 0.5},
              {2, 4, 4, 3.5, 3, 2.5, 2, 2});
}

TEST(Schedule, Cosine) {
  double root = std::sqrt(0.5);
  expectRates({.kind = ScheduleKind::Cosine, .peak = 2, .steps = 4},
              {2, 1 + root, 1, 1 - root, 0, 0});
  expectRates({.kind = ScheduleKind::Cosine,
               .peak = 2,
               .steps = 5,
               .warmup = 1,
               .final = 0.5},
              {2, 2, 1.5 + root / 2, 1.5, 1.5 - root / 2, 1, 1});
}

TEST(Schedule, WarmupStableDecay) {
  expectRates({.kind = ScheduleKind::WarmupStableDecay,
               .peak = 8,
               .steps = 8,
               .warmup = 2,
               .decay = 4,
               .final = 0.25},
              {4, 8, 8, 8, 8, 6.5, 5, 3.5, 2, 2});
}

TEST(Schedule, NothingButWarmup) {
  expectRates(
      {.kind = ScheduleKind::Cosine, .peak = 2, .steps = 2, .warmup = 2},
      {1, 2, 0});
}

TEST(Schedule, Names) {
  for (ScheduleKind kind :
       {ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine,
        ScheduleKind::WarmupStableDecay})
    EXPECT_EQ(parseScheduleKind(scheduleName(kind)), kind);
  EXPECT_EQ(parseScheduleKind("wsd"), ScheduleKind::WarmupStableDecay);
  expectContains(errorOf([] { parseScheduleKind("Cosine"); }),
                 "'Cosine' is not a schedule: wanted constant, linear, cosine "
                 "or wsd");
}

TEST(Schedule, RefusesWhatCannotBe) {
  auto expectRefusal = [](const ScheduleOptions &options,
                          const std::string &message) {
    expectContains(errorOf([&] { Schedule schedule(options); }), message);
  };
  constexpr double notANumber = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (double peak : {-1.0, infinity, notANumber})
    expectRefusal({.peak = peak}, "the learning rate is ");
  expectRefusal({.peak = 1, .warmup = -3}, "the warm-up takes -3 steps");
  expectRefusal({.peak = 1, .decay = 3},
                "the schedule constant takes no steps of decay, but got 3");
  expectRefusal(
      {.kind = ScheduleKind::Cosine, .peak = 1, .steps = 9, .decay = 3},
      "the schedule cosine takes no steps of decay, but got 3");
  expectRefusal({.peak = 1, .final = 0.5},
                "the schedule constant does not fall, but got a final fraction "
                "of 0.5");
  expectRefusal({.kind = ScheduleKind::Linear, .peak = 1},
                "the schedule linear needs the number of steps, at least 1, "
                "but got 0");
  for (double final : {-0.1, 1.1, notANumber})
    expectRefusal(
        {.kind = ScheduleKind::Linear, .peak = 1, .steps = 5, .final = final},
        "the final fraction of the learning rate is ");
  expectRefusal(
      {.kind = ScheduleKind::WarmupStableDecay, .peak = 1, .steps = 5},
      "the schedule wsd needs the steps of its decay, at least 1, but got 0");
  expectRefusal(
      {.kind = ScheduleKind::WarmupStableDecay,
       .peak = 1,
       .steps = 5,
       .warmup = 2,
       .decay = 4},
      "a warm-up of 2 steps and a decay of 4 do not fit into 5 steps");
  expectRefusal(
      {.kind = ScheduleKind::Cosine, .peak = 1, .steps = 5, .warmup = 6},
      "a warm-up of 6 steps and a decay of 0 do not fit into 5 steps");
  expectContains(errorOf([] { (void)Schedule({.peak = 1}).at(0); }),
                 "asked for step 0: steps count from 1");
}

} // namespace
