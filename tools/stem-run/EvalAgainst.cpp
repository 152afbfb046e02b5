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
#include "stem/Data/TextDocuments.h"
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
  double difference() const {
    return (own.nll - other.nll) / static_cast<double>(tokens());
  }
  std::vector<Document> documents() const;
  void add(const TokenComparison &token, size_t document);
};

std::vector<Document> FileComparison::documents() const {
  std::vector<Document> differences;
  for (size_t i = 0; i < own.documents.size(); ++i)
    differences.push_back({own.documents[i].nll - other.documents[i].nll,
                           own.documents[i].tokens});
  return differences;
}

void FileComparison::add(const TokenComparison &token, size_t document) {
  own.add(token.loss, document);
  other.add(token.otherLoss, document);
  divergence += token.divergence;
  sameTop += token.sameTop;
  windows.back().difference += token.loss - token.otherLoss;
  ++windows.back().tokens;
}

/// Intervals of perplexity ratios; each is absent where there are too few
/// documents.
struct RatioIntervals {
  std::optional<Interval> all;
  std::vector<std::optional<Interval>> files;
  std::optional<Interval> geometricMean; ///< of the files' ratios
  bool byWindow = false;                 ///< else by document
  bool bootstrap = false;                ///< else Student's t
};

std::optional<Interval> exponential(const std::optional<Interval> &interval) {
  if (!interval || !std::isfinite(interval->low) ||
      !std::isfinite(interval->high))
    return std::nullopt;
  return Interval{std::exp(interval->low), std::exp(interval->high)};
}

/// Of few documents, without a bootstrap.
std::optional<Interval> studentInterval(const std::vector<Document> &sample) {
  return exponential(pairedInterval(sample));
}

/// Documents are the sample, drawn within their file where a file has several;
/// of a single document its windows are.
RatioIntervals ratioIntervals(const std::vector<FileComparison> &results) {
  std::vector<std::vector<Document>> files;
  std::vector<Document> together;
  RatioIntervals ratios;
  for (const FileComparison &result : results) {
    files.push_back(result.documents());
    together.insert(together.end(), files.back().begin(), files.back().end());
    ratios.files.push_back(studentInterval(files.back()));
  }
  ratios.byWindow = together.size() == 1;
  const bool finite =
      std::ranges::all_of(together, [](const Document &document) {
        return std::isfinite(document.difference);
      });
  if (!finite || together.size() < kLeastBootstrapDocuments) {
    ratios.all =
        studentInterval(ratios.byWindow ? results.front().windows : together);
    return ratios;
  }
  ratios.bootstrap = true;
  if (together.size() == files.size()) {
    const std::vector<std::vector<Document>> sample = {together};
    ratios.all = exponential(bootstrapIntervals(sample).all);
    return ratios;
  }
  const BootstrapIntervals intervals = bootstrapIntervals(files);
  ratios.all = exponential(intervals.all);
  bool everyFile = true;
  for (size_t i = 0; i < files.size(); ++i)
    if (files[i].size() >= kLeastBootstrapDocuments)
      ratios.files[i] = exponential(intervals.files[i]);
    else
      everyFile = false;
  if (everyFile)
    ratios.geometricMean = exponential(intervals.meanOfFiles);
  return ratios;
}

/// What all files come to.
struct Totals {
  double ratio = 0, geometricMean = 0; ///< of perplexities
  double divergence = 0, sameTop = 0;  ///< means
  double tokens = 0;
};

Totals totalsOf(const std::vector<FileComparison> &results) {
  Totals totals;
  double difference = 0, differences = 0;
  for (const FileComparison &file : results) {
    difference += file.own.nll - file.other.nll;
    differences += file.difference();
    totals.divergence += file.divergence;
    totals.sameTop += static_cast<double>(file.sameTop);
    totals.tokens += static_cast<double>(file.tokens());
  }
  totals.ratio = std::exp(difference / totals.tokens);
  totals.geometricMean =
      std::exp(differences / static_cast<double>(results.size()));
  totals.divergence /= totals.tokens;
  totals.sameTop /= totals.tokens;
  return totals;
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
  void compareWindow(const EvalFile &text, const Window &window,
                     FileComparison &file);
  void report() const;
  void printReport(const Totals &totals, const RatioIntervals &intervals) const;

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
    : arguments(arguments),
      own(openModelWithRows(arguments.model, arguments.rows)),
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
    const std::string content = readText(file.path);
    const std::vector<std::string> texts = splitDocuments(file.path, content);
    for (size_t i = 0; i < texts.size(); ++i) {
      const TextPart part{texts[i], arguments.special};
      if (second.encode({&part, 1}) != file.documents.at(i))
        fail("{}: the tokenizers of {} and {} give different tokens; the "
             "models can be compared only on the same ones",
             documentPlace(file.path, content, i), arguments.model.string(),
             arguments.against.string());
    }
  }
}

void Comparison::compareWindow(const EvalFile &text, const Window &window,
                               FileComparison &file) {
  const size_t vocab = own.config().vocabSize;
  const auto step = static_cast<size_t>(
      stepTokensForLogits(32 << 20, static_cast<int64_t>(vocab)));
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
    for (size_t i = 0; i < count; ++i) {
      if (window.labels[begin + i] == -100)
        continue;
      requireFiniteLoss(tokens[i].loss, arguments.model, text, window,
                        begin + i);
      requireFiniteLoss(tokens[i].otherLoss, arguments.against, text, window,
                        begin + i);
      file.add(tokens[i], window.document);
    }
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
      compareWindow(file, window, result);
      progress.update(static_cast<double>(done += window.ids.size()));
    }
    results.push_back(std::move(result));
  }
  seconds = watch.seconds();
  printTableUse(*ownEngine);
  printTableUse(*otherEngine);
  report();
}

Json intervalJson(const std::optional<Interval> &interval) {
  return interval ? Json({interval->low, interval->high}) : Json(nullptr);
}

std::string intervalText(const std::optional<Interval> &interval) {
  return interval
             ? fmt::format(" ({:.4f} to {:.4f})", interval->low, interval->high)
             : "";
}

Json fileJson(const EvalFile &file, const FileComparison &result,
              const std::optional<Interval> &interval) {
  const double tokens = static_cast<double>(result.tokens());
  Json json = {
      {"file", file.path},
      {"perplexity", finiteOrNull(result.own.perplexity())},
      {"perplexity_standard_error", finiteOrNull(result.own.perplexityError())},
      {"against_perplexity", finiteOrNull(result.other.perplexity())},
      {"perplexity_ratio", finiteOrNull(std::exp(result.difference()))},
      {"perplexity_ratio_interval", intervalJson(interval)},
      {"tokens", file.tokens()},
      {"scored_tokens", result.tokens()},
      {"bytes", file.bytes},
      {"bits_per_byte", finiteOrNull(result.own.bitsPerByte(file.bytes))},
      {"mean_kl", finiteOrNull(result.divergence / tokens)},
      {"top1_agreement", static_cast<double>(result.sameTop) / tokens}};
  if (file.isJsonLines) {
    json["documents"] = Json::array();
    for (size_t i = 0; i < result.own.documents.size(); ++i)
      json["documents"].push_back(
          {{"tokens", result.own.documents[i].tokens},
           {"nll", finiteOrNull(result.own.documents[i].nll)},
           {"against_nll", finiteOrNull(result.other.documents[i].nll)}});
  }
  return json;
}

void Comparison::printReport(const Totals &totals,
                             const RatioIntervals &intervals) const {
  fmt::print("{}\n", protocol.describe());
  for (size_t i = 0; i < files.size(); ++i)
    fmt::print("{}: perplexity {:.4f} against {:.4f}, ratio {:.4f}{}, {} "
               "tokens scored\n",
               files[i].path, results[i].own.perplexity(),
               results[i].other.perplexity(), std::exp(results[i].difference()),
               intervalText(intervals.files[i]), results[i].tokens());
  fmt::print("mean KL({} || {}) {:.5f} nats, same first token {:.2f} %\n",
             arguments.against.string(), arguments.model.string(),
             totals.divergence, 100 * totals.sameTop);
  if (files.size() > 1)
    fmt::print("geometric mean of the files' ratios {:.4f}{}\n",
               totals.geometricMean, intervalText(intervals.geometricMean));
  fmt::print("perplexity ratio {:.4f}", totals.ratio);
  if (intervals.all)
    fmt::print(", 95 % interval {:.4f} to {:.4f} (paired by {}{})\n",
               intervals.all->low, intervals.all->high,
               intervals.byWindow ? "window of the one document" : "document",
               intervals.bootstrap ? ", bootstrap" : "");
  else
    fmt::print("; an interval needs more documents\n");
}

void Comparison::report() const {
  const Totals totals = totalsOf(results);
  const RatioIntervals intervals = ratioIntervals(results);
  if (!arguments.json)
    return printReport(totals, intervals);
  Json json = resultObject("eval");
  json.update({{"model", arguments.model.string()},
               {"against", arguments.against.string()},
               {"protocol", protocol.toJson()},
               {"files", Json::array()},
               {"mean_kl", finiteOrNull(totals.divergence)},
               {"top1_agreement", totals.sameTop},
               {"perplexity_ratio", finiteOrNull(totals.ratio)},
               {"perplexity_ratio_interval", intervalJson(intervals.all)}});
  if (files.size() > 1)
    json.update({{"geometric_mean_ratio", finiteOrNull(totals.geometricMean)},
                 {"geometric_mean_ratio_interval",
                  intervalJson(intervals.geometricMean)}});
  json.update({{"interval_unit", intervals.byWindow ? "window" : "document"},
               {"interval_method", intervals.bootstrap ? "bootstrap" : "t"},
               {"tokens_per_second", totals.tokens / seconds},
               {"peak_bytes", memoryStatus().peakResident}});
  for (size_t i = 0; i < files.size(); ++i)
    json["files"].push_back(fileJson(files[i], results[i], intervals.files[i]));
  printJson(json);
}

} // namespace

void stem::compareModels(const EvalArguments &arguments) {
  Comparison(arguments).run();
}
