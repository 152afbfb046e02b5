//===- StagingRowsTest.cpp - Steps of few different ids -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Staging that holds the rows of 64 ids of 96 cuts a call into several steps.
// Its bits are those of resident tables and of one step.
//
//===----------------------------------------------------------------------===//

#include "StagedIds.h"
#include "StemVariant.h"

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

std::vector<int32_t> idsFrom(int32_t first, int32_t count) {
  std::vector<int32_t> ids;
  for (int32_t id = first; id < first + count; ++id)
    ids.push_back(id);
  return ids;
}

TEST(StagedIds, TakesTilesUntilTheirIdsAreTooMany) {
  StagedIds staged(6, 100);
  const std::vector<int32_t> ids = {1, 2, 3, 4, 4, 3, 2, 5, 6, 7, 8, 9};
  EXPECT_EQ(staged.take(ids, 4), 8);
  EXPECT_EQ(staged.cuts(), 0);
  // 6 is new, 7 too: what a refused tile has is not the step's.
  EXPECT_EQ(staged.take(std::span(ids).subspan(8), 4), 0);
  EXPECT_EQ(staged.cuts(), 1);
  EXPECT_EQ(staged.take(std::vector<int32_t>{6, 5, 4, 3}, 4), 4);
  EXPECT_EQ(staged.take(std::vector<int32_t>{7}, 1), 0);
  staged.clear();
  EXPECT_EQ(staged.take(std::span(ids).subspan(8), 4), 4);
  EXPECT_EQ(staged.take({}, 4), 0);
  EXPECT_EQ(staged.cuts(), 2);
}

TEST(StagedIds, PaddingHasAnIdToo) {
  StagedIds staged(4, 100);
  EXPECT_EQ(staged.take(idsFrom(1, 3), 4), 3);
  EXPECT_EQ(staged.take(std::vector<int32_t>{4}, 1), 0);
  EXPECT_EQ(staged.take(std::vector<int32_t>{0}, 1), 1);
  staged.clear();
  EXPECT_EQ(staged.take(idsFrom(1, 4), 4), 4);
  EXPECT_EQ(staged.take(std::vector<int32_t>{1, 2}, 4), 0);
}

TEST(StagedIds, TakesAllWithoutABound) {
  StagedIds staged;
  EXPECT_EQ(staged.take(idsFrom(0, 100), 4), 100);
  EXPECT_EQ(staged.cuts(), 0);
}

TEST(StagedIds, NoTileIsLeftOutOrTakenTwice) {
  const std::vector<int32_t> ids = someIds(1000);
  for (int64_t rows = 8; rows <= 96; rows += 11) {
    StagedIds staged(rows, kVocab);
    std::span<const int32_t> rest = ids;
    while (!rest.empty()) {
      staged.clear();
      const auto taken = static_cast<size_t>(staged.take(rest, 8));
      ASSERT_GT(taken, 0u);
      const auto count = [](std::span<const int32_t> some) {
        const std::set<int32_t> different(some.begin(), some.end());
        return static_cast<int64_t>(different.size());
      };
      EXPECT_LE(count(rest.first(taken)), rows);
      // A further tile would be too much.
      if (taken + 8 <= rest.size())
        EXPECT_GT(count(rest.first(taken + 8)), rows);
      rest = rest.subspan(taken);
    }
  }
}

struct Case {
  const char *name;
  int window; ///< 0: none
  DType dtype;
};

class StagingRowsTest : public testing::TestWithParam<Case> {
protected:
  static constexpr int64_t kRows = 64;
  static constexpr size_t kTokens = 250;

  void SetUp() override {
    options.dtype = GetParam().dtype;
    options.threads = 2;
    options.maxSequences = 90;
    folder = goldenFolder("stem_llama");
    if (GetParam().window) {
      variant.config["stem"]["base"] = {
          {"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}};
      variant.config["sliding_window"] = GetParam().window;
      folder = variant.write();
    }
    whole = makeEngine(folder, options);
    options.tables = TablePlacement::File;
    options.stagingRows = kRows;
    cut = makeEngine(folder, options);
  }

  /// The call gives the same with few staged rows, in more steps.
  template <typename Call> void expectSame(Call call) {
    const std::vector<float> wanted = call(*whole);
    const int64_t steps = cut->steps(), cuts = cut->stagingCuts();
    EXPECT_TRUE(sameBits(call(*cut), wanted));
    EXPECT_GT(cut->stagingCuts(), cuts);
    EXPECT_GT(cut->steps(), steps + 1);
    EXPECT_EQ(whole->stagingCuts(), 0);
  }

  const std::vector<int32_t> ids = someIds(kTokens);
  EngineOptions options;
  StemVariant variant;
  fs::path folder;
  std::unique_ptr<Engine> whole, cut;
};

TEST_P(StagingRowsTest, Prefill) {
  expectSame([&](Engine &engine) { return prefillAlone(engine, ids); });
}

/// Steps of 64 tokens, which staging never cuts, have the same tiles.
TEST_P(StagingRowsTest, StepsOfATileAreNeverCut) {
  options.maxStepTokens = 64;
  const auto stepped = makeEngine(folder, options);
  EXPECT_TRUE(sameBits(prefillAlone(*stepped, ids), prefillAlone(*whole, ids)));
  EXPECT_EQ(stepped->stagingCuts(), 0);
}

/// Sequences of other lengths, padded to tiles, and the last logits of each.
TEST_P(StagingRowsTest, PrefillOfABatch) {
  expectSame([&](Engine &engine) {
    std::vector<std::vector<int32_t>> parts;
    std::vector<PrefillChunk> chunks;
    for (const size_t length : {37, 1, 150, 64, 130})
      parts.push_back(someIds(length, static_cast<uint32_t>(length)));
    for (size_t i = 0; i < parts.size(); ++i) {
      engine.truncate(static_cast<int32_t>(i), 0);
      chunks.push_back({static_cast<int32_t>(i), parts[i], i == 2});
    }
    const std::span<const float> logits = engine.prefill(chunks);
    return std::vector<float>(logits.begin(), logits.end());
  });
}

/// Behind a prefix in the cache that ends within a tile and a page.
TEST_P(StagingRowsTest, PrefillBehindAPrefix) {
  for (const size_t prefix : {1, 50, 64, 100})
    expectSame([&](Engine &engine) {
      prefillAlone(engine, std::span(ids).first(prefix));
      return prefillRows(engine, 0, std::span(ids).subspan(prefix), kTokens);
    });
}

TEST_P(StagingRowsTest, DecodeOfManySequences) {
  expectSame([&](Engine &engine) {
    std::vector<int32_t> sequences, next;
    std::vector<PrefillChunk> chunks;
    for (int32_t i = 0; i < 90; ++i) {
      engine.truncate(i, 0);
      sequences.push_back(i);
      next.push_back((7 * i + 3) % 96);
      chunks.push_back({i, std::span(ids).subspan(i, 1 + i % 5), false});
    }
    engine.prefill(chunks);
    std::vector<float> rows;
    for (int step = 0; step < 3; ++step) {
      const std::span<const float> logits = engine.decode(sequences, next);
      rows.insert(rows.end(), logits.begin(), logits.end());
      std::ranges::rotate(next, next.begin() + 1);
    }
    return rows;
  });
}

TEST_P(StagingRowsTest, Score) {
  expectSame([&](Engine &engine) {
    std::vector<std::vector<int32_t>> parts;
    std::vector<ScoreWindow> windows;
    for (const size_t length : {40, 200, 64, 249, 5, 130})
      parts.push_back(someIds(length, static_cast<uint32_t>(length)));
    for (const std::vector<int32_t> &part : parts)
      windows.push_back({part, std::span(ids).first(part.size())});
    return engine.score(windows);
  });
}

/// Whatever the bound, and with kept rows and short distances.
TEST_P(StagingRowsTest, AnyBound) {
  const std::vector<float> wanted = prefillAlone(*whole, ids);
  int64_t staging = 0;
  for (const int64_t rows : {64, 65, 80, 95, 96, 1000}) {
    SCOPED_TRACE(rows);
    options.stagingRows = rows;
    options.cacheIds = rows / 10;
    options.prefetchDistance = rows % 2;
    const auto engine = makeEngine(folder, options);
    EXPECT_TRUE(sameBits(prefillAlone(*engine, ids), wanted));
    const MemoryPlan &plan = engine->report().plan;
    EXPECT_EQ(plan.stagedRows, std::min<int64_t>(rows, kVocab));
    EXPECT_EQ(engine->stagingCuts() > 0, rows < 90) << engine->stagingCuts();
    if (rows % 2 == 0) {
      EXPECT_GE(plan.staging, staging);
      staging = plan.staging;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, StagingRowsTest,
    testing::Values(Case{"f32", 0, DType::F32}, Case{"bf16", 0, DType::BF16},
                    Case{"window8_f32", 8, DType::F32},
                    Case{"window70_f32", 70, DType::F32},
                    Case{"window70_bf16", 70, DType::BF16}),
    [](const auto &info) { return std::string(info.param.name); });

TEST(StagingRows, PlanFollowsTheBound) {
  EngineOptions options;
  options.dtype = DType::F32;
  options.tables = TablePlacement::File;
  options.stagingRows = 64;
  std::string text;
  options.onPlan = [&](const std::string &plan) { text = plan; };
  const auto engine = makeEngine(goldenFolder("stem_llama"), options);
  const MemoryPlan &plan = engine->report().plan;
  EXPECT_EQ(plan.staging, 2 * 64 * 80 * 4);
  EXPECT_TRUE(hasAll(text, {"for 2 tables at a time, 64 rows of each"}));
}

TEST(StagingRows, LessThanATileIsRefused) {
  EngineOptions options;
  for (const int64_t rows : {0, 1, 63}) {
    options.stagingRows = rows;
    for (const TablePlacement place :
         {TablePlacement::File, TablePlacement::Resident}) {
      options.tables = place;
      EXPECT_ERROR(makeEngine(goldenFolder("stem_llama"), options),
                   fmt::format("--staging-rows={}: ", rows),
                   "a tile of 64 tokens", "the 96 ids of ",
                   fmt::format("64 rows are needed of each table, {} more "
                               "than {}; give --staging-rows=64 or more",
                               64 - rows, rows));
    }
  }
}

TEST(StagingRows, AreWhatToDoWithoutMemory) {
  EngineOptions options;
  options.dtype = DType::F32;
  options.memory = 1'000'000;
  options.tables = TablePlacement::File;
  EXPECT_ERROR(makeEngine(goldenFolder("stem_llama"), options),
               "--staging-rows=64 stages 41 KB in place of 61.4 KB, --dtype");
  options.stagingRows = 64;
  const std::string error =
      errorOf([&] { makeEngine(goldenFolder("stem_llama"), options); });
  EXPECT_EQ(error.find("--staging-rows"), std::string::npos) << error;
}

} // namespace
