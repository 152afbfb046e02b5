//===- GradientOps.cpp - Vector-Jacobian products -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formulas of the ops' descriptions. A cotangent `dx` belongs to the value
// `x`; the pairs of a row gradient are rows, the row's number first.
//
//===----------------------------------------------------------------------===//

#include "GradientOps.h"
#include "stem/Dialect/Stem/StemDialect.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace stem;
using namespace stem::reference;

//===----------------------------------------------------------------------===//
// Products and sums
//===----------------------------------------------------------------------===//

FailureOr<ReferenceTensor> reference::inputVjp(Machine &machine, Operation *op,
                                               const ReferenceTensor &cotangent,
                                               const WeightView &weight) {
  int64_t rows = cotangent.shape[0];
  if (failed(expectSize(op, "columns of the cotangent", cotangent.shape[1],
                        weight.outputs)) ||
      failed(machine.spend(op, rows * weight.inputs * weight.outputs)))
    return failure();
  auto dx = machine.allocate(op, {rows, weight.inputs});
  if (failed(dx))
    return failure();
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t n = 0; n < weight.outputs; ++n)
      for (int64_t k = 0; k < weight.inputs; ++k)
        dx->at(t, k) += cotangent.at(t, n) * weight.at(n, k);
  return dx;
}

FailureOr<ReferenceTensor>
reference::weightVjp(Machine &machine, Operation *op, const ReferenceTensor &x,
                     const ReferenceTensor &cotangent) {
  int64_t rows = x.shape[0], inputs = x.shape[1], outputs = cotangent.shape[1];
  if (failed(
          expectSize(op, "rows of the cotangent", cotangent.shape[0], rows)) ||
      failed(machine.spend(op, rows * inputs * outputs)))
    return failure();
  auto dw = machine.allocate(op, {outputs, inputs});
  if (failed(dw))
    return failure();
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t n = 0; n < outputs; ++n)
      for (int64_t k = 0; k < inputs; ++k)
        dw->at(n, k) += cotangent.at(t, n) * x.at(t, k);
  return dw;
}

/// Over tokens, and over the groups of `length` columns.
static FailureOr<ReferenceTensor> sumTokens(Machine &machine, Operation *op,
                                            const ReferenceTensor &x,
                                            int64_t length) {
  auto sum = machine.allocate(op, {length});
  if (failed(sum))
    return failure();
  for (int64_t t = 0; t < x.shape[0]; ++t)
    for (int64_t n = 0; n < x.shape[1]; ++n)
      sum->values[n % length] += x.at(t, n);
  return sum;
}

LogicalResult reference::expectCotangent(Operation *op,
                                         const ReferenceTensor &cotangent,
                                         const ReferenceTensor &x) {
  if (failed(expectSize(op, "rows of the cotangent", cotangent.shape[0],
                        x.shape[0])))
    return failure();
  return expectSize(op, "columns of the cotangent", cotangent.shape[1],
                    x.shape[1]);
}

LogicalResult reference::setResult(Machine &machine, Operation *op,
                                   Value result,
                                   FailureOr<ReferenceTensor> value) {
  if (failed(value))
    return failure();
  return machine.set(op, result, std::move(*value));
}

static LogicalResult evaluate(Machine &machine, LinearInputVjpOp op) {
  return setResult(machine, op, op.getResult(),
                   inputVjp(machine, op, machine.tensor(op.getCotangent()),
                            WeightView(machine, op.getWeight())));
}

static LogicalResult evaluate(Machine &machine, LinearWeightVjpOp op) {
  return setResult(machine, op, op.getResult(),
                   weightVjp(machine, op, machine.tensor(op.getX()),
                             machine.tensor(op.getCotangent())));
}

static LogicalResult evaluate(Machine &machine, SumTokensOp op) {
  return setResult(machine, op, op.getResult(),
                   sumTokens(machine, op, machine.tensor(op.getX()),
                             op.getType().getDimSize(0)));
}

//===----------------------------------------------------------------------===//
// Norm and activation
//===----------------------------------------------------------------------===//

static LogicalResult evaluate(Machine &machine, RMSNormVjpOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const ReferenceTensor &weight = machine.tensor(op.getWeight());
  const ReferenceTensor &cotangent = machine.tensor(op.getCotangent());
  if (failed(expectCotangent(op, cotangent, x)))
    return failure();
  int64_t group = weight.size();
  double eps = op.getEps().convertToDouble();
  ReferenceTensor dx = x, dweight = weight;
  llvm::fill(dweight.values, 0.0);
  for (int64_t start = 0; start + group <= x.size(); start += group) {
    const double *xs = x.values.data() + start;
    const double *cs = cotangent.values.data() + start;
    double squares = 0.0, product = 0.0;
    for (int64_t j = 0; j < group; ++j) {
      squares += xs[j] * xs[j];
      product += weight.values[j] * cs[j] * xs[j];
    }
    double r = 1.0 / std::sqrt(squares / group + eps);
    for (int64_t j = 0; j < group; ++j) {
      dx.values[start + j] =
          r * weight.values[j] * cs[j] - xs[j] * r * r * r * product / group;
      dweight.values[j] += cs[j] * xs[j] * r;
    }
  }
  if (failed(machine.set(op, op.getDx(), std::move(dx))))
    return failure();
  return machine.set(op, op.getDweight(), std::move(dweight));
}

double reference::siluDerivative(double x) {
  double s = 1.0 / (1.0 + std::exp(-x));
  return s * (1.0 + x * (1.0 - s));
}

static LogicalResult evaluate(Machine &machine, SiluVjpOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const ReferenceTensor &cotangent = machine.tensor(op.getCotangent());
  if (failed(expectCotangent(op, cotangent, x)))
    return failure();
  ReferenceTensor dx = cotangent;
  for (int64_t i = 0; i < dx.size(); ++i)
    dx.values[i] *= siluDerivative(x.values[i]);
  return machine.set(op, op.getResult(), std::move(dx));
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {

/// The tokens of a call by sequence and position. Of two at one place the later
/// one counts, as in a cache.
class TokenPlaces {
public:
  TokenPlaces(const ReferenceTensor &positions,
              const ReferenceTensor &sequences) {
    for (int64_t t = 0; t < sequences.size(); ++t)
      if (int64_t sequence = toInteger(sequences.values[t]); sequence >= 0)
        tokens[{sequence, toInteger(positions.values[t])}] = t;
  }

  /// What a token there sees, by rising position.
  SmallVector<int64_t> visibleFrom(int64_t sequence, int64_t position,
                                   int64_t window) const {
    SmallVector<int64_t> visible;
    auto place = tokens.lower_bound({sequence, firstVisible(position, window)});
    for (; place != tokens.end() && place->first.first == sequence &&
           place->first.second <= position;
         ++place)
      visible.push_back(place->second);
    return visible;
  }

private:
  std::map<std::pair<int64_t, int64_t>, int64_t> tokens;
};

/// One query head of one token, and what flows back from it.
struct AttentionHead {
  const ReferenceTensor &q, &k, &v, &cotangent;
  ReferenceTensor &dq, &dk, &dv;
  double scale;
  int64_t headDim;

  void addTo(int64_t t, ArrayRef<int64_t> visible, int64_t queryColumn,
             int64_t keyColumn);
};

} // namespace

void AttentionHead::addTo(int64_t t, ArrayRef<int64_t> visible,
                          int64_t queryColumn, int64_t keyColumn) {
  SmallVector<double> p, flow;
  for (int64_t s : visible) {
    double score = 0.0, product = 0.0;
    for (int64_t j = 0; j < headDim; ++j) {
      score += q.at(t, queryColumn + j) * k.at(s, keyColumn + j);
      product += cotangent.at(t, queryColumn + j) * v.at(s, keyColumn + j);
    }
    p.push_back(score * scale);
    flow.push_back(product);
  }
  softmax(p);
  double mean = 0.0;
  for (auto [share, product] : llvm::zip_equal(p, flow))
    mean += share * product;
  for (auto [s, share, product] : llvm::zip_equal(visible, p, flow)) {
    double e = share * (product - mean);
    for (int64_t j = 0; j < headDim; ++j) {
      dq.at(t, queryColumn + j) += scale * e * k.at(s, keyColumn + j);
      dk.at(s, keyColumn + j) += scale * e * q.at(t, queryColumn + j);
      dv.at(s, keyColumn + j) += share * cotangent.at(t, queryColumn + j);
    }
  }
}

template <typename Op>
static LogicalResult expectTokens(Machine &machine, Op op) {
  int64_t rows = machine.tensor(op.getQ()).shape[0];
  const std::pair<const char *, Value> operands[] = {
      {"rows of k", op.getK()},
      {"rows of v", op.getV()},
      {"number of positions", op.getPositions()},
      {"number of sequences", op.getSequences()}};
  for (auto [what, operand] : operands)
    if (failed(expectSize(op, what, machine.tensor(operand).shape[0], rows)))
      return failure();
  if (failed(expectCotangent(op, machine.tensor(op.getCotangent()),
                             machine.tensor(op.getQ()))))
    return failure();
  return expectSize(op, "columns of v", machine.tensor(op.getV()).shape[1],
                    machine.tensor(op.getK()).shape[1]);
}

// With caches the operands are there too; it is the operands that count.
template <typename Op>
static LogicalResult evaluateAttention(Machine &machine, Op op) {
  if (failed(expectTokens(machine, op)))
    return failure();
  const ReferenceTensor &q = machine.tensor(op.getQ());
  const ReferenceTensor &k = machine.tensor(op.getK());
  const ReferenceTensor &v = machine.tensor(op.getV());
  const ReferenceTensor &positions = machine.tensor(op.getPositions());
  const ReferenceTensor &sequences = machine.tensor(op.getSequences());
  auto dq = machine.allocate(op, q.shape), dk = machine.allocate(op, k.shape),
       dv = machine.allocate(op, v.shape);
  if (failed(dq) || failed(dk) || failed(dv))
    return failure();
  int64_t headDim = op.getHeadDim();
  int64_t shared = op.getQueryHeads() / op.getKeyValueHeads();
  AttentionHead head{q,      k,   v,   machine.tensor(op.getCotangent()),
                     *dq,    *dk, *dv, op.getScale().convertToDouble(),
                     headDim};
  const TokenPlaces places(positions, sequences);
  for (int64_t t = 0; t < q.shape[0]; ++t) {
    int64_t position = toInteger(positions.values[t]);
    int64_t sequence = toInteger(sequences.values[t]);
    if (sequence < 0 || position < 0)
      continue;
    auto visible = places.visibleFrom(sequence, position, op.getWindow());
    if (failed(machine.spend(op, static_cast<int64_t>(visible.size()) *
                                     q.shape[1])))
      return failure();
    for (int64_t h = 0; h < op.getQueryHeads(); ++h)
      head.addTo(t, visible, h * headDim, h / shared * headDim);
  }
  if (failed(machine.set(op, op.getDq(), std::move(*dq))) ||
      failed(machine.set(op, op.getDk(), std::move(*dk))))
    return failure();
  return machine.set(op, op.getDv(), std::move(*dv));
}

static LogicalResult evaluate(Machine &machine, AttentionVjpOp op) {
  return evaluateAttention(machine, op);
}

static LogicalResult evaluate(Machine &machine, AttendVjpOp op) {
  return evaluateAttention(machine, op);
}

//===----------------------------------------------------------------------===//
// FFNs
//===----------------------------------------------------------------------===//

/// What both gated FFNs set: `dgate`, `ddown`, `dgate_bias`. Gives the
/// cotangents of the gate's and the up-projection's values.
template <typename Op>
static FailureOr<std::pair<ReferenceTensor, ReferenceTensor>>
evaluateGate(Machine &machine, Op op, const ReferenceTensor &up) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const ReferenceTensor &cotangent = machine.tensor(op.getCotangent());
  auto gate = linear(machine, op, x, WeightView(machine, op.getGate()),
                     op.getGateBias());
  auto h = inputVjp(machine, op, cotangent, WeightView(machine, op.getDown()));
  if (failed(gate) || failed(h) ||
      failed(expectSize(op, "rows of up", up.shape[0], x.shape[0])) ||
      failed(expectSize(op, "columns of up", up.shape[1], gate->shape[1])) ||
      failed(expectSize(op, "rows of the cotangent", cotangent.shape[0],
                        x.shape[0])) ||
      failed(expectSize(op, "inputs of down", h->shape[1], gate->shape[1])))
    return failure();
  ReferenceTensor product = *gate, dg = *h, du = *h;
  for (int64_t i = 0; i < gate->size(); ++i) {
    double g = gate->values[i], u = up.values[i];
    product.values[i] = silu(g) * u;
    dg.values[i] *= siluDerivative(g) * u;
    du.values[i] *= silu(g);
  }
  if (failed(setResult(machine, op, op.getDdown(),
                       weightVjp(machine, op, product, cotangent))) ||
      failed(
          setResult(machine, op, op.getDgate(), weightVjp(machine, op, x, dg))))
    return failure();
  if (op.getDgateBias() &&
      failed(setResult(machine, op, op.getDgateBias(),
                       sumTokens(machine, op, dg, dg.shape[1]))))
    return failure();
  return std::pair(std::move(dg), std::move(du));
}

static LogicalResult evaluate(Machine &machine, DenseFFNVjpOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const WeightView upWeight(machine, op.getUp());
  auto up = linear(machine, op, x, upWeight, op.getUpBias());
  if (failed(up))
    return failure();
  auto cotangents = evaluateGate(machine, op, *up);
  if (failed(cotangents))
    return failure();
  auto &[dg, du] = *cotangents;
  auto dx = inputVjp(machine, op, dg, WeightView(machine, op.getGate()));
  auto throughUp = inputVjp(machine, op, du, upWeight);
  if (failed(dx) || failed(throughUp))
    return failure();
  for (int64_t i = 0; i < dx->size(); ++i)
    dx->values[i] += throughUp->values[i];
  if (op.getDupBias() &&
      failed(setResult(machine, op, op.getDupBias(),
                       sumTokens(machine, op, du, du.shape[1]))))
    return failure();
  if (failed(
          setResult(machine, op, op.getDup(), weightVjp(machine, op, x, du))))
    return failure();
  return machine.set(op, op.getDx(), std::move(*dx));
}

static LogicalResult evaluate(Machine &machine, GatedFFNVjpOp op) {
  auto cotangents = evaluateGate(machine, op, machine.tensor(op.getUp()));
  if (failed(cotangents))
    return failure();
  auto &[dg, du] = *cotangents;
  if (failed(setResult(
          machine, op, op.getDx(),
          inputVjp(machine, op, dg, WeightView(machine, op.getGate())))))
    return failure();
  return machine.set(op, op.getDup(), std::move(du));
}

//===----------------------------------------------------------------------===//
// Loss and ids
//===----------------------------------------------------------------------===//

FailureOr<ReferenceTensor>
reference::differentiateLoss(Operation *op, ReferenceTensor &logits,
                             const ReferenceTensor &labels,
                             const ReferenceTensor &cotangent) {
  int64_t tokens = logits.shape[0], vocabulary = logits.shape[1];
  if (failed(expectSize(op, "length of labels", labels.size(), tokens)) ||
      failed(
          expectSize(op, "length of the cotangent", cotangent.size(), tokens)))
    return failure();
  ReferenceTensor nll = cotangent;
  for (int64_t t = 0; t < tokens; ++t) {
    auto label = readLabel(op, labels, t, vocabulary);
    if (failed(label))
      return failure();
    auto row = MutableArrayRef(logits.values).slice(t * vocabulary, vocabulary);
    if (!*label) {
      llvm::fill(row, 0.0);
      nll.values[t] = 0.0;
      continue;
    }
    softmax(row);
    nll.values[t] = -std::log(row[**label]);
    row[**label] -= 1.0;
    for (double &value : row)
      value *= cotangent.values[t];
  }
  return nll;
}

static LogicalResult evaluate(Machine &machine, CrossEntropyVjpOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const WeightView head(machine, op.getHead());
  auto logits = linear(machine, op, x, head, Value());
  if (failed(logits) ||
      failed(differentiateLoss(op, *logits, machine.tensor(op.getLabels()),
                               machine.tensor(op.getCotangent()))) ||
      failed(setResult(machine, op, op.getDx(),
                       inputVjp(machine, op, *logits, head))))
    return failure();
  return setResult(machine, op, op.getDhead(),
                   weightVjp(machine, op, x, *logits));
}

FailureOr<DistillationLosses> reference::differentiateDistillation(
    Operation *op, ReferenceTensor &logits, ReferenceTensor &teacher,
    const ReferenceTensor &labels, const ReferenceTensor &nllCotangent,
    const ReferenceTensor &klCotangent) {
  const int64_t tokens = logits.shape[0], vocabulary = logits.shape[1];
  if (failed(expectSize(op, "rows of the teacher", teacher.shape[0], tokens)) ||
      failed(expectSize(op, "length of the cotangent of kl", klCotangent.size(),
                        tokens)))
    return failure();
  ReferenceTensor student = logits, kl{{tokens}, {}};
  for (int64_t t = 0; t < tokens; ++t) {
    auto p = MutableArrayRef(student.values).slice(t * vocabulary, vocabulary);
    auto q = MutableArrayRef(teacher.values).slice(t * vocabulary, vocabulary);
    softmax(p);
    softmax(q);
    double sum = 0.0;
    for (auto [own, wanted] : llvm::zip_equal(p, q))
      sum += wanted > 0.0 ? wanted * (std::log(wanted) - std::log(own)) : 0.0;
    kl.values.push_back(sum);
  }
  auto nll = differentiateLoss(op, logits, labels, nllCotangent);
  if (failed(nll))
    return failure();
  for (int64_t t = 0; t < tokens; ++t) {
    auto label = readLabel(op, labels, t, vocabulary);
    if (succeeded(label) && !*label) {
      kl.values[t] = 0.0;
      continue;
    }
    for (int64_t v = 0; v < vocabulary; ++v)
      logits.at(t, v) +=
          klCotangent.values[t] * (student.at(t, v) - teacher.at(t, v));
  }
  return DistillationLosses{std::move(*nll), std::move(kl)};
}

static LogicalResult evaluate(Machine &machine, DistillationVjpOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const WeightView head(machine, op.getHead());
  auto logits = linear(machine, op, x, head, Value());
  auto teacher = linear(machine, op, machine.tensor(op.getTeacher()),
                        WeightView(machine, op.getTeacherHead()), Value());
  if (failed(logits) || failed(teacher) ||
      failed(differentiateDistillation(op, *logits, *teacher,
                                       machine.tensor(op.getLabels()),
                                       machine.tensor(op.getNllCotangent()),
                                       machine.tensor(op.getKlCotangent()))) ||
      failed(setResult(machine, op, op.getDx(),
                       inputVjp(machine, op, *logits, head))))
    return failure();
  return setResult(machine, op, op.getDhead(),
                   weightVjp(machine, op, x, *logits));
}

static LogicalResult evaluate(Machine &machine, EmbeddingVjpOp op) {
  const ReferenceTensor &ids = machine.tensor(op.getIds());
  const ReferenceTensor &cotangent = machine.tensor(op.getCotangent());
  int64_t rows = op.getResult().getType().getDimSize(0);
  auto result = machine.allocate(op, {rows, cotangent.shape[1]});
  if (failed(result) || failed(expectSize(op, "rows of the cotangent",
                                          cotangent.shape[0], ids.size())))
    return failure();
  for (int64_t t = 0; t < ids.size(); ++t) {
    FailureOr<int64_t> id = readId(op, ids, t, rows);
    if (failed(id))
      return failure();
    if (op.getPaddingId() == static_cast<uint64_t>(*id))
      continue;
    for (int64_t j = 0; j < cotangent.shape[1]; ++j)
      result->at(*id, j) += cotangent.at(t, j);
  }
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, KeepSelectedOp op) {
  ReferenceTensor x = machine.tensor(op.getX());
  const ReferenceTensor &ids = machine.tensor(op.getIds());
  auto selected = readSelected(op, machine.tensor(op.getSelected()));
  if (failed(selected) ||
      failed(expectSize(op, "length of ids", ids.size(), x.shape[0])))
    return failure();
  for (int64_t t = 0; t < x.shape[0]; ++t)
    if (selected->contains(toInteger(ids.values[t])) == op.getOthers())
      for (int64_t j = 0; j < x.shape[1]; ++j)
        x.at(t, j) = 0.0;
  return machine.set(op, op.getResult(), std::move(x));
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

static LogicalResult evaluate(Machine &machine, RowGradientOp op) {
  const ReferenceTensor &index = machine.tensor(op.getIndex());
  const ReferenceTensor &cotangent = machine.tensor(op.getCotangent());
  int64_t columns = cotangent.shape[1];
  auto pairs = machine.allocate(op, {index.size(), 1 + columns});
  if (failed(pairs) || failed(expectSize(op, "rows of the cotangent",
                                         cotangent.shape[0], index.size())))
    return failure();
  for (int64_t t = 0; t < index.size(); ++t) {
    pairs->at(t, 0) = index.values[t];
    for (int64_t j = 0; j < columns; ++j)
      pairs->at(t, 1 + j) = cotangent.at(t, j);
  }
  return machine.set(op, op.getResult(), std::move(*pairs));
}

static LogicalResult evaluate(Machine &machine, MergeRowGradientsOp op) {
  const ReferenceTensor &lhs = machine.tensor(op.getLhs());
  const ReferenceTensor &rhs = machine.tensor(op.getRhs());
  auto pairs =
      machine.allocate(op, {lhs.shape[0] + rhs.shape[0], lhs.shape[1]});
  if (failed(pairs))
    return failure();
  llvm::copy(rhs.values, llvm::copy(lhs.values, pairs->values.begin()));
  return machine.set(op, op.getResult(), std::move(*pairs));
}

/// The id of each row's number.
static FailureOr<std::map<int64_t, int64_t>>
readIdsByNumber(Operation *op, const ReferenceTensor &index,
                const ReferenceTensor &ids) {
  if (failed(expectSize(op, "length of ids", ids.size(), index.size())))
    return failure();
  std::map<int64_t, int64_t> idOf;
  for (int64_t t = 0; t < index.size(); ++t) {
    int64_t number = toInteger(index.values[t]), id = toInteger(ids.values[t]);
    auto [known, isNew] = idOf.try_emplace(number, id);
    if (known->second != id)
      return op->emitError() << "index " << number << " stands for the ids "
                             << known->second << " and " << id;
  }
  return idOf;
}

static LogicalResult evaluate(Machine &machine, TableGradientOp op) {
  const ReferenceTensor &pairs = machine.tensor(op.getPairs());
  auto idOf = readIdsByNumber(op, machine.tensor(op.getIndex()),
                              machine.tensor(op.getIds()));
  if (failed(idOf))
    return failure();
  int64_t columns = pairs.shape[1] - 1;
  std::map<int64_t, std::vector<double>> sums;
  for (int64_t i = 0; i < pairs.shape[0]; ++i) {
    int64_t number = toInteger(pairs.at(i, 0));
    auto id = idOf->find(number);
    if (id == idOf->end())
      return op.emitError() << "pair " << i << " is of row " << number
                            << ", which is not in index";
    std::vector<double> &sum = sums[id->second];
    sum.resize(columns);
    for (int64_t j = 0; j < columns; ++j)
      sum[j] += pairs.at(i, 1 + j);
  }
  int64_t count = static_cast<int64_t>(sums.size());
  ReferenceTensor unique{{count}, {}}, rows{{count, columns}, {}};
  for (const auto &[id, sum] : sums) {
    unique.values.push_back(static_cast<double>(id));
    llvm::append_range(rows.values, sum);
  }
  if (failed(machine.set(op, op.getUnique(), std::move(unique))))
    return failure();
  return machine.set(op, op.getRows(), std::move(rows));
}

Evaluated reference::evaluateGradientOp(Machine &machine, Operation *op) {
  return llvm::TypeSwitch<Operation *, Evaluated>(op)
      .Case<RMSNormVjpOp, SiluVjpOp, LinearInputVjpOp, LinearWeightVjpOp,
            SumTokensOp, AttentionVjpOp, AttendVjpOp, DenseFFNVjpOp,
            GatedFFNVjpOp, CrossEntropyVjpOp, DistillationVjpOp, EmbeddingVjpOp,
            KeepSelectedOp, RowGradientOp, MergeRowGradientsOp,
            TableGradientOp>(
          [&](auto known) { return evaluate(machine, known); })
      .Default([](Operation *) { return std::nullopt; });
}
