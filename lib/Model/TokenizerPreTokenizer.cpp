//===- TokenizerPreTokenizer.cpp - Pre-tokenizers of tokenizer.json -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerPreTokenizer.h"

#include "TokenizerNormalizer.h"
#include "TokenizerRegex.h"
#include "TokenizerUnicode.h"

namespace stem {

namespace {

/// What becomes of the matches of a split.
enum class Behavior {
  Removed,
  Isolated,
  MergedWithPrevious,
  MergedWithNext,
  Contiguous,
};

/// A part of a piece: a match, or what lies between two.
struct Part {
  size_t begin, end;
  bool isMatch;
};

using Spans = std::vector<PieceList::Span>;

Behavior parseBehavior(const JsonNode &node) {
  const std::string &name = node.string();
  if (name == "Removed")
    return Behavior::Removed;
  if (name == "Isolated")
    return Behavior::Isolated;
  if (name == "MergedWithPrevious")
    return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext")
    return Behavior::MergedWithNext;
  if (name == "Contiguous")
    return Behavior::Contiguous;
  node.refuse("the behavior '{}' is not supported; known are Removed, "
              "Isolated, MergedWithPrevious, MergedWithNext and Contiguous",
              name);
}

/// Appends to `spans` what the behavior makes of the parts of one piece, which
/// cover it from left to right.
void joinParts(const std::vector<Part> &parts, Behavior behavior,
               Spans &spans) {
  size_t firstOfPiece = spans.size();
  auto push = [&](const Part &part) {
    spans.push_back({part.begin, part.end});
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part &part = parts[i];
    bool afterMatch = i > 0 && parts[i - 1].isMatch;
    bool joins = false;
    switch (behavior) {
    case Behavior::Removed:
      if (part.isMatch)
        continue;
      break;
    case Behavior::Isolated:
      break;
    case Behavior::MergedWithPrevious:
      joins = part.isMatch && !afterMatch;
      break;
    case Behavior::MergedWithNext:
      // The last match of a row of matches takes the part after it along.
      joins = !part.isMatch && afterMatch;
      break;
    case Behavior::Contiguous:
      joins = part.isMatch == afterMatch;
      break;
    }
    if (joins && spans.size() > firstOfPiece)
      spans.back().end = part.end;
    else
      push(part);
  }
}

/// Splits each piece. `find` calls back with the matches of a text.
void splitPieces(PieceList &pieces, const Finder &find, Behavior behavior,
                 bool invert) {
  Spans result;
  std::vector<Part> parts;
  for (PieceList::Span span : pieces.spans) {
    std::string_view piece = pieces.piece(span);
    parts.clear();
    size_t done = 0;
    auto add = [&](size_t begin, size_t end, bool isMatch) {
      if (begin < end)
        parts.push_back(
            {span.begin + begin, span.begin + end, isMatch != invert});
    };
    find(piece, [&](size_t begin, size_t end) {
      add(done, begin, false);
      add(begin, end, true);
      done = end;
    });
    add(done, piece.size(), false);
    joinParts(parts, behavior, result);
  }
  pieces.spans = std::move(result);
}

/// Matches each character of a class by itself.
Finder charactersThat(bool (*isOfClass)(char32_t)) {
  return [isOfClass](std::string_view text,
                     const std::function<void(size_t, size_t)> &onMatch) {
    for (size_t i = 0; i < text.size();) {
      size_t end = i + unicode::characterLength(text[i]);
      if (isOfClass(unicode::decodeAt(text, i)))
        onMatch(i, end);
      i = end;
    }
  };
}

/// Matches runs of word characters and runs of what is neither word nor space.
void findWords(std::string_view text,
               const std::function<void(size_t, size_t)> &onMatch) {
  enum Kind { Word, Space, Other };
  auto kindAt = [&](size_t i) {
    char32_t c = unicode::decodeAt(text, i);
    return unicode::isWord(c) ? Word : unicode::isWhitespace(c) ? Space : Other;
  };
  for (size_t begin = 0; begin < text.size();) {
    Kind kind = kindAt(begin);
    size_t end = begin;
    do
      end += unicode::characterLength(text[end]);
    while (end < text.size() && kindAt(end) == kind);
    if (kind != Space)
      onMatch(begin, end);
    begin = end;
  }
}

/// Rebuilds the text, each piece through `rewrite(piece, isFirst)`.
template <typename Rewrite>
void rewritePieces(PieceList &pieces, Rewrite rewrite) {
  std::string text;
  text.reserve(pieces.text.size() * 2);
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    PieceList::Span &span = pieces.spans[i];
    size_t begin = text.size();
    rewrite(text, pieces.piece(span), i == 0 && span.begin == 0);
    span = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

const Regex &byteLevelRegex() {
  static const Regex regex("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|"
                           " ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                           "ByteLevel");
  return regex;
}

void findByteLevelWords(std::string_view text,
                        const std::function<void(size_t, size_t)> &onMatch) {
  byteLevelRegex().forEachMatch(text, onMatch);
}

void toByteLevel(PieceList &pieces) {
  rewritePieces(pieces, [](std::string &text, std::string_view piece, bool) {
    text += unicode::toByteAlphabet(piece);
  });
}

} // namespace

void PreTokenizer::addByteLevel(const JsonNode &node) {
  node.allowKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  // Twice, it would write bytes of bytes.
  if (hasByteLevel)
    node.refuse("ByteLevel appears a second time");
  hasByteLevel = true;
  if (node.getBool("add_prefix_space", true))
    steps.push_back([](PieceList &pieces) {
      rewritePieces(pieces,
                    [](std::string &text, std::string_view piece, bool) {
                      if (!piece.starts_with(' '))
                        text += ' ';
                      text += piece;
                    });
    });
  if (node.getBool("use_regex", true))
    steps.push_back([](PieceList &pieces) {
      splitPieces(pieces, findByteLevelWords, Behavior::Isolated, false);
    });
  steps.push_back(toByteLevel);
}

void PreTokenizer::addSplit(const JsonNode &node) {
  node.allowKeys({"type", "pattern", "behavior", "invert"});
  steps.push_back([find = parsePattern(node.at("pattern")),
                   behavior = parseBehavior(node.at("behavior")),
                   invert = node.getBool("invert", false)](PieceList &pieces) {
    splitPieces(pieces, find, behavior, invert);
  });
}

void PreTokenizer::addMetaspace(const JsonNode &node) {
  node.allowKeys({"type", "replacement", "prepend_scheme", "split",
                  "add_prefix_space", "str_rep"});
  enum Scheme { Always, Never, First };
  Scheme scheme = node.getBool("add_prefix_space", true) ? Always : Never;
  if (std::optional<JsonNode> named = node.find("prepend_scheme")) {
    const std::string &name = named->string();
    if (name == "always")
      scheme = Always;
    else if (name == "never")
      scheme = Never;
    else if (name == "first")
      scheme = First;
    else
      named->refuse("expected always, never or first, found '{}'", name);
  }
  std::string mark = parseMark(node);

  steps.push_back([=](PieceList &pieces) {
    rewritePieces(
        pieces, [&](std::string &text, std::string_view piece, bool isFirst) {
          bool begins = piece.starts_with(mark) || piece.starts_with(' ');
          bool atStart = isFirst && pieces.atInputStart;
          if (!begins && (scheme == Always || (scheme == First && atStart)))
            text += mark;
          for (char c : piece)
            if (c == ' ')
              text += mark;
            else
              text += c;
        });
  });
  if (node.getBool("split", true))
    steps.push_back([mark](PieceList &pieces) {
      splitPieces(
          pieces,
          [&](std::string_view text,
              const std::function<void(size_t, size_t)> &onMatch) {
            for (size_t at = text.find(mark); at != std::string_view::npos;
                 at = text.find(mark, at + mark.size()))
              onMatch(at, at + mark.size());
          },
          Behavior::MergedWithNext, false);
    });
}

void PreTokenizer::add(const JsonNode &node) {
  const std::string &type = node.type();
  auto addSplitting = [&](Finder find, Behavior behavior, bool invert) {
    steps.push_back([=](PieceList &pieces) {
      splitPieces(pieces, find, behavior, invert);
    });
  };
  if (type == "Sequence") {
    node.allowKeys({"type", "pretokenizers"});
    for (const JsonNode &element : node.at("pretokenizers").elements())
      add(element);
  } else if (type == "ByteLevel") {
    addByteLevel(node);
  } else if (type == "Split") {
    addSplit(node);
  } else if (type == "Metaspace") {
    addMetaspace(node);
  } else if (type == "Digits") {
    node.allowKeys({"type", "individual_digits"});
    addSplitting(charactersThat(unicode::isNumeric),
                 node.getBool("individual_digits", false)
                     ? Behavior::Isolated
                     : Behavior::Contiguous,
                 false);
  } else if (type == "Whitespace") {
    node.allowKeys({"type"});
    addSplitting(findWords, Behavior::Removed, true);
  } else if (type == "WhitespaceSplit") {
    node.allowKeys({"type"});
    addSplitting(charactersThat(unicode::isWhitespace), Behavior::Removed,
                 false);
  } else if (type == "Punctuation") {
    node.allowKeys({"type", "behavior"});
    std::optional<JsonNode> behavior = node.find("behavior");
    addSplitting(charactersThat(unicode::isPunctuation),
                 behavior ? parseBehavior(*behavior) : Behavior::Isolated,
                 false);
  } else {
    node.refuse("the pre-tokenizer '{}' is not supported; known are Sequence, "
                "ByteLevel, Split, Metaspace, Digits, Whitespace, "
                "WhitespaceSplit and Punctuation",
                type);
  }
}

} // namespace stem
