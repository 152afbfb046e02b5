//===- LayerFitter.cpp - The table of one layer ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerFitter.h"

#include "DownRefit.h"
#include "EngineMemory.h"
#include "TableRows.h"
#include "stem/Runtime/Parallel.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace stem;

namespace {

/// Copies the rows that count; gives their number. `to` may be `from`.
int64_t copyCounted(std::span<const uint8_t> counted, const float *from,
                    int64_t width, float *to) {
  int64_t kept = 0;
  for (size_t i = 0; i < counted.size(); ++i) {
    if (!counted[i])
      continue;
    const float *row = from + static_cast<int64_t>(i) * width;
    std::copy(row, row + width, to + kept * width);
    ++kept;
  }
  return kept;
}

} // namespace

/// With a low-rank term M, `up` is what it leaves of the up-projection.
struct LayerFitter::Layer {
  uint64_t number;
  const LayerFitOptions &options;
  const LowRankTerm *lowRank = nullptr;
  const HiddenStates *kept = nullptr; ///< the text whose taps are kept

  std::string name() const { return fmt::format("layer {}", number); }
};

LayerFitter::LayerFitter(const Checkpoint &checkpoint, LayerRunner &runner,
                         std::span<const int32_t> ids, RowParts parts)
    : checkpoint(checkpoint), runner(runner), ids(ids),
      d(static_cast<int64_t>(checkpoint.config().hiddenSize)),
      f(static_cast<int64_t>(checkpoint.config().intermediateSize)),
      parts(std::move(parts)),
      embeddings(static_cast<int64_t>(ids.size()) * d * int64_t(sizeof(float)),
                 "the embeddings of the text's ids") {
  if (this->parts.columns == 0)
    this->parts.columns = f;
  readEmbeddings();
  for (std::vector<float> *buffer : {&hidden, &target, &normed})
    buffer->resize(static_cast<size_t>(runner.maxStepTokens() * d));
  for (std::vector<float> *buffer : {&gate, &up, &gated, &error, &term})
    buffer->resize(static_cast<size_t>(runner.maxStepTokens() * f));
}

int64_t LayerFitter::stepBytes(const ModelConfig &config, int64_t stepTokens) {
  const int64_t d = static_cast<int64_t>(config.hiddenSize);
  const int64_t f = static_cast<int64_t>(config.intermediateSize);
  // One d: what a layer gives, of the caller.
  return stepTokens * (4 * d + 5 * f) * int64_t(sizeof(float));
}

int64_t LayerFitter::rowBytes(const ModelConfig &config, int64_t ids,
                              int64_t parts) {
  const int64_t d = static_cast<int64_t>(config.hiddenSize);
  const int64_t f = static_cast<int64_t>(config.intermediateSize);
  return sumOfBytes({RowFit::bytes(1, f, d),
                     parts * ids * int64_t(sizeof(int64_t)),
                     ids * d * int64_t(sizeof(float))});
}

int64_t LayerFitter::workBytes(const ModelConfig &config, int64_t rowFit,
                               int64_t rank, int64_t choose, int threads) {
  const int64_t number = sizeof(float);
  const int64_t d = static_cast<int64_t>(config.hiddenSize);
  const int64_t f = static_cast<int64_t>(config.intermediateSize);
  const int64_t solve = NormalEquations::solveBytes(f, threads);
  // Products and targets of `choose`; the best update, the one that is tried,
  // and two of them packed.
  const int64_t refit =
      sumOfBytes({NormalEquations::bytes(f, d), solve,
                  choose * (f + d) * number, 4 * d * f * number});
  if (rank == 0)
    return std::max(rowFit, refit);
  const int64_t lowRank =
      sumOfBytes({LowRankFit::bytes(f, d), LowRankFit::solutionBytes(f, d),
                  solve, 2 * d * f * number}); // W_down, read from its file
  // The term stays.
  return sumOfBytes(
      {std::max({rowFit, lowRank, refit}), LowRankTerm::bytes(f, d, rank)});
}

void LayerFitter::readEmbeddings() {
  const std::string &name = checkpoint.weights().embedding;
  float *out = static_cast<float *>(embeddings.data());
  for (size_t begin = 0, end; begin < ids.size(); begin = end) {
    for (end = begin + 1; end < ids.size() && ids[end] == ids[end - 1] + 1;)
      ++end;
    const uint64_t first = static_cast<uint64_t>(ids[begin]);
    checkpoint.tensors().readF32(name, first, end - begin, out + begin * d);
    checkpoint.tensors().release(name, first, end - begin);
  }
}

/// Of each element of so many rows.
template <typename Body>
void LayerFitter::forEach(int64_t count, int64_t width, const Body &body) {
  parallelFor(runner.context(), count, [&](int64_t row) {
    for (int64_t i = row * width; i < (row + 1) * width; ++i)
      body(i);
  });
}

TapRows LayerFitter::taps(const Layer &layer, const HiddenStates &states,
                          const TokenStream::Step &step) {
  KeptTaps *kept = &states == layer.kept ? &*keptTaps : nullptr;
  TapRows taps = {normed.data(), gate.data(), up.data()};
  if (kept)
    taps = kept->at(step, normed.data());
  if (!kept || !kept->take(step)) {
    runner.taps(layer.number, states.at(step), step.count, taps.hidden,
                taps.gate, taps.up);
    states.leave(step);
  }
  if (!layer.lowRank)
    return taps;
  layer.lowRank->apply(taps.hidden, step.count, term.data());
  forEach(step.count, f, [&](int64_t i) { up[i] = taps.up[i] - term[i]; });
  taps.up = up.data();
  return taps;
}

/// `gated` and `error` of the step.
void LayerFitter::applyRows(const Layer &layer, const LayerRows &rows,
                            const HiddenStates &states,
                            const TokenStream::Step &step, const TapRows &taps,
                            bool leaveOneOut) {
  RowPositions positions{states.rows(step), taps.gate, taps.up};
  if (leaveOneOut)
    positions.counted = states.counted(step);
  rows.apply(positions, {nullptr, gated.data(), error.data()});
  if (layer.lowRank)
    forEach(step.count, f,
            [&](int64_t i) { gated[i] += taps.gate[i] * term[i]; });
  keepMatrix(layer, positions);
}

/// `gated` alone: each row has to be whole before it is stored.
void LayerFitter::applyStored(const Layer &layer, const LayerRows &rows,
                              const HiddenStates &states,
                              const TokenStream::Step &step,
                              const TapRows &taps, const StoredRow &store) {
  const std::span<const int32_t> index = states.rows(step);
  rows.rows(index, error.data());
  parallelFor(runner.context(), step.count, [&](int64_t place) {
    const int64_t first = place * f;
    store(ids[static_cast<size_t>(index[static_cast<size_t>(place)])],
          {error.data() + first, static_cast<size_t>(f)});
    for (int64_t i = first; i < first + f; ++i)
      gated[i] = taps.gate[i] * (error[i] + (layer.lowRank ? term[i] : 0));
  });
  keepMatrix(layer, {index, taps.gate, taps.up});
}

/// Where the id keeps the matrix nothing is lost.
void LayerFitter::keepMatrix(const Layer &layer,
                             const RowPositions &positions) {
  const LayerFitOptions &options = layer.options;
  if (options.keepsMatrix.empty())
    return;
  for (size_t i = 0; i < positions.index.size(); ++i) {
    const bool isLeftOut = !positions.counted.empty() && positions.counted[i];
    if (!(isLeftOut ? options.keepsMatrixLeftOut
                    : options.keepsMatrix)[positions.index[i]])
      continue;
    const int64_t first = static_cast<int64_t>(i) * f;
    for (int64_t at = first; at < first + f; ++at) {
      gated[at] = positions.gate[at] *
                  (positions.up[at] + (layer.lowRank ? term[at] : 0));
      error[at] = 0;
    }
  }
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

RowStatistics LayerFitter::statistics(const Layer &layer,
                                      const HiddenStates &fit,
                                      ColumnRange range) {
  RowStatistics sums(runner.context(), static_cast<int64_t>(ids.size()), range,
                     layer.name(), std::move(spentRows));
  sums.nameRows(ids);
  std::vector<int32_t> index;
  for (const TokenStream::Step &step : fit.stream().steps) {
    const TapRows taps = this->taps(layer, fit, step);
    auto rows = fit.rows(step);
    auto counted = fit.counted(step);
    index.assign(rows.begin(), rows.end());
    for (size_t i = 0; i < index.size(); ++i)
      if (!counted[i])
        index[i] = -1;
    sums.add(index, taps.gate, taps.up);
  }
  return sums;
}

/// A pass over the text for each part.
LayerRows LayerFitter::fitRows(const Layer &layer, const HiddenStates &fit) {
  LayerRows rows;
  for (int64_t first = 0; first < f; first += parts.columns) {
    const int64_t count = std::min(parts.columns, f - first);
    RowFit part = fitPart(layer, statistics(layer, fit, {first, count, f}));
    rows.add(std::move(part), layer.options.isOneRow ? "" : parts.spillFolder);
  }
  return rows;
}

RowFit LayerFitter::fitPart(const Layer &layer, RowStatistics &&sums) {
  if (layer.options.isOneRow)
    return RowFit::meanRow(sums);
  NormedEmbeddings norm(checkpoint, layer.number);
  auto read = [&](int64_t first, int64_t count, float *out) {
    std::copy_n(static_cast<float *>(embeddings.data()) + first * d, count * d,
                out);
    norm.normalize(out, static_cast<uint64_t>(count));
  };
  return RowFit::perId(std::move(sums), d, read, /*ridge=*/1e-2,
                       runner.productType());
}

/// Fits M, of any rank, to what leave-one-out rows leave of the up-projection.
void LayerFitter::solveLowRank(const Layer &layer, const LayerRows &rows,
                               const HiddenStates &fit, LowRankFit &sums) {
  for (const TokenStream::Step &step : fit.stream().steps) {
    const TapRows taps = this->taps(layer, fit, step);
    auto counted = fit.counted(step);
    rows.apply({fit.rows(step), taps.gate, taps.up, counted},
               {gated.data(), nullptr, nullptr});
    forEach(step.count, f,
            [&](int64_t i) { error[i] = taps.up[i] - gated[i]; });
    int64_t kept = copyCounted(counted, error.data(), f, error.data());
    copyCounted(counted, taps.hidden, d, normed.data());
    copyCounted(counted, taps.gate, f, gate.data());
    sums.add(error.data(), normed.data(), gate.data(), kept);
  }
  std::vector<float> down = readDown(layer.number);
  std::vector<float> norms(static_cast<size_t>(f));
  for (size_t i = 0; i < down.size(); ++i)
    norms[i % static_cast<size_t>(f)] += down[i] * down[i];
  for (float &norm : norms)
    norm = std::sqrt(norm);
  sums.solve(norms);
}

LowRankTerm LayerFitter::fitLowRank(const Layer &layer, const LayerRows &rows,
                                    const HiddenStates &fit) {
  LowRankFit sums(runner.context(), f, d, layer.name(), runner.productType());
  solveLowRank(layer, rows, fit, sums);
  const int64_t rank = layer.options.rank;
  std::vector<float> a(static_cast<size_t>(f * rank));
  std::vector<float> b(static_cast<size_t>(rank * d));
  sums.factors(rank, a.data(), b.data());
  return LowRankTerm(runner.context(), f, d, rank, std::move(a), std::move(b));
}

/// By the weighted error of the rows on positions that they were not fitted
/// to, which also says how far a constant serves better.
void LayerFitter::chooseShrinkage(const Layer &layer, LayerRows &rows,
                                  const HiddenStates &choose) {
  const std::vector<double> &candidates = layer.options.shrinkages;
  std::vector<RowErrors> errors; // of each part
  rows.visit([&](const RowFit &part, size_t) {
    errors.emplace_back(part, candidates);
  });
  std::vector<int32_t> index;
  for (const TokenStream::Step &step : choose.stream().steps) {
    const TapRows taps = this->taps(layer, choose, step);
    auto counted = choose.counted(step);
    auto numbers = choose.rows(step);
    index.assign(numbers.begin(), numbers.end());
    for (size_t i = 0; i < index.size(); ++i)
      if (!counted[i])
        index[i] = -1;
    rows.visit({index, taps.gate, taps.up, {}},
               [&](const RowFit &, size_t number, const RowPositions &piece,
                   int64_t) { errors[number].add(piece); });
  }
  std::vector<double> totals;
  for (const RowErrors &part : errors)
    totals = part.totals(totals);
  size_t best = static_cast<size_t>(
      std::min_element(totals.begin(), totals.end()) - totals.begin());
  rows.visit([&](RowFit &part, size_t number) {
    part.setShrinkage(candidates[best]);
    part.blend(errors[number].meanErrors(best));
  });
}

//===----------------------------------------------------------------------===//
// W_down
//===----------------------------------------------------------------------===//

std::vector<float> LayerFitter::readDown(uint64_t layer) const {
  std::vector<float> down(static_cast<size_t>(d * f));
  const std::string &name = checkpoint.weights().layers[layer].downProj;
  checkpoint.tensors().readF32(name, 0, static_cast<uint64_t>(d), down.data());
  checkpoint.tensors().release(name);
  return down;
}

void stem::addCarry(LayerRunner &runner, const Checkpoint &checkpoint,
                    uint64_t layer, const LayerText &text,
                    const TokenStream::Step &step, double share,
                    float *target) {
  const LayerWeights &weights = checkpoint.weights().layers[layer];
  if (!text.dense || !weights.postFeedForwardNorm.empty())
    return;
  const int64_t width = static_cast<int64_t>(checkpoint.config().hiddenSize);
  const float factor = static_cast<float>(share);
  const float *dense = text.dense->at(step), *states = text.states.at(step);
  parallelFor(runner.context(), step.count, [&](int64_t row) {
    for (int64_t i = row * width; i < (row + 1) * width; ++i)
      target[i] += factor * (dense[i] - states[i]);
  });
  text.dense->leave(step);
  text.states.leave(step);
}

/// W_down plus the ridge regression from g ⊙ U to what the output lacks.
std::vector<float>
LayerFitter::refitDown(const Layer &layer, const LayerRows &rows,
                       const LayerText &fit, const LayerText &choose,
                       CalibratedLayer &figures, KeptProducts *products) {
  DownRefit refit(runner, checkpoint.config(), layer.number);
  const auto carry = [&](const LayerText &text, const TokenStream::Step &step) {
    addCarry(runner, checkpoint, layer.number, text, step, layer.options.carry,
             target.data());
  };
  for (const TokenStream::Step &step : fit.states.stream().steps) {
    applyRows(layer, rows, fit.states, step, taps(layer, fit.states, step),
              /*leaveOneOut=*/true);
    if (products)
      products->keep(step, gated.data());
    runner.product(layer.number, error.data(), step.count, target.data());
    carry(fit, step);
    refit.addFit(fit.states.stream().step(step).sequences, gated.data(),
                 target.data());
  }
  for (const TokenStream::Step &step : choose.states.stream().steps) {
    applyRows(layer, rows, choose.states, step,
              taps(layer, choose.states, step), /*leaveOneOut=*/false);
    runner.product(layer.number, error.data(), step.count, target.data());
    runner.product(layer.number, gated.data(), step.count, hidden.data());
    forEach(step.count, d, [&](int64_t i) { hidden[i] += target[i]; });
    carry(choose, step);
    refit.addChoose(choose.states.stream().step(step).sequences, gated.data(),
                    target.data(), hidden.data());
  }
  const DownRefit::Result result = refit.solve(layer.options.ridges);
  figures.ridge = result.ridge;
  figures.errorBefore = result.errorBefore;
  figures.errorAfter = result.errorAfter;
  std::vector<float> down = readDown(layer.number);
  for (size_t i = 0; i < down.size(); ++i)
    down[i] += result.update[i];
  return down;
}

//===----------------------------------------------------------------------===//
// The interface
//===----------------------------------------------------------------------===//

void LayerFitter::keepTaps(Layer &layer, const HiddenStates &fit) {
  if (!layer.options.keepsTaps)
    return;
  const int64_t hidden = layer.options.rank > 0 ? d : 0;
  if (!keptTaps || keptTaps->hiddenSize() != hidden)
    keptTaps.emplace(fit.stream(), hidden, f);
  keptTaps->forget();
  layer.kept = &fit;
}

LayerFit LayerFitter::fit(uint64_t layer, const LayerText &fit,
                          const LayerText &choose,
                          const LayerFitOptions &options) {
  Layer work{layer, options};
  keepTaps(work, fit.states);
  std::optional<LowRankTerm> lowRank;
  std::optional<LayerRows> rows = fitRows(work, fit.states);
  if (options.rank > 0) {
    lowRank = fitLowRank(work, *rows, fit.states);
    work.lowRank = &*lowRank;
    reuse(std::move(*rows)); // never two of them in memory
    rows.reset();
    rows = fitRows(work, fit.states);
  }
  chooseShrinkage(work, *rows, choose.states);
  CalibratedLayer figures;
  figures.layer = layer;
  figures.shrinkage = rows->shrinkage();
  KeptProducts *kept = nullptr;
  if (options.keepsProducts) {
    if (!keptProducts)
      keptProducts.emplace(runner.context(), fit.states.stream().places(), f,
                           runner.productType());
    kept = &*keptProducts;
  }
  std::vector<float> down = refitDown(work, *rows, fit, choose, figures, kept);
  return {figures, std::move(*rows), std::move(lowRank), std::move(down), kept};
}

std::vector<double> LayerFitter::rankGains(uint64_t layer,
                                           const HiddenStates &fit,
                                           const LayerFitOptions &options) {
  const Layer work{layer, options};
  const LayerRows rows = fitRows(work, fit);
  LowRankFit sums(runner.context(), f, d, work.name(), runner.productType());
  solveLowRank(work, rows, fit, sums);
  std::vector<double> gains(sums.gains().begin(), sums.gains().end());
  const double all = std::accumulate(gains.begin(), gains.end(), 0.0);
  for (double &gain : gains)
    gain = all > 0 ? gain / all : 0;
  return gains;
}

void LayerFitter::propagate(const LayerFit &layer, HiddenStates &states,
                            const LayerFitOptions &options, bool leaveOneOut) {
  Layer work{layer.figures.layer, options,
             layer.lowRank ? &*layer.lowRank : nullptr};
  runner.replaceDown(work.number, layer.down);
  for (const TokenStream::Step &step : states.stream().steps) {
    if (leaveOneOut && layer.products) {
      layer.products->read(step, gated.data());
    } else {
      applyRows(work, layer.rows, states, step, taps(work, states, step),
                leaveOneOut);
    }
    project(work, states, step);
  }
  runner.restoreDown(work.number);
}

void LayerFitter::project(const Layer &layer, HiddenStates &states,
                          const TokenStream::Step &step) {
  runner.project(layer.number, states.at(step), gated.data(), step.count,
                 hidden.data());
  states.replace(runner.context(), step, hidden.data());
}

void LayerFitter::propagateStored(const LayerFit &layer, HiddenStates &states,
                                  const LayerFitOptions &options,
                                  const StoredRow &store) {
  Layer work{layer.figures.layer, options,
             layer.lowRank ? &*layer.lowRank : nullptr};
  runner.replaceDown(work.number, layer.down);
  for (const TokenStream::Step &step : states.stream().steps) {
    applyStored(work, layer.rows, states, step, taps(work, states, step),
                store);
    project(work, states, step);
  }
  runner.restoreDown(work.number);
}
