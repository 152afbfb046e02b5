//===- ContextTest.cpp - Context, ids and parallel loops
//-------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "stem/Runtime/Parallel.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <set>

using namespace stem;
using namespace stem::test;

namespace {

TEST(Context, DefaultsToPhysicalCoresAndTheBestIsa) {
  stem_context *context = nullptr;
  ASSERT_EQ(stem_context_create(nullptr, &context), STEM_OK);
  EXPECT_EQ(stem_context_threads(context), physicalCores());
  EXPECT_GE(stem_context_threads(context), 1);
  EXPECT_EQ(stem_context_isa(context), detectIsa());
  EXPECT_STREQ(stem_context_message(context), "");
  stem_context_destroy(context);
}

TEST(Context, TheIsaIsCappedAndTheThreadsAreKept) {
  for (stem_isa isa : runnableIsas())
    EXPECT_EQ(stem_context_isa(createContext(3, isa).get()), isa);
  EXPECT_EQ(stem_context_threads(createContext(3).get()), 3);
}

TEST(Context, RefusesWhatItCannotUse) {
  stem_context *context = nullptr;
  EXPECT_EQ(stem_context_create(nullptr, nullptr), STEM_INVALID_ARGUMENT);
  stem_context_options options = {sizeof(options), -1, 0};
  EXPECT_EQ(stem_context_create(&options, &context), STEM_INVALID_ARGUMENT);
  options = {sizeof(options), 1 << 20, 0};
  EXPECT_EQ(stem_context_create(&options, &context), STEM_INVALID_ARGUMENT);
  options = {sizeof(options), 1, 77};
  EXPECT_EQ(stem_context_create(&options, &context), STEM_INVALID_ARGUMENT);
  options = {8, 1, 0};
  EXPECT_EQ(stem_context_create(&options, &context), STEM_INCOMPATIBLE);
  EXPECT_EQ(context, nullptr);
  expectContains(errorOf([] { createContext(5000); }),
                 "5000 threads asked for, but a context has 1 to 1024");
}

TEST(Context, NullIsHarmless) {
  stem_context_destroy(nullptr);
  EXPECT_STREQ(stem_context_message(nullptr), "");
  EXPECT_EQ(stem_context_threads(nullptr), 0);
  EXPECT_EQ(stem_context_isa(nullptr), STEM_ISA_NATIVE);
}

TEST(Context, NamesTheIsas) {
  EXPECT_EQ(isaName(STEM_ISA_AVX2), "avx2");
  EXPECT_EQ(isaName(STEM_ISA_AVX512), "avx512");
  EXPECT_EQ(isaName(STEM_ISA_AVX512_BF16), "avx512bf16");
  EXPECT_EQ(isaName(STEM_ISA_AMX), "amx");
  EXPECT_EQ(isaName(STEM_ISA_NATIVE), "native");
}

TEST(Context, TheMessageBecomesAnError) {
  ContextPtr context = createContext(1);
  stem_table_plan *plan = nullptr;
  stem_status status =
      stem_table_make_plan(context.get(), nullptr, nullptr, 0, &plan);
  EXPECT_EQ(errorOf([&] { throwIfFailed(context.get(), status); }),
            stem_context_message(context.get()));
  EXPECT_EQ(errorOf([&] { throwIfFailed(context.get(), STEM_OK); }),
            "(no error)");
  EXPECT_EQ(errorOf([&] { throwIfFailed(nullptr, STEM_IO_ERROR); }),
            "a runtime call failed with status 4");
}

struct Visits {
  std::vector<std::atomic<int>> counts;
  std::mutex mutex;
  std::vector<int64_t> order;
  std::set<int64_t> threads;

  explicit Visits(int64_t tasks) : counts(tasks) {}
  static void run(void *captures, int64_t task, int64_t thread) {
    auto &self = *static_cast<Visits *>(captures);
    ++self.counts[task];
    std::lock_guard<std::mutex> lock(self.mutex);
    self.order.push_back(task);
    self.threads.insert(thread);
  }
};

TEST(Parallel, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 4})
    for (int64_t tasks : {0, 1, 2, 3, 1000, 5003}) {
      ContextPtr context = createContext(threads);
      Visits visits(tasks);
      stem_parallel_for(context.get(), tasks, Visits::run, &visits);
      for (auto &count : visits.counts)
        EXPECT_EQ(count, 1);
      if (tasks) {
        EXPECT_GE(*visits.threads.begin(), 0);
        EXPECT_LT(*visits.threads.rbegin(), threads);
      }
    }
}

TEST(Parallel, OneThreadRunsInOrderOnTheCaller) {
  ContextPtr context = createContext(1);
  Visits visits(100);
  stem_parallel_for(context.get(), 100, Visits::run, &visits);
  EXPECT_TRUE(std::is_sorted(visits.order.begin(), visits.order.end()));
  EXPECT_EQ(visits.threads, std::set<int64_t>{0});
}

struct Nested {
  stem_context *context;
  std::atomic<int> inner{0};
  std::atomic<int> strangers{0};
  int64_t outerThread = -1;
};

TEST(Parallel, ANestedLoopKeepsItsThread) {
  ContextPtr context = createContext(2);
  Nested nested{context.get()};
  stem_parallel_for(
      context.get(), 8,
      [](void *captures, int64_t, int64_t thread) {
        auto &outer = *static_cast<Nested *>(captures);
        Nested mine{outer.context};
        mine.outerThread = thread;
        stem_parallel_for(
            outer.context, 5,
            [](void *captures, int64_t, int64_t thread) {
              auto &self = *static_cast<Nested *>(captures);
              ++self.inner;
              self.strangers += thread != self.outerThread;
            },
            &mine);
        outer.inner += mine.inner;
        outer.strangers += mine.strangers;
      },
      &nested);
  EXPECT_EQ(nested.inner, 40);
  EXPECT_EQ(nested.strangers, 0);
}

TEST(Parallel, NothingToRunIsHarmless) {
  ContextPtr context = createContext(2);
  stem_parallel_for(context.get(), -5, Visits::run, nullptr);
  stem_parallel_for(context.get(), 5, nullptr, nullptr);
  Visits visits(3);
  stem_parallel_for(nullptr, 3, Visits::run, &visits);
  EXPECT_EQ(visits.order.size(), 3u);
}

TEST(ParallelFor, GivesTheThreadToABodyThatTakesIt) {
  ContextPtr context = createContext(2);
  std::vector<int> tasks(100), threads(2);
  parallelFor(context.get(), 100, [&](int64_t task) { ++tasks[task]; });
  EXPECT_EQ(tasks, std::vector<int>(100, 1));
  parallelFor(context.get(), 100,
              [&](int64_t task, int64_t thread) { ++threads.at(thread); });
  EXPECT_EQ(threads[0] + threads[1], 100);
}

TEST(ParallelFor, AnExceptionComesOutAfterAllTasks) {
  ContextPtr context = createContext(2);
  std::atomic<int> ran = 0;
  expectContains(errorOf([&] {
                   parallelFor(context.get(), 50, [&](int64_t task) {
                     ++ran;
                     if (task % 10 == 3)
                       fail("a task failed");
                   });
                 }),
                 "a task failed");
  EXPECT_EQ(ran, 50);
}

TEST(Parallel, OneOpenMPRuntimeInTheProcess) {
  ContextPtr context = createContext(2);
  Visits visits(4);
  stem_parallel_for(context.get(), 4, Visits::run, &visits);
  std::set<std::string> runtimes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    for (const char *name : {"libgomp", "libomp", "libiomp"})
      if (line.find(std::string("/") + name) != std::string::npos)
        runtimes.insert(line.substr(line.rfind('/')));
  EXPECT_EQ(runtimes.size(), 1u);
}

} // namespace
