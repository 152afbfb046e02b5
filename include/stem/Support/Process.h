//===- Process.h - Signals and standard streams of a program ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_PROCESS_H
#define STEM_SUPPORT_PROCESS_H

#include <cstddef>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stem {

/// Gives descriptors 0 to 2 a meaning where they are closed, so that no file
/// that is opened later becomes one of them. What is written there is lost with
/// an error. First thing in a main.
void openStandardDescriptors();

/// SIGINT, SIGTERM and SIGHUP remove what is unfinished, call `alsoClean` with
/// their number and end the process with 128 + that. A mapped file that shrinks
/// while it is read (SIGBUS) ends it with a message and 1. A file beyond the
/// limit of sizes (SIGXFSZ) becomes an error of the write. Once, in a main,
/// before other threads are there.
void cleanUpOnSignals(std::function<void(int)> alsoClean = {});

/// As long as one exists, the first SIGINT, SIGTERM or SIGHUP is a request to
/// stop at the next good place; a second one ends the process as above. One at
/// a time.
class StopOnSignal {
public:
  StopOnSignal();
  StopOnSignal(const StopOnSignal &) = delete;
  StopOnSignal &operator=(const StopOnSignal &) = delete;
  ~StopOnSignal();

  /// The signal that came; 0 for none.
  int signal() const;
};

/// Work that a signal ended early, with everything in order: no error. A tool
/// prints what it says and exits with 128 + signal.
class Interrupted : public std::runtime_error {
public:
  Interrupted(const std::string &what, int signal)
      : runtime_error(what), number(signal) {}
  int signal() const { return number; }

private:
  int number;
};

/// The file that is mapped at `start`, for the message of SIGBUS.
void nameMapping(const void *start, size_t size,
                 const std::filesystem::path &file);
void forgetMapping(const void *start);

/// To standard error. What cannot be written is lost; nothing is thrown.
void writeStderr(std::string_view text) noexcept;

template <typename... Args>
void printStderr(fmt::format_string<Args...> format, Args &&...args) {
  writeStderr(fmt::format(format, std::forward<Args>(args)...));
}

/// Flushes standard output; an Error when anything written there was lost.
void finishStdout();

} // namespace stem

#endif // STEM_SUPPORT_PROCESS_H
