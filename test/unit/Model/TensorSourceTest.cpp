//===- TensorSourceTest.cpp - Folders, shards and indexes -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/TensorSource.h"

#include "TestFiles.h"
#include "stem/Model/Safetensors.h"

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

/// One F32 vector [1] for each name, holding `value`, value + 1, …
void writeShard(const fs::path &path, const std::vector<std::string> &names,
                float value) {
  std::vector<TensorDeclaration> tensors;
  for (const std::string &name : names)
    tensors.push_back({name, DType::F32, {1}});
  SafetensorsWriter writer(path, tensors);
  for (size_t i = 0; i < names.size(); ++i)
    writer.write(bytesOf(raw(value + static_cast<float>(i))));
  writer.finish();
}

void writeIndex(const fs::path &folder, const std::string &map) {
  writeText(folder / "model.safetensors.index.json",
            "{\"metadata\":{},\"weight_map\":{" + map + "}}");
}

float valueOf(const TensorSource &source, const std::string &name) {
  float value = -1;
  source.readF32(name, 0, source.get(name).rows(), &value);
  return value;
}

TEST(TensorSource, readsASingleFile) {
  const auto source = openSafetensorsFolder(STEM_TEST_DATA "/golden/llama_gqa");
  EXPECT_EQ(source->tensors().size(), 30u);
  const TensorInfo &info = source->get("model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(info.shape, (std::vector<uint64_t>{32, 80}));
  EXPECT_EQ(info.rows(), 32u);
  EXPECT_EQ(info.rowElements(), 80u);
  EXPECT_EQ(source->find("nope"), nullptr);
  EXPECT_ERROR(source->get("nope"), "llama_gqa", "nope");
  EXPECT_TRUE(source->warnings().empty());
}

TEST(TensorSource, readsRowRanges) {
  const auto source = openSafetensorsFolder(STEM_TEST_DATA "/golden/llama_gqa");
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  std::vector<float> whole(32 * 80), part(3 * 80);
  source->readF32(name, 0, 32, whole.data());
  source->readF32(name, 5, 3, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 5 * 80));
  EXPECT_EQ(
      std::memcmp(source->bytes(name).data(), whole.data(), whole.size() * 4),
      0);
  std::vector<uint16_t> rounded(3 * 80);
  source->readBF16(name, 5, 3, rounded.data());
  for (size_t i = 0; i < part.size(); ++i)
    ASSERT_EQ(rounded[i], f32ToBF16(part[i]));
  std::vector<std::byte> stored(80 * 4);
  source->readRaw(name, 7, 1, stored.data());
  EXPECT_EQ(std::memcmp(stored.data(), whole.data() + 7 * 80, 320), 0);
  source->release(name);
  source->readF32(name, 5, 3, whole.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
  EXPECT_ERROR(source->readF32(name, 31, 2, whole.data()), name, "rows",
               "it has 32");
  EXPECT_ERROR(source->readF32(name, UINT64_MAX, 2, whole.data()), "rows");
}

TEST(TensorSource, readsShards) {
  const TemporaryFolder folder;
  writeShard(folder / "m-1.safetensors", {"a", "b"}, 1);
  writeShard(folder / "m-2.safetensors", {"c"}, 3);
  writeIndex(folder.path(), R"("a":"m-1.safetensors","b":"m-1.safetensors",)"
                            R"("c":"m-2.safetensors")");
  const auto source = openSafetensorsFolder(folder.path());
  EXPECT_EQ(source->names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(valueOf(*source, "b"), 2);
  EXPECT_EQ(valueOf(*source, "c"), 3);
}

// Case B1.
TEST(TensorSource, knowsTensorsThatTheirShardLacks) {
  const TemporaryFolder folder;
  writeShard(folder / "m-1.safetensors", {"a"}, 1);
  writeIndex(folder.path(), R"("a":"m-1.safetensors","b":"m-1.safetensors")");
  const auto source = openSafetensorsFolder(folder.path());
  EXPECT_EQ(source->fileWithout("a"), "");
  EXPECT_EQ(source->fileWithout("b"), "m-1.safetensors");
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_TRUE(
      hasAll(source->warnings()[0], {"model.safetensors.index.json", "\"b\"",
                                     "m-1.safetensors", "does not have"}));
}

// Case B2.
TEST(TensorSource, namesMissingShards) {
  const TemporaryFolder folder;
  writeShard(folder / "m-1.safetensors", {"a"}, 1);
  writeIndex(folder.path(), R"("a":"m-1.safetensors","b":"m-2.safetensors")");
  EXPECT_ERROR(openSafetensorsFolder(folder.path()), "1 of 2 shards",
               "m-2.safetensors", "download");
  // A stale index: every tensor is there, under other file names.
  writeShard(folder / "other.safetensors", {"b"}, 2);
  EXPECT_ERROR(openSafetensorsFolder(folder.path()), "m-2.safetensors",
               "hold every tensor", "--ignore-index");
  const auto source =
      openSafetensorsFolder(folder.path(), {/*ignoreIndex=*/true});
  EXPECT_EQ(valueOf(*source, "a"), 1);
  EXPECT_EQ(valueOf(*source, "b"), 2);
}

TEST(TensorSource, ignoredIndexStillRefusesDuplicates) {
  const TemporaryFolder folder;
  writeShard(folder / "m-1.safetensors", {"a"}, 1);
  writeShard(folder / "m-2.safetensors", {"a"}, 2);
  EXPECT_ERROR(openSafetensorsFolder(folder.path(), {/*ignoreIndex=*/true}),
               "\"a\"", "m-1.safetensors", "m-2.safetensors");
}

TEST(TensorSource, listsTensorsThatTheIndexLeavesOut) {
  const TemporaryFolder folder;
  writeShard(folder / "m-1.safetensors", {"a", "extra"}, 1);
  writeIndex(folder.path(), R"("a":"m-1.safetensors")");
  const auto source = openSafetensorsFolder(folder.path());
  EXPECT_EQ(source->find("extra"), nullptr);
  ASSERT_EQ(source->unlisted().size(), 1u);
  EXPECT_EQ(source->unlisted()[0].name, "extra");
}

TEST(TensorSource, takesTheSingleFileBeforeTheIndex) {
  const TemporaryFolder folder;
  writeShard(folder / "model.safetensors", {"a"}, 7);
  writeIndex(folder.path(), R"("a":"m-1.safetensors")");
  const auto source = openSafetensorsFolder(folder.path());
  EXPECT_EQ(valueOf(*source, "a"), 7);
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_TRUE(hasAll(source->warnings()[0], {"is read", "is not"}));
}

TEST(TensorSource, saysWhatAFolderLacks) {
  const TemporaryFolder folder;
  EXPECT_ERROR(openSafetensorsFolder(folder.path()), folder.path().string(),
               "neither model.safetensors", "download");
  writeShard(folder / "weights.safetensors", {"a"}, 7);
  EXPECT_ERROR(openSafetensorsFolder(folder.path()), "--ignore-index");
}

// Case B4.
TEST(TensorSource, refusesShardNamesThatLeaveTheFolder) {
  for (const char *name : {"../x.safetensors", "../../etc/x.safetensors",
                           "/etc/x.safetensors", "a/b.safetensors", "..", "",
                           "a\\\\b.safetensors", "a\\u0000.safetensors"})
    EXPECT_ERROR(
        parseSafetensorsIndex(
            fmt::format(R"({{"weight_map":{{"t":"{}"}}}})", name), "i.json"),
        "i.json", "not a plain file name");
  EXPECT_ERROR(
      parseSafetensorsIndex(R"({"weight_map":{"t":"x.bin"}})", "i.json"),
      "x.bin", ".safetensors");
}

TEST(TensorSource, followsLinksOnlyWhereTheyBelong) {
  const TemporaryFolder hub;
  const fs::path snapshot = hub.path() / "models--x" / "snapshots" / "rev";
  const fs::path blobs = hub.path() / "models--x" / "blobs";
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  writeShard(blobs / "0123abcd", {"a"}, 5);
  fs::create_symlink("../../blobs/0123abcd", snapshot / "model.safetensors");
  EXPECT_EQ(valueOf(*openSafetensorsFolder(snapshot), "a"), 5);

  const fs::path outside = hub.path() / "outside.safetensors";
  writeShard(outside, {"a"}, 6);
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink(outside, snapshot / "model.safetensors");
  EXPECT_ERROR(openSafetensorsFolder(snapshot), "model.safetensors",
               "outside.safetensors", "outside its folder");

  fs::remove(snapshot / "model.safetensors");
  writeShard(snapshot / "real.bin", {"a"}, 8);
  fs::create_symlink("real.bin", snapshot / "model.safetensors");
  EXPECT_EQ(valueOf(*openSafetensorsFolder(snapshot), "a"), 8);

  fs::create_symlink("../../blobs/gone", snapshot / "config.json");
  EXPECT_ERROR(readModelText(snapshot / "config.json"), "config.json",
               "a link to a file that is not there");
}

// Case B6.
TEST(TensorSource, refusesBadIndexes) {
  const auto parse = [](const std::string &text) {
    return parseSafetensorsIndex(text, "i.json");
  };
  EXPECT_ERROR(parse("{}"), "i.json", "weight_map");
  EXPECT_ERROR(parse(R"({"weight_map":[]})"), "weight_map");
  EXPECT_ERROR(parse(R"({"weight_map":{"t":1}})"), "\"t\"", "is 1");
  EXPECT_ERROR(parse(R"({"weight_map":{"t":"a.safetensors","t":"b"}})"),
               "\"t\"", "twice");
  EXPECT_ERROR(parse("[]"), "object was expected", "array");
  EXPECT_ERROR(parse("{"), "not valid JSON");
  EXPECT_ERROR(parse("version https://git-lfs.github.com/spec/v1"), "Git LFS");
  EXPECT_ERROR(
      parse("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"),
      "nested");
}

// Time in proportion to the index, not to its square.
TEST(TensorSource, parsesLargeIndexes) {
  std::string map;
  for (int i = 0; i < 200'000; ++i)
    map += fmt::format("{}\"t{}\":\"m.safetensors\"", i ? "," : "", i);
  EXPECT_EQ(parseSafetensorsIndex("{\"weight_map\":{" + map + "}}", "i").size(),
            200'000u);
}

TEST(TensorSource, refusesOversizedText) {
  const TemporaryFolder folder;
  writeText(folder / "config.json", "0123456789");
  EXPECT_EQ(readModelText(folder / "config.json"), "0123456789");
  EXPECT_ERROR(readModelText(folder / "config.json", 5), "10 bytes", "5");
  EXPECT_ERROR(readModelText(folder / "none.json"), "none.json", "not there");
}

} // namespace
