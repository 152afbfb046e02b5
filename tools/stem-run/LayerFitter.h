//===- LayerFitter.h - The table of one layer -----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_LAYERFITTER_H
#define STEM_TOOLS_STEM_RUN_LAYERFITTER_H

#include "HiddenStates.h"
#include "KeptProducts.h"
#include "KeptTaps.h"
#include "LayerRows.h"
#include "LayerRunner.h"

#include "stem/Calibration/LowRankFit.h"
#include "stem/Calibration/LowRankTerm.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace stem {

struct LayerFitOptions {
  std::vector<double> shrinkages = {1, 4, 16};     ///< k to choose from
  std::vector<double> ridges = {1e-3, 1e-2, 1e-1}; ///< of W_down
  int64_t rank = 0; ///< of the low-rank term; 0: none
  /// Share of the errors from the layers below that W_down is asked to undo.
  double carry = 0.5;
  bool isOneRow = false; ///< one row for all ids
  /// Whether what enters W_down is kept for `propagate`, which then is one
  /// product a place; KeptProducts::bytes of the text to fit, which is then the
  /// same for all layers.
  bool keepsProducts = false;
  /// Whether the taps of the text to fit are kept, so that its passes run the
  /// gate and the up-projection once; KeptTaps::bytes of it, likewise.
  bool keepsTaps = false;
  /// One flag for each of the text's ids: it keeps the matrix. Empty: none.
  std::vector<uint8_t> keepsMatrix;
  /// The same for a position of the text to fit that is left out: an id that
  /// is there often enough only with it stands for one that keeps the matrix.
  std::vector<uint8_t> keepsMatrixLeftOut;
};

/// Changes the row of an id to what a reader of the folder finds there.
using StoredRow = std::function<void(int32_t id, std::span<float> row)>;

/// What the conversion of one layer did, on the text that it chose with.
struct CalibratedLayer {
  uint64_t layer = 0;
  double shrinkage = 0; ///< k
  double ridge = 0;     ///< 0: every one made it worse, W_down stays
  /// Squared error of the FFN's output over that of the output itself, before
  /// and after W_down was fitted again.
  double errorBefore = 0, errorAfter = 0;
};

/// What takes the place of a layer's up-projection.
struct LayerFit {
  CalibratedLayer figures;
  LayerRows rows;
  std::optional<LowRankTerm> lowRank;
  std::vector<float> down; ///< the new W_down, d x F
  /// Of the text that it was fitted to, if they were to be kept; the fitter's,
  /// until it fits the next layer.
  const KeptProducts *products = nullptr;
};

/// A text behind the attention of a layer.
struct LayerText {
  const HiddenStates &states;          ///< in the model as converted so far
  const HiddenStates *dense = nullptr; ///< in the dense model; null: the same
};

/// Adds the `share` of the errors from the layers below to `target`, what is
/// asked of W_down (places x d). Part of them follows from z, and W_down can
/// take it back, unless a norm stands between it and the states: none is added
/// then.
void addCarry(LayerRunner &runner, const Checkpoint &checkpoint, uint64_t layer,
              const LayerText &text, const TokenStream::Step &step,
              double share, float *target);

/// Fits a layer to its dense form.
class LayerFitter {
public:
  /// `ids`: the text's, rising. All of these outlive the object.
  LayerFitter(const Checkpoint &checkpoint, LayerRunner &runner,
              std::span<const int32_t> ids, RowParts parts = {});

  /// Bytes: buffers of a step; of a layer's rows in so many parts what stays
  /// beside their sums, the ids' embeddings included; the most that a fit takes
  /// beside these, `rowFit` for sums and prior of a part, `choose` being the
  /// places of that text.
  static int64_t stepBytes(const ModelConfig &config, int64_t stepTokens);
  static int64_t rowBytes(const ModelConfig &config, int64_t ids,
                          int64_t parts);
  static int64_t workBytes(const ModelConfig &config, int64_t rowFit,
                           int64_t rank, int64_t choose, int threads);

  LayerFit fit(uint64_t layer, const LayerText &fit, const LayerText &choose,
               const LayerFitOptions &options);

  /// Fits the next layer in the memory of these rows.
  void reuse(LayerRows &&rows) { spentRows = rows.takeMemory(); }

  /// What each rank of a low-rank term, from 1 on, would take off the weighted
  /// error of the rows, as a share of what the full rank takes off; falling.
  std::vector<double> rankGains(uint64_t layer, const HiddenStates &fit,
                                const LayerFitOptions &options);

  /// Runs the layer's FFN as converted. `leaveOneOut`: on the text that it was
  /// fitted to.
  void propagate(const LayerFit &layer, HiddenStates &states,
                 const LayerFitOptions &options, bool leaveOneOut);
  /// The same with rows as they are stored.
  void propagateStored(const LayerFit &layer, HiddenStates &states,
                       const LayerFitOptions &options, const StoredRow &store);

private:
  struct Layer; ///< in work

  void readEmbeddings();
  template <typename Body>
  void forEach(int64_t count, int64_t width, const Body &body);
  TapRows taps(const Layer &layer, const HiddenStates &states,
               const TokenStream::Step &step);
  void keepTaps(Layer &layer, const HiddenStates &fit);
  void applyRows(const Layer &layer, const LayerRows &rows,
                 const HiddenStates &states, const TokenStream::Step &step,
                 const TapRows &taps, bool leaveOneOut);
  void applyStored(const Layer &layer, const LayerRows &rows,
                   const HiddenStates &states, const TokenStream::Step &step,
                   const TapRows &taps, const StoredRow &store);
  void project(const Layer &layer, HiddenStates &states,
               const TokenStream::Step &step);
  void keepMatrix(const Layer &layer, const RowPositions &positions);
  LayerRows fitRows(const Layer &layer, const HiddenStates &fit);
  RowFit fitPart(const Layer &layer, RowStatistics &&sums);
  RowStatistics statistics(const Layer &layer, const HiddenStates &fit,
                           ColumnRange range);
  void solveLowRank(const Layer &layer, const LayerRows &rows,
                    const HiddenStates &fit, LowRankFit &sums);
  LowRankTerm fitLowRank(const Layer &layer, const LayerRows &rows,
                         const HiddenStates &fit);
  void chooseShrinkage(const Layer &layer, LayerRows &rows,
                       const HiddenStates &choose);
  std::vector<float> refitDown(const Layer &layer, const LayerRows &rows,
                               const LayerText &fit, const LayerText &choose,
                               CalibratedLayer &figures,
                               KeptProducts *products);
  std::vector<float> readDown(uint64_t layer) const;

  const Checkpoint &checkpoint;
  LayerRunner &runner;
  std::span<const int32_t> ids;
  int64_t d, f;
  RowParts parts;
  /// Of the text's ids, as they are in the model.
  Arena embeddings;
  /// Of the layer in work. Its pages stay from layer to layer: new ones take
  /// longer than what is written to them.
  std::optional<KeptProducts> keptProducts;
  std::optional<KeptTaps> keptTaps; ///< likewise
  Arena spentRows;                  ///< likewise
  /// Of one step: hidden states, targets and what enters the FFN (places x d);
  /// gate, up, g ⊙ (U + M h), g ⊙ (u − U − M h) and M h (places x F).
  std::vector<float> hidden, target, normed, gate, up, gated, error, term;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_LAYERFITTER_H
