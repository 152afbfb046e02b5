//===- ModelGraph.h - A checkpoint's model as stem IR ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_GRAPH_MODELGRAPH_H
#define STEM_GRAPH_MODELGRAPH_H

#include "stem/Model/Checkpoint.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <optional>
#include <string>

namespace stem {

/// Which functions the module has.
enum class GraphEntries { Inference, Training, Hidden };

/// Tokens of one tile of prefill and scoring, where nothing else is asked for.
inline constexpr int64_t kTokenTile = 64;

/// A model whose distribution a loss compares with. Its vocabulary is the
/// model's own.
struct GraphTeacher {
  int64_t hiddenSize = 0;
  std::string headKey; ///< of the parameter [V, hiddenSize]
};

struct GraphOptions {
  GraphEntries entries = GraphEntries::Inference;
  /// Element type of weights, products and the cache: F32 or BF16. The residual
  /// stream, norms, softmax and the loss are f32 in both.
  DType compute = DType::F32;
  /// Tokens of one tile of prefill and scoring.
  int64_t tokenTile = kTokenTile;
  /// The element type of a table's rows, F32 or BF16, where it is not the
  /// checkpoint's; empty: the checkpoint's.
  std::function<DType(const TensorInfo &)> tableType = {};
  /// Of the loss for training.
  std::optional<GraphTeacher> teacher = {};
};

/// The model as a module in the graph phase. Layers of one kind are one private
/// function. Entries, all over flat tokens T with R chosen output rows:
///
///   prefill, decode: (ids, positions, sequences : T x i32, output_rows :
///     R x i32, cache, logits : R x V x f32) -> logits
///   score: (ids, positions, sequences, labels : T x i32, cache, nll : T x f32)
///     -> nll
///
/// For training there is one instead, what stem-autodiff derives; a token sees
/// the tokens of this call alone:
///
///   loss: (ids, positions, sequences, labels : T x i32, nll : T x f32) -> nll
///
/// and with a teacher, whose states after its final norm are D wide and of the
/// compute type:
///
///   loss: (ids, positions, sequences, labels : T x i32, teacher : T x D, nll,
///     kl : T x f32) -> nll, kl
///
/// Hidden is what gives such states, without a cache too:
///
///   hidden: (ids, positions, sequences : T x i32, hidden : T x D) -> hidden
///
/// prefill and score run token tiles: T is a multiple of `tokenTile` and a tile
/// holds consecutive positions of one sequence, its padding marked by sequence
/// -1. decode, loss and hidden take any T. Throws an Error for a checkpoint
/// that the graph cannot express.
mlir::OwningOpRef<mlir::ModuleOp> buildModelGraph(mlir::MLIRContext &context,
                                                  const ModelConfig &config,
                                                  const ModelWeights &weights,
                                                  const TensorSource &tensors,
                                                  const GraphOptions &options);

} // namespace stem

#endif // STEM_GRAPH_MODELGRAPH_H
