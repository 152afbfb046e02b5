//===- LayerGraph.h - One decoder layer as a function ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_GRAPH_LAYERGRAPH_H
#define STEM_LIB_GRAPH_LAYERGRAPH_H

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Model/Checkpoint.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace stem {

/// One weight of a layer, in the order of the layer function's arguments.
struct LayerParam {
  enum class Role {
    InputNorm,
    Query,
    Key,
    Value,
    Output,
    QueryBias,
    KeyBias,
    ValueBias,
    OutputBias,
    QueryNorm,
    KeyNorm,
    PostAttentionNorm,
    PostFeedForwardNorm,
    Gate,
    Up,
    Down,
    GateBias,
    UpBias,
    DownBias
  };
  Role role;
  std::string key;
};

/// The weights that `layer` has; its table is not among them.
std::vector<LayerParam> layerParams(const LayerWeights &layer);

/// The tensor types of a model's graph.
class GraphTypes {
public:
  GraphTypes(mlir::MLIRContext &context, const ModelConfig &config,
             DType compute);

  mlir::Type compute() const { return computeType; }
  /// [rows, columns] of the compute type.
  mlir::RankedTensorType matrix(int64_t rows, int64_t columns) const;
  /// [size] of f32.
  mlir::RankedTensorType vector(int64_t size) const;
  /// [T, columns].
  mlir::RankedTensorType activation(int64_t columns, mlir::Type element) const;
  /// [T, d] of f32.
  mlir::RankedTensorType residual() const;
  /// [T] of i32.
  mlir::RankedTensorType ids() const;
  mlir::RankedTensorType param(const LayerParam &param) const;

private:
  mlir::MLIRContext &context;
  const ModelConfig &config;
  mlir::Type computeType;
};

/// What makes two layers different functions.
struct LayerKind {
  bool isStem;
  uint64_t window;
  bool usesRope;
  std::vector<LayerParam::Role> roles;

  auto operator<=>(const LayerKind &) const = default;
};

LayerKind layerKind(const ModelConfig &config, const ModelWeights &weights,
                    uint64_t index);

/// `name`(x, positions, sequences, cos, sin, cache, layer, weights..., and for
/// a STEM layer rows, index) -> x. `rowType` is the element type of the rows.
mlir::func::FuncOp
buildLayerFunction(mlir::OpBuilder &builder, mlir::Location loc,
                   const ModelConfig &config, uint64_t index,
                   const LayerWeights &layer, const GraphTypes &types,
                   std::optional<mlir::Type> rowType, const std::string &name);

} // namespace stem

#endif // STEM_LIB_GRAPH_LAYERGRAPH_H
