//===- Eval.cpp - stem-run eval -----------------------------------------===//
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
#include "stem/Graph/ModelGraph.h"
#include "stem/Runtime/Arena.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace stem;

static constexpr int64_t kTile = kTokenTile;

static constexpr const char *footer = R"(Examples:
  stem-run eval smollm2 --text=book.txt
  stem-run eval stem --text=a.txt --text=b.txt --ctx=1024 --stride=512
  stem-run eval stem --text=a.jsonl --text=b.jsonl --against=dense
  stem-run eval smollm2 --input-ids=ids.safetensors --logits-out=logits.safetensors

A document is cut into windows of --ctx tokens whose starts lie --stride apart.
Every token but a document's first is scored once. Documents are never joined,
and a beginning token is there only if the tokenizer's post-processor adds one.
A file is one document; of FILE.jsonl every line is one, {"text": "..."}. The
standard error takes tokens as independent.

--against=MODEL adds the mean KL divergence from that model to this one, how
often both put the same token first, and the ratio of their perplexities with
its 95 % interval, the documents being the sample.

Next: stem-run bench MODEL for speed)";

size_t EvalFile::tokens() const {
  size_t sum = 0;
  for (const std::vector<int32_t> &ids : documents)
    sum += ids.size();
  return sum;
}

void FileResult::add(double loss, size_t document) {
  if (documents.size() <= document)
    documents.resize(document + 1);
  ++documents[document].tokens;
  documents[document].nll += loss;
  losses.push_back(loss);
  nll += loss;
}

double FileResult::perplexity() const {
  return std::exp(nll / static_cast<double>(losses.size()));
}

double FileResult::perplexityError() const {
  return perplexity() * standardError(losses);
}

double FileResult::bitsPerByte(uint64_t bytes) const {
  return nll / std::log(2.0) / static_cast<double>(bytes);
}

std::string EvalProtocol::describe() const {
  return fmt::format("protocol: windows of {} tokens, stride {}, beginning "
                     "token {}, end token {}, every token but the first of a "
                     "document scored once",
                     context, stride, addsBegin ? "added" : "not added",
                     addsEnd ? "added" : "not added");
}

Json EvalProtocol::toJson() const {
  return {{"ctx", context},
          {"stride", stride},
          {"begin_token_added", addsBegin},
          {"end_token_added", addsEnd},
          {"special_tokens_parsed", parsesSpecial}};
}

EvalProtocol stem::chooseProtocol(const EvalArguments &arguments,
                                  const ModelConfig &config,
                                  const Tokenizer &tokenizer) {
  const int64_t limit = static_cast<int64_t>(config.maxPositions);
  EvalProtocol protocol{arguments.context, arguments.stride,
                        tokenizer.addsBeginToken(), tokenizer.addsEndToken(),
                        arguments.special};
  if (protocol.context == 0)
    protocol.context = limit ? std::min<int64_t>(2048, limit) : 2048;
  if (limit && protocol.context > limit)
    fail("--ctx={}: the model's context holds {} tokens "
         "(max_position_embeddings)",
         protocol.context, limit);
  if (protocol.stride == 0)
    protocol.stride = protocol.context;
  if (protocol.stride > protocol.context)
    throw UsageError(fmt::format("--stride={}: must not exceed --ctx={}, or "
                                 "tokens would go unscored",
                                 protocol.stride, protocol.context));
  return protocol;
}

/// Engine options for these windows: as many side by side as fill a step, but
/// a cache of at most four steps' positions.
static EngineOptions scoreOptions(const EvalArguments &arguments,
                                  const std::vector<EvalFile> &files) {
  int64_t longest = 1;
  for (const EvalFile &file : files)
    for (const Window &window : file.windows)
      longest = std::max(longest, static_cast<int64_t>(window.ids.size()));
  EngineOptions options = engineOptions(arguments.compile);
  options.maxPositions = longest;
  options.maxStepTokens = std::max(kStepTokens, longest);
  options.maxSequences =
      std::clamp<int64_t>(4 * kStepTokens / longest, 1, kStepTokens / kTile);
  return options;
}

static EvalFile readFile(const std::string &path,
                         const EvalArguments &arguments,
                         const Tokenizer &tokenizer) {
  EvalFile file;
  file.path = path;
  file.isJsonLines = isJsonLines(path);
  const std::string content = readText(path);
  file.sha256 = hashText(content);
  const std::vector<std::string> texts = splitDocuments(path, content);
  file.documents =
      encodeTexts(tokenizer, texts, path,
                  {arguments.special, /*addSpecialTokens=*/true,
                   "; --special makes them tokens", arguments.compile.threads});
  for (size_t i = 0; i < texts.size(); ++i) {
    file.bytes += texts[i].size();
    const size_t count = file.documents[i].size();
    if (count < 2)
      fail("{}: gives {} token{}; at least 2 are needed to score one",
           documentPlace(path, content, i), count, count == 1 ? "" : "s");
  }
  return file;
}

std::vector<EvalFile> stem::readFiles(const EvalArguments &arguments,
                                      const Tokenizer &tokenizer,
                                      int64_t context, int64_t stride) {
  std::vector<EvalFile> files;
  for (const std::string &path : arguments.texts)
    files.push_back(readFile(path, arguments, tokenizer));
  // Windows point into the ids, which stay where they are from now on.
  for (EvalFile &file : files)
    for (size_t i = 0; i < file.documents.size(); ++i)
      for (Window &window : makeWindows(file.documents[i], context, stride)) {
        window.document = i;
        file.windows.push_back(std::move(window));
      }
  return files;
}

/// Of an object; else null.
static Json memberOf(const Json &value, const char *key) {
  return value.is_object() && value.contains(key) ? value[key] : Json();
}

/// Hashes of the texts that stem.provenance names, as far as it is what convert
/// writes: of the last conversion and of those before it.
static std::set<std::string> calibrationHashes(const ModelConfig &config) {
  std::set<std::string> hashes;
  if (!config.stem || config.stem->provenance.empty())
    return hashes;
  for (Json level = Json::parse(config.stem->provenance); level.is_object();
       level = memberOf(level, "before"))
    for (const Json &text : memberOf(memberOf(level, "calibration"), "texts"))
      if (const Json hash = memberOf(text, "sha256"); hash.is_string())
        hashes.insert(hash.get<std::string>());
  return hashes;
}

void stem::warnOfCalibrationTexts(const Checkpoint &checkpoint,
                                  const std::vector<EvalFile> &files) {
  const std::set<std::string> hashes = calibrationHashes(checkpoint.config());
  for (const EvalFile &file : files)
    if (hashes.count(file.sha256))
      printWarning(fmt::format(
          "{}: the tables of {} were fitted on this text, so that its figure "
          "says little of other texts",
          file.path, checkpoint.path().string()));
}

namespace {

/// A window and the file it is of.
struct FileWindow {
  size_t file;
  const Window *window;
};

} // namespace

void stem::requireFiniteLoss(double loss, const std::filesystem::path &model,
                             const EvalFile &file, const Window &window,
                             size_t index) {
  if (std::isfinite(loss))
    return;
  const std::vector<int32_t> &ids = file.documents.at(window.document);
  const size_t predicted =
      static_cast<size_t>(window.ids.data() - ids.data()) + index + 1;
  fail(
      "{}: its loss on {} is {} at document {}, token {} (id {}), both counted "
      "from 0, the first that is not finite; {}",
      model.string(), file.path, std::isnan(loss) ? "NaN" : "infinite",
      window.document, predicted, window.labels[index], kNotFiniteAdvice);
}

/// Scores windows together and adds their losses to the files' results; how
/// many tokens they have.
static size_t scoreWindows(Engine &engine, std::span<const FileWindow> part,
                           const std::filesystem::path &model,
                           const std::vector<EvalFile> &files,
                           std::vector<FileResult> &results) {
  std::vector<ScoreWindow> windows;
  for (const FileWindow &entry : part)
    windows.push_back(entry.window->score());
  const std::vector<float> losses = engine.score(windows);
  size_t next = 0;
  for (const auto &[file, window] : part)
    for (size_t i = 0; i < window->labels.size(); ++i) {
      const double loss = losses.at(next++);
      if (window->labels[i] == -100)
        continue;
      requireFiniteLoss(loss, model, files[file], *window, i);
      results[file].add(loss, window->document);
    }
  return next;
}

/// Windows of all files in groups that fill a step, so that progress can be
/// told.
static std::vector<FileResult>
scoreFiles(Engine &engine, const std::filesystem::path &model,
           const std::vector<EvalFile> &files, const EngineOptions &options,
           const std::function<void(size_t)> &onTokens) {
  std::vector<FileResult> results(files.size());
  std::vector<FileWindow> part;
  int64_t places = 0;
  const auto flush = [&] {
    onTokens(scoreWindows(engine, part, model, files, results));
    part.clear();
    places = 0;
  };
  for (size_t i = 0; i < files.size(); ++i)
    for (const Window &window : files[i].windows) {
      const int64_t count =
          (static_cast<int64_t>(window.ids.size()) + kTile - 1) / kTile * kTile;
      if (!part.empty() &&
          (places + count > options.maxStepTokens ||
           static_cast<int64_t>(part.size()) == options.maxSequences))
        flush();
      part.push_back({i, &window});
      places += count;
    }
  flush();
  return results;
}

/// Of JSON lines alone: what intervals need.
static Json documentsJson(const FileResult &result) {
  Json documents = Json::array();
  for (const DocumentLoss &document : result.documents)
    documents.push_back(
        {{"tokens", document.tokens}, {"nll", finiteOrNull(document.nll)}});
  return documents;
}

static Json fileJson(const EvalFile &file, const FileResult &result) {
  Json json = {
      {"file", file.path},
      {"perplexity", finiteOrNull(result.perplexity())},
      {"perplexity_standard_error", finiteOrNull(result.perplexityError())},
      {"tokens", file.tokens()},
      {"scored_tokens", result.losses.size()},
      {"bytes", file.bytes},
      {"bits_per_byte", finiteOrNull(result.bitsPerByte(file.bytes))},
      {"nll", finiteOrNull(result.nll)}};
  if (file.isJsonLines)
    json["documents"] = documentsJson(result);
  return json;
}

static void printFile(const EvalFile &file, const FileResult &result) {
  fmt::print("{}: perplexity {:.4f} ± {:.4f}, {:.4f} bits per byte, {} tokens "
             "scored\n",
             file.path, result.perplexity(), result.perplexityError(),
             result.bitsPerByte(file.bytes), result.losses.size());
}

void stem::evaluateTexts(const EvalArguments &arguments) {
  const Checkpoint checkpoint =
      openModelWithRows(arguments.model, arguments.rows);
  const Tokenizer tokenizer =
      requireTokenizer(checkpoint, "give --input-ids and --logits-out instead");
  const EvalProtocol protocol =
      chooseProtocol(arguments, checkpoint.config(), tokenizer);
  const std::vector<EvalFile> files =
      readFiles(arguments, tokenizer, protocol.context, protocol.stride);
  warnOfCalibrationTexts(checkpoint, files);
  const EngineOptions options = scoreOptions(arguments, files);
  const auto engine = createEngine(checkpoint, options);
  size_t total = 0, done = 0;
  for (const EvalFile &file : files)
    for (const Window &window : file.windows)
      total += window.ids.size();
  std::vector<FileResult> results;
  const Stopwatch watch;
  {
    Progress progress("eval", static_cast<double>(total));
    results = scoreFiles(*engine, arguments.model, files, options,
                         [&](size_t tokens) {
                           progress.update(static_cast<double>(done += tokens));
                         });
  }
  const double rate = static_cast<double>(total) / watch.seconds();
  printTableUse(*engine);
  if (arguments.json) {
    Json json = resultObject("eval");
    json.update({{"model", arguments.model.string()},
                 {"protocol", protocol.toJson()},
                 {"files", Json::array()},
                 {"tokens_per_second", rate},
                 {"engine", engineJson(*engine)},
                 {"peak_bytes", memoryStatus().peakResident}});
    for (size_t i = 0; i < files.size(); ++i)
      json["files"].push_back(fileJson(files[i], results[i]));
    return printJson(json);
  }
  fmt::print("{}\n", protocol.describe());
  for (size_t i = 0; i < files.size(); ++i)
    printFile(files[i], results[i]);
  fmt::print("{:.1f} tokens/s, peak memory {}\n", rate,
             formatBytes(static_cast<double>(memoryStatus().peakResident)));
}

static void addTextOptions(CLI::App &command, EvalArguments &arguments) {
  command
      .add_option("--text", arguments.texts,
                  "A text file in UTF-8, or FILE.jsonl with a document a line, "
                  "{\"text\": \"...\"}; may be repeated")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command.add_option("FILE", arguments.texts,
                     "More text files, after --text=FILE");
  command
      .add_option("--ctx", arguments.context,
                  "Tokens of a window (default: 2048, or the model's context "
                  "where that is less)")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 30))
      ->type_name("N");
  command
      .add_option("--stride", arguments.stride,
                  "From one window to the next (default: --ctx)")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 30))
      ->type_name("N");
  command.add_flag("--special", arguments.special,
                   "Special tokens spelled in a text become tokens; they are "
                   "text otherwise");
  command
      .add_option("--against", arguments.against,
                  "Compare with this model on the same tokens")
      ->type_name("MODEL");
}

static void runEval(const EvalArguments &arguments) {
  checkValues(arguments.compile);
  const bool hasIds = !arguments.inputIds.empty();
  if (hasIds != !arguments.logitsOut.empty())
    throw UsageError("--input-ids and --logits-out go together");
  if (hasIds != arguments.texts.empty())
    throw UsageError("give --text=FILE, or --input-ids=FILE with "
                     "--logits-out=FILE");
  if (arguments.force && !hasIds)
    throw UsageError("--force goes with --logits-out");
  if (hasIds && !arguments.against.empty())
    throw UsageError("--against goes with --text");
  if (hasIds)
    writeLogits(arguments);
  else if (!arguments.against.empty())
    compareModels(arguments);
  else
    evaluateTexts(arguments);
}

void stem::addEvalCommand(CLI::App &app) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App *command =
      addCommand(app, "eval", "Perplexity on text, or raw logits", footer);
  command->add_option("MODEL", arguments->model, "Hugging Face folder or GGUF")
      ->required();
  addTextOptions(*command, *arguments);
  addRowsOption(*command, arguments->rows);
  command
      ->add_option("--input-ids", arguments->inputIds,
                   "safetensors with input_ids [B, T], i32 or i64")
      ->type_name("FILE");
  command
      ->add_option("--logits-out", arguments->logitsOut,
                   "Write logits [B, T, V] in f32 to this safetensors file")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force,
                    "Replace the file of --logits-out if it exists");
  addTablePlacementOptions(*command, arguments->compile);
  addCompileOptions(*command, arguments->compile);
  addJsonOption(*command, arguments->json);
  command->callback([arguments] { runEval(*arguments); });
}
