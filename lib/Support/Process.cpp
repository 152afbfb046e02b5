//===- Process.cpp - Signals and standard streams of a program ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A handler may do next to nothing, so it hands the signal through a pipe to a
// thread, which may lock and allocate.
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Process.h"

#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/UnfinishedPath.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>

using namespace stem;
namespace fs = std::filesystem;

namespace {

struct Event {
  int signal;
  void *address; ///< of SIGBUS
};

int eventPipe[2];

/// Whether a StopOnSignal exists, and the signal that it got.
std::atomic<bool> stopsLater = false;
std::atomic<int> requestedStop = 0;

struct Mapping {
  size_t size;
  std::string file;
};

struct Mappings {
  std::mutex mutex;
  std::map<const std::byte *, Mapping> byStart;
};

/// Never destroyed: a signal may come while the process ends.
Mappings &mappings() {
  static Mappings *instance = new Mappings;
  return *instance;
}

/// The file that holds this address; empty for none.
std::string fileAt(const void *address) {
  const std::lock_guard lock(mappings().mutex);
  const auto *place = static_cast<const std::byte *>(address);
  auto next = mappings().byStart.upper_bound(place);
  if (next == mappings().byStart.begin())
    return "";
  const auto &[start, mapping] = *std::prev(next);
  // The last page is mapped whole.
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return static_cast<size_t>(place - start) < mapping.size + page ? mapping.file
                                                                  : "";
}

void onSignal(int signal, siginfo_t *info, void *) {
  const int saved = errno;
  const Event event{signal, signal == SIGBUS ? info->si_addr : nullptr};
  const bool isSent = ::write(eventPipe[1], &event, sizeof(event)) > 0;
  // To return would be to read there again.
  if (isSent && signal == SIGBUS)
    for (;;)
      ::pause();
  errno = saved;
}

[[noreturn]] void endBySignal(const Event &event,
                              const std::function<void(int)> &alsoClean) {
  removeUnfinished();
  if (alsoClean)
    alsoClean(event.signal);
  if (event.signal != SIGBUS)
    ::_exit(128 + event.signal);
  const std::string file = fileAt(event.address);
  if (file.empty()) {
    // To this thread: in the other one the signal is blocked by its handler.
    std::signal(SIGBUS, SIG_DFL);
    sigset_t none;
    ::sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
    std::raise(SIGBUS);
    ::_exit(128 + SIGBUS);
  }
  // Not through stdio, which another thread may have locked.
  const std::string message =
      fmt::format("error: {}: changed while it was read: it became shorter, or "
                  "its device fails; run this again when it is at rest\n",
                  visible(file));
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, message.data(), message.size());
  ::_exit(1);
}

/// Whether the work is told to stop instead.
bool isTakenLater(const Event &event) {
  if (event.signal == SIGBUS || !stopsLater)
    return false;
  int none = 0;
  if (!requestedStop.compare_exchange_strong(none, event.signal))
    return false;
  constexpr std::string_view message =
      "\nstopping after this step; once more stops at once\n";
  // Not through stdio, which another thread may have locked.
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, message.data(), message.size());
  return true;
}

void startCleaner(std::function<void(int)> alsoClean) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([alsoClean = std::move(alsoClean)] {
    for (;;) {
      Event event;
      if (::read(eventPipe[0], &event, sizeof(event)) == sizeof(event) &&
          !isTakenLater(event))
        endBySignal(event, alsoClean);
    }
  }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool isIgnored(int signal) {
  struct sigaction action;
  return ::sigaction(signal, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

} // namespace

void stem::openStandardDescriptors() {
  // Read-only, so that a write to a closed stream fails as it should. The
  // lowest free number is taken: in rising order that is the closed one.
  for (int descriptor = 0; descriptor <= 2; ++descriptor)
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF &&
        ::open("/dev/null", O_RDONLY) < 0)
      ::_exit(1);
}

void stem::cleanUpOnSignals(std::function<void(int)> alsoClean) {
  std::signal(SIGXFSZ, SIG_IGN);
  if (::pipe2(eventPipe, O_CLOEXEC) != 0)
    fail("cannot make a pipe: {}", std::strerror(errno));
  startCleaner(std::move(alsoClean));
  struct sigaction action = {};
  action.sa_sigaction = onSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  // What nohup has the process ignore stays ignored.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGBUS})
    if (!isIgnored(signal))
      ::sigaction(signal, &action, nullptr);
}

StopOnSignal::StopOnSignal() {
  requestedStop = 0;
  stopsLater = true;
}

StopOnSignal::~StopOnSignal() { stopsLater = false; }

int StopOnSignal::signal() const { return requestedStop; }

void stem::nameMapping(const void *start, size_t size, const fs::path &file) {
  const std::lock_guard lock(mappings().mutex);
  mappings().byStart[static_cast<const std::byte *>(start)] = {size,
                                                               file.string()};
}

void stem::forgetMapping(const void *start) {
  const std::lock_guard lock(mappings().mutex);
  mappings().byStart.erase(static_cast<const std::byte *>(start));
}

void stem::writeStderr(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void stem::finishStdout() {
  errno = 0;
  std::cout.flush(); // may flush stdout and fail
  const bool isFlushed = std::fflush(stdout) == 0;
  if (!isFlushed || std::ferror(stdout))
    fail("cannot write to standard output{}{}; the result is lost",
         errno ? ": " : "", errno ? std::strerror(errno) : "");
}
