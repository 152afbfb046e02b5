//===- RowPages.cpp - Rows in memory that is a file's ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/RowPages.h"

#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

using namespace stem;

namespace {

/// Rows of a task.
constexpr int64_t taskRows = 256;

/// Whole pages.
struct Range {
  std::byte *begin, *end;
  size_t first; ///< place of the row that it begins with
};

Range pagesOf(std::byte *begin, std::byte *end, size_t first) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = reinterpret_cast<uintptr_t>(begin);
  const auto to = reinterpret_cast<uintptr_t>(end);
  return {begin - from % page, end + (page - to % page) % page, first};
}

/// Calls body with the pages of rows; rows that share one are one call, until
/// it gives false.
template <typename Body>
void forPages(const FileRows &part, std::span<const int32_t> ids,
              const Body &body) {
  Range held = {};
  for (size_t i = 0; i < ids.size(); ++i) {
    std::byte *row = part.data + ids[i] * part.rowBytes;
    const Range pages = pagesOf(row, row + part.rowBytes, i);
    if (held.begin && pages.begin <= held.end) {
      held.end = pages.end;
      continue;
    }
    if (held.begin && !body(held))
      return;
    held = pages;
  }
  if (held.begin)
    body(held);
}

void end(std::thread &thread) {
  if (thread.joinable())
    thread.join();
}

/// Runs body on a thread, or on the caller where none can start (no thread, or
/// no memory for what it captures).
template <typename Body> void run(std::thread &thread, Body body) noexcept {
  try {
    thread = std::thread(body);
  } catch (const std::exception &) {
    body();
  }
}

size_t lengthOf(const Range &range) {
  return static_cast<size_t>(range.end - range.begin);
}

void bringPart(const FileRows &part, std::span<const int32_t> ids) {
  forPages(part, ids, [&](const Range &range) {
    if (madvise(range.begin, lengthOf(range), MADV_POPULATE_WRITE) == 0)
      return true;
    // Linux before 5.14 does not know the advice: rows come when they are
    // used, and what cannot be read then ends the process with its message.
    if (errno == EINVAL)
      return false;
    fail("{}: the pages of row {} and those behind it (byte {} on of its file, "
         "{} bytes) cannot be brought into memory: {}",
         part.name, ids[range.first], ids[range.first] * part.rowBytes,
         lengthOf(range),
         errno == EFAULT ? "the disk does not give them"
                         : std::strerror(errno));
  });
}

} // namespace

RowPages::RowPages(stem_context *context, std::vector<FileRows> parts)
    : context(context), parts(std::move(parts)) {}

RowPages::~RowPages() {
  end(reader);
  end(writer);
}

/// The system reads while this goes on: a single thread that asks keeps a
/// device busy.
void RowPages::readAhead(std::vector<int32_t> ids) {
  end(reader);
  run(reader, [this, ids = std::move(ids)] {
    for (const FileRows &part : parts)
      forPages(part, ids, [](const Range &range) {
        madvise(range.begin, lengthOf(range), MADV_WILLNEED);
        return true;
      });
  });
}

/// Waits for what was begun before, which is when it is known to have been
/// written, and begins what has changed since, with more flags to wait for that
/// too.
void RowPages::writeBack(unsigned more) {
  int last = -1;
  for (const FileRows &part : parts) {
    if (part.file == last)
      continue;
    last = part.file;
    if (sync_file_range(part.file, 0, 0,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            more) == 0)
      continue;
    writerFault = fmt::format("rows of {} cannot be written to their file: {}",
                              part.name, std::strerror(errno));
    return;
  }
}

void RowPages::endWriter() noexcept {
  end(writer);
  if (fault.empty())
    fault.swap(writerFault);
}

void RowPages::requireWritten() const {
  if (!fault.empty())
    fail("{}", fault);
}

void RowPages::bring(std::span<const int32_t> ids) {
  requireWritten();
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t tasks = (count + taskRows - 1) / taskRows;
  for (const FileRows &part : parts)
    for (const int32_t id : ids)
      if (id < 0 || id >= part.rows)
        fail("{}: row {} of a table with rows 0 to {}", part.name, id,
             part.rows - 1);
  const auto number = static_cast<int64_t>(parts.size());
  parallelFor(context, number * tasks, [&](int64_t task) {
    const int64_t first = task % tasks * taskRows;
    bringPart(
        parts[static_cast<size_t>(task / tasks)],
        ids.subspan(static_cast<size_t>(first),
                    static_cast<size_t>(std::min(taskRows, count - first))));
  });
}

void RowPages::leave() noexcept {
  for (const FileRows &part : parts) {
    const Range all =
        pagesOf(part.data, part.data + part.rows * part.rowBytes, 0);
    madvise(all.begin, lengthOf(all), MADV_DONTNEED);
  }
  endWriter();
  run(writer, [this] { writeBack(0); });
}

void RowPages::settle() {
  endWriter();
  writeBack(SYNC_FILE_RANGE_WAIT_AFTER);
  endWriter();
  requireWritten();
}
