//===- TrainerGoldenTest.cpp - Three steps against reference values -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Adam makes a sign of a gradient that is all rounding, and the reference norms
// in f32. So that every element can be compared, the first step takes gradients
// that are small from the reference. By the interpreter and in compiled code.
//
//===----------------------------------------------------------------------===//

#include "EngineTestSupport.h"
#include "InterpretedStep.h"
#include "Trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

using namespace stem;
using namespace stem::test;

namespace {

constexpr double kBound = 2e-4; // of each tensor's largest value
constexpr double kSmall = 2e-5; // of a gradient's largest value
constexpr double kGradientBound = 1e-5;
constexpr double kRate = 1e-2;

std::vector<float> floatsOf(const SafetensorsFile &file,
                            const std::string &name) {
  const TensorView &tensor = file.get(name);
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

double largestOf(std::span<const float> values) {
  double most = 0;
  for (const float value : values)
    most = std::max(most, std::fabs(double(value)));
  return most;
}

/// A step whose first run has the reference's gradients where they are small.
class SteadiedStep : public TrainingStep {
public:
  SteadiedStep(std::unique_ptr<TrainingStep> inner,
               const SafetensorsFile &golden)
      : inner(std::move(inner)), golden(golden) {}

  const std::vector<Parameter> &parameters() const override {
    return inner->parameters();
  }
  const std::vector<Table> &tables() const override { return inner->tables(); }
  const EngineReport &report() const override { return inner->report(); }
  StepMemory memory(const BatchBound &bound) const override {
    return inner->memory(bound);
  }
  int64_t tokenTile() const override { return inner->tokenTile(); }
  stem_context *context() const override { return inner->context(); }
  void load() override { inner->load(); }
  void setParameter(size_t parameter, std::span<const float> values) override {
    inner->setParameter(parameter, values);
  }
  RowTable table(size_t table) override { return inner->table(table); }
  double evaluate(const Batch &batch) override {
    return inner->evaluate(batch);
  }
  Rows tableGradient(size_t table) const override {
    return inner->tableGradient(table);
  }
  std::span<const float> gradient(size_t parameter) const override {
    return gradients[parameter];
  }

  double run(const Batch &batch, float scale) override {
    const double nll = inner->run(batch, scale);
    const bool isFirst = gradients.empty();
    gradients.clear();
    for (size_t i = 0; i < parameters().size(); ++i) {
      const auto own = inner->gradient(i);
      gradients.emplace_back(own.begin(), own.end());
      if (isFirst)
        steady(parameters()[i].key, gradients.back());
    }
    return nll;
  }

  int64_t steadied = 0;

private:
  void steady(const std::string &key, std::vector<float> &gradient) {
    const std::vector<float> wanted = floatsOf(golden, "grad." + key);
    ASSERT_EQ(wanted.size(), gradient.size());
    const double most = largestOf(wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(gradient[i], wanted[i], kGradientBound * most)
          << key << " " << i;
      if (std::fabs(wanted[i]) >= kSmall * most)
        continue;
      steadied += gradient[i] != wanted[i];
      gradient[i] = wanted[i];
    }
  }

  std::unique_ptr<TrainingStep> inner;
  const SafetensorsFile &golden;
  std::vector<std::vector<float>> gradients;
};

using MakeStep = std::unique_ptr<TrainingStep>(const Checkpoint &,
                                               const TrainingStepOptions &);
struct StepKind {
  const char *name;
  MakeStep *make;
};

class TrainerGoldenTest
    : public testing::TestWithParam<std::tuple<const char *, StepKind>> {
protected:
  TrainerGoldenTest()
      : folder(goldenFolder(std::get<0>(GetParam()))),
        checkpoint(Checkpoint::open(folder)),
        golden(SafetensorsFile::open(folder / "golden.safetensors")),
        batch(readBatchIds(folder / "golden.safetensors",
                           {.vocabulary = checkpoint.config().vocabSize})) {
    TrainingStepOptions options;
    options.engine.dtype = DType::F32;
    options.tokens = batch.places();
    options.rows = batch.rows;
    step = std::make_unique<SteadiedStep>(
        std::get<1>(GetParam()).make(checkpoint, options), golden);
    step->load();
    TrainerOptions trainer;
    trainer.rows.mode = RowMode::Exact;
    this->trainer = std::make_unique<Trainer>(checkpoint, *step, trainer);
  }

  double goldenLoss(const char *name) const {
    double value = 0;
    std::memcpy(&value, golden.get(name).data.data(), sizeof(value));
    return value;
  }

  double takeStep() {
    return trainer->update({&batch, 1}, kRate, kRate).loss();
  }

  std::filesystem::path folder;
  Checkpoint checkpoint;
  SafetensorsFile golden;
  Batch batch;
  std::unique_ptr<SteadiedStep> step;
  std::unique_ptr<Trainer> trainer;
};

TEST_P(TrainerGoldenTest, ThreeSteps) {
  EXPECT_NEAR(takeStep(), goldenLoss("loss"), 2e-6);
  takeStep();
  takeStep();
  const double loss = trainer->evaluate(batch) / double(batch.labelCount);
  EXPECT_NEAR(loss, goldenLoss("step3.loss"), kBound * loss);
  for (const TrainingStep::Parameter &parameter : step->parameters()) {
    SCOPED_TRACE(parameter.key);
    const std::vector<float> wanted =
        floatsOf(golden, "step3." + parameter.key);
    const std::span<const float> got = trainer->values(parameter.key);
    const double bound = kBound * largestOf(wanted);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i], bound) << i;
  }
  RecordProperty("small_gradients", std::to_string(step->steadied));
}

INSTANTIATE_TEST_SUITE_P(
    Models, TrainerGoldenTest,
    testing::Combine(
        testing::Values("llama3_rope_tied_headdim", "llama_gqa",
                        "mistral_sliding", "qwen2_qkv_bias", "qwen3_qk_norm"),
        testing::Values(StepKind{"interpreted", makeInterpretedStep},
                        StepKind{"compiled", makeTrainingStep})),
    [](const auto &info) {
      return std::string(std::get<0>(info.param)) + "_" +
             std::get<1>(info.param).name;
    });

} // namespace
