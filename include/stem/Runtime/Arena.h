//===- Arena.h - Large aligned memory and what is left of it ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_ARENA_H
#define STEM_RUNTIME_ARENA_H

#include "stem-c/Runtime.h"

#include <filesystem>
#include <utility>

namespace stem {

/// Memory for weights and arenas: zeros, pages of the system taken when first
/// written, huge pages asked for where it is large, given back at the end.
class STEM_EXPORT Arena {
public:
  Arena() = default;
  /// Throws an Error that says what was wanted and what is available, for
  /// `purpose` ("the arena of a step").
  Arena(int64_t bytes, const char *purpose);
  /// Of a file in `folder`, which has no name and goes with the object: what
  /// has not been used for a while can leave memory, and pages are read where
  /// they are used alone. Throws an Error likewise, with `advice`.
  static Arena inFile(const std::filesystem::path &folder, int64_t bytes,
                      const char *purpose, const char *advice);
  ~Arena();
  Arena(Arena &&other) noexcept
      : start(std::exchange(other.start, nullptr)),
        length(std::exchange(other.length, 0)),
        descriptor(std::exchange(other.descriptor, -1)) {}
  Arena &operator=(Arena &&other) noexcept {
    std::swap(start, other.start);
    std::swap(length, other.length);
    std::swap(descriptor, other.descriptor);
    return *this;
  }

  /// Aligned to a page at least; null when there are 0 bytes.
  void *data() const { return start; }
  int64_t size() const { return length; }
  /// The descriptor of the file; -1 for memory.
  int file() const { return descriptor; }

private:
  void *start = nullptr;
  int64_t length = 0;
  int descriptor = -1;
};

struct MemoryStatus {
  int64_t available;    ///< bytes that can be taken without swapping, within
                        ///< the control group's limit; -1 when not known
  int64_t resident;     ///< bytes of this process now
  int64_t peakResident; ///< the most so far, or since resetPeakResident
};

STEM_EXPORT MemoryStatus memoryStatus();

/// The peak starts anew from what is resident now, where the system can do
/// that.
STEM_EXPORT void resetPeakResident();

} // namespace stem

#endif // STEM_RUNTIME_ARENA_H
