//===- RunState.cpp - Where a run is, beside its tensors ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunState.h"

#include "Progress.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"
#include "stem/Support/ShallowJson.h"

#include <algorithm>
#include <cmath>

using namespace stem;

static constexpr int kVersion = 1;

std::string RunState::text() const {
  const Json json = {{"version", kVersion},
                     {"step", step},
                     {"epoch", position.epoch},
                     {"index", position.index},
                     {"labels", labels},
                     {"skipped_steps", skipped},
                     {"loss", loss},
                     {"seconds", seconds},
                     {"options", options}};
  return jsonText(json, 2) + "\n";
}

RunState RunState::parse(const std::string &text,
                         const std::filesystem::path &path) {
  const Json json = parseShallowObject(text).value_or(Json());
  const auto refuse = [&](const std::string &key, const char *wanted) {
    fail("{}: \"{}\" is not {}", path.string(), key, wanted);
  };
  if (!json.is_object() || json.value("version", Json()) != kVersion)
    refuse("version", "1, which this program reads");
  const auto count = [&](const char *key) {
    const Json value = json.value(key, Json());
    if (!value.is_number_integer() || value < 0)
      refuse(key, "a whole number from 0");
    return value.get<int64_t>();
  };
  const auto number = [&](const char *key) {
    const Json value = json.value(key, Json());
    if (!value.is_number())
      refuse(key, "a number");
    return value.get<double>();
  };
  RunState state;
  state.step = count("step");
  state.position = {static_cast<uint64_t>(count("epoch")),
                    static_cast<uint64_t>(count("index"))};
  state.labels = count("labels");
  state.skipped = count("skipped_steps");
  state.loss = number("loss");
  state.seconds = number("seconds");
  state.options = json.value("options", Json());
  if (!state.options.is_object())
    refuse("options", "an object");
  return state;
}

void RunState::requireOptions(const Json &given, const std::string &run) const {
  const Json now = Json::parse(jsonText(given)); // as `options` was written
  std::string differences;
  const auto add = [&](const std::string &key, const Json *then,
                       const Json *value) {
    const auto text = [](const Json *json) {
      return json ? printable(jsonText(*json)) : std::string("nothing");
    };
    differences +=
        fmt::format("{}{} was {}, is {}", differences.empty() ? "" : "; ", key,
                    text(then), text(value));
  };
  for (const auto &[key, value] : now.items()) {
    const auto then = options.find(key);
    if (then == options.end() || *then != value)
      add(key, then == options.end() ? nullptr : &*then, &value);
  }
  for (const auto &[key, value] : options.items())
    if (!now.contains(key))
      add(key, &value, nullptr);
  if (!differences.empty())
    fail("{}: --resume goes on with the same model, data and options, or the "
         "result would be that of neither run: {}; give what was, or begin a "
         "new run",
         run, differences);
}

std::string stem::modelFingerprint(const Checkpoint &checkpoint) {
  constexpr uint64_t blockBytes = 4 << 20;
  const Heartbeat heartbeat("hashing the model");
  const TensorSource &source = checkpoint.tensors();
  Sha256 hash;
  hash.update(checkpoint.config().sourceText);
  std::vector<std::byte> block;
  for (const std::string &name : checkpoint.weights().names()) {
    const TensorInfo &tensor = source.get(name);
    hash.update(fmt::format("{} {} {}\n", name, dtypeName(tensor.dtype),
                            formatShape(tensor.shape)));
    if (tensor.elements() == 0)
      continue;
    const uint64_t rows = tensor.rows(), rowBytes = tensor.bytes / rows;
    const uint64_t step = std::clamp<uint64_t>(blockBytes / rowBytes, 1, rows);
    block.resize(step * rowBytes);
    for (uint64_t row = 0; row < rows; row += step) {
      const uint64_t count = std::min(step, rows - row);
      source.readRaw(name, row, count, block.data());
      hash.update(std::span(block).first(count * rowBytes));
      source.release(name, row, count);
    }
  }
  return hash.finish();
}
