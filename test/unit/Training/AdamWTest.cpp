//===- AdamWTest.cpp - AdamW on dense parameters --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/AdamW.h"
#include "TestSupport.h"

#include <numeric>

using namespace stem;
using namespace stem::test;

namespace {

// More than two tasks, and a tail that fills no vector.
constexpr int64_t size = 2 * 16384 + 37;
constexpr AdamWOptions options = {};

std::vector<float> gradientOf(int step) {
  return randomFloats(size, 100 + step, 1e-3f);
}

/// What ten steps leave, with a learning rate that changes.
struct TenSteps {
  explicit TenSteps(int threads)
      : context(createContext(threads)), weights(randomFloats(size, 1, 0.02f)),
        optimizer(context.get(), "a", weights, options) {
    for (int step = 1; step <= 10; ++step)
      optimizer.update(gradientOf(step), 1e-3 / step, 0.5);
  }

  ContextPtr context;
  std::vector<float> weights;
  AdamW optimizer;
};

TEST(AdamW, FollowsTheFormula) {
  TenSteps run(2);
  std::vector<float> start = randomFloats(size, 1, 0.02f);
  PlainRows plain(RowMode::Exact, options, {start.begin(), start.end()}, size);
  for (int step = 1; step <= 10; ++step)
    plain.update({0}, gradientOf(step), 1e-3 / step, 0.5);
  EXPECT_LT(largestDifference(run.weights, plain.w), 1e-6 * largest(plain.w));
  for (const TensorView &tensor : run.optimizer.state())
    for (auto &[name, wanted] : {std::pair("a.m", &plain.m), {"a.v", &plain.v}})
      if (tensor.name == name) {
        std::vector<float> seen(size);
        std::memcpy(seen.data(), tensor.data.data(), tensor.data.size());
        EXPECT_LT(largestDifference(seen, *wanted), 1e-6 * largest(*wanted))
            << name;
      }
}

TEST(AdamW, SecondMomentsStayTrueForBetasNearOne) {
  ContextPtr context = createContext(1);
  std::vector<float> weights(3, 1), gradient = {1, -1e-4f, 0};
  AdamWOptions slow = {.beta1 = 0.9, .beta2 = 0.999};
  AdamW optimizer(context.get(), "a", weights, slow);
  PlainRows plain(RowMode::Exact, slow, {1, 1, 1}, 3);
  for (int step = 0; step < 3000; ++step) {
    optimizer.update(gradient, 1e-4);
    plain.update({0}, gradient, 1e-4);
  }
  // 3000 roundings of weights near 1.
  EXPECT_LT(largestDifference(weights, plain.w), 1e-5);
  std::vector<float> v(3);
  std::memcpy(v.data(), optimizer.state()[2].data.data(), 12);
  EXPECT_NEAR(v[0] / plain.v[0], 1, 2e-6);
  EXPECT_NEAR(v[1] / plain.v[1], 1, 2e-6);
}

TEST(AdamW, SameBitsForThreads) {
  TenSteps one(1), two(2), three(3);
  EXPECT_EQ(one.weights, two.weights);
  EXPECT_EQ(one.weights, three.weights);
  EXPECT_EQ(SavedState(one.optimizer.state()),
            SavedState(two.optimizer.state()));
}

TEST(AdamW, DecayOfMatricesOnly) {
  EXPECT_EQ(decayOfRank(0.1, 2), 0.1);
  EXPECT_EQ(decayOfRank(0.1, 3), 0.1);
  EXPECT_EQ(decayOfRank(0.1, 1), 0);
  EXPECT_EQ(decayOfRank(0.1, 0), 0);
}

TEST(AdamW, MomentsWithoutGradientsReachZero) {
  ContextPtr context = createContext(1);
  std::vector<float> weights(9, 1), gradient(9, 1e-3f), none(9);
  AdamW optimizer(context.get(), "a", weights, options);
  optimizer.update(gradient, 1e-3);
  for (int step = 0; step < 3000; ++step)
    optimizer.update(none, 1e-3);
  SavedState state(optimizer.state());
  for (const char *name : {"a.m", "a.v"})
    EXPECT_EQ(std::ranges::count(state.get(name).data, std::byte(0)), 36)
        << name;
}

TEST(AdamW, RestoredRunHasTheSameBits) {
  TenSteps whole(2);
  ContextPtr context = createContext(2);
  std::vector<float> weights = randomFloats(size, 1, 0.02f);
  AdamW first(context.get(), "a", weights, options);
  for (int step = 1; step <= 5; ++step)
    first.update(gradientOf(step), 1e-3 / step, 0.5);
  SavedState saved(first.state());
  std::vector<float> other(size);
  AdamW second(context.get(), "a", other, options);
  second.restore(saved.tensors);
  EXPECT_EQ(second.steps(), 5);
  for (int step = 6; step <= 10; ++step)
    second.update(gradientOf(step), 1e-3 / step, 0.5);
  EXPECT_EQ(SavedState(second.state()), SavedState(whole.optimizer.state()));
}

TEST(AdamW, NoElements) {
  ContextPtr context = createContext(2);
  AdamW optimizer(context.get(), "a", {}, options);
  optimizer.update({}, 1e-3);
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(AdamW, Messages) {
  ContextPtr context = createContext(1);
  std::vector<float> weights(4, 1), gradient(4, 1);
  auto make = [&](const AdamWOptions &options) {
    return errorOf(
        [&] { AdamW optimizer(context.get(), "a", weights, options); });
  };
  expectContains(make({.beta1 = 1}), "a: beta1 is 1: wanted 0 or more, less");
  expectContains(make({.beta2 = -0.1}), "a: beta2 is -0.1: wanted 0 or more");
  expectContains(make({.epsilon = 0}), "a: epsilon is 0: wanted 1e-12 to 1");
  expectContains(make({.decay = -1}), "a: the weight decay is -1: wanted 0");

  AdamW optimizer(context.get(), "a", weights, options);
  SavedState before(optimizer.state());
  auto update = [&](double lr, double scale) {
    return errorOf([&] { optimizer.update(gradient, lr, scale); });
  };
  expectContains(update(-1, 1), "a: the learning rate of step 1 is -1: wanted");
  expectContains(update(std::nan(""), 1), "the learning rate of step 1 is nan");
  expectContains(update(10, 1), "a: step 1 would take 1 times the weights off "
                                "them (learning rate 10, decay 0.1): wanted "
                                "less than 1");
  expectContains(update(1, -2), "a: the gradient of step 1 is scaled by -2");
  gradient.pop_back();
  expectContains(update(1, 1), "a: a gradient of 3 elements for 4 weights");
  EXPECT_EQ(SavedState(optimizer.state()), before);
}

TEST(AdamW, RestoreMessages) {
  ContextPtr context = createContext(1);
  std::vector<float> weights(4, 1), gradient(4, 1);
  AdamW optimizer(context.get(), "a", weights, options);
  optimizer.update(gradient, 1e-3);
  SavedState before(optimizer.state());
  auto restore = [&](auto change) {
    SavedState state(optimizer.state());
    change(state);
    std::string message = errorOf([&] { optimizer.restore(state.tensors); });
    EXPECT_EQ(SavedState(optimizer.state()), before);
    return message;
  };
  expectContains(
      restore([](SavedState &state) { state.get("a.v").name = "b.v"; }),
      "the optimizer's state has no tensor a.v: wanted F32 [4]");
  expectContains(
      restore([](SavedState &state) { state.get("a.m").shape = {2, 2}; }),
      "the optimizer's state holds a.m as F32 [2, 2]: wanted F32 [4]");
  expectContains(restore([](SavedState &state) {
                   int64_t bad = -1;
                   TensorView &steps = state.get("a.steps");
                   std::memcpy(const_cast<std::byte *>(steps.data.data()), &bad,
                               sizeof(bad));
                 }),
                 "says in a.steps that -1 steps were taken");
}

} // namespace
