//===- ChatTemplateValue.h - Values of a chat template ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The values a chat template computes with, and Python's rules for them. Every
// byte of a string remembers whether it came from a message.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_CHATTEMPLATEVALUE_H
#define STEM_LIB_MODEL_CHATTEMPLATEVALUE_H

#include "stem/Support/Error.h"

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace stem {

/// Where the interpreter is, and how much it may still do.
struct ChatContext {
  /// Expressions, statements and macro calls inside one another.
  static constexpr int maxDepth = 400;
  /// In bytes of text made; a step of the evaluator and a list item count as
  /// several. Some seconds' worth at most.
  static constexpr uint64_t maxWork = uint64_t(1) << 27;
  static constexpr uint64_t stepCost = 16;

  std::string name;
  int line = 1;
  int depth = 0;
  uint64_t work = 0;
  std::tm now = {};

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format,
                         Args &&...args) const {
    stem::fail("chat template '{}', line {}: {}", name, line,
               fmt::format(format, std::forward<Args>(args)...));
  }

  void charge(uint64_t amount) {
    if (amount > maxWork - work)
      fail("rendering takes more than {} units of work (bytes and steps); the "
           "template loops or repeats too much, or the messages are too long",
           maxWork);
    work += amount;
  }
};

/// Counts one construct more inside the others.
class ChatNesting {
public:
  explicit ChatNesting(ChatContext &context) : context(context) {
    if (context.depth == ChatContext::maxDepth)
      context.fail("constructs and macro calls are nested deeper than {}",
                   ChatContext::maxDepth);
    ++context.depth;
  }
  ~ChatNesting() { --context.depth; }
  ChatNesting(const ChatNesting &) = delete;
  ChatNesting &operator=(const ChatNesting &) = delete;

private:
  ChatContext &context;
};

/// Messages name this line until the construct is left.
class ChatScopedLine {
public:
  ChatScopedLine(ChatContext &context, int line)
      : context(context), outerLine(std::exchange(context.line, line)) {}
  ~ChatScopedLine() { context.line = outerLine; }
  ChatScopedLine(const ChatScopedLine &) = delete;
  ChatScopedLine &operator=(const ChatScopedLine &) = delete;

private:
  ChatContext &context;
  int outerLine;
};

/// UTF-8 text; user[i] is 1 where bytes[i] came from a message, else 0.
struct ChatText {
  std::string bytes;
  std::string user;

  ChatText() = default;
  explicit ChatText(std::string text, bool fromUser = false)
      : bytes(std::move(text)), user(bytes.size(), char(fromUser)) {}

  size_t size() const { return bytes.size(); }
  void append(const ChatText &other) {
    bytes += other.bytes;
    user += other.user;
  }
  void append(std::string_view text, char fromUser) {
    bytes += text;
    user.append(text.size(), fromUser);
  }
  ChatText slice(size_t begin, size_t end) const {
    ChatText result;
    result.bytes = bytes.substr(begin, end - begin);
    result.user = user.substr(begin, end - begin);
    return result;
  }
};

class ChatValue;
struct ChatStmt;

/// A list or a tuple. Lists and dicts know their depth, which is bounded, so
/// that walking and freeing them needs little stack; they hold no namespace and
/// no loop, so that no cycle can arise.
struct ChatList {
  std::vector<ChatValue> items;
  int depth = 1;
};

/// A dict in order of insertion.
struct ChatDict {
  std::vector<std::pair<ChatText, ChatValue>> entries;
  int depth = 1;

  const ChatValue *find(ChatContext &context, std::string_view key) const;
  void set(ChatContext &context, ChatText key, ChatValue value);
};

struct ChatNamespace {
  ChatDict attributes;
};

struct ChatLoop {
  std::shared_ptr<const ChatList> items;
  size_t index = 0;
};

struct ChatNone {};

struct ChatUndefined {
  /// What is missing, for the message of whoever needs it.
  std::string what;
};

/// A macro, or a built-in function where `macro` is null.
struct ChatFunction {
  std::string name;
  const ChatStmt *macro = nullptr;
};

class ChatValue {
public:
  using Storage = std::variant<
      ChatUndefined, ChatNone, bool, int64_t, double,
      std::shared_ptr<const ChatText>, std::shared_ptr<const ChatList>,
      std::shared_ptr<const ChatDict>, std::shared_ptr<ChatNamespace>,
      std::shared_ptr<const ChatLoop>, ChatFunction>;

  ChatValue() : storage(ChatNone{}) {}
  ChatValue(Storage storage) : storage(std::move(storage)) {}
  ChatValue(ChatText text)
      : storage(std::make_shared<const ChatText>(std::move(text))) {}
  static ChatValue undefined(std::string what) {
    return Storage(ChatUndefined{std::move(what)});
  }

  /// The value as T, or null if it is something else.
  template <typename T> const T *as() const {
    if constexpr (std::is_same_v<T, ChatUndefined> ||
                  std::is_same_v<T, ChatNone> || std::is_same_v<T, bool> ||
                  std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                  std::is_same_v<T, ChatFunction>) {
      return std::get_if<T>(&storage);
    } else {
      auto *shared = std::get_if<std::shared_ptr<const T>>(&storage);
      return shared ? shared->get() : nullptr;
    }
  }
  ChatNamespace *asNamespace() const {
    auto *shared = std::get_if<std::shared_ptr<ChatNamespace>>(&storage);
    return shared ? shared->get() : nullptr;
  }
  template <typename T> bool is() const { return as<T>() != nullptr; }

  Storage storage;
};

/// What a message calls a value: its type, or what is undefined.
std::string describe(const ChatValue &value);

ChatValue makeList(ChatContext &context, std::vector<ChatValue> items);

bool isTrue(const ChatValue &value);
bool equals(ChatContext &context, const ChatValue &a, const ChatValue &b);
/// Negative, zero or positive; only numbers and strings have an order.
int compareOrder(ChatContext &context, const ChatValue &a, const ChatValue &b);
bool contains(ChatContext &context, const ChatValue &container,
              const ChatValue &item);

/// Python's str(); lists and dicts are refused.
ChatText toText(ChatContext &context, const ChatValue &value);
/// The text of a string; anything else is refused as `what`.
const ChatText &expectString(ChatContext &context, const ChatValue &value,
                             std::string_view what);
int64_t expectInteger(ChatContext &context, const ChatValue &value,
                      std::string_view what);
/// JSON as Python writes it, on one line unless indent is at least 0.
ChatText toJson(ChatContext &context, const ChatValue &value, int64_t indent);

/// The items of a list, the characters of a string or the keys of a dict.
std::shared_ptr<const ChatList> iterate(ChatContext &context,
                                        const ChatValue &value);
int64_t lengthOf(ChatContext &context, const ChatValue &value);

ChatValue getAttribute(ChatContext &context, const ChatValue &object,
                       const std::string &name);
ChatValue getItem(ChatContext &context, const ChatValue &object,
                  const ChatValue &key);
/// getItem by a path of keys with dots between.
ChatValue getPath(ChatContext &context, ChatValue object,
                  const ChatValue &path);
/// object[start:stop:step]; a bound that is null takes Python's default.
ChatValue getSlice(ChatContext &context, const ChatValue &object,
                   const ChatValue *start, const ChatValue *stop,
                   const ChatValue *step);

/// One of + - * / // %.
ChatValue arithmetic(ChatContext &context, const std::string &op,
                     const ChatValue &a, const ChatValue &b);

/// Bytes of the character that starts at `position`; a byte that starts no
/// valid UTF-8 sequence is a character of its own.
size_t characterSize(std::string_view text, size_t position);
/// The byte offset of every character, and the end.
std::vector<size_t> characterOffsets(ChatContext &context,
                                     std::string_view text);
/// Python's str.isspace of the character at `position`.
bool isSpaceAt(std::string_view text, size_t position);

} // namespace stem

#endif // STEM_LIB_MODEL_CHATTEMPLATEVALUE_H
