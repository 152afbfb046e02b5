//===- CompiledStepTest.cpp - Compiled gradients of whole models ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Against gradients that PyTorch computed (test/data/golden/README.md).
//
//===----------------------------------------------------------------------===//

#include "CompiledStep.h"
#include "EngineTestSupport.h"

#include "stem/Model/Safetensors.h"
#include "stem/Support/Error.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>

using namespace stem;

namespace {

template <typename T>
std::vector<T> read(const SafetensorsFile &file, const std::string &name) {
  const TensorView &entry = file.get(name);
  std::vector<T> values(entry.data.size() / sizeof(T));
  std::memcpy(values.data(), entry.data.data(), entry.data.size());
  return values;
}

float largest(std::span<const float> values) {
  float most = 0;
  for (float value : values)
    most = std::max(most, std::abs(value));
  return most;
}

/// The largest difference, as a share of the largest wanted value.
double worst(std::span<const float> seen, std::span<const float> wanted) {
  EXPECT_EQ(seen.size(), wanted.size());
  double most = 0;
  for (size_t i = 0; i < std::min(seen.size(), wanted.size()); ++i)
    most = std::max<double>(most, std::abs(seen[i] - wanted[i]));
  return most / largest(wanted);
}

class CompiledStepTest : public testing::TestWithParam<const char *> {
protected:
  CompiledStepTest()
      : folder(std::filesystem::path(STEM_TEST_DATA) / "golden" / GetParam()),
        checkpoint(Checkpoint::open(folder)),
        golden(SafetensorsFile::open(folder / "golden.safetensors")) {
    BatchLimits limits = {checkpoint.config().vocabSize};
    batch = batchFromTensors(golden, limits);
  }

  /// A step with the checkpoint's weights in place.
  std::unique_ptr<CompiledStep> makeStep(int64_t residualBudget = 0,
                                         DType dtype = DType::F32) {
    TrainingStepOptions options;
    options.engine.dtype = dtype;
    options.residualBudget = residualBudget;
    options.engine.threads = 2;
    options.tokens = batch.places();
    options.rows = batch.rows;
    auto step = std::make_unique<CompiledStep>(checkpoint, options);
    step->load();
    for (size_t i = 0; i < step->parameters().size(); ++i)
      step->setParameter(i, values(step->parameters()[i]));
    return step;
  }

  std::vector<float> values(const TrainingStep::Parameter &parameter) {
    std::vector<float> result(static_cast<size_t>(parameter.elements()));
    const TensorInfo &info = checkpoint.tensors().get(parameter.key);
    checkpoint.tensors().readF32(parameter.key, 0, info.rows(), result.data());
    return result;
  }

  std::vector<float> spread(const TrainingStep::Rows &rows,
                            const TrainingStep::Table &table) {
    std::vector<float> dense(static_cast<size_t>(table.rows * table.columns));
    for (size_t i = 0; i < rows.ids.size(); ++i)
      std::copy_n(rows.rows.begin() + i * table.columns, table.columns,
                  dense.begin() + rows.ids[i] * table.columns);
    return dense;
  }

  /// Compares every gradient; gives the names of the largest difference.
  void expectGradients(CompiledStep &step, double bound) {
    std::set<std::string> seen;
    auto compare = [&](const std::string &key, std::span<const float> values) {
      const std::string name = "grad." + key;
      seen.insert(name);
      EXPECT_LE(worst(values, read<float>(golden, name)), bound) << name;
    };
    for (size_t i = 0; i < step.parameters().size(); ++i)
      compare(step.parameters()[i].key, step.gradient(i));
    for (size_t i = 0; i < step.tables().size(); ++i)
      compare(step.tables()[i].key,
              spread(step.tableGradient(i), step.tables()[i]));
    for (const TensorView &tensor : golden.tensors())
      if (tensor.name.starts_with("grad.")) {
        EXPECT_TRUE(seen.contains(tensor.name)) << tensor.name;
      }
  }

  std::filesystem::path folder;
  Checkpoint checkpoint;
  SafetensorsFile golden;
  Batch batch;
};

TEST_P(CompiledStepTest, LossAndEveryGradientInF32) {
  auto step = makeStep();
  const float scale = 1.0f / static_cast<float>(batch.labelCount);
  const double loss = step->run(batch, scale) * scale;
  double wanted = 0;
  std::memcpy(&wanted, golden.get("loss").data.data(), sizeof(double));
  EXPECT_NEAR(loss, wanted, 1e-5);
  EXPECT_NEAR(step->evaluate(batch) * scale, wanted, 1e-5);
  expectGradients(*step, 1e-5);
}

TEST_P(CompiledStepTest, ABudgetForResiduals) {
  auto step = makeStep(), tight = makeStep(/*residualBudget=*/1);
  const BatchBound bound =
      boundOfRows(batch.rows, batch.length, step->tokenTile());
  EXPECT_LT(tight->memory(bound).activations, step->memory(bound).activations);
  const float scale = 1.0f / static_cast<float>(batch.labelCount);
  EXPECT_EQ(step->run(batch, scale), tight->run(batch, scale));
  expectGradients(*tight, 1e-5);
}

/// What is computed again is rounded as what is kept is.
TEST_P(CompiledStepTest, ABudgetChangesNoBit) {
  const float scale = 1.0f / static_cast<float>(batch.labelCount);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    auto step = makeStep(0, dtype), tight = makeStep(1, dtype);
    EXPECT_EQ(step->run(batch, scale), tight->run(batch, scale));
    for (size_t i = 0; i < step->parameters().size(); ++i)
      EXPECT_TRUE(std::ranges::equal(step->gradient(i), tight->gradient(i)))
          << dtypeConfigName(dtype) << ", " << step->parameters()[i].key;
    for (size_t i = 0; i < step->tables().size(); ++i)
      EXPECT_TRUE(std::ranges::equal(step->tableGradient(i).rows,
                                     tight->tableGradient(i).rows))
          << dtypeConfigName(dtype) << ", " << step->tables()[i].key;
  }
}

/// Half of what can be computed again is enough for the places of the batch,
/// and too little for its tiles.
TEST_P(CompiledStepTest, ABudgetIsForTiles) {
  auto step = makeStep(), least = makeStep(/*residualBudget=*/1);
  const BatchBound bound =
      boundOfRows(batch.rows, batch.length, step->tokenTile());
  ASSERT_GE(bound.tokens, 6 * batch.places());
  const auto activations = [&](const CompiledStep &of) {
    return of.memory(bound).activations;
  };
  auto half = makeStep((activations(*step) - activations(*least)) / 2);
  EXPECT_LT(activations(*half), activations(*step));
}

/// All that the layers of these models keep can be computed again.
TEST(CompiledStep, NamesTheBudgetThatCanBeMet) {
  EXPECT_EQ(budgetWarning(1000, 256, 9216),
            "--recompute-budget=1000: 9216 bytes of a batch of 256 tokens, in "
            "tiles, are kept for the backward pass, with all computed again "
            "that can be; give --recompute-budget=9216, or a smaller batch");
}

} // namespace

INSTANTIATE_TEST_SUITE_P(
    Models, CompiledStepTest,
    testing::Values("llama3_rope_tied_headdim", "llama_gqa", "mistral_sliding",
                    "qwen2_qkv_bias", "qwen3_qk_norm", "stem_llama"),
    [](const auto &info) { return std::string(info.param); });
