//===- LayerGraph.cpp - One decoder layer as a function -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerGraph.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace stem;

using Role = LayerParam::Role;

std::vector<LayerParam> stem::layerParams(const LayerWeights &layer) {
  std::vector<LayerParam> all = {
      {Role::InputNorm, layer.inputNorm},
      {Role::Query, layer.queryProj},
      {Role::Key, layer.keyProj},
      {Role::Value, layer.valueProj},
      {Role::Output, layer.outputProj},
      {Role::QueryBias, layer.queryBias},
      {Role::KeyBias, layer.keyBias},
      {Role::ValueBias, layer.valueBias},
      {Role::OutputBias, layer.outputBias},
      {Role::QueryNorm, layer.queryNorm},
      {Role::KeyNorm, layer.keyNorm},
      {Role::PostAttentionNorm, layer.postAttentionNorm},
      {Role::PostFeedForwardNorm, layer.postFeedForwardNorm},
      {Role::Gate, layer.gateProj},
      {Role::Up, layer.upProj},
      {Role::Down, layer.downProj},
      {Role::GateBias, layer.gateBias},
      {Role::UpBias, layer.upBias},
      {Role::DownBias, layer.downBias}};
  std::erase_if(all, [](const LayerParam &param) { return param.key.empty(); });
  return all;
}

GraphTypes::GraphTypes(MLIRContext &context, const ModelConfig &config,
                       DType compute)
    : context(context), config(config),
      computeType(compute == DType::BF16 ? Type(BFloat16Type::get(&context))
                                         : Type(Float32Type::get(&context))) {}

RankedTensorType GraphTypes::matrix(int64_t rows, int64_t columns) const {
  return RankedTensorType::get({rows, columns}, computeType);
}

RankedTensorType GraphTypes::vector(int64_t size) const {
  return RankedTensorType::get({size}, Float32Type::get(&context));
}

RankedTensorType GraphTypes::activation(int64_t columns, Type element) const {
  return RankedTensorType::get({ShapedType::kDynamic, columns}, element);
}

RankedTensorType GraphTypes::residual() const {
  return activation(config.hiddenSize, Float32Type::get(&context));
}

RankedTensorType GraphTypes::ids() const {
  return RankedTensorType::get({ShapedType::kDynamic},
                               IntegerType::get(&context, 32));
}

RankedTensorType GraphTypes::param(const LayerParam &param) const {
  int64_t d = config.hiddenSize, f = config.intermediateSize;
  int64_t q = config.queryWidth(), k = config.keyValueWidth();
  bool perHead = config.qkNorm == QkNorm::PerHead;
  int64_t headDim = config.headDim;
  switch (param.role) {
  case Role::InputNorm:
  case Role::PostAttentionNorm:
  case Role::PostFeedForwardNorm:
  case Role::OutputBias:
  case Role::DownBias:
    return vector(d);
  case Role::Query:
    return matrix(q, d);
  case Role::Key:
  case Role::Value:
    return matrix(k, d);
  case Role::Output:
    return matrix(d, q);
  case Role::QueryBias:
    return vector(q);
  case Role::KeyBias:
  case Role::ValueBias:
    return vector(k);
  case Role::QueryNorm:
    return vector(perHead ? headDim : q);
  case Role::KeyNorm:
    return vector(perHead ? headDim : k);
  case Role::Gate:
  case Role::Up:
    return matrix(f, d);
  case Role::Down:
    return matrix(d, f);
  case Role::GateBias:
  case Role::UpBias:
    return vector(f);
  }
  llvm_unreachable("unknown role of a weight");
}

LayerKind stem::layerKind(const ModelConfig &config,
                          const ModelWeights &weights, uint64_t index) {
  const LayerConfig &layer = config.layers[index];
  LayerKind kind = {layer.isStem, layer.window, layer.usesRope, {}};
  for (const LayerParam &param : layerParams(weights.layers[index]))
    kind.roles.push_back(param.role);
  return kind;
}

namespace {

/// The body of one layer function.
class LayerBuilder {
public:
  LayerBuilder(OpBuilder &builder, Location loc, const ModelConfig &config,
               const LayerConfig &layer, const GraphTypes &types)
      : b(builder), loc(loc), config(config), layer(layer), types(types) {}

  void build(Block *block, const std::vector<LayerParam> &params) {
    auto arguments = block->getArguments();
    Value x = arguments[0];
    tokens = arguments.slice(1, 4);
    cache = arguments[5];
    number = arguments[6];
    for (auto [index, param] : llvm::enumerate(params))
      weights[param.role] = arguments[7 + index];
    table = arguments.drop_front(7 + params.size());

    x = addBlock(x, Role::InputNorm, Role::PostAttentionNorm,
                 [&](Value h) { return attention(h); });
    x = addBlock(x, Role::PostAttentionNorm, Role::PostFeedForwardNorm,
                 [&](Value h) { return feedForward(h); });
    func::ReturnOp::create(b, loc, x);
  }

private:
  Value weight(Role role) const {
    auto it = weights.find(role);
    return it == weights.end() ? Value() : it->second;
  }

  /// x + block(norm(x)), or x + norm(block(x)) for families that norm after.
  Value addBlock(Value x, Role before, Role after,
                 function_ref<Value(Value)> block) {
    Value result;
    if (config.normAfterBlock) {
      result = norm(block(narrow(x)), weight(after), b.getF32Type());
    } else {
      result = block(norm(x, weight(before), types.compute()));
    }
    return arith::AddFOp::create(b, loc, x, result);
  }

  Value narrow(Value x) {
    if (types.compute().isF32())
      return x;
    auto type = cast<RankedTensorType>(x.getType());
    return arith::TruncFOp::create(b, loc, type.clone(types.compute()), x);
  }

  Value norm(Value x, Value weight, Type element) {
    auto type = cast<RankedTensorType>(x.getType());
    return RMSNormOp::create(b, loc, type.clone(element), x, weight,
                             b.getF64FloatAttr(config.rmsNormEps));
  }

  Value linear(Value x, Role matrix, Role bias, Type element) {
    Value w = weight(matrix);
    int64_t outputs = getWeightShape(w.getType()).outputs;
    return LinearOp::create(b, loc, types.activation(outputs, element), x, w,
                            weight(bias));
  }

  /// Projection, norm and rotation of queries or keys.
  Value rotated(Value h, Role matrix, Role bias, Role normRole) {
    bool plain = !weight(normRole) && !layer.usesRope;
    Value x = linear(h, matrix, bias, plain ? types.compute() : b.getF32Type());
    auto narrowType =
        cast<RankedTensorType>(x.getType()).clone(types.compute());
    if (Value w = weight(normRole))
      x = norm(x, w, layer.usesRope ? b.getF32Type() : types.compute());
    if (layer.usesRope)
      x = RopeOp::create(b, loc, narrowType, x, tokens[2], tokens[3]);
    return x;
  }

  Value attention(Value h) {
    Value q = rotated(h, Role::Query, Role::QueryBias, Role::QueryNorm);
    Value k = rotated(h, Role::Key, Role::KeyBias, Role::KeyNorm);
    Value v = linear(h, Role::Value, Role::ValueBias, types.compute());
    double scale = 1.0 / std::sqrt(static_cast<double>(config.headDim));
    Value out = AttentionOp::create(
        b, loc, q.getType(), q, k, v, tokens[0], tokens[1], cache, number,
        b.getI64IntegerAttr(config.headDim), b.getF64FloatAttr(scale),
        b.getI64IntegerAttr(layer.window));
    return linear(out, Role::Output, Role::OutputBias, b.getF32Type());
  }

  Value feedForward(Value h) {
    Type result = types.residual();
    if (!layer.isStem)
      return DenseFFNOp::create(b, loc, result, h, weight(Role::Gate),
                                weight(Role::Up), weight(Role::Down),
                                weight(Role::GateBias), weight(Role::UpBias),
                                weight(Role::DownBias));
    auto rows = cast<RankedTensorType>(table[0].getType());
    Value up = LookupOp::create(b, loc, rows, table[0], table[1]);
    return GatedFFNOp::create(b, loc, result, h, weight(Role::Gate), up,
                              weight(Role::Down), weight(Role::GateBias),
                              weight(Role::DownBias));
  }

  OpBuilder &b;
  Location loc;
  const ModelConfig &config;
  const LayerConfig &layer;
  const GraphTypes &types;
  std::map<Role, Value> weights;
  ValueRange tokens; // positions, sequences, cos, sin
  ValueRange table;  // rows, index
  Value cache, number;
};

} // namespace

func::FuncOp stem::buildLayerFunction(OpBuilder &builder, Location loc,
                                      const ModelConfig &config, uint64_t index,
                                      const LayerWeights &layer,
                                      const GraphTypes &types,
                                      std::optional<Type> rowType,
                                      const std::string &name) {
  Type angles = types.activation(config.headDim / 2, builder.getF32Type());
  SmallVector<Type> inputs = {types.residual(),
                              types.ids(),
                              types.ids(),
                              angles,
                              angles,
                              KVCacheType::get(builder.getContext()),
                              builder.getIndexType()};
  std::vector<LayerParam> params = layerParams(layer);
  for (const LayerParam &param : params)
    inputs.push_back(types.param(param));
  if (rowType) {
    inputs.push_back(types.activation(config.intermediateSize, *rowType));
    inputs.push_back(types.ids());
  }
  auto function = func::FuncOp::create(
      builder, loc, name, builder.getFunctionType(inputs, {types.residual()}));
  function.setPrivate();
  OpBuilder::InsertionGuard guard(builder);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToStart(block);
  LayerBuilder(builder, loc, config, config.layers[index], types)
      .build(block, params);
  return function;
}
