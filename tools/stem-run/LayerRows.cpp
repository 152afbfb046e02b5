//===- LayerRows.cpp - Rows of a layer, in parts of its columns ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerRows.h"

#include <algorithm>

using namespace stem;

namespace {

/// Positions whose rows of a part are mapped at a time.
constexpr int64_t kPiece = 256;

const float *advanced(const float *matrix, int64_t elements) {
  return matrix ? matrix + elements : nullptr;
}
float *advanced(float *matrix, int64_t elements) {
  return matrix ? matrix + elements : nullptr;
}

RowPositions pieceOf(const RowPositions &all, int64_t first, int64_t count,
                     int64_t width) {
  const auto part = [&](auto values) {
    return values.empty() ? values
                          : values.subspan(static_cast<size_t>(first),
                                           static_cast<size_t>(count));
  };
  return {part(all.index), advanced(all.gate, first * width),
          advanced(all.up, first * width), part(all.counted)};
}

} // namespace

int64_t LayerRows::fileBytes(int64_t rows, int64_t columns) {
  return RowStatistics::bytes(rows, columns) - rows * int64_t(sizeof(int64_t));
}

int64_t LayerRows::pieceBytes(int64_t rows, int64_t columns) {
  // A fault maps the pages around it too.
  constexpr int64_t around = 64 << 10;
  return std::min(fileBytes(rows, columns),
                  3 * kPiece * (columns * int64_t(sizeof(float)) + 2 * around));
}

void LayerRows::Part::leave() const {
  if (file)
    file->leave(0, static_cast<int64_t>(fit.table().size()));
}

void LayerRows::add(RowFit &&part, const std::filesystem::path &spillFolder) {
  std::unique_ptr<SpillFile> file;
  if (!spillFolder.empty()) {
    const std::span<const float> table = part.table();
    file = std::make_unique<SpillFile>(
        spillFolder, static_cast<int64_t>(table.size_bytes()), "rows");
    file->write(table);
    part.moveTo(file->data());
  }
  parts.push_back({std::move(part), std::move(file)});
}

void LayerRows::visit(const std::function<void(RowFit &, size_t)> &work) {
  for (size_t i = 0; i < parts.size(); ++i) {
    work(parts[i].fit, i);
    parts[i].leave();
  }
}

void LayerRows::visit(
    const RowPositions &positions,
    const std::function<void(const RowFit &, size_t, const RowPositions &,
                             int64_t)> &work) const {
  const int64_t count = static_cast<int64_t>(positions.index.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part &part = parts[i];
    const int64_t piece = part.file ? kPiece : count;
    for (int64_t first = 0; first < count; first += piece) {
      work(part.fit, i,
           pieceOf(positions, first, std::min(piece, count - first),
                   part.fit.range().width),
           first);
      part.leave();
    }
  }
}

void LayerRows::prior(const float *features, int64_t count, float *out) const {
  for (const Part &part : parts)
    part.fit.prior(features, count, out);
}

void LayerRows::rows(std::span<const int32_t> index, float *out) const {
  apply({index}, {out});
}

void LayerRows::apply(const RowPositions &positions,
                      const RowOutputs &outputs) const {
  visit(positions, [&](const RowFit &part, size_t, const RowPositions &piece,
                       int64_t first) {
    const int64_t at = first * part.range().width;
    part.apply(piece, {advanced(outputs.rows, at), advanced(outputs.gated, at),
                       advanced(outputs.error, at)});
  });
}
