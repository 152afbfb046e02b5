//===- RowPagesTest.cpp - Rows in memory that is a file's -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/RowPages.h"
#include "../Support/TestFiles.h"
#include "TestSupport.h"
#include "stem/Runtime/Arena.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <unistd.h>

using namespace stem;
using namespace stem::test;

namespace {

class RowPagesTest : public testing::Test {
protected:
  FileRows part(const Arena &arena, int64_t offset, int64_t rows,
                int64_t rowBytes) {
    return {"t", static_cast<std::byte *>(arena.data()) + offset, rows,
            rowBytes, arena.file()};
  }

  ContextPtr context = createContext(2);
  const TemporaryFolder folder;
};

/// Rows of odd sizes that share pages with others and with the part before,
/// changed in random steps while others are asked for.
TEST_F(RowPagesTest, HoldWhatIsWritten) {
  std::mt19937 random(1);
  const Arena arena = Arena::inFile(folder.path(), 1 << 20, "rows", "wait");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const FileRows parts[] = {part(arena, 0, 100, 3), part(arena, 300, 70, 5000),
                            part(arena, 1 << 19, 128, 4096)};
  std::vector<std::vector<std::byte>> wanted;
  for (const FileRows &each : parts)
    wanted.emplace_back(each.rows * each.rowBytes);
  RowPages pages(context.get(), {parts, parts + 3});
  std::vector<int32_t> ids, next;
  for (int step = 0; step < 60; ++step) {
    ids = std::move(next);
    next.clear();
    for (int32_t id = 0; id < 70; ++id)
      if (random() % 4 == 0)
        next.push_back(id);
    pages.bring(ids);
    pages.readAhead(next);
    for (size_t p = 0; p < wanted.size(); ++p)
      for (int32_t id : ids) {
        const int64_t at = id * parts[p].rowBytes;
        EXPECT_EQ(
            std::memcmp(parts[p].data + at, &wanted[p][at], parts[p].rowBytes),
            0);
        for (int64_t i = at; i < at + parts[p].rowBytes; ++i)
          wanted[p][i] = parts[p].data[i] = std::byte(random());
      }
    pages.leave();
  }
  for (size_t p = 0; p < wanted.size(); ++p)
    EXPECT_EQ(std::memcmp(parts[p].data, wanted[p].data(), wanted[p].size()),
              0);
}

TEST_F(RowPagesTest, WhatTheDiskDoesNotGiveIsNamed) {
  const Arena arena = Arena::inFile(folder.path(), 1 << 20, "rows", "wait");
  RowPages pages(context.get(), {part(arena, 0, 256, 4096)});
  ASSERT_EQ(ftruncate(arena.file(), 100 * 4096), 0);
  pages.bring(std::vector<int32_t>{3, 99});
  EXPECT_ERROR(pages.bring(std::vector<int32_t>{3, 120, 121}),
               "t: the pages of row 120", "byte 491520 on",
               "the disk does not give them");
}

TEST_F(RowPagesTest, WhatTheDiskDoesNotTakeIsNamed) {
  const Arena arena = Arena::inFile(folder.path(), 1 << 20, "rows", "wait");
  FileRows bad = part(arena, 0, 256, 4096);
  bad.file = 1 << 20; // no descriptor
  RowPages pages(context.get(), {bad});
  pages.leave();
  pages.leave();
  EXPECT_ERROR(pages.bring(std::vector<int32_t>{3}),
               "rows of t cannot be written to their file");
}

TEST_F(RowPagesTest, SettleFindsWhatNothingElseWouldHaveFound) {
  const Arena arena = Arena::inFile(folder.path(), 1 << 20, "rows", "wait");
  FileRows rows = part(arena, 0, 256, 4096);
  RowPages good(context.get(), {rows});
  good.leave();
  good.settle();
  rows.file = 1 << 20; // no descriptor
  RowPages bad(context.get(), {rows});
  EXPECT_ERROR(bad.settle(), "rows of t cannot be written to their file");
  EXPECT_ERROR(bad.settle(), "rows of t cannot be written to their file");
  bad.leave();
  EXPECT_ERROR(bad.settle(), "rows of t cannot be written to their file");
  EXPECT_ERROR(bad.bring(std::vector<int32_t>{3}),
               "rows of t cannot be written to their file");
}

TEST_F(RowPagesTest, RowsThatAreNotThere) {
  const Arena arena = Arena::inFile(folder.path(), 4096, "rows", "wait");
  RowPages pages(context.get(), {part(arena, 0, 4, 1024)});
  for (int32_t id : {-1, 4})
    EXPECT_ERROR(pages.bring(std::vector<int32_t>{id}), "t: row",
                 "rows 0 to 3");
}

TEST_F(RowPagesTest, NoBytesAreNoFile) {
  const Arena arena =
      Arena::inFile(folder.path() / "missing", 0, "rows", "wait");
  EXPECT_EQ(arena.data(), nullptr);
  EXPECT_EQ(arena.file(), -1);
  EXPECT_ERROR(Arena::inFile(folder.path() / "missing", 1, "rows", "wait"),
               "cannot make a file for rows there", "or wait");
}

} // namespace
