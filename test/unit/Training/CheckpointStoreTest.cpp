//===- CheckpointStoreTest.cpp - Checkpoints of a training run ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/CheckpointStore.h"

#include "../Support/TestFiles.h"
#include "stem/Support/Error.h"

#include "gtest/gtest.h"

#include <cstring>
#include <fstream>
#include <numeric>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

class CheckpointStoreTest : public testing::Test {
protected:
  CheckpointStoreTest() : values(37) {
    std::iota(values.begin(), values.end(), 0.5f);
  }

  /// Two files; `values` of the first begin with `mark`.
  std::vector<CheckpointFile> files(float mark) {
    values[0] = mark;
    const auto bytes = std::as_bytes(std::span(values));
    return {
        {"dense.safetensors",
         {{"a.w", DType::F32, {37}, bytes},
          {"a.steps", DType::I64, {1}, std::as_bytes(std::span(&steps, 1))}}},
        {"table-000.safetensors", {{"t.w", DType::F32, {37}, bytes}}}};
  }

  void save(CheckpointStore &store, int64_t step) {
    store.save(step, files(static_cast<float>(step)),
               "run " + std::to_string(step));
  }

  std::set<std::string> names() const { return namesIn(folder); }

  std::optional<LoadedCheckpoint> newest(const CheckpointStore &store) {
    messages.clear();
    return store.newest(
        [&](const std::string &why) { messages.push_back(why); });
  }

  fs::path at(int64_t step, const std::string &file) {
    return folder / fmt::format("step-{:010}", step) / file;
  }

  TemporaryFolder temporary;
  fs::path folder = temporary.path();
  std::vector<float> values;
  int64_t steps = 12;
  std::vector<std::string> messages;
};

TEST_F(CheckpointStoreTest, GivesBackWhatWasSaved) {
  CheckpointStore store(folder, 1);
  EXPECT_TRUE(store.isEmpty());
  EXPECT_FALSE(newest(store));
  save(store, 7);
  EXPECT_FALSE(store.isEmpty());
  const auto found = newest(store);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 7);
  EXPECT_EQ(found->run, "run 7");
  ASSERT_EQ(found->tensors().size(), 3u);
  EXPECT_EQ(std::memcmp(found->files[0].get("a.w").data.data(), values.data(),
                        values.size() * sizeof(float)),
            0);
  EXPECT_TRUE(messages.empty());
}

TEST_F(CheckpointStoreTest, KeepsTheLastOnes) {
  CheckpointStore store(folder, 2);
  for (const int64_t step : {1, 2, 3, 4})
    save(store, step);
  EXPECT_EQ(names(),
            (std::set<std::string>{"step-0000000003", "step-0000000004"}));
  EXPECT_GE(CheckpointStore::plannedBytes(files(0)) * 2, store.presentBytes());
}

TEST_F(CheckpointStoreTest, PassesOverWhatIsDamaged) {
  const std::vector<std::pair<std::string, std::string>> damages = {
      {"dense.safetensors", "bytes, the manifest says"},
      {"run.json", "bytes, the manifest says"},
      {"manifest.json", "no JSON object"}};
  for (const auto &[file, message] : damages) {
    SCOPED_TRACE(file);
    CheckpointStore store(folder, 3);
    for (const int64_t step : {1, 2})
      save(store, step);
    writeText(at(2, file), "x");
    const auto found = newest(store);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 1);
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_NE(messages[0].find(message), std::string::npos) << messages[0];
    EXPECT_NE(messages[0].find(at(2, file).string()), std::string::npos);
    fs::remove_all(folder);
    fs::create_directory(folder);
  }
}

TEST_F(CheckpointStoreTest, NamesAFileWithAnotherHash) {
  CheckpointStore store(folder, 1);
  save(store, 3);
  std::fstream file(at(3, "table-000.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put(1);
  file.close();
  EXPECT_FALSE(newest(store));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].find("has SHA-256"), std::string::npos);
}

TEST_F(CheckpointStoreTest, RefusesManifestsOfAnotherKind) {
  const std::string head =
      R"({"format": "stem-training-checkpoint", "version": 1, "step": 1)";
  const std::vector<std::pair<std::string, std::string>> texts = {
      {R"({"format": "x"})", "\"format\" is not"},
      {R"({"format": "stem-training-checkpoint", "version": 2})",
       "\"version\" is not 1"},
      {R"({"format": "stem-training-checkpoint", "version": 1, "step": -9})",
       "\"step\" is not a whole number"},
      {head + "}", "\"files\" is not a list"},
      {head + R"(, "files": [{"name": "a"}]})", "\"files\" is not a list"},
      {head + R"(, "files": [{"name": "../a", "bytes": 1, "sha256": ""}]})",
       "\"files\" is not a list"},
      {head + R"(, "files": [{"name": "a", "bytes": -1, "sha256": ""}]})",
       "\"files\" is not a list"},
      {R"({"format": "stem-training-checkpoint", "version": 1, "step": 9,
           "files": [{"name": "run.json", "bytes": 5, "sha256": ""}]})",
       "\"step\" is 9, the folder's name says 1"},
      {head + R"(, "files": []})", "does not list run.json"}};
  CheckpointStore store(folder, 1);
  save(store, 1);
  for (const auto &[text, message] : texts) {
    writeText(at(1, "manifest.json"), text);
    EXPECT_FALSE(newest(store));
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_NE(messages[0].find(message), std::string::npos) << messages[0];
  }
}

/// What was damaged does not push out what is good.
TEST_F(CheckpointStoreTest, GoesOnAfterADamagedOne) {
  CheckpointStore store(folder, 1);
  save(store, 5);
  writeText(at(5, "run.json"), "x");
  save(store, 3);
  EXPECT_EQ(names(), std::set<std::string>{"step-0000000003"});
  writeText(at(3, "run.json"), "x");
  save(store, 3);
  ASSERT_TRUE(newest(store));
  EXPECT_EQ(newest(store)->step, 3);
}

TEST_F(CheckpointStoreTest, AFailedSaveLeavesWhatWasThere) {
  CheckpointStore store(folder, 1);
  save(store, 1);
  std::vector<CheckpointFile> bad = files(2);
  bad[1].tensors.push_back(bad[1].tensors[0]); // a name twice
  EXPECT_THROW(store.save(2, bad, "run"), Error);
  EXPECT_EQ(names(), std::set<std::string>{"step-0000000001"});
  EXPECT_EQ(newest(store)->step, 1);
}

TEST_F(CheckpointStoreTest, IsOfOneProcess) {
  std::optional<CheckpointStore> store(std::in_place, folder, 1);
  try {
    CheckpointStore second(folder, 1);
    FAIL() << "two stores of one folder";
  } catch (const Error &error) {
    EXPECT_NE(std::string(error.what()).find("another process"),
              std::string::npos);
  }
  store.reset();
  CheckpointStore third(folder, 1);
}

TEST_F(CheckpointStoreTest, RemovesWhatAKilledProcessLeft) {
  fs::create_directories(folder / ".step-0000000004.tmp-abcdef");
  writeText(folder / ".step-0000000004.tmp-abcdef" / "dense.safetensors", "x");
  writeText(folder / ".tokens.safetensors.tmp-abcdef", "x");
  writeText(folder / "metrics.jsonl", "x");
  CheckpointStore store(folder, 1);
  EXPECT_EQ(names(), std::set<std::string>{"metrics.jsonl"});
  EXPECT_TRUE(store.isEmpty());
}

TEST_F(CheckpointStoreTest, NeedsItsFolder) {
  EXPECT_THROW(CheckpointStore(folder / "no", 1), Error);
}

} // namespace
