//===- CalibrationGraph.cpp - The parts that calibration runs -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Graph/CalibrationGraph.h"

#include "LayerGraph.h"

#include <map>

using namespace mlir;
using namespace stem;

namespace {

class CalibrationBuilder {
public:
  CalibrationBuilder(MLIRContext &context, const ModelConfig &config,
                     const ModelWeights &weights, const TensorSource &tensors,
                     const GraphOptions &options)
      : builder(&context), loc(builder.getUnknownLoc()), config(config),
        weights(weights), tensors(tensors), options(options),
        types(context, config, options.compute),
        wide(types.activation(config.intermediateSize, builder.getF32Type())) {}

  CalibrationGraph build() {
    CalibrationGraph graph;
    graph.module = ModuleOp::create(builder, loc);
    builder.setInsertionPointToEnd(graph.module->getBody());
    declareModel();
    buildEmbed();
    buildScore();
    std::map<LayerKind, size_t> known;
    for (uint64_t i = 0; i < config.layerCount(); ++i) {
      auto [entry, isNew] =
          known.try_emplace(layerKind(config, weights, i), graph.kinds.size());
      if (isNew) {
        graph.kinds.push_back({i, std::to_string(entry->second)});
        buildKind(graph.kinds.back());
      }
      graph.kindOfLayer.push_back(entry->second);
    }
    return graph;
  }

private:
  RankedTensorType embeddingType() const {
    return types.matrix(config.vocabSize, config.hiddenSize);
  }

  void declare(const std::string &key, RankedTensorType type) {
    ParamOp::create(builder, loc, key, key, type);
  }

  void declareModel() {
    declare(weights.embedding, embeddingType());
    declare(weights.finalNorm, types.vector(config.hiddenSize));
    if (!weights.isHeadTied)
      declare(weights.head, embeddingType());
  }

  Value load(const std::string &key, Type type) {
    return ParamLoadOp::create(builder, loc, type, key);
  }

  /// An entry whose outputs `body` makes of the arguments.
  void buildEntry(const std::string &name, ArrayRef<GraphArgument> arguments,
                  function_ref<SmallVector<Value>(ValueRange)> body) {
    func::FuncOp entry = createEntry(builder, loc, name, options.tokenTile,
                                     arguments, config.vocabSize);
    OpBuilder::InsertionGuard guard(builder);
    Block *block = entry.addEntryBlock();
    builder.setInsertionPointToStart(block);
    func::ReturnOp::create(builder, loc, body(block->getArguments()));
  }

  GraphArgument input(StringRef name, Type type) {
    return {name, type, "tokens"};
  }
  GraphArgument output(StringRef name, Type type) {
    return {name, type, "tokens", /*isOutput=*/true};
  }

  void buildEmbed() {
    buildEntry("embed",
               {input("ids", types.ids()), output("x", types.residual())},
               [&](ValueRange arguments) -> SmallVector<Value> {
                 return {EmbeddingOp::create(
                     builder, loc, types.residual(), arguments[0],
                     load(weights.embedding, embeddingType()))};
               });
  }

  void buildScore() {
    Type losses =
        RankedTensorType::get({ShapedType::kDynamic}, builder.getF32Type());
    buildEntry("score",
               {input("x", types.residual()), input("labels", types.ids()),
                output("nll", losses)},
               [&](ValueRange arguments) -> SmallVector<Value> {
                 Value normed = RMSNormOp::create(
                     builder, loc,
                     types.activation(config.hiddenSize, types.compute()),
                     arguments[0],
                     load(weights.finalNorm, types.vector(config.hiddenSize)),
                     builder.getF64FloatAttr(config.rmsNormEps));
                 return {CrossEntropyOp::create(
                     builder, loc, losses, normed,
                     load(weights.head, embeddingType()), arguments[1])};
               });
  }

  /// Loads what an entry of the layer may use; what it does not use goes as
  /// dead code.
  LayerInputs loadLayer(uint64_t index) {
    LayerInputs inputs;
    for (const LayerParam &param : layerParams(weights.layers[index]))
      inputs.weights[param.role] = load(param.key, types.param(index, param));
    return inputs;
  }

  LayerBuilder layerBuilder(uint64_t index, LayerInputs inputs) {
    return LayerBuilder(builder, loc, config, config.layers[index], types,
                        std::move(inputs));
  }

  void buildKind(const CalibrationKind &kind) {
    uint64_t index = kind.representative;
    for (const LayerParam &param : layerParams(weights.layers[index]))
      declare(param.key, types.param(index, param));
    buildAttention(index, "attention_" + kind.suffix);
    buildFeedForward(index, "ffn_" + kind.suffix);
    if (!config.layers[index].isStem)
      buildFittedParts(kind);
  }

  /// The rows of a STEM layer are an argument: where they lie is the caller's
  /// business.
  void buildFeedForward(uint64_t index, const std::string &name) {
    const LayerWeights &layer = weights.layers[index];
    SmallVector<GraphArgument> arguments = {
        input("middle", types.residual()),
        output("out", types.residual()),
    };
    if (config.layers[index].isStem) {
      Type rows = tableType(builder, config, tensors, layer).getElementType();
      arguments.push_back(
          {"rows", types.activation(config.intermediateSize, rows), ""});
      arguments.push_back(input("index", types.ids()));
    }
    if (!layer.upSelectIds.empty()) {
      arguments.push_back(input("ids", types.ids()));
      arguments.push_back({"selected", types.ids(), ""});
    }
    buildEntry(name, arguments, [&](ValueRange values) -> SmallVector<Value> {
      LayerInputs inputs = loadLayer(index);
      if (values.size() > 2) {
        inputs.rows = values[2];
        inputs.index = values[3];
      }
      if (values.size() > 4) {
        inputs.ids = values[4];
        inputs.selected = values[5];
      }
      return {
          layerBuilder(index, std::move(inputs)).feedForwardBlock(values[0])};
    });
  }

  /// What a dense layer is fitted with.
  void buildFittedParts(const CalibrationKind &kind) {
    uint64_t index = kind.representative;
    buildEntry("taps_" + kind.suffix,
               {input("middle", types.residual()),
                output("hidden", types.residual()), output("gate", wide),
                output("up", wide)},
               [&](ValueRange arguments) -> SmallVector<Value> {
                 auto taps = layerBuilder(index, loadLayer(index))
                                 .feedForwardTaps(arguments[0]);
                 return {taps.hidden, taps.gate, taps.up};
               });
    buildEntry(
        "product_" + kind.suffix,
        {input("z", wide), output("out", types.residual())},
        [&](ValueRange arguments) -> SmallVector<Value> {
          return {
              layerBuilder(index, loadLayer(index)).downProduct(arguments[0])};
        });
    buildEntry("project_" + kind.suffix,
               {input("middle", types.residual()), input("z", wide),
                output("out", types.residual())},
               [&](ValueRange arguments) -> SmallVector<Value> {
                 return {layerBuilder(index, loadLayer(index))
                             .addProduct(arguments[0], arguments[1])};
               });
  }

  void buildAttention(uint64_t index, const std::string &name) {
    buildEntry(name,
               {input("x", types.residual()),
                input("positions", types.ids()),
                input("sequences", types.ids()),
                {"cache", KVCacheType::get(builder.getContext()), ""},
                output("middle", types.residual())},
               [&](ValueRange arguments) -> SmallVector<Value> {
                 auto angles =
                     types.activation(config.headDim / 2, builder.getF32Type());
                 auto rotary = RotaryAnglesOp::create(
                     builder, loc, angles, angles, arguments[1],
                     builder.getDenseF32ArrayAttr(
                         config.rope.inverseFrequencies(config.headDim)),
                     builder.getF64FloatAttr(config.rope.attentionScaling));
                 LayerInputs inputs = loadLayer(index);
                 inputs.positions = arguments[1];
                 inputs.sequences = arguments[2];
                 inputs.cos = rotary.getCos();
                 inputs.sin = rotary.getSin();
                 inputs.cache = arguments[3];
                 inputs.number =
                     arith::ConstantIndexOp::create(builder, loc, 0);
                 return {layerBuilder(index, std::move(inputs))
                             .attentionBlock(arguments[0])};
               });
  }

  OpBuilder builder;
  Location loc;
  const ModelConfig &config;
  const ModelWeights &weights;
  const TensorSource &tensors;
  const GraphOptions &options;
  GraphTypes types;
  RankedTensorType wide;
};

} // namespace

CalibrationGraph stem::buildCalibrationGraph(MLIRContext &context,
                                             const ModelConfig &config,
                                             const ModelWeights &weights,
                                             const TensorSource &tensors,
                                             const GraphOptions &options) {
  context.loadDialect<StemDialect, func::FuncDialect, arith::ArithDialect>();
  return CalibrationBuilder(context, config, weights, tensors, options).build();
}

std::string stem::correspondingKey(const ModelWeights &weights,
                                   uint64_t representative, uint64_t layer,
                                   const std::string &key) {
  std::vector<LayerParam> from = layerParams(weights.layers[representative]);
  std::vector<LayerParam> to = layerParams(weights.layers[layer]);
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i].key == key)
      return to[i].key;
  return key;
}
