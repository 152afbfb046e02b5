//===- CalibrationTextTest.cpp - How texts are dealt out ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationText.h"
#include "../Model/TokenizerTestData.h"

#include "stem/Graph/ModelGraph.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t kWindow = 70, kPadded = 128, kStep = 300;

/// Each window begins with its number in two bytes from 'A'; the byte of a
/// token is its id.
std::string numberedText(int windows, char fill) {
  std::string text;
  for (int i = 0; i < windows; ++i) {
    text += static_cast<char>('A' + i / 16);
    text += static_cast<char>('A' + i % 16);
    text.append(kWindow - 2, fill);
  }
  return text;
}

class CalibrationTextTest : public testing::Test {
protected:
  CalibrationTextTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "stem-text-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw std::runtime_error("mkdtemp failed");
    folder = pattern;
  }
  ~CalibrationTextTest() override { std::filesystem::remove_all(folder); }

  std::filesystem::path write(const std::string &name,
                              const std::string &text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return folder / name;
  }

  CalibrationText read(std::vector<std::filesystem::path> files,
                       int64_t windows, uint64_t seed = 0) {
    CalibrationTextOptions options;
    options.files = std::move(files);
    options.tokens = windows * kWindow + kWindow - 1;
    options.window = kWindow;
    options.maxStepTokens = kStep;
    options.shortEach = 0;
    options.seed = seed;
    const std::vector<int64_t> shares =
        textShares(options.files.size(), options.tokens, options.window);
    RepeatedPassages repeated;
    CalibrationText text = dealTexts(
        readTextSources(options, tokenizer, repeated), shares, options);
    text.repeated = repeated;
    return text;
  }

  /// The numbers of a stream's windows.
  static std::vector<int> numbers(const TokenStream &stream) {
    std::vector<int> result;
    for (int64_t i = 0; i < stream.places(); i += kPadded)
      result.push_back((stream.ids[i] - 'A') * 16 + stream.ids[i + 1] - 'A');
    return result;
  }

  std::filesystem::path folder;
  Tokenizer tokenizer = load(tinyBytes());
};

TEST_F(CalibrationTextTest, WindowsAreDealtOut) {
  const CalibrationText text = read({write("a", numberedText(33, 'a'))}, 100);
  EXPECT_EQ(numbers(text.choose), (std::vector{8, 24}));
  EXPECT_EQ(numbers(text.check), (std::vector{15, 31}));
  std::vector<int> others;
  for (int i = 0; i < 33; ++i)
    if (i != 8 && i != 24 && i != 15 && i != 31)
      others.push_back(i);
  EXPECT_EQ(numbers(text.fit), others);
  EXPECT_EQ(text.fit.tokens, 29 * kWindow);
  EXPECT_EQ(text.choose.tokens, 2 * kWindow);
  EXPECT_EQ(text.check.tokens, 2 * kWindow);
}

TEST_F(CalibrationTextTest, TakesEvenlyFromTheWholeFile) {
  const CalibrationText text = read({write("a", numberedText(64, 'a'))}, 16);
  std::multiset<int> taken;
  for (const TokenStream *stream : {&text.fit, &text.choose, &text.check})
    for (int number : numbers(*stream))
      taken.insert(number);
  std::multiset<int> wanted;
  for (int i = 0; i < 64; i += 4)
    wanted.insert(i);
  EXPECT_EQ(taken, wanted);
  ASSERT_EQ(text.sources.size(), 1u);
  EXPECT_EQ(text.sources[0].tokens, 64 * kWindow);
  EXPECT_EQ(text.sources[0].tokensTaken, 16 * kWindow);
}

/// Also where each text gives fewer windows than are dealt out at a time.
TEST_F(CalibrationTextTest, EveryPartHasWindowsOfSeveralTexts) {
  const auto a = write("a", numberedText(20, 'a'));
  const auto b = write("b", numberedText(20, 'b'));
  const auto c = write("c", numberedText(20, 'c'));
  const CalibrationText text = read({a, b, c}, 16);
  EXPECT_EQ(text.fit.tokens, 14 * kWindow);
  EXPECT_EQ(text.choose.tokens, kWindow);
  EXPECT_EQ(text.check.tokens, kWindow);
  ASSERT_EQ(text.sources.size(), 3u);
  EXPECT_EQ(text.sources[0].tokensTaken, 6 * kWindow);
  EXPECT_EQ(text.sources[1].tokensTaken, 5 * kWindow);
  EXPECT_EQ(text.sources[2].tokensTaken, 5 * kWindow);
  EXPECT_EQ(text.sources[1].file, b.string());
}

TEST_F(CalibrationTextTest, StreamsAreLaidOutInTilesAndSteps) {
  const CalibrationText text = read({write("a", numberedText(16, 'a'))}, 16);
  const TokenStream &fit = text.fit;
  ASSERT_EQ(fit.places(), 14 * kPadded);
  ASSERT_EQ(kPadded % kTokenTile, 0);
  for (const auto *values : {&fit.positions, &fit.sequences, &fit.labels,
                             &fit.rows, &fit.sources, &fit.documents})
    ASSERT_EQ(values->size(), fit.ids.size());
  ASSERT_EQ(fit.counted.size(), fit.ids.size());
  // Two windows of 128 places in a step of 300.
  ASSERT_EQ(fit.steps.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(fit.steps[i].begin, static_cast<int64_t>(i) * 2 * kPadded);
    EXPECT_EQ(fit.steps[i].count, 2 * kPadded);
    EXPECT_EQ(fit.step(fit.steps[i]).count(), 2 * kPadded);
    EXPECT_EQ(fit.step(fit.steps[i]).ids.data(),
              fit.ids.data() + fit.steps[i].begin);
  }
  for (int64_t place = 0; place < fit.places(); ++place) {
    const int64_t i = place % kPadded;
    const bool isToken = i < kWindow;
    EXPECT_EQ(fit.positions[place], i);
    EXPECT_EQ(fit.sequences[place], isToken ? place / kPadded % 2 : -1);
    EXPECT_EQ(fit.counted[place], i > 0 && isToken);
    EXPECT_EQ(fit.labels[place], i + 1 < kWindow ? fit.ids[place + 1] : -100);
    EXPECT_EQ(fit.sources[place], isToken ? 0 : -1);
    const int64_t window = place / kPadded;
    EXPECT_EQ(fit.documents[place], isToken ? window + (window >= 8) : -1);
  }
}

TEST_F(CalibrationTextTest, RowsAreTheIdsOfAllParts) {
  const CalibrationText text = read({write("a", numberedText(16, 'a'))}, 16);
  // 0 is the padding's.
  std::vector<int32_t> ids = {0};
  for (char letter = 'A'; letter < 'A' + 16; ++letter)
    ids.push_back(letter);
  ids.push_back('a');
  EXPECT_EQ(text.rowIds, ids);
  for (const TokenStream *stream : {&text.fit, &text.choose, &text.check})
    for (int64_t i = 0; i < stream->places(); ++i)
      ASSERT_EQ(text.rowIds[stream->rows[i]], stream->ids[i]);
}

TEST_F(CalibrationTextTest, HashIsOfTheWholeFile) {
  const CalibrationText text =
      read({write("a", std::string(16 * kWindow + 5, 'a'))}, 16);
  // sha256sum of 1125 times the letter a.
  EXPECT_EQ(text.sources[0].sha256,
            "d0083d3b373c50ae3fbb004720609deaba416f626063f2ccebf0b49e9dbe5220");
  EXPECT_EQ(text.sources[0].tokens, 16 * kWindow + 5);
}

TEST_F(CalibrationTextTest, SpecialTokensAreText) {
  const CalibrationText text =
      read({write("a", numberedText(16, 'a') + std::string("<s>"))}, 16);
  EXPECT_EQ(text.sources[0].tokens, 16 * kWindow + 3);
}

/// Document i: its number, then 68 times the letter; two letters are a blank
/// line behind it.
std::vector<std::string> numberedDocuments(int count, char fill) {
  std::vector<std::string> documents;
  for (int i = 0; i < count; ++i)
    documents.push_back(std::string{static_cast<char>('A' + i / 16),
                                    static_cast<char>('A' + i % 16)} +
                        std::string(68, fill));
  return documents;
}

std::string joined(const std::vector<std::string> &documents,
                   const std::string &border) {
  std::string text;
  for (const std::string &document : documents)
    text += (text.empty() ? "" : border) + document;
  return text;
}

/// The numbers of the documents in a stream, rising, and their tokens.
std::map<int, int> documentsIn(const TokenStream &stream) {
  std::map<int, int> tokens;
  for (int32_t document : stream.documents)
    if (document >= 0)
      ++tokens[document];
  return tokens;
}

TEST_F(CalibrationTextTest, DocumentsAreDealtWhole) {
  const auto documents = numberedDocuments(64, 'a');
  const CalibrationText text =
      read({write("a", joined(documents, "\f"))}, 1000);
  ASSERT_EQ(text.sources.size(), 1u);
  EXPECT_EQ(text.sources[0].documents, 64);
  EXPECT_EQ(text.sources[0].split, "documents");
  EXPECT_EQ(text.sources[0].tokens, 64 * 72);
  // Four documents of 72 tokens: 4 windows of 70; 8 are too few for another.
  EXPECT_EQ(text.check.tokens, 4 * kWindow);
  EXPECT_EQ(documentsIn(text.choose),
            (std::map<int, int>{{8, 72}, {24, 72}, {40, 72}, {56, 64}}));
  EXPECT_EQ(documentsIn(text.check),
            (std::map<int, int>{{15, 72}, {31, 72}, {47, 72}, {63, 64}}));
  for (const auto &[document, tokens] : documentsIn(text.fit))
    EXPECT_TRUE(document % 16 != 8 && document % 16 != 15);
  EXPECT_EQ(text.sources[0].tokensTaken,
            text.fit.tokens + text.choose.tokens + text.check.tokens);
  // What the ids say, where a document begins.
  for (size_t i = 1; i < text.fit.ids.size(); ++i)
    if (text.fit.documents[i] >= 0 && text.fit.documents[i - 1] >= 0 &&
        text.fit.documents[i] != text.fit.documents[i - 1]) {
      EXPECT_EQ(text.fit.ids[i], 'A' + text.fit.documents[i] / 16);
      EXPECT_EQ(text.fit.ids[i - 1], '\n');
    }
}

TEST_F(CalibrationTextTest, JsonLinesAreDocuments) {
  const auto documents = numberedDocuments(64, 'a');
  std::string lines;
  for (const std::string &document : documents)
    lines += Json{{"text", document}, {"id", 3}}.dump() + "\n";
  const CalibrationText a = read({write("a.jsonl", lines)}, 32);
  const CalibrationText b = read({write("a", joined(documents, "\f"))}, 32);
  EXPECT_EQ(a.fit.ids, b.fit.ids);
  EXPECT_EQ(a.check.ids, b.check.ids);
  EXPECT_THAT_ERROR(read({write("b.jsonl", lines + "[]\n")}, 32),
                    "b.jsonl:65: ");
}

TEST_F(CalibrationTextTest, ShareOfTheDocumentsIsTakenEvenly) {
  const CalibrationText text =
      read({write("a", joined(numberedDocuments(128, 'a'), "\f"))}, 32);
  std::map<int, int> all;
  for (const TokenStream *stream : {&text.fit, &text.choose, &text.check})
    all.merge(documentsIn(*stream));
  EXPECT_NEAR(static_cast<double>(all.size()), 32, 1);
  EXPECT_LT(all.begin()->first, 4);
  EXPECT_GT(all.rbegin()->first, 123);
}

TEST_F(CalibrationTextTest, ALongDocumentGivesASixteenthAtMost) {
  auto documents = numberedDocuments(64, 'a');
  documents[0] = std::string(20000, 'b');
  const CalibrationText text = read({write("a", joined(documents, "\f"))}, 32);
  EXPECT_EQ(documentsIn(text.fit)[0], 2 * kWindow);
}

TEST_F(CalibrationTextTest, SeedChooses) {
  const auto file = write("a", joined(numberedDocuments(128, 'a'), "\f"));
  const auto windows = write("b", numberedText(64, 'b'));
  const auto checked = [&](const std::filesystem::path &path, uint64_t seed) {
    return documentsIn(read({path}, 32, seed).check);
  };
  for (const auto &path : {file, windows}) {
    EXPECT_EQ(checked(path, 1), checked(path, 1));
    EXPECT_NE(checked(path, 1), checked(path, 0));
    EXPECT_NE(checked(path, 1), checked(path, 2));
  }
}

TEST_F(CalibrationTextTest, RepeatedPassagesAreLeftOut) {
  const std::string passage(64, 'p');
  const std::string spaced =
      "  " + std::string(30, 'q') + " \n\t" + std::string(33, 'q') + "\n";
  const std::string collapsed =
      std::string(30, 'q') + " " + std::string(33, 'q');
  std::string text = numberedText(16, 'a') + "\n\n" + passage + "\n\n" +
                     collapsed + "\n\nshort\n\n";
  const CalibrationText once = read({write("a", text)}, 16);
  EXPECT_EQ(once.repeated.count, 0);
  text += passage + "\n \n" + spaced + "\nshort\n\n";
  const CalibrationText twice = read({write("b", text)}, 16);
  EXPECT_EQ(twice.repeated.count, 2);
  EXPECT_EQ(twice.repeated.bytesOfAll, text.size());
  EXPECT_EQ(twice.repeated.bytes, passage.size() + 3 + spaced.size() + 1);
  EXPECT_EQ(twice.sources[0].tokens, once.sources[0].tokens + 7);
  // In another file too.
  const CalibrationText both = read(
      {write("a", text), write("c", numberedText(16, 'c') + "\n\n" + passage)},
      32);
  EXPECT_EQ(both.repeated.count, 3);
  EXPECT_EQ(both.sources[1].tokens, 16 * kWindow + 2);
}

TEST_F(CalibrationTextTest, DialogueIsInEveryPart) {
  CalibrationTextOptions options;
  options.window = kWindow;
  options.maxStepTokens = kStep;
  TextSource text{"a", "", {std::vector<int32_t>(14 * kWindow, 7)}};
  TextSource dialogue{"dialogue", "", {}, /*isDialogue=*/true};
  for (int32_t i = 0; i < 5; ++i)
    dialogue.documents.push_back(std::vector<int32_t>(200, i));
  const CalibrationText result =
      dealTexts({text, dialogue}, {14 * kWindow, 1000}, options);
  for (const TokenStream *stream :
       {&result.fit, &result.choose, &result.check}) {
    const std::set<int32_t> sources(stream->sources.begin(),
                                    stream->sources.end());
    EXPECT_TRUE(sources.contains(0) && sources.contains(1));
  }
  EXPECT_EQ(result.sources[1].split, "documents");
  EXPECT_EQ(documentsIn(result.fit)[14], 200);
}

/// The windows of a stream: the token that each begins with, and its length.
std::vector<std::pair<int32_t, int32_t>> windowsIn(const TokenStream &stream) {
  std::vector<std::pair<int32_t, int32_t>> windows;
  for (size_t i = 0; i < stream.ids.size(); ++i) {
    if (stream.sequences[i] < 0)
      continue;
    if (stream.positions[i] == 0)
      windows.push_back({stream.ids[i], 0});
    ++windows.back().second;
  }
  return windows;
}

TEST_F(CalibrationTextTest, OfSoManyWindowsTheFirstIsCutShort) {
  CalibrationTextOptions options;
  options.window = 130;
  options.shortEach = 3;
  TextSource text{"text", "", {}};
  // Fourteen documents of one window each are for the fit.
  for (int32_t i = 0; i < 16; ++i)
    text.documents.push_back(std::vector<int32_t>(130, i));
  const CalibrationText dealt = dealTexts({text}, {16 * 130}, options);
  // What is left of 130 behind two of 64 is too short for a window.
  const std::vector<std::pair<int32_t, int32_t>> first = {
      {0, 64}, {0, 64}, {1, 130}, {2, 130}, {3, 64}, {3, 64}};
  std::vector<std::pair<int32_t, int32_t>> windows = windowsIn(dealt.fit);
  ASSERT_EQ(windows.size(), 14u + 5u);
  windows.resize(first.size());
  EXPECT_EQ(windows, first);
  EXPECT_EQ(windowsIn(dealt.choose), (decltype(first){{8, 64}, {8, 64}}));
  EXPECT_EQ(windowsIn(dealt.check), (decltype(first){{15, 130}}));
  EXPECT_EQ(dealt.sources[0].tokensTaken, 16 * 130 - 6 * 2);
}

TEST_F(CalibrationTextTest, ADialogueBeginsAWindow) {
  CalibrationTextOptions options;
  options.window = 130;
  TextSource dialogue{"dialogue", "", {}, /*isDialogue=*/true};
  for (int32_t i = 0; i < 16; ++i)
    dialogue.documents.push_back(std::vector<int32_t>(i == 1 ? 150 : 10, i));
  const CalibrationText dealt = dealTexts({dialogue}, {1000}, options);
  const std::vector<std::pair<int32_t, int32_t>> first = {
      {0, 10}, {1, 130}, {1, 20}, {2, 10}};
  std::vector<std::pair<int32_t, int32_t>> windows = windowsIn(dealt.fit);
  ASSERT_EQ(windows.size(), 15u);
  windows.resize(first.size());
  EXPECT_EQ(windows, first);
  EXPECT_EQ(dealt.sources[0].tokensTaken, 15 * 10 + 150);
}

/// Two texts are dealt one after the other; a step may hold windows of both.
TEST_F(CalibrationTextTest, WindowsOfAStepAreDifferentSequences) {
  CalibrationTextOptions options;
  options.window = kWindow;
  options.maxStepTokens = kStep;
  TextSource text{"text", "", {}};
  TextSource dialogue{"dialogue", "", {}, /*isDialogue=*/true};
  for (int32_t i = 0; i < 32; ++i) {
    text.documents.push_back(std::vector<int32_t>(600, i));
    dialogue.documents.push_back(std::vector<int32_t>(200, i));
  }
  const CalibrationText dealt =
      dealTexts({text, dialogue}, {14 * kWindow, 2000}, options);
  for (const TokenStream *stream : {&dealt.fit, &dealt.choose, &dealt.check})
    for (const TokenStream::Step &step : stream->steps) {
      std::set<std::pair<int32_t, int32_t>> places;
      size_t tokens = 0;
      for (int64_t i = step.begin; i < step.begin + step.count; ++i)
        if (stream->sequences[i] >= 0) {
          places.insert({stream->sequences[i], stream->positions[i]});
          ++tokens;
        }
      EXPECT_EQ(places.size(), tokens);
    }
}

TEST_F(CalibrationTextTest, Coverage) {
  CalibrationTextOptions options;
  options.window = kWindow;
  options.maxStepTokens = kStep;
  options.shortEach = 0;
  std::vector<int32_t> ids(16 * kWindow, 7);
  // Half of what is checked on is new.
  for (int64_t i = 15 * kWindow; i < 16 * kWindow; i += 2)
    ids[i] = 8;
  const CalibrationText result =
      dealTexts({{"a", "", {ids}}}, {16 * kWindow}, options);
  EXPECT_DOUBLE_EQ(result.coverage(), 35.0 / 69.0);
}

TEST_F(CalibrationTextTest, DocumentsTooShortForWindows) {
  CalibrationTextOptions options;
  options.window = kWindow;
  TextSource text{"a", "", {}};
  text.documents.assign(32, std::vector<int32_t>(31, 7));
  EXPECT_THAT_ERROR(dealTexts({text}, {16 * kWindow}, options),
                    "documents are too short for windows of 64 tokens");
}

/// However little of either there is.
TEST_F(CalibrationTextTest, OwnTextLeavesTheCheckToFiles) {
  CalibrationTextOptions options;
  options.window = kWindow;
  for (int64_t files = 1; files <= 20; ++files)
    for (int64_t own = 1; own <= 40; own += 3) {
      TextSource file{"a", "", {std::vector<int32_t>(files * kWindow, 7)}};
      TextSource self{"self", "", {std::vector<int32_t>(own * kWindow, 8)}};
      self.isSelf = true;
      if (files + own < 3)
        continue; // a window for each part
      const CalibrationText dealt =
          dealTexts({file, self}, {files * kWindow, own * kWindow}, options);
      EXPECT_TRUE(std::ranges::count(dealt.check.sources, 0))
          << files << " and " << own;
      EXPECT_EQ(dealt.sources[0].tokensTaken + dealt.sources[1].tokensTaken,
                dealt.fit.tokens + dealt.choose.tokens + dealt.check.tokens);
    }
}

TEST_F(CalibrationTextTest, TokensOfShortTexts) {
  CalibrationTextOptions options;
  options.window = kWindow;
  const TextSource text{"a", "", {std::vector<int32_t>(20 * kWindow + 3, 7)}};
  EXPECT_EQ(tokensToTake({text, text}, {5 * kWindow, 90 * kWindow}, options),
            25 * kWindow);
}

TEST_F(CalibrationTextTest, WrongTexts) {
  const auto good = write("good", numberedText(16, 'a'));
  EXPECT_THAT_ERROR(read({good, write("short", numberedText(15, 'b'))}, 32),
                    "short: has 1050 tokens, which is too little to calibrate "
                    "on: 1120 are the least for a text; give a longer one");
  EXPECT_THAT_ERROR(read({write("empty", "")}, 16), "empty: has 0 tokens");
  EXPECT_THAT_ERROR(read({folder / "missing"}, 16), "missing: no such file");
  EXPECT_THAT_ERROR(read({write("latin", "caf\xe9 noir")}, 16),
                    "latin: the text is not valid UTF-8: byte 3 (0xE9)");
  EXPECT_THAT_ERROR(read({folder}, 16), "not a regular file");
  EXPECT_THAT_ERROR(read({good, write("copy", numberedText(16, 'a'))}, 32),
                    "copy: is the same text as " + good.string() +
                        "; give it once");
  EXPECT_THAT_ERROR(read({good, good, good}, 2),
                    "--calibrate-tokens=209: 3 texts need 210 at least, a "
                    "window of 70 tokens each; give 210");
}

TEST_F(CalibrationTextTest, TokensThatDialogueLeavesTooFew) {
  for (const double share : {0.0, 0.1, 0.3, 0.5, 0.9}) {
    int64_t least = 1;
    while (least - dialogueTokens(least, share) < 3 * kWindow)
      ++least;
    const std::vector<int64_t> windows(3, kWindow);
    EXPECT_EQ(textShares(3, least, kWindow, {share}), windows);
    EXPECT_THAT_ERROR(textShares(3, least - 1, kWindow, {share}),
                      "--calibrate-tokens=" + std::to_string(least - 1) + ": ");
    EXPECT_THAT_ERROR(textShares(3, least - 1, kWindow, {share}),
                      "; give " + std::to_string(least));
  }
  EXPECT_THAT_ERROR(textShares(2, 8192, 512, {0.9}),
                    "--calibrate-tokens=8192: 2 texts need 1024 at least, a "
                    "window of 512 tokens each, and dialogue takes 7372 "
                    "(--dialogue-share=0.9), which leaves 820; give 10231");
}

TEST_F(CalibrationTextTest, ShareThatTheModelWrites) {
  using Shares = std::vector<int64_t>;
  EXPECT_EQ(textShares(3, 100 * kWindow, kWindow),
            (Shares{34 * kWindow, 33 * kWindow, 33 * kWindow}));
  EXPECT_EQ(textShares(3, 100 * kWindow, kWindow, {0.0, 0.5}),
            (Shares{25 * kWindow, 25 * kWindow, 50 * kWindow}));
  EXPECT_EQ(textShares(2, 100 * kWindow, kWindow, {0.1, 0.25}),
            (Shares{65 * kWindow, 25 * kWindow}));
  // A window at least, however small the share.
  EXPECT_EQ(textShares(2, 20 * kWindow, kWindow, {0.0, 0.01}),
            (Shares{19 * kWindow, kWindow}));
  EXPECT_THAT_ERROR(
      textShares(4, 8192, 512, {0.0, 0.9}),
      "--calibrate-tokens=8192: 3 texts need 1536 at least, a window of 512 "
      "tokens each, and what the model writes 7168 (--self-share=0.9), which "
      "leaves 1024; give 13312");
  EXPECT_THAT_ERROR(textShares(3, 8192, 512, {0.5, 0.5}),
                    "(--dialogue-share=0.5), what the model writes 4096 "
                    "(--self-share=0.5), which leaves 0; give smaller shares");
}

} // namespace
