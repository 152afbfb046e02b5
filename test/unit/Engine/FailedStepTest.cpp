//===- FailedStepTest.cpp - A step that fails changes nothing -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EngineTestSupport.h"

#include <dlfcn.h>

using namespace stem;
using namespace stem::test;

namespace {

/// Calls that still succeed; -1: all.
int reservesLeft = -1;
int plansLeft = -1;

bool takeOne(int &left) {
  if (left == 0)
    return false;
  left -= left > 0;
  return true;
}

template <typename Function> Function *original(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

} // namespace

// The program's functions come before those of the library: the engine and the
// compiled modules call these.
stem_status stem_kv_reserve(stem_context *context, stem_kv_cache *cache,
                            int32_t sequence, int64_t length) {
  static auto *next = original<decltype(stem_kv_reserve)>("stem_kv_reserve");
  return takeOne(reservesLeft) ? next(context, cache, sequence, length)
                               : STEM_OUT_OF_MEMORY;
}

stem_status stem_table_prefetch(stem_context *context, stem_table_store *store,
                                int64_t table, stem_table_plan *plan,
                                stem_ticket *ticket) {
  static auto *next =
      original<decltype(stem_table_prefetch)>("stem_table_prefetch");
  return takeOne(plansLeft) ? next(context, store, table, plan, ticket)
                            : STEM_OUT_OF_MEMORY;
}

namespace {

class FailedStepTest : public ContinuingEngineTest {
protected:
  FailedStepTest() : ContinuingEngineTest(200, 128, 100) {}
  void TearDown() override { reservesLeft = plansLeft = -1; }

  template <typename Call> void expectFailure(Call call) {
    EXPECT_THROW(call(), Error);
    reservesLeft = plansLeft = -1;
  }
};

TEST_F(FailedStepTest, PrefillThatCannotGrow) {
  start(30);
  const std::vector<int32_t> others = someIds(60, 9);
  const PrefillChunk chunks[] = {{0, others, false}, {1, others, false}};
  reservesLeft = 1;
  expectFailure([&] { engine->prefill(chunks); });
  expectGoesOn(30);
}

TEST_F(FailedStepTest, PrefillThatFailsInside) {
  for (size_t count : {0, 30, 64}) {
    start(count);
    const std::vector<int32_t> others = someIds(36, 9);
    const PrefillChunk chunks[] = {{0, others, false}, {1, others, false}};
    plansLeft = 1; // of two tables
    expectFailure([&] { engine->prefill(chunks); });
    expectGoesOn(static_cast<int64_t>(count));
  }
}

TEST_F(FailedStepTest, DecodeThatFailsInside) {
  start(63);
  const int32_t sequences[] = {0, 1}, next[] = {7, 8};
  plansLeft = 0;
  expectFailure([&] { engine->decode(sequences, next); });
  reservesLeft = 1;
  expectFailure([&] { engine->decode(sequences, next); });
  expectGoesOn(63);
}

/// The steps of a call before the one that fails count.
TEST_F(FailedStepTest, SecondStepOfAPrefill) {
  engine->truncate(0, 0);
  const std::vector<int32_t> longer = someIds(180);
  const PrefillChunk chunk = {0, longer, false};
  plansLeft = 2;
  expectFailure([&] { engine->prefill({&chunk, 1}); });
  EXPECT_EQ(engine->length(0), 128);
  engine->truncate(0, 100);
  const std::vector<float> all = prefillAlone(*engine, longer);
  engine->truncate(0, 100);
  EXPECT_TRUE(
      sameBits(prefillRows(*engine, 0, std::span(longer).subspan(100), 64),
               std::span(all).subspan(100 * kVocab)));
}

TEST_F(FailedStepTest, Score) {
  const std::vector<int32_t> window = someIds(50);
  const ScoreWindow two[] = {{window, window}, {window, window}};
  const std::vector<float> losses = engine->score(two);
  plansLeft = 0;
  expectFailure([&] { engine->score(two); });
  EXPECT_EQ(engine->length(0), 0);
  EXPECT_EQ(engine->length(1), 0);
  EXPECT_EQ(engine->score(two), losses);
}

/// A window's ring still has what the next query needs.
TEST_F(FailedStepTest, SlidingWindow) {
  options.maxPositions = 250;
  engine = makeEngine(goldenFolder("mistral_sliding"), options);
  const std::vector<int32_t> longer = someIds(250);
  const std::vector<float> all = prefillAlone(*engine, longer);
  for (size_t count : {40, 64, 100, 170}) {
    start(0);
    prefillRows(*engine, 0, std::span(longer).first(count), 64);
    const std::vector<int32_t> others = someIds(64, 9);
    const PrefillChunk chunks[] = {{0, std::span(others).first(32), false},
                                   {1, others, false}};
    reservesLeft = 1;
    expectFailure([&] { engine->prefill(chunks); });
    ASSERT_EQ(engine->length(0), static_cast<int64_t>(count));
    EXPECT_TRUE(
        sameBits(prefillRows(*engine, 0, std::span(longer).subspan(count), 64),
                 std::span(all).subspan(count * kVocab)));
  }
}

} // namespace
