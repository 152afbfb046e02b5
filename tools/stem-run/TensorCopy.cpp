//===- TensorCopy.cpp - Tensors of a checkpoint into a new folder -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorCopy.h"

#include "CommandLine.h"
#include "ModelingFile.h"
#include "stem/Model/TokenizerGguf.h"
#include "stem/Support/Error.h"
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/ranges.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

using namespace stem;

/// Elements decoded at a time: 4 MB of f32.
static constexpr uint64_t blockElements = 1 << 20;

double RoundingError::relative() const {
  return squaredSum > 0 ? std::sqrt(squaredError / squaredSum) : 0;
}

Json RoundingError::notFiniteJson() const {
  Json list = Json::array();
  for (const auto &[tensor, count] : notFinite)
    list.push_back({{"tensor", tensor}, {"values", count}});
  return list;
}

void RoundingError::warnNotFinite() const {
  constexpr size_t limit = 10;
  size_t shown = 0;
  for (const auto &[tensor, count] : notFinite) {
    if (shown++ == limit) {
      printWarning(fmt::format("{} more tensors have values that are NaN or "
                               "infinite",
                               notFinite.size() - limit));
      return;
    }
    printWarning(fmt::format("tensor \"{}\" has {} value{} that {} NaN or "
                             "infinite",
                             tensor, count, count == 1 ? "" : "s",
                             count == 1 ? "is" : "are"));
  }
}

TypeChoice::TypeChoice(const Checkpoint &checkpoint,
                       std::optional<DType> wanted)
    : uniform(wanted) {
  if (uniform)
    return;
  for (const TensorInfo &tensor : checkpoint.tensors().tensors())
    if (isQuantized(tensor.dtype))
      uniform = DType::BF16;
}

/// Scales are as exact as the bytes' rows are to be.
static bool isOfByteRows(const std::string &name) {
  return name.ends_with(".mlp.up_table.scale") ||
         name.ends_with(".mlp.up_table.minimum");
}

DType TypeChoice::typeOf(const TensorInfo &tensor) const {
  if (isOfByteRows(tensor.name))
    return tensor.dtype;
  return uniform && isWeightType(tensor.dtype) ? *uniform : tensor.dtype;
}

uint64_t stem::bytesAs(const TensorInfo &tensor, DType type) {
  if (type == tensor.dtype)
    return tensor.bytes;
  const auto bytes = dtypeBytes(type, tensor.elements());
  if (!bytes)
    fail("tensor \"{}\" {} is too large for {}", tensor.name,
         formatShape(tensor.shape), dtypeName(type));
  return *bytes;
}

std::vector<std::string> stem::tensorsLeftOut(const Checkpoint &checkpoint) {
  const std::vector<std::string> &ignored = checkpoint.weights().ignored;
  std::set<std::string> names(ignored.begin(), ignored.end());
  for (const TensorInfo &tensor : checkpoint.tensors().unlisted())
    names.insert(tensor.name);
  return {names.begin(), names.end()};
}

void stem::printLeftOut(const std::vector<std::string> &names) {
  if (!names.empty())
    fmt::print("  left out, without effect: {}\n", fmt::join(names, ", "));
}

static void addErrors(RoundingError &rounding, const std::string &tensor,
                      std::span<const float> exact,
                      std::span<const float> got) {
  for (size_t i = 0; i < exact.size(); ++i) {
    if (!std::isfinite(exact[i]))
      continue; // counted already
    ++rounding.values;
    const double error = std::fabs(double(exact[i]) - double(got[i]));
    rounding.squaredSum += double(exact[i]) * exact[i];
    rounding.squaredError += error * error;
    if (error > rounding.largest) {
      rounding.largest = error;
      rounding.tensor = tensor;
    }
  }
}

static double largestOf(DType type) {
  switch (type) {
  case DType::F16:
    return f16ToF32(0x7bff);
  case DType::BF16:
    return bf16ToF32(0x7f7f);
  default:
    return std::numeric_limits<float>::max();
  }
}

[[noreturn]] static void failTooLarge(const std::string &tensor, double value,
                                      DType type, std::string_view advice) {
  fail("tensor \"{}\": the value {:g} does not fit {}, whose largest is {:g}; "
       "{}",
       printable(tensor), value, dtypeName(type), largestOf(type), advice);
}

template <typename T>
static void countNotFinite(const std::string &tensor, std::span<const T> values,
                           RoundingError &rounding) {
  const auto count = std::count_if(values.begin(), values.end(),
                                   [](T x) { return !std::isfinite(x); });
  if (count)
    rounding.notFinite[tensor] += static_cast<uint64_t>(count);
}

/// The same for values as stored.
static void countNotFinite(const std::string &tensor, DType type,
                           std::span<const std::byte> bytes,
                           RoundingError &rounding) {
  if (!isWeightType(type))
    return;
  const uint64_t count = bytes.size() / dtypeBlockBytes(type);
  if (type == DType::F64) {
    std::vector<double> values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return countNotFinite<double>(tensor, values, rounding);
  }
  std::vector<float> values(count);
  decodeToF32(type, bytes.data(), count, values.data());
  countNotFinite<float>(tensor, values, rounding);
}

/// The bits of the least magnitude that rounds to infinity: of bf16 and f16
/// half a step beyond the largest.
static int32_t leastNotFinite(DType type) {
  return type == DType::BF16  ? 0x7f7f8000
         : type == DType::F16 ? 0x477ff000
                              : 0x7f800000;
}

/// Bits of magnitudes are in the order of the magnitudes, infinity and NaN
/// above all.
static bool staysFinite(DType type, std::span<const float> values) {
  const int32_t least = leastNotFinite(type);
  bool isLarge = false;
  for (const float value : values)
    isLarge |= (std::bit_cast<int32_t>(value) & 0x7fffffff) >= least;
  return !isLarge;
}

void stem::encodeChecked(const std::string &tensor, DType type,
                         std::span<const float> values, std::byte *out,
                         RoundingError &rounding, std::string_view advice) {
  if (!staysFinite(type, values)) {
    countNotFinite<float>(tensor, values, rounding);
    for (const float value : values)
      if (std::isfinite(value) && !staysFinite(type, {&value, 1}))
        failTooLarge(tensor, value, type, advice);
  }
  encodeFromF32(type, values.data(), values.size(), out);
}

/// Reading F64 as f32 must not make a value infinite.
static void checkDoubles(const TensorSource &source, const TensorInfo &tensor,
                         uint64_t row, uint64_t count, DType type) {
  std::vector<double> values(count * tensor.rowElements());
  source.readRaw(tensor.name, row, count,
                 reinterpret_cast<std::byte *>(values.data()));
  for (const double value : values)
    if (std::isfinite(value) && !std::isfinite(static_cast<float>(value)))
      failTooLarge(tensor.name, value, type, "--dtype=keep leaves it as it is");
}

void stem::copyTensor(const TensorSource &source, const TensorInfo &tensor,
                      DType type, ModelFolderWriter &writer,
                      RoundingError &rounding, const BytesDone &onBytes) {
  const uint64_t rows = tensor.rows(), columns = tensor.rowElements();
  if (tensor.elements() == 0)
    return;
  const uint64_t step = std::clamp<uint64_t>(blockElements / columns, 1, rows);
  const bool converts = type != tensor.dtype;
  std::vector<float> exact(converts ? step * columns : 0), back(exact.size());
  std::vector<std::byte> bytes(bytesAs(tensor, type) / rows * step);
  for (uint64_t row = 0; row < rows; row += step) {
    const uint64_t count = std::min(step, rows - row);
    const std::span part(bytes.data(), bytes.size() / step * count);
    if (converts) {
      const uint64_t values = count * columns;
      if (tensor.dtype == DType::F64)
        checkDoubles(source, tensor, row, count, type);
      source.readF32(tensor.name, row, count, exact.data());
      encodeChecked(tensor.name, type, {exact.data(), values}, bytes.data(),
                    rounding, "give --dtype=f32");
      if (type != DType::F32) {
        decodeToF32(type, bytes.data(), values, back.data());
        addErrors(rounding, tensor.name, {exact.data(), values},
                  {back.data(), values});
      }
    } else {
      source.readRaw(tensor.name, row, count, bytes.data());
      countNotFinite(tensor.name, type, part, rounding);
    }
    writer.write(part);
    source.release(tensor.name, row, count);
    onBytes(part.size());
  }
}

std::string stem::tableFileName(uint64_t layer) {
  return fmt::format("stem-table-{:03}.safetensors", layer);
}

bool stem::isTableFileName(std::string_view name) {
  return name.starts_with("stem-table-");
}

static bool isOfTable(const std::string &name) {
  return name.find(".mlp.up_table.") != std::string::npos;
}

std::vector<const TensorInfo *>
stem::declareTensors(ModelFolderWriter &writer, const Checkpoint &checkpoint,
                     const TypeChoice &types) {
  std::vector<const TensorInfo *> tensors;
  const auto next = [&](const std::string &name) {
    const TensorInfo &tensor = checkpoint.tensors().get(name);
    tensors.push_back(&tensor);
    return TensorDeclaration{name, types.typeOf(tensor), tensor.shape};
  };
  const ModelWeights &weights = checkpoint.weights();
  for (const std::string &name : weights.names())
    if (!isOfTable(name))
      writer.addTensor(next(name));
  for (size_t layer = 0; layer < weights.layers.size(); ++layer)
    for (const std::string &name :
         ModelWeights::layerNames(weights.layers[layer]))
      if (isOfTable(name))
        writer.addTensor(next(name), tableFileName(layer));
  return tensors;
}

std::string stem::configTextAs(const Checkpoint &checkpoint,
                               const TypeChoice &types) {
  std::string text = checkpoint.config().sourceText;
  const auto type = types.modelType();
  if (!type)
    return text;
  text = configWithDType(text, *type);
  auto stem = checkpoint.config().stem;
  if (!stem || stem->rowDType == "uint8")
    return text;
  stem->rowDType = dtypeConfigName(*type);
  return configWithStem(text, *stem);
}

static void addGgufFiles(ModelFolderWriter &writer, const GgufFile &file) {
  writer.addText("generation_config.json", ggufGenerationConfigText(file));
  if (!file.has("tokenizer.ggml.model")) {
    printWarning(file.fileName() +
                 ": has no tokenizer; the new folder has none either");
    return;
  }
  writer.addText("tokenizer.json", tokenizerJsonText(file));
  writer.addText("tokenizer_config.json",
                 tokenizerConfigFromGguf(file).dump(2) + "\n");
}

std::string stem::generationConfigText(const Checkpoint &checkpoint) {
  if (checkpoint.gguf())
    return ggufGenerationConfigText(*checkpoint.gguf());
  const std::filesystem::path file =
      checkpoint.path() / "generation_config.json";
  return pathExists(file) ? readModelText(file) : "{}";
}

void stem::addModelFiles(ModelFolderWriter &writer,
                         const Checkpoint &checkpoint, bool isStem) {
  if (checkpoint.gguf())
    addGgufFiles(writer, *checkpoint.gguf());
  else
    writer.addCompanions(checkpoint.path());
  if (isStem)
    writer.addText(std::string(modelingModule) + ".py",
                   std::string(modelingFileText));
}
