//===- TrainingPlan.cpp - Memory and FLOPs of a run, before it ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainingPlan.h"

#include "ModelCost.h"
#include "stem/Model/ModelFolder.h"
#include "stem/Support/Format.h"

#include <fmt/format.h>

using namespace stem;

/// Forward, and the gradients of what products read: as much again for the
/// activations, and for each matrix that is trained.
static double linearFlopsPerToken(const Checkpoint &checkpoint,
                                  const TrainingStep &step) {
  const ModelWeights &weights = checkpoint.weights();
  const ModelCost cost = costOf(weights, tensorSizes(checkpoint));
  double flops = 2.0 * static_cast<double>(cost.total().flopsPerToken);
  for (const TrainingStep::Parameter &parameter : step.parameters()) {
    const bool isProduct =
        parameter.shape.size() == 2 &&
        (parameter.key != weights.embedding || weights.isHeadTied);
    flops += isProduct ? 2.0 * static_cast<double>(parameter.elements()) : 0;
  }
  return flops;
}

static std::string tablesNote(const Checkpoint &checkpoint,
                              const TrainingStep &step) {
  const auto all = static_cast<int64_t>(checkpoint.config().vocabSize);
  if (step.tables().empty() || step.tables()[0].rows == all)
    return "rows";
  return fmt::format("rows, and those {} of each table that are trained",
                     step.tables()[0].rows);
}

TrainingPlan::TrainingPlan(const Checkpoint &checkpoint,
                           const TrainingStep &step,
                           const TrainerOptions &options,
                           const StepShape &shape, const BatchBound &bound,
                           const Checkpoint *teacher)
    : shape(shape) {
  const StepMemory own = step.memory(bound);
  const TrainerMemory outer = trainerMemory(step, options, shape.batchTokens());
  // ids, positions, sequences and labels
  const int64_t data = shape.tokens() * 4 * int64_t(sizeof(int32_t));
  const char *type = step.report().dtype == DType::BF16 ? "bf16" : "f32";
  parts = {
      {"weights", own.weights, fmt::format("as products read them, {}", type)},
      {"masters", outer.masters, "trained weights in f32"},
      {"moments", outer.moments, "AdamW, two of each trained weight"},
      {"tables", own.tables, tablesNote(checkpoint, step)},
      {"row moments", outer.rowState,
       fmt::format("--row-optimizer={}", rowModeName(options.rows.mode))},
      {"gradients", sumOfBytes({own.gradients, outer.gradients}),
       step.updatesParameters() ? "of rows; others are among the activations"
                                : ""},
      {"activations", own.activations,
       fmt::format("--batch={} --ctx={}{}", shape.rows, shape.length,
                   bound.sequences > shape.rows
                       ? fmt::format(", {} tokens in tiles", bound.tokens)
                       : "")},
      {"data", data, ""},
      {"rows aside", outer.rowsAside, "those of a batch, to validate"},
  };
  if (teacher)
    parts.push_back({"teacher", own.teacher, "weights and activations"});
  if (own.tablesInFile > 0)
    inFiles = {{"tables", own.tablesInFile, ""},
               {"row moments", outer.rowStateInFiles, ""}};
  const auto tokens = static_cast<double>(shape.tokens());
  linearFlops = tokens * linearFlopsPerToken(checkpoint, step);
  // The backward pass of both products has two products each.
  attentionFlops = 3.0 *
                   stem::attentionFlops(checkpoint.config(), 0,
                                        static_cast<uint64_t>(shape.length)) *
                   static_cast<double>(shape.rows * shape.accumulate);
  if (!teacher)
    return;
  const ModelCost cost = costOf(teacher->weights(), tensorSizes(*teacher));
  linearFlops += tokens * static_cast<double>(cost.total().flopsPerToken);
  attentionFlops += stem::attentionFlops(teacher->config(), 0,
                                         static_cast<uint64_t>(shape.length)) *
                    static_cast<double>(shape.rows * shape.accumulate);
}

int64_t TrainingPlan::total() const {
  int64_t sum = 0;
  for (const Part &part : parts)
    sum = sumOfBytes({sum, part.bytes});
  return sum;
}

static std::string bytesText(int64_t bytes) {
  return formatBytes(static_cast<double>(bytes));
}

std::string TrainingPlan::text() const {
  std::string text = "memory:\n";
  for (const Part &part : parts) {
    std::string line = fmt::format("  {:<12} {:>10}  {}", part.name,
                                   bytesText(part.bytes), part.note);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += fmt::format("  {:<12} {:>10}\n", "in all", bytesText(total()));
  for (const Part &part : inFiles)
    text += fmt::format("  {:<12} {:>10}  in a file of OUT/training\n",
                        part.name, bytesText(part.bytes));
  text += fmt::format(
      "a step: {} x {} x {} tokens, {}FLOP (linear layers {:.0f} %, attention "
      "{:.0f} %)",
      shape.accumulate, shape.rows, shape.length,
      formatCount(linearFlops + attentionFlops),
      100 * linearFlops / (linearFlops + attentionFlops),
      100 * attentionFlops / (linearFlops + attentionFlops));
  return text;
}

static Json partsJson(const std::vector<TrainingPlan::Part> &parts) {
  Json json = Json::object();
  for (const TrainingPlan::Part &part : parts) {
    std::string key = part.name;
    for (char &letter : key)
      letter = letter == ' ' ? '_' : letter;
    json[key] = part.bytes;
  }
  return json;
}

Json TrainingPlan::json() const {
  Json memory = partsJson(parts);
  memory["total"] = total();
  return {{"memory", memory},
          {"files", partsJson(inFiles)},
          {"tokens_per_step", shape.tokens()},
          {"linear_flops_per_step", linearFlops},
          {"attention_flops_per_step", attentionFlops}};
}

bool TrainingPlan::fits(const MemoryBound &bound) const {
  return sumOfBytes({bound.held, total()}) <= bound.bytes;
}

void TrainingPlan::requireMemory(const std::string &advice,
                                 const MemoryBound &bound) const {
  std::string sum;
  for (const Part &part : parts)
    if (part.bytes)
      sum += fmt::format("{}{} {}", sum.empty() ? "" : " + ", part.name,
                         bytesText(part.bytes));
  bound.require(sumOfBytes({bound.held, total()}),
                fmt::format("training takes {} ({})", bytesText(total()), sum),
                advice);
}

void TrainingPlan::requireDisk(const std::filesystem::path &folder) const {
  int64_t needed = 0;
  for (const Part &part : inFiles)
    needed = sumOfBytes({needed, part.bytes});
  const uint64_t available = freeDiskBytes(folder);
  if (static_cast<uint64_t>(needed) <= available)
    return;
  fail("{}: --tables=file takes {} there (tables {} + row moments {}), {} are "
       "free on this file system; free some space, choose another --out, or "
       "give --row-optimizer=rowwise",
       folder.string(), bytesText(needed), bytesText(inFiles[0].bytes),
       bytesText(inFiles[1].bytes),
       formatBytes(static_cast<double>(available)));
}
