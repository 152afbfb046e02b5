//===- Progress.cpp - How far a long step is ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Progress.h"

#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

using namespace stem;

Progress::Progress(std::string what, double total)
    : what(std::move(what)), total(total), isTerminal(isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  if (!hasPrinted)
    return;
  if (isTerminal)
    printStderr("\r\033[K");
  printStderr("{}: done in {}\n", what, formatSeconds(watch.seconds()));
}

void Progress::update(double done) {
  const double now = watch.seconds();
  const double quiet = hasPrinted ? (isTerminal ? 0.2 : 5.0) : 2.0;
  if (total <= 0 || now - lastPrinted < quiet)
    return;
  const double share = std::min(done / total, 1.0);
  const std::string left =
      share > 0.01 ? ", " + formatSeconds(now / share - now) + " left" : "";
  printStderr("{}{}: {:.0f} %{}{}", isTerminal ? "\r\033[K" : "", what,
              100 * share, left, isTerminal ? "" : "\n");
  std::fflush(stderr);
  lastPrinted = now;
  hasPrinted = true;
}

Heartbeat::Heartbeat(std::string what)
    : thread([this, what = std::move(what)] {
        const Stopwatch watch;
        std::unique_lock lock(mutex);
        std::chrono::seconds pause(2);
        while (!wake.wait_for(lock, pause, [this] { return isOver; })) {
          printStderr("{} ... {}\n", what, formatSeconds(watch.seconds()));
          pause = std::chrono::seconds(10);
        }
      }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex);
    isOver = true;
  }
  wake.notify_all();
  thread.join();
}
