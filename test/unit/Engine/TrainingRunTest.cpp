//===- TrainingRunTest.cpp - What a training run keeps and plans ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Support/TestFiles.h"
#include "EngineTestSupport.h"
#include "InterpretedStep.h"
#include "RunState.h"
#include "TrainingMetrics.h"
#include "TrainingPlan.h"

#include <cmath>
#include <limits>

using namespace stem;
using namespace stem::test;

namespace {

//===----------------------------------------------------------------------===//
// RunState
//===----------------------------------------------------------------------===//

RunState sampleState() {
  RunState state;
  state.step = 12;
  state.position = {3, 5};
  state.labels = 96;
  state.skipped = 1;
  state.loss = 2.5;
  state.seconds = 0.1;
  state.options = {{"--lr", 0.1}, {"--betas", {0.9, 0.95}}, {"--seed", 7u}};
  return state;
}

TEST(RunState, ComesBack) {
  const RunState state = sampleState();
  const RunState back = RunState::parse(state.text(), "run.json");
  EXPECT_EQ(back.step, state.step);
  EXPECT_EQ(back.position, state.position);
  EXPECT_EQ(back.labels, state.labels);
  EXPECT_EQ(back.skipped, state.skipped);
  EXPECT_EQ(back.loss, state.loss);
  EXPECT_EQ(back.seconds, state.seconds);
  back.requireOptions(state.options, "out");
}

TEST(RunState, ListsWhatDiffers) {
  const RunState state = sampleState();
  Json now = state.options;
  now["--lr"] = 0.2;
  now["--clip"] = 1;
  now.erase("--seed");
  EXPECT_ERROR(state.requireOptions(now, "out"), "out: --resume",
               "--lr was 0.1, is 0.2", "--clip was nothing, is 1",
               "--seed was 7, is nothing", "give what was");
}

TEST(RunState, RefusesOtherTexts) {
  const auto parse = [](const std::string &text) {
    return RunState::parse(text, "run.json");
  };
  EXPECT_ERROR(parse("x"), "run.json", "\"version\" is not 1");
  EXPECT_ERROR(parse(R"({"version": 2})"), "\"version\" is not 1");
  EXPECT_ERROR(parse(std::string(100000, '[')), "\"version\" is not 1");
  for (const char *key :
       {"step", "epoch", "index", "labels", "skipped_steps"}) {
    Json json = Json::parse(sampleState().text());
    json[key] = -1;
    EXPECT_ERROR(parse(json.dump()), key, "is not a whole number from 0");
    json.erase(key);
    EXPECT_ERROR(parse(json.dump()), key, "is not a whole number from 0");
  }
  for (const char *key : {"loss", "seconds"}) {
    Json json = Json::parse(sampleState().text());
    json[key] = "x";
    EXPECT_ERROR(parse(json.dump()), key, "is not a number");
  }
  Json json = Json::parse(sampleState().text());
  json["options"] = 1;
  EXPECT_ERROR(parse(json.dump()), "options", "is not an object");
}

TEST(RunState, FingerprintIsOfTheValues) {
  const auto fingerprint = [](const char *name) {
    return modelFingerprint(Checkpoint::open(goldenFolder(name)));
  };
  EXPECT_EQ(fingerprint("llama_gqa"), fingerprint("llama_gqa"));
  EXPECT_NE(fingerprint("llama_gqa"), fingerprint("stem_llama"));
}

//===----------------------------------------------------------------------===//
// TrainingMetrics
//===----------------------------------------------------------------------===//

std::vector<int64_t> stepsOf(const TrainingMetrics &metrics) {
  std::vector<int64_t> steps;
  metrics.read([&](const Json &line) { steps.push_back(line["step"]); });
  return steps;
}

TEST(TrainingMetrics, KeepsWhatAResumedRunHasBehindIt) {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  {
    TrainingMetrics metrics(path, 0);
    for (const int64_t step : {0, 1, 2, 3})
      metrics.add({{"step", step}, {"loss", 1}});
    EXPECT_EQ(stepsOf(metrics), (std::vector<int64_t>{0, 1, 2, 3}));
  }
  // As a run leaves it that is killed while it writes.
  writeText(path, readText(path) + R"({"step": 1, "lo)");
  {
    TrainingMetrics metrics(path, 2);
    metrics.add({{"step", 3}});
    EXPECT_EQ(stepsOf(metrics), (std::vector<int64_t>{0, 1, 2, 3}));
  }
  const TrainingMetrics anew(path, 0);
  EXPECT_TRUE(stepsOf(anew).empty());
}

TEST(TrainingMetrics, NamesAFileThatItCannotWrite) {
  EXPECT_ERROR(TrainingMetrics("/proc/metrics.jsonl", 0),
               "/proc/metrics.jsonl");
}

//===----------------------------------------------------------------------===//
// TrainingPlan
//===----------------------------------------------------------------------===//

TEST(TrainingPlan, CountsEveryByteAndProduct) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  TrainingStepOptions options;
  options.engine.dtype = DType::F32;
  options.tokens = 16;
  const auto step = makeInterpretedStep(checkpoint, options);
  TrainerOptions trainer;
  trainer.rows.mode = RowMode::Exact;
  trainer.accumulate = 3;
  const TrainingPlan plan(checkpoint, *step, trainer, {2, 8, 3},
                          boundOfRows(2, 8, 1));
  int64_t dense = 0, matrices = 0;
  for (const auto &parameter : step->parameters()) {
    dense += parameter.elements();
    const bool isProduct = parameter.shape.size() == 2 &&
                           parameter.key != "model.embed_tokens.weight";
    matrices += isProduct ? parameter.elements() : 0;
  }
  const Json memory = plan.json()["memory"];
  EXPECT_EQ(memory["masters"], 4 * dense);
  EXPECT_EQ(memory["moments"], 8 * dense);
  EXPECT_EQ(memory["tables"], 2 * 96 * 80 * 4);
  EXPECT_EQ(memory["row_moments"], 2 * 96 * (8 * 80 + 4));
  EXPECT_EQ(memory["rows_aside"], 2 * 16 * 80 * 4);
  EXPECT_EQ(memory["data"], 3 * 16 * 16);
  int64_t sum = 0;
  for (const auto &[name, bytes] : memory.items())
    sum += name == "total" ? 0 : bytes.get<int64_t>();
  EXPECT_EQ(memory["total"], sum);
  // Forward, activations and weights: three products of each matrix.
  EXPECT_EQ(plan.linearFlops, 48.0 * 3 * 2 * double(matrices));
  // Causal attention of four heads of 8, three layers.
  EXPECT_EQ(plan.attentionFlops, 3.0 * 6 * 3 * 4 * 32 * (8 * 9 / 2));
}

/// What the process holds already counts too.
TEST(TrainingPlan, RefusesWhatIsNotAvailable) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  TrainingStepOptions options;
  options.tokens = 16;
  const auto step = makeInterpretedStep(checkpoint, options);
  const TrainingPlan plan(checkpoint, *step, {}, {2, 8, 1},
                          boundOfRows(2, 8, 1));
  MemoryBound bound(0);
  ASSERT_GT(bound.held, 0);
  bound.bytes = bound.held + plan.total();
  plan.requireMemory("take less", bound);
  --bound.bytes;
  EXPECT_ERROR(plan.requireMemory("take less", bound), "training takes ",
               "masters ", ", but ", " are available; take less");
}

TEST(TrainingPlan, OfTablesAlone) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  TrainingStepOptions options;
  options.train = TrainedPart::Tables;
  options.rowType = DType::BF16;
  options.tokens = 16;
  const auto step = makeInterpretedStep(checkpoint, options);
  const TrainingPlan plan(checkpoint, *step, {}, {2, 8, 1},
                          boundOfRows(2, 8, 1));
  const Json memory = plan.json()["memory"];
  EXPECT_EQ(memory["masters"], 0);
  EXPECT_EQ(memory["tables"], 2 * 96 * 80 * 2);
  EXPECT_EQ(memory["row_moments"], 2 * 96 * (4 * 80 + 4));
}

} // namespace
