//===- ChatTemplate.cpp - Chat messages to a prompt -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The evaluator walks the syntax tree. Scopes follow Jinja: the body of a loop,
// a macro or a block assignment has its own, an `if` has none, and what must
// survive a loop lives in a namespace.
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ChatTemplate.h"
#include "ChatTemplateProgram.h"

#include <algorithm>
#include <map>

using namespace stem;

namespace {

enum class Flow { Normal, Break, Continue };

using Scope = std::map<std::string, ChatValue>;

class Evaluator {
public:
  Evaluator(ChatContext &context, Scope globals) : context(context) {
    scopes.push_back(std::move(globals));
  }

  ChatText run(const std::vector<ChatStmt> &body) {
    execute(body);
    return std::move(output);
  }

private:
  Flow execute(const std::vector<ChatStmt> &body);
  Flow execute(const ChatStmt &stmt);
  Flow executeIf(const ChatStmt &stmt);
  Flow executeFor(const ChatStmt &stmt);
  /// Runs a body in a scope of its own and returns what it wrote.
  ChatText capture(const std::vector<ChatStmt> &body);
  void write(const ChatText &text) {
    context.charge(text.size());
    output.append(text);
  }
  void assign(const ChatStmt &stmt, ChatValue value);
  void assignNames(const std::vector<std::string> &names, ChatValue value);

  ChatValue evaluate(const ChatExpr &expr);
  ChatValue lookUp(const std::string &name);
  ChatValue evaluateDict(const ChatExpr &expr);
  ChatValue evaluateSlice(const ChatExpr &expr);
  ChatValue evaluateBinary(const ChatExpr &expr);
  bool evaluateCompare(const ChatExpr &expr);
  ChatValue evaluateNegate(const ChatExpr &expr);
  ChatValue evaluateConditional(const ChatExpr &expr);
  ChatValue evaluateCall(const ChatExpr &expr);
  ChatValue callMacro(const ChatStmt &macro, const ChatArguments &args);
  ChatArguments evaluateArguments(const ChatExpr &expr);

  ChatContext &context;
  ChatText output;
  /// The globals, then those of the running macro's blocks from `base` on.
  std::vector<Scope> scopes;
  size_t base = 1;
};

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

Flow Evaluator::execute(const std::vector<ChatStmt> &body) {
  for (const ChatStmt &stmt : body)
    if (Flow flow = execute(stmt); flow != Flow::Normal)
      return flow;
  return Flow::Normal;
}

Flow Evaluator::execute(const ChatStmt &stmt) {
  ChatNesting nesting(context);
  ChatScopedLine line(context, stmt.line);
  context.charge(ChatContext::stepCost);
  switch (stmt.kind) {
  case ChatStmtKind::Text:
    write(ChatText(stmt.text));
    return Flow::Normal;
  case ChatStmtKind::Output:
    write(toText(context, evaluate(*stmt.exprs[0])));
    return Flow::Normal;
  case ChatStmtKind::If:
    return executeIf(stmt);
  case ChatStmtKind::For:
    return executeFor(stmt);
  case ChatStmtKind::Set:
    assign(stmt, evaluate(*stmt.exprs[0]));
    return Flow::Normal;
  case ChatStmtKind::SetBlock:
    assign(stmt, capture(stmt.bodies[0]));
    return Flow::Normal;
  case ChatStmtKind::Macro:
    scopes.back()[stmt.text] =
        ChatValue::Storage(ChatFunction{stmt.text, &stmt});
    return Flow::Normal;
  case ChatStmtKind::Generation:
    write(capture(stmt.bodies[0]));
    return Flow::Normal;
  case ChatStmtKind::Break:
    return Flow::Break;
  case ChatStmtKind::Continue:
    return Flow::Continue;
  }
  __builtin_unreachable();
}

Flow Evaluator::executeIf(const ChatStmt &stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i)
    if (isTrue(evaluate(*stmt.exprs[i])))
      return execute(stmt.bodies[i]);
  bool hasElse = stmt.bodies.size() > stmt.exprs.size();
  return hasElse ? execute(stmt.bodies.back()) : Flow::Normal;
}

Flow Evaluator::executeFor(const ChatStmt &stmt) {
  std::shared_ptr<const ChatList> items =
      iterate(context, evaluate(*stmt.exprs[0]));
  if (const ChatExpr *condition = stmt.exprs[1].get()) {
    // Filtered first: the loop's length counts what is left.
    auto kept = std::make_shared<ChatList>();
    kept->depth = items->depth;
    for (const ChatValue &item : items->items) {
      context.charge(ChatContext::stepCost);
      scopes.emplace_back();
      assignNames(stmt.names, item);
      if (isTrue(evaluate(*condition)))
        kept->items.push_back(item);
      scopes.pop_back();
    }
    items = std::move(kept);
  }
  if (items->items.empty() && stmt.bodies.size() > 1) {
    scopes.emplace_back();
    Flow flow = execute(stmt.bodies[1]);
    scopes.pop_back();
    return flow;
  }
  for (size_t i = 0; i < items->items.size(); ++i) {
    context.charge(ChatContext::stepCost);
    scopes.emplace_back();
    scopes.back()["loop"] = ChatValue::Storage(
        std::make_shared<const ChatLoop>(ChatLoop{items, i}));
    assignNames(stmt.names, items->items[i]);
    Flow flow = execute(stmt.bodies[0]);
    scopes.pop_back();
    if (flow == Flow::Break)
      break;
  }
  return Flow::Normal;
}

ChatText Evaluator::capture(const std::vector<ChatStmt> &body) {
  ChatText outer = std::exchange(output, {});
  scopes.emplace_back();
  execute(body);
  scopes.pop_back();
  return std::exchange(output, std::move(outer));
}

void Evaluator::assign(const ChatStmt &stmt, ChatValue value) {
  if (stmt.text.empty())
    return assignNames(stmt.names, std::move(value));
  ChatNamespace *space = lookUp(stmt.names[0]).asNamespace();
  if (!space)
    context.fail("'{}' is not a namespace, so '{}.{}' cannot be set",
                 stmt.names[0], stmt.names[0], stmt.text);
  space->attributes.set(context, ChatText(stmt.text), std::move(value));
}

void Evaluator::assignNames(const std::vector<std::string> &names,
                            ChatValue value) {
  if (names.size() == 1) {
    scopes.back()[names[0]] = std::move(value);
    return;
  }
  std::shared_ptr<const ChatList> items = iterate(context, value);
  if (items->items.size() != names.size())
    context.fail("{} names cannot take the {} items of {}", names.size(),
                 items->items.size(), describe(value));
  for (size_t i = 0; i < names.size(); ++i)
    scopes.back()[names[i]] = items->items[i];
}

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

ChatValue Evaluator::evaluate(const ChatExpr &expr) {
  ChatNesting nesting(context);
  ChatScopedLine line(context, expr.line);
  context.charge(ChatContext::stepCost);
  auto child = [&](size_t i) { return evaluate(*expr.children[i]); };
  switch (expr.kind) {
  case ChatExprKind::Literal:
    return expr.literal;
  case ChatExprKind::Name:
    return lookUp(expr.name);
  case ChatExprKind::List: {
    std::vector<ChatValue> items;
    for (const ChatExprPtr &item : expr.children)
      items.push_back(evaluate(*item));
    return makeList(context, std::move(items));
  }
  case ChatExprKind::Dict:
    return evaluateDict(expr);
  case ChatExprKind::Attribute:
    return getAttribute(context, child(0), expr.name);
  case ChatExprKind::Item: {
    ChatValue object = child(0);
    return getItem(context, object, child(1));
  }
  case ChatExprKind::Slice:
    return evaluateSlice(expr);
  case ChatExprKind::Call:
    return evaluateCall(expr);
  case ChatExprKind::Filter: {
    ChatValue input = child(0);
    return applyChatFilter(context, expr.name, input, evaluateArguments(expr));
  }
  case ChatExprKind::Test: {
    ChatValue input = child(0);
    return ChatValue::Storage(
        applyChatTest(context, expr.name, input, evaluateArguments(expr)));
  }
  case ChatExprKind::Not:
    return ChatValue::Storage(!isTrue(child(0)));
  case ChatExprKind::Negate:
    return evaluateNegate(expr);
  case ChatExprKind::Binary:
    return evaluateBinary(expr);
  case ChatExprKind::Compare:
    return ChatValue::Storage(evaluateCompare(expr));
  case ChatExprKind::And: {
    ChatValue left = child(0);
    return isTrue(left) ? child(1) : left;
  }
  case ChatExprKind::Or: {
    ChatValue left = child(0);
    return isTrue(left) ? left : child(1);
  }
  case ChatExprKind::Conditional:
    return evaluateConditional(expr);
  }
  __builtin_unreachable();
}

ChatValue Evaluator::lookUp(const std::string &name) {
  for (size_t i = scopes.size(); i-- > 0;) {
    context.charge(1);
    // Inside a macro the scopes between it and the globals are not visible.
    if (i != 0 && i < base)
      i = 0;
    if (auto found = scopes[i].find(name); found != scopes[i].end())
      return found->second;
  }
  if (isChatFunction(name))
    return ChatValue::Storage(ChatFunction{name, nullptr});
  return ChatValue::undefined(fmt::format("'{}'", name));
}

ChatValue Evaluator::evaluateDict(const ChatExpr &expr) {
  auto dict = std::make_shared<ChatDict>();
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    ChatValue key = evaluate(*expr.children[i]);
    ChatText name = expectString(context, key, "a dict's key");
    dict->set(context, std::move(name), evaluate(*expr.children[i + 1]));
  }
  return ChatValue::Storage(std::shared_ptr<const ChatDict>(std::move(dict)));
}

ChatValue Evaluator::evaluateSlice(const ChatExpr &expr) {
  ChatValue object = evaluate(*expr.children[0]);
  ChatValue bounds[3];
  for (size_t i = 0; i < 3; ++i)
    if (expr.children[i + 1])
      bounds[i] = evaluate(*expr.children[i + 1]);
  return getSlice(context, object, &bounds[0], &bounds[1], &bounds[2]);
}

ChatValue Evaluator::evaluateBinary(const ChatExpr &expr) {
  ChatValue left = evaluate(*expr.children[0]);
  ChatValue right = evaluate(*expr.children[1]);
  if (expr.name != "~")
    return arithmetic(context, expr.name, left, right);
  ChatText text = toText(context, left);
  text.append(toText(context, right));
  return text;
}

bool Evaluator::evaluateCompare(const ChatExpr &expr) {
  ChatValue left = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.keywords.size(); ++i) {
    ChatValue right = evaluate(*expr.children[i + 1]);
    const std::string &op = expr.keywords[i];
    bool holds;
    if (op == "==" || op == "!=")
      holds = equals(context, left, right) == (op == "==");
    else if (op == "in" || op == "not in")
      holds = contains(context, right, left) == (op == "in");
    else if (int order = compareOrder(context, left, right); op[0] == '<')
      holds = op == "<" ? order < 0 : order <= 0;
    else
      holds = op == ">" ? order > 0 : order >= 0;
    if (!holds)
      return false;
    left = std::move(right);
  }
  return true;
}

ChatValue Evaluator::evaluateNegate(const ChatExpr &expr) {
  ChatValue operand = evaluate(*expr.children[0]);
  if (operand.is<double>())
    return ChatValue::Storage(-*operand.as<double>());
  return arithmetic(context, "-", ChatValue::Storage(int64_t(0)), operand);
}

ChatValue Evaluator::evaluateConditional(const ChatExpr &expr) {
  if (isTrue(evaluate(*expr.children[1])))
    return evaluate(*expr.children[0]);
  if (expr.children[2])
    return evaluate(*expr.children[2]);
  return ChatValue::undefined("result of an 'if' without 'else'");
}

ChatArguments Evaluator::evaluateArguments(const ChatExpr &expr) {
  ChatArguments args;
  size_t firstNamed = expr.children.size() - expr.keywords.size();
  for (size_t i = 1; i < expr.children.size(); ++i) {
    ChatValue value = evaluate(*expr.children[i]);
    if (i < firstNamed)
      args.positional.push_back(std::move(value));
    else
      args.named.emplace_back(expr.keywords[i - firstNamed], std::move(value));
  }
  return args;
}

ChatValue Evaluator::evaluateCall(const ChatExpr &expr) {
  const ChatExpr &callee = *expr.children[0];
  if (callee.kind == ChatExprKind::Attribute) {
    ChatValue object = evaluate(*callee.children[0]);
    if (!object.asNamespace())
      return callChatMethod(context, object, callee.name,
                            evaluateArguments(expr));
  }
  ChatValue value = evaluate(callee);
  const ChatFunction *function = value.as<ChatFunction>();
  if (!function && callee.kind == ChatExprKind::Name &&
      value.is<ChatUndefined>())
    context.fail("the function '{}' is not supported", callee.name);
  if (!function)
    context.fail("a call wants a function, not {}", describe(value));
  ChatArguments args = evaluateArguments(expr);
  return function->macro ? callMacro(*function->macro, args)
                         : callChatFunction(context, function->name, args);
}

ChatValue Evaluator::callMacro(const ChatStmt &macro,
                               const ChatArguments &args) {
  if (args.positional.size() > macro.names.size())
    context.fail("the macro '{}' takes {} arguments but is given {}",
                 macro.text, macro.names.size(), args.positional.size());
  Scope scope;
  for (size_t i = 0; i < args.positional.size(); ++i)
    scope[macro.names[i]] = args.positional[i];
  for (const auto &[name, value] : args.named) {
    if (std::ranges::find(macro.names, name) == macro.names.end())
      context.fail("the macro '{}' has no parameter '{}'", macro.text, name);
    if (!scope.emplace(name, value).second)
      context.fail("the macro '{}' is given '{}' twice", macro.text, name);
  }
  // A default may use the parameters before it.
  size_t outerBase = std::exchange(base, scopes.size());
  scopes.push_back(std::move(scope));
  size_t firstDefault = macro.names.size() - macro.exprs.size();
  for (size_t i = 0; i < macro.names.size(); ++i) {
    const std::string &name = macro.names[i];
    if (scopes.back().contains(name))
      continue;
    ChatValue value = i < firstDefault
                          ? ChatValue::undefined(fmt::format("'{}'", name))
                          : evaluate(*macro.exprs[i - firstDefault]);
    scopes.back()[name] = std::move(value);
  }
  ChatText text = capture(macro.bodies[0]);
  scopes.pop_back();
  base = outerBase;
  return text;
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

ChatValue makeMessages(ChatContext &context,
                       const std::vector<ChatMessage> &messages) {
  std::vector<ChatValue> list;
  for (const ChatMessage &message : messages) {
    auto isWord = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    if (message.role.empty() || !std::ranges::all_of(message.role, isWord))
      fail("the role '{}' of message {} is not a word of letters, digits, '_' "
           "and '-'",
           message.role, list.size());
    context.charge(message.content.size());
    auto dict = std::make_shared<ChatDict>();
    dict->set(context, ChatText("role"), ChatText(message.role));
    dict->set(context, ChatText("content"), ChatText(message.content, true));
    list.push_back(
        ChatValue::Storage(std::shared_ptr<const ChatDict>(std::move(dict))));
  }
  return makeList(context, std::move(list));
}

Scope makeGlobals(ChatContext &context,
                  const std::vector<ChatMessage> &messages,
                  const ChatOptions &options) {
  Scope globals;
  globals["messages"] = makeMessages(context, messages);
  globals["add_generation_prompt"] =
      ChatValue::Storage(options.addGenerationPrompt);
  globals["tools"] = ChatValue();
  globals["documents"] = ChatValue();
  if (options.bosToken)
    globals["bos_token"] = ChatText(*options.bosToken);
  if (options.eosToken)
    globals["eos_token"] = ChatText(*options.eosToken);
  if (options.enableThinking)
    globals["enable_thinking"] = ChatValue::Storage(*options.enableThinking);
  return globals;
}

std::tm localNow() {
  std::time_t seconds = std::time(nullptr);
  std::tm result = {};
  localtime_r(&seconds, &result);
  return result;
}

} // namespace

ChatTemplate ChatTemplate::parse(std::string source, std::string name) {
  ChatContext context;
  context.name = name;
  auto program = std::make_shared<ChatProgram>();
  program->name = std::move(name);
  program->body = parseChatTemplate(context, std::move(source));
  return ChatTemplate(std::move(program));
}

std::vector<ChatPiece>
ChatTemplate::render(const std::vector<ChatMessage> &messages,
                     const ChatOptions &options) const {
  ChatContext context;
  context.name = program->name;
  context.now = options.now ? *options.now : localNow();
  Scope globals = makeGlobals(context, messages, options);
  ChatText text = Evaluator(context, std::move(globals)).run(program->body);
  std::vector<ChatPiece> pieces;
  for (size_t i = 0; i < text.size();) {
    size_t end = text.user.find(char(text.user[i] ^ 1), i);
    end = std::min(end, text.size());
    pieces.push_back({text.bytes.substr(i, end - i), text.user[i] != 0});
    i = end;
  }
  return pieces;
}
