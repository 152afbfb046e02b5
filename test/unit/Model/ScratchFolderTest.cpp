//===- ScratchFolderTest.cpp - Unfinished work goes away ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/ScratchFolder.h"
#include "TestFiles.h"
#include "stem/Model/ModelFolder.h"
#include "stem/Model/Safetensors.h"

#include <chrono>
#include <set>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

std::set<std::string> namesIn(const fs::path &folder) {
  std::set<std::string> names;
  for (const auto &entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

void write(const fs::path &path) { std::ofstream(path) << "x"; }

void makeOld(const fs::path &path, int hours) {
  fs::last_write_time(path, fs::file_time_type::clock::now() -
                                std::chrono::hours(hours));
}

TEST(ScratchFolder, GoesWithWhatIsInIt) {
  TemporaryFolder parent;
  fs::path first;
  {
    ScratchFolder one(parent.path(), "work-"), two(parent.path(), "work-");
    first = one.path();
    EXPECT_NE(one.path(), two.path());
    EXPECT_EQ(fs::status(first).permissions(), fs::perms::owner_all);
    fs::create_directory(first / "below");
    write(first / "below" / "file");
  }
  EXPECT_EQ(namesIn(parent.path()), std::set<std::string>());
  {
    ScratchFolder kept(parent.path(), "work-");
    first = kept.path();
    kept.keep();
  }
  EXPECT_TRUE(fs::is_directory(first));
}

TEST(ScratchFolder, SaysWhereItCannotBe) {
  EXPECT_ERROR(ScratchFolder("/no/such", "work-"),
               "cannot create a folder in /no/such: No such file");
  EXPECT_EQ(ScratchFolder::tryMake("/no/such", "work-"), nullptr);
}

TEST(ScratchFolder, StaleWorkIsRemoved) {
  TemporaryFolder parent;
  const auto at = [&](const char *name) { return parent.path() / name; };
  for (const char *name : {"p-abc123", "p-fresh1", "p-inside", "p-short",
                           "p-longer1", "p-abc_23", "q-abc123"})
    fs::create_directory(at(name));
  write(at("p-inside") / "written"); // an hour ago, in an old folder
  write(at("p-file12"));
  fs::create_symlink("/no/such", at("p-link12"));
  for (const char *name : {"p-abc123", "p-inside", "p-short", "p-longer1",
                           "p-abc_23", "q-abc123", "p-file12"})
    makeOld(at(name), 25);
  makeOld(at("p-fresh1"), 23);
  removeStale(parent.path(), "p-");
  EXPECT_EQ(
      namesIn(parent.path()),
      (std::set<std::string>{"p-fresh1", "p-inside", "p-short", "p-longer1",
                             "p-abc_23", "q-abc123", "p-link12"}));
  removeStale("/no/such", "p-");
}

/// What a killed writer left of the same file or folder goes with the next.
TEST(ScratchFolder, WritersRemoveTheirOwn) {
  TemporaryFolder parent;
  const auto at = [&](const char *name) { return parent.path() / name; };
  for (const char *name :
       {".a.safetensors.tmp-abc123", ".b.safetensors.tmp-abc123"}) {
    write(at(name));
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

TEST(ScratchFolder, WritersTakeNamesOfTheirOwn) {
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

} // namespace
