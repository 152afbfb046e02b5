//===- RowOptimizer.cpp - AdamW on the rows of a table --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/RowOptimizer.h"
#include "AdamStep.h"
#include "RowKernels.h"
#include "SkippedSteps.h"
#include "State.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cstring>
#include <utility>

using namespace stem;

struct RowOptimizer::Exact {
  explicit Exact(const AdamWOptions &options, int64_t rows)
      : skipped(options), lastSteps(rows) {}

  SkippedSteps skipped;
  std::vector<int32_t> lastSteps;
};

namespace {

constexpr std::pair<RowMode, std::string_view> modeNames[] = {
    {RowMode::Exact, "exact"},
    {RowMode::Lazy, "lazy"},
    {RowMode::Rowwise, "rowwise"},
};

/// Elements of a task: rows that fill a few times the first cache.
constexpr int64_t taskElements = 16384;

template <typename Body>
void forRows(stem_context *context, int64_t rows, int64_t columns,
             const Body &body) {
  int64_t each = std::max<int64_t>(1, taskElements / columns);
  parallelFor(context, (rows + each - 1) / each, [&](int64_t task) {
    FlushSubnormals flush;
    body(task * each, std::min(rows, (task + 1) * each));
  });
}

int64_t checkedBytes(const std::string &name, int64_t rows, int64_t columns,
                     int64_t each) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, columns, &bytes) ||
      __builtin_mul_overflow(bytes, each, &bytes))
    fail("{}: {} rows x {} columns have no size", name, rows, columns);
  return bytes;
}

void checkTable(const std::string &name, const RowTable &table) {
  if (table.dtype != DType::F32 && table.dtype != DType::BF16)
    fail("{}: rows are stored as {}: wanted F32 or BF16", name,
         dtypeName(table.dtype));
  if (table.rows < 1 || table.rows > INT32_MAX || table.columns < 1 ||
      table.columns > INT32_MAX)
    fail("{}: a table of {} rows x {} columns: wanted 1 to {} of each", name,
         table.rows, table.columns, INT32_MAX);
  if (!table.data)
    fail("{}: a table without rows in memory", name);
}

bool hasFirstMoment(const RowOptimizerOptions &options) {
  return options.adamw.beta1 != 0;
}

/// The rows of a table with their moments, as the kernels take them.
template <typename T> struct Records {
  T *weights;
  float *m, *v;
  int64_t columns, vColumns;

  RowView<T> row(int64_t row) const {
    return {weights + row * columns, m ? m + row * columns : nullptr,
            v + row * vColumns};
  }
  /// What is worth asking for early.
  RowView<T> prefetched(int64_t row) const {
    RowView<T> view = this->row(row);
    if (vColumns < columns)
      view.v = nullptr;
    return view;
  }
};

float *floats(const Arena &arena) { return static_cast<float *>(arena.data()); }

} // namespace

std::string_view stem::rowModeName(RowMode mode) {
  for (const auto &[known, name] : modeNames)
    if (known == mode)
      return name;
  fail("no row mode has the number {}", static_cast<int>(mode));
}

RowMode stem::parseRowMode(std::string_view name) {
  for (const auto &[mode, known] : modeNames)
    if (known == name)
      return mode;
  fail("'{}' is not a mode of the row optimizer: wanted exact, lazy or rowwise",
       name);
}

RowOptimizer::RowOptimizer(stem_context *context, std::string name,
                           const RowTable &table,
                           const RowOptimizerOptions &options,
                           const std::filesystem::path &folder)
    : context(context), name(std::move(name)), table(table), options(options),
      isInFiles(!folder.empty()) {
  checkOptions(this->name, options.adamw);
  checkTable(this->name, table);
  int64_t bytes = checkedBytes(this->name, table.rows, table.columns, 4);
  const auto moments = [&](const char *purpose) {
    return isInFiles
               ? Arena::inFile(folder, bytes, purpose, "give --tables=resident")
               : Arena(bytes, purpose);
  };
  if (hasFirstMoment(options))
    firstMoment = moments("first moments of a table");
  secondMoment = perRow() ? Arena(table.rows * int64_t(sizeof(float)),
                                  "second moments of a table")
                          : moments("second moments of a table");
  if (options.mode == RowMode::Exact)
    exact = std::make_unique<Exact>(options.adamw, table.rows);
}

RowOptimizer::~RowOptimizer() = default;

int64_t RowOptimizer::stateBytesPerRow(const RowOptimizerOptions &options,
                                       int64_t columns) {
  int64_t bytes = momentBytesPerRow(options, columns);
  if (options.mode == RowMode::Rowwise)
    bytes += int64_t(sizeof(float));
  if (options.mode == RowMode::Exact)
    bytes += int64_t(sizeof(int32_t));
  return bytes;
}

int64_t RowOptimizer::momentBytesPerRow(const RowOptimizerOptions &options,
                                        int64_t columns) {
  const int64_t moments =
      hasFirstMoment(options) + (options.mode != RowMode::Rowwise);
  return moments * columns * int64_t(sizeof(float));
}

std::vector<FileRows> RowOptimizer::rowsInFiles() const {
  std::vector<FileRows> parts;
  if (!isInFiles)
    return parts;
  const auto add = [&](const Arena &moments, const char *suffix) {
    parts.push_back({name + suffix, static_cast<std::byte *>(moments.data()),
                     table.rows, table.columns * int64_t(sizeof(float)),
                     moments.file()});
  };
  if (hasFirstMoment(options))
    add(firstMoment, ".m");
  if (!perRow())
    add(secondMoment, ".v");
  return parts;
}

void RowOptimizer::checkIds(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= table.rows)
      fail("{}: row {} of a table with rows 0 to {}", name, ids[i],
           table.rows - 1);
    if (i > 0 && ids[i] <= ids[i - 1])
      fail("{}: row {} follows row {}: wanted each row once, rising", name,
           ids[i], ids[i - 1]);
  }
}

template <typename Body>
void RowOptimizer::withRecords(const Body &body) const {
  int64_t columns = table.columns, vColumns = perRow() ? 1 : columns;
  auto call = [&](auto *weights) {
    body(Records{weights, floats(firstMoment), floats(secondMoment), columns,
                 vColumns});
  };
  if (table.dtype == DType::F32)
    call(static_cast<float *>(table.data));
  else
    call(static_cast<uint16_t *>(table.data));
}

RowRounding RowOptimizer::rounding(int64_t row) const {
  return {options.seed, options.stream, uint32_t(stepCount), uint32_t(row)};
}

void RowOptimizer::catchUp(std::span<const int32_t> ids) {
  checkIds(ids);
  if (!exact)
    return;
  withRecords([&]<typename T>(const Records<T> &records) {
    forRows(context, int64_t(ids.size()), table.columns,
            [&](int64_t begin, int64_t end) {
              CatchUp catchUp;
              for (int64_t i = begin; i < end; ++i) {
                int32_t &last = exact->lastSteps[ids[i]];
                if (last == stepCount)
                  continue;
                exact->skipped.plan(last, catchUp);
                RowView<T> row = records.row(ids[i]), next;
                if (last == 0)
                  row.m = row.v = nullptr;
                if (i + 1 < end && exact->lastSteps[ids[i + 1]] != stepCount)
                  next = records.prefetched(ids[i + 1]);
                catchUpRow(catchUp, table.columns, row, row, next,
                           rounding(ids[i]));
                last = int32_t(stepCount);
              }
            });
  });
}

void RowOptimizer::update(std::span<const int32_t> ids, const float *gradients,
                          double learningRate, double gradientScale) {
  checkIds(ids);
  if (!ids.empty() && !gradients)
    fail("{}: {} rows without a gradient", name, ids.size());
  checkStep(name, options.adamw, stepCount, learningRate, gradientScale);
  if (exact)
    for (int32_t id : ids)
      if (exact->lastSteps[id] != stepCount)
        fail("{}: row {} gets a gradient in step {}, but is at step {}: call "
             "catchUp before rows are read",
             name, id, stepCount + 1, exact->lastSteps[id]);

  if (exact)
    exact->skipped.append(learningRate);
  AdamStep step(options.adamw, ++stepCount, learningRate, gradientScale);
  withRecords([&]<typename T>(const Records<T> &records) {
    forRows(context, int64_t(ids.size()), table.columns,
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) {
                RowView<T> next;
                if (i + 1 < end)
                  next = records.prefetched(ids[i + 1]);
                updateRow(step, perRow(), table.columns,
                          gradients + i * table.columns, records.row(ids[i]),
                          next, rounding(ids[i]));
                if (exact)
                  exact->lastSteps[ids[i]] = int32_t(stepCount);
              }
            });
  });
}

void RowOptimizer::exportRows(int64_t first, int64_t count, void *out) const {
  if (first < 0 || count < 0 || count > table.rows - first)
    fail("{}: {} rows from row {} of a table of {}", name, count, first,
         table.rows);
  withRecords([&]<typename T>(const Records<T> &records) {
    forRows(context, count, table.columns, [&](int64_t begin, int64_t end) {
      CatchUp catchUp;
      for (int64_t i = begin; i < end; ++i) {
        RowView<T> row = records.row(first + i);
        RowView<T> to = {static_cast<T *>(out) + i * table.columns};
        int64_t last = exact ? exact->lastSteps[first + i] : stepCount;
        if (last == stepCount) {
          std::memcpy(to.weights, row.weights, table.columns * sizeof(T));
          continue;
        }
        exact->skipped.plan(last, catchUp);
        if (last == 0)
          row.m = row.v = nullptr;
        catchUpRow(catchUp, table.columns, row, to, {}, rounding(first + i));
      }
    });
  });
}

std::vector<TensorView> RowOptimizer::state() const {
  uint64_t rows = table.rows, columns = table.columns;
  std::vector<uint64_t> whole = {rows, columns};
  std::vector<TensorView> tensors = {
      stateTensor(name + ".w", table.dtype, whole, table.data),
      stateTensor(name + ".v", DType::F32,
                  perRow() ? std::vector<uint64_t>{rows} : whole,
                  secondMoment.data()),
      stateTensor(name + ".steps", DType::I64, {1}, &stepCount)};
  if (hasFirstMoment(options))
    tensors.push_back(
        stateTensor(name + ".m", DType::F32, whole, firstMoment.data()));
  if (exact) {
    const std::vector<double> &rates = exact->skipped.learningRates();
    static_assert(sizeof(AdamWOptions) == 4 * sizeof(double));
    tensors.push_back(stateTensor(name + ".last_step", DType::I32, {rows},
                                  exact->lastSteps.data()));
    tensors.push_back(stateTensor(name + ".learning_rates", DType::F64,
                                  {rates.size()}, rates.data()));
    tensors.push_back(
        stateTensor(name + ".settings", DType::F64, {4}, &options.adamw));
  }
  return tensors;
}

/// What the skipped steps were taken with, and which: nothing of it may change
/// under them.
std::unique_ptr<RowOptimizer::Exact>
RowOptimizer::restoredExact(std::span<const TensorView> tensors,
                            int64_t steps) const {
  AdamWOptions then;
  std::vector<double> rates(steps);
  auto restored = std::make_unique<Exact>(options.adamw, table.rows);
  auto read = [&](const char *suffix, DType dtype, uint64_t count, void *to) {
    TensorView wanted = stateTensor(name + suffix, dtype, {count}, to);
    std::span<const std::byte> found = findState(tensors, wanted).data;
    std::ranges::copy(found, static_cast<std::byte *>(to));
  };
  read(".settings", DType::F64, 4, &then);
  read(".learning_rates", DType::F64, rates.size(), rates.data());
  read(".last_step", DType::I32, table.rows, restored->lastSteps.data());

  const AdamWOptions &now = options.adamw;
  if (then.beta1 != now.beta1 || then.beta2 != now.beta2 ||
      then.epsilon != now.epsilon || then.decay != now.decay)
    fail("{}: the optimizer's state was made with beta1 {}, beta2 {}, epsilon "
         "{}, decay {}, but asked for are {}, {}, {}, {}: steps that rows "
         "skipped are made up for with the same; keep them, or start anew from "
         "an exported model",
         name, then.beta1, then.beta2, then.epsilon, then.decay, now.beta1,
         now.beta2, now.epsilon, now.decay);
  for (double rate : rates) {
    checkStep(name, now, restored->skipped.steps(), rate, 1);
    restored->skipped.append(rate);
  }
  for (int64_t row = 0; row < table.rows; ++row)
    if (restored->lastSteps[row] < 0 || restored->lastSteps[row] > steps)
      fail("{}: the optimizer's state has row {} at step {} of {}", name, row,
           restored->lastSteps[row], steps);
  return restored;
}

void RowOptimizer::restore(std::span<const TensorView> tensors) {
  int64_t steps = restoredSteps(tensors, name);
  std::unique_ptr<Exact> restored;
  if (exact)
    restored = restoredExact(tensors, steps);
  std::vector<std::pair<std::span<const std::byte>, void *>> copies;
  for (const TensorView &wanted : state())
    for (auto [suffix, to] :
         {std::pair(".w", table.data), std::pair(".m", firstMoment.data()),
          std::pair(".v", secondMoment.data())})
      if (wanted.name == name + suffix)
        copies.emplace_back(findState(tensors, wanted).data, to);

  for (auto [from, to] : copies)
    std::ranges::copy(from, static_cast<std::byte *>(to));
  exact = std::move(restored);
  stepCount = steps;
}
