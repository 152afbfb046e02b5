//===- NormalEquationsTest.cpp - The refit of W_down ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/NormalEquations.h"
#include "TestSupport.h"
#include "stem/Support/Error.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <bit>

using namespace stem;
using namespace stem::test;

namespace {

/// The update from `piece` positions at a time on `threads` threads.
std::vector<float> updateOf(int64_t ffn, int64_t hidden,
                            const std::vector<float> &z,
                            const std::vector<float> &target, int64_t piece,
                            int threads, double ridge,
                            stem_dtype products = STEM_F32) {
  ContextPtr context = createContext(threads);
  NormalEquations equations(context.get(), ffn, hidden, "layer 3", products);
  inPieces(int64_t(z.size()) / ffn, piece, [&](int64_t first, int64_t count) {
    equations.add(z.data() + first * ffn, target.data() + first * hidden,
                  count);
  });
  std::vector<float> update(ffn * hidden);
  equations.solve(ridge, update.data());
  return update;
}

Eigen::MatrixXd reference(const Eigen::MatrixXd &z,
                          const Eigen::MatrixXd &target, double ridge) {
  Eigen::MatrixXd a = z.transpose() * z;
  double mean = a.diagonal().mean();
  a.diagonal().array() += ridge * mean;
  return a.ldlt().solve(z.transpose() * target).transpose();
}

class NormalEquationsTest
    : public testing::TestWithParam<std::pair<int64_t, int64_t>> {};

/// The last has two tiles of rows, and panels that lie below the diagonal.
INSTANTIATE_TEST_SUITE_P(Sizes, NormalEquationsTest,
                         testing::Values(std::pair(48, 24), std::pair(130, 70),
                                         std::pair(1, 1), std::pair(450, 65)));

TEST_P(NormalEquationsTest, SolvesTheRidgeRegression) {
  auto [ffn, hidden] = GetParam();
  std::vector<float> z = randomFloats(2000 * ffn, 1);
  std::vector<float> target = randomFloats(2000 * hidden, 2);
  for (double ridge : {1e-2, 1.0}) {
    std::vector<float> update = updateOf(ffn, hidden, z, target, 300, 2, ridge);
    EXPECT_LT(relativeError(
                  matrixOf(update, ffn),
                  reference(matrixOf(z, ffn), matrixOf(target, hidden), ridge)),
              1e-5);
  }
}

TEST(NormalEquations, SameBitsForPiecesAndThreads) {
  constexpr int64_t ffn = 130, hidden = 70;
  std::vector<float> z = randomFloats(2000 * ffn, 1);
  std::vector<float> target = randomFloats(2000 * hidden, 2);
  std::vector<float> wanted = updateOf(ffn, hidden, z, target, 2000, 1, 1e-2);
  for (int64_t piece : pieceSizes)
    for (int threads : threadCounts)
      EXPECT_EQ(updateOf(ffn, hidden, z, target, piece, threads, 1e-2), wanted)
          << piece << " positions a piece, " << threads << " threads";
}

/// To bf16, ties to even.
float rounded(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0x7fff + ((bits >> 16) & 1);
  return std::bit_cast<float>(bits & 0xffff0000);
}

// A product of two bf16 is exact in f32: what is left is the order of sums.
TEST_P(NormalEquationsTest, InBf16RoundsItsInputsAlone) {
  auto [ffn, hidden] = GetParam();
  std::vector<float> z = randomFloats(2001 * ffn, 1);
  std::vector<float> target = randomFloats(2001 * hidden, 2);
  std::vector<float> update =
      updateOf(ffn, hidden, z, target, 301, 2, 1e-2, STEM_BF16);
  for (std::vector<float> *values : {&z, &target})
    std::transform(values->begin(), values->end(), values->begin(), rounded);
  EXPECT_LT(relativeError(
                matrixOf(update, ffn),
                reference(matrixOf(z, ffn), matrixOf(target, hidden), 1e-2)),
            1e-5);
}

TEST(NormalEquations, InBf16SameBitsForPiecesAndThreads) {
  constexpr int64_t ffn = 130, hidden = 70;
  std::vector<float> z = randomFloats(2000 * ffn, 1);
  std::vector<float> target = randomFloats(2000 * hidden, 2);
  std::vector<float> wanted =
      updateOf(ffn, hidden, z, target, 2000, 1, 1e-2, STEM_BF16);
  for (int64_t piece : pieceSizes)
    for (int threads : threadCounts)
      EXPECT_EQ(
          updateOf(ffn, hidden, z, target, piece, threads, 1e-2, STEM_BF16),
          wanted)
          << piece << " positions a piece, " << threads << " threads";
}

TEST(NormalEquations, InBf16ANotANumberIsFound) {
  std::vector<float> z = randomFloats(64 * 8, 1);
  z[100] = std::bit_cast<float>(0x7fffffffU); // rounding must not make it 0
  ContextPtr context = createContext(1);
  NormalEquations equations(context.get(), 8, 8, "layer 3", STEM_BF16);
  equations.add(z.data(), randomFloats(64 * 8, 2).data(), 64);
  std::vector<float> update(64);
  EXPECT_THROW(equations.solve(1e-2, update.data()), Error);
}

TEST(NormalEquations, SeveralRidgesFromOneSum) {
  constexpr int64_t ffn = 48, hidden = 24;
  std::vector<float> z = randomFloats(600 * ffn, 1);
  std::vector<float> target = randomFloats(600 * hidden, 2);
  ContextPtr context = createContext(2);
  NormalEquations equations(context.get(), ffn, hidden, "layer 3");
  equations.add(z.data(), target.data(), 600);
  EXPECT_EQ(equations.positions(), 600);
  for (double ridge : {0.0, 1.0, 1e-2, 0.0}) {
    std::vector<float> update(ffn * hidden);
    equations.solve(ridge, update.data());
    EXPECT_EQ(update, updateOf(ffn, hidden, z, target, 600, 2, ridge));
  }
}

TEST(NormalEquations, ErrorChange) {
  constexpr int64_t ffn = 130, hidden = 70, positions = 700;
  std::vector<float> z = randomFloats(positions * ffn, 1);
  std::vector<float> target = randomFloats(positions * hidden, 2);
  std::vector<float> other = randomFloats(hidden * ffn, 3, 0.1f);
  ContextPtr context = createContext(2);
  NormalEquations equations(context.get(), ffn, hidden, "layer 3");
  equations.add(z.data(), target.data(), positions);
  auto wanted = [&](const std::vector<float> &update) {
    Eigen::MatrixXd t = matrixOf(target, hidden);
    Eigen::MatrixXd left =
        t - matrixOf(z, ffn) * matrixOf(update, ffn).transpose();
    return left.squaredNorm() - t.squaredNorm();
  };
  EXPECT_NEAR(equations.errorChange(other.data()) / wanted(other), 1, 1e-5);
  // After a solution too, whose factor lies in the same memory.
  std::vector<float> update(hidden * ffn);
  equations.solve(1e-2, update.data());
  double change = equations.errorChange(update.data());
  EXPECT_NEAR(change / wanted(update), 1, 1e-5);
  EXPECT_LT(change, 0);
}

TEST(NormalEquations, Singular) {
  ContextPtr context = createContext(1);
  std::vector<float> z(10 * 48), target(10 * 24), update(48 * 24);
  NormalEquations zeros(context.get(), 48, 24, "layer 3");
  zeros.add(z.data(), target.data(), 10);
  update.assign(update.size(), 1);
  zeros.solve(1e-2, update.data());
  EXPECT_EQ(update, std::vector<float>(update.size()))
      << "nothing enters W_down: it stays";

  NormalEquations empty(context.get(), 48, 24, "layer 3");
  expectContains(errorOf([&] { empty.solve(1, update.data()); }),
                 "layer 3: the sum of z zᵀ over 0 positions (48 dimensions, "
                 "mean of the diagonal 0) with a ridge of 1 is not positive "
                 "definite: calibrate on more text");

  // Two positions give rank 2, which a ridge makes definite.
  z[0] = z[49] = 1;
  NormalEquations few(context.get(), 48, 24, "layer 3");
  few.add(z.data(), target.data(), 2);
  expectContains(errorOf([&] { few.solve(0, update.data()); }),
                 "with a ridge of 0 is not positive definite");
  EXPECT_EQ(errorOf([&] { few.solve(1e-2, update.data()); }), "(no error)");
}

TEST(NormalEquations, NotFinite) {
  ContextPtr context = createContext(1);
  for (float bad : {notANumber, 1e30f}) {
    std::vector<float> z = randomFloats(10 * 48, 1), target(10 * 24),
                       update(48 * 24);
    z[5 * 48 + 17] = bad;
    NormalEquations equations(context.get(), 48, 24, "layer 3");
    equations.add(z.data(), target.data(), 10);
    std::string message =
        errorOf([&] { equations.solve(1e-2, update.data()); });
    expectContains(message,
                   "layer 3: the sums of z zᵀ and z targetᵀ hold NaN or "
                   "infinity (row");
    expectContains(message, "17)");
    expectContains(message, "leave this layer dense");
  }
}

TEST(NormalEquations, WrongUse) {
  ContextPtr context = createContext(1);
  NormalEquations equations(context.get(), 48, 24, "layer 3");
  std::vector<float> z = randomFloats(100 * 48, 1), target(100 * 24),
                     update(48 * 24);
  expectContains(errorOf([&] { equations.add(z.data(), nullptr, 1); }),
                 "1 positions to sum, a matrix missing");
  expectContains(errorOf([&] { equations.add(z.data(), z.data(), -1); }),
                 "-1 positions to sum");
  for (double ridge : {-1.0, double(notANumber), HUGE_VAL})
    expectContains(errorOf([&] { equations.solve(ridge, update.data()); }),
                   "wanted 0 or more");
  equations.add(z.data(), target.data(), 100);
  equations.solve(1e-2, update.data());
  expectContains(errorOf([&] { equations.add(z.data(), target.data(), 1); }),
                 "add all of them before the first solution");
}

TEST(NormalEquations, Bytes) {
  // Both totals in f64, the waiting blocks beside them.
  int64_t totals = (1536 * 1536 + 1536 * 576) * 8;
  int64_t bytes = NormalEquations::bytes(1536, 576);
  EXPECT_GT(bytes, totals);
  EXPECT_LT(bytes, totals + 1024 * (2 * 1536 + 576) * 5);
  // Another 64 right-hand sides for another thread.
  EXPECT_EQ(NormalEquations::solveBytes(1536, 3) -
                NormalEquations::solveBytes(1536, 2),
            1536 * 64 * 8);
  expectContains(errorOf([] { NormalEquations::bytes(int64_t(1) << 31, 1); }),
                 "does not fit 62 bits");
  expectContains(errorOf([] { NormalEquations::bytes(0, 1); }),
                 "a size is 0, wanted at least 1");
  ContextPtr context = createContext(1);
  expectContains(errorOf([&] {
                   NormalEquations(context.get(), int64_t(1) << 31, 1, "x");
                 }),
                 "does not fit 62 bits");
}

} // namespace
