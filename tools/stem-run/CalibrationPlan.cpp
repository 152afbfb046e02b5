//===- CalibrationPlan.cpp - What a calibration will take -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationPlan.h"

#include "ByteRowWriter.h"
#include "EngineMemory.h"
#include "EngineWeights.h"
#include "LayerFitter.h"
#include "TableRows.h"
#include "TensorCopy.h"

#include "stem/Support/Format.h"

#include <algorithm>
#include <fmt/format.h>

using namespace stem;

CalibrationSizes stem::calibrationSizes(const ModelConfig &config,
                                        const CalibrationText &text,
                                        const LayerRunner &runner,
                                        int64_t rank) {
  const MemoryPlan &runs = runner.report().plan;
  CalibrationSizes sizes;
  sizes.fit = text.fit.places();
  sizes.choose = text.choose.places();
  sizes.check = text.check.places();
  sizes.ids = static_cast<int64_t>(text.rowIds.size());
  sizes.rank = rank;
  sizes.weights = runs.weights;
  sizes.oneLayerWeights = runner.oneLayerWeights();
  sizes.step = sumOfBytes({runs.arena, runs.cache, runs.tables});
  sizes.stepTokens = runner.maxStepTokens();
  sizes.threads = runner.report().threads;
  sizes.productType = runner.productType();
  sizes.files = std::max({readingBytes(config, sizes.threads), copyingBytes,
                          rowWritingBytes(config, sizes.threads)});
  return sizes;
}

/// Rows that are hot may be of any type.
void stem::addByteRows(const ModelConfig &config, uint64_t hotCount,
                       CalibrationSizes &sizes) {
  sizes.hasByteRows = true;
  sizes.files =
      sumOfBytes({sizes.files, ByteRowWriter::bytes(config.vocabSize,
                                                    config.intermediateSize,
                                                    hotCount, DType::F32)});
}

static int64_t checkedPlaces(const CalibrationSizes &sizes) {
  return (sizes.hasByteRows ? 2 : 1) * sizes.check;
}

int64_t CalibrationPlan::total() const {
  return sumOfBytes(
      {program, weights, states, rows, work, products, taps, steps, files});
}

std::string CalibrationPlan::describe() const {
  const auto bytes = [](int64_t count) {
    return formatBytes(static_cast<double>(count));
  };
  std::string text = fmt::format(
      "hidden states {}, rows of a layer {}{}, its fits {}, its products {}, "
      "its taps {}, weights {}{}, steps {}, files {}, the program so far {}; "
      "{} in all",
      bytes(states), bytes(rows),
      rowParts > 1 ? fmt::format(" (in {} parts)", rowParts) : "", bytes(work),
      bytes(products), bytes(taps), bytes(weights),
      isOneLayerHeld ? " (a layer at a time)" : "", bytes(steps), bytes(files),
      bytes(program), bytes(total()));
  if (before > total())
    text += fmt::format(", after {} for the text", bytes(before));
  if (spill > 0)
    text += fmt::format(", and {} of hidden states in a file", bytes(spill));
  if (rowSpill > 0)
    text += fmt::format(", {} of rows", bytes(rowSpill));
  return text;
}

Json CalibrationPlan::json() const {
  return {{"states", states},     {"rows", rows},
          {"fits", work},         {"products", products},
          {"taps", taps},         {"weights", weights},
          {"steps", steps},       {"files", files},
          {"program", program},   {"total", total()},
          {"before", before},     {"spill", sumOfBytes({spill, rowSpill})},
          {"row_parts", rowParts}};
}

namespace {

int64_t quotient(int64_t count, int64_t each) { return (count - 1) / each + 1; }

/// Rows in about so many parts, of whole panels, that lie in files or in memory
/// once they are fitted.
void planRows(const ModelConfig &config, const CalibrationSizes &sizes,
              int64_t parts, bool areInFiles, CalibrationPlan &plan) {
  const int64_t d = static_cast<int64_t>(config.hiddenSize);
  const int64_t f = static_cast<int64_t>(config.intermediateSize);
  const int64_t panels = quotient(quotient(f, STEM_PANEL), parts);
  plan.rowColumns = std::min(f, panels * STEM_PANEL);
  plan.rowParts = quotient(f, plan.rowColumns);
  const int64_t sums = LayerRows::fileBytes(sizes.ids, plan.rowColumns);
  int64_t held = sums; // while other fits are made
  if (areInFiles) {
    held = LayerRows::pieceBytes(sizes.ids, plan.rowColumns);
    plan.rowSpill = LayerRows::fileBytes(sizes.ids, f);
  }
  if (sizes.isOneRow)
    held = plan.rowSpill = 0;
  plan.rows = sumOfBytes(
      {LayerFitter::rowBytes(config, sizes.ids, plan.rowParts), held});
  plan.work = LayerFitter::workBytes(
      config, sumOfBytes({sums - held, RowFit::fitBytes(plan.rowColumns, d)}),
      sizes.rank, sizes.choose, sizes.threads);
}

} // namespace

CalibrationPlan stem::planCalibration(const ModelConfig &config,
                                      const CalibrationSizes &sizes,
                                      int64_t bound) {
  const int64_t d = static_cast<int64_t>(config.hiddenSize);
  // The converted layers' and the dense model's.
  const int64_t states =
      (2 * (sizes.fit + sizes.choose) + checkedPlaces(sizes)) * d *
      int64_t(sizeof(float));
  CalibrationPlan plan;
  plan.program = sizes.program;
  plan.before = sizes.before;
  plan.files = sizes.files;
  plan.weights = sizes.weights;
  plan.states = states;
  planRows(config, sizes, /*parts=*/1, /*areInFiles=*/false, plan);
  plan.steps = sumOfBytes(
      {sizes.step, LayerFitter::stepBytes(config, sizes.stepTokens)});
  plan.products = KeptProducts::bytes(
      sizes.fit, static_cast<int64_t>(config.intermediateSize),
      sizes.productType);
  plan.taps = KeptTaps::bytes(sizes.fit, sizes.rank > 0 ? d : 0,
                              static_cast<int64_t>(config.intermediateSize));
  if (plan.total() > bound)
    plan.taps = 0;
  if (plan.total() > bound)
    plan.products = 0;
  if (plan.total() > bound) {
    // A step of two streams: one of them is copied, or taken from the other.
    plan.states =
        std::min(states, 2 * sizes.stepTokens * d * int64_t(sizeof(float)));
    plan.spill = states;
  }
  if (plan.total() > bound) {
    plan.weights = sizes.oneLayerWeights;
    plan.isOneLayerHeld = true;
  }
  const int64_t panels =
      quotient(static_cast<int64_t>(config.intermediateSize), STEM_PANEL);
  for (int64_t parts = 1; parts <= panels && plan.total() > bound; ++parts) {
    CalibrationPlan parted = plan;
    planRows(config, sizes, parts, /*areInFiles=*/true, parted);
    if (parted.total() < plan.total())
      plan = parted;
  }
  return plan;
}

/// Rows, W_down, and what the layer above sees; with a low-rank term also the
/// rows before it, and the term.
int64_t stem::fitPasses(int64_t rank, int64_t rowParts) {
  return rank > 0 ? 2 * rowParts + 3 : rowParts + 2;
}

double stem::estimateSeconds(const CalibrationSizes &sizes,
                             const CalibrationPlan &plan,
                             const CalibrationWork &work,
                             double secondsPerPlace) {
  // A fit's passes in dense layers' worth, with its sums; measured on models of
  // 135 million parameters. A further part runs the gate and the up-projection
  // again.
  const double again = static_cast<double>(plan.rowParts - 1);
  const double fit = sizes.rank > 0 ? 12 + 2 * again : 7 + again;
  const double layers = static_cast<double>(work.layers);
  const double converted = static_cast<double>(work.converted);
  const double all =
      static_cast<double>(sizes.fit + sizes.choose + sizes.check);
  // The dense model runs beside the converted one.
  double places = 2 * layers * all +
                  converted * fit * static_cast<double>(sizes.fit) +
                  layers * static_cast<double>(checkedPlaces(sizes));
  if (work.measuresLayers)
    places += layers * (1 + 7 + again) * static_cast<double>(work.sample) +
              layers * (layers + 1) / 2 * static_cast<double>(sizes.choose);
  return places * secondsPerPlace;
}
