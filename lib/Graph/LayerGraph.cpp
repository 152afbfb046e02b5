//===- LayerGraph.cpp - One decoder layer as a function -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerGraph.h"

#include "stem/Support/Error.h"

#include <cmath>

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
      {Role::DownBias, layer.downBias},
      {Role::MixA, layer.upMixA},
      {Role::MixB, layer.upMixB}};
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

/// 0 for a dense layer, and for rows alone.
static uint64_t rankOf(const ModelConfig &config, uint64_t index) {
  return config.stem ? config.stem->rankOf(index) : 0;
}

RankedTensorType GraphTypes::param(uint64_t index,
                                   const LayerParam &param) const {
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
  case Role::MixA:
    return matrix(f, static_cast<int64_t>(rankOf(config, index)));
  case Role::MixB:
    return matrix(static_cast<int64_t>(rankOf(config, index)), d);
  }
  llvm_unreachable("unknown role of a weight");
}

LayerKind stem::layerKind(const ModelConfig &config,
                          const ModelWeights &weights, uint64_t index) {
  const LayerConfig &layer = config.layers[index];
  LayerKind kind = {
      layer.isStem, rankOf(config, index), layer.window, layer.usesRope, {}};
  for (const LayerParam &param : layerParams(weights.layers[index]))
    kind.roles.push_back(param.role);
  return kind;
}

TableType stem::tableType(OpBuilder &builder, const ModelConfig &config,
                          const TensorSource &tensors,
                          const LayerWeights &layer) {
  const TensorInfo &info = tensors.get(layer.upTable);
  Type element;
  switch (info.dtype) {
  case DType::F32:
  case DType::U8: // decoded when they are looked up
    element = builder.getF32Type();
    break;
  case DType::BF16:
    element = builder.getBF16Type();
    break;
  case DType::F16:
    element = builder.getF16Type();
    break;
  default:
    fail("{}: tensor {} has type {}; a table's rows are F32, BF16, F16 or U8",
         tensors.description(), layer.upTable, dtypeName(info.dtype));
  }
  return TableType::get(builder.getContext(), config.vocabSize,
                        config.intermediateSize, element);
}

Value LayerBuilder::weight(Role role) const {
  auto it = inputs.weights.find(role);
  return it == inputs.weights.end() ? Value() : it->second;
}

/// x + block(norm(x)), or x + norm(block(x)) for families that norm after.
Value LayerBuilder::addBlock(Value x, Role before, Role after,
                             function_ref<Value(Value)> block) {
  return addResult(x, block(blockInput(x, before)), after);
}

Value LayerBuilder::blockInput(Value x, Role norm) {
  return config.normAfterBlock ? narrow(x)
                               : buildNorm(x, weight(norm), types.compute());
}

Value LayerBuilder::addResult(Value x, Value result, Role after) {
  if (config.normAfterBlock)
    result = buildNorm(result, weight(after), b.getF32Type());
  return arith::AddFOp::create(b, loc, x, result);
}

Value LayerBuilder::narrow(Value x) {
  if (types.compute().isF32())
    return x;
  auto type = cast<RankedTensorType>(x.getType());
  return arith::TruncFOp::create(b, loc, type.clone(types.compute()), x);
}

Value LayerBuilder::buildNorm(Value x, Value weight, Type element) {
  auto type = cast<RankedTensorType>(x.getType());
  return RMSNormOp::create(b, loc, type.clone(element), x, weight,
                           b.getF64FloatAttr(config.rmsNormEps));
}

Value LayerBuilder::linear(Value x, Role matrix, Value bias, Type element) {
  Value w = weight(matrix);
  int64_t outputs = getWeightShape(w.getType()).outputs;
  return LinearOp::create(b, loc, types.activation(outputs, element), x, w,
                          bias);
}

/// Projection, norm and rotation of queries or keys.
Value LayerBuilder::rotated(Value h, Role matrix, Role bias, Role normRole) {
  bool plain = !weight(normRole) && !layer.usesRope;
  Value x =
      linear(h, matrix, weight(bias), plain ? types.compute() : b.getF32Type());
  auto narrowType = cast<RankedTensorType>(x.getType()).clone(types.compute());
  if (Value w = weight(normRole))
    x = buildNorm(x, w, layer.usesRope ? b.getF32Type() : types.compute());
  if (layer.usesRope)
    x = RopeOp::create(b, loc, narrowType, x, inputs.cos, inputs.sin);
  return x;
}

Value LayerBuilder::attention(Value h) {
  Value q = rotated(h, Role::Query, Role::QueryBias, Role::QueryNorm);
  Value k = rotated(h, Role::Key, Role::KeyBias, Role::KeyNorm);
  Value v = linear(h, Role::Value, weight(Role::ValueBias), types.compute());
  double scale = 1.0 / std::sqrt(static_cast<double>(config.headDim));
  Value out = AttentionOp::create(
      b, loc, q.getType(), q, k, v, inputs.positions, inputs.sequences,
      inputs.cache, inputs.number, b.getI64IntegerAttr(config.headDim),
      b.getF64FloatAttr(scale), b.getI64IntegerAttr(layer.window));
  return linear(out, Role::Output, weight(Role::OutputBias), b.getF32Type());
}

Value LayerBuilder::feedForward(Value h) {
  Type result = types.residual();
  if (!layer.isStem)
    return DenseFFNOp::create(b, loc, result, h, weight(Role::Gate),
                              weight(Role::Up), weight(Role::Down),
                              weight(Role::GateBias), weight(Role::UpBias),
                              weight(Role::DownBias));
  Value a = weight(Role::MixA);
  auto rows = cast<RankedTensorType>(inputs.rows.getType());
  RankedTensorType wide = rows.clone(b.getF32Type());
  Value up = LookupOp::create(b, loc, inputs.selected && !a ? wide : rows,
                              inputs.rows, inputs.index);
  if (a)
    up = MixOp::create(b, loc, wide, up, h, a, weight(Role::MixB));
  // Last: a selected id has neither a row nor a low-rank term.
  if (inputs.selected)
    up = SelectUpOp::create(b, loc, wide, up, h, weight(Role::Up), inputs.ids,
                            inputs.selected, weight(Role::UpBias));
  return GatedFFNOp::create(b, loc, result, h, weight(Role::Gate), up,
                            weight(Role::Down), weight(Role::GateBias),
                            weight(Role::DownBias));
}

Value LayerBuilder::attentionBlock(Value x) {
  return addBlock(x, Role::InputNorm, Role::PostAttentionNorm,
                  [&](Value h) { return attention(h); });
}

Value LayerBuilder::feedForwardBlock(Value x) {
  return addBlock(x, Role::PostAttentionNorm, Role::PostFeedForwardNorm,
                  [&](Value h) { return feedForward(h); });
}

LayerBuilder::Taps LayerBuilder::feedForwardTaps(Value x) {
  Type f32 = b.getF32Type();
  Value h = blockInput(x, Role::PostAttentionNorm);
  Value gate = linear(h, Role::Gate, weight(Role::GateBias), f32);
  Value up = linear(h, Role::Up, weight(Role::UpBias), f32);
  Value hidden = h;
  if (!types.compute().isF32())
    hidden = arith::ExtFOp::create(b, loc, x.getType(), h);
  return {hidden, SiluOp::create(b, loc, gate.getType(), gate), up};
}

Value LayerBuilder::downProduct(Value z) {
  return linear(narrow(z), Role::Down, /*bias=*/Value(), b.getF32Type());
}

Value LayerBuilder::addProduct(Value x, Value z) {
  Value result =
      linear(narrow(z), Role::Down, weight(Role::DownBias), b.getF32Type());
  return addResult(x, result, Role::PostFeedForwardNorm);
}

func::FuncOp stem::createEntry(OpBuilder &builder, Location loc, StringRef name,
                               int64_t tile, ArrayRef<GraphArgument> arguments,
                               uint64_t vocabSize) {
  SmallVector<Type> inputs, results;
  for (const GraphArgument &argument : arguments) {
    inputs.push_back(argument.type);
    if (argument.isOutput)
      results.push_back(argument.type);
  }
  auto function = func::FuncOp::create(
      builder, loc, name, builder.getFunctionType(inputs, results));
  function->setAttr(StemDialect::kEntryAttr, builder.getUnitAttr());
  function->setAttr(StemDialect::kTileAttr, builder.getI64IntegerAttr(tile));
  for (auto [index, argument] : llvm::enumerate(arguments)) {
    auto set = [&, index = index](StringRef key, Attribute value) {
      function.setArgAttr(index, key, value);
    };
    set(StemDialect::kNameAttr, builder.getStringAttr(argument.name));
    if (!argument.rows.empty())
      set(StemDialect::kRowsAttr, builder.getStringAttr(argument.rows));
    if (argument.isOutput)
      set(StemDialect::kOutputAttr, builder.getUnitAttr());
    Attribute bound =
        builder.getI64IntegerAttr(static_cast<int64_t>(vocabSize));
    if (argument.name == "ids")
      set(StemDialect::kIdBoundAttr, bound);
    if (argument.name == "labels")
      set(StemDialect::kLabelBoundAttr, bound);
    if (argument.name == "output_rows")
      set(StemDialect::kRowIndexAttr, builder.getUnitAttr());
  }
  return function;
}

func::FuncOp stem::buildLayerFunction(OpBuilder &builder, Location loc,
                                      const ModelConfig &config, uint64_t index,
                                      const LayerWeights &layer,
                                      const GraphTypes &types,
                                      std::optional<Type> rowType,
                                      bool hasCache, const std::string &name) {
  Type angles = types.activation(config.headDim / 2, builder.getF32Type());
  SmallVector<Type> inputs = {types.residual(), types.ids(), types.ids(),
                              angles, angles};
  if (hasCache)
    inputs.append(
        {KVCacheType::get(builder.getContext()), builder.getIndexType()});
  std::vector<LayerParam> params = layerParams(layer);
  for (const LayerParam &param : params)
    inputs.push_back(types.param(index, param));
  if (rowType) {
    inputs.push_back(types.activation(config.intermediateSize, *rowType));
    inputs.push_back(types.ids());
    if (!layer.upSelectIds.empty())
      inputs.append({types.ids(), types.ids()});
  }
  auto function = func::FuncOp::create(
      builder, loc, name, builder.getFunctionType(inputs, {types.residual()}));
  function.setPrivate();
  OpBuilder::InsertionGuard guard(builder);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToStart(block);
  ValueRange rest = block->getArguments();
  auto take = [&](size_t count) {
    ValueRange taken = rest.take_front(count);
    rest = rest.drop_front(count);
    return taken;
  };
  Value x = take(1)[0];
  LayerInputs values;
  ValueRange tokens = take(4);
  values.positions = tokens[0];
  values.sequences = tokens[1];
  values.cos = tokens[2];
  values.sin = tokens[3];
  if (hasCache) {
    ValueRange cache = take(2);
    values.cache = cache[0];
    values.number = cache[1];
  }
  for (const LayerParam &param : params)
    values.weights[param.role] = take(1)[0];
  ValueRange tables = rest;
  if (tables.size() >= 2) {
    values.rows = tables[0];
    values.index = tables[1];
  }
  if (tables.size() == 4) {
    values.ids = tables[2];
    values.selected = tables[3];
  }
  LayerBuilder layerBuilder(builder, loc, config, config.layers[index], types,
                            std::move(values));
  x = layerBuilder.attentionBlock(x);
  x = layerBuilder.feedForwardBlock(x);
  func::ReturnOp::create(builder, loc, x);
  return function;
}
