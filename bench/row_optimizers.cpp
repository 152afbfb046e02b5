//===- row_optimizers.cpp - Modes of rows against dense AdamW -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Steps of one table, a JSON line for each mode and type of rows:
//   build/bench/bin/row_optimizers [ROWS COLUMNS TOKENS PAIRS]
// `ratio` is how many times as fast a mode is as AdamW over the whole table,
// the median of the pairs. Ids have Zipf's distribution, another batch at each
// step; rows are caught up and moved.

#include "Pairs.h"
#include "ZipfBatches.h"

#include "stem/Runtime/Context.h"
#include "stem/Training/AdamW.h"
#include "stem/Training/RowOptimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

using namespace stem;

namespace {

struct Sizes {
  int64_t rows = 32000, columns = 1536, tokens = 2048, pairs = 15;
};

struct Mode {
  const char *name;
  RowMode mode;
  double beta1;
  DType dtype;
};

constexpr double kRate = 1e-4;

std::vector<int32_t> touched(ZipfBatches &batches, int64_t tokens) {
  std::vector<int32_t> ids = batches.next(1, tokens).ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// AdamW over the whole table, as a dense parameter.
class DenseSteps {
public:
  DenseSteps(stem_context *context, const Sizes &sizes)
      : count(sizes.rows * sizes.columns), values(bench::filled(4 * count)),
        gradient(bench::filled(4 * count)),
        optimizer(context, "table",
                  {static_cast<float *>(values.data()), size_t(count)}, {}) {}

  void step() {
    optimizer.update(
        {static_cast<const float *>(gradient.data()), size_t(count)}, kRate, 1);
  }

private:
  int64_t count;
  Arena values, gradient;
  AdamW optimizer;
};

class RowSteps {
public:
  RowSteps(stem_context *context, const Sizes &sizes, const Mode &mode)
      : tokens(sizes.tokens),
        values(bench::filled(sizes.rows * sizes.columns * 4)),
        gradient(
            bench::filled(std::min(sizes.rows, tokens) * sizes.columns * 4)),
        batches(static_cast<uint64_t>(sizes.rows), 0),
        optimizer(context, "table",
                  {values.data(), mode.dtype, sizes.rows, sizes.columns},
                  options(mode)) {}

  static RowOptimizerOptions options(const Mode &mode) {
    RowOptimizerOptions options;
    options.mode = mode.mode;
    options.adamw.beta1 = mode.beta1;
    return options;
  }

  double timedStep() {
    ids = touched(batches, tokens); // as in training, before the step
    return bench::seconds([&] {
      optimizer.catchUp(ids);
      optimizer.update(ids, static_cast<const float *>(gradient.data()), kRate,
                       1);
    });
  }

  size_t touchedRows() const { return ids.size(); }

private:
  int64_t tokens;
  Arena values, gradient;
  ZipfBatches batches;
  std::vector<int32_t> ids;
  RowOptimizer optimizer;
};

void measure(stem_context *context, const Sizes &sizes, const Mode &mode) {
  DenseSteps dense(context, sizes);
  RowSteps rows(context, sizes, mode);
  std::vector<double> ratios, ofRows, ofDense;
  for (int64_t pair = -2; pair < sizes.pairs; ++pair) {
    const double a = rows.timedStep(),
                 b = bench::seconds([&] { dense.step(); });
    if (pair < 0)
      continue; // pages are touched first
    ofRows.push_back(a);
    ofDense.push_back(b);
    ratios.push_back(b / a);
  }
  std::sort(ratios.begin(), ratios.end());
  const size_t low = bench::intervalPlace(ratios.size());
  const int64_t state =
      sizes.rows *
      RowOptimizer::stateBytesPerRow(RowSteps::options(mode), sizes.columns);
  fmt::print("{{\"bench\": \"row_optimizers\", \"mode\": \"{}\", \"rows\": {}, "
             "\"columns\": {}, \"touched\": {}, \"milliseconds\": {:.3f}, "
             "\"dense_milliseconds\": {:.3f}, \"ratio\": {:.2f}, "
             "\"ratio_low\": {:.2f}, \"ratio_high\": {:.2f}, "
             "\"state_bytes\": {}, \"dense_state_bytes\": {}}}\n",
             mode.name, sizes.rows, sizes.columns, rows.touchedRows(),
             1e3 * bench::medianOf(ofRows), 1e3 * bench::medianOf(ofDense),
             ratios[ratios.size() / 2], ratios[low],
             ratios[ratios.size() - 1 - low], state,
             8 * sizes.rows * sizes.columns);
}

} // namespace

int main(int argc, char **argv) {
  Sizes sizes;
  int64_t *const values[] = {&sizes.rows, &sizes.columns, &sizes.tokens,
                             &sizes.pairs};
  for (int i = 1; i < argc && i <= 4; ++i)
    *values[i - 1] = std::max<int64_t>(1, std::atoll(argv[i]));
  ContextPtr context = createContext();
  for (const Mode &mode :
       {Mode{"exact", RowMode::Exact, 0.9, DType::F32},
        Mode{"lazy", RowMode::Lazy, 0.9, DType::F32},
        Mode{"rowwise", RowMode::Rowwise, 0.9, DType::F32},
        Mode{"rowwise, no first moment", RowMode::Rowwise, 0, DType::F32},
        Mode{"rowwise, bf16 rows", RowMode::Rowwise, 0.9, DType::BF16}})
    measure(context.get(), sizes, mode);
  return 0;
}
