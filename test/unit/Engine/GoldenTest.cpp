//===- GoldenTest.cpp - Losses and logits against reference values --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every family under every instruction set that this CPU has. The reference
// values were computed in double precision.
//
//===----------------------------------------------------------------------===//

#include "EngineTestSupport.h"

#include <tuple>

using namespace stem;
using namespace stem::test;

namespace {

constexpr size_t kRows = 2, kColumns = 19; // of input_ids

class GoldenTest
    : public testing::TestWithParam<std::tuple<const char *, stem_isa, DType>> {
protected:
  GoldenTest()
      : folder(goldenFolder(std::get<0>(GetParam()))),
        golden(SafetensorsFile::open(folder / "golden.safetensors")) {}

  void SetUp() override {
    const stem_isa isa = std::get<1>(GetParam());
    if (isa > detectIsa())
      GTEST_SKIP() << "this CPU has no " << isaName(isa);
    EngineOptions options;
    options.dtype = std::get<2>(GetParam());
    options.maxIsa = isa;
    options.maxSequences = kRows;
    engine = makeEngine(folder, options);
    if (isa != STEM_ISA_NATIVE) {
      EXPECT_EQ(engine->report().isa, isaName(isa));
    }
  }

  bool isF32() const { return std::get<2>(GetParam()) == DType::F32; }

  std::filesystem::path folder;
  SafetensorsFile golden;
  std::unique_ptr<Engine> engine;
};

/// The mean over the labels that are not -100.
double meanLoss(std::span<const float> losses,
                std::span<const int32_t> labels) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == -100) {
      EXPECT_EQ(losses[i], 0.0f);
      continue;
    }
    sum += losses[i];
    count += 1;
  }
  return sum / count;
}

TEST_P(GoldenTest, Loss) {
  const std::vector<int32_t> ids = readIds(golden, "input_ids");
  const std::vector<int32_t> labels = readIds(golden, "labels");
  ASSERT_EQ(ids.size(), kRows * kColumns);
  std::vector<ScoreWindow> windows;
  for (size_t row = 0; row < kRows; ++row)
    windows.push_back({std::span(ids).subspan(row * kColumns, kColumns),
                       std::span(labels).subspan(row * kColumns, kColumns)});
  const std::vector<float> losses = engine->score(windows);
  ASSERT_EQ(losses.size(), ids.size());
  double wanted;
  std::memcpy(&wanted, golden.get("loss").data.data(), sizeof(wanted));
  EXPECT_NEAR(meanLoss(losses, labels), wanted, isF32() ? 2e-6 : 5e-3);
}

/// Both rows in one batch.
TEST_P(GoldenTest, Logits) {
  const std::vector<int32_t> ids = readIds(golden, "input_ids");
  std::vector<PrefillChunk> chunks;
  for (size_t row = 0; row < kRows; ++row)
    chunks.push_back({static_cast<int32_t>(row),
                      std::span(ids).subspan(row * kColumns, kColumns), true});
  std::vector<float> wanted(ids.size() * kVocab);
  std::span<const std::byte> data = golden.get("logits").data;
  ASSERT_EQ(data.size(), wanted.size() * sizeof(float));
  std::memcpy(wanted.data(), data.data(), data.size());
  EXPECT_LT(largestDifference(engine->prefill(chunks), wanted),
            isF32() ? 2e-4 : 0.3);
}

std::string
goldenName(const testing::TestParamInfo<GoldenTest::ParamType> &info) {
  return std::string(std::get<0>(info.param)) + "_" +
         std::string(isaName(std::get<1>(info.param))) +
         (std::get<2>(info.param) == DType::F32 ? "_f32" : "_bf16");
}

constexpr const char *kModels[] = {
    "llama3_rope_tied_headdim", "llama_gqa",     "mistral_sliding",
    "qwen2_qkv_bias",           "qwen3_qk_norm", "stem_llama"};

INSTANTIATE_TEST_SUITE_P(F32, GoldenTest,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::Values(STEM_ISA_NATIVE,
                                                          STEM_ISA_AVX2,
                                                          STEM_ISA_AVX512),
                                          testing::Values(DType::F32)),
                         goldenName);
INSTANTIATE_TEST_SUITE_P(BF16, GoldenTest,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::Values(STEM_ISA_NATIVE),
                                          testing::Values(DType::BF16)),
                         goldenName);
// The native path depends on the CPU: each one that it has.
INSTANTIATE_TEST_SUITE_P(
    BF16Isas, GoldenTest,
    testing::Combine(testing::Values("stem_llama"),
                     testing::Values(STEM_ISA_AVX2, STEM_ISA_AVX512,
                                     STEM_ISA_AVX512_BF16, STEM_ISA_AMX),
                     testing::Values(DType::BF16)),
    goldenName);

} // namespace
