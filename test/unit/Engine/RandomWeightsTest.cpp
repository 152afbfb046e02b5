//===- RandomWeightsTest.cpp - Models that begin from a config ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RandomWeights.h"
#include "EngineTestSupport.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

using namespace stem;
using namespace stem::test;

namespace {

Checkpoint begin(const std::string &golden, uint64_t seed = 0,
                 int threads = 1) {
  return openRandomModel(std::filesystem::path(goldenFolder(golden)) /
                             "config.json",
                         seed, threads);
}

std::vector<float> valuesOf(const Checkpoint &checkpoint,
                            const std::string &name) {
  const TensorInfo &tensor = checkpoint.tensors().get(name);
  std::vector<float> values(tensor.elements());
  checkpoint.tensors().readF32(name, 0, tensor.rows(), values.data());
  return values;
}

double mean(const std::vector<float> &values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         double(values.size());
}

double deviation(const std::vector<float> &values) {
  double sum = 0;
  for (const float value : values)
    sum += double(value) * value;
  return std::sqrt(sum / double(values.size()));
}

/// Every family begins with the tensors of its own checkpoints.
TEST(RandomWeights, HasTheTensorsOfAModel) {
  for (const char *name :
       {"llama_gqa", "llama3_rope_tied_headdim", "mistral_sliding",
        "qwen2_qkv_bias", "qwen3_qk_norm", "stem_llama"}) {
    const Checkpoint drawn = begin(name);
    const Checkpoint wanted = Checkpoint::open(goldenFolder(name));
    ASSERT_EQ(drawn.weights().names(), wanted.weights().names()) << name;
    for (const std::string &tensor : wanted.weights().names()) {
      EXPECT_EQ(drawn.tensors().get(tensor).shape,
                wanted.tensors().get(tensor).shape)
          << tensor;
      EXPECT_EQ(drawn.tensors().get(tensor).dtype,
                wanted.tensors().get(tensor).dtype)
          << tensor;
    }
  }
}

/// Quantiles of the normal distribution, to seven places.
TEST(RandomWeights, InvertsTheDistribution) {
  const auto at = [](double p) {
    const auto word = static_cast<uint32_t>(p * 0x1p32);
    return normalsOf({word, word, word, word})[3];
  };
  EXPECT_NEAR(at(0.5), 0, 1e-6);
  EXPECT_NEAR(at(0.75), 0.6744898, 1e-6);
  EXPECT_NEAR(at(0.95), 1.6448536, 1e-6);
  EXPECT_NEAR(at(0.05), -1.6448536, 1e-6);
  EXPECT_NEAR(at(0.999), 3.0902323, 2e-6);
  EXPECT_NEAR(normalsOf({0, 0, 0, 0})[0], -6.3379572, 2e-6);
  EXPECT_NEAR(normalsOf({UINT32_MAX, 0, 0, 0})[0], 6.3379572, 2e-6);
}

TEST(RandomWeights, DrawsFromTheRightDistributions) {
  const Checkpoint model = begin("stem_llama");
  const auto embedding = valuesOf(model, "model.embed_tokens.weight");
  EXPECT_NEAR(deviation(embedding), 0.02, 0.02 * 0.05);
  EXPECT_NEAR(mean(embedding), 0, 0.02 * 0.1);
  const auto table = valuesOf(model, "model.layers.1.mlp.up_table.weight");
  const double wanted = std::sqrt(2.0 / (96 + 80));
  EXPECT_NEAR(deviation(table), wanted, wanted * 0.05);
  EXPECT_NE(table, valuesOf(model, "model.layers.2.mlp.up_table.weight"));
  for (const float value : valuesOf(model, "model.norm.weight"))
    EXPECT_EQ(value, 1);
  const Checkpoint biased = begin("qwen2_qkv_bias");
  for (const float value :
       valuesOf(biased, "model.layers.0.self_attn.q_proj.bias"))
    EXPECT_EQ(value, 0);
}

/// Four elements have one counter, wherever reading begins.
TEST(RandomWeights, AnElementDependsOnItsPlaceAlone) {
  const Checkpoint one = begin("stem_llama", 7, 1);
  const Checkpoint two = begin("stem_llama", 7, 2);
  const Checkpoint other = begin("stem_llama", 8, 2);
  for (const std::string &name : one.weights().names()) {
    const auto values = valuesOf(one, name);
    EXPECT_EQ(values, valuesOf(two, name)) << name;
    EXPECT_EQ(values != valuesOf(other, name),
              name.find("norm") == std::string::npos)
        << name;
    const TensorInfo &tensor = one.tensors().get(name);
    const uint64_t columns = tensor.rowElements();
    std::vector<float> row(columns);
    one.tensors().readF32(name, tensor.rows() - 1, 1, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), values.end() - columns));
  }
}

/// The first values of the embedding, computed elsewhere: a run that is resumed
/// by a later version must find them.
TEST(RandomWeights, KeepsItsValues) {
  const std::vector<double> wanted = {0.004604786, -0.012965040, 0.025520115,
                                      0.006509992, 0.033588589,  -0.023266519};
  const auto values =
      valuesOf(begin("llama_gqa", 1), "model.embed_tokens.weight");
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(values[i], wanted[i], 2e-8) << i;
}

TEST(RandomWeights, AFingerprintTellsConfigAndSeed) {
  const std::string one = randomModelFingerprint(begin("llama_gqa"), 1);
  EXPECT_NE(one, randomModelFingerprint(begin("llama_gqa"), 2));
  EXPECT_NE(one, randomModelFingerprint(begin("stem_llama"), 1));
  EXPECT_EQ(one, randomModelFingerprint(begin("llama_gqa"), 1));
}

} // namespace
