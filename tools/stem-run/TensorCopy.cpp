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

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>

using namespace stem;

/// Elements decoded at a time: 4 MB of f32.
static constexpr uint64_t blockElements = 1 << 20;

double RoundingError::relative() const {
  return squaredSum > 0 ? std::sqrt(squaredError / squaredSum) : 0;
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

DType TypeChoice::typeOf(const TensorInfo &tensor) const {
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
  rounding.values += exact.size();
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = std::fabs(double(exact[i]) - double(got[i]));
    rounding.squaredSum += double(exact[i]) * exact[i];
    rounding.squaredError += error * error;
    if (error > rounding.largest) {
      rounding.largest = error;
      rounding.tensor = tensor;
    }
  }
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
      source.readF32(tensor.name, row, count, exact.data());
      encodeFromF32(type, exact.data(), values, bytes.data());
      if (type != DType::F32) {
        decodeToF32(type, bytes.data(), values, back.data());
        addErrors(rounding, tensor.name, {exact.data(), values},
                  {back.data(), values});
      }
    } else {
      source.readRaw(tensor.name, row, count, bytes.data());
    }
    writer.write(part);
    source.release(tensor.name, row, count);
    onBytes(part.size());
  }
}

static void addGgufFiles(ModelFolderWriter &writer, const GgufFile &file) {
  writer.addText("generation_config.json", ggufGenerationConfigText(file));
  if (!file.has("tokenizer.ggml.model")) {
    printWarning(file.fileName() +
                 ": has no tokenizer; the new folder has none either");
    return;
  }
  writer.addText("tokenizer.json", tokenizerJsonFromGguf(file).dump(1) + "\n");
  writer.addText("tokenizer_config.json",
                 tokenizerConfigFromGguf(file).dump(2) + "\n");
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
