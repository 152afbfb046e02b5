//===- CalibrationText.cpp - What a calibration reads ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationText.h"

#include "Tokenizing.h"

#include "stem/Graph/ModelGraph.h"
#include "stem/Support/Error.h"
#include "stem/Target/Hash.h"

#include <algorithm>
#include <map>
#include <set>

using namespace stem;

namespace {

constexpr int64_t kTile = GraphOptions().tokenTile;
/// Of so many windows one goes to `choose` and one to `check`.
constexpr size_t kDeal = 16;

using Ids = std::span<const int32_t>;

/// `count` of the windows, evenly spread.
std::vector<Ids> spread(const std::vector<Ids> &windows, size_t count) {
  if (count >= windows.size())
    return windows;
  std::vector<Ids> chosen;
  for (size_t i = 0; i < count; ++i)
    chosen.push_back(windows[i * windows.size() / count]);
  return chosen;
}

/// Appends windows, a step being as many as fit.
class StreamBuilder {
public:
  StreamBuilder(TokenStream &stream, int64_t maxStepTokens)
      : stream(stream), maxStepTokens(maxStepTokens) {}

  void add(Ids window) {
    int64_t count = static_cast<int64_t>(window.size());
    int64_t padded = (count + kTile - 1) / kTile * kTile;
    if (stream.steps.empty() ||
        stream.steps.back().count + padded > maxStepTokens) {
      stream.steps.push_back({stream.places(), 0});
      sequence = 0;
    }
    for (int64_t i = 0; i < padded; ++i) {
      bool isPadding = i >= count;
      stream.ids.push_back(isPadding ? 0 : window[i]);
      stream.positions.push_back(static_cast<int32_t>(i));
      stream.sequences.push_back(isPadding ? -1 : sequence);
      stream.labels.push_back(i + 1 < count ? window[i + 1] : -100);
      stream.counted.push_back(!isPadding && i > 0);
    }
    ++sequence;
    stream.steps.back().count += padded;
    stream.tokens += count;
  }

private:
  TokenStream &stream;
  int64_t maxStepTokens;
  int32_t sequence = 0;
};

std::vector<Ids> cutWindows(const std::vector<int32_t> &ids, int64_t length) {
  std::vector<Ids> windows;
  size_t size = static_cast<size_t>(length);
  for (size_t begin = 0; begin + size <= ids.size(); begin += size)
    windows.push_back(Ids(ids).subspan(begin, size));
  return windows;
}

void numberRows(CalibrationText &text) {
  std::set<int32_t> ids;
  for (TokenStream *stream : {&text.fit, &text.choose, &text.check})
    ids.insert(stream->ids.begin(), stream->ids.end());
  text.rowIds.assign(ids.begin(), ids.end());
  for (TokenStream *stream : {&text.fit, &text.choose, &text.check})
    for (int32_t id : stream->ids)
      stream->rows.push_back(static_cast<int32_t>(
          std::lower_bound(text.rowIds.begin(), text.rowIds.end(), id) -
          text.rowIds.begin()));
}

} // namespace

StepTokens TokenStream::step(const Step &step) const {
  auto part = [&](const std::vector<int32_t> &values) {
    return Ids(values).subspan(static_cast<size_t>(step.begin),
                               static_cast<size_t>(step.count));
  };
  return {part(ids), part(positions), part(sequences)};
}

CalibrationText stem::readCalibrationText(const CalibrationTextOptions &options,
                                          const Tokenizer &tokenizer) {
  CalibrationText text;
  StreamBuilder fit(text.fit, options.maxStepTokens);
  StreamBuilder choose(text.choose, options.maxStepTokens);
  StreamBuilder check(text.check, options.maxStepTokens);
  size_t files = options.files.size();
  int64_t windowsOfAll = options.tokens / options.window;
  if (static_cast<size_t>(windowsOfAll) < files)
    fail("--calibrate-tokens={}: {} texts need {} at least, a window of {} "
         "tokens each",
         options.tokens, files, static_cast<int64_t>(files) * options.window,
         options.window);
  size_t dealt = 0;
  for (size_t file = 0; file < files; ++file) {
    std::string path = options.files[file].string();
    std::string content = readText(path);
    std::string hash = hashText(content);
    for (const CalibrationSource &source : text.sources)
      if (source.sha256 == hash)
        fail("--calibrate={}: is the same text as {}; give it once", path,
             source.file);
    TextPart part{content, /*parseSpecial=*/false};
    std::vector<int32_t> ids = encodeText(tokenizer, {&part, 1}, false, path);
    std::vector<Ids> windows = cutWindows(ids, options.window);
    size_t share = static_cast<size_t>(windowsOfAll) / files +
                   (file < static_cast<size_t>(windowsOfAll) % files);
    if (windows.size() < kDeal)
      fail("--calibrate={}: has {} tokens, which is too little to calibrate "
           "on: {} are the least for a text; give a longer one",
           path, ids.size(), static_cast<int64_t>(kDeal) * options.window);
    windows = spread(windows, share);
    for (Ids window : windows) {
      size_t place = dealt++ % kDeal;
      (place == kDeal / 2   ? choose
       : place == kDeal - 1 ? check
                            : fit)
          .add(window);
    }
    text.sources.push_back(
        {path, hash, static_cast<int64_t>(ids.size()),
         static_cast<int64_t>(windows.size()) * options.window});
  }
  numberRows(text);
  return text;
}
