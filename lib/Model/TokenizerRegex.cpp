//===- TokenizerRegex.cpp - Regular expressions of tokenizer.json ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerRegex.h"

#include "TokenizerUnicode.h"
#include "stem/Support/Error.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace stem {

namespace {

// Enough for the longest texts seen; a pattern that needs more is one whose
// time explodes.
constexpr uint32_t MatchLimit = 20'000'000;
constexpr uint32_t HeapLimitKiB = 512 * 1024;
constexpr size_t JitStackBytes = 8u << 20;

/// Rewrites a pattern so that PCRE2 gives it the meaning it has in
/// tokenizer.json.
class Translator {
public:
  Translator(std::string_view pattern, const std::string &where)
      : pattern(pattern), where(where) {}

  std::string run() {
    while (at < pattern.size()) {
      char c = pattern[at];
      if (c == '\\')
        escape(/*inClass=*/false);
      else if (c == '[')
        characterClass();
      else if (c == '(')
        group();
      else if (c == '}' && at + 1 < pattern.size() && pattern[at + 1] == '+' &&
               interval)
        refuse("a '+' after an interval");
      else {
        interval = c == '{' || (interval && c != '}');
        result += c;
        ++at;
      }
    }
    return std::move(result);
  }

private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail("{}: the regular expression '{}' uses {} at byte {}, which is not "
         "supported; rewrite the pattern without it",
         where, pattern, what, at);
  }

  void escape(bool inClass) {
    interval = false;
    if (at + 1 == pattern.size())
      refuse("a backslash with nothing after it");
    char c = pattern[at + 1];
    if (std::string_view("hHKGQECNXyYO").find(c) != std::string_view::npos)
      refuse(fmt::format("\\{}", c));
    if (c == 'u')
      codePoint();
    else if (c == 'p' || c == 'P' || c == 'x')
      propertyOrCode();
    else if (std::string set = shorthand(c, inClass); !set.empty())
      result += set;
    else
      result += pattern.substr(at, 2);
    at += 2;
  }

  /// What PCRE2 calls the sets \s, \d, \w and their complements; empty for
  /// another letter.
  std::string shorthand(char c, bool inClass) const {
    switch (c) {
    case 's':
      return "\\p{White_Space}";
    case 'S':
      return "\\P{White_Space}";
    case 'd':
      return "\\p{Nd}";
    case 'D':
      return "\\P{Nd}";
    case 'w':
      return inClass ? WordClass : "[" + std::string(WordClass) + "]";
    case 'W':
      if (inClass)
        refuse("\\W in a character class");
      return "[^" + std::string(WordClass) + "]";
    default:
      return "";
    }
  }

  /// \uXXXX. Leaves the last two of its bytes to escape().
  void codePoint() {
    std::string_view digits = pattern.substr(at + 2, 4);
    if (digits.size() < 4)
      refuse("\\u without four digits");
    result += fmt::format("\\x{{{}}}", digits);
    at += 4;
  }

  /// \p{..}, \P{..} and \x{..}, or their short forms.
  void propertyOrCode() {
    result += pattern.substr(at, 2);
    if (pattern.substr(at + 2, 1) != "{")
      return;
    size_t end = pattern.find('}', at);
    if (end == std::string_view::npos)
      refuse("a brace that does not close");
    result += pattern.substr(at + 2, end + 1 - (at + 2));
    at = end - 1;
  }

  void characterClass() {
    interval = false;
    size_t first = at;
    result += pattern[at++];
    if (at < pattern.size() && pattern[at] == '^')
      result += pattern[at++];
    for (bool isFirst = true; at < pattern.size(); isFirst = false) {
      char c = pattern[at];
      if (c == ']' && !isFirst) {
        result += c;
        ++at;
        return;
      }
      if (c == '\\') {
        escape(/*inClass=*/true);
        continue;
      }
      if (c == '[')
        refuse("a character class within a character class");
      if (pattern.substr(at, 2) == "&&")
        refuse("an intersection of character classes");
      result += c;
      ++at;
    }
    at = first;
    refuse("a character class that does not end");
  }

  void group() {
    // Only these begin alike in both syntaxes.
    interval = false;
    std::string_view rest = pattern.substr(at);
    if (rest.starts_with("(*"))
      refuse("a verb");
    if (rest.starts_with("(?")) {
      bool known = false;
      for (std::string_view kind :
           {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"})
        known |= rest.starts_with(kind);
      // Elsewhere the two disagree on what an alternation after it belongs to.
      known |= at == 0 && rest.starts_with("(?i)");
      if (!known)
        refuse(fmt::format("a group '{}'", rest.substr(0, 3)));
    }
    result += '(';
    ++at;
  }

  static constexpr const char *WordClass = "\\p{Alphabetic}\\p{M}\\p{N}\\p{Pc}";

  std::string_view pattern;
  const std::string &where;
  size_t at = 0;
  bool interval = false; ///< between '{' and '}'
  std::string result;
};

std::string errorText(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char *>(buffer);
}

/// What one thread needs to match; made once per thread.
struct MatchState {
  pcre2_match_data *data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context *context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack *stack =
      pcre2_jit_stack_create(32 << 10, JitStackBytes, nullptr);

  MatchState() {
    if (!data || !context)
      throw std::bad_alloc();
    pcre2_set_match_limit(context, MatchLimit);
    pcre2_set_heap_limit(context, HeapLimitKiB);
    if (stack)
      pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchState(const MatchState &) = delete;
  MatchState &operator=(const MatchState &) = delete;
  ~MatchState() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

} // namespace

Regex::Regex(std::string_view pattern, std::string where)
    : where(std::move(where)) {
  std::string translated = Translator(pattern, this->where).run();
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code *compiled = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
      &offset, nullptr);
  if (!compiled)
    fail("{}: the regular expression '{}' is not valid: {}", this->where,
         pattern, errorText(error));
  code = std::shared_ptr<void>(compiled, [](void *pointer) {
    pcre2_code_free(static_cast<pcre2_code *>(pointer));
  });
  // Where this is refused (no executable memory), pcre2_match interprets.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
}

void Regex::forEachMatch(
    std::string_view text,
    const std::function<void(size_t, size_t)> &onMatch) const {
  if (text.empty())
    return;
  thread_local MatchState state;
  const auto *compiled = static_cast<const pcre2_code *>(code.get());
  const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(state.data);
  size_t from = 0;
  size_t lastEnd = SIZE_MAX;
  while (from <= text.size()) {
    auto match = [&](uint32_t options) {
      return pcre2_match(compiled, reinterpret_cast<PCRE2_SPTR>(text.data()),
                         text.size(), from, PCRE2_NO_UTF_CHECK | options,
                         state.data, state.context);
    };
    int status = match(0);
    if (status == PCRE2_ERROR_JIT_STACKLIMIT)
      status = match(PCRE2_NO_JIT);
    if (status == PCRE2_ERROR_NOMATCH)
      return;
    if (status < 0)
      fail("{}: the regular expression gave up on a text of {} bytes: {}; "
           "split the text or simplify the pattern",
           where, text.size(), errorText(status));
    size_t begin = bounds[0], end = bounds[1];
    if (begin == end && end == lastEnd) {
      from = end < text.size() ? end + unicode::characterLength(text[end])
                               : end + 1;
      continue;
    }
    // A look-behind can see text before `from`, but a match never begins there.
    onMatch(begin, end);
    from = lastEnd = end;
  }
}

} // namespace stem
