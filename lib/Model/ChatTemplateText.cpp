//===- ChatTemplateText.cpp - String operations of chat templates ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The string operations that are filters and methods both. Each byte of a
// result keeps the origin of the byte it was made from.
//
//===----------------------------------------------------------------------===//

#include "ChatTemplateProgram.h"

#include <utf8proc.h>

using namespace stem;

ChatText stem::stripText(ChatContext &context, const ChatText &text,
                         const ChatValue *characters, bool left, bool right) {
  std::string_view set;
  bool blanks = !characters || characters->is<ChatNone>();
  if (!blanks)
    set = expectString(context, *characters, "the characters to strip").bytes;
  context.charge(text.size() + 1);
  auto isStripped = [&](size_t position) {
    if (blanks)
      return isSpaceAt(text.bytes, position);
    context.charge(set.size());
    std::string_view c =
        std::string_view(text.bytes)
            .substr(position, characterSize(text.bytes, position));
    return set.find(c) != std::string_view::npos;
  };
  size_t begin = 0;
  while (left && begin < text.size() && isStripped(begin))
    begin += characterSize(text.bytes, begin);
  size_t end = text.size();
  while (right && end > begin) {
    // A character is at most four bytes long and ends here.
    size_t last = end - 1;
    for (size_t size = 2; size <= 4 && size <= end - begin; ++size)
      if (characterSize(text.bytes, end - size) == size)
        last = end - size;
    if (!isStripped(last))
      break;
    end = last;
  }
  return text.slice(begin, end);
}

ChatText stem::replaceText(ChatContext &context, const ChatText &text,
                           const ChatValue *from, const ChatValue *to,
                           const ChatValue *count) {
  if (!from || !to)
    context.fail("'replace' wants an old and a new string");
  const ChatText &old = expectString(context, *from, "what 'replace' replaces");
  const ChatText &fresh = expectString(context, *to, "what 'replace' writes");
  int64_t limit = -1;
  if (count && !count->is<ChatNone>())
    limit = expectInteger(context, *count, "the count of 'replace'");
  if (old.bytes.empty())
    context.fail("what 'replace' replaces is empty");
  context.charge(text.size() + 1);
  ChatText result;
  size_t begin = 0;
  for (int64_t i = 0; limit < 0 || i < limit; ++i) {
    size_t found = text.bytes.find(old.bytes, begin);
    if (found == std::string::npos)
      break;
    context.charge(fresh.size() + 1);
    result.append(text.slice(begin, found));
    result.append(fresh);
    begin = found + old.size();
  }
  result.append(text.slice(begin, text.size()));
  return result;
}

ChatText stem::changeCase(ChatContext &context, const ChatText &text,
                          ChatCase to) {
  context.charge(text.size() * 4 + 1);
  ChatText result;
  bool wordStarts = true;
  for (size_t i = 0, size; i < text.size(); i += size) {
    size = characterSize(text.bytes, i);
    auto *bytes = reinterpret_cast<const utf8proc_uint8_t *>(&text.bytes[i]);
    utf8proc_int32_t code = -1;
    if (utf8proc_iterate(bytes, utf8proc_ssize_t(size), &code) < 0) {
      result.append(text.slice(i, i + size));
      continue;
    }
    utf8proc_int32_t lower = utf8proc_tolower(code);
    utf8proc_int32_t upper = utf8proc_toupper(code);
    bool raise = to == ChatCase::Upper || (to != ChatCase::Lower && wordStarts);
    utf8proc_uint8_t buffer[4];
    utf8proc_ssize_t written =
        utf8proc_encode_char(raise ? upper : lower, buffer);
    result.append({reinterpret_cast<char *>(buffer), size_t(written)},
                  text.user[i]);
    wordStarts = to == ChatCase::Title && lower == upper;
  }
  return result;
}
