//===- Calibrator.cpp - Tables from forward passes ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calibrator.h"

#include "Progress.h"
#include "StatesRunner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

using namespace stem;

namespace {

/// The fitted row of ids that were seen, for the others what they have as
/// unseen.
class CalibratedRows : public TableRows {
public:
  CalibratedRows(const LayerRows &fit, const NormedEmbeddings &embeddings,
                 std::span<const int32_t> ids, const ModelConfig &config)
      : fit(fit), embeddings(embeddings), ids(ids), hidden(config.hiddenSize),
        width(config.intermediateSize) {}

  void fill(uint64_t first, uint64_t count, float *out) override {
    std::vector<float> features(count * hidden);
    embeddings.read(first, count, features.data());
    fit.prior(features.data(), static_cast<int64_t>(count), out);
    auto begin =
        std::lower_bound(ids.begin(), ids.end(), static_cast<int32_t>(first));
    auto end =
        std::lower_bound(begin, ids.end(), static_cast<int32_t>(first + count));
    std::vector<int32_t> seen(static_cast<size_t>(end - begin));
    std::iota(seen.begin(), seen.end(),
              static_cast<int32_t>(begin - ids.begin()));
    std::vector<float> fitted(seen.size() * width);
    fit.rows(seen, fitted.data());
    for (size_t i = 0; i < seen.size(); ++i)
      std::copy_n(fitted.data() + i * width, width,
                  out + (static_cast<uint64_t>(begin[i]) - first) * width);
  }

private:
  const LayerRows &fit;
  const NormedEmbeddings &embeddings;
  std::span<const int32_t> ids;
  uint64_t hidden, width;
};

/// At most about `tokens` of the stream: whole steps, evenly spread over it.
TokenStream sampleOf(const TokenStream &stream, int64_t tokens) {
  const size_t count = stream.steps.size();
  const size_t wanted = std::clamp<size_t>(
      count * static_cast<size_t>(tokens) / static_cast<size_t>(stream.tokens),
      1, count);
  TokenStream sample;
  for (size_t i = 0; i < wanted; ++i) {
    const TokenStream::Step step = stream.steps[i * count / wanted];
    const auto append = [&](auto &to, const auto &from) {
      to.insert(to.end(), from.begin() + step.begin,
                from.begin() + step.begin + step.count);
    };
    sample.steps.push_back({sample.places(), step.count});
    append(sample.ids, stream.ids);
    append(sample.positions, stream.positions);
    append(sample.sequences, stream.sequences);
    append(sample.labels, stream.labels);
    append(sample.rows, stream.rows);
    append(sample.counted, stream.counted);
  }
  sample.tokens = static_cast<int64_t>(
      sample.sequences.size() -
      std::count(sample.sequences.begin(), sample.sequences.end(), -1));
  return sample;
}

} // namespace

struct Calibrator::Impl {
  Impl(const Checkpoint &checkpoint, LayerRunner &runner,
       const CalibrationText &text, const CalibrationOptions &options)
      : checkpoint(checkpoint), runner(runner), text(text), options(options),
        width(static_cast<int64_t>(checkpoint.config().hiddenSize)),
        fitter(checkpoint, runner, text.rowIds, options.rows),
        states(runner, width, options.spillFolder) {}

  /// The texts in the model as converted so far, and in the dense model from
  /// the first converted layer on.
  struct Streams {
    HiddenStates fit, choose, check;
    std::optional<HiddenStates> denseFit = {}, denseChoose = {};
    std::optional<HiddenStates> stored = {}; ///< `check` with stored rows
    bool isFitting = true;                   ///< a layer above is converted too

    std::vector<HiddenStates *> converted() {
      return isFitting ? std::vector{&fit, &choose, &check}
                       : std::vector{&check};
    }
    std::vector<HiddenStates *> dense() {
      return denseFit ? std::vector{&*denseFit, &*denseChoose}
                      : std::vector<HiddenStates *>();
    }
    /// Those that a layer which is not converted is run for.
    std::vector<HiddenStates *> passing() {
      std::vector<HiddenStates *> streams = converted();
      if (stored)
        streams.push_back(&*stored);
      return streams;
    }
    std::vector<HiddenStates *> all() {
      std::vector<HiddenStates *> streams = passing();
      for (HiddenStates *stream : dense())
        streams.push_back(stream);
      return streams;
    }
    void endFit() {
      isFitting = false;
      denseFit.reset();
      denseChoose.reset();
    }
  };

  uint64_t layerCount() const { return checkpoint.config().layerCount(); }
  double lossAbove(HiddenStates &changed, uint64_t layer);
  LayerFit convertLayer(const LayerChoice &choice, Streams &streams,
                        bool isLast);
  void leaveLayer(uint64_t layer);

  const Checkpoint &checkpoint;
  LayerRunner &runner;
  const CalibrationText &text;
  const CalibrationOptions options;
  int64_t width;
  LayerFitter fitter;
  StatesRunner states;
};

/// Runs the layers above `layer`.
double Calibrator::Impl::lossAbove(HiddenStates &changed, uint64_t layer) {
  for (uint64_t above = layer + 1; above < layerCount(); ++above) {
    states.block(changed, above);
    leaveLayer(above);
  }
  return states.loss(changed);
}

void Calibrator::Impl::leaveLayer(uint64_t layer) {
  if (options.isOneLayerHeld)
    runner.releaseLayer(layer);
}

Calibrator::Calibrator(const Checkpoint &checkpoint, LayerRunner &runner,
                       const CalibrationText &text,
                       const CalibrationOptions &options)
    : impl(std::make_unique<Impl>(checkpoint, runner, text, options)) {}

Calibrator::~Calibrator() = default;

double Calibrator::secondsPerPlace() {
  TokenStream one = sampleOf(impl->text.choose, 1);
  HiddenStates states = impl->states.embedded(one);
  const auto run = [&] {
    const Stopwatch watch;
    impl->states.block(states, 0);
    return watch.seconds();
  };
  run(); // reads the weights
  const double seconds = run();
  impl->leaveLayer(0);
  return seconds / static_cast<double>(one.places());
}

Calibrator::Sensitivities
Calibrator::measureSensitivities(const std::function<void(double)> &done) {
  const TokenStream sample =
      sampleOf(impl->text.fit, impl->options.sensitivityTokens);
  LayerFitOptions options;
  options.shrinkages = {4};
  options.ridges = {1e-2};
  HiddenStates fit = impl->states.embedded(sample);
  HiddenStates choose = impl->states.embedded(impl->text.choose);
  HiddenStates changed(impl->text.choose, impl->width,
                       impl->options.spillFolder);
  Sensitivities result;
  for (uint64_t layer = 0; layer < impl->layerCount(); ++layer) {
    impl->states.attention(fit, layer);
    impl->states.attention(choose, layer);
    std::optional<LayerFit> converted;
    if (!impl->checkpoint.config().layers[layer].isStem) {
      converted = impl->fitter.fit(layer, {fit}, {choose}, options);
      changed.copyFrom(choose);
      impl->fitter.propagate(*converted, changed, options,
                             /*leaveOneOut=*/false);
    }
    impl->states.feedForward(fit, layer);
    impl->states.feedForward(choose, layer);
    impl->leaveLayer(layer);
    result.layers.push_back(converted ? impl->lossAbove(changed, layer)
                                      : std::nan(""));
    result.errors.push_back(converted ? converted->figures.errorAfter
                                      : std::nan(""));
    done(static_cast<double>(layer + 1) /
         static_cast<double>(impl->layerCount()));
  }
  result.base = impl->states.loss(choose);
  for (double &loss : result.layers)
    loss -= result.base;
  return result;
}

LayerFit Calibrator::Impl::convertLayer(const LayerChoice &choice,
                                        Streams &streams, bool isLast) {
  LayerFitOptions own = options.fit;
  own.rank = choice.rank;
  const uint64_t layer = choice.layer;
  if (!streams.denseFit) {
    states.copyTo(streams.denseFit, streams.fit);
    states.copyTo(streams.denseChoose, streams.choose);
  }
  LayerFit converted = fitter.fit(layer, {streams.fit, &*streams.denseFit},
                                  {streams.choose, &*streams.denseChoose}, own);
  if (isLast)
    streams.endFit();
  for (HiddenStates *part : streams.converted())
    fitter.propagate(converted, *part, own,
                     /*leaveOneOut=*/part == &streams.fit);
  if (streams.stored)
    fitter.propagateStored(converted, *streams.stored, own, options.store);
  return converted;
}

std::vector<std::vector<double>>
Calibrator::measureRankGains(std::span<const uint64_t> layers,
                             const std::function<void(double)> &done) {
  const TokenStream sample =
      sampleOf(impl->text.fit, impl->options.sensitivityTokens);
  HiddenStates fit = impl->states.embedded(sample);
  std::vector<std::vector<double>> gains;
  for (uint64_t layer = 0; layer <= layers.back(); ++layer) {
    impl->states.attention(fit, layer);
    if (std::binary_search(layers.begin(), layers.end(), layer))
      gains.push_back(impl->fitter.rankGains(layer, fit, impl->options.fit));
    impl->states.feedForward(fit, layer);
    impl->leaveLayer(layer);
    done(static_cast<double>(layer + 1) /
         static_cast<double>(layers.back() + 1));
  }
  return gains;
}

CheckedLosses
Calibrator::convert(std::span<const LayerChoice> layers,
                    const std::function<void(const ConvertedLayer &)> &onLayer,
                    const std::function<void(double)> &done) {
  Impl::Streams streams{impl->states.embedded(impl->text.fit),
                        impl->states.embedded(impl->text.choose),
                        impl->states.embedded(impl->text.check)};
  if (impl->options.store)
    impl->states.copyTo(streams.stored, streams.check);
  for (uint64_t layer = 0; layer < impl->layerCount(); ++layer) {
    for (HiddenStates *part : streams.all())
      impl->states.attention(*part, layer);
    const auto choice = std::lower_bound(
        layers.begin(), layers.end(), layer,
        [](const LayerChoice &a, uint64_t b) { return a.layer < b; });
    if (choice != layers.end() && choice->layer == layer) {
      LayerFit fit = impl->convertLayer(
          *choice, streams, /*isLast=*/layer == layers.back().layer);
      NormedEmbeddings embeddings(impl->checkpoint, layer);
      CalibratedRows rows(fit.rows, embeddings, impl->text.rowIds,
                          impl->checkpoint.config());
      onLayer(
          {fit.figures, rows, fit.down, fit.lowRank ? &*fit.lowRank : nullptr});
      impl->fitter.reuse(std::move(fit.rows));
    } else {
      for (HiddenStates *part : streams.passing())
        impl->states.feedForward(*part, layer);
    }
    for (HiddenStates *part : streams.dense())
      impl->states.feedForward(*part, layer);
    impl->leaveLayer(layer);
    done(static_cast<double>(layer + 1) /
         static_cast<double>(impl->layerCount()));
  }
  CheckedLosses losses{impl->states.losses(streams.check), {}};
  if (streams.stored)
    losses.stored = impl->states.losses(*streams.stored);
  return losses;
}

std::vector<float> Calibrator::denseLosses() {
  HiddenStates check = impl->states.embedded(impl->text.check);
  for (uint64_t layer = 0; layer < impl->layerCount(); ++layer) {
    impl->states.block(check, layer);
    impl->leaveLayer(layer);
  }
  return impl->states.losses(check);
}
