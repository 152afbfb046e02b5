//===- DeterminismTest.cpp - The same bits for the same token -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Within prefill, and within decode, a token's logits do not depend on what is
// computed beside it or how many threads compute it. Prompts are longer than
// two pages of the key-value cache.
//
//===----------------------------------------------------------------------===//

#include "EngineTestSupport.h"

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

struct Case {
  const char *model;
  DType dtype;
  int window; ///< 0: as the model has it
  /// Decode against prefill. In bf16 a sum that rounds the other way moves a
  /// value by 2^-8 of its size, and these logits reach 30.
  float bound;
};

std::string caseName(const testing::TestParamInfo<Case> &info) {
  std::string name = info.param.model;
  if (info.param.window)
    name += "_window" + std::to_string(info.param.window);
  return name + (info.param.dtype == DType::F32 ? "_f32" : "_bf16");
}

/// Copies the model and gives it another sliding window.
void copyWithWindow(const fs::path &source, const fs::path &target,
                    int window) {
  fs::copy(source, target, fs::copy_options::recursive);
  std::string text = readText(source / "config.json");
  const std::string key = "\"sliding_window\": 8";
  text.replace(text.find(key), key.size(),
               "\"sliding_window\": " + std::to_string(window));
  writeText(target / "config.json", text);
}

class DeterminismTest : public testing::TestWithParam<Case> {
protected:
  static constexpr size_t kTokens = 150;

  void SetUp() override {
    ids = someIds(kTokens);
    options.dtype = GetParam().dtype;
    options.threads = 2;
    options.maxSequences = 3;
    folder = goldenFolder(GetParam().model);
    if (GetParam().window) {
      copyWithWindow(folder, temporary / "model", GetParam().window);
      folder = temporary / "model";
    }
    engine = makeEngine(folder, options);
    alone = prefillAlone(*engine, ids);
  }

  std::span<const float> row(size_t index) const {
    return std::span(alone).subspan(index * kVocab, kVocab);
  }
  std::span<const float> firstRows(size_t count) const {
    return std::span(alone).first(count * kVocab);
  }

  EngineOptions options;
  fs::path folder;
  TemporaryFolder temporary;
  std::vector<int32_t> ids;
  std::unique_ptr<Engine> engine;
  std::vector<float> alone; ///< logits of one prefill of `ids`
};

TEST_P(DeterminismTest, PrefillAgain) {
  EXPECT_TRUE(sameBits(prefillAlone(*engine, ids), alone));
  std::unique_ptr<Engine> another = makeEngine(folder, options);
  EXPECT_TRUE(sameBits(prefillAlone(*another, ids), alone));
}

TEST_P(DeterminismTest, PrefillOfEveryLength) {
  for (size_t length : {1, 2, 63, 64, 65, 128, 149}) {
    SCOPED_TRACE(length);
    EXPECT_TRUE(sameBits(prefillAlone(*engine, std::span(ids).first(length)),
                         firstRows(length)));
  }
}

TEST_P(DeterminismTest, PrefillInChunks) {
  for (size_t chunk : {1, 7, 64, 65, 149}) {
    SCOPED_TRACE(chunk);
    engine->truncate(0, 0);
    EXPECT_TRUE(sameBits(prefillRows(*engine, 0, ids, chunk), alone));
  }
}

/// The engine itself cuts a chunk where it is longer than a step.
TEST_P(DeterminismTest, PrefillInSteps) {
  options.maxStepTokens = 64;
  std::unique_ptr<Engine> stepped = makeEngine(folder, options);
  EXPECT_TRUE(sameBits(prefillAlone(*stepped, ids), alone));
}

TEST_P(DeterminismTest, PrefillInBatch) {
  const std::vector<int32_t> other = someIds(37, 2), third = someIds(64, 3);
  const std::vector<float> otherAlone = prefillAlone(*engine, other);
  for (int32_t sequence : {0, 1, 2}) {
    SCOPED_TRACE(sequence);
    for (int32_t each : {0, 1, 2})
      engine->truncate(each, 0);
    // `ids` comes first, second and last.
    std::vector<PrefillChunk> chunks = {{1, other, true}, {2, third, false}};
    for (PrefillChunk &chunk : chunks)
      chunk.sequence = (chunk.sequence + sequence) % 3;
    chunks.insert(chunks.begin() + sequence, {sequence, ids, true});
    std::span<const float> logits = engine->prefill(chunks);
    size_t begin = 0;
    for (const PrefillChunk &chunk : chunks) {
      size_t rows = chunk.allLogits ? chunk.ids.size() : 1;
      std::span<const float> part =
          logits.subspan(begin * kVocab, rows * kVocab);
      if (chunk.sequence == sequence)
        EXPECT_TRUE(sameBits(part, alone));
      else if (chunk.allLogits)
        EXPECT_TRUE(sameBits(part, otherAlone));
      begin += rows;
    }
    EXPECT_EQ(logits.size(), begin * kVocab);
  }
}

TEST_P(DeterminismTest, LastLogitsOnly) {
  engine->truncate(0, 0);
  const PrefillChunk chunk = {0, ids, /*allLogits=*/false};
  EXPECT_TRUE(sameBits(engine->prefill({&chunk, 1}), row(kTokens - 1)));
}

TEST_P(DeterminismTest, OneThread) {
  options.threads = 1;
  std::unique_ptr<Engine> single = makeEngine(folder, options);
  EXPECT_EQ(single->report().threads, 1);
  EXPECT_TRUE(sameBits(prefillAlone(*single, ids), alone));
  prefillAlone(*engine, std::span(ids).first(70));
  prefillAlone(*single, std::span(ids).first(70));
  std::span<const int32_t> rest = std::span(ids).subspan(70);
  EXPECT_TRUE(sameBits(decodeRows(*single, rest), decodeRows(*engine, rest)));
}

TEST_P(DeterminismTest, DecodeIsNearPrefill) {
  constexpr size_t kPrompt = 20;
  prefillAlone(*engine, std::span(ids).first(kPrompt));
  const std::vector<float> decoded =
      decodeRows(*engine, std::span(ids).subspan(kPrompt));
  const float difference =
      largestDifference(decoded, std::span(alone).subspan(kPrompt * kVocab));
  EXPECT_LT(difference, GetParam().bound);
  RecordProperty("difference", std::to_string(difference));
}

TEST_P(DeterminismTest, DecodeInBatch) {
  constexpr size_t kPrompt = 60, kSteps = 10;
  prefillAlone(*engine, std::span(ids).first(kPrompt));
  const std::vector<float> wanted =
      decodeRows(*engine, std::span(ids).subspan(kPrompt, kSteps));
  engine->truncate(0, 0);
  const std::vector<int32_t> other = someIds(33, 2);
  const std::vector<PrefillChunk> chunks = {
      {1, other, false}, {0, std::span(ids).first(kPrompt), false}};
  engine->truncate(1, 0);
  engine->prefill(chunks);
  for (size_t step = 0; step < kSteps; ++step) {
    const std::vector<int32_t> sequences = {1, 0};
    const std::vector<int32_t> next = {other[step], ids[kPrompt + step]};
    EXPECT_TRUE(sameBits(engine->decode(sequences, next).subspan(kVocab),
                         std::span(wanted).subspan(step * kVocab, kVocab)));
  }
}

/// What a fork or a cut leaves is what was there before.
TEST_P(DeterminismTest, DecodeAfterForkAndTruncate) {
  constexpr size_t kPrompt = 130;
  prefillAlone(*engine, std::span(ids).first(kPrompt));
  engine->fork(0, 1);
  std::span<const int32_t> rest = std::span(ids).subspan(kPrompt);
  const std::vector<float> wanted = decodeRows(*engine, rest);
  for (size_t step = 0; step < rest.size(); ++step) {
    const int32_t sequence = 1;
    EXPECT_TRUE(sameBits(engine->decode({&sequence, 1}, rest.subspan(step, 1)),
                         std::span(wanted).subspan(step * kVocab, kVocab)));
  }
  engine->truncate(0, kPrompt);
  EXPECT_TRUE(sameBits(decodeRows(*engine, rest), wanted));
}

TEST_P(DeterminismTest, ScoreInBatchAndSteps) {
  const std::vector<int32_t> other = someIds(40, 2);
  const std::vector<int32_t> labels = someIds(kTokens, 4);
  const std::vector<int32_t> otherLabels(other.size(), -100);
  const ScoreWindow window = {ids, labels};
  const std::vector<float> wanted = engine->score({&window, 1});
  ASSERT_EQ(wanted.size(), kTokens);
  const std::vector<ScoreWindow> windows = {
      {other, otherLabels}, window, {other, otherLabels}, window};
  const std::vector<float> batch = engine->score(windows);
  const size_t pair = other.size() + kTokens;
  ASSERT_EQ(batch.size(), 2 * pair);
  for (size_t first : {other.size(), pair + other.size()})
    EXPECT_TRUE(sameBits(std::span(batch).subspan(first, kTokens), wanted));
  EXPECT_EQ(std::count(batch.begin(), batch.end(), 0.0f),
            2 * static_cast<ptrdiff_t>(other.size()));
  options.maxStepTokens = 64;
  std::unique_ptr<Engine> stepped = makeEngine(folder, options);
  EXPECT_TRUE(sameBits(stepped->score({&window, 1}), wanted));
}

INSTANTIATE_TEST_SUITE_P(
    Models, DeterminismTest,
    testing::Values(Case{"llama_gqa", DType::F32, 0, 2e-5f},
                    Case{"llama_gqa", DType::BF16, 0, 0.1f},
                    Case{"mistral_sliding", DType::F32, 0, 2e-5f},
                    Case{"mistral_sliding", DType::F32, 70, 2e-5f},
                    Case{"mistral_sliding", DType::BF16, 70, 0.1f},
                    Case{"stem_llama", DType::F32, 0, 2e-5f},
                    Case{"stem_llama", DType::BF16, 0, 0.1f}),
    caseName);

} // namespace
