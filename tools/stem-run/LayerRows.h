//===- LayerRows.h - Rows of a layer, in parts of its columns ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_LAYERROWS_H
#define STEM_TOOLS_STEM_RUN_LAYERROWS_H

#include "SpillFile.h"

#include "stem/Calibration/RowFit.h"

#include <functional>
#include <memory>
#include <vector>

namespace stem {

/// How the rows of a layer are held. The dimensions of d_ff are independent:
/// their sums are taken and fitted for some columns at a time, with a pass over
/// the text for each part.
struct RowParts {
  int64_t columns = 0; ///< of a part, whole panels; 0: all
  /// What was fitted is in files there; empty: in memory.
  std::filesystem::path spillFolder;
};

/// The fitted rows of a layer. Of a part in a file, rows are in memory as long
/// as they are worked with.
class LayerRows {
public:
  /// Parts come in order of their columns. `spillFolder` as in RowParts.
  void add(RowFit &&part, const std::filesystem::path &spillFolder);

  /// The memory of a part, for the next rows; these are not used any more.
  Arena takeMemory() { return parts.front().fit.takeMemory(); }

  /// Goes through the parts; `number` is 0 for the first.
  void visit(const std::function<void(RowFit &, size_t number)> &work);
  /// The same with the positions in pieces, which begin at `first`.
  void visit(const RowPositions &positions,
             const std::function<void(const RowFit &, size_t number,
                                      const RowPositions &piece, int64_t first)>
                 &work) const;
  /// Bytes of a part in memory meanwhile, of those that it has in its file.
  static int64_t pieceBytes(int64_t rows, int64_t columns);
  static int64_t fileBytes(int64_t rows, int64_t columns);

  double shrinkage() const { return parts.front().fit.shrinkage(); }

  /// As of RowFit, over all columns.
  void prior(const float *features, int64_t count, float *out) const;
  void rows(std::span<const int32_t> index, float *out) const;
  void apply(const RowPositions &positions, const RowOutputs &outputs) const;

private:
  struct Part {
    RowFit fit;
    std::unique_ptr<SpillFile> file; ///< null: in memory
    void leave() const;
  };
  std::vector<Part> parts;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_LAYERROWS_H
