//===- LowRankFit.cpp - The low-rank term beside the rows -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/LowRankFit.h"
#include "Sizes.h"
#include "SpdFactor.h"
#include "Threads.h"
#include "stem/Runtime/Parallel.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <utility>

using namespace stem;

namespace {

/// Positions whose squared gates are summed in f32, as in GramSums.
constexpr int64_t blockPositions = 512;

int64_t matrixBytes(int64_t rows, int64_t columns) {
  return checkedSize("a low-rank fit",
                     {rows, columns, int64_t(sizeof(double))});
}

double *elements(const Arena &arena) {
  return static_cast<double *>(arena.data());
}

/// Runs body(first, count) for ranges of at most solveColumns of `columns`.
template <typename Body>
void forColumns(stem_context *context, int64_t columns, const Body &body) {
  int64_t tasks = (columns + solveColumns - 1) / solveColumns;
  parallelFor(context, tasks, [&](int64_t task) {
    int64_t first = task * solveColumns;
    body(first, std::min(solveColumns, columns - first));
  });
}

} // namespace

LowRankFit::LowRankFit(stem_context *context, int64_t ffn, int64_t hidden,
                       std::string name, stem_dtype products)
    : context(context), ffn(ffn), hidden(hidden), name(std::move(name)),
      sums(context, hidden, ffn, products), blockSquares(ffn),
      gateSquares(ffn) {}

int64_t LowRankFit::bytes(int64_t ffn, int64_t hidden) {
  int64_t squares = checkedSize("a low-rank fit",
                                {ffn, int64_t(sizeof(double) + sizeof(float))});
  int64_t sum = 0;
  if (__builtin_add_overflow(GramSums::bytes(hidden, ffn), squares, &sum))
    fail("a low-rank fit of {} x {} has no size", ffn, hidden);
  return sum;
}

int64_t LowRankFit::solutionBytes(int64_t ffn, int64_t hidden) {
  // The factors, the eigenproblem's matrix, its vectors and these turned round.
  int64_t square = matrixBytes(hidden, hidden), sum = 0;
  for (int64_t part :
       {matrixBytes(ffn, hidden), square, square, square, square})
    if (__builtin_add_overflow(sum, part, &sum))
      fail("a low-rank fit of {} x {} has no size", ffn, hidden);
  return sum;
}

void LowRankFit::add(const float *residual, const float *h, const float *gate,
                     int64_t count) {
  if (count > 0 && !gate)
    fail("{}: {} positions of a low-rank fit without their gates", name, count);
  int64_t before = sums.positions();
  sums.add(h, residual, count);
  for (int64_t done = 0; done < count;) {
    int64_t taken = std::min(count - done,
                             blockPositions - (before + done) % blockPositions);
    addGates(gate + done * ffn, taken);
    done += taken;
    if ((before + done) % blockPositions == 0)
      for (int64_t c = 0; c < ffn; ++c)
        gateSquares[c] += std::exchange(blockSquares[c], 0.0f);
  }
}

void LowRankFit::addGates(const float *gate, int64_t count) {
  constexpr int64_t range = 256;
  parallelFor(threadsFor(context, count * ffn), (ffn - 1) / range + 1,
              [&](int64_t task) {
                int64_t end = std::min(ffn, (task + 1) * range);
                for (int64_t i = 0; i < count; ++i)
                  for (int64_t c = task * range; c < end; ++c)
                    blockSquares[c] += gate[i * ffn + c] * gate[i * ffn + c];
              });
}

void LowRankFit::solve(std::span<const float> downNorms, double strength) {
  if (int64_t(downNorms.size()) != ffn)
    fail("{}: {} norms of W_down's columns, wanted {}", name, downNorms.size(),
         ffn);
  if (!(strength >= 0) || std::isinf(strength))
    fail("{}: the strength of the low-rank fit is {}: wanted 0 or more", name,
         strength);
  if (positions() == 0)
    fail("{}: no position for the low-rank fit: it needs calibration text",
         name);
  sums.finish();
  checkFinite(name, "h hᵀ and h rᵀ", sums.gram(), sums.cross(), hidden, ffn);
  const std::vector<double> weights = weightsOf(downNorms);
  SpdFactor factor(sums.gram(), hidden);
  if (!factor.factor(context, strength))
    fail("{}: the sum of h hᵀ over {} positions ({} dimensions, mean of the "
         "diagonal {:g}) with a strength of {:g} is not positive definite: "
         "calibrate on more text, go without a low-rank term (neither "
         "--mix-rank nor --flops) or leave this layer dense",
         name, positions(), hidden, factor.meanDiagonal(), strength);
  left = Arena(matrixBytes(ffn, hidden), "the factors of a low-rank fit");
  right = Arena(matrixBytes(hidden, hidden), "the factors of a low-rank fit");
  whiten(factor);
  rotate(weights);
  forColumns(context, hidden, [&](int64_t first, int64_t count) {
    factor.solveUpper(elements(right) + first * hidden, count);
  });
}

/// w_i = E[g_i²] · ‖W_down[:, i]‖².
std::vector<double>
LowRankFit::weightsOf(std::span<const float> downNorms) const {
  std::vector<double> weights(ffn);
  for (int64_t c = 0; c < ffn; ++c) {
    double square = (gateSquares[c] + blockSquares[c]) / double(positions());
    weights[c] = square * downNorms[c] * downNorms[c];
    if (!std::isfinite(weights[c]))
      fail("{}: the gate's squares or W_down's column hold NaN or infinity "
           "(dimension {}). Evaluate the model on this text first, or leave "
           "this layer dense",
           name, c);
  }
  return weights;
}

/// Column i of `left` becomes L⁻¹ E[i, :]ᵀ.
void LowRankFit::whiten(const SpdFactor &factor) {
  Eigen::Map<Eigen::MatrixXd> whitened(elements(left), hidden, ffn);
  forColumns(context, ffn, [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < hidden; ++i)
      for (int64_t c = first; c < first + count; ++c)
        whitened(i, c) = sums.cross()[i * ffn + c];
    factor.solveLower(&whitened(0, first), count);
  });
}

/// Column i of `left` becomes Vᵀ of itself, and `right` V.
void LowRankFit::rotate(std::span<const double> weights) {
  Eigen::Map<Eigen::MatrixXd> whitened(elements(left), hidden, ffn);
  Eigen::Map<const Eigen::VectorXd> w(weights.data(), ffn);
  Eigen::MatrixXd covariance(hidden, hidden);
  forColumns(context, hidden, [&](int64_t first, int64_t count) {
    Eigen::MatrixXd scaled =
        w.asDiagonal() * whitened.middleRows(first, count).transpose();
    covariance.middleCols(first, count).noalias() = whitened * scaled;
  });
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(covariance);
  if (solver.info() != Eigen::Success)
    fail("{}: the eigenvectors of the low-rank fit did not converge: leave "
         "this layer without a low-rank term",
         name);

  // Eigen sorts them rising.
  Eigen::MatrixXd vectors = solver.eigenvectors().rowwise().reverse();
  gain.resize(hidden);
  for (int64_t i = 0; i < hidden; ++i)
    gain[i] = std::max(0.0, solver.eigenvalues()[hidden - 1 - i]);
  forColumns(context, ffn, [&](int64_t first, int64_t count) {
    Eigen::MatrixXd product =
        vectors.transpose() * whitened.middleCols(first, count);
    whitened.middleCols(first, count) = product;
  });
  std::copy_n(vectors.data(), hidden * hidden, elements(right));
}

void LowRankFit::factors(int64_t rank, float *a, float *b) const {
  if (gain.empty())
    fail("{}: the factors of a low-rank fit are wanted before it is solved",
         name);
  int64_t most = std::min(ffn, hidden);
  if (rank < 1 || rank > most)
    fail("{}: rank {} of a low-rank term: wanted 1 to {}, the smaller of d_ff "
         "{} and the hidden size {}",
         name, rank, most, ffn, hidden);
  for (int64_t i = 0; i < ffn; ++i)
    for (int64_t r = 0; r < rank; ++r)
      a[i * rank + r] = static_cast<float>(elements(left)[i * hidden + r]);
  for (int64_t i = 0; i < rank * hidden; ++i)
    b[i] = static_cast<float>(elements(right)[i]);
}
