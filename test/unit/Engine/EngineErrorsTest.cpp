//===- EngineErrorsTest.cpp - Refused calls leave the engine usable -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EngineTestSupport.h"

using namespace stem;
using namespace stem::test;

namespace {

class EngineErrorsTest : public ContinuingEngineTest {
protected:
  EngineErrorsTest() : ContinuingEngineTest(100, 64, 80) {}

  /// `call` is refused with all parts in the message; nothing is appended, and
  /// what was there goes on as before.
  template <typename Call>
  void expectRefused(Call call, std::initializer_list<std::string> parts) {
    start(10);
    EXPECT_TRUE(hasAll(errorOf(call), parts));
    expectGoesOn(10);
  }
};

TEST_F(EngineErrorsTest, IdsOutOfRange) {
  for (int32_t bad : {-1, 96, INT32_MIN, INT32_MAX}) {
    const std::vector<int32_t> mixed = {3, 4, bad, 5};
    const PrefillChunk chunks[] = {{1, ids, false}, {0, mixed, false}};
    const std::vector<std::string> said = {std::to_string(bad), "position 2",
                                           "96 ids"};
    expectRefused([&] { engine->prefill(chunks); },
                  {said[0], said[1], said[2]});
    const int32_t sequences[] = {0};
    expectRefused([&] { engine->decode(sequences, {&bad, 1}); },
                  {said[0], "position 0", said[2]});
  }
}

TEST_F(EngineErrorsTest, LabelsOutOfRange) {
  const std::vector<int32_t> two = {3, 4}, labels = {5, 96};
  const ScoreWindow window = {two, labels};
  EXPECT_ERROR(engine->score({&window, 1}), "label 96", "position 1", "96 ids");
  const ScoreWindow uneven = {two, std::span(labels).first(1)};
  EXPECT_ERROR(engine->score({&uneven, 1}), "2 ids and 1 labels");
  EXPECT_TRUE(sameBits(prefillAlone(*engine, ids), wanted));
}

TEST_F(EngineErrorsTest, LongerThanTheContext) {
  const std::vector<int32_t> tooLong = someIds(91);
  const PrefillChunk chunk = {0, tooLong, false};
  expectRefused([&] { engine->prefill({&chunk, 1}); }, {"101", "100"});
  const PrefillChunk second[] = {{1, ids, false}, {0, tooLong, false}};
  expectRefused([&] { engine->prefill(second); }, {"101", "100"});
  const PrefillChunk parts[] = {{0, ids, false},
                                {0, std::span(ids).first(11), false}};
  expectRefused([&] { engine->prefill(parts); }, {"101", "100"});
  const std::vector<int32_t> window = someIds(101);
  const ScoreWindow score = {window, window};
  EXPECT_ERROR(engine->score({&score, 1}), "101", "100");
  const std::vector<int32_t> full = someIds(100);
  prefillAlone(*engine, full);
  const int32_t sequence = 0, next = 1;
  EXPECT_ERROR(engine->decode({&sequence, 1}, {&next, 1}), "101", "100");
  engine->truncate(1, 0);
  const int32_t both[] = {1, 0}, nextOfBoth[] = {1, 1};
  EXPECT_ERROR(engine->decode(both, nextOfBoth), "101", "100");
  EXPECT_EQ(engine->length(0), 100);
  EXPECT_EQ(engine->length(1), 0);
  EXPECT_TRUE(sameBits(prefillAlone(*engine, ids), wanted));
}

TEST_F(EngineErrorsTest, SequencesThatAreNotThere) {
  for (int32_t bad : {-1, 2}) {
    const PrefillChunk chunks[] = {{1, ids, false}, {bad, ids, false}};
    const std::string said = "sequence " + std::to_string(bad);
    expectRefused([&] { engine->prefill(chunks); }, {said, "made for 2"});
    const int32_t next = 1;
    expectRefused([&] { engine->decode({&bad, 1}, {&next, 1}); }, {said});
    EXPECT_ERROR(engine->truncate(bad, 0), said);
    EXPECT_ERROR(engine->fork(0, bad), said);
    EXPECT_ERROR(engine->length(bad), said);
  }
}

TEST_F(EngineErrorsTest, OneSequenceTwice) {
  const int32_t sequences[] = {0, 0}, next[] = {1, 2};
  expectRefused([&] { engine->decode(sequences, next); },
                {"sequence 0", "twice"});
  // Two chunks of one sequence follow each other.
  engine->truncate(0, 0);
  const PrefillChunk chunks[] = {{0, std::span(ids).first(30), true},
                                 {0, std::span(ids).subspan(30), true}};
  EXPECT_TRUE(sameBits(engine->prefill(chunks), wanted));
}

TEST_F(EngineErrorsTest, NothingToDo) {
  EXPECT_TRUE(engine->prefill({}).empty());
  EXPECT_TRUE(engine->decode({}, {}).empty());
  EXPECT_TRUE(engine->score({}).empty());
  const PrefillChunk none = {1, {}, true};
  EXPECT_TRUE(engine->prefill({&none, 1}).empty());
  EXPECT_EQ(engine->length(1), 0);
  const ScoreWindow empty = {};
  EXPECT_TRUE(engine->score({&empty, 1}).empty());
  // A batch that is all padding.
  const std::vector<int32_t> ignored(ids.size(), -100);
  const ScoreWindow window = {ids, ignored};
  EXPECT_EQ(engine->score({&window, 1}), std::vector<float>(ids.size(), 0.0f));
  // Nothing beside something.
  engine->truncate(0, 0);
  const PrefillChunk chunks[] = {none, {0, ids, true}, none};
  EXPECT_TRUE(sameBits(engine->prefill(chunks), wanted));
}

TEST_F(EngineErrorsTest, OptionsThatCannotBe) {
  EngineOptions wrong = options;
  wrong.maxPositions = 257; // the model has 256
  EXPECT_ERROR(makeEngine(goldenFolder("stem_llama"), wrong), "257", "256",
               "max_position_embeddings");
  wrong = options;
  wrong.dtype = DType::F16;
  EXPECT_ERROR(makeEngine(goldenFolder("stem_llama"), wrong), "F16",
               "f32 or bf16");
}

/// The plan comes before the memory, with every part of it.
TEST_F(EngineErrorsTest, PlanIsPrinted) {
  std::string plan;
  options.onPlan = [&](const std::string &text) { plan = text; };
  engine = makeEngine(goldenFolder("stem_llama"), options);
  EXPECT_TRUE(hasAll(
      plan, {"weights", "tables", "key-value cache", "arena", "logits"}));
  const MemoryPlan &parts = engine->report().plan;
  EXPECT_EQ(parts.tables, 2 * 96 * 80 * 4);
  EXPECT_GT(parts.weights, 0);
  EXPECT_GT(parts.arena, 0);
  EXPECT_GT(parts.cache, 0);
  EXPECT_EQ(parts.logits, options.maxSequences * 96 * 4);
}

TEST_F(EngineErrorsTest, MoreThanTheLimitOfMemory) {
  options.memory = 1'000'000;
  options.onPlan = [](const std::string &plan) {
    ADD_FAILURE() << "a refused plan is told by the error alone: " << plan;
  };
  EXPECT_ERROR(makeEngine(goldenFolder("stem_llama"), options), "weights",
               "in all, but --memory allows 1 MB, of which the program holds ",
               "--dtype=bf16");
  options.memory = int64_t(1) << 40;
  options.onPlan = nullptr;
  makeEngine(goldenFolder("stem_llama"), options);
}

} // namespace
