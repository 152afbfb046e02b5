//===- RowFit.cpp - Rows of a table fitted to statistics ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/RowFit.h"
#include "Sizes.h"
#include "SpdFactor.h"
#include "stem/Calibration/GramSums.h"
#include "stem/Runtime/Pack.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/BF16.h"

#include <algorithm>
#include <cmath>
#include <utility>

using namespace stem;

namespace {

/// Rows whose features are read at once.
constexpr int64_t readRows = 512;
/// Rows or positions of one task.
constexpr int64_t taskRows = 32;
/// Columns of one task where a task goes through all rows.
constexpr int64_t taskColumns = 64;

int64_t tasksOf(int64_t count, int64_t each) {
  return (count + each - 1) / each;
}

} // namespace

RowFit::RowFit(RowStatistics &&statistics, int64_t features,
               stem_dtype products)
    : sums(std::move(statistics)), features(features), products(products),
      meanSquares(sums.columns()) {}

RowFit RowFit::perId(RowStatistics &&statistics, int64_t features,
                     const FeatureReader &read, double ridge,
                     stem_dtype products) {
  const std::string &name = statistics.name();
  if (!(ridge >= 0) || std::isinf(ridge))
    fail("{}: the ridge of the rows' prior is {}: wanted 0 or more", name,
         ridge);
  if (features < 1 || features > INT32_MAX)
    fail("{}: {} features for the rows' prior: wanted 1 to {}", name, features,
         INT32_MAX);
  if (statistics.positions() == 0)
    fail("{}: no position was counted: rows need calibration text", name);
  RowFit fit(std::move(statistics), features, products);
  fit.checkSums();
  fit.meanSquaresOf(fit.sums.positions());
  fit.regress(read, ridge);
  fit.predictAll(read);
  fit.correct();
  return fit;
}

RowFit RowFit::meanRow(const RowStatistics &statistics) {
  if (statistics.positions() == 0)
    fail("{}: no position was counted: the mean row needs calibration text",
         statistics.name());
  int64_t columns = statistics.columns();
  RowStatistics all(statistics.context, 1, statistics.range(),
                    statistics.name());
  all.rowCounts[0] = statistics.positions();
  parallelFor(all.context, tasksOf(columns, taskColumns), [&](int64_t task) {
    int64_t first = task * taskColumns;
    int64_t count = std::min(taskColumns, columns - first);
    double squares[taskColumns] = {}, gatedUps[taskColumns] = {};
    for (int64_t row = 0; row < statistics.rows(); ++row)
      for (int64_t c = 0; c < count; ++c) {
        int64_t at = row * columns + first + c;
        squares[c] += statistics.gateSquares()[at];
        gatedUps[c] += statistics.gatedUps()[at];
      }
    for (int64_t c = 0; c < count; ++c) {
      all.matrix(0)[first + c] = float(squares[c]);
      all.matrix(1)[first + c] = float(gatedUps[c]);
      all.matrix(2)[first + c] =
          squares[c] > 0 ? float(gatedUps[c] / squares[c]) : 0;
    }
  });
  RowFit fit(std::move(all), 0, STEM_F32);
  fit.checkSums();
  fit.meanSquaresOf(fit.sums.positions());
  return fit;
}

int64_t RowFit::bytes(int64_t rows, int64_t columns, int64_t features) {
  int64_t sum = RowStatistics::bytes(rows, columns);
  if (__builtin_add_overflow(sum, packedBytes(STEM_F32, features, columns),
                             &sum) ||
      __builtin_add_overflow(sum, 4 * columns * int64_t(sizeof(float)), &sum))
    fail("a row fit of {} ids x {} dimensions has no size", rows, columns);
  return sum;
}

int64_t RowFit::fitBytes(int64_t columns, int64_t features) {
  // The regression's sums, its blocks of inputs and its coefficients.
  checkedSize("a row fit", {features, columns, readRows, 16});
  int64_t inputs = features + 1, sum = 0;
  int64_t numbers = readRows * (features + inputs + columns) + inputs * columns;
  if (__builtin_add_overflow(GramSums::bytes(inputs, columns),
                             numbers * int64_t(sizeof(float)), &sum))
    fail("a row fit of {} features x {} dimensions has no size", features,
         columns);
  return sum;
}

std::span<const float> RowFit::table() const {
  return {sums.sums, size_t(3 * sums.rows() * columns())};
}

void RowFit::moveTo(const float *copy) {
  sums.sums = const_cast<float *>(copy); // fitted: only read from here on
  sums.memory = Arena();
}

void RowFit::setShrinkage(double shrinkage) {
  if (!(shrinkage >= 0) || std::isinf(shrinkage))
    fail("{}: k is {}: wanted 0 or more", sums.name(), shrinkage);
  k = shrinkage;
}

void RowFit::checkSums() const {
  int64_t width = columns();
  parallelFor(context(), tasksOf(sums.rows(), taskRows), [&](int64_t task) {
    int64_t end = std::min(sums.rows(), (task + 1) * taskRows) * width;
    for (int64_t i = task * taskRows * width; i < end; ++i)
      if (!std::isfinite(sums.gateSquares()[i]) ||
          !std::isfinite(sums.gatedUps()[i]) || !std::isfinite(sums.ups()[i]))
        fail("{}: the sums of {} hold NaN or infinity (dimension {}): a gate "
             "or an up-projection is not finite or too large for f32. "
             "Evaluate the model on this text first, or leave this layer dense",
             sums.name(), features ? sums.rowName(i / width) : "all ids",
             range().first + i % width);
  });
}

/// ḡ² from the G of all rows.
void RowFit::meanSquaresOf(int64_t count) {
  int64_t width = columns();
  parallelFor(context(), tasksOf(width, taskColumns), [&](int64_t task) {
    int64_t first = task * taskColumns;
    int64_t end = std::min(first + taskColumns, width);
    double totals[taskColumns] = {};
    for (int64_t row = 0; row < sums.rows(); ++row)
      for (int64_t c = first; c < end; ++c)
        totals[c - first] += sums.gateSquares()[row * width + c];
    for (int64_t c = first; c < end; ++c)
      meanSquares[c] = float(totals[c - first] / double(count));
  });
}

/// Weights n enter as √n on both sides: Σ n x xᵀ = Σ (√n x)(√n x)ᵀ, and
/// √n x times S / √n is x Sᵀ.
void RowFit::regress(const FeatureReader &read, double ridge) {
  int64_t width = columns(), inputs = features + 1;
  GramSums gram(context(), inputs, width);
  std::vector<float> block(readRows * features), x(readRows * inputs),
      y(readRows * width);
  for (int64_t first = 0; first < sums.rows(); first += readRows) {
    int64_t count = std::min(readRows, sums.rows() - first);
    read(first, count, block.data());
    int64_t used = 0;
    for (int64_t i = 0; i < count; ++i) {
      int64_t n = sums.rowCounts[first + i];
      if (n == 0)
        continue;
      float root = std::sqrt(float(n));
      for (int64_t j = 0; j < features; ++j)
        x[used * inputs + j] = root * block[i * features + j];
      x[used * inputs + features] = root;
      const float *up = sums.ups() + (first + i) * width;
      for (int64_t c = 0; c < width; ++c)
        y[used * width + c] = up[c] / root;
      ++used;
    }
    gram.add(x.data(), y.data(), used);
  }
  gram.finish();
  checkFinite(sums.name(), "features and up-projections", gram.gram(),
              gram.cross(), inputs, width);
  SpdFactor factor(gram.gram(), inputs);
  if (!factor.factor(context(), ridge))
    fail("{}: the regression of the rows' prior from {} features of {} ids is "
         "not determined with a ridge of {:g}: choose a larger one",
         sums.name(), features, gram.positions(), ridge);
  Arena coefficients(
      checkedSize("a row fit", {inputs, width, int64_t(sizeof(float))}),
      "the coefficients of the rows' prior");
  float *rows = static_cast<float *>(coefficients.data());
  factor.solveTransposed(context(), gram.cross(), width, rows);
  weights = Arena(packedBytes(products, features, width),
                  "the coefficients of the rows' prior");
  packWeight({weights.data(), products, features, width}, 0, width,
             {rows, STEM_F32, inputs});
  constant.resize(width);
  for (int64_t c = 0; c < width; ++c)
    constant[c] = rows[c * inputs + features];
}

/// The regression alone, without slope and offset.
void RowFit::predict(const float *rows, int64_t count, float *out,
                     int64_t stride) const {
  int64_t width = columns();
  parallelFor(context(), tasksOf(count, taskRows), [&](int64_t task) {
    int64_t first = task * taskRows;
    int64_t taken = std::min(taskRows, count - first);
    const void *inputs = rows + first * features;
    std::vector<uint16_t> rounded;
    if (products == STEM_BF16) {
      rounded.resize(taken * features);
      std::transform(rows + first * features, rows + (first + taken) * features,
                     rounded.begin(), roundToBF16);
      inputs = rounded.data();
    }
    stem_packed_matmul(context(), inputs, features, weights.data(), products,
                       features, width, 0, 0, out + first * stride, stride,
                       taken, features, width, /*accumulate=*/0);
    for (int64_t i = first; i < first + taken; ++i)
      for (int64_t c = 0; c < width; ++c)
        out[i * stride + c] += constant[c];
  });
}

/// From here on S holds p.
void RowFit::predictAll(const FeatureReader &read) {
  std::vector<float> block(readRows * features);
  for (int64_t first = 0; first < sums.rows(); first += readRows) {
    int64_t count = std::min(readRows, sums.rows() - first);
    read(first, count, block.data());
    predict(block.data(), count, sums.matrix(2) + first * columns(), columns());
  }
}

/// The slope and offset that minimise Σ G (slope · p + offset − H / G)² in each
/// dimension. A prediction that does not vary keeps the slope 1, and a
/// dimension whose gate never opened its prediction.
void RowFit::correct() {
  int64_t width = columns();
  slope.assign(width, 1);
  offset.assign(width, 0);
  float *priors = sums.matrix(2);
  parallelFor(context(), tasksOf(width, taskColumns), [&](int64_t task) {
    int64_t begin = task * taskColumns;
    int64_t end = std::min(begin + taskColumns, width);
    struct Moments {
      double g = 0, gp = 0, gpp = 0, h = 0, hp = 0;
    } moments[taskColumns];
    for (int64_t row = 0; row < sums.rows(); ++row)
      for (int64_t c = begin; c < end; ++c) {
        double g = sums.gateSquares()[row * width + c];
        double h = sums.gatedUps()[row * width + c];
        double p = priors[row * width + c];
        Moments &sum = moments[c - begin];
        sum.g += g;
        sum.gp += g * p;
        sum.gpp += g * p * p;
        sum.h += h;
        sum.hp += h * p;
      }
    for (int64_t c = begin; c < end; ++c) {
      const Moments &sum = moments[c - begin];
      if (sum.g <= 0)
        continue;
      double spread = sum.gpp - sum.gp * sum.gp / sum.g;
      if (spread > 1e-12 * sum.gpp)
        slope[c] = float(
            std::clamp((sum.hp - sum.gp * sum.h / sum.g) / spread, 0.0, 2.0));
      offset[c] = float((sum.h - slope[c] * sum.gp) / sum.g);
    }
    for (int64_t row = 0; row < sums.rows(); ++row)
      for (int64_t c = begin; c < end; ++c) {
        float &p = priors[row * width + c];
        p = slope[c] * p + offset[c];
      }
  });
}

void RowFit::prior(const float *rows, int64_t count, float *out) const {
  int64_t width = columns();
  if (count < 0 || (count > 0 && (!out || (features > 0 && !rows))))
    fail("{}: priors of {} ids, wanted a count of at least 0, the features and "
         "a place for the rows",
         sums.name(), count);
  int64_t stride = range().width;
  out += range().first;
  if (features == 0) {
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(priors(), width, out + i * stride);
    return;
  }
  predict(rows, count, out, stride);
  parallelFor(context(), tasksOf(count, taskRows), [&](int64_t task) {
    int64_t end = std::min(count, (task + 1) * taskRows);
    for (int64_t i = task * taskRows; i < end; ++i) {
      float *row = out + i * stride;
      for (int64_t c = 0; c < width; ++c)
        row[c] = slope[c] * row[c] + offset[c];
      applyBlend(0, width, row);
    }
  });
}

void RowFit::blend(std::span<const double> errors) {
  int64_t width = columns();
  if (int64_t(errors.size()) != width)
    fail("{}: errors of {} dimensions, wanted {}", sums.name(), errors.size(),
         width);
  if (features == 0)
    return;
  blendScale.assign(width, 1);
  blendShift.assign(width, 0);
  parallelFor(context(), tasksOf(width, taskColumns), [&](int64_t task) {
    int64_t first = task * taskColumns;
    blendColumns(first, std::min(taskColumns, width - first), errors);
  });
}

void RowFit::blendColumns(int64_t first, int64_t count,
                          std::span<const double> errors) {
  double squares[taskColumns] = {}, gates[taskColumns] = {},
         signs[taskColumns] = {};
  float row[taskColumns];
  for (int64_t id = 0; id < sums.rows(); ++id) {
    int32_t index = int32_t(id);
    RowPositions position{.index = {&index, 1}};
    shrunkRow(position, 0, first, count, k, row);
    for (int64_t c = 0; c < count; ++c) {
      double g = sums.gateSquares()[id * columns() + first + c];
      gates[c] += g;
      squares[c] += g * row[c] * row[c];
      signs[c] += sums.gatedUps()[id * columns() + first + c];
    }
  }
  for (int64_t c = 0; c < count; ++c) {
    double s2 = gates[c] > 0 ? squares[c] / gates[c] : 0;
    if (!(s2 > 0))
      continue;
    double x = std::min(errors[first + c] / s2, 3.0);
    double w = x * x / (1 + x * x);
    blendScale[first + c] = float(1 - w);
    blendShift[first + c] = float(std::copysign(w * std::sqrt(s2), signs[c]));
  }
}

void RowFit::applyBlend(int64_t first, int64_t count, float *row) const {
  if (blendScale.empty())
    return;
  for (int64_t c = 0; c < count; ++c)
    row[c] = blendScale[first + c] * row[c] + blendShift[first + c];
}

void RowFit::checkIndex(std::span<const int32_t> index, int32_t least) const {
  // Of meanRow the ids do not matter.
  int64_t end = features == 0 ? INT32_MAX : sums.rows();
  for (size_t i = 0; i < index.size(); ++i)
    if (index[i] < least || index[i] >= end)
      fail("{}: position {} has row {}: wanted {} to {}", sums.name(), i,
           index[i], least, end - 1);
}

void RowFit::checkPositions(const RowPositions &positions) const {
  bool leavesOut = !positions.counted.empty();
  if (leavesOut && positions.counted.size() != positions.index.size())
    fail("{}: {} positions with {} flags that say which were counted",
         sums.name(), positions.index.size(), positions.counted.size());
}

void RowFit::row(const RowPositions &positions, int64_t i, int64_t first,
                 int64_t count, double shrinkage, float *out) const {
  shrunkRow(positions, i, first, count, shrinkage, out);
  applyBlend(first, count, out);
}

void RowFit::shrunkRow(const RowPositions &positions, int64_t i, int64_t first,
                       int64_t count, double shrinkage, float *out) const {
  // A sum less one of its terms is off by the sum's rounding.
  constexpr float rounding = 0x1p-20f;
  int64_t width = columns();
  int64_t at = (features == 0 ? 0 : positions.index[i] * width) + first;
  const float *squares = sums.gateSquares() + at;
  const float *gatedUps = sums.gatedUps() + at;
  const float *p = priors() + at;
  const float *mean = meanSquares.data() + first;
  float strength = float(shrinkage);
  auto shrink = [&](float g, float h, int64_t c) {
    float weight = g + strength * mean[c];
    return weight > 0 ? (h + strength * mean[c] * p[c]) / weight : p[c];
  };
  if (positions.counted.empty() || !positions.counted[i]) {
    if (features == 0) // shrunk to itself, but for the rounding
      std::copy_n(p, count, out);
    for (int64_t c = 0; features > 0 && c < count; ++c)
      out[c] = shrink(squares[c], gatedUps[c], c);
    return;
  }
  int64_t from = i * range().width + range().first + first;
  const float *gate = positions.gate + from, *up = positions.up + from;
  for (int64_t c = 0; c < count; ++c) {
    float own = gate[c] * gate[c];
    float g = squares[c] - own;
    float h = gatedUps[c] - own * up[c];
    bool isRounding = g <= rounding * squares[c];
    out[c] = shrink(isRounding ? 0 : g, isRounding ? 0 : h, c);
  }
}

void RowFit::rows(std::span<const int32_t> index, float *out) const {
  apply({.index = index}, {.rows = out});
}

void RowFit::apply(const RowPositions &positions,
                   const RowOutputs &outputs) const {
  checkIndex(positions.index, /*least=*/0);
  checkPositions(positions);
  bool needsGate = outputs.gated || outputs.error || !positions.counted.empty();
  bool needsUp = outputs.error || !positions.counted.empty();
  if (!positions.index.empty() &&
      ((needsGate && !positions.gate) || (needsUp && !positions.up)))
    fail("{}: what is wanted of the rows needs the gate{} of {} positions",
         sums.name(), needsUp ? " and the up-projection" : "",
         positions.index.size());
  int64_t count = int64_t(positions.index.size()), width = columns();
  parallelFor(context(), tasksOf(count, taskRows), [&](int64_t task) {
    constexpr int64_t piece = 512;
    float row[piece];
    int64_t end = std::min(count, (task + 1) * taskRows);
    for (int64_t i = task * taskRows; i < end; ++i)
      for (int64_t first = 0; first < width; first += piece) {
        int64_t taken = std::min(piece, width - first);
        int64_t at = i * range().width + range().first + first;
        this->row(positions, i, first, taken, k, row);
        if (outputs.rows)
          std::copy_n(row, taken, outputs.rows + at);
        for (int64_t c = 0; outputs.gated && c < taken; ++c)
          outputs.gated[at + c] = positions.gate[at + c] * row[c];
        for (int64_t c = 0; outputs.error && c < taken; ++c)
          outputs.error[at + c] =
              positions.gate[at + c] * (positions.up[at + c] - row[c]);
      }
  });
}
