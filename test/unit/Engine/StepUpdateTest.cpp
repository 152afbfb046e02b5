//===- StepUpdateTest.cpp - Steps that update parameters themselves -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A run whose steps have AdamW in them has the bits of one whose trainer takes
// their gradients.
//
//===----------------------------------------------------------------------===//

#include "EngineTestSupport.h"
#include "Trainer.h"
#include "TrainingPlan.h"

#include <limits>
#include <map>

using namespace stem;
using namespace stem::test;

namespace {

struct Settings {
  const char *model;
  TrainedPart part = TrainedPart::All;
  DType type = DType::F32;
};

/// A trainer and its step on a golden model.
class TrainedModel {
public:
  TrainedModel(const Settings &settings, bool updatesInStep)
      : checkpoint(Checkpoint::open(goldenFolder(settings.model))),
        batch(readBatchIds(goldenFolder(settings.model) / "golden.safetensors",
                           {.vocabulary = checkpoint.config().vocabSize})) {
    TrainerOptions trainerOptions;
    TrainingStepOptions options;
    options.engine.dtype = settings.type;
    options.engine.threads = 2;
    options.train = settings.part;
    options.tokens = batch.places();
    options.rows = batch.rows;
    if (updatesInStep)
      options.optimizer = StepOptimizer();
    step = makeTrainingStep(checkpoint, options);
    step->load();
    trainer = std::make_unique<Trainer>(checkpoint, *step, trainerOptions);
  }

  StepResult takeStep(double rate = 1e-2) {
    return trainer->update({&batch, 1}, rate, rate);
  }

  /// Bytes of every tensor of the state, by name.
  std::map<std::string, std::vector<std::byte>> state() const {
    std::map<std::string, std::vector<std::byte>> bytes;
    for (const CheckpointFile &file : trainer->state())
      for (const TensorView &tensor : file.tensors)
        bytes[tensor.name] = {tensor.data.begin(), tensor.data.end()};
    return bytes;
  }

  Checkpoint checkpoint;
  Batch batch;
  std::unique_ptr<TrainingStep> step;
  std::unique_ptr<Trainer> trainer;
};

class StepUpdateTest : public testing::TestWithParam<Settings> {};

TEST_P(StepUpdateTest, HasTheBitsOfTheTrainer) {
  TrainedModel inStep(GetParam(), true), outside(GetParam(), false);
  EXPECT_TRUE(inStep.step->updatesParameters());
  EXPECT_FALSE(outside.step->updatesParameters());
  for (int i = 0; i < 3; ++i) {
    const StepResult seen = inStep.takeStep(), wanted = outside.takeStep();
    EXPECT_EQ(seen.nll, wanted.nll);
    EXPECT_NEAR(seen.norm, wanted.norm, 1e-6 * wanted.norm);
    ASSERT_EQ(inStep.state(), outside.state()) << i;
  }
  EXPECT_EQ(inStep.trainer->evaluate(inStep.batch),
            outside.trainer->evaluate(outside.batch));
}

TEST_P(StepUpdateTest, HoldsFewerGradients) {
  TrainedModel inStep(GetParam(), true), outside(GetParam(), false);
  const BatchBound bound =
      boundOfRows(inStep.batch.rows, inStep.batch.length, 128);
  const StepMemory seen = inStep.step->memory(bound);
  const StepMemory wanted = outside.step->memory(bound);
  EXPECT_LT(seen.gradients + seen.activations,
            wanted.gradients + wanted.activations);
}

INSTANTIATE_TEST_SUITE_P(
    Models, StepUpdateTest,
    testing::Values(Settings{"llama3_rope_tied_headdim"},
                    Settings{"qwen2_qkv_bias", TrainedPart::All, DType::BF16},
                    Settings{"stem_llama"},
                    Settings{"stem_llama", TrainedPart::StemLayers}),
    [](const auto &info) {
      return fmt::format("{}_{}", info.param.model,
                         int(info.param.part) + 10 * int(info.param.type));
    });

TEST(StepUpdate, TablesAloneAreTheTrainers) {
  TrainedModel run({"stem_llama", TrainedPart::Tables}, true);
  EXPECT_FALSE(run.step->updatesParameters());
  EXPECT_GT(run.takeStep().norm, 0);
}

/// Weights that give no finite gradient, in the last layer's norm.
void spoil(TrainedModel &run) {
  const size_t last = run.step->parameters().size() - 1;
  const auto &parameter = run.step->parameters()[last];
  run.step->setParameter(
      last, std::vector<float>(parameter.elements(),
                               std::numeric_limits<float>::quiet_NaN()));
}

TEST(StepUpdate, NamesAGradientThatIsNotFinite) {
  TrainedModel run({"stem_llama"}, true);
  const auto before = run.state();
  spoil(run);
  EXPECT_ERROR(run.takeStep(),
               "has values that are NaN or infinite; lower --lr, give "
               "--warmup, or --clip=1");
  // Here the first gradient of all is bad, so that nothing has moved.
  EXPECT_EQ(run.state(), before);
}

TEST(StepUpdate, IsForSingleBatchesWithoutANorm) {
  TrainerOptions options;
  options.dense.beta2 = 0.99;
  ASSERT_TRUE(stepOptimizer(options));
  EXPECT_EQ(stepOptimizer(options)->beta2, 0.99);
  options.clip = 1;
  EXPECT_FALSE(stepOptimizer(options));
  options.clip = 0;
  options.accumulate = 2;
  EXPECT_FALSE(stepOptimizer(options));
}

TEST(StepUpdate, TrainersThatNeedAllGradients) {
  TrainedModel run({"stem_llama"}, true);
  TrainerOptions options;
  options.clip = 1;
  EXPECT_ERROR(Trainer(run.checkpoint, *run.step, options),
               "takes one batch, not 1, and no norm to clip to, not 1");
  options.clip = 0;
  options.accumulate = 2;
  EXPECT_ERROR(Trainer(run.checkpoint, *run.step, options),
               "takes one batch, not 2, and no norm to clip to, not 0");
}

} // namespace
