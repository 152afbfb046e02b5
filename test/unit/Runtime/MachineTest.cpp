//===- MachineTest.cpp - Memory and measurements -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Machine.h"
#include "TestSupport.h"
#include "stem/Runtime/Arena.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sys/resource.h>

using namespace stem;
using namespace stem::test;

namespace {

TEST(Arena, IsZeroAlignedAndMovable) {
  Arena arena((16 << 20) + 3, "a test");
  ASSERT_EQ(arena.size(), (16 << 20) + 3);
  auto bytes = static_cast<char *>(arena.data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 4096, 0u);
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[arena.size() - 1], 0);
  bytes[arena.size() - 1] = 5;
  Arena moved = std::move(arena);
  EXPECT_EQ(moved.data(), bytes);
  // An arena that was moved from is empty.
  EXPECT_EQ(arena.data(), nullptr); // NOLINT(bugprone-use-after-move)
  Arena other(10, "a test");
  other = std::move(moved);
  EXPECT_EQ(static_cast<char *>(other.data())[other.size() - 1], 5);
}

TEST(Arena, SaysWhatDoesNotFit) {
  EXPECT_EQ(Arena(0, "a test").data(), nullptr);
  expectContains(errorOf([] { Arena(-1, "a test"); }),
                 "cannot allocate -1 bytes for a test");
  expectContains(errorOf([] { Arena(int64_t(1) << 60, "a test"); }),
                 "for a test: ");
}

TEST(MemoryStatus, PeakFollowsUse) {
  MemoryStatus before = memoryStatus();
  EXPECT_GT(before.available, 0);
  EXPECT_GT(before.resident, 0);
  EXPECT_GE(before.peakResident, before.resident);
  constexpr int64_t bytes = 64 << 20;
  {
    Arena arena(bytes, "a test");
    std::memset(arena.data(), 1, bytes);
    EXPECT_GE(memoryStatus().resident, before.resident + bytes / 2);
    EXPECT_GE(memoryStatus().peakResident, before.resident + bytes / 2);
  }
  EXPECT_GE(memoryStatus().peakResident, before.resident + bytes / 2);
  resetPeakResident();
  EXPECT_LT(memoryStatus().peakResident, before.resident + bytes / 2);
}

#if !defined(__has_feature) || !__has_feature(address_sanitizer)
// Case F12: what ulimit -v leaves is what is available.
TEST(MemoryStatus, KnowsTheLimitOfTheAddressSpace) {
  const auto child = [] {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const int64_t left = 64 << 20;
    const rlim_t limit = static_cast<rlim_t>(pages * 4096 + left);
    const rlimit bound{limit, limit};
    setrlimit(RLIMIT_AS, &bound);
    const bool isKnown = memoryStatus().available <= left;
    const std::string message = errorOf([&] { Arena(4 * left, "a test"); });
    const bool isSaid =
        message.find(" available below the limit of ulimit -v; raise it") !=
        std::string::npos;
    std::_Exit(isKnown && isSaid ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}
#endif

// Bounds that any machine keeps: a wrong unit or count is far outside.
TEST(Machine, MeasuresPlausibleFigures) {
  ContextPtr context = createContext(2);
  double bandwidth = measureReadBandwidth(context.get());
  EXPECT_GT(bandwidth, 1e8);
  EXPECT_LT(bandwidth, 1e13);
  for (stem_dtype dtype : {STEM_F32, STEM_BF16}) {
    double rate = measureMatrixRate(context.get(), dtype);
    EXPECT_GT(rate, 1e8);
    EXPECT_LT(rate, 1e14);
    RecordProperty(dtype == STEM_F32 ? "f32" : "bf16", std::to_string(rate));
  }
  RecordProperty("bandwidth", std::to_string(bandwidth));
}

} // namespace
