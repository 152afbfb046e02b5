//===- LowRankFitTest.cpp - The low-rank term beside the rows -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/LowRankFit.h"
#include "TestSupport.h"
#include "stem/Calibration/LowRankTerm.h"

#include <Eigen/Eigenvalues>
#include <Eigen/SVD>

using namespace stem;
using namespace stem::test;

namespace {

struct Problem {
  int64_t ffn, hidden;
  Layer layer;
  std::vector<float> norms;

  Problem(int64_t ffn, int64_t hidden)
      : ffn(ffn), hidden(hidden), layer(ffn, hidden),
        norms(randomFloats(ffn, 9)) {
    for (float &norm : norms)
      norm = 0.5f + std::fabs(norm);
  }

  /// The layer's u stands for the residual.
  LowRankFit fit(stem_context *context, int64_t piece) const {
    LowRankFit fit(context, ffn, hidden, "layer 3");
    inPieces(Layer::positions, piece, [&](int64_t first, int64_t count) {
      fit.add(layer.up.data() + first * ffn, layer.h.data() + first * hidden,
              layer.gate.data() + first * ffn, count);
    });
    return fit;
  }
};

struct Factors {
  std::vector<float> a, b;
  bool operator==(const Factors &) const = default;
};

Factors factorsOf(const LowRankFit &fit, const Problem &problem, int64_t rank) {
  Factors factors = {std::vector<float>(problem.ffn * rank),
                     std::vector<float>(rank * problem.hidden)};
  fit.factors(rank, factors.a.data(), factors.b.data());
  return factors;
}

Eigen::MatrixXd productOf(const Factors &factors, int64_t rank,
                          int64_t hidden) {
  return matrixOf(factors.a, rank) * matrixOf(factors.b, hidden);
}

/// The formula of LowRankFit.h with symmetric square roots and a dense SVD.
struct Reference {
  Eigen::VectorXd w, values;
  Eigen::MatrixXd c, e, root, inverseRoot; ///< of c: the roots
  Eigen::MatrixXd u, v;

  Reference(const Problem &problem, double strength) {
    Eigen::MatrixXd h = matrixOf(problem.layer.h, problem.hidden);
    Eigen::MatrixXd r = matrixOf(problem.layer.up, problem.ffn);
    Eigen::MatrixXd gate = matrixOf(problem.layer.gate, problem.ffn);
    c = h.transpose() * h;
    double mean = c.diagonal().mean();
    c.diagonal().array() += strength * mean;
    e = r.transpose() * h;
    w = gate.cwiseAbs2().colwise().mean().transpose().cwiseProduct(
        matrixOf(problem.norms, 1).cwiseAbs2());
    Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(c);
    root = solver.operatorSqrt();
    inverseRoot = solver.operatorInverseSqrt();
    Eigen::JacobiSVD<Eigen::MatrixXd> svd(
        w.cwiseSqrt().asDiagonal() * e * inverseRoot,
        Eigen::ComputeThinU | Eigen::ComputeThinV);
    values = svd.singularValues();
    u = svd.matrixU();
    v = svd.matrixV();
  }

  /// W^(1/2) M for the best M of a rank.
  Eigen::MatrixXd weightedMap(int64_t rank) const {
    return u.leftCols(rank) * values.head(rank).asDiagonal() *
           v.leftCols(rank).transpose() * inverseRoot;
  }

  /// Σ w (r - M h)² less what no M changes, with the ridge.
  double tail(const Eigen::MatrixXd &map) const {
    return (w.cwiseSqrt().asDiagonal() * (e * inverseRoot - map * root))
        .squaredNorm();
  }
};

class LowRankFitTest
    : public testing::TestWithParam<std::pair<int64_t, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, LowRankFitTest,
                         testing::Values(std::pair(48, 24),
                                         std::pair(130, 70)));

TEST_P(LowRankFitTest, IsTheTruncatedSvd) {
  auto [ffn, hidden] = GetParam();
  Problem problem(ffn, hidden);
  ContextPtr context = createContext(2);
  LowRankFit fit = problem.fit(context.get(), 300);
  for (double strength : {1e-3, 1.0}) {
    fit.solve(problem.norms, strength);
    Reference wanted(problem, strength);
    ASSERT_EQ(int64_t(fit.gains().size()), hidden);
    for (int64_t i = 0; i < hidden; ++i)
      EXPECT_NEAR(fit.gains()[i], wanted.values[i] * wanted.values[i],
                  1e-5 * wanted.values[0] * wanted.values[0]);
    for (int64_t rank : {int64_t(1), int64_t(7), hidden}) {
      Eigen::MatrixXd map =
          productOf(factorsOf(fit, problem, rank), rank, hidden);
      Eigen::MatrixXd weighted = wanted.w.cwiseSqrt().asDiagonal() * map;
      EXPECT_LT(relativeError(weighted, wanted.weightedMap(rank)), 2e-3)
          << "rank " << rank;
      // No map of this rank leaves less than the singular values beyond it.
      double least = wanted.values.tail(hidden - rank).squaredNorm();
      EXPECT_NEAR(wanted.tail(map), least, 1e-6 * wanted.values.squaredNorm())
          << "rank " << rank;
    }
  }
}

/// All ranks: the ridge regression from h to r, in every dimension, one whose
/// gate never opened included.
TEST(LowRankFit, FullRankIsTheRegression) {
  Problem problem(48, 24);
  ContextPtr context = createContext(2);
  LowRankFit fit = problem.fit(context.get(), 300);
  fit.solve(problem.norms, 1e-3);
  Reference wanted(problem, 1e-3);
  ASSERT_EQ(wanted.w[5], 0);
  EXPECT_LT(relativeError(productOf(factorsOf(fit, problem, 24), 24, 24),
                          wanted.e * wanted.c.inverse()),
            1e-4);
}

TEST(LowRankFit, LeadingFactorsAreThoseOfASmallerRank) {
  Problem problem(48, 24);
  ContextPtr context = createContext(1);
  LowRankFit fit = problem.fit(context.get(), 300);
  fit.solve(problem.norms);
  Factors large = factorsOf(fit, problem, 16),
          small = factorsOf(fit, problem, 3);
  for (int64_t i = 0; i < 48; ++i)
    for (int64_t r = 0; r < 3; ++r)
      EXPECT_EQ(small.a[i * 3 + r], large.a[i * 16 + r]);
  EXPECT_TRUE(std::equal(small.b.begin(), small.b.end(), large.b.begin()));
  EXPECT_TRUE(std::is_sorted(fit.gains().rbegin(), fit.gains().rend()));
}

TEST(LowRankFit, SameBitsForPiecesAndThreads) {
  Problem problem(130, 70);
  ContextPtr one = createContext(1);
  LowRankFit first = problem.fit(one.get(), Layer::positions);
  first.solve(problem.norms);
  Factors wanted = factorsOf(first, problem, 16);
  for (int threads : threadCounts) {
    ContextPtr context = createContext(threads);
    for (int64_t piece : pieceSizes) {
      LowRankFit fit = problem.fit(context.get(), piece);
      fit.solve(problem.norms);
      EXPECT_EQ(factorsOf(fit, problem, 16), wanted)
          << piece << " positions a piece, " << threads << " threads";
    }
  }
}

TEST(LowRankFit, Messages) {
  Problem problem(48, 24);
  ContextPtr context = createContext(1);
  LowRankFit none(context.get(), 48, 24, "layer 3");
  expectContains(errorOf([&] { none.solve(problem.norms); }),
                 "layer 3: no position for the low-rank fit");
  LowRankFit fit = problem.fit(context.get(), 300);
  std::vector<float> a(48 * 48), b(48 * 24);
  expectContains(errorOf([&] { fit.factors(1, a.data(), b.data()); }),
                 "layer 3: the factors of a low-rank fit are wanted before it "
                 "is solved");
  expectContains(
      errorOf([&] { fit.solve(std::span(problem.norms).first(47)); }),
      "layer 3: 47 norms of W_down's columns, wanted 48");
  expectContains(errorOf([&] { fit.solve(problem.norms, -1); }),
                 "layer 3: the strength of the low-rank fit is -1");
  expectContains(errorOf([&] { fit.add(a.data(), b.data(), nullptr, 1); }),
                 "layer 3: 1 positions of a low-rank fit without their gates");
  fit.solve(problem.norms);
  for (int64_t rank : {0, 25})
    expectContains(errorOf([&] { fit.factors(rank, a.data(), b.data()); }),
                   fmt::format("layer 3: rank {} of a low-rank term: wanted 1 "
                               "to 24, the smaller of d_ff 48 and the hidden "
                               "size 24",
                               rank));
}

TEST(LowRankFit, NotFiniteOrSingular) {
  ContextPtr context = createContext(1);
  std::vector<float> ones(48 * 4, 1), zeros(48 * 4), norms(48, 1);
  auto error = [&](std::vector<float> r, std::vector<float> h,
                   std::vector<float> gate) {
    LowRankFit fit(context.get(), 48, 24, "layer 3");
    fit.add(r.data(), h.data(), gate.data(), 4);
    return errorOf([&] { fit.solve(norms); });
  };
  EXPECT_EQ(error(ones, ones, ones), "(no error)");
  expectContains(error(ones, zeros, ones),
                 "layer 3: the sum of h hᵀ over 4 positions (24 dimensions, "
                 "mean of the diagonal 0) with a strength of 0.001 is not "
                 "positive definite: calibrate on more text, go without a "
                 "low-rank term (neither --mix-rank nor --flops)");
  std::vector<float> bad = ones;
  bad[17] = notANumber;
  expectContains(error(bad, ones, ones),
                 "layer 3: the sums of h hᵀ and h rᵀ hold NaN or infinity");
  expectContains(error(ones, bad, ones),
                 "layer 3: the sums of h hᵀ and h rᵀ hold NaN or infinity");
  expectContains(error(ones, ones, bad),
                 "layer 3: the gate's squares or W_down's column hold NaN or "
                 "infinity (dimension 17)");
}

TEST(LowRankFit, Bytes) {
  EXPECT_GT(LowRankFit::bytes(1536, 576), (576 * 576 + 576 * 1536) * 8);
  EXPECT_GT(LowRankFit::solutionBytes(1536, 576), 576 * 1536 * 8);
  // Both factors as they are and packed, where B has 64 columns of 8.
  EXPECT_EQ(LowRankTerm::bytes(1536, 576, 8),
            (8 * (1536 + 576) + 8 * 1536 + 64 * 576) * 4);
  expectContains(errorOf([] { LowRankFit::bytes(0, 576); }), "a size is 0");
  expectContains(
      errorOf([] { LowRankFit::solutionBytes(int64_t(1) << 40, 1 << 24); }),
      "does not fit 62 bits");
}

} // namespace
