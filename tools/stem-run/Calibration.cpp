//===- Calibration.cpp - convert --init=calibrated ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calibration.h"

#include "CalibrationSources.h"
#include "CommandLine.h"
#include "EngineMemory.h"
#include "Progress.h"

#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

using namespace stem;

namespace {

CalibrationArguments fittingWindow(CalibrationArguments arguments,
                                   const ModelConfig &config) {
  const int64_t own = static_cast<int64_t>(config.maxPositions);
  if (own > 0)
    arguments.text.window = std::min(arguments.text.window, own);
  return arguments;
}

CalibrationOptions calibrationOptions(const Checkpoint &checkpoint,
                                      const CalibrationArguments &arguments) {
  const uint64_t most = checkpoint.config().hiddenSize;
  if (static_cast<uint64_t>(arguments.rank) > most)
    throw UsageError(fmt::format("--mix-rank={}: the model's hidden size is "
                                 "{}, and no rank is above it",
                                 arguments.rank, most));
  CalibrationOptions options;
  options.rank = arguments.rank;
  return options;
}

EngineOptions runnerOptions(const CalibrationArguments &arguments) {
  EngineOptions options = arguments.engine;
  options.maxPositions = arguments.text.window;
  options.maxStepTokens = arguments.text.maxStepTokens;
  options.maxSequences = options.maxStepTokens / 64;
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

std::optional<uint64_t> stem::parseAutoLayers(const std::string &choice,
                                              const ModelConfig &config) {
  constexpr std::string_view prefix = "auto:";
  if (!choice.starts_with(prefix))
    return std::nullopt;
  uint64_t count = 0;
  const char *end = choice.data() + choice.size();
  const auto [rest, code] =
      std::from_chars(choice.data() + prefix.size(), end, count);
  if (code != std::errc() || rest != end || count == 0)
    throw UsageError(fmt::format(
        "--layers={}: give a number of layers, like auto:10", choice));
  if (count > config.layerCount())
    throw UsageError(fmt::format("--layers={}: the model has {} layers", choice,
                                 config.layerCount()));
  return count;
}

Calibration::Calibration(const Checkpoint &checkpoint,
                         const CalibrationArguments &arguments)
    : checkpoint(checkpoint),
      arguments(fittingWindow(arguments, checkpoint.config())),
      text(gatherCalibrationText(checkpoint, this->arguments.text,
                                 this->arguments.engine)),
      runner(checkpoint, runnerOptions(this->arguments)) {
  const CalibrationOptions options =
      calibrationOptions(checkpoint, this->arguments);
  if (!runner.report().dtypeNote.empty())
    printNote(runner.report().dtypeNote);
  checkPlan(Calibrator::plan(checkpoint.config(), runner, text,
                             this->arguments.rank));
  calibrator = std::make_unique<Calibrator>(checkpoint, runner, text, options);
}

/// Prints what is about to be held, before it is.
void Calibration::checkPlan(const CalibrationMemory &memory) const {
  const auto bytes = [](int64_t count) {
    return formatBytes(static_cast<double>(count));
  };
  const std::string plan = fmt::format(
      "hidden states {}, statistics of a layer {}, refit of its W_down {}, "
      "weights {}, steps {}; {} in all",
      bytes(memory.states), bytes(memory.statistics), bytes(memory.refit),
      bytes(memory.weights), bytes(memory.steps), bytes(memory.total()));
  printStderr("calibration: {} tokens to fit, {} to choose, {} to check, in "
              "windows of {}{}, {} different ids; {}\n",
              text.fit.tokens, text.choose.tokens, text.check.tokens,
              arguments.text.window,
              arguments.text.window == CalibrationTextOptions().window
                  ? ""
                  : " (the model's context)",
              text.rowIds.size(), plan);
  requireMemory(memory.total(),
                fmt::format("{}: the calibration takes {}",
                            checkpoint.path().string(), plan),
                "fewer --calibrate-tokens make hidden states and statistics "
                "smaller, --dtype=bf16 the weights");
}

std::vector<uint64_t> Calibration::cheapestLayers(uint64_t count) {
  const Stopwatch watch;
  Progress progress("sensitivities", 1);
  sensitivities = calibrator->measureSensitivities(
      [&](double part) { progress.update(part); });
  sensitivitySeconds = watch.seconds();
  requireFiniteDense(sensitivities->base, checkpoint);
  // NaN has no order.
  for (double &layer : sensitivities->layers)
    if (!std::isfinite(layer))
      layer = INFINITY;
  std::vector<uint64_t> order(sensitivities->layers.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) {
    return std::pair(sensitivities->layers[a], a) <
           std::pair(sensitivities->layers[b], b);
  });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

void Calibration::convert(
    const std::vector<uint64_t> &layers,
    const std::function<void(const ConvertedLayer &)> &onLayer) {
  const Stopwatch watch;
  denseLoss = calibrator->denseLoss();
  requireFiniteDense(denseLoss, checkpoint);
  Progress progress("calibration", 1);
  convertedLoss = calibrator->convert(
      layers,
      [&](const ConvertedLayer &layer) {
        figures.push_back(layer.figures);
        onLayer(layer);
      },
      [&](double part) { progress.update(part); });
  convertSeconds = watch.seconds();
  requireFinite(convertedLoss, "the converted model",
                "convert fewer layers or give more text");
}

Json Calibration::summary() const {
  Json layers = Json::array();
  for (const CalibratedLayer &layer : figures)
    layers.push_back({{"layer", layer.layer},
                      {"shrinkage", layer.shrinkage},
                      {"ridge", layer.ridge},
                      {"error_before_refit", layer.errorBefore},
                      {"error_after_refit", layer.errorAfter}});
  Json json = textSummary(text, arguments.text);
  json.update({{"mix_rank", arguments.rank},
               {"layers", layers},
               {"perplexity_dense", std::exp(denseLoss)},
               {"perplexity_converted", std::exp(convertedLoss)}});
  if (sensitivities)
    json["sensitivities"] = sensitivities->layers;
  return json;
}

Json Calibration::seconds() const {
  Json json = {{"convert_seconds", convertSeconds}};
  if (sensitivities)
    json["sensitivity_seconds"] = sensitivitySeconds;
  return json;
}

void Calibration::print() const {
  if (sensitivities) {
    fmt::print("sensitivity (nats that a layer's conversion alone costs, "
               "measured in {}):\n",
               formatSeconds(sensitivitySeconds));
    for (size_t i = 0; i < sensitivities->layers.size(); ++i)
      fmt::print("{:>5} {:.4f}{}", i, sensitivities->layers[i],
                 i % 6 == 5 || i + 1 == sensitivities->layers.size() ? "\n"
                                                                     : "  ");
  }
  fmt::print("{:<9} {:>10} {:>8} {:>22}\n", "", "shrinkage", "ridge",
             "output error, refitted");
  for (const CalibratedLayer &layer : figures)
    fmt::print("layer {:<3} {:>10} {:>8} {:>12.3f} -> {:.3f}\n", layer.layer,
               layer.shrinkage, layer.ridge, layer.errorBefore,
               layer.errorAfter);
  const double ratio = std::exp(convertedLoss - denseLoss);
  fmt::print("perplexity on {} tokens held back: {:.2f} dense, {:.2f} "
             "converted, {:.2f} times; {:.1f} % of these tokens have a row "
             "that was fitted\n",
             text.check.tokens, std::exp(denseLoss), std::exp(convertedLoss),
             ratio, 100 * text.coverage());
  if (ratio > 2)
    printWarning(fmt::format("the converted model's perplexity is {:.1f} times "
                             "that of the dense one; convert fewer layers or "
                             "give more text",
                             ratio));
}
