//===- TensorCopy.h - Tensors of a checkpoint into a new folder ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TENSORCOPY_H
#define STEM_TOOLS_STEM_RUN_TENSORCOPY_H

#include "Json.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Model/ModelFolder.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// What rounding did to the values that changed their type.
struct RoundingError {
  uint64_t values = 0;
  double largest = 0;    ///< absolute
  std::string tensor;    ///< where the largest is
  double squaredSum = 0; ///< of the exact values
  double squaredError = 0;
  /// Tensors with NaN or infinite values, and how many; the figures above leave
  /// these out.
  std::map<std::string, uint64_t> notFinite;

  /// Root of the mean squared error over that of the values.
  double relative() const;
  /// [{"tensor": ..., "values": ...}]
  Json notFiniteJson() const;
  /// A warning for each of the first of them.
  void warnNotFinite() const;
};

/// encodeFromF32 for values of this tensor. A finite value that is infinite in
/// `type` is an Error that ends with `advice`; others that are not finite are
/// counted.
void encodeChecked(const std::string &tensor, DType type,
                   std::span<const float> values, std::byte *out,
                   RoundingError &rounding, std::string_view advice);

/// The type a tensor is written in: `wanted`, else its own; a GGUF file with
/// block types becomes bf16 throughout. Integers stay what they are, and the
/// scales of 8-bit rows.
class TypeChoice {
public:
  TypeChoice(const Checkpoint &checkpoint, std::optional<DType> wanted);
  DType typeOf(const TensorInfo &tensor) const;
  /// What config.json should name; nothing to leave it as it is.
  std::optional<DType> modelType() const { return uniform; }

private:
  std::optional<DType> uniform;
};

using BytesDone = std::function<void(uint64_t)>;

/// What a copy holds at most: 2^20 elements as they are read, in f64 or f32 and
/// as they are written, and the pages around them.
inline constexpr int64_t copyingBytes = int64_t(28) << 20;

/// Streams one tensor into `writer`; memory does not depend on its size.
/// `onBytes` hears of the bytes written, piece by piece.
void copyTensor(const TensorSource &source, const TensorInfo &tensor,
                DType type, ModelFolderWriter &writer, RoundingError &rounding,
                const BytesDone &onBytes);

/// The tensors of the source without effect on the model, which a new folder
/// does not list: rotary tables, a tied head that repeats the embedding.
std::vector<std::string> tensorsLeftOut(const Checkpoint &checkpoint);

/// One line on standard output that names them; none when there are none.
void printLeftOut(const std::vector<std::string> &names);

/// Bytes that the tensor takes in `type`.
uint64_t bytesAs(const TensorInfo &tensor, DType type);

/// The file that a layer's table and what goes with it lie in,
/// "stem-table-001.safetensors", and whether a file has such a name.
std::string tableFileName(uint64_t layer);
bool isTableFileName(std::string_view name);

/// Declares all tensors of the model in these types: those of the shards, then
/// table after table. Gives them in this order, which is that of writing them.
std::vector<const TensorInfo *> declareTensors(ModelFolderWriter &writer,
                                               const Checkpoint &checkpoint,
                                               const TypeChoice &types);

/// config.json with these types of the model and of its rows; those in uint8
/// stay what they are.
std::string configTextAs(const Checkpoint &checkpoint, const TypeChoice &types);

/// generation_config.json's; from the metadata when the source is a GGUF file;
/// an empty object when there is none.
std::string generationConfigText(const Checkpoint &checkpoint);

/// Everything beside config.json and the tensors: tokenizer, generation config,
/// chat template; from the metadata when the source is a GGUF file. With
/// `isStem` the modeling file too.
void addModelFiles(ModelFolderWriter &writer, const Checkpoint &checkpoint,
                   bool isStem);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TENSORCOPY_H
