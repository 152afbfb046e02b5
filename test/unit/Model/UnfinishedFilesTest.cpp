//===- UnfinishedFilesTest.cpp - What writers leave, and their modes ------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestFiles.h"
#include "stem/Model/ModelFolder.h"
#include "stem/Model/Safetensors.h"

#include <set>
#include <sys/stat.h>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

/// What a killed writer left of the same file or folder goes with the next.
TEST(UnfinishedFiles, WritersRemoveTheirOwn) {
  TemporaryFolder parent;
  const auto at = [&](const char *name) { return parent.path() / name; };
  for (const char *name :
       {".a.safetensors.tmp-abc123", ".b.safetensors.tmp-abc123"}) {
    writeText(at(name), "x");
    makeOld(at(name), 25);
  }
  fs::create_directory(at(".model.tmp-abc123"));
  makeOld(at(".model.tmp-abc123"), 25);
  SafetensorsWriter(at("a.safetensors"), {}).finish();
  ModelFolderWriter folder(at("model"));
  folder.start();
  folder.finish();
  EXPECT_EQ(namesIn(parent.path()),
            (std::set<std::string>{".b.safetensors.tmp-abc123", "a.safetensors",
                                   "model"}));
}

TEST(UnfinishedFiles, WritersTakeNamesOfTheirOwn) {
  TemporaryFolder parent;
  const fs::path path = parent.path() / "a.safetensors";
  {
    SafetensorsWriter one(path, {}), two(path, {});
    EXPECT_EQ(namesIn(parent.path()).size(), 2u);
    for (const std::string &name : namesIn(parent.path()))
      EXPECT_EQ(name.size(), std::string(".a.safetensors.tmp-abc123").size());
  }
  EXPECT_EQ(namesIn(parent.path()), std::set<std::string>());
}

TEST(UnfinishedFiles, ModesFollowTheUmask) {
  TemporaryFolder parent;
  const mode_t before = ::umask(027);
  ModelFolderWriter folder(parent / "model");
  folder.addTensor({"a", DType::F32, {0}});
  folder.start();
  folder.finish();
  ::umask(before);
  const auto modeOf = [](const fs::path &path) {
    return static_cast<unsigned>(fs::status(path).permissions());
  };
  EXPECT_EQ(modeOf(parent / "model"), 0750u);
  EXPECT_EQ(modeOf(parent / "model" / "model.safetensors"), 0640u);
}

} // namespace
