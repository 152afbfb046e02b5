//===- ChatTemplateProgram.h - A parsed chat template -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tokens and syntax tree of a chat template, and what the evaluator asks of the
// built-in filters, tests, methods and functions.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_CHATTEMPLATEPROGRAM_H
#define STEM_LIB_MODEL_CHATTEMPLATEPROGRAM_H

#include "ChatTemplateValue.h"

#include <initializer_list>

namespace stem {

enum class ChatTokenKind {
  Text,
  OutputBegin,
  OutputEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,
  End
};

struct ChatToken {
  ChatTokenKind kind;
  int line;
  std::string text;
};

/// Splits a template into tokens, with trim_blocks and lstrip_blocks on, as
/// chat templates expect.
std::vector<ChatToken> lexChatTemplate(ChatContext &context,
                                       std::string source);

enum class ChatExprKind {
  Literal,
  Name,
  List,        // children: items
  Dict,        // children: key, value, key, value, ...
  Attribute,   // children: object; name
  Item,        // children: object, key
  Slice,       // children: object, start, stop, step; a bound may be null
  Call,        // children: callee, arguments; keywords
  Filter,      // children: input, arguments; name, keywords
  Test,        // children: input, arguments; name, keywords
  Not,         // children: operand
  Negate,      // children: operand
  Binary,      // children: left, right; name is the operator
  Compare,     // children: operands, one more than keywords, the operators
  And,         // children: left, right
  Or,          // children: left, right
  Conditional, // children: value, condition, alternative or null
};

struct ChatExpr {
  ChatExprKind kind;
  int line;
  int depth = 1;
  std::string name;
  ChatValue literal;
  std::vector<std::unique_ptr<ChatExpr>> children;
  /// Names of the last arguments; the operators of a comparison.
  std::vector<std::string> keywords;
};
using ChatExprPtr = std::unique_ptr<ChatExpr>;

enum class ChatStmtKind {
  Text,       // text
  Output,     // exprs: value
  If,         // exprs: conditions; bodies: one each, then that of else
  For,        // names: targets; exprs: iterable, condition or null;
              // bodies: body, else
  Set,        // names: targets, or a namespace with its attribute in text;
              // exprs: value
  SetBlock,   // names: target, or a namespace with its attribute in text;
              // bodies: body
  Macro,      // text: name; names: parameters; exprs: defaults of the last
              // parameters; bodies: body
  Generation, // bodies: body
  Break,
  Continue
};

struct ChatStmt {
  ChatStmtKind kind;
  int line;
  std::string text = {};
  std::vector<std::string> names = {};
  std::vector<ChatExprPtr> exprs = {};
  std::vector<std::vector<ChatStmt>> bodies = {};
};

struct ChatProgram {
  std::string name;
  std::vector<ChatStmt> body;
};

std::vector<ChatStmt> parseChatTemplate(ChatContext &context,
                                        std::string source);

/// What a call passes.
struct ChatArguments {
  std::vector<ChatValue> positional;
  std::vector<std::pair<std::string, ChatValue>> named;

  /// The arguments in the order of the callee's parameters, null where absent;
  /// one that fits no parameter is refused.
  std::vector<const ChatValue *>
  bind(ChatContext &context, std::string_view callee,
       std::initializer_list<std::string_view> parameters) const;
};

bool isChatFilter(std::string_view name);
bool isChatTest(std::string_view name);
bool isChatFunction(std::string_view name);

ChatValue applyChatFilter(ChatContext &context, const std::string &name,
                          const ChatValue &input, const ChatArguments &args);
bool applyChatTest(ChatContext &context, const std::string &name,
                   const ChatValue &input, const ChatArguments &args);
ChatValue callChatFunction(ChatContext &context, const std::string &name,
                           const ChatArguments &args);
ChatValue callChatMethod(ChatContext &context, const ChatValue &object,
                         const std::string &name, const ChatArguments &args);

/// String operations that are a filter and a method both.
ChatText stripText(ChatContext &context, const ChatText &text,
                   const ChatValue *characters, bool left, bool right);
ChatText replaceText(ChatContext &context, const ChatText &text,
                     const ChatValue *from, const ChatValue *to,
                     const ChatValue *count);
enum class ChatCase { Lower, Upper, Title, Capitalize };
ChatText changeCase(ChatContext &context, const ChatText &text, ChatCase to);

} // namespace stem

#endif // STEM_LIB_MODEL_CHATTEMPLATEPROGRAM_H
