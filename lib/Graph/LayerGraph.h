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

#include <map>
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
    DownBias,
    MixA,
    MixB
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
  /// Of a weight of layer `index`.
  mlir::RankedTensorType param(uint64_t index, const LayerParam &param) const;

private:
  mlir::MLIRContext &context;
  const ModelConfig &config;
  mlir::Type computeType;
};

/// What makes two layers different functions.
struct LayerKind {
  bool isStem;
  uint64_t rank; ///< of the low-rank term, 0 for none
  uint64_t window;
  bool usesRope;
  std::vector<LayerParam::Role> roles;

  auto operator<=>(const LayerKind &) const = default;
};

LayerKind layerKind(const ModelConfig &config, const ModelWeights &weights,
                    uint64_t index);

/// The table of a STEM layer. Throws an Error for rows of a type that the graph
/// cannot express.
TableType tableType(mlir::OpBuilder &builder, const ModelConfig &config,
                    const TensorSource &tensors, const LayerWeights &layer);

/// What the body of a layer reads besides the residual stream.
struct LayerInputs {
  mlir::Value positions, sequences, cos, sin, cache, number;
  std::map<LayerParam::Role, mlir::Value> weights;
  mlir::Value rows, index;   ///< of a STEM layer
  mlir::Value ids, selected; ///< of one that keeps W_up for some ids
};

/// Writes one layer, whole or in parts. x is the residual stream, T x d f32.
class LayerBuilder {
public:
  LayerBuilder(mlir::OpBuilder &builder, mlir::Location loc,
               const ModelConfig &config, const LayerConfig &layer,
               const GraphTypes &types, LayerInputs inputs)
      : b(builder), loc(loc), config(config), layer(layer), types(types),
        inputs(std::move(inputs)) {}

  /// x plus what attention, or the FFN, makes of it.
  mlir::Value attentionBlock(mlir::Value x);
  mlir::Value feedForwardBlock(mlir::Value x);

  /// Of a dense FFN, f32: its input after the norm, T x d, and SiLU(gate) and
  /// up, T x F.
  struct Taps {
    mlir::Value hidden, gate, up;
  };
  Taps feedForwardTaps(mlir::Value x);
  /// W_down z for z of T x F, without bias and norm: T x d f32.
  mlir::Value downProduct(mlir::Value z);
  /// The end of an FFN whose products are z: x + W_down z + b.
  mlir::Value addProduct(mlir::Value x, mlir::Value z);

private:
  using Role = LayerParam::Role;

  mlir::Value weight(Role role) const;
  mlir::Value addBlock(mlir::Value x, Role before, Role after,
                       llvm::function_ref<mlir::Value(mlir::Value)> block);
  mlir::Value blockInput(mlir::Value x, Role norm);
  mlir::Value addResult(mlir::Value x, mlir::Value result, Role after);
  mlir::Value narrow(mlir::Value x);
  mlir::Value buildNorm(mlir::Value x, mlir::Value weight, mlir::Type element);
  mlir::Value linear(mlir::Value x, Role matrix, mlir::Value bias,
                     mlir::Type element);
  mlir::Value rotated(mlir::Value h, Role matrix, Role bias, Role norm);
  mlir::Value attention(mlir::Value h);
  mlir::Value feedForward(mlir::Value h);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const ModelConfig &config;
  const LayerConfig &layer;
  const GraphTypes &types;
  LayerInputs inputs;
};

/// One argument of an entry.
struct GraphArgument {
  llvm::StringRef name;
  mlir::Type type;
  llvm::StringRef rows; ///< "tokens", "outputs" or none
  bool isOutput = false;
};

/// An entry function, without a body, that returns its outputs. "ids" and
/// "labels" lie below `vocabSize`, "output_rows" numbers tokens.
mlir::func::FuncOp createEntry(mlir::OpBuilder &builder, mlir::Location loc,
                               llvm::StringRef name, int64_t tile,
                               llvm::ArrayRef<GraphArgument> arguments,
                               uint64_t vocabSize);

/// `name`(x, positions, sequences, cos, sin, cache, layer, weights..., and for
/// a STEM layer rows, index, and for one with selected ids the tokens' ids and
/// those) -> x. Without a cache it has neither `cache` nor `layer`. `rowType`
/// is the element type of the rows.
mlir::func::FuncOp buildLayerFunction(
    mlir::OpBuilder &builder, mlir::Location loc, const ModelConfig &config,
    uint64_t index, const LayerWeights &layer, const GraphTypes &types,
    std::optional<mlir::Type> rowType, bool hasCache, const std::string &name);

} // namespace stem

#endif // STEM_LIB_GRAPH_LAYERGRAPH_H
