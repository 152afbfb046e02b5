//===- TableRows.cpp - What the rows of a new table start from ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TableRows.h"

#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Pack.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Runtime/Philox.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

using namespace stem;

TableRows::~TableRows() = default;

uint64_t stem::rowsAtATime(const ModelConfig &config) {
  return std::min(std::max<uint64_t>((2 << 20) / config.intermediateSize, 64),
                  config.vocabSize);
}

int64_t stem::rowWritingBytes(const ModelConfig &config, int threads) {
  const uint64_t f = config.intermediateSize;
  return static_cast<int64_t>(
      rowsAtATime(config) * sizeof(float) *
      (f + static_cast<uint64_t>(threads) * (2 * f + config.hiddenSize)));
}

NormedEmbeddings::NormedEmbeddings(const Checkpoint &checkpoint, uint64_t layer)
    : source(checkpoint.tensors()), embedding(checkpoint.weights().embedding),
      width(checkpoint.config().hiddenSize),
      epsilon(checkpoint.config().rmsNormEps) {
  if (checkpoint.config().normAfterBlock)
    return;
  weight.resize(width);
  source.readF32(checkpoint.weights().layers[layer].postAttentionNorm, 0, 1,
                 weight.data());
}

void NormedEmbeddings::read(uint64_t first, uint64_t count, float *out) const {
  source.readF32(embedding, first, count, out);
  source.release(embedding, first, count);
  normalize(out, count);
}

void NormedEmbeddings::normalize(float *rows, uint64_t count) const {
  if (weight.empty())
    return;
  for (float *row = rows; row < rows + count * width; row += width) {
    double squares = 0;
    for (uint64_t i = 0; i < width; ++i)
      squares += double(row[i]) * row[i];
    const float scale = static_cast<float>(
        1 / std::sqrt(squares / static_cast<double>(width) + epsilon));
    for (uint64_t i = 0; i < width; ++i)
      row[i] *= scale * weight[i];
  }
}

namespace {

std::vector<float> readBias(const Checkpoint &checkpoint, uint64_t layer) {
  std::vector<float> bias(checkpoint.config().intermediateSize);
  const std::string &name = checkpoint.weights().layers[layer].upBias;
  if (!name.empty())
    checkpoint.tensors().readF32(name, 0, 1, bias.data());
  return bias;
}

class EmbeddingRows : public TableRows {
public:
  EmbeddingRows(const Checkpoint &checkpoint, uint64_t layer,
                stem_context *context)
      : context(context), embeddings(checkpoint, layer),
        bias(readBias(checkpoint, layer)),
        d(static_cast<int64_t>(checkpoint.config().hiddenSize)),
        f(static_cast<int64_t>(checkpoint.config().intermediateSize)),
        packed(packedBytes(STEM_F32, d, f), "an up-projection") {
    packUpProj(checkpoint.tensors(), checkpoint.weights().layers[layer].upProj);
  }

  void fill(uint64_t first, uint64_t count, float *out) override {
    constexpr int64_t tile = 32;
    std::vector<float> input(count * static_cast<uint64_t>(d));
    embeddings.read(first, count, input.data());
    const int64_t rows = static_cast<int64_t>(count);
    parallelFor(context, (rows + tile - 1) / tile, [&](int64_t task) {
      const int64_t begin = task * tile;
      const int64_t m = std::min(tile, rows - begin);
      for (int64_t row = begin; row < begin + m; ++row)
        std::copy(bias.begin(), bias.end(), out + row * f);
      stem_packed_matmul(context, input.data() + begin * d, d, packed.data(),
                         STEM_F32, d, f, 0, 0, out + begin * f, f, m, d, f,
                         /*accumulate=*/1);
    });
  }

private:
  void packUpProj(const TensorSource &source, const std::string &name) {
    const PackTarget target{packed.data(), STEM_F32, d, f};
    const int64_t step = std::clamp<int64_t>((1 << 20) / d, 1, f);
    std::vector<float> block(static_cast<size_t>(step * d));
    for (int64_t row = 0; row < f; row += step) {
      const int64_t count = std::min(step, f - row);
      source.readF32(name, static_cast<uint64_t>(row),
                     static_cast<uint64_t>(count), block.data());
      packWeight(target, row, count, {block.data(), STEM_F32, d});
    }
    source.release(name);
  }

  stem_context *context;
  NormedEmbeddings embeddings;
  std::vector<float> bias;
  int64_t d, f;
  Arena packed;
};

/// W_up is linear: the mean of the rows is the row of the mean.
class MeanRows : public TableRows {
public:
  MeanRows(const Checkpoint &checkpoint, uint64_t layer)
      : mean(readBias(checkpoint, layer)) {
    const std::vector<double> input = meanEmbedding(checkpoint, layer);
    const TensorSource &source = checkpoint.tensors();
    const std::string &name = checkpoint.weights().layers[layer].upProj;
    std::vector<float> row(input.size());
    for (size_t i = 0; i < mean.size(); ++i) {
      source.readF32(name, i, 1, row.data());
      double sum = mean[i];
      for (size_t k = 0; k < row.size(); ++k)
        sum += input[k] * row[k];
      mean[i] = static_cast<float>(sum);
    }
    source.release(name);
  }

  void fill(uint64_t, uint64_t count, float *out) override {
    for (uint64_t row = 0; row < count; ++row)
      std::copy(mean.begin(), mean.end(), out + row * mean.size());
  }

private:
  static std::vector<double> meanEmbedding(const Checkpoint &checkpoint,
                                           uint64_t layer) {
    const uint64_t d = checkpoint.config().hiddenSize;
    const uint64_t vocab = checkpoint.config().vocabSize;
    const NormedEmbeddings embeddings(checkpoint, layer);
    const uint64_t step = std::clamp<uint64_t>((1 << 20) / d, 1, vocab);
    std::vector<float> block(step * d);
    std::vector<double> sum(d);
    for (uint64_t row = 0; row < vocab; row += step) {
      const uint64_t count = std::min(step, vocab - row);
      embeddings.read(row, count, block.data());
      for (uint64_t i = 0; i < count * d; ++i)
        sum[i % d] += block[i];
    }
    for (double &value : sum)
      value /= static_cast<double>(vocab);
    return sum;
  }

  std::vector<float> mean;
};

class XavierRows : public TableRows {
public:
  XavierRows(const Checkpoint &checkpoint, uint64_t layer, uint64_t seed,
             stem_context *context)
      : context(context), seed(seed), layer(layer),
        columns(checkpoint.config().intermediateSize),
        deviation(
            std::sqrt(2.0 / static_cast<double>(checkpoint.config().vocabSize +
                                                columns))) {}

  void fill(uint64_t first, uint64_t count, float *out) override {
    parallelFor(context, static_cast<int64_t>(count), [&](int64_t row) {
      const uint64_t start = (first + static_cast<uint64_t>(row)) * columns;
      float *target = out + static_cast<uint64_t>(row) * columns;
      for (uint64_t i = 0; i < columns; ++i)
        target[i] = static_cast<float>(deviation * normal(start + i));
    });
  }

private:
  /// Standard normal number `index` (Box and Muller).
  double normal(uint64_t index) const {
    const double radius = philoxUniform(seed, layer, 2 * index);
    const double angle = philoxUniform(seed, layer, 2 * index + 1);
    return std::sqrt(-2 * std::log1p(-radius)) *
           std::cos(2 * std::numbers::pi * angle);
  }

  stem_context *context;
  uint64_t seed, layer, columns;
  double deviation;
};

} // namespace

std::unique_ptr<TableRows> stem::makeTableRows(const TableInit &init,
                                               const Checkpoint &checkpoint,
                                               uint64_t layer,
                                               stem_context *context) {
  if (init.kind == "embedding")
    return std::make_unique<EmbeddingRows>(checkpoint, layer, context);
  if (init.kind == "row-mean")
    return std::make_unique<MeanRows>(checkpoint, layer);
  if (init.kind == "xavier")
    return std::make_unique<XavierRows>(checkpoint, layer, init.seed, context);
  fail("--init={}: unknown; embedding, row-mean and xavier are known",
       init.kind);
}
