//===- EvalLogits.cpp - eval --input-ids --logits-out -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Eval.h"

#include "Json.h"
#include "OutputFile.h"
#include "Progress.h"
#include "Tokenizing.h"
#include "stem/Model/ModelFolder.h"
#include "stem/Model/Safetensors.h"
#include "stem/Runtime/Arena.h"
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace stem;
namespace fs = std::filesystem;

namespace {

struct Batch {
  uint64_t rows = 0;
  uint64_t length = 0;
  std::vector<int32_t> ids;
};

constexpr uint64_t kMostEmpty = 1 << 20;

/// input_ids of a safetensors file, each id checked.
Batch readBatch(const fs::path &path, uint64_t vocabSize) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const TensorView &tensor = file.get("input_ids");
  const bool isWide = tensor.dtype == DType::I64;
  if (tensor.shape.size() != 2 || (!isWide && tensor.dtype != DType::I32))
    fail("{}: input_ids is {} {}; [batch, tokens] in I64 or I32 was expected",
         path.string(), dtypeName(tensor.dtype), formatShape(tensor.shape));
  // A dimension beside an empty one is bounded by no file.
  if (std::max(tensor.shape[0], tensor.shape[1]) > kMostEmpty &&
      tensor.data.empty())
    fail("{}: input_ids is {}; without an id, rows and tokens are at most {}",
         path.string(), formatShape(tensor.shape), kMostEmpty);
  Batch batch{tensor.shape[0], tensor.shape[1], {}};
  const std::byte *data = tensor.data.data();
  std::vector<int64_t> row(batch.length);
  for (uint64_t b = 0; b < batch.rows; ++b) {
    for (uint64_t t = 0; t < batch.length; ++t) {
      const uint64_t index = b * batch.length + t;
      if (isWide) {
        std::memcpy(&row[t], data + index * 8, 8);
      } else {
        int32_t id;
        std::memcpy(&id, data + index * 4, 4);
        row[t] = id;
      }
    }
    const std::vector<int32_t> ids = checkedIds(
        row, vocabSize, fmt::format("{}: batch {}", path.string(), b));
    batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
  }
  return batch;
}

/// Each row of the batch is a sequence of its own, its logits written in pieces
/// of bounded size. How many of them are not finite.
uint64_t writeRows(Engine &engine, const Batch &batch,
                   SafetensorsWriter &writer) {
  const auto step =
      static_cast<uint64_t>(stepTokensForLogits(64 << 20, engine.vocabSize()));
  Progress progress("eval", static_cast<double>(batch.ids.size()));
  uint64_t notFinite = 0;
  for (uint64_t b = 0; b < batch.rows; ++b) {
    engine.truncate(0, 0);
    for (uint64_t t = 0; t < batch.length; t += step) {
      const PrefillChunk chunk{
          0,
          std::span(batch.ids).subspan(b * batch.length + t,
                                       std::min(step, batch.length - t)),
          /*allLogits=*/true};
      const std::span<const float> logits = engine.prefill({&chunk, 1});
      notFinite += static_cast<uint64_t>(std::ranges::count_if(
          logits, [](float logit) { return !std::isfinite(logit); }));
      writer.write(std::as_bytes(logits));
      progress.update(
          static_cast<double>(b * batch.length + t + chunk.ids.size()));
    }
  }
  return notFinite;
}

/// Before anything is computed: the logits must not take the place of what they
/// come from, nor of another file unless asked.
void checkLogitsOut(const EvalArguments &arguments) {
  const fs::path &out = arguments.logitsOut;
  const fs::path parent = fs::absolute(out).parent_path();
  if (!isFolder(parent))
    fail("{}: the folder {} is not there; make it first", out.string(),
         parent.string());
  std::error_code error;
  if (fs::equivalent(out, arguments.inputIds, error) && !error)
    fail("--logits-out={}: is the file of --input-ids; choose another name",
         out.string());
  requireOutsideModel("--logits-out", out, arguments.model);
  requireReplaceable(out, out.string(), arguments.force);
}

} // namespace

void stem::writeLogits(const EvalArguments &arguments) {
  checkLogitsOut(arguments);
  const Checkpoint checkpoint =
      openModelWithRows(arguments.model, arguments.rows);
  const ModelConfig &config = checkpoint.config();
  const Batch batch = readBatch(arguments.inputIds, config.vocabSize);
  if (config.maxPositions && batch.length > config.maxPositions)
    fail("{}: its rows have {} tokens, the model's context holds {} "
         "(max_position_embeddings)",
         arguments.inputIds.string(), batch.length, config.maxPositions);
  const std::vector<TensorDeclaration> declared = {
      {"logits", DType::F32, {batch.rows, batch.length, config.vocabSize}}};
  const fs::path parent = fs::absolute(arguments.logitsOut).parent_path();
  const uint64_t needed = SafetensorsWriter::plannedBytes(declared);
  if (const uint64_t free = freeDiskBytes(parent); needed > free)
    fail("{}: {} are needed, {} are free on this file system",
         arguments.logitsOut.string(), formatBytes(static_cast<double>(needed)),
         formatBytes(static_cast<double>(free)));
  EngineOptions options = engineOptions(arguments.compile);
  options.maxPositions =
      std::max<int64_t>(1, static_cast<int64_t>(batch.length));
  const auto engine = createEngine(checkpoint, options);
  SafetensorsWriter writer(arguments.logitsOut, declared);
  const Stopwatch watch;
  const uint64_t notFinite = writeRows(*engine, batch, writer);
  writer.finish();
  const double rate = static_cast<double>(batch.ids.size()) / watch.seconds();
  printTableUse(*engine);
  if (notFinite)
    printWarning(
        fmt::format("{}: {} of {} logits of {} are NaN or infinite; {}",
                    arguments.logitsOut.string(), notFinite,
                    batch.ids.size() * config.vocabSize,
                    arguments.model.string(), kNotFiniteAdvice));
  if (arguments.json) {
    Json json = resultObject("eval");
    json.update({{"model", arguments.model.string()},
                 {"logits", arguments.logitsOut.string()},
                 {"shape", declared[0].shape},
                 {"tokens", batch.ids.size()},
                 {"not_finite", notFinite},
                 {"tokens_per_second", finiteOrNull(rate)},
                 {"engine", engineJson(*engine)},
                 {"peak_bytes", memoryStatus().peakResident}});
    return printJson(json);
  }
  fmt::print("{}: logits {} of {} tokens, {:.1f} tokens/s\n",
             arguments.logitsOut.string(), formatShape(declared[0].shape),
             batch.ids.size(), rate);
}
