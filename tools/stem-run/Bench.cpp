//===- Bench.cpp - stem-run bench ---------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Speed of one model, or of two measured in turns, beside what the machine can
// do in the same run.
//
//===----------------------------------------------------------------------===//

#include "BenchTraining.h"
#include "CommandLine.h"
#include "Json.h"
#include "ModelCost.h"
#include "Progress.h"
#include "Statistics.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Machine.h"
#include "stem/Runtime/Philox.h"
#include "stem/Support/Format.h"
#include "stem/Support/ScratchFolder.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr const char *footer = R"(Examples:
  stem-run bench smollm2
  stem-run bench dense stem --dtype=bf16 --threads=2
  stem-run bench --train --from-config=config.json --dtype=bf16

Prefill: --prompt-tokens random tokens, logits of the last one. Decode: as many
single steps as --decode-tokens says, batch 1, from an empty context. FLOPs are
those of the linear layers and of causal attention. The matrix rate and the read
bandwidth are measured before and after; the better figure counts. Two models
are measured in turns, A B A B; the ratio is the median of the pairs with its
95 % interval. Compile times are those of a fresh and of a filled cache.

--paced reads lines from standard input, each "prefill" or "decode", measures
that once and answers with a line of JSON, so that another program can be
measured in turns with this one. The result follows at the end of the input.

--train measures steps of training: --batch sequences of --ctx ids that are drawn
as words of a text are (Zipf, 1.05), or --batch-ids. --paced reads lines "step".

Next: stem-run eval MODEL --text=FILE for quality)";

struct BenchArguments {
  std::vector<std::string> models;
  int64_t promptTokens = 2048;
  int64_t decodeTokens = 64;
  int64_t repeat = 0;
  bool paced = false;
  bool json = false;
  CompileArguments compile;
};

/// One model and what was measured.
struct Subject {
  std::string path;
  Checkpoint checkpoint;
  std::unique_ptr<Engine> engine;
  double coldCompile = 0;
  int64_t peakBytes = 0;
  std::vector<double> prefillSeconds;
  std::vector<double> decodeSeconds;

  double prefillFlops(uint64_t tokens) const;
  double decodeBytes(uint64_t tokens) const;
};

double Subject::prefillFlops(uint64_t tokens) const {
  const ModelCost cost = costOf(checkpoint.weights(), tensorSizes(checkpoint));
  double flops = attentionFlops(checkpoint.config(), 0, tokens);
  for (const Cost &layer : cost.layers)
    flops += static_cast<double>(layer.flopsPerToken * tokens);
  // The head runs for the last token only.
  return flops + static_cast<double>(cost.rest.flopsPerToken);
}

/// Bytes that an average decode step reads: matrices in the compute type once,
/// one row of each table in the table's own type, and the keys and values so
/// far.
double Subject::decodeBytes(uint64_t tokens) const {
  const ModelConfig &config = checkpoint.config();
  const ModelCost cost = costOf(checkpoint.weights(), tensorSizes(checkpoint));
  const double size = engine->report().dtype == DType::F32 ? 4 : 2;
  double bytes = static_cast<double>(cost.total().flopsPerToken) / 2 * size;
  for (const LayerWeights &layer : checkpoint.weights().layers)
    if (!layer.upTable.empty()) {
      const TensorInfo &table = checkpoint.tensors().get(layer.upTable);
      bytes += static_cast<double>(table.bytes / table.rows());
    }
  for (const LayerConfig &layer : config.layers) {
    const double positions = static_cast<double>(tokens + 1) / 2;
    const double seen =
        layer.window ? std::min(positions, static_cast<double>(layer.window))
                     : positions;
    bytes += 2 * static_cast<double>(config.keyValueWidth()) * seen * size;
  }
  return bytes;
}

class Bench {
public:
  explicit Bench(const BenchArguments &arguments);
  void run();

private:
  void start(Subject &subject);
  void measureMachine();
  void measureInTurns();
  void measureAsAsked();
  double prefillOnce(Subject &subject);
  double decodeOnce(Subject &subject);
  std::vector<int32_t> randomIds(const Subject &subject, int64_t count) const;
  Json subjectJson(const Subject &subject) const;
  Json ratioJson(std::vector<double> Subject::*seconds) const;
  void printSubject(const Subject &subject) const;
  void printRatio(const char *what,
                  std::vector<double> Subject::*seconds) const;
  std::vector<double> ratios(std::vector<double> Subject::*seconds) const;

  const BenchArguments &arguments;
  int64_t repeat;
  std::vector<Subject> subjects;
  ContextPtr context;
  std::array<double, 2> matrixRates = {}; ///< f32, bf16
  double bandwidth = 0;
};

Bench::Bench(const BenchArguments &arguments)
    : arguments(arguments),
      repeat(arguments.repeat ? arguments.repeat
                              : (arguments.models.size() == 2 ? 15 : 5)),
      context(createContext(arguments.compile.threads,
                            parseIsa(arguments.compile.maxIsa))) {
  for (const std::string &path : arguments.models) {
    Checkpoint checkpoint = openModel(path);
    const uint64_t limit = checkpoint.config().maxPositions;
    const int64_t needed =
        std::max(arguments.promptTokens, arguments.decodeTokens);
    if (limit && static_cast<uint64_t>(needed) > limit)
      fail("{}: {} tokens were asked for, the model's context holds {} "
           "(max_position_embeddings)",
           path, needed, limit);
    subjects.push_back({path, std::move(checkpoint), nullptr, 0, 0, {}, {}});
  }
}

/// Compiles into an empty cache, then starts again from it.
void Bench::start(Subject &subject) {
  const ScratchFolder cache(temporaryFolder(), "stem-bench-");
  EngineOptions options = engineOptions(arguments.compile);
  options.cacheDirectory = cache.path();
  options.useCache = true;
  options.maxPositions =
      std::max(arguments.promptTokens, arguments.decodeTokens);
  options.maxStepTokens = std::max(kStepTokens, arguments.promptTokens);
  {
    const Heartbeat heartbeat("compiling into an empty cache");
    subject.coldCompile =
        Engine::create(subject.checkpoint, options)->report().compileSeconds;
  }
  options.onPlan = nullptr;
  options.dumpDirectory.clear();
  resetPeakResident();
  const int64_t before = memoryStatus().resident;
  subject.engine = createEngine(subject.checkpoint, options);
  prefillOnce(subject);
  decodeOnce(subject);
  // With two models, what the other one holds is not this one's.
  const int64_t others = &subject == &subjects.front() ? 0 : before;
  subject.peakBytes = memoryStatus().peakResident - others;
}

void Bench::measureMachine() {
  bandwidth = std::max(bandwidth, measureReadBandwidth(context.get()));
  for (const Subject &subject : subjects) {
    const bool isF32 = subject.engine->report().dtype == DType::F32;
    double &rate = matrixRates[isF32 ? 0 : 1];
    rate = std::max(
        rate, measureMatrixRate(context.get(), isF32 ? STEM_F32 : STEM_BF16));
  }
}

std::vector<int32_t> Bench::randomIds(const Subject &subject,
                                      int64_t count) const {
  const double vocab =
      static_cast<double>(subject.checkpoint.config().vocabSize);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(
        philoxUniform(0, 0, static_cast<uint64_t>(i)) * vocab));
  return ids;
}

double Bench::prefillOnce(Subject &subject) {
  const std::vector<int32_t> ids = randomIds(subject, arguments.promptTokens);
  subject.engine->truncate(0, 0);
  const PrefillChunk chunk{0, ids, false};
  const Stopwatch watch;
  subject.engine->prefill({&chunk, 1});
  return watch.seconds();
}

double Bench::decodeOnce(Subject &subject) {
  const std::vector<int32_t> ids = randomIds(subject, arguments.decodeTokens);
  subject.engine->truncate(0, 0);
  const int32_t sequence = 0;
  const Stopwatch watch;
  for (const int32_t id : ids)
    subject.engine->decode({&sequence, 1}, {&id, 1});
  return watch.seconds();
}

void Bench::measureInTurns() {
  Progress progress("bench", static_cast<double>(repeat));
  for (int64_t i = 0; i < repeat; ++i) {
    for (Subject &subject : subjects)
      subject.prefillSeconds.push_back(prefillOnce(subject));
    for (Subject &subject : subjects)
      subject.decodeSeconds.push_back(decodeOnce(subject));
    progress.update(static_cast<double>(i + 1));
  }
}

/// --paced. What was never asked for is measured once at the end.
void Bench::measureAsAsked() {
  Subject &subject = subjects.front();
  std::string line;
  while (std::getline(std::cin, line)) {
    double seconds;
    if (line == "prefill")
      seconds = subject.prefillSeconds.emplace_back(prefillOnce(subject));
    else if (line == "decode")
      seconds = subject.decodeSeconds.emplace_back(decodeOnce(subject));
    else
      fail("standard input: '{}' was read; --paced expects lines that say "
           "prefill or decode",
           line);
    fmt::print("{}\n", Json({{"seconds", seconds}}).dump());
    std::fflush(stdout);
  }
  if (subject.prefillSeconds.empty())
    subject.prefillSeconds.push_back(prefillOnce(subject));
  if (subject.decodeSeconds.empty())
    subject.decodeSeconds.push_back(decodeOnce(subject));
}

void Bench::run() {
  for (Subject &subject : subjects)
    start(subject);
  measureMachine();
  if (arguments.paced)
    measureAsAsked();
  else
    measureInTurns();
  measureMachine();
  if (arguments.json) {
    Json json = resultObject("bench");
    json.update({{"prompt_tokens", arguments.promptTokens},
                 {"decode_tokens", arguments.decodeTokens},
                 {"repeat", repeat},
                 {"read_bandwidth", bandwidth},
                 {"models", Json::array()}});
    for (const Subject &subject : subjects)
      json["models"].push_back(subjectJson(subject));
    if (subjects.size() == 2)
      json["ratio"] = {{"prefill", ratioJson(&Subject::prefillSeconds)},
                       {"decode", ratioJson(&Subject::decodeSeconds)}};
    return printJson(json);
  }
  for (const Subject &subject : subjects)
    printSubject(subject);
  if (subjects.size() == 2) {
    printRatio("prefill", &Subject::prefillSeconds);
    printRatio("decode", &Subject::decodeSeconds);
  }
}

/// What a subject's medians come to.
struct Rates {
  double prefill; ///< tokens a second
  double flops;   ///< a second
  double matrixShare;
  double decode;
  double bytes; ///< a second
  double bandwidthShare;
};

Rates ratesOf(const Subject &subject, const BenchArguments &arguments,
              double matrixRate, double bandwidth) {
  const double prompt = static_cast<double>(arguments.promptTokens);
  const double steps = static_cast<double>(arguments.decodeTokens);
  const double prefill = median(subject.prefillSeconds);
  const double step = median(subject.decodeSeconds) / steps;
  const double flops =
      subject.prefillFlops(static_cast<uint64_t>(arguments.promptTokens)) /
      prefill;
  const double bytes =
      subject.decodeBytes(static_cast<uint64_t>(arguments.decodeTokens)) / step;
  return {prompt / prefill, flops, flops / matrixRate,
          1 / step,         bytes, bytes / bandwidth};
}

Json Bench::subjectJson(const Subject &subject) const {
  const EngineReport &report = subject.engine->report();
  const double matrixRate = matrixRates[report.dtype == DType::F32 ? 0 : 1];
  const Rates rates = ratesOf(subject, arguments, matrixRate, bandwidth);
  return {{"model", subject.path},
          {"prefill_tokens_per_second", rates.prefill},
          {"prefill_flops_per_second", rates.flops},
          {"matrix_rate", matrixRate},
          {"prefill_share_of_matrix_rate", rates.matrixShare},
          {"decode_tokens_per_second", rates.decode},
          {"tokens_per_second", rates.decode},
          {"decode_bytes_per_token", rates.bytes / rates.decode},
          {"decode_bytes_per_second", rates.bytes},
          {"decode_share_of_read_bandwidth", rates.bandwidthShare},
          {"prefill_seconds", subject.prefillSeconds},
          {"decode_seconds", subject.decodeSeconds},
          {"compile_seconds_cold", subject.coldCompile},
          {"compile_seconds_warm", report.compileSeconds},
          {"load_seconds", report.loadSeconds},
          {"peak_bytes", subject.peakBytes},
          {"cost", costJson(costOf(subject.checkpoint.weights(),
                                   tensorSizes(subject.checkpoint))
                                .total())},
          {"engine", engineJson(*subject.engine)}};
}

void Bench::printSubject(const Subject &subject) const {
  const EngineReport &report = subject.engine->report();
  const double matrixRate = matrixRates[report.dtype == DType::F32 ? 0 : 1];
  const Rates rates = ratesOf(subject, arguments, matrixRate, bandwidth);
  fmt::print("{} ({}, {}, {} threads)\n", subject.path,
             dtypeConfigName(report.dtype), report.isa, report.threads);
  fmt::print("  prefill  {:>9.1f} tokens/s  {:.1f} GFLOP/s, {:.0f} % of the "
             "matrix rate {:.1f}\n",
             rates.prefill, rates.flops / 1e9, 100 * rates.matrixShare,
             matrixRate / 1e9);
  fmt::print("  decode   {:>9.1f} tokens/s  {:.1f} GB/s, {:.0f} % of the read "
             "bandwidth {:.1f}\n",
             rates.decode, rates.bytes / 1e9, 100 * rates.bandwidthShare,
             bandwidth / 1e9);
  fmt::print("  compile  {} cold, {} warm; weights read in {}\n",
             formatSeconds(subject.coldCompile),
             formatSeconds(report.compileSeconds),
             formatSeconds(report.loadSeconds));
  fmt::print("  memory   {} at most\n",
             formatBytes(static_cast<double>(subject.peakBytes)));
}

/// How many times as fast the second model is, pair by pair.
std::vector<double> Bench::ratios(std::vector<double> Subject::*seconds) const {
  std::vector<double> result;
  for (size_t i = 0; i < (subjects[0].*seconds).size(); ++i)
    result.push_back((subjects[0].*seconds)[i] / (subjects[1].*seconds)[i]);
  return result;
}

Json Bench::ratioJson(std::vector<double> Subject::*seconds) const {
  const std::vector<double> values = ratios(seconds);
  const auto interval = medianInterval(values);
  return {{"median", median(values)},
          {"interval",
           interval ? Json({interval->low, interval->high}) : Json(nullptr)},
          {"pairs", values.size()}};
}

void Bench::printRatio(const char *what,
                       std::vector<double> Subject::*seconds) const {
  const std::vector<double> values = ratios(seconds);
  const auto interval = medianInterval(values);
  fmt::print("{}: {} is {:.3f} times as fast as {}", what, subjects[1].path,
             median(values), subjects[0].path);
  if (interval)
    fmt::print(", 95 % interval {:.3f} to {:.3f}", interval->low,
               interval->high);
  fmt::print(" ({} pairs)\n", values.size());
}

void benchTrainingOf(const BenchArguments &arguments,
                     TrainingBenchArguments training) {
  if (arguments.models.size() + !training.config.empty() != 1)
    throw UsageError("--train measures one model; give MODEL, or "
                     "--from-config=FILE");
  if (!arguments.models.empty())
    training.model = arguments.models.front();
  if (arguments.repeat)
    training.repeat = arguments.repeat;
  training.paced = arguments.paced;
  training.json = arguments.json;
  training.compile = arguments.compile;
  benchTraining(training);
}

} // namespace

void stem::addBenchCommand(CLI::App &app) {
  auto arguments = std::make_shared<BenchArguments>();
  auto training = std::make_shared<TrainingBenchArguments>();
  CLI::App *command =
      addCommand(app, "bench",
                 "Measure speed, compile time and memory of one "
                 "model or two",
                 footer);
  command
      ->add_option("MODEL", arguments->models,
                   "Hugging Face folder or GGUF; a second one is compared")
      ->expected(1, 2);
  CLI::Option *prompt =
      command
          ->add_option("--prompt-tokens", arguments->promptTokens,
                       "Tokens of the prefill (default: 2048)")
          ->check(CLI::Range(int64_t(1), int64_t(1) << 24))
          ->type_name("N");
  CLI::Option *decode =
      command
          ->add_option("--decode-tokens", arguments->decodeTokens,
                       "Steps of the decode (default: 64)")
          ->check(CLI::Range(int64_t(1), int64_t(1) << 24))
          ->type_name("N");
  command
      ->add_option("--repeat", arguments->repeat,
                   "Measurements (default: 5, or 15 pairs)")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20))
      ->type_name("N");
  command->add_flag("--paced", arguments->paced,
                    "Measure when a line on standard input says so");
  addTrainingBenchOptions(*command, *training);
  CLI::Option *train = command->get_option("--train");
  train->excludes(prompt)->excludes(decode);
  for (CLI::Option *option :
       addTablePlacementOptions(*command, arguments->compile))
    train->excludes(option);
  addCompileOptions(*command, arguments->compile);
  addJsonOption(*command, arguments->json);
  command->callback([arguments, training] {
    if (training->isWanted())
      return benchTrainingOf(*arguments, *training);
    checkValues(arguments->compile);
    if (arguments->models.empty())
      throw UsageError("MODEL is required");
    if (arguments->paced && arguments->models.size() != 1)
      throw UsageError("--paced measures one model");
    Bench(*arguments).run();
  });
}
