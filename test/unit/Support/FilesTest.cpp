//===- FilesTest.cpp - Opening files, messages ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Files.h"

#include "TestFiles.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

TEST(Files, readsWholeFiles) {
  const TemporaryFolder folder;
  for (const size_t size : {0, 1, 4095, 4096, 4097, 100000}) {
    const std::string text(size, 'x');
    writeText(folder / "file", text);
    const std::string read = readWholeFile(folder / "file", size);
    EXPECT_EQ(read, text);
    // The end is found without a larger buffer.
    EXPECT_LE(read.capacity(), std::max<size_t>(size + 1, 4096));
    if (size > 0)
      EXPECT_ERROR(readWholeFile(folder / "file", size - 1), "file", "at most");
  }
  // Files of the system say that they have no bytes.
  EXPECT_FALSE(readWholeFile("/proc/self/status", 1 << 20).empty());
}

TEST(Files, namesTheFileThatCannotBeRead) {
  const TemporaryFolder folder;
  EXPECT_ERROR(readWholeFile(folder / "none", 9), "none", "cannot open",
               "No such file");
  // The memory at address 0 is not there.
  EXPECT_ERROR(readWholeFile("/proc/self/mem", 1 << 20), "/proc/self/mem",
               "cannot be read: Input/output error");
}

TEST(Files, refusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const fs::path &path :
       {folder / "pipe", folder.path(), fs::path("/dev/zero")})
    EXPECT_ERROR(readWholeFile(path, 9), path.string(), "not a regular file");
}

TEST(Files, replacesWholeFiles) {
  const TemporaryFolder folder;
  replaceFile(folder / "file", "one");
  replaceFile(folder / "file", "two");
  EXPECT_EQ(readText(folder / "file"), "two");
  const mode_t mask = ::umask(027);
  replaceFile(folder / "file", "two");
  ::umask(mask);
  EXPECT_EQ(static_cast<unsigned>(fs::status(folder / "file").permissions()),
            0640u);
  // A write that fails leaves the file as it was, and nothing beside it.
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit few = {1000, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &few);
  const std::string message =
      errorOf([&] { replaceFile(folder / "file", std::string(2000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(hasAll(message, {"cannot write", "file", "File too large"}));
  EXPECT_EQ(readText(folder / "file"), "two");
  EXPECT_EQ(folder.entryCount(), 1u);
  EXPECT_ERROR(replaceFile(folder.path() / "no" / "file", ""), "no/file",
               "No such file");
}

TEST(Files, existence) {
  const TemporaryFolder folder;
  EXPECT_FALSE(pathExists(folder / "none"));
  EXPECT_FALSE(isFolder(folder / "none"));
  EXPECT_TRUE(isFolder(folder.path()));
  writeText(folder / "file", "");
  EXPECT_TRUE(pathExists(folder / "file"));
  EXPECT_FALSE(pathExists(folder / "file" / "below"));
  EXPECT_ERROR(pathExists(folder / std::string(256, 'x')),
               "File name too long");
  fs::create_symlink("self", folder / "self");
  EXPECT_ERROR(isFolder(folder / "self"), "self",
               "Too many levels of symbolic links");
}

TEST(Files, listsNamesSorted) {
  const TemporaryFolder folder;
  for (const char *name : {"b", ".a", "c"})
    writeText(folder / name, "");
  EXPECT_EQ(namesInFolder(folder.path()),
            (std::vector<std::string>{".a", "b", "c"}));
  EXPECT_ERROR(namesInFolder(folder / "b"), "b: cannot be listed",
               "Not a directory");
}

TEST(Files, saysWhatCannotBeRenamed) {
  const TemporaryFolder folder;
  writeText(folder / "file", "x");
  renamePath(folder / "file", folder / "other");
  EXPECT_EQ(readText(folder / "other"), "x");
  EXPECT_ERROR(renamePath(folder / "file", folder / "third"), "third",
               "cannot rename", "file to it: No such file");
}

/// A folder with a file that says which one it is.
void makeFolder(const fs::path &path, const std::string &text) {
  fs::create_directory(path);
  writeText(path / "text", text);
}

TEST(Files, exchangesFolders) {
  const TemporaryFolder folder;
  const fs::path fresh = folder / "fresh", old = folder / "old";
  makeFolder(fresh, "new");
  makeFolder(old, "before");
  exchangePaths(fresh, old);
  EXPECT_EQ(readText(old / "text"), "new");
  EXPECT_EQ(readText(fresh / "text"), "before");
  EXPECT_EQ(folder.entryCount(), 2u);
}

/// Renames, but for the calls of these numbers, which fail with ENOSPC.
Rename failingAt(std::set<int> numbers) {
  return [numbers, call = 0](const fs::path &from, const fs::path &to) mutable {
    if (numbers.count(call++))
      return std::make_error_code(std::errc::no_space_on_device);
    std::error_code error;
    fs::rename(from, to, error);
    return error;
  };
}

// Where a file system cannot exchange. Each rename may fail, and the way back.
TEST(Files, exchangesFoldersByRenames) {
  const auto exchange = [](const TemporaryFolder &folder, const Rename &rename,
                           const std::string &textOfOld) {
    const fs::path fresh = folder / "fresh", old = folder / "old";
    makeFolder(fresh, "new");
    makeFolder(old, "before");
    const std::string message =
        errorOf([&] { exchangeByRenames(fresh, old, rename); });
    EXPECT_EQ(readText(old / "text"), textOfOld) << message;
    EXPECT_EQ(folder.entryCount(), 2u) << message;
    return message;
  };
  {
    const TemporaryFolder folder;
    EXPECT_EQ(exchange(folder, failingAt({}), "new"), "(no error)");
    EXPECT_EQ(readText(folder / "fresh" / "text"), "before");
  }
  {
    const TemporaryFolder folder;
    const std::string message = exchange(folder, failingAt({0}), "before");
    EXPECT_TRUE(hasAll(message, {(folder / "old").string(), "fresh-old",
                                 "No space left", "stays as it was"}));
    EXPECT_EQ(readText(folder / "fresh" / "text"), "new");
  }
  {
    const TemporaryFolder folder;
    const std::string message = exchange(folder, failingAt({1}), "before");
    EXPECT_TRUE(hasAll(message, {(folder / "old").string(), "cannot rename",
                                 "No space left", "back in its place"}));
    EXPECT_EQ(readText(folder / "fresh" / "text"), "new");
  }
  {
    // Both reasons, and where the old one is.
    const TemporaryFolder folder;
    const std::string message = exchange(folder, failingAt({1, 2}), "");
    EXPECT_TRUE(hasAll(message, {(folder / "old").string() + ": cannot rename",
                                 "to it: No space left",
                                 (folder / "fresh-old").string() + " now",
                                 "cannot be renamed back: No space left",
                                 "rename it yourself"}));
    EXPECT_EQ(readText(folder / "fresh-old" / "text"), "before");
  }
  {
    const TemporaryFolder folder;
    const std::string message = exchange(folder, failingAt({2}), "new");
    EXPECT_TRUE(hasAll(message, {(folder / "old").string() + ": is complete",
                                 (folder / "fresh-old").string(),
                                 "No space left", "remove it yourself"}));
    EXPECT_EQ(readText(folder / "fresh-old" / "text"), "before");
  }
}

TEST(Messages, escapeControls) {
  EXPECT_EQ(printable("a\n\x1b[2J\x7f"), "a\\x0a\\x1b[2J\\x7f");
  EXPECT_EQ(visible("a\n\tb\x1b\r"), "a\n\tb\\x1b\\x0d");
  // U+009B begins a sequence as the escape character does; é does not.
  EXPECT_EQ(printable("\xc2\x9b é \xc2"), "\\xc2\\x9b é \xc2");
}

TEST(Messages, cutLongOnes) {
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(printable(std::string(201, 'x')),
            std::string(200, 'x') + "… (201 bytes)");
  // Between characters: this one has two bytes.
  EXPECT_EQ(printable(std::string(199, 'x') + "é"),
            std::string(199, 'x') + "… (201 bytes)");
  EXPECT_EQ(visible(std::string(8000, 'x')), std::string(8000, 'x'));
  const std::string cut = visible("begin" + std::string(9000, 'x') + "end");
  EXPECT_LT(cut.size(), 4100u);
  EXPECT_TRUE(cut.starts_with("beginx") && cut.ends_with("xend"));
  EXPECT_TRUE(hasAll(cut, {"(9008 bytes)"}));
}

} // namespace
