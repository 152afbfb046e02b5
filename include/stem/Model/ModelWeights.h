//===- ModelWeights.h - Which tensor plays which role -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_MODELWEIGHTS_H
#define STEM_MODEL_MODELWEIGHTS_H

#include "stem/Model/ModelConfig.h"
#include "stem/Model/TensorSource.h"

#include <string>
#include <vector>

namespace stem {

/// Tensor names of one layer; a role that the layer does not have is empty.
/// d = hiddenSize, f = intermediateSize, q = queryWidth, k = keyValueWidth,
/// V = vocabSize.
struct LayerWeights {
  std::string inputNorm;  ///< [d]; empty for OLMo2
  std::string queryProj;  ///< [q, d]
  std::string keyProj;    ///< [k, d]
  std::string valueProj;  ///< [k, d]
  std::string outputProj; ///< [d, q]
  std::string queryBias;  ///< [q]
  std::string keyBias;    ///< [k]
  std::string valueBias;  ///< [k]
  std::string outputBias; ///< [d]
  std::string queryNorm;  ///< [headDim] or [q], see QkNorm
  std::string keyNorm;    ///< [headDim] or [k]
  std::string
      postAttentionNorm; ///< [d]; before the FFN, OLMo2: after attention
  std::string postFeedForwardNorm; ///< [d]; OLMo2 only
  std::string gateProj;            ///< [f, d]
  std::string upProj;              ///< [f, d]; STEM: only with select
  std::string downProj;            ///< [d, f]
  std::string gateBias;            ///< [f]
  std::string upBias;              ///< [f]; STEM: only with select
  std::string downBias;            ///< [d]
  std::string upTable;             ///< [V, f], STEM
  std::string upTableScale;        ///< [V], 8-bit rows
  std::string upTableMinimum;      ///< [V], 8-bit rows
  std::string upTableHotIds;       ///< [n], i32, rising; may be missing
  std::string upTableHotRows;      ///< [n, f], the rows of these ids
  std::string upMixA;              ///< [f, R], R of the layer
  std::string upMixB;              ///< [R, d]
  std::string upSelectIds;         ///< [n], i32 or i64, rising
};

/// The tensors of a model by role, checked against a source: each is there with
/// the right shape and a type that can be computed with, and every tensor of
/// the source has a role or is known to be without effect.
struct ModelWeights {
  std::string embedding; ///< [V, d]
  std::string finalNorm; ///< [d]
  /// [V, d]; the embedding's name when the head is tied.
  std::string head;
  bool isHeadTied = false;
  std::vector<LayerWeights> layers;

  /// Tensors of the source that are left out on purpose: rotary tables, a tied
  /// head that repeats the embedding, up-projections that a table replaces.
  std::vector<std::string> ignored;

  /// Throws an Error that names the tensor, what was found and what was wanted.
  /// Biases come from the tensors (Qwen2 announces none); a flag that announces
  /// a bias makes it required. A STEM layer has no up_proj.bias: conversion
  /// adds it to every row.
  static ModelWeights resolve(const ModelConfig &config,
                              const TensorSource &source);

  /// Every tensor used, once, in the order of the forward pass.
  std::vector<std::string> names() const;

  /// The weights of the roles above in execution order of one layer.
  static std::vector<std::string> layerNames(const LayerWeights &layer);

  /// Those that a table of 8-bit rows has beside its bytes.
  static std::vector<std::string> byteRowNames(const LayerWeights &layer);
};

/// A tensor that a config asks for.
struct ExpectedTensor {
  std::string name;
  std::vector<uint64_t> shape;
};

/// What a model of this config is made of, for one that begins without tensors:
/// biases are those that the config announces (Qwen2: those of q, k and v).
std::vector<ExpectedTensor> expectedTensors(const ModelConfig &config);

/// "model.layers.N.mlp.up_table.weight" and its kin for the writer of a
/// converted model.
std::string layerTensorName(uint64_t layer, std::string_view suffix);

} // namespace stem

#endif // STEM_MODEL_MODELWEIGHTS_H
