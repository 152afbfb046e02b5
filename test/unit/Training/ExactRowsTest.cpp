//===- ExactRowsTest.cpp - Rows that catch up -----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "stem/Training/AdamW.h"
#include "stem/Training/RowOptimizer.h"
#include "stem/Training/Schedule.h"

#include <numeric>

using namespace stem;
using namespace stem::test;

namespace {

constexpr RowOptimizerOptions exactMode = {.mode = RowMode::Exact};

/// The gradient of a whole table.
std::vector<float> spread(const Batch &batch, int64_t rows, int64_t columns) {
  std::vector<float> dense(rows * columns);
  for (size_t i = 0; i < batch.ids.size(); ++i)
    std::copy_n(batch.gradients.begin() + int64_t(i) * columns, columns,
                dense.begin() + batch.ids[i] * columns);
  return dense;
}

//===----------------------------------------------------------------------===//
// 200 steps with ids by Zipf's law: AdamW over the whole table, in f32 and in
// f64, and the mode exact with and without saving.
//===----------------------------------------------------------------------===//

struct ZipfRun {
  static constexpr int64_t rows = 700, columns = 37;
  static constexpr int steps = 200;

  explicit ZipfRun(DType dtype, int threads = 2)
      : context(createContext(threads)),
        table(dtype, columns, randomFloats(rows * columns, 3, 0.02f)),
        optimizer(context.get(), "t", table.table(), exactMode) {}

  static const std::vector<Batch> &batches() {
    static const std::vector<Batch> made =
        zipfBatches(steps, 60, rows, columns, 4);
    return made;
  }
  static double rate(int step) {
    static const Schedule schedule({.kind = ScheduleKind::Cosine,
                                    .peak = 3e-3,
                                    .steps = steps,
                                    .warmup = 20});
    return schedule.at(step + 1);
  }

  void run(int saveEvery = 0) {
    for (int step = 0; step < steps; ++step) {
      takeStep(optimizer, batches()[step], rate(step));
      if (saveEvery == 0 || (step + 1) % saveEvery != 0)
        continue;
      SavedState before(optimizer.state());
      exported(optimizer, table);
      EXPECT_EQ(SavedState(optimizer.state()), before);
    }
  }

  ContextPtr context;
  Rows table;
  RowOptimizer optimizer;
};

TEST(ExactRows, AreThoseOfDenseAdamW) {
  ZipfRun sparse(DType::F32);
  std::vector<float> weights = sparse.table.values();
  PlainRows plain(RowMode::Exact, exactMode.adamw, sparse.table.doubles(),
                  ZipfRun::columns);
  ContextPtr context = createContext(2);
  AdamW dense(context.get(), "t", weights, exactMode.adamw);
  sparse.run();
  for (int step = 0; step < ZipfRun::steps; ++step) {
    const Batch &batch = ZipfRun::batches()[step];
    dense.update(spread(batch, ZipfRun::rows, ZipfRun::columns),
                 ZipfRun::rate(step));
    plain.update(batch.ids, batch.gradients, ZipfRun::rate(step));
  }
  std::vector<float> seen = exported(sparse.optimizer, sparse.table);
  double scale = largest(plain.w);
  double toPlain = largestDifference(seen, plain.w) / scale;
  double toDense =
      largestDifference(seen, {weights.begin(), weights.end()}) / scale;
  EXPECT_LT(toPlain, 1e-6);
  EXPECT_LT(toDense, 1e-6);
  RecordProperty("to f64", fmt::format("{:.2e}", toPlain));
  RecordProperty("to f32", fmt::format("{:.2e}", toDense));
  // The run tests what it says: rows were left out, and the rows as they lie
  // in the table are others than those caught up.
  size_t present = 0;
  for (const Batch &batch : ZipfRun::batches())
    present += batch.ids.size();
  EXPECT_LT(present, size_t(ZipfRun::steps) * ZipfRun::rows / 10);
  EXPECT_GT(largestDifference(sparse.table.values(), plain.w) / scale, 1e-3);
}

TEST(ExactRows, SavingChangesNothing) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    ZipfRun saved(dtype), unsaved(dtype);
    saved.run(7);
    unsaved.run();
    EXPECT_EQ(SavedState(saved.optimizer.state()),
              SavedState(unsaved.optimizer.state()));
  }
}

TEST(ExactRows, ExportIsWhatCatchingUpGives) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    ZipfRun run(dtype);
    run.run();
    std::vector<float> all = exported(run.optimizer, run.table);
    // Some rows alone.
    std::vector<float> part(10 * ZipfRun::columns);
    Rows some(dtype, ZipfRun::columns, part);
    run.optimizer.exportRows(300, 10, some.bytes.data());
    std::copy_n(all.begin() + 300 * ZipfRun::columns, part.size(),
                part.begin());
    EXPECT_EQ(some.values(), part);

    std::vector<int32_t> ids(ZipfRun::rows);
    std::iota(ids.begin(), ids.end(), 0);
    run.optimizer.catchUp(ids);
    EXPECT_EQ(run.table.values(), all);
    EXPECT_EQ(exported(run.optimizer, run.table), all);
    // Again: nothing is left to do.
    SavedState before(run.optimizer.state());
    run.optimizer.catchUp(ids);
    EXPECT_EQ(SavedState(run.optimizer.state()), before);
  }
}

//===----------------------------------------------------------------------===//
// The cut-off.
//===----------------------------------------------------------------------===//

/// Per learning rate: how far all skipped steps after the first `replayed` move
/// a weight whose moments are the worst there are, |m| = C sqrt(v). Gradients
/// of (beta1 / beta2)^age bring it there.
double worstMoveAfter(const AdamWOptions &options, int64_t replayed) {
  double m = 0, v = 0, moved = 0;
  for (int age = 5000; age >= 0; --age) {
    double g = std::pow(options.beta1 / options.beta2, age);
    m = options.beta1 * m + (1 - options.beta1) * g;
    v = options.beta2 * v + (1 - options.beta2) * g * g;
  }
  for (int64_t j = 1; j < 20000; ++j) {
    m *= options.beta1;
    v *= options.beta2;
    if (j > replayed && v > 0)
      moved += m / std::sqrt(v);
  }
  return moved;
}

TEST(ExactRows, CutOffIsTheLeastThatKeepsItsBound) {
  constexpr AdamWOptions betas[] = {{.beta1 = 0.9, .beta2 = 0.95},
                                    {.beta1 = 0.9, .beta2 = 0.999},
                                    {.beta1 = 0.95, .beta2 = 0.95},
                                    {.beta1 = 0.5, .beta2 = 0.9}};
  for (const AdamWOptions &options : betas) {
    SCOPED_TRACE(testing::Message() << options.beta1 << " " << options.beta2);
    int64_t replayed = skippedStepsReplayed(options);
    EXPECT_LE(worstMoveAfter(options, replayed), 0x1p-25);
    EXPECT_GT(worstMoveAfter(options, replayed - 1), 0x1p-25);
  }
  EXPECT_EQ(skippedStepsReplayed(betas[0]), 251);
  EXPECT_EQ(skippedStepsReplayed(betas[1]), 206);
  EXPECT_EQ(skippedStepsReplayed({.beta1 = 0}), 0);
}

// Gaps around the cut-off, from the worst moments, with weights of 0, so that
// the table holds nothing but the moves, and a learning rate that grows: the
// bound is in terms of the largest.
TEST(ExactRows, GapsAroundTheCutOff) {
  constexpr AdamWOptions adamw = {.epsilon = 1e-12, .decay = 0.1};
  const int64_t replayed = skippedStepsReplayed(adamw);
  for (int64_t gap : {int64_t(1), int64_t(2), int64_t(7), replayed - 1,
                      replayed, replayed + 1, int64_t(2000)}) {
    SCOPED_TRACE(testing::Message() << gap << " skipped steps");
    ContextPtr context = createContext(1);
    Rows table(DType::F32, 3, std::vector<float>(3));
    RowOptimizer optimizer(context.get(), "t", table.table(),
                           {.mode = RowMode::Exact, .adamw = adamw});
    PlainRows plain(RowMode::Exact, adamw, Doubles(3), 3);
    double lr = 1e-3;
    for (int age = 60; age >= 0; --age) {
      float g = float(std::pow(adamw.beta1 / adamw.beta2, age));
      Batch batch = {{0}, {g, -1e-4f * g, age == 0 ? 1.f : 0.f}};
      takeStep(optimizer, batch, lr);
      plain.update(batch.ids, batch.gradients, lr);
    }
    for (int64_t step = 0; step < gap; ++step) {
      lr = 1e-3 * (1 + double(step) / 100);
      optimizer.update({}, nullptr, lr);
      plain.update({}, {}, lr);
    }
    // The cut, and f32's rounding of the weights in 61 steps.
    double allowed = 0x1p-25 * lr + 1e-6 * largest(plain.w);
    EXPECT_LT(largestDifference(exported(optimizer, table), plain.w), allowed);
    EXPECT_GT(largest(plain.w), 1e-3);
  }
}

// Long after the cut-off the moments still count for the next step.
TEST(ExactRows, MomentsAfterALongGap) {
  ContextPtr context = createContext(1);
  Rows table(DType::F32, 2, {1, -1});
  RowOptimizer optimizer(context.get(), "t", table.table(), exactMode);
  PlainRows plain(RowMode::Exact, exactMode.adamw, table.doubles(), 2);
  Batch first = {{0}, {1, 1}}, last = {{0}, {1e-11f, 1}};
  takeStep(optimizer, first, 1e-3);
  plain.update(first.ids, first.gradients, 1e-3);
  for (int step = 0; step < 300; ++step) {
    optimizer.update({}, nullptr, 1e-3);
    plain.update({}, {}, 1e-3);
  }
  takeStep(optimizer, last, 1e-3);
  plain.update(last.ids, last.gradients, 1e-3);
  std::vector<float> m(2);
  SavedState state(optimizer.state());
  std::memcpy(m.data(), state.get("t.m").data.data(), sizeof(float) * 2);
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(m[i] / plain.m[i], 1, 1e-5);
  EXPECT_LT(largestDifference(table.values(), plain.w), 1e-6);
}

TEST(ExactRows, DecayAloneHasItsClosedForm) {
  ContextPtr context = createContext(1);
  Rows table(DType::F32, 2, {1, -3});
  RowOptimizer optimizer(context.get(), "t", table.table(), exactMode);
  double kept = 1;
  for (int step = 0; step < 5000; ++step) {
    double lr = 1e-3 * (1 + step % 3);
    optimizer.update({}, nullptr, lr);
    kept *= 1 - lr * 0.1;
  }
  std::vector<float> seen = exported(optimizer, table);
  EXPECT_NEAR(seen[0] / kept, 1, 3e-7);
  EXPECT_NEAR(seen[1] / kept, -3, 1e-6);
}

TEST(ExactRows, CatchUpWithoutAStepBetweenIsNone) {
  ContextPtr context = createContext(1);
  Rows table(DType::F32, 2, {1, -3, 5, 7});
  RowOptimizer optimizer(context.get(), "t", table.table(), exactMode);
  std::vector<int32_t> ids = {0, 1};
  SavedState before(optimizer.state());
  optimizer.catchUp(ids);
  EXPECT_EQ(SavedState(optimizer.state()), before);
}

} // namespace
