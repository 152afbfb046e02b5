//===- Progress.h - How far a long step is --------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_PROGRESS_H
#define STEM_TOOLS_STEM_RUN_PROGRESS_H

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace stem {

/// Seconds since it was made.
class Stopwatch {
public:
  double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
};

/// Reports on standard error: on a terminal one line that changes, elsewhere a
/// line every few seconds. Silent about what takes less than two seconds.
class Progress {
public:
  Progress(std::string what, double total);
  ~Progress();
  /// `done` of `total` are done.
  void update(double done);

private:
  std::string what;
  double total;
  bool isTerminal;
  bool hasPrinted = false;
  double lastPrinted = 0;
  Stopwatch watch;
};

/// Says that a step without a measure of its progress goes on: after two
/// seconds, then every ten.
class Heartbeat {
public:
  explicit Heartbeat(std::string what);
  ~Heartbeat();

private:
  std::mutex mutex;
  std::condition_variable wake;
  bool isOver = false;
  std::thread thread;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_PROGRESS_H
