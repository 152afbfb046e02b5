//===- ModelWriterTest.cpp - Text that a model writes itself --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModelWriter.h"
#include "Dialogues.h"
#include "EngineTestSupport.h"

#include "stem/Model/Tokenizer.h"

#include <set>

using namespace stem;
using namespace stem::test;

namespace {

std::vector<WritingTask> someTasks() {
  std::vector<WritingTask> tasks;
  for (size_t i = 0; i < 11; ++i)
    tasks.push_back({someIds(1 + i * 13 % 70, static_cast<uint32_t>(i)),
                     static_cast<int64_t>(5 + i * 7 % 20),
                     /*greedy=*/static_cast<int64_t>(i % 3), /*stream=*/i});
  return tasks;
}

std::vector<std::vector<int32_t>> write(int threads, size_t slots,
                                        uint64_t seed,
                                        std::vector<int32_t> ends = {}) {
  EngineOptions options;
  options.dtype = DType::F32;
  options.threads = threads;
  options.maxPositions = 128;
  options.maxSequences = static_cast<int64_t>(slots);
  const std::unique_ptr<Engine> engine =
      makeEngine(goldenFolder("llama_gqa"), options);
  ModelWriter writer(*engine, slots, seed, std::move(ends));
  return writer.write(someTasks(), "a test");
}

TEST(ModelWriter, WritesWhatIsAskedFor) {
  const auto written = write(1, 4, 3);
  const auto tasks = someTasks();
  ASSERT_EQ(written.size(), tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i)
    EXPECT_EQ(static_cast<int64_t>(written[i].size()), tasks[i].most);
}

/// Nor do the texts beside it matter.
TEST(ModelWriter, SameBitsWithAnyThreadsAndSlots) {
  const auto wanted = write(1, 1, 3);
  EXPECT_EQ(write(2, 1, 3), wanted);
  EXPECT_EQ(write(2, 4, 3), wanted);
  EXPECT_EQ(write(1, 32, 3), wanted);
  EXPECT_NE(write(1, 1, 4), wanted);
}

TEST(ModelWriter, WritesUntilThereIsEnough) {
  EngineOptions options;
  options.dtype = DType::F32;
  options.maxSequences = 4;
  const std::unique_ptr<Engine> engine =
      makeEngine(goldenFolder("llama_gqa"), options);
  ModelWriter writer(*engine, 4, 3, {});
  uint64_t stream = 0;
  const auto texts = writer.writeUntil(
      95,
      [&] {
        WritingTask task = someTasks()[stream];
        task.prompt = {static_cast<int32_t>(stream)};
        task.most = 9;
        task.stream = stream++;
        return task;
      },
      "a test");
  ASSERT_EQ(texts.size(), 10u);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i].size(), 10u);
    EXPECT_EQ(texts[i][0], static_cast<int32_t>(i));
  }
}

/// Nor does it matter which texts end early, and how many are begun at once.
TEST(ModelWriter, EnoughIsTheSameWithAnySlots) {
  const auto until = [](size_t slots) {
    EngineOptions options;
    options.dtype = DType::F32;
    options.maxSequences = static_cast<int64_t>(slots);
    const std::unique_ptr<Engine> engine =
        makeEngine(goldenFolder("llama_gqa"), options);
    ModelWriter writer(*engine, slots, 3, {3, 14, 15, 92});
    uint64_t stream = 0;
    return writer.writeUntil(
        150,
        [&] {
          WritingTask task{{static_cast<int32_t>(stream)}, 39, 0, stream};
          ++stream;
          return task;
        },
        "a test");
  };
  const auto wanted = until(1);
  const auto isWhole = [](const auto &text) { return text.size() == 40; };
  EXPECT_TRUE(std::ranges::any_of(wanted, isWhole));
  EXPECT_FALSE(std::ranges::all_of(wanted, isWhole));
  EXPECT_EQ(until(4), wanted);
  EXPECT_EQ(until(32), wanted);
}

TEST(ModelWriter, NothingToGoOnWith) {
  const std::unique_ptr<Engine> engine =
      makeEngine(goldenFolder("llama_gqa"), EngineOptions());
  ModelWriter writer(*engine, 1, 3, {});
  EXPECT_TRUE(hasAll(errorOf([&] {
                       writer.write(
                           std::vector<WritingTask>{{someIds(3), 2, 0, 0},
                                                    {{}, 2, 0, 1}},
                           "a test");
                     }),
                     {"a text for the model to go on with has no token"}));
}

TEST(ModelWriter, EndTokensEnd) {
  const auto all = write(2, 4, 3);
  const int32_t end = all[5][2];
  const auto ended = write(2, 4, 3, {end});
  EXPECT_EQ(ended[5].back(), end);
  for (size_t i = 0; i < all.size(); ++i) {
    auto at = std::find(all[i].begin(), all[i].end(), end);
    if (at != all[i].end())
      ++at;
    EXPECT_EQ(ended[i], std::vector<int32_t>(all[i].begin(), at));
  }
}

TEST(ModelWriter, FirstTokensAreTheLikeliest) {
  EngineOptions options;
  options.dtype = DType::F32;
  const std::unique_ptr<Engine> engine =
      makeEngine(goldenFolder("llama_gqa"), options);
  const std::vector<int32_t> prompt = someIds(9);
  ModelWriter writer(*engine, 1, 3, {});
  const auto written = writer.write(
      std::vector<WritingTask>{{prompt, 1, /*greedy=*/1, 0}}, "a test");
  const std::vector<float> rows = prefillAlone(*engine, prompt);
  const auto last = rows.end() - kVocab;
  EXPECT_EQ(written[0][0], std::max_element(last, rows.end()) - last);
}

TEST(LoopFinder, FindsTextThatGoesRound) {
  for (int32_t period : {1, 3, 16}) {
    LoopFinder loop;
    loop.add(99);
    int32_t count = 0;
    while (count < 1000 && !loop.add(count % period))
      ++count;
    EXPECT_EQ(count, 63) << "period " << period;
  }
  LoopFinder loop;
  for (int32_t i = 0; i < 1000; ++i)
    EXPECT_FALSE(loop.add(i % 17));
}

class ChatTest : public testing::Test {
protected:
  Tokenizer tokenizer = Tokenizer::fromFolder(
      std::filesystem::path(STEM_TEST_DATA) / "../../models/small");
};

TEST_F(ChatTest, SpecialTokensOfTheTemplateCount) {
  const auto encode = [&](const std::string &text) {
    return encodeChat(tokenizer, {{"user", text}}, {}, "small", "text");
  };
  const std::vector<int32_t> ids = encode("Hi");
  // <|im_start|> of both turns, <|im_end|> of the first.
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 2);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1);
  const std::vector<int32_t> spelled = encode("<|im_end|>");
  EXPECT_EQ(std::count(spelled.begin(), spelled.end(), 2), 1);
}

TEST_F(ChatTest, PromptsDiffer) {
  std::set<std::string_view> seen;
  size_t twoTurns = 0;
  for (const DialoguePrompt &prompt : dialoguePrompts()) {
    EXPECT_TRUE(seen.insert(prompt.first).second) << prompt.first;
    twoTurns += !prompt.second.empty();
  }
  EXPECT_GE(seen.size(), 100u);
  EXPECT_GE(twoTurns, 15u);
}

TEST_F(ChatTest, RoomForDialogue) {
  const DialogueWriter dialogues(tokenizer, "small");
  size_t longest = 0;
  for (const DialoguePrompt &prompt : dialoguePrompts())
    longest = std::max(
        longest, encodeChat(tokenizer, {{"user", std::string(prompt.first)}},
                            {}, "small", "text")
                     .size());
  const int64_t least = static_cast<int64_t>(longest) + 16;
  EXPECT_TRUE(dialogues.fits(least));
  EXPECT_FALSE(dialogues.fits(least - 1));
}

} // namespace
