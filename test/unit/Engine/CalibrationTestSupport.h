//===- CalibrationTestSupport.h - Streams of tokens for tests ---*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_ENGINE_CALIBRATIONTESTSUPPORT_H
#define STEM_TEST_UNIT_ENGINE_CALIBRATIONTESTSUPPORT_H

#include "CalibrationText.h"
#include "EngineTestSupport.h"

#include "stem/Graph/ModelGraph.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace stem::test {

inline constexpr int64_t kTile = kTokenTile;
inline constexpr int64_t kHidden = 32, kWide = 80; ///< of the golden models
inline constexpr uint64_t kLayers = 3;

using Windows = std::vector<std::vector<int32_t>>;

/// Windows of ids below `vocab`, of lengths that fill no tile.
inline Windows someWindows(size_t count, size_t length, uint32_t seed,
                           int32_t vocab = kVocab) {
  Windows windows;
  for (size_t i = 0; i < count; ++i) {
    windows.push_back(someIds(length, seed + static_cast<uint32_t>(i)));
    for (int32_t &id : windows.back())
      id %= vocab;
  }
  return windows;
}

/// Written out again here, so that CalibrationText has something to agree with.
inline TokenStream makeStream(const Windows &windows, int64_t maxStepTokens) {
  TokenStream stream;
  int32_t sequence = 0;
  for (const std::vector<int32_t> &window : windows) {
    int64_t length = static_cast<int64_t>(window.size());
    int64_t padded = (length + kTile - 1) / kTile * kTile;
    if (stream.steps.empty() ||
        stream.steps.back().count + padded > maxStepTokens) {
      stream.steps.push_back({stream.places(), 0});
      sequence = 0;
    }
    stream.steps.back().count += padded;
    stream.tokens += length;
    for (int64_t i = 0; i < padded; ++i) {
      stream.ids.push_back(i < length ? window[i] : 0);
      stream.positions.push_back(static_cast<int32_t>(i));
      stream.sequences.push_back(i < length ? sequence : -1);
      stream.labels.push_back(i + 1 < length ? window[i + 1] : -100);
      stream.counted.push_back(i > 0 && i < length);
    }
    ++sequence;
  }
  return stream;
}

inline CalibrationText makeText(const Windows &fit, const Windows &choose,
                                const Windows &check, int64_t maxStepTokens) {
  CalibrationText text;
  text.fit = makeStream(fit, maxStepTokens);
  text.choose = makeStream(choose, maxStepTokens);
  text.check = makeStream(check, maxStepTokens);
  std::set<int32_t> ids;
  for (TokenStream *stream : {&text.fit, &text.choose, &text.check})
    ids.insert(stream->ids.begin(), stream->ids.end());
  text.rowIds.assign(ids.begin(), ids.end());
  for (TokenStream *stream : {&text.fit, &text.choose, &text.check})
    for (int32_t id : stream->ids)
      stream->rows.push_back(static_cast<int32_t>(
          std::find(text.rowIds.begin(), text.rowIds.end(), id) -
          text.rowIds.begin()));
  return text;
}

/// Losses of every place by the engine's own forward pass, in the layout of
/// makeStream; 0 at padding.
inline std::vector<float> engineLosses(const std::filesystem::path &folder,
                                       const Windows &windows, DType dtype) {
  EngineOptions options;
  options.dtype = dtype;
  options.threads = 2;
  options.maxSequences = static_cast<int64_t>(windows.size());
  std::unique_ptr<Engine> engine = makeEngine(folder, options);
  std::vector<std::vector<int32_t>> labels;
  for (const std::vector<int32_t> &window : windows) {
    labels.emplace_back(window.begin() + 1, window.end());
    labels.back().push_back(-100);
  }
  std::vector<ScoreWindow> asked;
  for (size_t i = 0; i < windows.size(); ++i)
    asked.push_back({windows[i], labels[i]});
  const std::vector<float> losses = engine->score(asked);
  std::vector<float> result;
  auto from = losses.begin();
  for (const std::vector<int32_t> &window : windows) {
    result.insert(result.end(), from, from + window.size());
    from += window.size();
    result.resize((result.size() + kTile - 1) / kTile * kTile);
  }
  return result;
}

inline EngineOptions runnerOptions(int64_t maxStepTokens, int threads = 2,
                                   DType dtype = DType::F32) {
  EngineOptions options;
  options.dtype = dtype;
  options.threads = threads;
  options.maxPositions = 128;
  options.maxStepTokens = maxStepTokens;
  options.maxSequences = maxStepTokens / kTile;
  return options;
}

/// The mean over the places that have a label.
inline double meanOfScored(std::span<const float> losses,
                           const TokenStream &stream) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < stream.labels.size(); ++i)
    if (stream.labels[i] != -100) {
      sum += losses[i];
      count += 1;
    }
  return sum / count;
}

/// Tensors by name, and what happens to their elements.
using TensorChanges =
    std::map<std::string, std::function<void(std::span<float>)>>;

inline void toZero(std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0f);
}

/// A copy of a golden model, in f32, with other values in some tensors.
inline void copyChanged(const std::string &model,
                        const std::filesystem::path &folder,
                        const TensorChanges &changes) {
  std::filesystem::copy(goldenFolder(model), folder);
  std::string file = readText(folder / "model.safetensors");
  uint64_t size;
  std::memcpy(&size, file.data(), sizeof(size));
  const auto header = nlohmann::json::parse(file.substr(sizeof(size), size));
  for (const auto &[name, change] : changes) {
    const auto offsets =
        header.at(name).at("data_offsets").get<std::array<uint64_t, 2>>();
    std::vector<float> values((offsets[1] - offsets[0]) / sizeof(float));
    char *place = file.data() + sizeof(size) + size + offsets[0];
    std::memcpy(values.data(), place, offsets[1] - offsets[0]);
    change(values);
    std::memcpy(place, values.data(), offsets[1] - offsets[0]);
  }
  std::filesystem::remove(folder / "model.safetensors");
  writeText(folder / "model.safetensors", file);
}

} // namespace stem::test

#endif // STEM_TEST_UNIT_ENGINE_CALIBRATIONTESTSUPPORT_H
