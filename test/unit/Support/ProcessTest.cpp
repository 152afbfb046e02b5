//===- ProcessTest.cpp - Signals, standard streams ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Process.h"

#include "TestFiles.h"
#include "stem/Support/Files.h"
#include "stem/Support/ScratchFolder.h"
#include "stem/Support/UnfinishedPath.h"

#include <csignal>
#include <fcntl.h>
#include <functional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

/// How a process that runs `body` ends, and what it writes to standard error.
template <typename Body>
int statusOf(const fs::path &errors, const Body &body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(errors.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), 2);
    body();
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

/// The signal may take a moment to end the process.
void raiseAndWait(int signal) {
  std::raise(signal);
  std::this_thread::sleep_for(std::chrono::seconds(20));
}

TEST(Signals, removeWhatIsUnfinished) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const TemporaryFolder folder, errors;
    const int status = statusOf(errors / "errors", [&] {
      cleanUpOnSignals();
      const ScratchFolder scratch(folder.path(), "scratch-");
      fs::create_directories(scratch.path() / "a" / "b");
      writeText(scratch.path() / "a" / "b" / "c", "x");
      const UnfinishedPath file([&] {
        writeText(folder / "unfinished", "x");
        return folder / "unfinished";
      });
      ScratchFolder kept(folder.path(), "kept-");
      kept.keep();
      raiseAndWait(signal);
    });
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    EXPECT_EQ(folder.entryCount(), 1u); // what was kept
  }
}

TEST(Signals, waitForTheEndOfWhatIsUninterrupted) {
  const TemporaryFolder folder, errors;
  const int status = statusOf(errors / "errors", [&] {
    cleanUpOnSignals([&](int signal) {
      writeText(folder / "cleaned", std::to_string(signal));
    });
    uninterrupted([&] {
      std::raise(SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      writeText(folder / "done", "");
    });
    std::this_thread::sleep_for(std::chrono::seconds(20));
  });
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_TRUE(fs::exists(folder / "done"));
  EXPECT_EQ(readText(folder / "cleaned"), std::to_string(SIGTERM));
}

TEST(Signals, whatIsIgnoredStaysIgnored) {
  const TemporaryFolder errors;
  const int status = statusOf(errors / "errors", [&] {
    std::signal(SIGHUP, SIG_IGN);
    cleanUpOnSignals();
    std::raise(SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::_exit(7);
  });
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

void waitFor(const std::function<bool()> &condition) {
  for (int i = 0; i < 2000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

TEST(Signals, firstOneAsksToStop) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const TemporaryFolder errors;
    const int status = statusOf(errors / "errors", [&] {
      cleanUpOnSignals();
      {
        const StopOnSignal stop;
        if (stop.signal() != 0)
          ::_exit(1);
        std::raise(signal);
        waitFor([&] { return stop.signal() != 0; });
        if (stop.signal() != signal)
          ::_exit(2);
      }
      const StopOnSignal another;
      ::_exit(another.signal() == 0 ? 7 : 3);
    });
    EXPECT_EQ(WEXITSTATUS(status), 7);
    EXPECT_NE(readText(errors / "errors").find("once more stops at once"),
              std::string::npos);
  }
}

TEST(Signals, secondOneEndsTheProcess) {
  const TemporaryFolder errors;
  const int status = statusOf(errors / "errors", [&] {
    cleanUpOnSignals();
    const StopOnSignal stop;
    std::raise(SIGTERM);
    waitFor([&] { return stop.signal() != 0; });
    raiseAndWait(SIGINT);
  });
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

TEST(Signals, endTheProcessAgainAfterwards) {
  const TemporaryFolder errors;
  const int status = statusOf(errors / "errors", [&] {
    cleanUpOnSignals();
    {
      const StopOnSignal stop;
    }
    raiseAndWait(SIGINT);
  });
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

TEST(Signals, fileThatShrinks) {
  const TemporaryFolder folder, errors;
  const fs::path path = folder / "file";
  constexpr size_t bytes = 1 << 20;
  writeText(path, std::string(bytes, 'x'));
  const int status = statusOf(errors / "errors", [&] {
    cleanUpOnSignals();
    const ScratchFolder scratch(folder.path(), "scratch-");
    uint64_t size;
    const FileDescriptor file(openRegularFile(path, size));
    auto *start = static_cast<const volatile char *>(
        ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0));
    nameMapping(const_cast<const char *>(start), bytes, path);
    fs::resize_file(path, 4096);
    (void)start[bytes - 1];
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(hasAll(readText(errors / "errors"),
                     {"error: ", path.string(), "changed while it was read"}));
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(Signals, anotherBusErrorStaysOne) {
  const TemporaryFolder errors;
  const int status = statusOf(errors / "errors", [&] {
    cleanUpOnSignals();
    raiseAndWait(SIGBUS);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGBUS);
}

TEST(Streams, closedOnesAreOpened) {
  const TemporaryFolder errors;
  const int status = statusOf(errors / "errors", [&] {
    for (const int descriptor : {0, 1, 2})
      ::close(descriptor);
    openStandardDescriptors();
    const int next = ::open("/dev/null", O_RDONLY);
    ::_exit(next > 2 && ::write(1, "x", 1) < 0 ? 0 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Streams, losses) {
  const TemporaryFolder errors;
  const int status = statusOf(errors / "errors", [&] {
    const int full = ::open("/dev/full", O_WRONLY);
    ::dup2(full, 1);
    std::fputs("lost", stdout);
    const bool isTold = hasAll(errorOf([] { finishStdout(); }),
                               {"cannot write to standard output: No space"});
    ::dup2(full, 2);
    printStderr("{}", std::string(10000, 'x'));
    ::_exit(isTold ? 0 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

} // namespace
