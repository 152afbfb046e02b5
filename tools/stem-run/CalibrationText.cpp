//===- CalibrationText.cpp - What a calibration reads ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationText.h"

#include "TextPassages.h"
#include "Tokenizing.h"

#include "stem/Data/TextDocuments.h"
#include "stem/Graph/ModelGraph.h"
#include "stem/Runtime/Philox.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>

using namespace stem;

namespace {

constexpr int64_t kTile = kTokenTile;
/// Of so many documents or windows one goes to `choose` and one to `check`.
constexpr size_t kDeal = 16;
/// Tokens of a short window, and of a last window at least.
constexpr size_t kShortWindow = 64;

using Ids = std::span<const int32_t>;

/// What is dealt out whole: a document or a window.
struct Unit {
  Ids ids;
  int32_t source, document;
};

/// Appends windows, a step being as many as fit.
class StreamBuilder {
public:
  /// Goes on where the stream ends: its last step may have room.
  StreamBuilder(TokenStream &stream, const CalibrationTextOptions &options,
                size_t shortEach)
      : stream(stream), options(options),
        shortEach(options.window >= 2 * int64_t(kShortWindow) ? shortEach : 0) {
    if (!stream.steps.empty())
      sequence = 1 + *std::max_element(stream.sequences.begin() +
                                           stream.steps.back().begin,
                                       stream.sequences.end());
  }

  void append(const Unit &unit) {
    source = unit.source;
    ids.insert(ids.end(), unit.ids.begin(), unit.ids.end());
    documents.resize(ids.size(), unit.document);
  }

  /// Cuts what one text gave into windows. Gives the tokens in them.
  int64_t finishText() {
    const size_t size = static_cast<size_t>(options.window);
    const int64_t before = stream.tokens;
    for (size_t begin = 0; begin < ids.size(); begin += size) {
      const size_t end = std::min(begin + size, ids.size());
      const bool isShort = shortEach != 0 && begin / size % shortEach == 0;
      cut(begin, end, isShort ? kShortWindow : size, kShortWindow);
    }
    return finish(before);
  }

  /// A conversation begins a window, as it does in use, however short it is.
  int64_t finishDialogue() {
    const int64_t before = stream.tokens;
    cut(0, ids.size(), static_cast<size_t>(options.window), /*least=*/2);
    return finish(before);
  }

private:
  /// Windows of `size` tokens; the last may have as few as `least`.
  void cut(size_t begin, size_t end, size_t size, size_t least) {
    for (; begin < end; begin += size) {
      const size_t count = std::min(size, end - begin);
      if (count == size || count >= least)
        addWindow(begin, count);
    }
  }

  int64_t finish(int64_t before) {
    ids.clear();
    documents.clear();
    return stream.tokens - before;
  }

  void addWindow(size_t begin, size_t size) {
    const int64_t count = static_cast<int64_t>(size);
    const int64_t padded = (count + kTile - 1) / kTile * kTile;
    if (stream.steps.empty() ||
        stream.steps.back().count + padded > options.maxStepTokens) {
      stream.steps.push_back({stream.places(), 0});
      sequence = 0;
    }
    for (int64_t i = 0; i < padded; ++i) {
      const bool isPadding = i >= count;
      const size_t at = begin + static_cast<size_t>(i);
      stream.ids.push_back(isPadding ? 0 : ids[at]);
      stream.positions.push_back(static_cast<int32_t>(i));
      stream.sequences.push_back(isPadding ? -1 : sequence);
      stream.labels.push_back(i + 1 < count ? ids[at + 1] : -100);
      stream.counted.push_back(!isPadding && i > 0);
      stream.sources.push_back(isPadding ? -1 : source);
      stream.documents.push_back(isPadding ? -1 : documents[at]);
    }
    ++sequence;
    stream.steps.back().count += padded;
    stream.tokens += count;
  }

  TokenStream &stream;
  const CalibrationTextOptions &options;
  const size_t shortEach;
  int32_t sequence = 0, source = 0;
  std::vector<int32_t> ids, documents; ///< of `source`, not yet in windows
};

/// An order of n things that the seed draws; seed 0 leaves them as they are.
std::vector<size_t> drawOrder(size_t n, uint64_t seed, uint64_t stream) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = n; seed != 0 && i > 1; --i) {
    const double draw = philoxUniform(seed, stream, i);
    std::swap(order[i - 1],
              order[static_cast<size_t>(draw * static_cast<double>(i))]);
  }
  return order;
}

/// Units until they hold `share` tokens, evenly from the whole order.
std::vector<Unit> takeEvenly(const std::vector<Unit> &units,
                             const std::vector<size_t> &order, int64_t share) {
  const auto sizeOf = [](const Unit &unit) {
    return static_cast<int64_t>(unit.ids.size());
  };
  int64_t total = 0;
  for (const Unit &unit : units)
    total += sizeOf(unit);
  const int64_t target = std::min(share, total);
  std::vector<Unit> result;
  int64_t taken = 0, passed = 0;
  for (size_t index : order) {
    passed += sizeOf(units[index]);
    if (taken * total >= target * passed)
      continue;
    result.push_back(units[index]);
    taken += sizeOf(units[index]);
  }
  return result;
}

/// Deals the units of several texts out, counted on from text to text.
class Dealer {
public:
  Dealer(const CalibrationTextOptions &options, CalibrationText &text)
      : options(options), text(text) {}

  void add(const TextSource &source, int64_t share);
  /// Of what was added and not dealt.
  int64_t tokens() const;
  void deal();

private:
  void putFilesWhereChecksAre(size_t size);
  std::vector<Unit> documentsOf(const TextSource &source, int64_t share);
  std::vector<Unit> windowsOf(const TextSource &source);

  const CalibrationTextOptions &options;
  CalibrationText &text;
  std::deque<std::vector<int32_t>> joined; ///< texts without documents
  std::vector<Unit> units;                 ///< to deal
  std::optional<int32_t> selfSource;
  int32_t documents = 0; ///< numbered so far
};

/// Of each a sixteenth of the text's share at most, or a window, so that every
/// part has some.
std::vector<Unit> Dealer::documentsOf(const TextSource &source, int64_t share) {
  const size_t most = static_cast<size_t>(
      source.isDialogue
          ? INT64_MAX
          : std::max(share / static_cast<int64_t>(kDeal), options.window));
  std::vector<Unit> result;
  for (const std::vector<int32_t> &ids : source.documents)
    result.push_back({Ids(ids).first(std::min(ids.size(), most)), 0, 0});
  return result;
}

std::vector<Unit> Dealer::windowsOf(const TextSource &source) {
  std::vector<int32_t> &ids = joined.emplace_back();
  for (const std::vector<int32_t> &document : source.documents)
    ids.insert(ids.end(), document.begin(), document.end());
  const size_t size = static_cast<size_t>(options.window);
  std::vector<Unit> result;
  for (size_t begin = 0; begin + size <= ids.size(); begin += size)
    result.push_back({Ids(ids).subspan(begin, size), 0, 0});
  return result;
}

void Dealer::add(const TextSource &source, int64_t share) {
  const size_t index = text.sources.size();
  const bool isByDocument =
      source.isDialogue || source.documents.size() >= kDeal;
  std::vector<Unit> all =
      isByDocument ? documentsOf(source, share) : windowsOf(source);
  for (Unit &unit : all) {
    unit.source = static_cast<int32_t>(index);
    unit.document = documents++;
  }
  if (source.isSelf)
    selfSource = static_cast<int32_t>(index);
  const std::vector<Unit> taken =
      takeEvenly(all, drawOrder(all.size(), options.seed, index), share);
  units.insert(units.end(), taken.begin(), taken.end());
  text.sources.push_back({source.name, source.sha256, source.tokens(), 0,
                          static_cast<int64_t>(source.documents.size()),
                          isByDocument ? "documents" : "windows",
                          source.isDialogue});
}

int64_t Dealer::tokens() const {
  int64_t sum = 0;
  for (const Unit &unit : units)
    sum += static_cast<int64_t>(unit.ids.size());
  return sum;
}

/// The model's own text comes last. So much of it goes before the files that
/// these reach the first unit of `check`, the last of `size`.
void Dealer::putFilesWhereChecksAre(size_t size) {
  const auto own = std::ranges::find_if(units, [&](const Unit &unit) {
    return selfSource && unit.source == *selfSource;
  });
  const size_t files = static_cast<size_t>(own - units.begin());
  if (files < size)
    std::rotate(units.begin(), own,
                own + static_cast<std::ptrdiff_t>(files ? size - files : 0));
}

void Dealer::deal() {
  const size_t size = std::min(units.size(), kDeal);
  putFilesWhereChecksAre(size);
  StreamBuilder fit(text.fit, options, options.shortEach),
      choose(text.choose, options, options.shortEach),
      check(text.check, options, /*shortEach=*/0);
  const auto finish = [&](int32_t index) {
    CalibrationSource &source = text.sources[static_cast<size_t>(index)];
    for (StreamBuilder *builder : {&fit, &choose, &check})
      source.tokensTaken +=
          source.isDialogue ? builder->finishDialogue() : builder->finishText();
  };
  for (size_t i = 0; i < units.size(); ++i) {
    const size_t place = i % size;
    (place == size / 2   ? choose
     : place == size - 1 ? check
                         : fit)
        .append(units[i]);
    const int32_t source = units[i].source;
    if (i + 1 == units.size() || units[i + 1].source != source ||
        text.sources[static_cast<size_t>(source)].isDialogue)
      finish(source);
  }
  units.clear();
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

int64_t TextSource::tokens() const {
  int64_t count = 0;
  for (const std::vector<int32_t> &document : documents)
    count += static_cast<int64_t>(document.size());
  return count;
}

std::vector<int64_t> CalibrationText::fitCounts() const {
  std::vector<int64_t> counts(rowIds.size());
  for (size_t i = 0; i < fit.rows.size(); ++i)
    counts[static_cast<size_t>(fit.rows[i])] += fit.counted[i];
  return counts;
}

double CalibrationText::coverage() const {
  const std::vector<int64_t> counts = fitCounts();
  int64_t known = 0, all = 0;
  for (size_t i = 0; i < check.rows.size(); ++i)
    if (check.counted[i]) {
      ++all;
      known += counts[static_cast<size_t>(check.rows[i])] > 0;
    }
  return static_cast<double>(known) / static_cast<double>(all);
}

/// A file's documents: of JSON lines each object, else what form feeds part.
static std::vector<std::string> documentsOfFile(const std::string &path,
                                                const std::string &content) {
  if (isJsonLines(path))
    return splitDocuments(path, content);
  std::vector<std::string> documents;
  for (size_t begin = 0; begin <= content.size();) {
    const size_t end = std::min(content.find('\f', begin), content.size());
    documents.push_back(content.substr(begin, end - begin));
    begin = end + 1;
  }
  return documents;
}

/// Each document ends with a blank line where there are several.
static std::vector<std::vector<int32_t>>
readDocuments(const Tokenizer &tokenizer, const std::string &path,
              const std::string &content, int threads, PassageFilter &filter) {
  std::vector<std::string> documents = documentsOfFile(path, content);
  for (std::string &document : documents)
    document = filter.keepNew(document);
  std::erase(documents, "");
  for (std::string &document : documents)
    if (documents.size() > 1)
      document += "\n\n";
  EncodeTextsOptions options;
  options.threads = threads;
  return encodeTexts(tokenizer, documents, path, options);
}

/// For the message of a text that is too short; empty where there is nothing to
/// say.
static std::string describeDropped(int64_t passages, uint64_t bytes) {
  if (passages == 0)
    return "";
  return fmt::format(" without {} passage{} that occur{} before, {}", passages,
                     passages == 1 ? "" : "s", passages == 1 ? "s" : "",
                     formatBytes(static_cast<double>(bytes)));
}

std::vector<TextSource>
stem::readTextSources(const CalibrationTextOptions &options,
                      const Tokenizer &tokenizer, RepeatedPassages &repeated) {
  std::vector<TextSource> sources;
  PassageFilter filter;
  for (const std::filesystem::path &file : options.files) {
    const std::string path = file.string();
    const std::string content = readText(path);
    TextSource source{path, hashText(content), {}};
    for (const TextSource &other : sources)
      if (other.sha256 == source.sha256)
        fail("--calibrate={}: is the same text as {}; give it once", path,
             other.name);
    const int64_t dropped = filter.dropped();
    const uint64_t droppedBytes = filter.droppedBytes();
    source.documents =
        readDocuments(tokenizer, path, content, options.threads, filter);
    const int64_t least = static_cast<int64_t>(kDeal) * options.window;
    if (source.tokens() < least)
      fail("--calibrate={}: has {} tokens{}, which is too little to calibrate "
           "on: {} are the least for a text; give a longer one",
           path, source.tokens(),
           describeDropped(filter.dropped() - dropped,
                           filter.droppedBytes() - droppedBytes),
           least);
    sources.push_back(std::move(source));
  }
  repeated = {filter.dropped(), filter.droppedBytes(), filter.bytes()};
  return sources;
}

int64_t stem::dialogueTokens(int64_t tokens, double share) {
  return static_cast<int64_t>(share * static_cast<double>(tokens));
}

namespace {

/// Windows of the texts, the last one apart where it has a share of its own.
struct WindowBudget {
  int64_t others, last;
};

WindowBudget budgetOf(int64_t tokens, int64_t window,
                      const TextShares &wanted) {
  const int64_t all =
      (tokens - dialogueTokens(tokens, wanted.dialogue)) / window;
  if (!wanted.last)
    return {all, 0};
  const int64_t last = std::max<int64_t>(
      1, std::llround(*wanted.last * double(tokens) / double(window)));
  return {all - last, last};
}

/// The fewest tokens that leave so many windows to the others; kMostTokens
/// where none do.
int64_t fewestTokens(int64_t tokens, int64_t others, int64_t window,
                     const TextShares &wanted) {
  while (tokens < kMostTokens &&
         budgetOf(tokens, window, wanted).others < others)
    ++tokens;
  return tokens;
}

std::string describe(const TextShares &wanted, int64_t tokens, int64_t window,
                     const WindowBudget &budget) {
  std::vector<std::string> parts;
  if (const int64_t dialogue = dialogueTokens(tokens, wanted.dialogue))
    parts.push_back(fmt::format("dialogue takes {} (--dialogue-share={})",
                                dialogue, wanted.dialogue));
  if (wanted.last)
    parts.push_back(fmt::format("what the model writes {} (--self-share={})",
                                budget.last * window, *wanted.last));
  if (parts.empty())
    return "";
  return fmt::format(
      ", and {}, which leaves {}", fmt::join(parts, ", "),
      std::max<int64_t>(0, tokens - dialogueTokens(tokens, wanted.dialogue) -
                               budget.last * window));
}

} // namespace

std::vector<int64_t> stem::textShares(size_t texts, int64_t tokens,
                                      int64_t window,
                                      const TextShares &wanted) {
  const WindowBudget budget = budgetOf(tokens, window, wanted);
  const int64_t count = static_cast<int64_t>(texts) - (wanted.last ? 1 : 0);
  if (budget.others < count) {
    const int64_t fewest = fewestTokens(tokens, count, window, wanted);
    fail("--calibrate-tokens={}: {} text{} need{} {} at least, a window of {} "
         "tokens each{}; give {}",
         tokens, count, count == 1 ? "" : "s", count == 1 ? "s" : "",
         count * window, window, describe(wanted, tokens, window, budget),
         fewest < kMostTokens ? std::to_string(fewest) : "smaller shares");
  }
  std::vector<int64_t> shares;
  for (int64_t i = 0; i < count; ++i)
    shares.push_back((budget.others / count + (i < budget.others % count)) *
                     window);
  if (wanted.last)
    shares.push_back(budget.last * window);
  return shares;
}

int64_t stem::tokensToTake(const std::vector<TextSource> &sources,
                           const std::vector<int64_t> &shares,
                           const CalibrationTextOptions &options) {
  CalibrationText text;
  Dealer dealer(options, text);
  for (size_t i = 0; i < sources.size(); ++i)
    dealer.add(sources[i], shares[i]);
  return dealer.tokens();
}

CalibrationText stem::dealTexts(const std::vector<TextSource> &sources,
                                const std::vector<int64_t> &shares,
                                const CalibrationTextOptions &options) {
  CalibrationText text;
  Dealer dealer(options, text);
  for (size_t i = 0; i < sources.size(); ++i) {
    // Each part has dialogue, and text however little there is of it.
    if (sources[i].isDialogue)
      dealer.deal();
    dealer.add(sources[i], shares[i]);
  }
  dealer.deal();
  for (const TokenStream *part : {&text.fit, &text.choose, &text.check})
    if (part->tokens == 0)
      fail("--calibrate: documents are too short for windows of {} tokens in "
           "each part (fit, choose and check); give fewer files, longer "
           "documents or more --calibrate-tokens",
           kShortWindow);
  numberRows(text);
  return text;
}
