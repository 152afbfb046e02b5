//===- Calibrator.cpp - Tables from forward passes ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calibrator.h"

#include "EngineMemory.h"

#include "stem/Calibration/LowRankFit.h"
#include "stem/Calibration/NormalEquations.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace stem;

namespace {

/// The hidden states of a stream between two layers.
struct Part {
  Part(const TokenStream &stream, int64_t width)
      : stream(stream), width(width),
        memory(std::max<int64_t>(stream.places(), 1) * width *
                   int64_t(sizeof(float)),
               "hidden states") {}

  float *at(const TokenStream::Step &step) {
    return static_cast<float *>(memory.data()) + step.begin * width;
  }
  std::span<const int32_t> rows(const TokenStream::Step &step) const {
    return std::span(stream.rows).subspan(step.begin, step.count);
  }
  std::span<const uint8_t> counted(const TokenStream::Step &step) const {
    return std::span(stream.counted).subspan(step.begin, step.count);
  }

  const TokenStream &stream;
  int64_t width;
  Arena memory;
};

/// Moves the rows that count to the front; gives their number.
int64_t keepCounted(std::span<const uint8_t> counted, float *matrix,
                    int64_t width) {
  int64_t kept = 0;
  for (size_t i = 0; i < counted.size(); ++i) {
    if (!counted[i])
      continue;
    float *from = matrix + static_cast<int64_t>(i) * width;
    std::copy(from, from + width, matrix + kept * width);
    ++kept;
  }
  return kept;
}

double squaredNorm(const float *values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += double(values[i]) * values[i];
  return sum;
}

double squaredDistance(const float *a, const float *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  return sum;
}

/// The prior for every id, the fitted row for those that were seen.
class CalibratedRows : public TableRows {
public:
  CalibratedRows(const RowFit &fit, const NormedEmbeddings &embeddings,
                 std::span<const int32_t> ids, int64_t hidden)
      : fit(fit), embeddings(embeddings), ids(ids), hidden(hidden) {}

  void fill(uint64_t first, uint64_t count, float *out) override {
    features.resize(count * static_cast<uint64_t>(hidden));
    embeddings.read(first, count, features.data());
    fit.prior(features.data(), static_cast<int64_t>(count), out);
    auto begin =
        std::lower_bound(ids.begin(), ids.end(), static_cast<int32_t>(first));
    auto end =
        std::lower_bound(begin, ids.end(), static_cast<int32_t>(first + count));
    std::vector<int32_t> seen(static_cast<size_t>(end - begin));
    std::iota(seen.begin(), seen.end(),
              static_cast<int32_t>(begin - ids.begin()));
    const size_t width = static_cast<size_t>(fit.columns());
    fitted.resize(seen.size() * width);
    fit.rows(seen, fitted.data());
    for (size_t i = 0; i < seen.size(); ++i)
      std::copy_n(fitted.data() + i * width, width,
                  out + (static_cast<uint64_t>(begin[i]) - first) * width);
  }

private:
  const RowFit &fit;
  const NormedEmbeddings &embeddings;
  std::span<const int32_t> ids;
  int64_t hidden;
  std::vector<float> features, fitted;
};

} // namespace

struct Calibrator::Impl {
  Impl(const Checkpoint &checkpoint, LayerRunner &runner,
       const CalibrationText &text, const CalibrationOptions &options);

  void readEmbeddings();
  uint64_t layerCount() const { return checkpoint.config().layerCount(); }
  void embed(Part &part);
  void attention(Part &part, uint64_t layer);
  void feedForward(Part &part, uint64_t layer);
  double meanLoss(Part &part);
  void taps(Part &part, const TokenStream::Step &step, uint64_t layer);
  void applyRows(const RowFit &rows, const RowPositions &positions);
  void fitLowRank(const RowFit &rows, Part &part, uint64_t layer);
  std::vector<float> readDown(uint64_t layer) const;
  RowStatistics statistics(Part &part, uint64_t layer);
  RowFit fitRows(Part &part, uint64_t layer);
  void chooseShrinkage(RowFit &rows, Part &part, uint64_t layer);
  RowPositions positions(const Part &part, const TokenStream::Step &step,
                         bool leaveOneOut) const;
  void propagate(const RowFit &rows, Part &part, uint64_t layer,
                 bool leaveOneOut);
  void convertLayer(uint64_t layer, std::vector<Part *> parts,
                    const std::function<void(const ConvertedLayer &)> &onLayer);
  std::vector<float> refitDown(const RowFit &rows, Part &fit, Part &choose,
                               CalibratedLayer &figures);
  void chooseRidge(NormalEquations &equations, const RowFit &rows, Part &choose,
                   CalibratedLayer &figures, std::vector<float> &update);

  const Checkpoint &checkpoint;
  LayerRunner &runner;
  const CalibrationText &text;
  CalibrationOptions options;
  int64_t d, f;
  /// Of the text's ids, as they are in the model.
  Arena embeddings;
  /// Of the layer in work: up is what it leaves of the up-projection.
  std::optional<LowRankTerm> lowRank;
  /// Of one step: hidden states, targets and what enters the FFN (places x d);
  /// gate, up, g ⊙ (U + M h), g ⊙ (u − U − M h) and M h (places x F).
  std::vector<float> hidden, target, normed, gate, up, gated, error, term;
};

Calibrator::Impl::Impl(const Checkpoint &checkpoint, LayerRunner &runner,
                       const CalibrationText &text,
                       const CalibrationOptions &options)
    : checkpoint(checkpoint), runner(runner), text(text), options(options),
      d(static_cast<int64_t>(checkpoint.config().hiddenSize)),
      f(static_cast<int64_t>(checkpoint.config().intermediateSize)),
      embeddings(static_cast<int64_t>(text.rowIds.size()) * d *
                     int64_t(sizeof(float)),
                 "the embeddings of the text's ids") {
  readEmbeddings();
  for (std::vector<float> *buffer : {&hidden, &target, &normed})
    buffer->resize(static_cast<size_t>(runner.maxStepTokens() * d));
  for (std::vector<float> *buffer : {&gate, &up, &gated, &error, &term})
    buffer->resize(static_cast<size_t>(runner.maxStepTokens() * f));
}

void Calibrator::Impl::readEmbeddings() {
  const std::string &name = checkpoint.weights().embedding;
  float *out = static_cast<float *>(embeddings.data());
  const std::vector<int32_t> &ids = text.rowIds;
  for (size_t begin = 0, end; begin < ids.size(); begin = end) {
    for (end = begin + 1; end < ids.size() && ids[end] == ids[end - 1] + 1;)
      ++end;
    checkpoint.tensors().readF32(name, static_cast<uint64_t>(ids[begin]),
                                 end - begin, out + begin * d);
  }
  checkpoint.tensors().release(name);
}

//===----------------------------------------------------------------------===//
// Whole layers
//===----------------------------------------------------------------------===//

void Calibrator::Impl::embed(Part &part) {
  for (const TokenStream::Step &step : part.stream.steps)
    runner.embed(part.stream.step(step).ids, part.at(step));
}

void Calibrator::Impl::attention(Part &part, uint64_t layer) {
  for (const TokenStream::Step &step : part.stream.steps) {
    runner.attention(layer, part.stream.step(step), part.at(step),
                     hidden.data());
    std::copy_n(hidden.data(), step.count * d, part.at(step));
  }
}

void Calibrator::Impl::feedForward(Part &part, uint64_t layer) {
  for (const TokenStream::Step &step : part.stream.steps) {
    runner.feedForward(layer, part.at(step), step.count, hidden.data());
    std::copy_n(hidden.data(), step.count * d, part.at(step));
  }
}

double Calibrator::Impl::meanLoss(Part &part) {
  std::vector<float> losses(static_cast<size_t>(runner.maxStepTokens()));
  double sum = 0;
  int64_t scored = 0;
  for (const TokenStream::Step &step : part.stream.steps) {
    std::span labels =
        std::span(part.stream.labels).subspan(step.begin, step.count);
    runner.score(part.at(step), labels, losses.data());
    for (int64_t i = 0; i < step.count; ++i) {
      if (labels[i] == -100)
        continue;
      sum += losses[i];
      ++scored;
    }
  }
  return sum / static_cast<double>(scored);
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// With a low-rank term M, up becomes u − M h: everything else sees the part
/// that is for the rows.
void Calibrator::Impl::taps(Part &part, const TokenStream::Step &step,
                            uint64_t layer) {
  runner.taps(layer, part.at(step), step.count, normed.data(), gate.data(),
              up.data());
  if (!lowRank)
    return;
  lowRank->apply(normed.data(), step.count, term.data());
  for (int64_t i = 0; i < step.count * f; ++i)
    up[i] -= term[i];
}

void Calibrator::Impl::applyRows(const RowFit &rows,
                                 const RowPositions &positions) {
  rows.apply(positions, {nullptr, gated.data(), error.data()});
  if (!lowRank)
    return;
  int64_t size = static_cast<int64_t>(positions.index.size()) * f;
  for (int64_t i = 0; i < size; ++i)
    gated[i] += gate[i] * term[i];
}

/// Fits M to what leave-one-out rows leave of the up-projection.
void Calibrator::Impl::fitLowRank(const RowFit &rows, Part &part,
                                  uint64_t layer) {
  LowRankFit fit(runner.context(), f, d, fmt::format("layer {}", layer));
  for (const TokenStream::Step &step : part.stream.steps) {
    taps(part, step, layer);
    rows.apply(positions(part, step, /*leaveOneOut=*/true),
               {gated.data(), nullptr, nullptr});
    for (int64_t i = 0; i < step.count * f; ++i)
      error[i] = up[i] - gated[i];
    auto counted = part.counted(step);
    int64_t kept = keepCounted(counted, error.data(), f);
    keepCounted(counted, normed.data(), d);
    keepCounted(counted, gate.data(), f);
    fit.add(error.data(), normed.data(), gate.data(), kept);
  }
  std::vector<float> down = readDown(layer), norms(static_cast<size_t>(f));
  for (size_t i = 0; i < down.size(); ++i)
    norms[i % static_cast<size_t>(f)] += down[i] * down[i];
  for (float &norm : norms)
    norm = std::sqrt(norm);
  fit.solve(norms);
  std::vector<float> a(static_cast<size_t>(f * options.rank));
  std::vector<float> b(static_cast<size_t>(options.rank * d));
  fit.factors(options.rank, a.data(), b.data());
  lowRank.emplace(runner.context(), f, d, options.rank, std::move(a),
                  std::move(b));
}

std::vector<float> Calibrator::Impl::readDown(uint64_t layer) const {
  std::vector<float> down(static_cast<size_t>(d * f));
  checkpoint.tensors().readF32(checkpoint.weights().layers[layer].downProj, 0,
                               static_cast<uint64_t>(d), down.data());
  return down;
}

RowStatistics Calibrator::Impl::statistics(Part &part, uint64_t layer) {
  RowStatistics sums(runner.context(), static_cast<int64_t>(text.rowIds.size()),
                     f, fmt::format("layer {}", layer));
  std::vector<int32_t> index;
  for (const TokenStream::Step &step : part.stream.steps) {
    taps(part, step, layer);
    auto rows = part.rows(step);
    auto counted = part.counted(step);
    index.assign(rows.begin(), rows.end());
    for (size_t i = 0; i < index.size(); ++i)
      if (!counted[i])
        index[i] = -1;
    sums.add(index, gate.data(), up.data());
  }
  return sums;
}

RowFit Calibrator::Impl::fitRows(Part &part, uint64_t layer) {
  NormedEmbeddings norm(checkpoint, layer);
  auto read = [&](int64_t first, int64_t count, float *out) {
    std::copy_n(static_cast<float *>(embeddings.data()) + first * d, count * d,
                out);
    norm.normalize(out, static_cast<uint64_t>(count));
  };
  return RowFit::perId(statistics(part, layer), d, read);
}

RowPositions Calibrator::Impl::positions(const Part &part,
                                         const TokenStream::Step &step,
                                         bool leaveOneOut) const {
  RowPositions result;
  result.index = part.rows(step);
  result.gate = gate.data();
  result.up = up.data();
  if (leaveOneOut)
    result.counted = part.counted(step);
  return result;
}

/// By the weighted error of the rows on positions that they were not fitted
/// to.
void Calibrator::Impl::chooseShrinkage(RowFit &rows, Part &part,
                                       uint64_t layer) {
  RowErrors errors(rows, options.shrinkages);
  for (const TokenStream::Step &step : part.stream.steps) {
    taps(part, step, layer);
    auto counted = part.counted(step);
    std::vector<int32_t> index;
    for (int64_t i = 0; i < step.count; ++i)
      if (counted[i])
        index.push_back(part.rows(step)[i]);
    keepCounted(counted, gate.data(), f);
    keepCounted(counted, up.data(), f);
    errors.add({index, gate.data(), up.data(), {}});
  }
  std::vector<double> totals = errors.totals();
  rows.setShrinkage(
      options.shrinkages[std::min_element(totals.begin(), totals.end()) -
                         totals.begin()]);
}

/// The layer's FFN with rows in place of W_up.
void Calibrator::Impl::propagate(const RowFit &rows, Part &part, uint64_t layer,
                                 bool leaveOneOut) {
  for (const TokenStream::Step &step : part.stream.steps) {
    taps(part, step, layer);
    applyRows(rows, positions(part, step, leaveOneOut));
    runner.project(layer, part.at(step), gated.data(), step.count,
                   hidden.data());
    std::copy_n(hidden.data(), step.count * d, part.at(step));
  }
}

//===----------------------------------------------------------------------===//
// W_down
//===----------------------------------------------------------------------===//

/// The ridge whose update leaves the least of W_down (g ⊙ (u − U)) on
/// positions that it was not fitted to; `update` stays 0 where none helps.
void Calibrator::Impl::chooseRidge(NormalEquations &equations,
                                   const RowFit &rows, Part &choose,
                                   CalibratedLayer &figures,
                                   std::vector<float> &update) {
  uint64_t layer = figures.layer;
  std::vector<std::vector<float>> products, targets;
  double outputs = 0, before = 0;
  for (const TokenStream::Step &step : choose.stream.steps) {
    taps(choose, step, layer);
    applyRows(rows, positions(choose, step, false));
    runner.product(layer, error.data(), step.count, target.data());
    runner.product(layer, gated.data(), step.count, hidden.data());
    auto counted = choose.counted(step);
    for (int64_t i = 0; i < step.count * d; ++i)
      hidden[i] = counted[i / d] ? hidden[i] + target[i] : 0;
    outputs += squaredNorm(hidden.data(), step.count * d);
    for (int64_t i = 0; i < step.count * f; ++i)
      gated[i] = counted[i / f] ? gated[i] : 0;
    for (int64_t i = 0; i < step.count * d; ++i)
      target[i] = counted[i / d] ? target[i] : 0;
    before += squaredNorm(target.data(), step.count * d);
    products.emplace_back(gated.begin(), gated.begin() + step.count * f);
    targets.emplace_back(target.begin(), target.begin() + step.count * d);
  }
  double best = before;
  std::vector<float> candidate(update.size());
  for (double ridge : options.ridges) {
    equations.solve(ridge, candidate.data());
    runner.replaceDown(layer, candidate);
    double after = 0;
    for (size_t i = 0; i < products.size(); ++i) {
      int64_t count = choose.stream.steps[i].count;
      runner.product(layer, products[i].data(), count, hidden.data());
      after += squaredDistance(hidden.data(), targets[i].data(), count * d);
    }
    if (after < best) {
      best = after;
      figures.ridge = ridge;
      update = candidate;
    }
  }
  runner.restoreDown(layer);
  // A layer that puts out nothing loses nothing.
  figures.errorBefore = outputs > 0 ? before / outputs : 0;
  figures.errorAfter = outputs > 0 ? best / outputs : 0;
}

/// W_down plus the ridge regression from g ⊙ U to what the rows lack.
std::vector<float> Calibrator::Impl::refitDown(const RowFit &rows, Part &fit,
                                               Part &choose,
                                               CalibratedLayer &figures) {
  uint64_t layer = figures.layer;
  NormalEquations equations(runner.context(), f, d,
                            fmt::format("layer {}", layer));
  for (const TokenStream::Step &step : fit.stream.steps) {
    taps(fit, step, layer);
    applyRows(rows, positions(fit, step, /*leaveOneOut=*/true));
    runner.product(layer, error.data(), step.count, target.data());
    auto counted = fit.counted(step);
    int64_t kept = keepCounted(counted, gated.data(), f);
    keepCounted(counted, target.data(), d);
    equations.add(gated.data(), target.data(), kept);
  }
  std::vector<float> update(static_cast<size_t>(d * f));
  chooseRidge(equations, rows, choose, figures, update);
  std::vector<float> down = readDown(layer);
  for (size_t i = 0; i < down.size(); ++i)
    down[i] += update[i];
  return down;
}

void Calibrator::Impl::convertLayer(
    uint64_t layer, std::vector<Part *> parts,
    const std::function<void(const ConvertedLayer &)> &onLayer) {
  Part &fit = *parts[0], &choose = *parts[1];
  CalibratedLayer figures;
  figures.layer = layer;
  lowRank.reset();
  RowFit rows = fitRows(fit, layer);
  if (options.rank > 0) {
    fitLowRank(rows, fit, layer);
    rows = fitRows(fit, layer);
  }
  chooseShrinkage(rows, choose, layer);
  figures.shrinkage = rows.shrinkage();
  std::vector<float> down = refitDown(rows, fit, choose, figures);
  runner.replaceDown(layer, down);
  for (Part *part : parts)
    propagate(rows, *part, layer, /*leaveOneOut=*/part == &fit);
  // No pass comes back to this layer.
  runner.restoreDown(layer);
  NormedEmbeddings embeddings(checkpoint, layer);
  CalibratedRows table(rows, embeddings, text.rowIds, d);
  onLayer({figures, table, down, lowRank ? &*lowRank : nullptr});
}

//===----------------------------------------------------------------------===//
// The interface
//===----------------------------------------------------------------------===//

Calibrator::Calibrator(const Checkpoint &checkpoint, LayerRunner &runner,
                       const CalibrationText &text,
                       const CalibrationOptions &options)
    : impl(std::make_unique<Impl>(checkpoint, runner, text, options)) {}

Calibrator::~Calibrator() = default;

int64_t CalibrationMemory::total() const {
  return sumOfBytes({weights, states, statistics, refit, steps});
}

CalibrationMemory Calibrator::plan(const ModelConfig &config,
                                   const LayerRunner &runner,
                                   const CalibrationText &text, int64_t rank) {
  const int64_t number = sizeof(float);
  int64_t d = static_cast<int64_t>(config.hiddenSize);
  int64_t f = static_cast<int64_t>(config.intermediateSize);
  int64_t ids = static_cast<int64_t>(text.rowIds.size());
  int64_t fit = text.fit.places(), choose = text.choose.places();
  const MemoryPlan &runs = runner.report().plan;
  CalibrationMemory memory;
  memory.weights = runs.weights;
  // `choose` is there twice while sensitivities are measured, `check` later.
  memory.states =
      (fit + choose + std::max(choose, text.check.places())) * d * number;
  memory.statistics = sumOfBytes(
      {RowFit::bytes(ids, f, d), RowFit::fitBytes(f, d), ids * d * number});
  if (rank > 0)
    memory.statistics = sumOfBytes({memory.statistics, LowRankFit::bytes(f, d),
                                    LowRankFit::solutionBytes(f, d)});
  // Products and targets of `choose`; the best update, the one that is tried,
  // W_down with it, and the same packed.
  memory.refit = sumOfBytes({NormalEquations::bytes(f, d),
                             choose * (f + d) * number, 4 * d * f * number});
  memory.steps =
      sumOfBytes({runs.arena, runs.cache,
                  runner.maxStepTokens() * (3 * d + 5 * f) * number});
  return memory;
}

Calibrator::Sensitivities
Calibrator::measureSensitivities(const std::function<void(double)> &done) {
  Part fit(impl->text.fit, impl->d), choose(impl->text.choose, impl->d);
  Part changed(impl->text.choose, impl->d);
  impl->embed(fit);
  impl->embed(choose);
  impl->lowRank.reset();
  Sensitivities result;
  for (uint64_t layer = 0; layer < impl->layerCount(); ++layer) {
    impl->attention(fit, layer);
    impl->attention(choose, layer);
    RowFit rows = impl->fitRows(fit, layer);
    std::copy_n(static_cast<float *>(choose.memory.data()),
                choose.stream.places() * impl->d,
                static_cast<float *>(changed.memory.data()));
    impl->propagate(rows, changed, layer, /*leaveOneOut=*/false);
    for (uint64_t above = layer + 1; above < impl->layerCount(); ++above) {
      impl->attention(changed, above);
      impl->feedForward(changed, above);
    }
    result.layers.push_back(impl->meanLoss(changed));
    impl->feedForward(fit, layer);
    impl->feedForward(choose, layer);
    done(static_cast<double>(layer + 1) /
         static_cast<double>(impl->layerCount()));
  }
  result.base = impl->meanLoss(choose);
  for (double &loss : result.layers)
    loss -= result.base;
  return result;
}

double
Calibrator::convert(std::span<const uint64_t> layers,
                    const std::function<void(const ConvertedLayer &)> &onLayer,
                    const std::function<void(double)> &done) {
  Part fit(impl->text.fit, impl->d), choose(impl->text.choose, impl->d);
  Part check(impl->text.check, impl->d);
  std::vector<Part *> parts = {&fit, &choose, &check};
  for (Part *part : parts)
    impl->embed(*part);
  for (uint64_t layer = 0; layer < impl->layerCount(); ++layer) {
    bool isConverted = std::binary_search(layers.begin(), layers.end(), layer);
    for (Part *part : parts) {
      impl->attention(*part, layer);
      if (!isConverted)
        impl->feedForward(*part, layer);
    }
    if (isConverted)
      impl->convertLayer(layer, parts, onLayer);
    done(static_cast<double>(layer + 1) /
         static_cast<double>(impl->layerCount()));
  }
  return impl->meanLoss(check);
}

double Calibrator::denseLoss() {
  Part check(impl->text.check, impl->d);
  impl->embed(check);
  for (uint64_t layer = 0; layer < impl->layerCount(); ++layer) {
    impl->attention(check, layer);
    impl->feedForward(check, layer);
  }
  return impl->meanLoss(check);
}
