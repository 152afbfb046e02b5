//===- Calibration.cpp - convert --init=calibrated ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calibration.h"

#include "ByteRowWriter.h"
#include "CalibrationSources.h"
#include "CommandLine.h"
#include "EngineMemory.h"
#include "Progress.h"
#include "RankBudget.h"
#include "StatesRunner.h"

#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

using namespace stem;

namespace {

/// Before any work: what is asked fits the model.
CalibrationArguments checked(CalibrationArguments arguments,
                             const Checkpoint &checkpoint) {
  const ModelConfig &config = checkpoint.config();
  for (const int64_t rank : arguments.ranks)
    if (static_cast<uint64_t>(rank) > config.hiddenSize)
      throw UsageError(fmt::format("--mix-rank={}: the model's hidden size is "
                                   "{}, and no rank is above it",
                                   rank, config.hiddenSize));
  checkSelection(arguments.selection, config);
  arguments.text = fittedOptions(std::move(arguments.text), checkpoint);
  arguments.text.threads = arguments.engine.threads;
  return arguments;
}

/// For text that the model writes.
EngineOptions writerOptions(const CalibrationArguments &arguments) {
  EngineOptions options = arguments.engine;
  options.memory = arguments.memory;
  return options;
}

void requireFinite(double loss, const std::string &model, const char *advice) {
  if (!std::isfinite(loss))
    fail("{} has no finite loss on the calibration text; {}", model, advice);
}

void requireFiniteDense(double loss, const Checkpoint &checkpoint) {
  requireFinite(loss, checkpoint.path().string(),
                "look for NaN or infinity in its weights");
}

} // namespace

uint64_t stem::denseLayerCount(const ModelConfig &config) {
  return static_cast<uint64_t>(
      std::count_if(config.layers.begin(), config.layers.end(),
                    [](const LayerConfig &layer) { return !layer.isStem; }));
}

std::optional<uint64_t> stem::parseAutoLayers(const std::string &choice,
                                              const ModelConfig &config) {
  constexpr std::string_view word = "auto", prefix = "auto:";
  if (!choice.starts_with(word))
    return std::nullopt;
  uint64_t count = 0;
  const bool hasCount = choice.starts_with(prefix);
  const char *begin = choice.data() + (hasCount ? prefix : word).size();
  const char *end = choice.data() + choice.size();
  const auto [rest, code] = std::from_chars(begin, end, count);
  if (!hasCount || code != std::errc() || rest != end || count == 0)
    throw UsageError(fmt::format(
        "--layers={}: give a number of layers, like auto:10", choice));
  if (count > config.layerCount())
    throw UsageError(fmt::format("--layers={}: the model has {} layers", choice,
                                 config.layerCount()));
  if (const uint64_t dense = denseLayerCount(config); count > dense)
    throw UsageError(fmt::format(
        "--layers={}: {} of the model's {} layers are dense, and the others "
        "are STEM already",
        choice, dense, config.layerCount()));
  return count;
}

Calibration::Calibration(const Checkpoint &checkpoint,
                         const CalibrationArguments &arguments)
    : checkpoint(checkpoint), arguments(checked(arguments, checkpoint)),
      listedHot(readHotIds(checkpoint, this->arguments.coldRows)),
      text(gatherCalibrationText(checkpoint, this->arguments.text,
                                 writerOptions(this->arguments))),
      selected(selectIds(checkpoint, this->arguments.selection, text)),
      hot(makeHotIds()),
      runner(checkpoint,
             runnerOptions(this->arguments.engine, this->arguments.text)),
      sizes(calibrationSizes(checkpoint.config(), text, runner, mostRank())),
      plan(makePlan()) {
  if (!runner.report().dtypeNote.empty())
    printNote(runner.report().dtypeNote);
  calibrator =
      std::make_unique<Calibrator>(checkpoint, runner, text, options());
}

/// Counted in the text to fit: no choice has seen the one to check.
HotIds Calibration::makeHotIds() const {
  if (!arguments.coldRows.areBytes)
    return {};
  return chooseHotIds(countIds(text.fit, checkpoint.config().vocabSize),
                      arguments.coldRows, listedHot);
}

CalibrationOptions Calibration::options() const {
  CalibrationOptions options;
  options.fit.isOneRow = arguments.isOneRow;
  options.fit.keepsProducts = plan.products > 0;
  options.fit.keepsTaps = plan.taps > 0;
  if (!selected.empty()) {
    for (int32_t id : text.rowIds)
      options.fit.keepsMatrix.push_back(selected.contains(id));
    options.fit.keepsMatrixLeftOut = selected.leftOut;
  }
  if (plan.spill > 0)
    options.spillFolder = arguments.spillFolder;
  options.rows.columns = plan.rowColumns;
  if (plan.rowSpill > 0)
    options.rows.spillFolder = arguments.spillFolder;
  options.isOneLayerHeld = plan.isOneLayerHeld;
  if (arguments.coldRows.areBytes)
    options.store = [this](int32_t id, std::span<float> row) {
      if (!std::ranges::binary_search(hot.ids, id))
        throughBytes(row);
    };
  return options;
}

/// Of the low-rank terms, as far as it is known before layers are chosen.
int64_t Calibration::mostRank() const {
  return arguments.flops > 0
             ? static_cast<int64_t>(checkpoint.config().hiddenSize)
             : std::ranges::max(arguments.ranks);
}

/// Says what is about to be held, and refuses what does not fit.
CalibrationPlan Calibration::makePlan() {
  const MemoryBound bound(arguments.memory);
  sizes.program = bound.held;
  sizes.before = bound.most;
  sizes.isOneRow = arguments.isOneRow;
  if (arguments.coldRows.areBytes)
    addByteRows(checkpoint.config(), hot.ids.size(), sizes);
  const CalibrationPlan result =
      planCalibration(checkpoint.config(), sizes, bound.bytes);
  const std::string name = checkpoint.path().string();
  printPlan(result, result.total() <= bound.bytes);
  bound.require(
      result.total(),
      fmt::format("{}: the calibration takes {}", name, result.describe()),
      "fewer --calibrate-tokens make the rows smaller, --dtype=bf16 "
      "the weights");
  if (bound.isLimit && bound.most > bound.bytes)
    fail("{}: reading the text and compiling took {}, but --memory allows {}; "
         "give shorter files, or more",
         name, formatBytes(static_cast<double>(bound.most)),
         formatBytes(static_cast<double>(bound.bytes)));
  return result;
}

/// A plan that does not fit is told by the error.
void Calibration::printPlan(const CalibrationPlan &result, bool fits) const {
  printStderr("calibration: {} tokens to fit, {} to choose, {} to check, in "
              "windows of {}{}, {} different ids; a converted layer is {} "
              "passes over the first{}{}\n",
              text.fit.tokens, text.choose.tokens, text.check.tokens,
              arguments.text.window,
              arguments.text.window == CalibrationTextOptions().window
                  ? ""
                  : " (the model's context)",
              text.rowIds.size(), fitPasses(mostRank(), result.rowParts),
              fits ? "; " : "", fits ? result.describe() : "");
}

void Calibration::printEstimate(uint64_t converted, bool measuresLayers) const {
  const bool measures = measuresLayers || arguments.flops > 0;
  const double perPlace = calibrator->secondsPerPlace();
  CalibrationWork work;
  work.layers = static_cast<int64_t>(checkpoint.config().layerCount());
  work.converted = static_cast<int64_t>(converted);
  work.measuresLayers = measures;
  work.sample =
      std::min(text.fit.places(), CalibrationOptions().sensitivityTokens);
  double seconds = 0;
  for (const int64_t rank : arguments.ranks) {
    CalibrationSizes own = sizes;
    own.rank = arguments.flops > 0 ? mostRank() : rank;
    seconds += estimateSeconds(own, plan, work, perPlace);
    work.measuresLayers = false; // once for all
  }
  printStderr("calibration: about {} for {} layers{}{}\n",
              formatSeconds(seconds), converted,
              arguments.ranks.size() > 1 ? fmt::format(" with each of {} ranks",
                                                       arguments.ranks.size())
                                         : "",
              measures ? ", sensitivities included" : "");
}

void Calibration::measureSensitivities() {
  if (sensitivities)
    return;
  const Stopwatch watch;
  Progress progress("sensitivities", 1);
  sensitivities = calibrator->measureSensitivities(
      [&](double part) { progress.update(part); });
  sensitivitySeconds = watch.seconds();
  requireFiniteDense(sensitivities->base, checkpoint);
  // NaN has no order. STEM layers have it, and do not take part.
  for (double &layer : sensitivities->layers)
    if (!std::isfinite(layer))
      layer = INFINITY;
}

std::vector<uint64_t> Calibration::cheapestLayers(uint64_t count) {
  measureSensitivities();
  std::vector<uint64_t> order(sensitivities->layers.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](uint64_t layer) {
    return checkpoint.config().layers[layer].isStem;
  });
  std::sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) {
    return std::pair(sensitivities->layers[a], a) <
           std::pair(sensitivities->layers[b], b);
  });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<LayerChoice>
Calibration::chooseRanks(const std::vector<uint64_t> &layers, int64_t rank) {
  std::vector<LayerChoice> choices;
  for (const uint64_t layer : layers)
    choices.push_back({layer, rank});
  if (arguments.flops == 0)
    return choices;
  measureSensitivities();
  const Stopwatch watch;
  Progress progress("ranks", 1);
  const std::vector<std::vector<double>> gains = calibrator->measureRankGains(
      layers, [&](double part) { progress.update(part); });
  rankSeconds = watch.seconds();
  std::vector<RankWorth> worth;
  for (size_t i = 0; i < layers.size(); ++i)
    worth.push_back({sensitivities->layers[layers[i]], gains[i]});
  const double d = static_cast<double>(checkpoint.config().hiddenSize);
  const double f = static_cast<double>(checkpoint.config().intermediateSize);
  const double replaced = static_cast<double>(layers.size()) * d * f;
  const std::vector<int64_t> ranks = shareOutRanks(
      worth, static_cast<int64_t>(arguments.flops * replaced / (d + f)));
  for (size_t i = 0; i < choices.size(); ++i)
    choices[i].rank = ranks[i];
  return choices;
}

void Calibration::measureDense() {
  if (!denseLosses.empty())
    return;
  denseLosses = calibrator->denseLosses();
  denseLoss = meanLoss(text.check, denseLosses);
  requireFiniteDense(denseLoss, checkpoint);
}

void Calibration::convert(
    CalibrationOutcome &outcome,
    const std::function<void(const ConvertedLayer &)> &onLayer) {
  const Stopwatch watch;
  trimHeap(); // of what the new folder's files were made of
  measureDense();
  Progress progress("calibration", 1);
  CheckedLosses losses = calibrator->convert(
      outcome.layers,
      [&](const ConvertedLayer &layer) {
        outcome.figures.push_back(layer.figures);
        onLayer(layer);
      },
      [&](double part) { progress.update(part); });
  outcome.losses = std::move(losses.converted);
  outcome.seconds = watch.seconds();
  outcome.loss = meanLoss(text.check, outcome.losses);
  requireFinite(outcome.loss, "the converted model",
                "convert fewer layers or give more text");
  if (!arguments.coldRows.areBytes)
    return;
  outcome.storedLoss = meanLoss(text.check, losses.stored);
  requireFinite(outcome.storedLoss, "the converted model with rows of 8 bits",
                "leave --cold-rows out");
}

Json Calibration::summary(const CalibrationOutcome &outcome) const {
  Json layers = Json::array();
  for (size_t i = 0; i < outcome.figures.size(); ++i) {
    const CalibratedLayer &layer = outcome.figures[i];
    layers.push_back({{"layer", layer.layer},
                      {"rank", outcome.layers[i].rank},
                      {"shrinkage", layer.shrinkage},
                      {"ridge", layer.ridge},
                      {"error_before_refit", layer.errorBefore},
                      {"error_after_refit", layer.errorAfter}});
  }
  Json json = textSummary(text, arguments.text);
  json.update({{"mix_rank", outcome.rank},
               {"rows", arguments.isOneRow ? "mean" : "ids"},
               {"layers", layers},
               {"perplexity_by_text", perplexityByText(outcome)},
               {"coverage_by_count", coverageByCount(outcome)},
               {"perplexity_dense", std::exp(denseLoss)},
               {"perplexity_converted", std::exp(outcome.loss)}});
  if (arguments.coldRows.areBytes)
    json["perplexity_byte_rows"] = std::exp(outcome.storedLoss);
  if (arguments.flops > 0)
    json["flops"] = arguments.flops;
  json.update(selectionSummary(selected, arguments.selection, text));
  if (sensitivities) {
    json["sensitivities"] = sensitivities->layers;
    json["sensitivity_errors"] = sensitivities->errors;
  }
  return json;
}

namespace {

/// Losses of a share of the places.
struct LossSum {
  int64_t tokens = 0;
  double dense = 0, converted = 0;

  void add(float denseLoss, float convertedLoss) {
    ++tokens;
    dense += denseLoss;
    converted += convertedLoss;
  }
  /// Null where there is no token.
  Json perplexity(double sum) const {
    return tokens ? finiteOrNull(std::exp(sum / static_cast<double>(tokens)))
                  : Json(nullptr);
  }
};

} // namespace

Json Calibration::perplexityByText(const CalibrationOutcome &outcome) const {
  std::vector<LossSum> sums(text.sources.size());
  for (size_t i = 0; i < outcome.losses.size(); ++i)
    if (text.check.labels[i] != -100)
      sums[static_cast<size_t>(text.check.sources[i])].add(denseLosses[i],
                                                           outcome.losses[i]);
  Json json = Json::array();
  for (size_t i = 0; i < sums.size(); ++i)
    json.push_back({{"file", text.sources[i].file},
                    {"tokens", sums[i].tokens},
                    {"dense", sums[i].perplexity(sums[i].dense)},
                    {"converted", sums[i].perplexity(sums[i].converted)}});
  return json;
}

/// By how often `fit` holds the id that is the input of a prediction.
Json Calibration::coverageByCount(const CalibrationOutcome &outcome) const {
  constexpr int64_t kFrom[] = {0, 1, 2, 4, 8, 16, 64, 256};
  constexpr size_t kGroups = std::size(kFrom);
  const auto groupOf = [&](int64_t count) {
    return static_cast<size_t>(std::upper_bound(kFrom, kFrom + kGroups, count) -
                               kFrom - 1);
  };
  const std::vector<int64_t> counts = text.fitCounts();
  std::vector<LossSum> sums(kGroups);
  std::vector<int64_t> ids(kGroups);
  for (int64_t count : counts)
    ++ids[groupOf(count)];
  ids[0] = static_cast<int64_t>(checkpoint.config().vocabSize) -
           std::accumulate(ids.begin() + 1, ids.end(), int64_t(0));
  for (size_t i = 0; i < outcome.losses.size(); ++i)
    if (text.check.labels[i] != -100)
      sums[groupOf(counts[static_cast<size_t>(text.check.rows[i])])].add(
          denseLosses[i], outcome.losses[i]);
  Json json = Json::array();
  for (size_t i = 0; i < kGroups; ++i)
    json.push_back(
        {{"from", kFrom[i]},
         {"to", i + 1 < kGroups ? Json(kFrom[i + 1] - 1) : Json(nullptr)},
         {"ids", ids[i]},
         {"check_tokens", sums[i].tokens},
         {"perplexity_dense", sums[i].perplexity(sums[i].dense)},
         {"perplexity_converted", sums[i].perplexity(sums[i].converted)}});
  return json;
}

Json Calibration::ofThisRun(const CalibrationOutcome &outcome) const {
  Json json = {{"plan", plan.json()}, {"convert_seconds", outcome.seconds}};
  if (sensitivities)
    json["sensitivity_seconds"] = sensitivitySeconds;
  if (arguments.flops > 0)
    json["rank_seconds"] = rankSeconds;
  return json;
}

void Calibration::printSensitivities() const {
  if (!sensitivities)
    return;
  fmt::print("sensitivity (nats that a layer's conversion alone costs, "
             "measured in {}):\n",
             formatSeconds(sensitivitySeconds));
  const ModelConfig &config = checkpoint.config();
  const uint64_t count = denseLayerCount(config);
  uint64_t printed = 0;
  for (size_t i = 0; i < sensitivities->layers.size(); ++i)
    if (!config.layers[i].isStem)
      fmt::print("{:>5} {:.4f}{}", i, sensitivities->layers[i],
                 ++printed % 6 == 0 || printed == count ? "\n" : "  ");
}

void Calibration::print(const CalibrationOutcome &outcome) const {
  fmt::print("{:<9} {:>6} {:>10} {:>8} {:>22}\n", "", "rank", "shrinkage",
             "ridge", "output error, refitted");
  for (size_t i = 0; i < outcome.figures.size(); ++i) {
    const CalibratedLayer &layer = outcome.figures[i];
    fmt::print("layer {:<3} {:>6} {:>10} {:>8} {:>12.3f} -> {:.3f}\n",
               layer.layer, outcome.layers[i].rank, layer.shrinkage,
               layer.ridge, layer.errorBefore, layer.errorAfter);
  }
  if (!selected.empty())
    fmt::print("{} ids keep the matrix, of which {} are special tokens: {:.1f} "
               "% of the tokens held back\n",
               selected.ids.size(), selected.special,
               100 * selected.shareOf(text.check));
  const double ratio = std::exp(outcome.loss - denseLoss);
  const bool isDense = !checkpoint.config().stem;
  fmt::print("perplexity on {} tokens held back: {:.2f} {}, {:.2f} "
             "converted, {:.2f} times; {:.1f} % of these tokens have a row "
             "that was fitted\n",
             text.check.tokens, std::exp(denseLoss),
             isDense ? "dense" : "before", std::exp(outcome.loss), ratio,
             100 * text.coverage());
  if (arguments.coldRows.areBytes)
    fmt::print("perplexity of the same tokens: {:.4f} before, {:.4f} with rows "
               "of 8 bits ({:+.3f} %)\n",
               std::exp(outcome.loss), std::exp(outcome.storedLoss),
               100 * std::expm1(outcome.storedLoss - outcome.loss));
  if (ratio > 2)
    printWarning(fmt::format("the converted model's perplexity is {:.1f} times "
                             "that of the {} one; convert fewer layers or "
                             "give more text",
                             ratio, isDense ? "dense" : "given"));
}
