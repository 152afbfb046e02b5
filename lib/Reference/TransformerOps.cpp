//===- TransformerOps.cpp - Blocks of a transformer -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientOps.h"
#include "Machine.h"
#include "stem/Dialect/Stem/StemDialect.h"

#include <cmath>

using namespace mlir;
using namespace stem;
using namespace stem::reference;

WeightView::WeightView(const Machine &machine, Value weight)
    : tensor(machine.tensor(weight)),
      isPacked(isa<PackedType>(weight.getType())) {
  inputs = tensor.shape[isPacked ? 0 : 1];
  outputs = tensor.shape[isPacked ? 1 : 0];
}

FailureOr<int64_t> reference::readId(Operation *op, const ReferenceTensor &ids,
                                     int64_t t, int64_t rows) {
  int64_t id = toInteger(ids.values[t]);
  if (id < 0 || id >= rows)
    return op->emitError() << "id " << id << " at token " << t
                           << " is outside of a matrix of " << rows << " rows";
  return id;
}

FailureOr<std::optional<int64_t>>
reference::readLabel(Operation *op, const ReferenceTensor &labels, int64_t t,
                     int64_t vocabulary) {
  int64_t label = toInteger(labels.values[t]);
  if (label == -100)
    return std::optional<int64_t>();
  if (label < 0 || label >= vocabulary)
    return op->emitError() << "label " << label << " at token " << t
                           << " is outside of a vocabulary of " << vocabulary;
  return std::optional(label);
}

int64_t reference::firstVisible(int64_t position, int64_t window) {
  return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
}

void reference::softmax(MutableArrayRef<double> scores) {
  double largest = *llvm::max_element(scores), sum = 0.0;
  for (double &score : scores)
    sum += score = std::exp(score - largest);
  for (double &score : scores)
    score /= sum;
}

double reference::silu(double x) { return x / (1.0 + std::exp(-x)); }

FailureOr<ReferenceTensor> reference::linear(Machine &machine, Operation *op,
                                             const ReferenceTensor &x,
                                             const WeightView &weight,
                                             Value bias) {
  int64_t rows = x.shape[0];
  if (failed(expectSize(op, "number of columns", x.shape[1], weight.inputs)) ||
      failed(machine.spend(op, rows * weight.inputs * weight.outputs)))
    return failure();
  const ReferenceTensor *offset = bias ? &machine.tensor(bias) : nullptr;
  if (offset && failed(expectSize(op, "length of the bias", offset->size(),
                                  weight.outputs)))
    return failure();
  auto result = machine.allocate(op, {rows, weight.outputs});
  if (failed(result))
    return failure();
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t n = 0; n < weight.outputs; ++n) {
      double sum = offset ? offset->values[n] : 0.0;
      for (int64_t k = 0; k < weight.inputs; ++k)
        sum += x.at(t, k) * weight.at(n, k);
      result->at(t, n) = sum;
    }
  return result;
}

LogicalResult reference::finishFFN(Machine &machine, Operation *op,
                                   ReferenceTensor gate,
                                   const ReferenceTensor &up, Value down,
                                   Value downBias) {
  if (failed(expectSize(op, "rows of up", up.shape[0], gate.shape[0])) ||
      failed(expectSize(op, "columns of up", up.shape[1], gate.shape[1])))
    return failure();
  for (int64_t i = 0; i < gate.size(); ++i)
    gate.values[i] = silu(gate.values[i]) * up.values[i];
  auto result = linear(machine, op, gate, WeightView(machine, down), downBias);
  if (failed(result))
    return failure();
  return machine.set(op, op->getResult(0), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, EmbeddingOp op) {
  const ReferenceTensor &ids = machine.tensor(op.getIds());
  const ReferenceTensor &weight = machine.tensor(op.getWeight());
  // Packed: K x N, a row of the embedding is a column.
  bool isPacked = isa<PackedType>(op.getWeight().getType());
  int64_t rows = weight.shape[isPacked ? 1 : 0];
  int64_t columns = weight.shape[isPacked ? 0 : 1];
  auto result = machine.allocate(op, {ids.size(), columns});
  if (failed(result))
    return failure();
  for (int64_t t = 0; t < ids.size(); ++t) {
    FailureOr<int64_t> id = readId(op, ids, t, rows);
    if (failed(id))
      return failure();
    for (int64_t j = 0; j < columns; ++j)
      result->at(t, j) = isPacked ? weight.at(j, *id) : weight.at(*id, j);
  }
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, RMSNormOp op) {
  ReferenceTensor x = machine.tensor(op.getX());
  const ReferenceTensor &weight = machine.tensor(op.getWeight());
  int64_t group = weight.size();
  double eps = op.getEps().convertToDouble();
  for (int64_t start = 0; start + group <= x.size(); start += group) {
    double *values = x.values.data() + start;
    double squares = 0.0;
    for (int64_t j = 0; j < group; ++j)
      squares += values[j] * values[j];
    double factor = 1.0 / std::sqrt(squares / group + eps);
    for (int64_t j = 0; j < group; ++j)
      values[j] *= factor * weight.values[j];
  }
  return machine.set(op, op.getResult(), std::move(x));
}

static LogicalResult evaluate(Machine &machine, SiluOp op) {
  ReferenceTensor x = machine.tensor(op.getX());
  for (double &value : x.values)
    value = silu(value);
  return machine.set(op, op.getResult(), std::move(x));
}

static LogicalResult evaluate(Machine &machine, LinearOp op) {
  auto result = linear(machine, op, machine.tensor(op.getX()),
                       WeightView(machine, op.getWeight()), op.getBias());
  if (failed(result))
    return failure();
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, RotaryAnglesOp op) {
  const ReferenceTensor &positions = machine.tensor(op.getPositions());
  ArrayRef<float> frequencies = op.getInvFreq();
  int64_t half = frequencies.size();
  double scaling = op.getScaling().convertToDouble();
  auto cosines = machine.allocate(op, {positions.size(), half});
  if (failed(cosines))
    return failure();
  ReferenceTensor sines = *cosines;
  for (int64_t t = 0; t < positions.size(); ++t)
    for (int64_t j = 0; j < half; ++j) {
      double angle = positions.values[t] * static_cast<double>(frequencies[j]);
      cosines->at(t, j) = scaling * std::cos(angle);
      sines.at(t, j) = scaling * std::sin(angle);
    }
  if (failed(machine.set(op, op.getCos(), std::move(*cosines))))
    return failure();
  return machine.set(op, op.getSin(), std::move(sines));
}

static LogicalResult evaluate(Machine &machine, RopeOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const ReferenceTensor &cosines = machine.tensor(op.getCos());
  const ReferenceTensor &sines = machine.tensor(op.getSin());
  int64_t rows = x.shape[0], columns = x.shape[1], half = cosines.shape[1];
  if (failed(expectSize(op, "rows of cos", cosines.shape[0], rows)) ||
      failed(expectSize(op, "rows of sin", sines.shape[0], rows)) ||
      failed(expectSize(op, "columns of sin", sines.shape[1], half)))
    return failure();
  ReferenceTensor result = x;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t head = 0; head < columns; head += 2 * half)
      for (int64_t j = 0; j < half; ++j) {
        double a = x.at(t, head + j), b = x.at(t, head + half + j);
        double c = cosines.at(t, j), s = sines.at(t, j);
        result.at(t, head + j) = a * c - b * s;
        result.at(t, head + half + j) = b * c + a * s;
      }
  return machine.set(op, op.getResult(), std::move(result));
}

namespace {

/// Attention over what a cache holds.
struct Attention {
  const ReferenceCache &cache;
  int64_t handle, layer;
  int64_t headDim, queryHeads, keyValueHeads;
  double scale;
  int64_t window;

  FailureOr<ReferenceTensor> run(Machine &machine, Operation *op,
                                 const ReferenceTensor &q,
                                 const ReferenceTensor &positions,
                                 const ReferenceTensor &sequences,
                                 ReferenceTensor *logSumExp = nullptr) const;
  /// One query head of one token; adds `headDim` values to `out`. Gives the
  /// logarithm of what its probabilities are divided by.
  double attend(const double *query, int64_t sequence, int64_t position,
                int64_t keyValueHead, double *out) const;
};

} // namespace

double Attention::attend(const double *query, int64_t sequence,
                         int64_t position, int64_t keyValueHead,
                         double *out) const {
  int64_t column = keyValueHead * headDim;
  SmallVector<int64_t> seen;
  SmallVector<double> scores;
  for (int64_t p = firstVisible(position, window); p <= position; ++p) {
    if (!cache.contains(handle, layer, sequence, p))
      continue;
    double score = 0.0;
    for (int64_t j = 0; j < headDim; ++j)
      score += query[j] * cache.key(handle, layer, sequence, p, column + j);
    seen.push_back(p);
    scores.push_back(score * scale);
  }
  if (seen.empty())
    return 0.0;
  double largest = *llvm::max_element(scores), sum = 0.0;
  for (double score : scores)
    sum += std::exp(score - largest);
  softmax(scores);
  for (auto [p, share] : llvm::zip_equal(seen, scores))
    for (int64_t j = 0; j < headDim; ++j)
      out[j] += share * cache.value(handle, layer, sequence, p, column + j);
  return largest + std::log(sum);
}

// A token with a negative sequence is padding: it sees nothing, nothing sees
// it, and its result is zero.
FailureOr<ReferenceTensor> Attention::run(Machine &machine, Operation *op,
                                          const ReferenceTensor &q,
                                          const ReferenceTensor &positions,
                                          const ReferenceTensor &sequences,
                                          ReferenceTensor *logSumExp) const {
  if (failed(expectSize(op, "number of positions", positions.size(),
                        q.shape[0])) ||
      failed(
          expectSize(op, "number of sequences", sequences.size(), q.shape[0])))
    return failure();
  auto result = machine.allocate(op, q.shape);
  if (failed(result))
    return failure();
  for (int64_t t = 0; t < q.shape[0]; ++t) {
    int64_t position = toInteger(positions.values[t]);
    int64_t sequence = toInteger(sequences.values[t]);
    if (sequence < 0 || position < 0)
      continue;
    if (failed(machine.spend(op, (position + 1) * q.shape[1])))
      return failure();
    for (int64_t h = 0; h < queryHeads; ++h) {
      double logarithm = attend(
          q.values.data() + t * q.shape[1] + h * headDim, sequence, position,
          h / (queryHeads / keyValueHeads), &result->at(t, h * headDim));
      if (logSumExp)
        logSumExp->at(t, h) = logarithm;
    }
  }
  return result;
}

/// Puts the keys and values of tokens into a cache.
static LogicalResult append(ReferenceCache &cache, Operation *op,
                            int64_t handle, int64_t layer,
                            const ReferenceTensor &k, const ReferenceTensor &v,
                            const ReferenceTensor &positions,
                            const ReferenceTensor &sequences) {
  int64_t rows = k.shape[0], columns = k.shape[1];
  if (failed(expectSize(op, "rows of v", v.shape[0], rows)) ||
      failed(expectSize(op, "columns of v", v.shape[1], columns)) ||
      failed(expectSize(op, "number of positions", positions.size(), rows)) ||
      failed(expectSize(op, "number of sequences", sequences.size(), rows)))
    return failure();
  for (int64_t t = 0; t < rows; ++t) {
    int64_t sequence = toInteger(sequences.values[t]);
    if (sequence >= 0)
      cache.append(handle, layer, sequence, toInteger(positions.values[t]),
                   ArrayRef(k.values).slice(t * columns, columns),
                   ArrayRef(v.values).slice(t * columns, columns));
  }
  return success();
}

// The tokens of the call go into a cache first: the caller's, or one of its
// own.
static LogicalResult evaluate(Machine &machine, AttentionOp op) {
  const ReferenceTensor &positions = machine.tensor(op.getPositions());
  const ReferenceTensor &sequences = machine.tensor(op.getSequences());
  ReferenceCache ownCache;
  bool hasCache = static_cast<bool>(op.getCache());
  ReferenceCache &cache = hasCache ? machine.cache : ownCache;
  int64_t handle = hasCache ? machine.integer(op.getCache()) : 0;
  int64_t layer = hasCache ? machine.integer(op.getLayer()) : 0;
  if (failed(append(cache, op, handle, layer, machine.tensor(op.getK()),
                    machine.tensor(op.getV()), positions, sequences)))
    return failure();
  Attention attention{cache,
                      handle,
                      layer,
                      static_cast<int64_t>(op.getHeadDim()),
                      op.getQueryHeads(),
                      op.getKeyValueHeads(),
                      op.getScale().convertToDouble(),
                      static_cast<int64_t>(op.getWindow())};
  auto result = attention.run(machine, op, machine.tensor(op.getQ()), positions,
                              sequences);
  if (failed(result))
    return failure();
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, AttentionLogSumExpOp op) {
  const ReferenceTensor &positions = machine.tensor(op.getPositions());
  const ReferenceTensor &sequences = machine.tensor(op.getSequences());
  const ReferenceTensor &q = machine.tensor(op.getQ());
  ReferenceCache cache;
  if (failed(append(cache, op, 0, 0, machine.tensor(op.getK()),
                    machine.tensor(op.getK()), positions, sequences)))
    return failure();
  Attention attention{cache,
                      0,
                      0,
                      static_cast<int64_t>(op.getHeadDim()),
                      op.getQueryHeads(),
                      op.getKeyValueHeads(),
                      op.getScale().convertToDouble(),
                      static_cast<int64_t>(op.getWindow())};
  auto logSumExp = machine.allocate(op, {q.shape[0], op.getQueryHeads()});
  if (failed(logSumExp) ||
      failed(attention.run(machine, op, q, positions, sequences, &*logSumExp)))
    return failure();
  return machine.set(op, op.getResult(), std::move(*logSumExp));
}

static LogicalResult evaluate(Machine &machine, KVAppendOp op) {
  if (!isa<RankedTensorType>(op.getK().getType()) ||
      !isa<RankedTensorType>(op.getPositions().getType()) ||
      !isa<RankedTensorType>(op.getSequences().getType()))
    return op.emitError("the interpreter runs this op on tensors only");
  return append(machine.cache, op, machine.integer(op.getCache()),
                machine.integer(op.getLayer()), machine.tensor(op.getK()),
                machine.tensor(op.getV()), machine.tensor(op.getPositions()),
                machine.tensor(op.getSequences()));
}

static LogicalResult evaluate(Machine &machine, AttendOp op) {
  Attention attention{machine.cache,
                      machine.integer(op.getCache()),
                      machine.integer(op.getLayer()),
                      static_cast<int64_t>(op.getHeadDim()),
                      op.getQueryHeads(),
                      static_cast<int64_t>(op.getKvHeads()),
                      op.getScale().convertToDouble(),
                      static_cast<int64_t>(op.getWindow())};
  const ReferenceTensor &q = machine.tensor(op.getQ());
  auto logSumExp = machine.allocate(op, {q.shape[0], op.getQueryHeads()});
  if (failed(logSumExp))
    return failure();
  auto result = attention.run(machine, op, q, machine.tensor(op.getPositions()),
                              machine.tensor(op.getSequences()), &*logSumExp);
  if (failed(result) ||
      (op.getLogsumexp() &&
       failed(machine.set(op, op.getLogsumexp(), std::move(*logSumExp)))))
    return failure();
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, DenseFFNOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  auto gate = linear(machine, op, x, WeightView(machine, op.getGate()),
                     op.getGateBias());
  if (failed(gate))
    return failure();
  auto up =
      linear(machine, op, x, WeightView(machine, op.getUp()), op.getUpBias());
  if (failed(up))
    return failure();
  return finishFFN(machine, op, std::move(*gate), *up, op.getDown(),
                   op.getDownBias());
}

static LogicalResult evaluate(Machine &machine, CrossEntropyOp op) {
  const ReferenceTensor &labels = machine.tensor(op.getLabels());
  auto logits = linear(machine, op, machine.tensor(op.getX()),
                       WeightView(machine, op.getHead()), Value());
  if (failed(logits) || failed(expectSize(op, "length of labels", labels.size(),
                                          logits->shape[0])))
    return failure();
  auto result = machine.allocate(op, {labels.size()});
  if (failed(result))
    return failure();
  int64_t vocabulary = logits->shape[1];
  for (int64_t t = 0; t < labels.size(); ++t) {
    auto label = readLabel(op, labels, t, vocabulary);
    if (failed(label))
      return failure();
    if (!*label)
      continue;
    auto row = ArrayRef(logits->values).slice(t * vocabulary, vocabulary);
    double largest = *llvm::max_element(row), sum = 0.0;
    for (double logit : row)
      sum += std::exp(logit - largest);
    result->values[t] = largest + std::log(sum) - row[**label];
  }
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, DistillationOp op) {
  auto logits = linear(machine, op, machine.tensor(op.getX()),
                       WeightView(machine, op.getHead()), Value());
  if (failed(logits))
    return failure();
  auto none = machine.allocate(op, {logits->shape[0]});
  auto teacher = linear(machine, op, machine.tensor(op.getTeacher()),
                        WeightView(machine, op.getTeacherHead()), Value());
  if (failed(none) || failed(teacher))
    return failure();
  auto losses = differentiateDistillation(
      op, *logits, *teacher, machine.tensor(op.getLabels()), *none, *none);
  if (failed(losses) ||
      failed(machine.set(op, op.getNll(), std::move(losses->nll))))
    return failure();
  return machine.set(op, op.getKl(), std::move(losses->kl));
}

Evaluated reference::evaluateTransformerOp(Machine &machine, Operation *op) {
  if (auto embedding = dyn_cast<EmbeddingOp>(op))
    return evaluate(machine, embedding);
  if (auto norm = dyn_cast<RMSNormOp>(op))
    return evaluate(machine, norm);
  if (auto silu = dyn_cast<SiluOp>(op))
    return evaluate(machine, silu);
  if (auto linear = dyn_cast<LinearOp>(op))
    return evaluate(machine, linear);
  if (auto angles = dyn_cast<RotaryAnglesOp>(op))
    return evaluate(machine, angles);
  if (auto rope = dyn_cast<RopeOp>(op))
    return evaluate(machine, rope);
  if (auto attention = dyn_cast<AttentionOp>(op))
    return evaluate(machine, attention);
  if (auto logSumExp = dyn_cast<AttentionLogSumExpOp>(op))
    return evaluate(machine, logSumExp);
  if (auto attend = dyn_cast<AttendOp>(op))
    return evaluate(machine, attend);
  if (auto append = dyn_cast<KVAppendOp>(op))
    return evaluate(machine, append);
  if (auto ffn = dyn_cast<DenseFFNOp>(op))
    return evaluate(machine, ffn);
  if (auto loss = dyn_cast<CrossEntropyOp>(op))
    return evaluate(machine, loss);
  if (auto loss = dyn_cast<DistillationOp>(op))
    return evaluate(machine, loss);
  return std::nullopt;
}
