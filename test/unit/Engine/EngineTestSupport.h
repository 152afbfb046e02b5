//===- EngineTestSupport.h - Helpers for tests of the engine ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_ENGINE_ENGINETESTSUPPORT_H
#define STEM_TEST_UNIT_ENGINE_ENGINETESTSUPPORT_H

#include "../Model/TestFiles.h"
#include "Engine.h"
#include "stem/Model/Safetensors.h"
#include "stem/Runtime/Context.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stem::test {

inline constexpr size_t kVocab = 96; ///< of every model under test/data/golden

inline std::filesystem::path goldenFolder(const std::string &model) {
  return std::filesystem::path(STEM_TEST_DATA) / "golden" / model;
}

inline std::vector<int32_t> readIds(const SafetensorsFile &file,
                                    const std::string &name) {
  std::span<const std::byte> data = file.get(name).data;
  std::vector<int64_t> wide(data.size() / sizeof(int64_t));
  std::memcpy(wide.data(), data.data(), data.size());
  return {wide.begin(), wide.end()};
}

/// Ids of the vocabulary without a pattern, the same in every run.
inline std::vector<int32_t> someIds(size_t count, uint32_t seed = 1) {
  std::vector<int32_t> ids;
  for (uint32_t state = seed; ids.size() < count;) {
    state = state * 1664525 + 1013904223;
    ids.push_back(static_cast<int32_t>((state >> 8) % kVocab));
  }
  return ids;
}

inline std::unique_ptr<Engine> makeEngine(const std::filesystem::path &folder,
                                          EngineOptions options) {
  return Engine::create(Checkpoint::open(folder), options);
}

/// Logits of every token of `ids`, appended to `sequence` in chunks.
inline std::vector<float> prefillRows(Engine &engine, int32_t sequence,
                                      std::span<const int32_t> ids,
                                      size_t chunkSize) {
  std::vector<float> rows;
  for (size_t begin = 0; begin < ids.size(); begin += chunkSize) {
    PrefillChunk chunk = {
        sequence, ids.subspan(begin, std::min(chunkSize, ids.size() - begin)),
        /*allLogits=*/true};
    std::span<const float> logits = engine.prefill({&chunk, 1});
    rows.insert(rows.end(), logits.begin(), logits.end());
  }
  return rows;
}

inline std::vector<float> prefillAlone(Engine &engine,
                                       std::span<const int32_t> ids) {
  engine.truncate(0, 0);
  return prefillRows(engine, 0, ids, ids.size());
}

/// Logits of `ids` appended to sequence 0 one by one by decode steps.
inline std::vector<float> decodeRows(Engine &engine,
                                     std::span<const int32_t> ids) {
  std::vector<float> rows;
  const int32_t sequence = 0;
  for (int32_t id : ids) {
    std::span<const float> logits = engine.decode({&sequence, 1}, {&id, 1});
    rows.insert(rows.end(), logits.begin(), logits.end());
  }
  return rows;
}

/// Bitwise, and names the first row that differs.
inline testing::AssertionResult sameBits(std::span<const float> got,
                                         std::span<const float> wanted,
                                         size_t width = kVocab) {
  if (got.size() != wanted.size())
    return testing::AssertionFailure()
           << got.size() << " values, wanted " << wanted.size();
  for (size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &wanted[i], sizeof(float)) != 0)
      return testing::AssertionFailure()
             << "row " << i / width << ", column " << i % width << ": "
             << got[i] << ", wanted " << wanted[i];
  return testing::AssertionSuccess();
}

inline float largestDifference(std::span<const float> a,
                               std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_TRUE(std::isfinite(a[i]) && std::isfinite(b[i]));
    largest = std::max(largest, std::fabs(a[i] - b[i]));
  }
  return largest;
}

/// A model with table layers and two sequences, of which sequence 0 goes on
/// after a call that failed as if it had not been.
class ContinuingEngineTest : public testing::Test {
protected:
  ContinuingEngineTest(int64_t maxPositions, int64_t maxStepTokens,
                       size_t idCount)
      : ids(someIds(idCount)) {
    options.dtype = DType::F32;
    options.maxPositions = maxPositions;
    options.maxSequences = 2;
    options.maxStepTokens = maxStepTokens;
  }
  void SetUp() override {
    engine = makeEngine(goldenFolder("stem_llama"), options);
    wanted = prefillAlone(*engine, ids);
  }

  void start(size_t count) {
    engine->truncate(1, 0);
    prefillAlone(*engine, std::span(ids).first(count));
  }

  /// Sequence 0 holds the first `count` ids and goes on as if nothing was.
  void expectGoesOn(int64_t count) {
    ASSERT_EQ(engine->length(0), count);
    ASSERT_EQ(engine->length(1), 0);
    EXPECT_TRUE(
        sameBits(prefillRows(*engine, 0, std::span(ids).subspan(count), 64),
                 std::span(wanted).subspan(count * kVocab)));
  }

  EngineOptions options;
  std::unique_ptr<Engine> engine;
  std::vector<int32_t> ids;
  std::vector<float> wanted;
};

} // namespace stem::test

#endif // STEM_TEST_UNIT_ENGINE_ENGINETESTSUPPORT_H
