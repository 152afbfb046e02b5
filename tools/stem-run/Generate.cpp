//===- Generate.cpp - stem-run generate ---------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"
#include "Dialogues.h"
#include "Json.h"
#include "Progress.h"
#include "StopFilter.h"
#include "TokenNames.h"
#include "Tokenizing.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Sampler.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <cstdio>
#include <fmt/ranges.h>

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr const char *footer = R"(Examples:
  stem-run generate smollm2 --prompt="Once upon a time" -n 64
  stem-run generate smollm2 --chat --prompt="Why is the sky blue?" -n 100
  stem-run generate smollm2 --prompt="A list:" --temperature=0.8 --top-p=0.95 --seed=7
  stem-run generate smollm2 --prompt-ids=1,2,3 --prompt-ids=4,5 -n 12 --json
  stem-run generate stem --prompt="The capital of Spain is" --swap-rows="Spain=Germany"

The likeliest token is taken each time (--greedy) unless an option of sampling
is given. Text goes to standard output as it comes, figures to standard error.
Generation ends at the model's end tokens, a stop string, -n tokens, or the end
of the context.

Next: stem-run eval MODEL --text=FILE for a figure, stem-run bench MODEL)";

struct GenerateArguments {
  fs::path model;
  std::vector<fs::path> rows;
  std::vector<TokenSwap> swaps;
  std::vector<std::string> prompts;
  std::vector<std::string> promptIds;
  std::string system;
  int64_t count = 128;
  bool greedy = false;
  SamplerOptions sampling;
  std::optional<double> repetitionPenalty; ///< else the model's own
  std::vector<std::string> stops;
  std::vector<std::string> stopIds;
  bool ignoreEnd = false;
  bool chat = false;
  bool special = false;
  bool noCache = false;
  bool json = false;
  CompileArguments compile;
};

enum class Finish { Length, End, Stop, Context };

const char *finishName(Finish finish) {
  switch (finish) {
  case Finish::Length:
    return "length";
  case Finish::End:
    return "end";
  case Finish::Stop:
    return "stop";
  case Finish::Context:
    return "context";
  }
  return "";
}

/// One prompt and what follows it.
struct Sequence {
  std::vector<int32_t> ids; ///< the prompt, then what was generated
  size_t promptLength = 0;
  std::optional<StreamDecoder> decoder;
  StopFilter filter;
  Sampler sampler;
  std::string text;
  Finish finish = Finish::Length;
  bool isActive = true;

  std::vector<int32_t> generated() const {
    return {ids.begin() + static_cast<ptrdiff_t>(promptLength), ids.end()};
  }
};

class Generation {
public:
  explicit Generation(const GenerateArguments &arguments);
  void run();

private:
  void loadTokenizers();
  std::vector<std::vector<int32_t>> prompts() const;
  std::vector<int32_t> chatPrompt(const std::string &prompt) const;
  double repetitionPenalty() const;
  void addSequence(std::vector<int32_t> prompt);
  void checkLengths() const;
  EngineOptions options() const;
  void generate();
  std::span<const float> prefillAll();
  std::span<const float> next(std::span<const int32_t> active);
  void take(Sequence &sequence, int32_t id);
  void emit(Sequence &sequence, const std::string &text);
  void finishText(Sequence &sequence);
  void report() const;
  bool streams() const { return !arguments.json && sequences.size() == 1; }

  const GenerateArguments &arguments;
  Checkpoint checkpoint;
  std::optional<Tokenizer> tokenizer;
  std::vector<int32_t> ends;
  std::vector<int32_t> stopTokens;
  std::vector<Sequence> sequences;
  std::unique_ptr<Engine> engine;
  double prefillSeconds = 0;
  double decodeSeconds = 0;
  size_t decodedTokens = 0; ///< those that needed a decode step
};

Generation::Generation(const GenerateArguments &arguments)
    : arguments(arguments),
      checkpoint(openModelWithRows(arguments.model, arguments.rows)) {
  if (!arguments.swaps.empty())
    checkpoint.attach(swapRows(checkpoint, arguments.swaps));
  loadTokenizers();
  if (!arguments.ignoreEnd)
    ends = endIds(checkpoint, tokenizer ? &*tokenizer : nullptr);
  for (const std::string &list : arguments.stopIds)
    for (const int32_t id :
         checkedIds(parseIntegers(list, "--stop-ids"),
                    checkpoint.config().vocabSize, "--stop-ids"))
      stopTokens.push_back(id);
  for (std::vector<int32_t> &prompt : prompts())
    addSequence(std::move(prompt));
  checkLengths();
}

void Generation::loadTokenizers() {
  if (!arguments.prompts.empty()) {
    tokenizer = requireTokenizer(checkpoint, "give --prompt-ids=1,2,3 instead");
    return;
  }
  // With ids the tokenizer only writes the text; the model runs without it.
  try {
    tokenizer = loadTokenizer(checkpoint);
  } catch (const Error &error) {
    printWarning(fmt::format("no text is shown: {}", error.what()));
  }
  if (!tokenizer && !arguments.stops.empty())
    fail("{}: there is no tokenizer, so --stop cannot be found in the text; "
         "use --stop-ids",
         arguments.model.string());
}

std::vector<int32_t> Generation::chatPrompt(const std::string &prompt) const {
  if (!tokenizer->chatTemplate())
    fail("{}: the model has no chat template; leave --chat out",
         arguments.model.string());
  std::vector<ChatMessage> messages;
  if (!arguments.system.empty())
    messages.push_back({"system", arguments.system});
  messages.push_back({"user", prompt});
  return encodeChat(*tokenizer, messages, {}, arguments.model.string(),
                    "--prompt");
}

std::vector<std::vector<int32_t>> Generation::prompts() const {
  std::vector<std::vector<int32_t>> result;
  for (const std::string &prompt : arguments.prompts) {
    if (arguments.chat) {
      result.push_back(chatPrompt(prompt));
      continue;
    }
    const TextPart part{prompt, arguments.special};
    result.push_back(encodeText(*tokenizer, {&part, 1},
                                /*addSpecialTokens=*/true, "--prompt",
                                "; --special makes them tokens"));
  }
  for (const std::string &list : arguments.promptIds)
    result.push_back(checkedIds(parseIntegers(list, "--prompt-ids"),
                                checkpoint.config().vocabSize,
                                "--prompt-ids=" + printable(list)));
  return result;
}

double Generation::repetitionPenalty() const {
  return arguments.repetitionPenalty.value_or(
      checkpoint.repetitionPenalty().value_or(1));
}

void Generation::addSequence(std::vector<int32_t> prompt) {
  SamplerOptions sampling = arguments.sampling;
  sampling.repetitionPenalty = repetitionPenalty();
  sampling.stream = sequences.size();
  const size_t length = prompt.size();
  Sequence sequence{
      std::move(prompt), length, std::nullopt,   StopFilter(arguments.stops),
      Sampler(sampling), "",     Finish::Length, true};
  if (tokenizer)
    sequence.decoder.emplace(*tokenizer);
  sequences.push_back(std::move(sequence));
}

void Generation::checkLengths() const {
  const uint64_t context = checkpoint.config().maxPositions;
  for (const Sequence &sequence : sequences) {
    if (sequence.ids.empty())
      fail("the prompt is empty: it gives no token to continue from");
    if (context && sequence.ids.size() > context)
      fail("the prompt has {} tokens, the model's context holds {} "
           "(max_position_embeddings); shorten the prompt",
           sequence.ids.size(), context);
  }
}

EngineOptions Generation::options() const {
  EngineOptions options = engineOptions(arguments.compile);
  size_t longest = 0;
  for (const Sequence &sequence : sequences)
    longest = std::max(longest, sequence.ids.size());
  const int64_t context =
      static_cast<int64_t>(checkpoint.config().maxPositions);
  options.maxPositions = static_cast<int64_t>(longest) + arguments.count;
  if (context)
    options.maxPositions = std::min(options.maxPositions, context);
  options.maxSequences = static_cast<int64_t>(sequences.size());
  return options;
}

std::span<const float> Generation::prefillAll() {
  std::vector<PrefillChunk> chunks;
  for (size_t i = 0; i < sequences.size(); ++i)
    chunks.push_back({static_cast<int32_t>(i), sequences[i].ids, false});
  return engine->prefill(chunks);
}

/// Logits after the last token of each active sequence.
std::span<const float> Generation::next(std::span<const int32_t> active) {
  std::vector<int32_t> last;
  std::vector<PrefillChunk> chunks;
  for (const int32_t index : active) {
    const Sequence &sequence = sequences[static_cast<size_t>(index)];
    last.push_back(sequence.ids.back());
    chunks.push_back({index, sequence.ids, false});
  }
  if (!arguments.noCache)
    return engine->decode(active, last);
  for (const int32_t index : active)
    engine->truncate(index, 0);
  return engine->prefill(chunks);
}

void Generation::emit(Sequence &sequence, const std::string &text) {
  sequence.text += text;
  if (!streams() || text.empty())
    return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0)
    fail("cannot write to standard output");
}

void Generation::take(Sequence &sequence, int32_t id) {
  const auto isIn = [id](const std::vector<int32_t> &list) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  sequence.ids.push_back(id);
  if (sequence.decoder)
    emit(sequence, sequence.filter.push(sequence.decoder->push(id)));
  else if (streams())
    emit(sequence, fmt::format("{} ", id));
  if (isIn(ends))
    sequence.finish = Finish::End;
  else if (isIn(stopTokens) || sequence.filter.found())
    sequence.finish = Finish::Stop;
  else if (static_cast<int64_t>(sequence.ids.size()) > engine->maxPositions() &&
           sequence.ids.size() - sequence.promptLength <
               static_cast<size_t>(arguments.count))
    sequence.finish = Finish::Context;
  sequence.isActive = sequence.finish == Finish::Length;
}

void Generation::finishText(Sequence &sequence) {
  if (!sequence.decoder || sequence.filter.found())
    return;
  emit(sequence, sequence.filter.push(sequence.decoder->flush()));
  if (!sequence.filter.found())
    emit(sequence, sequence.filter.flush());
}

void Generation::generate() {
  Stopwatch prefillWatch;
  std::span<const float> logits = prefillAll();
  prefillSeconds = prefillWatch.seconds();
  std::vector<int32_t> active;
  for (size_t i = 0; i < sequences.size(); ++i)
    active.push_back(static_cast<int32_t>(i));
  const size_t vocab = static_cast<size_t>(engine->vocabSize());
  const Stopwatch decodeWatch;
  // Text that comes as it is made needs no other sign of progress.
  Progress progress("generate",
                    streams() ? 0 : static_cast<double>(arguments.count));
  for (int64_t step = 0; step < arguments.count && !active.empty(); ++step) {
    progress.update(static_cast<double>(step));
    if (step > 0) {
      logits = next(active);
      decodedTokens += active.size();
    }
    for (size_t row = 0; row < active.size(); ++row) {
      Sequence &sequence = sequences[static_cast<size_t>(active[row])];
      take(sequence, sequence.sampler.sample(logits.subspan(row * vocab, vocab),
                                             sequence.ids));
    }
    std::erase_if(active, [&](int32_t index) {
      return !sequences[static_cast<size_t>(index)].isActive;
    });
  }
  decodeSeconds = decodeWatch.seconds();
  for (Sequence &sequence : sequences)
    finishText(sequence);
}

void Generation::run() {
  engine = createEngine(checkpoint, options());
  generate();
  report();
}

void Generation::report() const {
  size_t promptTokens = 0;
  for (const Sequence &sequence : sequences)
    promptTokens += sequence.promptLength;
  const double prefillRate = static_cast<double>(promptTokens) / prefillSeconds;
  const double decodeRate =
      decodedTokens ? static_cast<double>(decodedTokens) / decodeSeconds : 0;
  if (arguments.json) {
    Json list = Json::array(), ids = Json::array();
    for (const Sequence &sequence : sequences) {
      list.push_back(
          {{"prompt_ids", std::vector<int32_t>(sequence.ids.begin(),
                                               sequence.ids.begin() +
                                                   static_cast<ptrdiff_t>(
                                                       sequence.promptLength))},
           {"ids", sequence.generated()},
           {"text", tokenizer ? Json(sequence.text) : Json(nullptr)},
           {"finish", finishName(sequence.finish)}});
      ids.push_back(sequence.generated());
    }
    Json json = resultObject("generate");
    if (sequences.size() == 1)
      json.update(list[0]);
    else
      json.update({{"ids", ids}, {"sequences", list}});
    json.update({{"prompt_tokens", promptTokens},
                 {"prefill_tokens_per_second", finiteOrNull(prefillRate)},
                 {"repetition_penalty", repetitionPenalty()},
                 {"tokens_per_second",
                  decodedTokens ? finiteOrNull(decodeRate) : Json(nullptr)},
                 {"engine", engineJson(*engine)},
                 {"peak_bytes", memoryStatus().peakResident}});
    return printJson(json);
  }
  if (streams())
    fmt::print("\n");
  for (size_t i = 0; i < sequences.size() && !streams(); ++i) {
    const Sequence &sequence = sequences[i];
    fmt::print("--- prompt {}\n{}\n", i + 1,
               tokenizer
                   ? sequence.text
                   : fmt::format("{}", fmt::join(sequence.generated(), " ")));
  }
  std::fflush(stdout);
  if (!arguments.repetitionPenalty && repetitionPenalty() != 1)
    printNote(fmt::format("the repetition penalty {} is that of "
                          "generation_config.json; --repetition-penalty=1 "
                          "turns it off",
                          repetitionPenalty()));
  for (const Sequence &sequence : sequences)
    if (sequence.finish == Finish::Context)
      printNote(fmt::format("the context of {} positions is full",
                            engine->maxPositions()));
  printStderr("prompt: {} tokens, {:.1f} tokens/s; generated: {}, {:.1f} "
              "tokens/s; peak memory {}\n",
              promptTokens, prefillRate,
              decodedTokens + sequences.size() * (arguments.count > 0),
              decodeRate,
              formatBytes(static_cast<double>(memoryStatus().peakResident)));
  printTableUse(*engine);
}

void addPromptOptions(CLI::App &command, GenerateArguments &arguments) {
  command
      .add_option("--prompt", arguments.prompts,
                  "Text to continue; several make a batch")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  command
      .add_option("--prompt-ids", arguments.promptIds,
                  "Token ids to continue, like 1,2,3; several make a batch")
      ->allow_extra_args(false)
      ->type_name("IDS");
  command.add_flag("--chat", arguments.chat,
                   "Put the prompt into the model's chat template as the "
                   "user's message");
  command
      .add_option("--system", arguments.system,
                  "With --chat: the system's message")
      ->type_name("TEXT");
  command.add_flag("--special", arguments.special,
                   "Special tokens spelled in the prompt become tokens; they "
                   "are text otherwise, also with --chat");
}

void addTableOptions(CLI::App &command, GenerateArguments &arguments) {
  addRowsOption(command, arguments.rows);
  command
      .add_option_function<std::vector<std::string>>(
          "--swap-rows",
          [&](const std::vector<std::string> &swaps) {
            for (const std::string &swap : swaps)
              arguments.swaps.push_back(TokenSwap::parse(swap));
          },
          "LEFT reads the row of RIGHT in all STEM layers, as in "
          "\"Spain=Germany\": words, ids, or texts in quotes; may be repeated")
      ->allow_extra_args(false)
      ->type_name("LEFT=RIGHT");
}

void addEndOptions(CLI::App &command, GenerateArguments &arguments) {
  command
      .add_option("-n,--count", arguments.count,
                  "Tokens to generate at most (default: 128)")
      ->check(CLI::Range(int64_t(0), int64_t(1) << 30))
      ->type_name("N");
  command
      .add_option("--stop", arguments.stops,
                  "End before this text; may be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  command
      .add_option("--stop-ids", arguments.stopIds,
                  "End after one of these token ids")
      ->allow_extra_args(false)
      ->type_name("IDS");
  command.add_flag("--ignore-end", arguments.ignoreEnd,
                   "Go on after the model's end tokens");
}

void addSamplingOptions(CLI::App &command, GenerateArguments &arguments) {
  const std::string group = "Sampling (any but --repetition-penalty turns it "
                            "on)";
  SamplerOptions &sampling = arguments.sampling;
  command
      .add_option("--temperature", sampling.temperature,
                  "Divides the logits (default when sampling: 1)")
      ->check(finiteNumber())
      ->group(group);
  command
      .add_option("--top-k", sampling.topK,
                  "Of the k likeliest tokens only (default: 0, all)")
      ->check(wholeNumber(INT64_MAX))
      ->group(group);
  command
      .add_option("--top-p", sampling.topP,
                  "Of the likeliest tokens that make up this probability "
                  "(default: 1)")
      ->check(finiteNumber())
      ->group(group);
  command
      .add_option("--seed", sampling.seed,
                  "The same seed gives the same tokens (default: 0)")
      ->check(wholeNumber(UINT64_MAX))
      ->group(group);
  command
      .add_option("--repetition-penalty", arguments.repetitionPenalty,
                  "Makes tokens that were there less likely (default: that of "
                  "generation_config.json, else 1)")
      ->check(finiteNumber())
      ->group(group);
  command.add_flag("--greedy", arguments.greedy, "Always the likeliest token")
      ->group(group);
}

/// Rules between options that the parser does not know.
void checkArguments(const CLI::App &command, GenerateArguments &arguments) {
  if (arguments.prompts.empty() == arguments.promptIds.empty())
    throw UsageError("give --prompt=TEXT or --prompt-ids=1,2,3");
  if (arguments.chat && arguments.prompts.empty())
    throw UsageError("--chat needs --prompt=TEXT");
  if (!arguments.system.empty() && !arguments.chat)
    throw UsageError("--system needs --chat");
  for (const std::string &stop : arguments.stops)
    if (stop.empty())
      throw UsageError("--stop= is empty; give --stop=TEXT to end before");
  bool samples = false;
  for (const char *name : {"--temperature", "--top-k", "--top-p", "--seed"})
    samples |= command.count(name) > 0;
  if (samples && arguments.greedy)
    throw UsageError("--greedy does not go with options of sampling");
  if (samples && command.count("--temperature") == 0)
    arguments.sampling.temperature = 1;
}

} // namespace

void stem::addGenerateCommand(CLI::App &app) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App *command = addCommand(app, "generate", "Continue a prompt", footer);
  command->add_option("MODEL", arguments->model, "Hugging Face folder or GGUF")
      ->required();
  addPromptOptions(*command, *arguments);
  addTableOptions(*command, *arguments);
  addEndOptions(*command, *arguments);
  addSamplingOptions(*command, *arguments);
  command->add_flag("--no-cache", arguments->noCache,
                    "Compute the whole sequence again for each token, without "
                    "the key-value cache (for tests)");
  addTablePlacementOptions(*command, arguments->compile);
  addCompileOptions(*command, arguments->compile);
  addJsonOption(*command, arguments->json);
  command->callback([command, arguments] {
    checkArguments(*command, *arguments);
    checkValues(arguments->compile);
    Generation(*arguments).run();
  });
}
