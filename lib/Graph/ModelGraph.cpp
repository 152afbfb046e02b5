//===- ModelGraph.cpp - A checkpoint's model as stem IR -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Graph/ModelGraph.h"

#include "LayerGraph.h"

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <map>

using namespace mlir;
using namespace stem;

namespace {

/// Builds the module around the layer functions.
class ModelBuilder {
public:
  ModelBuilder(MLIRContext &context, const ModelConfig &config,
               const ModelWeights &weights, const TensorSource &tensors,
               const GraphOptions &options)
      : builder(&context), loc(builder.getUnknownLoc()), config(config),
        weights(weights), tensors(tensors), options(options),
        types(context, config, options.compute) {}

  OwningOpRef<ModuleOp> build() {
    OwningOpRef<ModuleOp> module = ModuleOp::create(builder, loc);
    builder.setInsertionPointToEnd(module->getBody());
    declareWeights();
    for (uint64_t i = 0; i < config.layerCount(); ++i)
      layerFunction(i);
    switch (options.entries) {
    case GraphEntries::Training:
      buildLossEntry("loss");
      break;
    case GraphEntries::Hidden:
      buildHiddenEntry("hidden");
      break;
    case GraphEntries::Inference:
      buildHead();
      buildLogitsEntry("prefill", options.tokenTile);
      buildLogitsEntry("decode", 1);
      buildLossEntry("score");
      break;
    }
    return module;
  }

private:
  void declareParam(const std::string &key, RankedTensorType type) {
    if (!key.empty())
      ParamOp::create(builder, loc, key, key, type);
  }

  void declareWeights() {
    declareParam(weights.embedding,
                 types.matrix(config.vocabSize, config.hiddenSize));
    for (uint64_t i = 0; i < config.layerCount(); ++i) {
      const LayerWeights &layer = weights.layers[i];
      for (const LayerParam &param : layerParams(layer))
        declareParam(param.key, types.param(i, param));
      if (!layer.upTable.empty())
        TableOp::create(builder, loc, layer.upTable, layer.upTable,
                        tableType(layer));
      if (!layer.upSelectIds.empty())
        declareParam(layer.upSelectIds, selectedType(layer));
    }
    declareParam(weights.finalNorm, types.vector(config.hiddenSize));
    if (!weights.isHeadTied)
      declareParam(weights.head,
                   types.matrix(config.vocabSize, config.hiddenSize));
    if (options.teacher)
      declareParam(options.teacher->headKey, teacherHeadType());
  }

  TableType tableType(const LayerWeights &layer) {
    TableType type = stem::tableType(builder, config, tensors, layer);
    if (!options.tableType)
      return type;
    bool isF32 = options.tableType(tensors.get(layer.upTable)) == DType::F32;
    return TableType::get(
        builder.getContext(), type.getRows(), type.getColumns(),
        isF32 ? Type(builder.getF32Type()) : Type(builder.getBF16Type()));
  }

  RankedTensorType teacherHeadType() {
    return types.matrix(config.vocabSize, options.teacher->hiddenSize);
  }

  RankedTensorType selectedType(const LayerWeights &layer) {
    uint64_t count = tensors.get(layer.upSelectIds).elements();
    return RankedTensorType::get({static_cast<int64_t>(count)},
                                 builder.getI32Type());
  }

  bool hasCache() const { return options.entries == GraphEntries::Inference; }

  /// The function of layer `index`, shared by all layers of its kind.
  func::FuncOp layerFunction(uint64_t index) {
    LayerKind kind = layerKind(config, weights, index);
    func::FuncOp &function = functions[kind];
    if (!function) {
      const LayerWeights &layer = weights.layers[index];
      std::optional<Type> rows;
      if (config.layers[index].isStem)
        rows = tableType(layer).getElementType();
      function = buildLayerFunction(builder, loc, config, index, layer, types,
                                    rows, hasCache(), layerName(kind));
    }
    return function;
  }

  std::string layerName(const LayerKind &kind) {
    std::string name = kind.isStem ? "layer_stem" : "layer_dense";
    if (kind.rank > 0)
      name += "_rank" + std::to_string(kind.rank);
    if (kind.isStem && llvm::is_contained(kind.roles, LayerParam::Role::Up))
      name += "_select";
    if (kind.window > 0)
      name += "_window" + std::to_string(kind.window);
    if (!kind.usesRope)
      name += "_norope";
    // Layers that differ in their biases alone.
    unsigned &uses = layerNames[name];
    return ++uses == 1 ? name : name + "_" + std::to_string(uses);
  }

  /// Final norm and head on chosen rows. Few rows: tiled by columns.
  void buildHead() {
    auto logits = types.activation(config.vocabSize, builder.getF32Type());
    auto head = types.matrix(config.vocabSize, config.hiddenSize);
    auto type =
        builder.getFunctionType({types.residual(), types.ids(),
                                 types.vector(config.hiddenSize), head, logits},
                                {logits});
    auto function = func::FuncOp::create(builder, loc, "head", type);
    function.setPrivate();
    function->setAttr(StemDialect::kTileAttr, builder.getI64IntegerAttr(1));
    function.setArgAttr(4, StemDialect::kOutputAttr, builder.getUnitAttr());
    OpBuilder::InsertionGuard guard(builder);
    Block *block = function.addEntryBlock();
    builder.setInsertionPointToStart(block);
    auto arguments = block->getArguments();
    Value rows = EmbeddingOp::create(builder, loc, types.residual(),
                                     arguments[1], arguments[0]);
    Value normed = finalNorm(rows, arguments[2]);
    Value result = LinearOp::create(builder, loc, logits, normed, arguments[3],
                                    /*bias=*/Value());
    func::ReturnOp::create(builder, loc, result);
  }

  Value finalNorm(Value x, Value weight) {
    return RMSNormOp::create(
        builder, loc, types.activation(config.hiddenSize, types.compute()), x,
        weight, builder.getF64FloatAttr(config.rmsNormEps));
  }

  Value load(const std::string &key, Type type) {
    return ParamLoadOp::create(builder, loc, type, key);
  }

  Value loadHead() {
    return load(weights.head,
                types.matrix(config.vocabSize, config.hiddenSize));
  }

  /// The token whose embedding is not trained, as in transformers; a negative
  /// one counts from the end. Nothing but gradients asks for it.
  IntegerAttr paddingId() {
    if (hasCache() || !config.padToken)
      return {};
    const int64_t size = static_cast<int64_t>(config.vocabSize);
    const int64_t id = *config.padToken + (*config.padToken < 0 ? size : 0);
    if (id < 0 || id >= size)
      return {};
    return builder.getI64IntegerAttr(id);
  }

  /// Embedding and all layers; the first three arguments are ids, positions
  /// and sequences. `cache` is null without one.
  Value buildTrunk(ValueRange tokens, Value cache) {
    Value embedding = load(weights.embedding,
                           types.matrix(config.vocabSize, config.hiddenSize));
    Value x = EmbeddingOp::create(builder, loc, types.residual(), tokens[0],
                                  embedding, paddingId());
    auto angles = types.activation(config.headDim / 2, builder.getF32Type());
    auto rotary = RotaryAnglesOp::create(
        builder, loc, angles, angles, tokens[1],
        builder.getDenseF32ArrayAttr(
            config.rope.inverseFrequencies(config.headDim)),
        builder.getF64FloatAttr(config.rope.attentionScaling));
    // All rows first: the store sees every request of the step at its start.
    SmallVector<SmallVector<Value>> rows;
    for (uint64_t i = 0; i < config.layerCount(); ++i)
      rows.push_back(tableRows(i, tokens[0]));
    for (uint64_t i = 0; i < config.layerCount(); ++i) {
      SmallVector<Value> operands = {x, tokens[1], tokens[2], rotary.getCos(),
                                     rotary.getSin()};
      if (cache)
        operands.append(
            {cache, arith::ConstantIndexOp::create(builder, loc, i)});
      for (const LayerParam &param : layerParams(weights.layers[i]))
        operands.push_back(load(param.key, types.param(i, param)));
      llvm::append_range(operands, rows[i]);
      if (const LayerWeights &layer = weights.layers[i];
          !layer.upSelectIds.empty()) {
        // Layers may differ in the number of ids and be one function still.
        Value selected = load(layer.upSelectIds, selectedType(layer));
        operands.append({tokens[0], tensor::CastOp::create(
                                        builder, loc, types.ids(), selected)});
      }
      x = func::CallOp::create(builder, loc, layerFunction(i), operands)
              .getResult(0);
    }
    return x;
  }

  SmallVector<Value> tableRows(uint64_t index, Value ids) {
    const LayerWeights &layer = weights.layers[index];
    if (layer.upTable.empty())
      return {};
    TableType type = tableType(layer);
    Value table = TableLoadOp::create(builder, loc, type, layer.upTable);
    auto rows = TableRowsOp::create(
        builder, loc,
        types.activation(type.getColumns(), type.getElementType()), types.ids(),
        table, ids);
    return {rows.getRows(), rows.getIndex()};
  }

  /// An entry on the tokens, `extras` and, but for training, the cache.
  /// `finish` makes its outputs of the residual stream, the final norm's
  /// weight, and the arguments for extras and outputs.
  void buildEntry(
      StringRef name, int64_t tile, ArrayRef<GraphArgument> extras,
      ArrayRef<GraphArgument> outputs,
      function_ref<SmallVector<Value>(Value, Value, ValueRange, ValueRange)>
          finish) {
    SmallVector<GraphArgument> inputs = {{"ids", types.ids(), "tokens"},
                                         {"positions", types.ids(), "tokens"},
                                         {"sequences", types.ids(), "tokens"}};
    const size_t first = inputs.size();
    llvm::append_range(inputs, extras);
    if (hasCache())
      inputs.push_back({"cache", KVCacheType::get(builder.getContext()), ""});
    llvm::append_range(inputs, outputs);
    func::FuncOp entry =
        createEntry(builder, loc, name, tile, inputs, config.vocabSize);
    OpBuilder::InsertionGuard guard(builder);
    Block *block = entry.addEntryBlock();
    builder.setInsertionPointToStart(block);
    ValueRange arguments = block->getArguments();
    Value cache = hasCache()
                      ? arguments.drop_front(first + extras.size()).front()
                      : Value();
    Value x = buildTrunk(arguments.take_front(first), cache);
    Value norm = load(weights.finalNorm, types.vector(config.hiddenSize));
    func::ReturnOp::create(builder, loc,
                           finish(x, norm,
                                  arguments.slice(first, extras.size()),
                                  arguments.take_back(outputs.size())));
  }

  void buildLogitsEntry(StringRef name, int64_t tile) {
    Type logits = types.activation(config.vocabSize, builder.getF32Type());
    using Values = SmallVector<Value>;
    buildEntry(name, tile, {{"output_rows", types.ids(), "outputs"}},
               {{"logits", logits, "outputs", /*isOutput=*/true}},
               [&](Value x, Value norm, ValueRange rows, ValueRange outputs) {
                 auto call = func::CallOp::create(
                     builder, loc, "head", logits,
                     ValueRange{x, rows[0], norm, loadHead(), outputs[0]});
                 return Values{call.getResult(0)};
               });
  }

  void buildLossEntry(StringRef name) {
    Type losses =
        RankedTensorType::get({ShapedType::kDynamic}, builder.getF32Type());
    SmallVector<GraphArgument> extras = {{"labels", types.ids(), "tokens"}};
    SmallVector<GraphArgument> outputs = {
        {"nll", losses, "tokens", /*isOutput=*/true}};
    const auto &teacher = options.teacher;
    if (teacher) {
      extras.push_back({"teacher",
                        types.activation(teacher->hiddenSize, types.compute()),
                        "tokens"});
      outputs.push_back({"kl", losses, "tokens", /*isOutput=*/true});
    }
    using Values = SmallVector<Value>;
    buildEntry(name, options.tokenTile, extras, outputs,
               [&](Value x, Value norm, ValueRange given, ValueRange) {
                 Value normed = finalNorm(x, norm), head = loadHead();
                 if (!teacher)
                   return Values{CrossEntropyOp::create(
                       builder, loc, losses, normed, head, given[0])};
                 auto both = DistillationOp::create(
                     builder, loc, losses, losses, normed, head, given[0],
                     given[1], load(teacher->headKey, teacherHeadType()));
                 return Values{both.getNll(), both.getKl()};
               });
  }

  void buildHiddenEntry(StringRef name) {
    Type hidden = types.activation(config.hiddenSize, types.compute());
    buildEntry(name, options.tokenTile, {},
               {{"hidden", hidden, "tokens", /*isOutput=*/true}},
               [&](Value x, Value norm, ValueRange, ValueRange) {
                 return SmallVector<Value>{finalNorm(x, norm)};
               });
  }

  OpBuilder builder;
  Location loc;
  const ModelConfig &config;
  const ModelWeights &weights;
  const TensorSource &tensors;
  const GraphOptions &options;
  GraphTypes types;
  std::map<LayerKind, func::FuncOp> functions;
  std::map<std::string, unsigned> layerNames;
};

} // namespace

OwningOpRef<ModuleOp> stem::buildModelGraph(MLIRContext &context,
                                            const ModelConfig &config,
                                            const ModelWeights &weights,
                                            const TensorSource &tensors,
                                            const GraphOptions &options) {
  context.loadDialect<StemDialect, func::FuncDialect, arith::ArithDialect,
                      tensor::TensorDialect>();
  return ModelBuilder(context, config, weights, tensors, options).build();
}
