//===- ScratchFolderTest.cpp - Unfinished work goes away ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/ScratchFolder.h"
#include "TestFiles.h"
#include "stem/Support/Files.h"

#include <cstdlib>
#include <set>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

TEST(ScratchFolder, GoesWithWhatIsInIt) {
  TemporaryFolder parent;
  fs::path first;
  {
    ScratchFolder one(parent.path(), "work-"), two(parent.path(), "work-");
    first = one.path();
    EXPECT_NE(one.path(), two.path());
    EXPECT_EQ(fs::status(first).permissions(), fs::perms::owner_all);
    fs::create_directory(first / "below");
    writeText(first / "below" / "file", "x");
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
  writeText(at("p-inside") / "written", "x"); // an hour ago, in an old folder
  writeText(at("p-file12"), "x");
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

TEST(ScratchFolder, StaysWhileInUse) {
  TemporaryFolder parent;
  const auto work = std::make_unique<ScratchFolder>(parent.path(), "p-");
  makeOld(work->path(), 25);
  removeStale(parent.path(), "p-");
  EXPECT_TRUE(fs::exists(work->path()));
  const fs::path path = work->path();
  work->keep(); // and from then on it is like one of a killed process
  ScratchFolder next(parent.path(), "p-");
  EXPECT_FALSE(fs::exists(path));
}

/// One that cannot be examined whole may be in use.
TEST(ScratchFolder, UnreadableWorkStays) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "root may read everything";
  TemporaryFolder parent;
  const fs::path work = parent / "p-abc123", closed = work / "closed";
  fs::create_directories(closed);
  writeText(closed / "written", "x");
  fs::permissions(closed, fs::perms::none);
  makeOld(closed, 25);
  makeOld(work, 25);
  removeStale(parent.path(), "p-");
  fs::permissions(closed, fs::perms::owner_all);
  EXPECT_TRUE(fs::exists(closed / "written"));
}

/// A link that leads nowhere has no time that could be asked for.
TEST(ScratchFolder, LinksInsideDoNotCount) {
  TemporaryFolder parent;
  const fs::path work = parent / "p-abc123";
  fs::create_directory(work);
  fs::create_symlink("/no/such", work / "link");
  makeOld(work, 25);
  removeStale(parent.path(), "p-");
  EXPECT_FALSE(fs::exists(work));
}

TEST(ScratchFolder, ReplaceFileRemovesItsOwn) {
  TemporaryFolder parent;
  for (const char *name : {".file.tmp-abc123", ".other.tmp-abc123"}) {
    writeText(parent / name, "x");
    makeOld(parent / name, 25);
  }
  replaceFile(parent / "file", "x");
  EXPECT_EQ(namesIn(parent.path()),
            (std::set<std::string>{".other.tmp-abc123", "file"}));
}

TEST(ScratchFolder, SaysThatThereIsNoTemporaryFolder) {
  const TemporaryFolder parent;
  const char *before = std::getenv("TMPDIR");
  const std::string value = before ? before : "";
  ::setenv("TMPDIR", (parent / "none").c_str(), 1);
  EXPECT_ERROR(temporaryFolder(), "there is no folder for temporary files",
               "set TMPDIR to one");
  before ? ::setenv("TMPDIR", value.c_str(), 1) : ::unsetenv("TMPDIR");
}

/// The working folder may be another one when the work ends.
TEST(UnfinishedPath, MeansTheSamePlaceLater) {
  const TemporaryFolder first, second;
  const fs::path before = fs::current_path();
  fs::current_path(first.path());
  {
    const ScratchFolder work(".", "work-");
    fs::current_path(second.path());
  }
  fs::current_path(before);
  EXPECT_EQ(first.entryCount(), 0u);
}

} // namespace
