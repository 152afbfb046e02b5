//===- EvalAgainst.cpp - eval --against: two models compared ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Eval.h"

#include "Progress.h"
#include "Statistics.h"
#include "Tokenizing.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Parallel.h"

#include <algorithm>
#include <cmath>

using namespace stem;

namespace {

/// One scored token under both models.
struct TokenComparison {
  double loss;       ///< of the model
  double otherLoss;  ///< of the one it is compared with
  double divergence; ///< KL(other || model)
  bool sameTop;
};

struct FileComparison {
  FileResult own;
  FileResult other;
  double divergence = 0; ///< sum
  int64_t sameTop = 0;
  std::vector<Document> windows; ///< loss differences window by window

  int64_t tokens() const { return static_cast<int64_t>(own.losses.size()); }
  void add(const TokenComparison &token);
};

void FileComparison::add(const TokenComparison &token) {
  own.losses.push_back(token.loss);
  own.nll += token.loss;
  other.losses.push_back(token.otherLoss);
  other.nll += token.otherLoss;
  divergence += token.divergence;
  sameTop += token.sameTop;
  windows.back().difference += token.loss - token.otherLoss;
  ++windows.back().tokens;
}

struct Distribution {
  std::span<const float> logits;
  size_t top;
  double logSum; ///< logarithm of the sum of exp(logits)
};

Distribution distributionOf(std::span<const float> logits) {
  const auto top = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(double(logit) - double(*top));
  return {logits, static_cast<size_t>(top - logits.begin()),
          double(*top) + std::log(sum)};
}

TokenComparison compareToken(std::span<const float> ownLogits,
                             std::span<const float> otherLogits,
                             int32_t label) {
  const Distribution own = distributionOf(ownLogits);
  const Distribution other = distributionOf(otherLogits);
  double divergence = 0;
  for (size_t i = 0; i < ownLogits.size(); ++i) {
    const double logOther = double(otherLogits[i]) - other.logSum;
    const double logOwn = double(ownLogits[i]) - own.logSum;
    divergence += std::exp(logOther) * (logOther - logOwn);
  }
  const size_t target = static_cast<size_t>(label);
  return {own.logSum - double(ownLogits[target]),
          other.logSum - double(otherLogits[target]), divergence,
          own.top == other.top};
}

class Comparison {
public:
  explicit Comparison(const EvalArguments &arguments);
  void run();

private:
  void checkSameTokens(const Tokenizer &other) const;
  void compareWindow(const Window &window, FileComparison &file);
  void report() const;
  std::optional<Interval> ratioInterval(bool &byDocument) const;

  const EvalArguments &arguments;
  Checkpoint own, other;
  Tokenizer tokenizer;
  EvalProtocol protocol;
  std::vector<EvalFile> files;
  std::vector<FileComparison> results;
  ContextPtr context;
  std::unique_ptr<Engine> ownEngine, otherEngine;
  double seconds = 0;
};

Comparison::Comparison(const EvalArguments &arguments)
    : arguments(arguments), own(openModel(arguments.model)),
      other(openModel(arguments.against)),
      tokenizer(requireTokenizer(own, "--against compares on text")),
      protocol(chooseProtocol(arguments, own.config(), tokenizer)),
      files(
          readFiles(arguments, tokenizer, protocol.context, protocol.stride)) {
  if (own.config().vocabSize != other.config().vocabSize)
    fail("{} has {} ids and {} has {}: the models can be compared only on the "
         "same vocabulary",
         arguments.model.string(), own.config().vocabSize,
         arguments.against.string(), other.config().vocabSize);
  const Tokenizer second =
      requireTokenizer(other, "--against compares on text");
  checkSameTokens(second);
  for (const Checkpoint *model : {&own, &other})
    warnOfCalibrationTexts(*model, files);
  EvalArguments same = arguments;
  same.context = protocol.context;
  chooseProtocol(same, other.config(), second);
}

void Comparison::checkSameTokens(const Tokenizer &second) const {
  for (const EvalFile &file : files) {
    const std::string text = readText(file.path);
    const TextPart part{text, arguments.special};
    if (second.encode({&part, 1}) != file.ids)
      fail("{}: the tokenizers of {} and {} give different tokens; the models "
           "can be compared only on the same ones",
           file.path, arguments.model.string(), arguments.against.string());
  }
}

void Comparison::compareWindow(const Window &window, FileComparison &file) {
  // 16 MB of logits a model.
  const size_t vocab = own.config().vocabSize;
  const size_t step = std::clamp<size_t>((4u << 20) / vocab, 64, 2048);
  ownEngine->truncate(0, 0);
  otherEngine->truncate(0, 0);
  file.windows.emplace_back();
  for (size_t begin = 0; begin < window.ids.size(); begin += step) {
    const size_t count = std::min(step, window.ids.size() - begin);
    const PrefillChunk chunk{0, window.ids.subspan(begin, count),
                             /*allLogits=*/true};
    const std::span ownLogits = ownEngine->prefill({&chunk, 1});
    const std::span otherLogits = otherEngine->prefill({&chunk, 1});
    std::vector<TokenComparison> tokens(count);
    parallelFor(context.get(), static_cast<int64_t>(count), [&](size_t i) {
      if (window.labels[begin + i] != -100)
        tokens[i] = compareToken(ownLogits.subspan(i * vocab, vocab),
                                 otherLogits.subspan(i * vocab, vocab),
                                 window.labels[begin + i]);
    });
    for (size_t i = 0; i < count; ++i)
      if (window.labels[begin + i] != -100)
        file.add(tokens[i]);
  }
}

void Comparison::run() {
  EngineOptions options = engineOptions(arguments.compile);
  options.maxPositions = protocol.context;
  context = createContext(options.threads);
  ownEngine = createEngine(own, options);
  otherEngine = createEngine(other, options);
  size_t total = 0, done = 0;
  for (const EvalFile &file : files)
    for (const Window &window : file.windows)
      total += window.ids.size();
  const Stopwatch watch;
  Progress progress("eval --against", static_cast<double>(total));
  for (const EvalFile &file : files) {
    FileComparison result;
    for (const Window &window : file.windows) {
      compareWindow(window, result);
      progress.update(static_cast<double>(done += window.ids.size()));
    }
    results.push_back(std::move(result));
  }
  seconds = watch.seconds();
  report();
}

/// By document where there are several, else by the windows of the only one.
std::optional<Interval> Comparison::ratioInterval(bool &byDocument) const {
  byDocument = results.size() > 1;
  std::vector<Document> documents;
  for (const FileComparison &file : results)
    documents.push_back({file.own.nll - file.other.nll, file.tokens()});
  if (!byDocument)
    documents = results.front().windows;
  auto interval = pairedInterval(documents);
  if (interval)
    *interval = {std::exp(interval->low), std::exp(interval->high)};
  return interval;
}

Json fileJson(const EvalFile &file, const FileComparison &result) {
  const double tokens = static_cast<double>(result.tokens());
  return {
      {"file", file.path},
      {"perplexity", finiteOrNull(result.own.perplexity())},
      {"perplexity_standard_error", finiteOrNull(result.own.perplexityError())},
      {"against_perplexity", finiteOrNull(result.other.perplexity())},
      {"tokens", file.ids.size()},
      {"scored_tokens", result.tokens()},
      {"bytes", file.bytes},
      {"bits_per_byte", finiteOrNull(result.own.bitsPerByte(file.bytes))},
      {"mean_kl", finiteOrNull(result.divergence / tokens)},
      {"top1_agreement", static_cast<double>(result.sameTop) / tokens}};
}

void Comparison::report() const {
  double difference = 0, divergence = 0, sameTop = 0, tokens = 0;
  for (const FileComparison &file : results) {
    difference += file.own.nll - file.other.nll;
    divergence += file.divergence;
    sameTop += static_cast<double>(file.sameTop);
    tokens += static_cast<double>(file.tokens());
  }
  bool byDocument = false;
  const auto interval = ratioInterval(byDocument);
  const double ratio = std::exp(difference / tokens);
  if (arguments.json) {
    Json json = resultObject("eval");
    json.update(
        {{"model", arguments.model.string()},
         {"against", arguments.against.string()},
         {"protocol", protocol.toJson()},
         {"files", Json::array()},
         {"mean_kl", finiteOrNull(divergence / tokens)},
         {"top1_agreement", sameTop / tokens},
         {"perplexity_ratio", finiteOrNull(ratio)},
         {"perplexity_ratio_interval",
          interval ? Json({interval->low, interval->high}) : Json(nullptr)},
         {"interval_unit", byDocument ? "document" : "window"},
         {"tokens_per_second", tokens / seconds},
         {"peak_bytes", memoryStatus().peakResident}});
    for (size_t i = 0; i < files.size(); ++i)
      json["files"].push_back(fileJson(files[i], results[i]));
    return printJson(json);
  }
  fmt::print("{}\n", protocol.describe());
  for (size_t i = 0; i < files.size(); ++i)
    fmt::print("{}: perplexity {:.4f} against {:.4f}, {} tokens scored\n",
               files[i].path, results[i].own.perplexity(),
               results[i].other.perplexity(), results[i].tokens());
  fmt::print("mean KL({} || {}) {:.5f} nats, same first token {:.2f} %\n",
             arguments.against.string(), arguments.model.string(),
             divergence / tokens, 100 * sameTop / tokens);
  fmt::print("perplexity ratio {:.4f}", ratio);
  if (interval)
    fmt::print(", 95 % interval {:.4f} to {:.4f} (paired by {})\n",
               interval->low, interval->high,
               byDocument ? "document" : "window of the one document");
  else
    fmt::print("; an interval needs more documents\n");
}

} // namespace

void stem::compareModels(const EvalArguments &arguments) {
  Comparison(arguments).run();
}
