//===- SamplerTest.cpp - Choosing tokens ---------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Sampler.h"
#include "TestSupport.h"
#include "stem/Runtime/Philox.h"

#include <algorithm>
#include <cmath>

using namespace stem;
using namespace stem::test;

namespace {

SamplerOptions sampling(double temperature = 1) {
  SamplerOptions options;
  options.temperature = temperature;
  options.seed = 42;
  return options;
}

/// How often each id comes in `draws` draws.
std::vector<int> counts(const SamplerOptions &options,
                        const std::vector<float> &logits, int draws,
                        const std::vector<int32_t> &seen = {}) {
  Sampler sampler(options);
  std::vector<int> result(logits.size());
  for (int i = 0; i < draws; ++i)
    ++result[sampler.sample(logits, seen)];
  return result;
}

/// The statistic of Pearson's test against probabilities that are not zero.
double chiSquare(const std::vector<int> &seen,
                 const std::vector<double> &probabilities, int draws) {
  double sum = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    double wanted = probabilities[i] * draws;
    sum += (seen[i] - wanted) * (seen[i] - wanted) / wanted;
  }
  return sum;
}

// The known answers that come with the generator's definition.
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f, f, f}, {f, f}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, UniformInItsInterval) {
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    double value = philoxUniform(1, 2, i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
  EXPECT_NE(philoxUniform(1, 2, 3), philoxUniform(1, 3, 3));
  EXPECT_NE(philoxUniform(1, 2, 3), philoxUniform(2, 2, 3));
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 3, -INFINITY}, {}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-5}, {}), 0);
}

TEST(Sampler, RepetitionPenaltyDividesAndMultiplies) {
  SamplerOptions options;
  options.repetitionPenalty = 2;
  Sampler sampler(options);
  // 4 / 2 < 3; seen twice is penalised once: 4 / 4 would lose to 1.5.
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3}, std::vector{0}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 1.5f}, std::vector{0, 0}), 0);
  // -1 * 2 < -1.5.
  EXPECT_EQ(sampler.sample(std::vector<float>{-1, -1.5f}, std::vector{0}), 1);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  std::vector<float> logits = {0, 1, 2, -1};
  for (double temperature : {0.5, 1.0, 2.0}) {
    std::vector<double> probabilities;
    double total = 0;
    for (float logit : logits)
      total += std::exp(logit / temperature);
    for (float logit : logits)
      probabilities.push_back(std::exp(logit / temperature) / total);
    // Three degrees of freedom: 16.3 has a chance of 0.001.
    EXPECT_LT(chiSquare(counts(sampling(temperature), logits, 20000),
                        probabilities, 20000),
              16.3);
  }
}

TEST(Sampler, TopKKeepsTheLargestAndTheirEquals) {
  SamplerOptions options = sampling();
  options.topK = 2;
  std::vector<int> seen = counts(options, {0, 5, 4, 4, 3}, 3000);
  EXPECT_EQ(seen[0], 0);
  EXPECT_GT(seen[1], 0);
  EXPECT_GT(seen[2], 0);
  EXPECT_GT(seen[3], 0);
  EXPECT_EQ(seen[4], 0);
  options.topK = 1;
  EXPECT_EQ(counts(options, {0, 5, 4}, 100)[1], 100);
  options.topK = 50;
  EXPECT_GT(counts(options, {0, 0, 0}, 100)[2], 0);
}

/// Sums are by blocks of ids: a draw is what all of them in order say.
TEST(Sampler, DrawsAmongManyIdsInTheirOrder) {
  std::vector<float> logits;
  for (int i = 0; i < 1800; ++i)
    logits.push_back(static_cast<float>(i * 7919 % 1800) / 300);
  for (int i = 600; i < 1100; ++i)
    logits[i] = -INFINITY;
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits)
    total += std::exp(logit - largest);
  Sampler sampler(sampling());
  for (uint64_t draw = 0; draw < 500; ++draw) {
    double wanted = philoxUniform(sampling().seed, 0, draw) * total;
    int32_t expected = -1;
    for (double sum = 0; sum <= wanted;)
      sum += std::exp(logits[++expected] - largest);
    ASSERT_EQ(sampler.sample(logits, {}), expected) << "draw " << draw;
  }
}

/// Candidates stand by logit, then by id, whatever the library's partial sort
/// does: what is drawn is what that order says.
TEST(Sampler, TopKDrawsInOrderOfLogitAndId) {
  std::vector<float> logits;
  for (int i = 0; i < 300; ++i)
    logits.push_back(static_cast<float>(i * 7919 % 300 / 3)); // three of each
  std::vector<std::pair<double, int32_t>> order;
  for (int32_t id = 0; id < 300; ++id)
    order.emplace_back(-logits[id], id);
  std::sort(order.begin(), order.end());
  order.resize(102); // the 100th and its equals
  SamplerOptions options = sampling(30);
  options.topK = 100;
  Sampler sampler(options);
  double total = 0;
  for (const auto &[negative, id] : order)
    total += std::exp((-negative + order[0].first) / 30);
  for (uint64_t draw = 0; draw < 200; ++draw) {
    double wanted = philoxUniform(options.seed, 0, draw) * total, sum = 0;
    int32_t expected = -1;
    for (size_t i = 0; i < order.size() && (i == 0 || sum <= wanted); ++i) {
      expected = order[i].second;
      sum += std::exp((-order[i].first + order[0].first) / 30);
    }
    ASSERT_EQ(sampler.sample(logits, {}), expected) << "draw " << draw;
  }
}

TEST(Sampler, TopPKeepsTheLikeliestUntilTheirSumReachesIt) {
  // Probabilities 0.1, 0.5, 0.3, 0.1.
  std::vector<float> logits;
  for (double p : {0.1, 0.5, 0.3, 0.1})
    logits.push_back(float(std::log(p)));
  SamplerOptions options = sampling();
  options.topP = 0.75;
  std::vector<int> seen = counts(options, logits, 8000);
  EXPECT_EQ(seen[0] + seen[3], 0);
  EXPECT_NEAR(seen[1] / 8000.0, 0.5 / 0.8, 0.02);
  options.topP = 0.4;
  EXPECT_EQ(counts(options, logits, 100)[1], 100);
  options.topP = 1e-9;
  EXPECT_EQ(counts(options, logits, 100)[1], 100);
  // After top-k: of 0.5 and 0.3 the first holds 0.625 of what is left.
  options.topK = 2;
  options.topP = 0.6;
  EXPECT_EQ(counts(options, logits, 100)[1], 100);
}

TEST(Sampler, TheSeedAndTheStreamDecide) {
  std::vector<float> logits(50, 0.0f);
  auto draws = [&](uint64_t seed, uint64_t stream) {
    SamplerOptions options = sampling();
    options.seed = seed;
    options.stream = stream;
    Sampler sampler(options);
    std::vector<int32_t> ids;
    for (int i = 0; i < 20; ++i)
      ids.push_back(sampler.sample(logits, {}));
    return ids;
  };
  EXPECT_EQ(draws(1, 0), draws(1, 0));
  EXPECT_NE(draws(1, 0), draws(2, 0));
  EXPECT_NE(draws(1, 0), draws(1, 1));
}

TEST(Sampler, NeverTakesWhatHasNoProbability) {
  std::vector<int> seen = counts(sampling(), {-INFINITY, 0, -INFINITY}, 200);
  EXPECT_EQ(seen[1], 200);
  // Far apart at a low temperature: the others vanish.
  EXPECT_EQ(counts(sampling(1e-3), {0, 50, 0}, 200)[1], 200);
}

TEST(Sampler, RefusesLogitsThatAreNone) {
  Sampler sampler({});
  auto error = [&](const std::vector<float> &logits) {
    return errorOf([&] { sampler.sample(logits, {}); });
  };
  expectContains(error({0, NAN}), "the logit of id 1 is nan");
  expectContains(error({INFINITY, 0}), "the logit of id 0 is inf");
  expectContains(error({-INFINITY, -INFINITY}),
                 "all 2 logits are minus infinity");
  expectContains(error({}), "there are no logits to choose from");
  SamplerOptions options;
  options.repetitionPenalty = 1.1;
  Sampler penalising(options);
  expectContains(errorOf([&] {
                   penalising.sample(std::vector<float>{1, 2}, std::vector{2});
                 }),
                 "the repetition penalty covers id 2 but there are 2 logits");
}

TEST(Sampler, RefusesUnusableOptions) {
  auto error = [](auto member, auto value) {
    SamplerOptions options;
    options.*member = value;
    return errorOf([&] { Sampler sampler(options); });
  };
  expectContains(error(&SamplerOptions::temperature, -1.0),
                 "temperature is -1 but must be 0 (greedy) or positive");
  expectContains(error(&SamplerOptions::temperature, NAN),
                 "temperature is nan");
  expectContains(error(&SamplerOptions::topK, int64_t(-1)), "top-k is -1");
  expectContains(error(&SamplerOptions::topP, 0.0),
                 "top-p is 0 but must lie in (0, 1]");
  expectContains(error(&SamplerOptions::topP, 1.5), "top-p is 1.5");
  expectContains(error(&SamplerOptions::repetitionPenalty, 0.0),
                 "repetition penalty is 0 but must be positive");
}

} // namespace
