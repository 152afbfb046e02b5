//===- RowFitTest.cpp - Rows of a table fitted to statistics --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/RowFit.h"
#include "TestSupport.h"

#include <Eigen/Cholesky>
#include <numeric>

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t ffn = 130, hidden = 24, ids = Layer::ids,
                  positions = Layer::positions;

const Layer &layer() {
  static const Layer layer(ffn, hidden);
  return layer;
}

void readFeatures(int64_t first, int64_t count, float *out) {
  std::copy_n(layer().features.begin() + first * hidden, count * hidden, out);
}

RowStatistics statisticsOf(stem_context *context, int64_t piece = 300) {
  RowStatistics statistics(context, ids, ffn, "layer 3");
  inPieces(positions, piece, [&](int64_t first, int64_t count) {
    statistics.add(layer().indexOf(first, count),
                   layer().gate.data() + first * ffn,
                   layer().up.data() + first * ffn);
  });
  return statistics;
}

RowFit fitOf(stem_context *context, double ridge = 1e-2) {
  return RowFit::perId(statisticsOf(context), hidden, readFeatures, ridge);
}

RowPositions allPositions() {
  return {layer().index, layer().gate.data(), layer().up.data()};
}

/// The formulas of RowFit.h in f64.
struct Reference {
  Eigen::VectorXd n = Eigen::VectorXd::Zero(ids);
  Eigen::MatrixXd g = Eigen::MatrixXd::Zero(ids, ffn), h = g, s = g, p;
  Eigen::RowVectorXd meanSquares, slope, offset;
  Eigen::MatrixXd weights; ///< hidden + 1 x ffn
  Eigen::MatrixXd gate = matrixOf(layer().gate, ffn);
  Eigen::MatrixXd up = matrixOf(layer().up, ffn);

  explicit Reference(double ridge = 1e-2) {
    for (int64_t i = 0; i < positions; ++i) {
      int32_t id = layer().index[i];
      auto square = gate.row(i).cwiseAbs2();
      n[id] += 1;
      g.row(id) += square;
      h.row(id) += square.cwiseProduct(up.row(i));
      s.row(id) += up.row(i);
    }
    meanSquares = g.colwise().sum() / n.sum();
    Eigen::MatrixXd x = withConstant(matrixOf(layer().features, hidden));
    Eigen::MatrixXd a = x.transpose() * n.asDiagonal() * x;
    double mean = a.diagonal().mean();
    a.diagonal().array() += ridge * mean;
    weights = a.ldlt().solve(x.transpose() * s);
    Eigen::MatrixXd q = x * weights;
    slope = Eigen::RowVectorXd::Ones(ffn);
    offset = Eigen::RowVectorXd::Zero(ffn);
    for (int64_t c = 0; c < ffn; ++c)
      if (g.col(c).sum() > 0)
        correct(c, q.col(c));
    p = prior(matrixOf(layer().features, hidden));
  }

  /// Weighted least squares about the weighted means.
  void correct(int64_t c, const Eigen::VectorXd &q) {
    double weight = g.col(c).sum();
    double meanQ = g.col(c).dot(q) / weight, meanY = h.col(c).sum() / weight;
    double up = 0, down = 0;
    for (int64_t id = 0; id < ids; ++id) {
      if (g(id, c) == 0)
        continue;
      double y = h(id, c) / g(id, c);
      up += g(id, c) * (q[id] - meanQ) * (y - meanY);
      down += g(id, c) * (q[id] - meanQ) * (q[id] - meanQ);
    }
    slope[c] = std::clamp(up / down, 0.0, 2.0);
    offset[c] = meanY - slope[c] * meanQ;
  }

  static Eigen::MatrixXd withConstant(const Eigen::MatrixXd &features) {
    Eigen::MatrixXd x(features.rows(), hidden + 1);
    x << features, Eigen::VectorXd::Ones(features.rows());
    return x;
  }

  Eigen::MatrixXd prior(const Eigen::MatrixXd &features) const {
    Eigen::MatrixXd q = withConstant(features) * weights;
    return (q * slope.asDiagonal()).rowwise() + offset;
  }

  /// U of a row less `times` times position i.
  Eigen::RowVectorXd row(int32_t id, double k, int64_t i = 0,
                         double times = 0) const {
    Eigen::ArrayXd own = times * gate.row(i).cwiseAbs2().transpose().array();
    Eigen::ArrayXd left = g.row(id).transpose().array() - own;
    Eigen::ArrayXd sum =
        h.row(id).transpose().array() - own * up.row(i).transpose().array();
    Eigen::ArrayXd prior = k * meanSquares.transpose().array();
    Eigen::ArrayXd mean = p.row(id).transpose().array();
    Eigen::ArrayXd weight = left + prior;
    return (weight > 0)
        .select((sum + prior * mean) / weight, mean)
        .matrix()
        .transpose();
  }

  Eigen::MatrixXd rows(double k, bool leavesOut) const {
    Eigen::MatrixXd u(positions, ffn);
    for (int64_t i = 0; i < positions; ++i)
      u.row(i) = row(layer().index[i], k, i, leavesOut);
    return u;
  }
};

const Reference &reference() {
  static const Reference reference;
  return reference;
}

TEST(RowFit, PriorFromTheRegressionAndTheCorrection) {
  ContextPtr context = createContext(2);
  for (double ridge : {1e-2, 10.0}) {
    RowFit fit = fitOf(context.get(), ridge);
    Reference wanted(ridge);
    EXPECT_LT(relativeError(matrixOf(fit.priors(), ids, ffn), wanted.p), 1e-5);
  }
}

TEST(RowFit, PriorOfOtherIds) {
  ContextPtr context = createContext(2);
  RowFit fit = fitOf(context.get());
  std::vector<float> other = randomFloats(100 * hidden, 77);
  std::vector<float> out(100 * ffn);
  fit.prior(other.data(), 100, out.data());
  EXPECT_LT(relativeError(matrixOf(out, ffn),
                          reference().prior(matrixOf(other, hidden))),
            1e-5);
  // The fit's own ids: the bits of its rows, one at a time too.
  std::vector<float> own(ids * ffn);
  for (int64_t id = 0; id < ids; ++id)
    fit.prior(layer().features.data() + id * hidden, 1, own.data() + id * ffn);
  EXPECT_EQ(own, std::vector<float>(fit.priors(), fit.priors() + ids * ffn));
}

// The regression is the same; its inputs and coefficients lose digits.
TEST(RowFit, PriorInBf16) {
  ContextPtr context = createContext(2);
  RowFit fit = RowFit::perId(statisticsOf(context.get()), hidden, readFeatures,
                             1e-2, STEM_BF16);
  const std::vector<float> priors(fit.priors(), fit.priors() + ids * ffn);
  const double error = relativeError(matrixOf(priors, ffn), reference().p);
  EXPECT_GT(error, 1e-5);
  EXPECT_LT(error, 1e-2);
  for (int threads : {1, 3}) {
    ContextPtr other = createContext(threads);
    RowFit same = RowFit::perId(statisticsOf(other.get()), hidden, readFeatures,
                                1e-2, STEM_BF16);
    EXPECT_EQ(std::vector<float>(same.priors(), same.priors() + ids * ffn),
              priors);
  }
  std::vector<float> own(ids * ffn);
  for (int64_t id = 0; id < ids; ++id)
    fit.prior(layer().features.data() + id * hidden, 1, own.data() + id * ffn);
  EXPECT_EQ(own, priors);
}

TEST(RowFit, RowsShrunkToThePrior) {
  ContextPtr context = createContext(2);
  RowFit fit = fitOf(context.get());
  EXPECT_EQ(fit.shrinkage(), 4);
  std::vector<int32_t> index(ids);
  for (int32_t id = 0; id < ids; ++id)
    index[id] = id;
  for (double k : {0.0, 4.0, 16.0}) {
    fit.setShrinkage(k);
    std::vector<float> out(ids * ffn);
    fit.rows(index, out.data());
    Eigen::MatrixXd wanted(ids, ffn);
    for (int32_t id = 0; id < ids; ++id)
      wanted.row(id) = reference().row(id, k);
    EXPECT_LT(relativeError(matrixOf(out, ffn), wanted), 1e-5) << "k " << k;
    // Never seen, and a gate that never opened: the prior itself. With k the
    // weights of the unseen id round.
    for (int64_t c = 0; c < ffn; ++c)
      EXPECT_NEAR(out[Layer::unseen * ffn + c],
                  fit.priors()[Layer::unseen * ffn + c], 1e-5);
    for (int64_t id = 0; id < ids; ++id)
      EXPECT_EQ(out[id * ffn + 5], fit.priors()[id * ffn + 5]);
  }
}

struct Applied {
  std::vector<float> rows, gated, error;
  bool operator==(const Applied &) const = default;
};

Applied applied(const RowFit &fit, const std::vector<uint8_t> &counted,
                int64_t piece) {
  Applied out = {std::vector<float>(positions * ffn),
                 std::vector<float>(positions * ffn),
                 std::vector<float>(positions * ffn)};
  inPieces(positions, piece, [&](int64_t first, int64_t count) {
    RowPositions part = {layer().indexOf(first, count),
                         layer().gate.data() + first * ffn,
                         layer().up.data() + first * ffn};
    if (!counted.empty())
      part.counted = std::span(counted).subspan(first, count);
    fit.apply(part,
              {out.rows.data() + first * ffn, out.gated.data() + first * ffn,
               out.error.data() + first * ffn});
  });
  return out;
}

TEST(RowFit, AppliesRows) {
  ContextPtr context = createContext(2);
  RowFit fit = fitOf(context.get());
  for (bool leavesOut : {false, true}) {
    Applied out =
        applied(fit, std::vector<uint8_t>(leavesOut ? positions : 0, 1), 300);
    Eigen::MatrixXd u = reference().rows(4, leavesOut);
    const Eigen::MatrixXd &gate = reference().gate, &up = reference().up;
    EXPECT_LT(relativeError(matrixOf(out.rows, ffn), u), 1e-5);
    EXPECT_LT(relativeError(matrixOf(out.gated, ffn), gate.cwiseProduct(u)),
              1e-5);
    EXPECT_LT(
        relativeError(matrixOf(out.error, ffn), gate.cwiseProduct(up - u)),
        1e-5);
  }
}

TEST(RowFit, LeavesOutOnlyWhatWasCounted) {
  ContextPtr context = createContext(2);
  RowFit fit = fitOf(context.get());
  std::vector<uint8_t> half(positions);
  for (int64_t i = 0; i < positions; i += 2)
    half[i] = 1;
  Applied mixed = applied(fit, half, 300);
  Applied in = applied(fit, {}, 300);
  Applied out = applied(fit, std::vector<uint8_t>(positions, 1), 300);
  ASSERT_NE(in, out);
  for (int64_t i = 0; i < positions * ffn; ++i)
    ASSERT_EQ(mixed.rows[i], (half[i / ffn] ? out : in).rows[i]);
}

TEST(RowFit, AnIdSeenOnceFallsToThePriorWhenLeftOut) {
  ContextPtr context = createContext(2);
  RowFit fit = fitOf(context.get());
  for (double k : {0.0, 4.0}) {
    fit.setShrinkage(k);
    Applied out = applied(fit, std::vector<uint8_t>(positions, 1), 300);
    for (int64_t c = 0; c < ffn; ++c)
      EXPECT_NEAR(out.rows[Layer::oncePosition * ffn + c],
                  fit.priors()[Layer::once * ffn + c], 1e-5);
  }
}

/// What is left of a sum of 1e12 less 1e12 is rounding: the prior counts, not
/// the small observations that were lost in the sum.
TEST(RowFit, LeavingOutAHugeGateLeavesNoRounding) {
  ContextPtr context = createContext(1);
  RowStatistics statistics(context.get(), 1, 1, "layer 3");
  std::vector<int32_t> index(4);
  std::vector<float> gate = {0.3f, 1e6f, 0.7f, 0.1f}, up = {2, 3, 5, 7},
                     feature = {1};
  statistics.add(index, gate.data(), up.data());
  RowFit fit = RowFit::perId(std::move(statistics), 1,
                             [](int64_t, int64_t, float *out) { *out = 1; });
  fit.setShrinkage(0);
  std::vector<uint8_t> counted = {0, 1, 0, 0};
  std::vector<float> rows(4);
  fit.apply({index, gate.data(), up.data(), counted}, {.rows = rows.data()});
  EXPECT_EQ(rows[1], fit.priors()[0]);
  EXPECT_FLOAT_EQ(rows[0], 3);
}

TEST(RowFit, SameBitsForPiecesAndThreads) {
  ContextPtr one = createContext(1);
  RowFit first = fitOf(one.get());
  std::vector<uint8_t> counted(positions, 1);
  Applied wanted = applied(first, counted, positions);
  for (int threads : threadCounts) {
    ContextPtr context = createContext(threads);
    for (int64_t piece : pieceSizes) {
      RowFit fit = RowFit::perId(statisticsOf(context.get(), piece), hidden,
                                 readFeatures);
      EXPECT_EQ(applied(fit, counted, piece), wanted)
          << piece << " positions a piece, " << threads << " threads";
    }
  }
}

/// More rows than are read at once, most of them never seen.
TEST(RowFit, ManyIds) {
  ContextPtr context = createContext(2);
  constexpr int64_t many = 1100, width = 3;
  std::vector<float> features = randomFloats(many * 2, 1);
  std::vector<int32_t> index;
  std::vector<float> gate, up;
  for (int32_t id = 0; id < many; id += 3) {
    index.push_back(id);
    for (int64_t c = 0; c < width; ++c) {
      gate.push_back(1);
      up.push_back(float(c) + 2 * features[id * 2] - features[id * 2 + 1]);
    }
  }
  RowStatistics statistics(context.get(), many, width, "layer 3");
  statistics.add(index, gate.data(), up.data());
  RowFit fit = RowFit::perId(
      std::move(statistics), 2,
      [&](int64_t first, int64_t count, float *out) {
        ASSERT_LE(first + count, many);
        std::copy_n(features.begin() + first * 2, count * 2, out);
      },
      1e-6);
  // The map is linear: the regression finds it, for unseen ids too.
  for (int64_t id = 0; id < many; ++id)
    for (int64_t c = 0; c < width; ++c)
      ASSERT_NEAR(fit.priors()[id * width + c],
                  float(c) + 2 * features[id * 2] - features[id * 2 + 1], 1e-3);
}

TEST(RowFit, SlopeIsClamped) {
  ContextPtr context = createContext(1);
  // Two ids of features -1 and 1. In dimension 0 the open gates saw u = 10 f,
  // the mean is nearer to 0; in dimension 1 the open gates saw -f.
  std::vector<int32_t> index = {0, 0, 1, 1};
  std::vector<float> gate = {1, 1, 0, 0, 1, 1, 0, 0};
  std::vector<float> up = {-10, 1, 6, -3, 10, -1, -6, 3};
  RowStatistics statistics(context.get(), 2, 2, "layer 3");
  statistics.add(index, gate.data(), up.data());
  RowFit fit = RowFit::perId(
      std::move(statistics), 1,
      [](int64_t, int64_t, float *out) {
        out[0] = -1;
        out[1] = 1;
      },
      0);
  // The means: -2 and 2; -1 and 1. Slopes wanted 5 and -1, taken 2 and 0.
  std::vector<float> priors(fit.priors(), fit.priors() + 4);
  std::vector<float> wanted = {-4, 0, 4, 0};
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(priors[i], wanted[i], 1e-5) << i;
}

TEST(RowFit, MeanRow) {
  ContextPtr context = createContext(2);
  RowFit fit = RowFit::meanRow(statisticsOf(context.get()));
  const Reference &r = reference();
  Eigen::RowVectorXd g = r.g.colwise().sum(), h = r.h.colwise().sum();
  Eigen::RowVectorXd mean = h.cwiseQuotient(g);
  mean[5] = 0;
  Applied in = applied(fit, {}, 300);
  EXPECT_LT(relativeError(matrixOf(in.rows, ffn), mean.replicate(positions, 1)),
            1e-5);
  EXPECT_LT(
      relativeError(matrixOf(in.error, ffn),
                    r.gate.cwiseProduct(r.up - mean.replicate(positions, 1))),
      1e-5);

  // Leave-one-out is the mean of the others and of k mean weights of the row.
  for (double k : {0.0, 40.0}) {
    fit.setShrinkage(k);
    Applied out = applied(fit, std::vector<uint8_t>(positions, 1), 300);
    Eigen::MatrixXd others(positions, ffn);
    Eigen::RowVectorXd prior = k * r.meanSquares;
    for (int64_t i = 0; i < positions; ++i) {
      Eigen::RowVectorXd own = r.gate.row(i).cwiseAbs2();
      others.row(i) =
          (h - own.cwiseProduct(r.up.row(i)) + prior.cwiseProduct(mean))
              .cwiseQuotient(g - own + prior);
    }
    others.col(5).setZero();
    EXPECT_LT(relativeError(matrixOf(out.rows, ffn), others), 1e-5) << k;
  }

  std::vector<float> prior(2 * ffn);
  fit.prior(nullptr, 2, prior.data());
  EXPECT_LT(relativeError(matrixOf(prior, ffn), mean.replicate(2, 1)), 1e-5);
}

/// 1 − w and w c of RowFit.h in f64.
struct BlendReference {
  Eigen::RowVectorXd errors{ffn}, scale = Eigen::RowVectorXd::Ones(ffn),
                                  shift = Eigen::RowVectorXd::Zero(ffn);

  /// Errors from none to far above what the rows explain.
  explicit BlendReference(double k) {
    const double ratios[] = {0, 0.1, 0.5, 1, 2.9, 3, 40};
    Eigen::MatrixXd u(ids, ffn);
    for (int32_t id = 0; id < ids; ++id)
      u.row(id) = reference().row(id, k);
    for (int64_t c = 0; c < ffn; ++c) {
      const auto g = reference().g.col(c);
      double square = g.sum() > 0 ? g.dot(u.col(c).cwiseAbs2()) / g.sum() : 0;
      double ratio = ratios[c % std::size(ratios)];
      errors[c] = ratio * square;
      if (square == 0)
        continue;
      double x = std::min(ratio, 3.0);
      double w = x * x / (1 + x * x);
      double sign = reference().h.col(c).sum() < 0 ? -1 : 1;
      scale[c] = 1 - w;
      shift[c] = w * sign * std::sqrt(square);
    }
  }

  Eigen::MatrixXd blend(const Eigen::MatrixXd &rows) const {
    return (rows * scale.asDiagonal()).rowwise() + shift;
  }
  std::span<const double> span() const { return {errors.data(), ffn}; }
};

TEST(RowFitBlend, RowsOfSeenAndUnseenIds) {
  ContextPtr context = createContext(2);
  std::vector<int32_t> every(ids);
  std::iota(every.begin(), every.end(), 0);
  for (double k : {1.0, 4.0}) {
    const BlendReference blend(k);
    ASSERT_LT(blend.shift.minCoeff(), 0);
    ASSERT_GT(blend.shift.maxCoeff(), 0);
    RowFit fit = fitOf(context.get());
    fit.setShrinkage(k);
    std::vector<float> before(ids * ffn), after(before.size());
    fit.rows(every, before.data());
    // The second time changes nothing: it starts from the rows before.
    for (int times = 0; times < 2; ++times) {
      fit.blend(blend.span());
      fit.rows(every, after.data());
      Eigen::MatrixXd wanted(ids, ffn);
      for (int32_t id = 0; id < ids; ++id)
        wanted.row(id) = reference().row(id, k);
      EXPECT_LT(relativeError(matrixOf(after, ffn), blend.blend(wanted)), 1e-5);
    }
    // No error, or no gate: no constant.
    for (int64_t at = 0; at < ids * ffn; ++at)
      if (at % ffn == 5 || at % ffn == 7) {
        EXPECT_EQ(after[at], before[at]);
      }
    std::vector<float> features = randomFloats(9 * hidden, 17), prior(9 * ffn);
    fit.prior(features.data(), 9, prior.data());
    EXPECT_LT(relativeError(
                  matrixOf(prior, ffn),
                  blend.blend(reference().prior(matrixOf(features, hidden)))),
              1e-5);
  }
}

TEST(RowFitBlend, LeaveOneOut) {
  ContextPtr context = createContext(2);
  const BlendReference blend(4);
  RowFit fit = fitOf(context.get());
  fit.blend(blend.span());
  const std::vector<uint8_t> counted(positions, 1);
  RowPositions all = allPositions();
  all.counted = counted;
  std::vector<float> rows(positions * ffn), gated(rows.size()),
      error(rows.size());
  fit.apply(all, {rows.data(), gated.data(), error.data()});
  const Eigen::MatrixXd wanted = blend.blend(reference().rows(4, true));
  EXPECT_LT(relativeError(matrixOf(rows, ffn), wanted), 1e-5);
  EXPECT_LT(relativeError(matrixOf(gated, ffn),
                          reference().gate.cwiseProduct(wanted)),
            1e-5);
  EXPECT_LT(relativeError(matrixOf(error, ffn), reference().gate.cwiseProduct(
                                                    reference().up - wanted)),
            1e-5);
}

TEST(RowFitBlend, SameBitsForThreads) {
  const BlendReference blend(4);
  auto rowsOf = [&](int threads) {
    ContextPtr context = createContext(threads);
    RowFit fit = fitOf(context.get());
    fit.blend(blend.span());
    std::vector<float> rows(positions * ffn);
    fit.rows(layer().index, rows.data());
    return rows;
  };
  for (int threads : threadCounts)
    EXPECT_EQ(rowsOf(threads), rowsOf(1));
}

TEST(RowFitBlend, MeanRowIsOneAlready) {
  ContextPtr context = createContext(1);
  RowFit fit = RowFit::meanRow(statisticsOf(context.get()));
  // Of an id that no position has as well, to the bit.
  std::vector<float> before(ffn), after(ffn), prior(ffn);
  fit.prior(nullptr, 1, before.data());
  fit.blend(BlendReference(4).span());
  const int32_t id = 3;
  fit.rows({&id, 1}, after.data());
  fit.prior(nullptr, 1, prior.data());
  EXPECT_EQ(after, before);
  EXPECT_EQ(prior, before);
}

TEST(RowFitBlend, ErrorsOfAnotherSizeAreRefused) {
  ContextPtr context = createContext(1);
  const std::vector<double> errors(ffn + 1);
  const RowStatistics statistics = statisticsOf(context.get());
  RowFit mean = RowFit::meanRow(statistics), fit = fitOf(context.get());
  for (RowFit *rows : {&mean, &fit}) {
    expectContains(errorOf([&] { rows->blend(errors); }),
                   "layer 3: errors of 131 dimensions, wanted 130");
    expectContains(errorOf([&] { rows->blend({}); }),
                   "layer 3: errors of 0 dimensions, wanted 130");
  }
}

TEST(RowErrors, SumForSeveralShrinkages) {
  const std::vector<double> candidates = {0, 1, 4, 64};
  auto totalsOf = [&](int64_t piece, int threads, bool leavesOut) {
    ContextPtr context = createContext(threads);
    RowFit fit = fitOf(context.get());
    RowErrors errors(fit, candidates);
    std::vector<uint8_t> counted(leavesOut ? positions : 0, 1);
    inPieces(positions, piece, [&](int64_t first, int64_t count) {
      errors.add({layer().indexOf(first, count),
                  layer().gate.data() + first * ffn,
                  layer().up.data() + first * ffn,
                  leavesOut ? std::span(counted).subspan(first, count)
                            : std::span<const uint8_t>()});
    });
    return errors.totals();
  };
  for (bool leavesOut : {false, true}) {
    std::vector<double> totals = totalsOf(positions, 1, leavesOut);
    ASSERT_EQ(totals.size(), candidates.size());
    for (size_t i = 0; i < candidates.size(); ++i) {
      double wanted =
          reference()
              .gate
              .cwiseProduct(reference().up -
                            reference().rows(candidates[i], leavesOut))
              .squaredNorm();
      EXPECT_NEAR(totals[i] / wanted, 1, 1e-5) << "k " << candidates[i];
    }
    for (int64_t piece : pieceSizes)
      EXPECT_EQ(totalsOf(piece, 2, leavesOut), totals) << piece;
    EXPECT_EQ(totalsOf(64, 3, leavesOut), totals);
  }
}

TEST(RowErrors, LeavesOutPositions) {
  ContextPtr context = createContext(1);
  RowFit fit = fitOf(context.get());
  const double k[] = {4};
  RowErrors all(fit, k), part(fit, k);
  all.add(allPositions());
  std::vector<int32_t> index = layer().index;
  index[3] = -1;
  part.add({index, layer().gate.data(), layer().up.data()});
  EXPECT_LT(part.totals()[0], all.totals()[0]);
}

TEST(RowErrors, MeanErrors) {
  ContextPtr context = createContext(2);
  RowFit fit = fitOf(context.get());
  const double candidates[] = {1, 64};
  RowErrors errors(fit, candidates);
  std::vector<int32_t> index = layer().index;
  for (int64_t i = 0; i < positions; i += 3)
    index[i] = -1;
  inPieces(positions, 300, [&](int64_t first, int64_t count) {
    errors.add({std::span(index).subspan(first, count),
                layer().gate.data() + first * ffn,
                layer().up.data() + first * ffn});
  });
  for (size_t candidate : {0, 1}) {
    Eigen::MatrixXd squares =
        reference()
            .gate
            .cwiseProduct(reference().up -
                          reference().rows(candidates[candidate], false))
            .cwiseAbs2();
    Eigen::MatrixXd gates = reference().gate.cwiseAbs2();
    for (int64_t i = 0; i < positions; i += 3) {
      squares.row(i).setZero();
      gates.row(i).setZero();
    }
    const std::vector<double> seen = errors.meanErrors(candidate);
    ASSERT_EQ(seen.size(), size_t(ffn));
    for (int64_t c = 0; c < ffn; ++c) {
      if (c == 5)
        EXPECT_EQ(seen[c], 0);
      else
        EXPECT_NEAR(seen[c] / (squares.col(c).sum() / gates.col(c).sum()), 1,
                    1e-5);
    }
  }
  EXPECT_EQ(RowErrors(fit, candidates).meanErrors(0),
            std::vector<double>(ffn, 0.0));
}

TEST(RowFit, Messages) {
  ContextPtr context = createContext(1);
  auto fitError = [&](RowStatistics statistics, double ridge,
                      int64_t features = hidden) {
    return errorOf([&] {
      RowFit::perId(std::move(statistics), features, readFeatures, ridge);
    });
  };
  RowStatistics none(context.get(), ids, ffn, "layer 3");
  expectContains(errorOf([&] { RowFit::meanRow(none); }),
                 "layer 3: no position was counted: the mean row needs "
                 "calibration text");
  expectContains(fitError(std::move(none), 1e-2),
                 "layer 3: no position was counted: rows need calibration "
                 "text");
  expectContains(fitError(statisticsOf(context.get()), -1),
                 "layer 3: the ridge of the rows' prior is -1");
  expectContains(fitError(statisticsOf(context.get()), 1e-2, 0),
                 "layer 3: 0 features for the rows' prior: wanted 1 to");

  RowFit fit = fitOf(context.get());
  expectContains(errorOf([&] { fit.setShrinkage(-2); }),
                 "layer 3: k is -2: wanted 0 or more");
  const double bad[] = {1, notANumber};
  expectContains(errorOf([&] { RowErrors(fit, bad); }),
                 "layer 3: k is nan: wanted 0 or more");
  std::vector<float> out(2 * ffn);
  for (int32_t row : {-1, int32_t(ids)}) {
    std::vector<int32_t> index = {0, row};
    expectContains(
        errorOf([&] { fit.rows(index, out.data()); }),
        fmt::format("layer 3: position 1 has row {}: wanted 0 to 39", row));
  }
  std::vector<int32_t> index = {0, 1};
  std::vector<uint8_t> counted = {1};
  expectContains(
      errorOf([&] { fit.apply({index, out.data(), out.data(), counted}, {}); }),
      "layer 3: 2 positions with 1 flags that say which were "
      "counted");
  expectContains(
      errorOf([&] { fit.apply({.index = index}, {.gated = out.data()}); }),
      "layer 3: what is wanted of the rows needs the gate of 2 positions");
  expectContains(
      errorOf([&] { fit.apply({.index = index}, {.error = out.data()}); }),
      "needs the gate and the up-projection of 2 positions");
  const double k[] = {4};
  RowErrors errors(fit, k);
  expectContains(errorOf([&] { errors.add({.index = index}); }),
                 "layer 3: the error of 2 rows needs the gate");
  expectContains(errorOf([&] { fit.prior(nullptr, 2, out.data()); }),
                 "layer 3: priors of 2 ids, wanted a count of at least 0, the "
                 "features");
}

TEST(RowFit, SumsThatAreNotFinite) {
  ContextPtr context = createContext(2);
  for (bool inGate : {false, true}) {
    RowStatistics statistics = statisticsOf(context.get());
    std::vector<float> gate(ffn), up(ffn);
    (inGate ? gate : up)[17] = inGate ? 1e30f : notANumber;
    std::vector<int32_t> index = {9};
    statistics.add(index, gate.data(), up.data());
    std::string message = errorOf(
        [&] { RowFit::perId(std::move(statistics), hidden, readFeatures); });
    expectContains(message, "layer 3: the sums of row 9 hold NaN or infinity "
                            "(dimension 17)");
    expectContains(message, "leave this layer dense");
  }
}

TEST(RowFit, SumsThatAreNotFiniteNameTheId) {
  ContextPtr context = createContext(1);
  RowStatistics statistics = statisticsOf(context.get());
  std::vector<int32_t> tokens(statistics.rows());
  std::iota(tokens.begin(), tokens.end(), 1000);
  statistics.nameRows(tokens);
  std::vector<float> gate(ffn), up(ffn, notANumber);
  const int32_t index[] = {9};
  statistics.add(index, gate.data(), up.data());
  expectContains(errorOf([&] { RowFit::meanRow(statistics); }),
                 "layer 3: the sums of all ids hold NaN or infinity "
                 "(dimension 0)");
  expectContains(errorOf([&] {
                   RowFit::perId(std::move(statistics), hidden, readFeatures);
                 }),
                 "layer 3: the sums of token id 1009 hold NaN or infinity "
                 "(dimension 0)");
}

TEST(RowFit, FeaturesThatAreNotFiniteOrDoNotDetermine) {
  ContextPtr context = createContext(1);
  auto error = [&](float feature, double ridge) {
    return errorOf([&] {
      RowFit::perId(
          statisticsOf(context.get()), hidden,
          [&](int64_t, int64_t count, float *out) {
            std::fill_n(out, count * hidden, feature);
          },
          ridge);
    });
  };
  expectContains(error(notANumber, 1e-2),
                 "layer 3: the sums of features and up-projections hold NaN");
  expectContains(error(0, 0),
                 "layer 3: the regression of the rows' prior from 24 features "
                 "of 38 ids is not determined with a ridge of 0");
  EXPECT_EQ(error(0, 1e-2), "(no error)");
}

TEST(RowFit, Bytes) {
  EXPECT_GT(RowFit::bytes(1000, 1536, 576),
            RowStatistics::bytes(1000, 1536) + 1536 * 576 * 4);
  EXPECT_GT(RowFit::fitBytes(1536, 576), (577 * 577 + 577 * 1536) * 8);
  expectContains(errorOf([] { RowFit::fitBytes(1536, 0); }), "a size is 0");
}

} // namespace
