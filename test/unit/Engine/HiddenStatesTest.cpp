//===- HiddenStatesTest.cpp - What calibration keeps between layers -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HiddenStates.h"
#include "CalibrationTestSupport.h"

#include <csignal>
#include <numeric>
#include <sys/resource.h>

using namespace stem;
using namespace stem::test;

namespace {

/// A width whose steps end inside a page.
constexpr int64_t kWidth = 33;

const TokenStream &stream() {
  static const TokenStream stream = makeStream(someWindows(7, 100, 1), 256);
  return stream;
}

void fillStep(const TokenStream::Step &step, float *out) {
  for (int64_t i = 0; i < step.count * kWidth; ++i)
    out[i] = static_cast<float>(step.begin * kWidth + i);
}

void expectFilled(const HiddenStates &states, float added = 0) {
  for (const TokenStream::Step &step : stream().steps)
    for (int64_t i = 0; i < step.count * kWidth; ++i)
      ASSERT_EQ(states.at(step)[i],
                static_cast<float>(step.begin * kWidth + i) + added);
}

/// No file may be larger while this lives.
class FileLimit {
public:
  explicit FileLimit(rlim_t bytes) : handler(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit limit = {bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
  }

private:
  rlimit before;
  void (*handler)(int);
};

TEST(HiddenStates, InMemoryAndInAFileWithoutAName) {
  const TemporaryFolder folder;
  ASSERT_EQ(stream().steps.size(), 4u);
  for (const std::filesystem::path &place :
       {std::filesystem::path(), folder.path()}) {
    HiddenStates states(stream(), kWidth, place, fillStep);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    expectFilled(states);
    // What is written stays when its pages leave the process.
    for (const TokenStream::Step &step : stream().steps) {
      for (int64_t i = 0; i < step.count * kWidth; ++i)
        states.at(step)[i] += 1;
      states.leave(step);
    }
    expectFilled(states, 1);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(HiddenStates, AreCopied) {
  const TemporaryFolder folder;
  const HiddenStates inFile(stream(), kWidth, folder.path(), fillStep);
  const HiddenStates inMemory(stream(), kWidth, "", fillStep);
  for (const HiddenStates *from : {&inFile, &inMemory})
    for (const std::filesystem::path &place :
         {std::filesystem::path(), folder.path()}) {
      HiddenStates copy(stream(), kWidth, place);
      copy.copyFrom(*from);
      expectFilled(copy);
    }
}

TEST(HiddenStates, KnowTheStream) {
  TokenStream numbered = stream();
  for (size_t i = 0; i < numbered.ids.size(); ++i)
    numbered.rows.push_back(static_cast<int32_t>(i));
  const HiddenStates states(numbered, kWidth, "");
  EXPECT_EQ(&states.stream(), &numbered);
  EXPECT_EQ(HiddenStates::bytes(numbered, kWidth),
            numbered.places() * kWidth * 4);
  const TokenStream::Step &step = numbered.steps[1];
  ASSERT_EQ(states.rows(step).size(), static_cast<size_t>(step.count));
  EXPECT_EQ(states.rows(step).front(), step.begin);
  ASSERT_EQ(states.counted(step).size(), static_cast<size_t>(step.count));
  EXPECT_EQ(states.counted(step)[0], 0);
  EXPECT_EQ(states.counted(step)[1], 1);
}

TEST(HiddenStates, OfNoPlaces) {
  const TemporaryFolder folder;
  const TokenStream none;
  HiddenStates states(none, kWidth, folder.path());
  states.copyFrom(HiddenStates(none, kWidth, ""));
  EXPECT_TRUE(states.stream().steps.empty());
}

TEST(HiddenStatesErrors, NoPlaceForTheFile) {
  const TemporaryFolder folder;
  const std::string missing = folder / "missing";
  EXPECT_ERROR(HiddenStates(stream(), kWidth, missing),
               missing + ": cannot make a file for hidden states there",
               "No such file", "choose another place", "--memory");
}

TEST(HiddenStatesErrors, NoRoom) {
  const TemporaryFolder folder;
  {
    const FileLimit limit(4096);
    EXPECT_ERROR(HiddenStates(stream(), kWidth, folder.path()),
                 folder.path().string() + ": cannot take 118 KB for hidden "
                                          "states there",
                 "free some space", "give more --memory");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SpillFile, HoldsWhatIsWritten) {
  const TemporaryFolder folder;
  std::vector<float> values(3000);
  std::iota(values.begin(), values.end(), 0.0f);
  const SpillFile file(folder.path(), 3000 * 4, "rows");
  file.write(values);
  for (int times = 0; times < 2; ++times) {
    EXPECT_TRUE(sameBits(std::span<const float>(file.data(), 3000), values));
    file.leave(0, 3000);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  values.push_back(0);
  EXPECT_ERROR(file.write(values), "12004 bytes for a file of 12000");
  EXPECT_ERROR(SpillFile(folder / "missing", 1, "rows"),
               "cannot make a file for rows there");
}

} // namespace
