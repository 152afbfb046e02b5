//===- ModelFolderTest.cpp - Writing a Hugging Face folder ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ModelFolder.h"

#include "TestFiles.h"
#include "stem/Model/Checkpoint.h"

#include <nlohmann/json.hpp>
#include <sys/stat.h>

using namespace stem;
using namespace stem::test;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

const fs::path golden = fs::path(STEM_TEST_DATA) / "golden" / "llama_gqa";

/// Copies a model through the writer, streaming a few rows at a time.
void rewrite(const Checkpoint &model, const fs::path &out,
             FolderOptions options = {}) {
  ModelFolderWriter writer(out, options);
  for (const TensorInfo &info : model.tensors().tensors())
    writer.addTensor({info.name, info.dtype, info.shape});
  writer.addText("config.json", model.config().sourceText);
  writer.start();
  for (const TensorInfo &info : model.tensors().tensors()) {
    std::vector<std::byte> row(info.bytes / info.rows());
    for (uint64_t r = 0; r < info.rows(); ++r) {
      model.tensors().readRaw(info.name, r, 1, row.data());
      writer.write(row);
    }
  }
  writer.finish();
}

void expectSameModel(const fs::path &a, const fs::path &b) {
  const Checkpoint first = Checkpoint::open(a), second = Checkpoint::open(b);
  ASSERT_EQ(first.tensors().names(), second.tensors().names());
  for (const std::string &name : first.tensors().names()) {
    const auto x = first.tensors().bytes(name),
               y = second.tensors().bytes(name);
    ASSERT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << name;
  }
  EXPECT_EQ(first.config().sourceText, second.config().sourceText);
}

// Case C14.
TEST(ModelFolder, singleFileRoundTrips) {
  const TemporaryFolder folder;
  rewrite(Checkpoint::open(golden), folder / "out");
  expectSameModel(golden, folder / "out");
  EXPECT_TRUE(fs::exists(folder / "out" / "model.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(whyNotReplaceable(folder / "out"), "");
  EXPECT_EQ(whyNotReplaceable(golden),
            "was not made by Stem (no stem_provenance.json)");
  EXPECT_EQ(folder.entryCount(), 1u);
  EXPECT_EQ(SafetensorsFile::open(folder / "out" / "model.safetensors")
                .metadata()
                .at("format"),
            "pt");
}

TEST(ModelFolder, shardsWithIndex) {
  const TemporaryFolder folder;
  rewrite(Checkpoint::open(golden), folder / "out", {false, 40000});
  expectSameModel(golden, folder / "out");
  EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors"));
  const auto index = ordered_json::parse(
      readText(folder / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), 30u);
  uint64_t total = 0;
  for (const auto &entry : fs::directory_iterator(folder / "out"))
    if (entry.path().extension() == ".safetensors") {
      EXPECT_LE(fs::file_size(entry), 42000u);
      const auto file = SafetensorsFile::open(entry);
      for (const auto &view : file.tensors())
        total += view.data.size();
    }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_TRUE(fs::exists(folder / "out" / "model-00001-of-00005.safetensors"));
}

// What conversion does: a dense shard linked as it is, tables in their own
// files, the replaced matrices left out of the index.
TEST(ModelFolder, linksUntouchedShards) {
  const TemporaryFolder folder;
  fs::copy(golden, folder / "dense", fs::copy_options::recursive);
  const fs::path shard = folder / "dense" / "model.safetensors";
  const Checkpoint dense = Checkpoint::open(folder / "dense");
  StemSection stem;
  stem.baseModelType = "llama";
  stem.baseArchitectures = {"LlamaForCausalLM"};
  stem.layers = {1};
  stem.rowDType = "float32";

  ModelFolderWriter writer(folder / "out");
  std::vector<std::string> kept = dense.tensors().names();
  const std::string replaced = layerTensorName(1, "mlp.up_proj.weight");
  std::erase(kept, replaced);
  writer.linkShard(shard, kept);
  const std::string table = layerTensorName(1, "mlp.up_table.weight");
  writer.addTensor({table, DType::F32, {96, 80}}, "stem-table-001.safetensors");
  writer.addText("config.json",
                 configWithStem(dense.config().sourceText, stem));
  // The link costs nothing.
  EXPECT_LT(writer.bytesNeeded(), 96 * 80 * 4 + 4000u);
  writer.start();
  const std::vector<float> rows(96 * 80, 0.5f);
  writer.write(bytesOf(rows));
  writer.finish();

  const Checkpoint model = Checkpoint::open(folder / "out");
  EXPECT_EQ(model.weights().layers[1].upTable, table);
  EXPECT_EQ(model.weights().ignored, std::vector<std::string>{replaced});
  EXPECT_EQ(model.tensors().get(table).file.filename(),
            "stem-table-001.safetensors");
  const fs::path link = folder / "out" / "model-00001-of-00001.safetensors";
  EXPECT_TRUE(fs::equivalent(link, shard));
  EXPECT_EQ(fs::hard_link_count(shard), 2u);
}

TEST(ModelFolder, refusesExistingDestinations) {
  const TemporaryFolder folder;
  const Checkpoint model = Checkpoint::open(golden);
  fs::create_directory(folder / "mine");
  writeText(folder / "mine" / "thesis.txt", "years of work");
  EXPECT_ERROR(ModelFolderWriter(folder / "mine"), "mine", "exists already");
  EXPECT_ERROR(ModelFolderWriter(folder / "mine", {/*force=*/true}), "mine",
               "not made by Stem", "remove it yourself");
  writeText(folder / "file", "x");
  EXPECT_ERROR(ModelFolderWriter(folder / "file", {/*force=*/true}), "file",
               "not made by Stem");
  rewrite(model, folder / "out");
  EXPECT_ERROR(ModelFolderWriter(folder / "out"), "exists already", "--force");
  EXPECT_EQ(readText(folder / "mine" / "thesis.txt"), "years of work");
}

TEST(ModelFolder, forceReplacesItsOwnFolder) {
  const TemporaryFolder folder;
  rewrite(Checkpoint::open(golden), folder / "out");
  // The source may be the folder that is replaced.
  rewrite(Checkpoint::open(folder / "out"), folder.path() / "out" / "",
          {.force = true, .source = folder / "out"});
  expectSameModel(golden, folder / "out");
  // One file becomes several: what is left of the old folder goes.
  rewrite(Checkpoint::open(golden), folder / "out",
          {.force = true, .shardBytes = 40000});
  expectSameModel(golden, folder / "out");
  EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors"));
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(ModelFolder, forceSparesWhatStemDidNotWrite) {
  const TemporaryFolder folder;
  const fs::path out = folder / "out";
  rewrite(Checkpoint::open(golden), out);
  for (int i = 0; i < 7; ++i)
    writeText(out / fmt::format("notes{}\x1b.txt", i), "mine");
  EXPECT_ERROR(ModelFolderWriter(out, {.force = true}),
               "holds what Stem did not write", "notes0\\x1b.txt", "and 2 more",
               "--force does not replace it");
  EXPECT_ERROR(ModelFolderWriter(out), "choose another name");
  for (int i = 0; i < 7; ++i)
    fs::remove(out / fmt::format("notes{}\x1b.txt", i));
  const ModelFolderWriter ours(out, {.force = true});
  // A folder under the name of one of the files.
  fs::remove(out / "config.json");
  fs::create_directory(out / "config.json");
  EXPECT_ERROR(ModelFolderWriter(out, {.force = true}), "config.json");
}

// What comes into the folder while the new one is written stays too.
TEST(ModelFolder, forceLooksAgainAtTheEnd) {
  const TemporaryFolder folder;
  const fs::path out = folder / "out";
  rewrite(Checkpoint::open(golden), out);
  ModelFolderWriter writer(out, {.force = true});
  writer.start();
  writeText(out / "notes.txt", "mine");
  EXPECT_ERROR(writer.finish(), "while this ran", "notes.txt");
  EXPECT_EQ(readText(out / "notes.txt"), "mine");
  EXPECT_TRUE(fs::exists(out / "model.safetensors"));
}

TEST(ModelFolder, forceSparesTheSource) {
  const TemporaryFolder folder;
  const fs::path out = folder / "out";
  rewrite(Checkpoint::open(golden), out);
  fs::create_directory_symlink(out, folder / "link");
  for (const fs::path &source :
       {out / "model.safetensors", out / "." / "model.safetensors",
        folder / "link" / "model.safetensors"})
    EXPECT_ERROR(ModelFolderWriter(out, {.force = true, .source = source}),
                 "model.safetensors", "which --force would replace");
  // A name that only begins alike.
  ModelFolderWriter(out, {.force = true, .source = folder / "out2"});
}

TEST(ModelFolder, saysWhyTheMarkerDoesNotCount) {
  const TemporaryFolder folder;
  const fs::path out = folder / "out";
  fs::create_directory(out);
  const fs::path marker = out / std::string(ModelFolderWriter::markerName);
  for (const auto &[text, part] :
       {std::pair("{", "stem_provenance.json"),
        std::pair("[]", "stem_provenance.json"),
        std::pair(R"({"made_by":"me"})", "does not say that Stem made"),
        std::pair(R"({"made_by":3})", "does not say that Stem made"),
        std::pair(R"({"made_by":"stem"})", "has no list \"files\"")}) {
    writeText(marker, text);
    const std::string message =
        errorOf([&] { ModelFolderWriter(out, {.force = true}); });
    EXPECT_TRUE(hasAll(message, {part, "may not be Stem's"})) << text;
    EXPECT_EQ(message.find("no stem_provenance.json"), std::string::npos);
  }
  if (::geteuid() == 0)
    return; // root may read everything
  fs::permissions(marker, fs::perms(0));
  EXPECT_ERROR(ModelFolderWriter(out, {.force = true}), "cannot open",
               "Permission denied");
}

TEST(ModelFolder, doesNotReplaceWhatAppears) {
  const TemporaryFolder folder;
  const fs::path out = folder / "out";
  {
    ModelFolderWriter writer(out);
    writer.start();
    fs::create_directory(out);
    writeText(out / "notes", "mine");
    EXPECT_ERROR(writer.finish(), out.string(),
                 "came into being while this ran", "choose another name");
  }
  EXPECT_EQ(readText(out / "notes"), "mine");
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(ModelFolder, refusesUnusableNames) {
  const TemporaryFolder folder;
  EXPECT_ERROR(ModelFolderWriter(folder / std::string(256, 'x')),
               "File name too long", "xxx");
  fs::create_symlink("self", folder / "self");
  EXPECT_ERROR(ModelFolderWriter(folder.path() / "self" / "out"),
               "Too many levels of symbolic links");
  EXPECT_ERROR(Checkpoint::open(folder / "self"),
               "Too many levels of symbolic links");
  EXPECT_ERROR(Checkpoint::open(folder / std::string(256, 'x')),
               "File name too long");
  if (::geteuid() == 0)
    return; // root may read everything
  fs::copy(golden, folder / "model");
  fs::permissions(folder / "model", fs::perms(0100));
  EXPECT_ERROR(Checkpoint::open(folder / "model"), "cannot be listed");
  fs::permissions(folder / "model", fs::perms(0));
  EXPECT_ERROR(Checkpoint::open(folder / "model"), "Permission denied");
  fs::permissions(folder / "model", fs::perms(0700));
}

// To open a pipe would wait for ever.
TEST(ModelFolder, refusesPipesInPlaceOfFiles) {
  for (const char *name :
       {"config.json", "generation_config.json", "model.safetensors"}) {
    const TemporaryFolder folder;
    fs::copy(golden, folder / "model");
    fs::remove(folder / "model" / name);
    ASSERT_EQ(::mkfifo((folder / "model" / name).c_str(), 0600), 0);
    EXPECT_ERROR(Checkpoint::open(folder / "model"), name,
                 "not a regular file");
  }
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "model.gguf").c_str(), 0600), 0);
  EXPECT_ERROR(Checkpoint::open(folder / "model.gguf"), "model.gguf",
               "not a regular file");
  EXPECT_ERROR(SafetensorsFile::open("/dev/zero"), "not a regular file");
}

TEST(ModelFolder, leavesNothingWhenItFails) {
  const TemporaryFolder folder;
  {
    ModelFolderWriter writer(folder / "out");
    writer.addTensor({"a", DType::F32, {4}});
    writer.addTensor({"b", DType::F32, {4}});
    writer.start();
    writer.write(bytesOf(std::string(20, 'x')));
    EXPECT_ERROR(writer.finish(), "\"b\"", "incomplete");
  }
  EXPECT_EQ(folder.entryCount(), 0u);
  {
    ModelFolderWriter writer(folder / "out");
    writer.addTensor({"a", DType::F32, {1}});
    EXPECT_ERROR(writer.write(bytesOf(std::string(4, 'x'))), "start()");
    EXPECT_ERROR(writer.finish(), "start()");
    writer.start();
    EXPECT_ERROR(writer.write(bytesOf(std::string(5, 'x'))),
                 "more tensor data");
  }
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(ModelFolder, checksTheDiskBeforeWriting) {
  const TemporaryFolder folder;
  ModelFolderWriter writer(folder / "out");
  writer.addTensor({"huge", DType::F32, {1u << 30, 1u << 20}});
  EXPECT_GT(writer.bytesNeeded(), uint64_t{1} << 51);
  EXPECT_ERROR(writer.start(), "out", "are needed", "are free");
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(ModelFolder, refusesUnusableParents) {
  const TemporaryFolder folder;
  EXPECT_ERROR(ModelFolderWriter(folder.path() / "no" / "out"), "no",
               "make it first");
  EXPECT_ERROR(ModelFolderWriter("."), "give the new folder a name");
  EXPECT_ERROR(ModelFolderWriter("/"), "give the new folder a name");
  if (::geteuid() == 0)
    return; // root may write anywhere
  fs::permissions(folder.path(), fs::perms(0500));
  EXPECT_ERROR(ModelFolderWriter(folder / "out"), "cannot write");
  fs::permissions(folder.path(), fs::perms(0700));
}

TEST(ModelFolder, refusesBadDeclarations) {
  const TemporaryFolder folder;
  ModelFolderWriter writer(folder / "out");
  EXPECT_ERROR(writer.addText("../x", ""), "not a plain file name");
  EXPECT_ERROR(writer.addFile("x", "a/b"), "not a plain file name");
  writer.addTensor({"a", DType::F32, {1}}, "t-1.safetensors");
  writer.addTensor({"b", DType::F32, {1}}, "t-2.safetensors");
  EXPECT_ERROR(writer.addTensor({"c", DType::F32, {1}}, "t-1.safetensors"),
               "t-1.safetensors", "one after the other");
  writer.addTensor({"a", DType::F32, {1}});
  EXPECT_ERROR(writer.start(), "\"a\"", "twice");
}

TEST(ModelFolder, takesCompanionsAlong) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "in");
  writeText(folder / "in" / "tokenizer.json", "T");
  writeText(folder / "in" / "generation_config.json", "G");
  writeText(folder / "in" / "notes.txt", "N");
  ModelFolderWriter writer(folder / "out");
  writer.addCompanions(folder / "in");
  writer.addText("generation_config.json", "ours");
  writer.start();
  writer.finish();
  EXPECT_EQ(readText(folder / "out" / "tokenizer.json"), "T");
  EXPECT_EQ(readText(folder / "out" / "generation_config.json"), "ours");
  EXPECT_FALSE(fs::exists(folder / "out" / "notes.txt"));
  fs::create_symlink("/etc/hostname", folder / "in" / "vocab.json");
  ModelFolderWriter other(folder / "other");
  EXPECT_ERROR(other.addCompanions(folder / "in"), "vocab.json",
               "outside its folder");
}

TEST(ModelFolder, keepsFilesAndProvenance) {
  const TemporaryFolder folder;
  writeText(folder / "tok.json", "{\"x\":1}");
  ModelFolderWriter writer(folder / "out");
  writer.addTensor({"a", DType::F32, {0}});
  writer.addFile(folder / "tok.json", "tokenizer.json");
  writer.setProvenance(R"({"command":"stem-run import","made_by":"me"})");
  writer.start();
  writer.finish();
  EXPECT_EQ(readText(folder / "out" / "tokenizer.json"), "{\"x\":1}");
  const auto json = ordered_json::parse(
      readText(folder / "out" / std::string(ModelFolderWriter::markerName)));
  EXPECT_EQ(json["made_by"], "stem");
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["command"], "stem-run import");
  EXPECT_TRUE(SafetensorsFile::open(folder / "out" / "model.safetensors")
                  .get("a")
                  .data.empty());
}

} // namespace
