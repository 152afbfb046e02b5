//===- compressed_dense.cpp - Dense models of fewer FLOPs -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What converted models are compared with at equal FLOPs: the same model with
// fewer columns of d_ff or fewer blocks, chosen and fitted on the same
// calibration text as a conversion (bench/calibration/README.md).
//
//===----------------------------------------------------------------------===//

#include "BlockDropper.h"
#include "CalibrationSources.h"
#include "CommandLine.h"
#include "ConvertGraph.h"
#include "DenseFolder.h"
#include "LayerPruner.h"
#include "ModelCost.h"
#include "Progress.h"
#include "StatesRunner.h"

#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr double kRidges[] = {1e-3, 1e-2, 1e-1};

struct Arguments {
  fs::path source, out;
  std::string method;
  std::string layers;
  std::string keep;
  uint64_t blocks = 0;
  bool noRefit = false;
  bool force = false;
  CalibrationTextOptions text;
  CompileArguments compile;
};

/// "2/3" or "0.5".
double parseShare(const std::string &text) {
  const auto number = [&](std::string_view part) {
    double value = 0;
    const auto [rest, code] =
        std::from_chars(part.data(), part.data() + part.size(), value);
    if (code != std::errc() || rest != part.data() + part.size())
      throw UsageError(fmt::format(
          "--keep={}: give a share of the columns, like 2/3", text));
    return value;
  };
  const size_t slash = text.find('/');
  const std::string_view whole = text;
  const double share =
      slash == std::string::npos
          ? number(whole)
          : number(whole.substr(0, slash)) / number(whole.substr(slash + 1));
  if (!(share > 0 && share <= 1))
    throw UsageError(
        fmt::format("--keep={}: a share lies above 0, and 1 is all", text));
  return share;
}

class CompressedDense {
public:
  explicit CompressedDense(const Arguments &arguments);
  void run();

private:
  std::vector<uint64_t> layersToPrune() const;
  int64_t columnsToKeep() const;
  double denseLoss();
  void chooseBlocks();
  void compress();
  std::vector<float> change(uint64_t layer, const LayerText &fit,
                            const LayerText &choose);
  bool isChanged(uint64_t layer) const;
  std::span<const uint64_t> droppedAfter(uint64_t block) const;
  ModelCost costAfter() const;
  Json methodJson() const;

  bool isPruning() const { return arguments.method == "prune"; }
  std::span<const double> ridges() const {
    return arguments.noRefit ? std::span<const double>() : kRidges;
  }

  const Arguments &arguments;
  ModelFolderWriter writer;
  Checkpoint checkpoint;
  CalibrationTextOptions options;
  std::vector<uint64_t> pruned; ///< layers
  int64_t columns = 0;          ///< that a pruned layer keeps
  CalibrationText text;
  LayerRunner runner;
  StatesRunner states;
  LayerPruner pruner;
  BlockDropper dropper;
  ChangedModel model;
  std::vector<uint64_t> droppedBlocks; ///< rising
  Json figures = Json::array();        ///< of each layer that was changed
  Json rounds = Json::array();         ///< of dropping
  double loss = 0;                     ///< on `check`
};

CompressedDense::CompressedDense(const Arguments &arguments)
    : arguments(arguments), writer(arguments.out, {.force = arguments.force,
                                                   .source = arguments.source}),
      checkpoint(openModel(arguments.source)),
      options(fittedOptions(arguments.text, checkpoint)),
      pruned(layersToPrune()), columns(columnsToKeep()),
      text(gatherCalibrationText(checkpoint, options,
                                 engineOptions(arguments.compile))),
      runner(checkpoint,
             runnerOptions(engineOptions(arguments.compile), options)),
      states(runner, static_cast<int64_t>(checkpoint.config().hiddenSize)),
      pruner(checkpoint, runner), dropper(checkpoint, runner) {
  model.layers.resize(checkpoint.config().layerCount());
  std::iota(model.layers.begin(), model.layers.end(), 0);
}

/// Checks what is asked of the model before any work.
std::vector<uint64_t> CompressedDense::layersToPrune() const {
  const ModelConfig &config = checkpoint.config();
  if (config.stem)
    fail("{}: has STEM layers; give a dense model", arguments.source.string());
  if (isPruning())
    return chooseLayers(arguments.layers, config);
  if (arguments.blocks >= config.layerCount())
    throw UsageError(fmt::format("--blocks={}: the model has {} blocks, and "
                                 "one at least must stay",
                                 arguments.blocks, config.layerCount()));
  if (config.normAfterBlock && !arguments.noRefit)
    fail("{}: norms the output of W_down, which cannot be fitted to what "
         "other blocks gave then; give --no-refit",
         arguments.source.string());
  return {};
}

int64_t CompressedDense::columnsToKeep() const {
  if (!isPruning())
    return 0;
  const int64_t result =
      std::llround(parseShare(arguments.keep) *
                   static_cast<double>(checkpoint.config().intermediateSize));
  if (result < 1)
    throw UsageError(fmt::format("--keep={}: no column of {} would stay",
                                 arguments.keep,
                                 checkpoint.config().intermediateSize));
  return result;
}

double CompressedDense::denseLoss() {
  HiddenStates check = states.embedded(text.check);
  for (const uint64_t layer : model.layers)
    states.block(check, layer);
  const double result = states.loss(check);
  if (!std::isfinite(result))
    fail("{} has no finite loss on the calibration text; look for NaN or "
         "infinity in its weights",
         checkpoint.path().string());
  return result;
}

/// Blocks that are gone right above this one.
std::span<const uint64_t> CompressedDense::droppedAfter(uint64_t block) const {
  const auto first =
      std::lower_bound(droppedBlocks.begin(), droppedBlocks.end(), block + 1);
  auto last = first;
  for (uint64_t next = block + 1; last != droppedBlocks.end() && *last == next;
       ++next)
    ++last;
  return {first, last};
}

/// The blocks are chosen as they are, before any W_down is fitted.
void CompressedDense::chooseBlocks() {
  Progress progress("sensitivities", 1);
  for (const DroppedBlock &round :
       dropper.choose(text.choose, arguments.blocks,
                      [&](double part) { progress.update(part); })) {
    std::erase(model.layers, round.block);
    droppedBlocks.push_back(round.block);
    rounds.push_back({{"block", round.block},
                      {"sensitivity", round.sensitivity},
                      {"blocks", round.left},
                      {"sensitivities", round.candidates}});
  }
  std::sort(droppedBlocks.begin(), droppedBlocks.end());
  configWithLayers(checkpoint, model.layers); // before minutes of fitting
}

bool CompressedDense::isChanged(uint64_t layer) const {
  if (isPruning())
    return std::binary_search(pruned.begin(), pruned.end(), layer);
  return !arguments.noRefit && !droppedAfter(layer).empty();
}

/// The layer's new W_down: of a pruned one, or of the one below a gap, which
/// learns what the gap gave.
std::vector<float> CompressedDense::change(uint64_t layer, const LayerText &fit,
                                           const LayerText &choose) {
  ChangedLayer result =
      isPruning()
          ? pruner.prune(layer, fit, choose, columns, ridges())
          : dropper.refit(layer, droppedAfter(layer), fit, choose, ridges());
  figures.push_back({{"layer", layer},
                     {"ridge", result.ridge},
                     {"error_before_refit", result.errorBefore},
                     {"error_after_refit", result.errorAfter}});
  return result.down;
}

/// Layers in their order, each on the states that those below it give as they
/// are by then; the dense model's run beside them from the first change on.
void CompressedDense::compress() {
  const uint64_t layers = checkpoint.config().layerCount();
  Progress progress(arguments.method, static_cast<double>(layers));
  HiddenStates fit = states.embedded(text.fit);
  HiddenStates choose = states.embedded(text.choose);
  HiddenStates check = states.embedded(text.check);
  std::optional<HiddenStates> denseFit, denseChoose;
  const auto startDense = [&] {
    if (denseFit || arguments.noRefit)
      return;
    states.copyTo(denseFit, fit);
    states.copyTo(denseChoose, choose);
  };
  const auto runDense = [&](auto part, uint64_t layer) {
    if (!denseFit)
      return;
    (states.*part)(*denseFit, layer);
    (states.*part)(*denseChoose, layer);
  };
  for (uint64_t layer = 0; layer < layers; ++layer) {
    if (std::binary_search(droppedBlocks.begin(), droppedBlocks.end(), layer)) {
      startDense();
      runDense(&StatesRunner::block, layer);
      continue;
    }
    for (HiddenStates *part : {&fit, &choose, &check})
      states.attention(*part, layer);
    runDense(&StatesRunner::attention, layer);
    if (isChanged(layer)) {
      startDense();
      std::vector<float> down =
          change(layer, {fit, denseFit ? &*denseFit : nullptr},
                 {choose, denseChoose ? &*denseChoose : nullptr});
      runner.replaceDown(layer, down);
      model.down[layer] = std::move(down);
    }
    for (HiddenStates *part : {&fit, &choose, &check})
      states.feedForward(*part, layer);
    runner.restoreDown(layer);
    runDense(&StatesRunner::feedForward, layer);
    progress.update(static_cast<double>(layer + 1));
  }
  loss = states.loss(check);
}

/// With the columns that stay alone.
ModelCost CompressedDense::costAfter() const {
  ModelWeights weights = checkpoint.weights();
  TensorSizes sizes = tensorSizes(checkpoint);
  const uint64_t kept = static_cast<uint64_t>(columns);
  for (const uint64_t layer : pruned) {
    const LayerWeights &names = weights.layers[layer];
    for (const std::string &name :
         {names.gateProj, names.upProj, names.downProj, names.gateBias,
          names.upBias}) {
      if (name.empty())
        continue;
      TensorInfo &tensor = sizes.at(name);
      uint64_t &size = tensor.shape[name == names.downProj ? 1 : 0];
      tensor.bytes = tensor.bytes / size * kept;
      size = kept;
    }
  }
  std::vector<LayerWeights> left;
  for (const uint64_t layer : model.layers)
    left.push_back(weights.layers[layer]);
  weights.layers = std::move(left);
  return costOf(weights, sizes);
}

/// What was done, and the FLOPs of what is gone in terms of up-projections.
Json CompressedDense::methodJson() const {
  Json json = {{"method", arguments.method}};
  if (isPruning())
    json.update({{"layers", pruned},
                 {"columns", checkpoint.config().intermediateSize},
                 {"columns_kept", columns}});
  else
    json.update({{"blocks", droppedBlocks}, {"rounds", rounds}});
  json.update({{"refit", !arguments.noRefit}, {"refitted", figures}});
  return json;
}

void CompressedDense::run() {
  const Stopwatch watch;
  const double dense = denseLoss();
  if (!isPruning())
    chooseBlocks();
  compress();
  if (!std::isfinite(loss))
    fail("the compressed model has no finite loss on the calibration text; "
         "take less away or give more text");
  const Json source = {{"command", "compressed_dense"},
                       {"source", fs::absolute(arguments.source).string()}};
  Json provenance = source;
  provenance.update(methodJson());
  provenance["calibration"] = textSummary(text, options);
  writeDenseFolder(writer, checkpoint, model, provenance);

  const ModelCost before =
      costOf(checkpoint.weights(), tensorSizes(checkpoint));
  const ModelCost after = costAfter();
  const uint64_t saved =
      before.total().flopsPerToken - after.total().flopsPerToken;
  const ModelConfig &config = checkpoint.config();
  Json json = resultObject("compressed_dense");
  json.update(
      {{"source", arguments.source.string()}, {"out", arguments.out.string()}});
  json.update(methodJson());
  json.update(
      {{"flops_saved_per_token", saved},
       {"flops_saved_in_up_projections",
        static_cast<double>(saved) /
            static_cast<double>(2 * config.hiddenSize *
                                config.intermediateSize)},
       // The folder keeps the columns that are gone, as zeros in W_down.
       {"bytes_of_zero_columns",
        isPruning() ? before.total().bytes - after.total().bytes : 0},
       {"before", modelCostJson(before)},
       {"after", modelCostJson(after)},
       {"calibration", textSummary(text, options)},
       {"perplexity_dense", std::exp(dense)},
       {"perplexity_after", std::exp(loss)},
       {"ratio", std::exp(loss - dense)},
       {"seconds", watch.seconds()},
       {"peak_bytes", memoryStatus().peakResident}});
  printJson(json);
}

void checkOptions(const Arguments &arguments) {
  const auto require = [&](bool isGiven, const char *option) {
    if (!isGiven)
      throw UsageError(
          fmt::format("--method={} needs {}", arguments.method, option));
  };
  const auto refuse = [&](bool isGiven, const char *option) {
    if (isGiven)
      throw UsageError(
          fmt::format("{} is not for --method={}", option, arguments.method));
  };
  if (arguments.method == "prune") {
    require(!arguments.layers.empty(), "--layers=LIST");
    refuse(arguments.blocks > 0, "--blocks");
  } else {
    require(arguments.blocks > 0, "--blocks=N, 1 or more");
    refuse(!arguments.layers.empty(), "--layers");
    refuse(!arguments.keep.empty(), "--keep");
  }
}

void addOptions(CLI::App &app, Arguments &arguments) {
  app.add_option("SRC", arguments.source, "Hugging Face folder or GGUF, dense")
      ->required();
  app.add_option("OUT", arguments.out, "The folder to make")->required();
  app.add_option("--method", arguments.method,
                 "prune: fewer columns of d_ff in some layers; drop: fewer "
                 "blocks")
      ->required()
      ->check(CLI::IsMember({"prune", "drop"}))
      ->type_name("METHOD");
  app.add_option("--layers", arguments.layers,
                 "The layers to prune, a list like 2,5,8")
      ->type_name("LIST");
  app.add_option("--keep", arguments.keep,
                 "Share of the columns that stay (default: 2/3, the FLOPs of a "
                 "STEM layer)")
      ->type_name("SHARE");
  app.add_option("--blocks", arguments.blocks, "How many blocks to drop")
      ->check(wholeNumber(UINT32_MAX));
  app.add_flag("--no-refit", arguments.noRefit,
               "Leave W_down's values as they are");
  app.add_flag("--force", arguments.force,
               "Replace OUT if it is a folder that Stem made");
  addCalibrationTextOptions(app, arguments.text);
  addComputeOptions(app, arguments.compile);
}

int report(const char *kind, std::string_view message, int status) {
  printStderr("{}: {}\n", kind, visible(message));
  return status;
}

} // namespace

int main(int argc, char **argv) {
  openStandardDescriptors();
  CLI::App app("Makes a dense model of fewer FLOPs, to compare a converted one "
               "with, and prints JSON.",
               "compressed_dense");
  Arguments arguments;
  addOptions(app, arguments);
  CLI11_PARSE(app, argc, argv);
  try {
    cleanUpOnSignals();
    checkOptions(arguments);
    if (arguments.keep.empty())
      arguments.keep = "2/3";
    CompressedDense(arguments).run();
    finishStdout();
    return 0;
  } catch (const UsageError &error) {
    return report("compressed_dense", error.what(), 2);
  } catch (const std::exception &error) {
    return report("error", error.what(), 1);
  }
}
