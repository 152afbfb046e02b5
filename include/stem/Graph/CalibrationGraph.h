//===- CalibrationGraph.h - The parts of a model that calibration runs ----===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_GRAPH_CALIBRATIONGRAPH_H
#define STEM_GRAPH_CALIBRATIONGRAPH_H

#include "stem/Graph/ModelGraph.h"

#include <string>
#include <vector>

namespace stem {

/// A kind of layer: its entries are compiled once, for the weights of
/// `representative`, and run with those of any layer of the kind.
struct CalibrationKind {
  uint64_t representative;
  std::string suffix; ///< of the names of its entries
};

struct CalibrationGraph {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<CalibrationKind> kinds;
  std::vector<size_t> kindOfLayer;
};

/// The model cut open at its residual stream x (T x d, f32), as a module in the
/// graph phase. Entries on token tiles (see buildModelGraph), T tokens, F the
/// width of the FFN:
///
///   embed: (ids, x) -> x
///   score: (x, labels, nll : T x f32) -> nll
///
/// and for each kind of layer K:
///
///   attention_K: (x, positions, sequences, cache, middle : T x d) -> middle
///   ffn_K: (middle, out : T x d) -> out
///
/// of a STEM layer also with rows : R x F in the table's type and index : T,
/// and, where ids keep the up-projection, with ids : T and selected : N. A
/// dense layer has beside them
///
///   taps_K: (middle, hidden : T x d, gate : T x F, up : T x F)
///     -> norm(middle), SiLU(gate), up
///   product_K: (z : T x F, out : T x d) -> W_down z
///   project_K: (middle, z : T x F, out : T x d) -> middle + W_down z + b
///
/// Of the cache the layer number is 0. Throws an Error for a checkpoint that
/// the graph cannot express.
CalibrationGraph buildCalibrationGraph(mlir::MLIRContext &context,
                                       const ModelConfig &config,
                                       const ModelWeights &weights,
                                       const TensorSource &tensors,
                                       const GraphOptions &options);

/// The weight of layer `layer` that takes the place of `key`, a weight of layer
/// `representative` of the same kind; any other key stands for itself.
std::string correspondingKey(const ModelWeights &weights,
                             uint64_t representative, uint64_t layer,
                             const std::string &key);

} // namespace stem

#endif // STEM_GRAPH_CALIBRATIONGRAPH_H
