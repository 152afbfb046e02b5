//===- ChatTemplateParser.cpp - Chat template to syntax tree --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Recursive descent, one function per level of precedence, loosest first.
//
//===----------------------------------------------------------------------===//

#include "ChatTemplateProgram.h"

#include <algorithm>
#include <charconv>

using namespace stem;

namespace {

/// Bounds the stack that evaluating and freeing a long chain needs.
constexpr int maxExprDepth = 200;

class Parser {
public:
  Parser(ChatContext &context, std::vector<ChatToken> tokens)
      : context(context), tokens(std::move(tokens)) {}

  /// Statements up to a tag named in `ends`, which is left to the caller with
  /// its name as the current token; the whole template if `ends` is empty.
  std::vector<ChatStmt> parseBody(std::initializer_list<std::string_view> ends);

private:
  const ChatToken &token() const { return tokens[index]; }
  void next() {
    if (token().kind != ChatTokenKind::End)
      ++index;
    context.line = token().line;
  }
  bool isOperator(std::string_view text) const {
    return token().kind == ChatTokenKind::Operator && token().text == text;
  }
  bool isName(std::string_view text) const {
    return token().kind == ChatTokenKind::Name && token().text == text;
  }
  bool skipOperator(std::string_view text) {
    bool found = isOperator(text);
    if (found)
      next();
    return found;
  }
  bool skipName(std::string_view text) {
    bool found = isName(text);
    if (found)
      next();
    return found;
  }
  std::string seen() const;
  void expectOperator(std::string_view text) {
    if (!skipOperator(text))
      context.fail("expected '{}' but found {}", text, seen());
  }
  std::string expectName(std::string_view what);
  void expectBlockEnd();

  ChatStmt parseTag();
  ChatStmt parseIf();
  ChatStmt parseFor();
  ChatStmt parseSet();
  ChatStmt parseMacro();
  ChatStmt parseGeneration();
  std::vector<std::string> parseTargets();

  ChatExprPtr make(ChatExprKind kind, int line, std::string name = {},
                   ChatExprPtr first = nullptr, ChatExprPtr second = nullptr);
  void add(ChatExpr &parent, ChatExprPtr child);

  ChatExprPtr parseTuple();
  ChatExprPtr parseExpression();
  ChatExprPtr parseOr();
  ChatExprPtr parseAnd();
  ChatExprPtr parseNot();
  ChatExprPtr parseCompare();
  ChatExprPtr parseSum();
  ChatExprPtr parseConcat();
  ChatExprPtr parseProduct();
  ChatExprPtr parseUnary(bool withFilters = true);
  ChatExprPtr parsePrimary();
  ChatExprPtr parseInteger();
  ChatExprPtr parseList();
  ChatExprPtr parseDict();
  ChatExprPtr parsePostfix(ChatExprPtr object);
  ChatExprPtr parseSubscript(ChatExprPtr object);
  ChatExprPtr parseFilters(ChatExprPtr input);
  ChatExprPtr parseTest(ChatExprPtr input);
  void parseArguments(ChatExpr &call);

  ChatContext &context;
  std::vector<ChatToken> tokens;
  size_t index = 0;
  int loops = 0;
};

std::string Parser::seen() const {
  switch (token().kind) {
  case ChatTokenKind::End:
    return "the end of the template";
  case ChatTokenKind::BlockEnd:
    return "'%}'";
  case ChatTokenKind::OutputEnd:
    return "'}}'";
  case ChatTokenKind::String:
    return "a string";
  default:
    return fmt::format("'{}'", token().text);
  }
}

std::string Parser::expectName(std::string_view what) {
  if (token().kind != ChatTokenKind::Name)
    context.fail("expected {} but found {}", what, seen());
  std::string name = token().text;
  next();
  return name;
}

void Parser::expectBlockEnd() {
  if (token().kind != ChatTokenKind::BlockEnd)
    context.fail("expected '%}}' but found {}", seen());
  next();
}

//===----------------------------------------------------------------------===//
// Statements
//===----------------------------------------------------------------------===//

std::vector<ChatStmt>
Parser::parseBody(std::initializer_list<std::string_view> ends) {
  ChatNesting nesting(context);
  std::vector<ChatStmt> body;
  while (token().kind != ChatTokenKind::End) {
    context.line = token().line;
    if (token().kind == ChatTokenKind::Text) {
      body.push_back({ChatStmtKind::Text, token().line, token().text});
      next();
    } else if (token().kind == ChatTokenKind::OutputBegin) {
      ChatStmt output{ChatStmtKind::Output, token().line};
      next();
      output.exprs.push_back(parseTuple());
      if (token().kind != ChatTokenKind::OutputEnd)
        context.fail("expected '}}}}' but found {}", seen());
      next();
      body.push_back(std::move(output));
    } else {
      next();
      if (token().kind == ChatTokenKind::Name &&
          std::find(ends.begin(), ends.end(), token().text) != ends.end())
        return body;
      body.push_back(parseTag());
    }
  }
  if (ends.size() != 0)
    context.fail("the template ends where '{}' was expected",
                 *std::prev(ends.end()));
  return body;
}

ChatStmt Parser::parseTag() {
  int line = context.line;
  std::string name = expectName("the name of a tag");
  if (name == "if")
    return parseIf();
  if (name == "for")
    return parseFor();
  if (name == "set")
    return parseSet();
  if (name == "macro")
    return parseMacro();
  if (name == "generation")
    return parseGeneration();
  if (name == "break" || name == "continue") {
    if (loops == 0)
      context.fail("'{}' stands outside a loop", name);
    expectBlockEnd();
    return {name == "break" ? ChatStmtKind::Break : ChatStmtKind::Continue,
            line};
  }
  context.line = line;
  if (name == "elif" || name == "else" || name.starts_with("end"))
    context.fail("the tag '{}' closes nothing that is open here", name);
  context.fail("the tag '{}' is not supported", name);
}

ChatStmt Parser::parseIf() {
  ChatStmt stmt{ChatStmtKind::If, context.line};
  while (true) {
    stmt.exprs.push_back(parseOr());
    expectBlockEnd();
    stmt.bodies.push_back(parseBody({"elif", "else", "endif"}));
    if (!skipName("elif"))
      break;
  }
  if (skipName("else")) {
    expectBlockEnd();
    stmt.bodies.push_back(parseBody({"endif"}));
  }
  next();
  expectBlockEnd();
  return stmt;
}

ChatStmt Parser::parseFor() {
  ChatStmt stmt{ChatStmtKind::For, context.line};
  stmt.names = parseTargets();
  if (!skipName("in"))
    context.fail("expected 'in' but found {}", seen());
  stmt.exprs.push_back(parseOr());
  stmt.exprs.push_back(skipName("if") ? parseExpression() : nullptr);
  if (isName("recursive"))
    context.fail("a recursive loop is not supported");
  expectBlockEnd();
  ++loops;
  stmt.bodies.push_back(parseBody({"else", "endfor"}));
  --loops;
  if (skipName("else")) {
    expectBlockEnd();
    stmt.bodies.push_back(parseBody({"endfor"}));
  }
  next();
  expectBlockEnd();
  return stmt;
}

ChatStmt Parser::parseSet() {
  ChatStmt stmt{ChatStmtKind::Set, context.line};
  stmt.names = parseTargets();
  if (stmt.names.size() == 1 && skipOperator("."))
    stmt.text = expectName("an attribute of the namespace");
  if (skipOperator("=")) {
    stmt.exprs.push_back(parseTuple());
    expectBlockEnd();
    return stmt;
  }
  if (stmt.names.size() != 1 || token().kind != ChatTokenKind::BlockEnd)
    context.fail("expected '=' but found {}", seen());
  next();
  stmt.kind = ChatStmtKind::SetBlock;
  int outerLoops = std::exchange(loops, 0);
  stmt.bodies.push_back(parseBody({"endset"}));
  loops = outerLoops;
  next();
  expectBlockEnd();
  return stmt;
}

ChatStmt Parser::parseMacro() {
  ChatStmt stmt{ChatStmtKind::Macro, context.line};
  stmt.text = expectName("the macro's name");
  expectOperator("(");
  while (!isOperator(")")) {
    stmt.names.push_back(expectName("a parameter"));
    if (skipOperator("="))
      stmt.exprs.push_back(parseExpression());
    else if (!stmt.exprs.empty())
      context.fail("the parameter '{}' needs a default, as the one before it "
                   "has one",
                   stmt.names.back());
    if (!isOperator(")"))
      expectOperator(",");
  }
  next();
  expectBlockEnd();
  int outerLoops = std::exchange(loops, 0);
  stmt.bodies.push_back(parseBody({"endmacro"}));
  loops = outerLoops;
  next();
  expectBlockEnd();
  return stmt;
}

/// Marks what the model wrote, for training; its body renders as it stands.
ChatStmt Parser::parseGeneration() {
  ChatStmt stmt{ChatStmtKind::Generation, context.line};
  expectBlockEnd();
  int outerLoops = std::exchange(loops, 0);
  stmt.bodies.push_back(parseBody({"endgeneration"}));
  loops = outerLoops;
  next();
  expectBlockEnd();
  return stmt;
}

std::vector<std::string> Parser::parseTargets() {
  bool parenthesis = skipOperator("(");
  std::vector<std::string> names = {expectName("a name to assign to")};
  while (skipOperator(","))
    names.push_back(expectName("a name to assign to"));
  if (parenthesis)
    expectOperator(")");
  static constexpr std::string_view constants[] = {"true", "false", "none",
                                                   "True", "False", "None"};
  for (const std::string &name : names)
    if (std::ranges::find(constants, name) != std::end(constants))
      context.fail("'{}' cannot be assigned to", name);
  return names;
}

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

void Parser::add(ChatExpr &parent, ChatExprPtr child) {
  if (child) {
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > maxExprDepth)
      context.fail("an expression is nested deeper than {}", maxExprDepth);
  }
  parent.children.push_back(std::move(child));
}

ChatExprPtr Parser::make(ChatExprKind kind, int line, std::string name,
                         ChatExprPtr first, ChatExprPtr second) {
  auto expr = std::make_unique<ChatExpr>();
  expr->kind = kind;
  expr->line = line;
  expr->name = std::move(name);
  if (first)
    add(*expr, std::move(first));
  if (second)
    add(*expr, std::move(second));
  return expr;
}

/// One expression, or several with commas between: a list.
ChatExprPtr Parser::parseTuple() {
  int line = context.line;
  ChatExprPtr first = parseExpression();
  if (!isOperator(","))
    return first;
  ChatExprPtr list = make(ChatExprKind::List, line, {}, std::move(first));
  while (skipOperator(",")) {
    if (isOperator(")") || token().kind == ChatTokenKind::BlockEnd ||
        token().kind == ChatTokenKind::OutputEnd)
      break;
    add(*list, parseExpression());
  }
  return list;
}

ChatExprPtr Parser::parseExpression() {
  ChatNesting nesting(context);
  ChatExprPtr value = parseOr();
  while (isName("if")) {
    int line = context.line;
    next();
    ChatExprPtr expr =
        make(ChatExprKind::Conditional, line, {}, std::move(value), parseOr());
    add(*expr, skipName("else") ? parseExpression() : nullptr);
    value = std::move(expr);
  }
  return value;
}

ChatExprPtr Parser::parseOr() {
  ChatExprPtr left = parseAnd();
  for (int line = context.line; skipName("or"); line = context.line)
    left = make(ChatExprKind::Or, line, {}, std::move(left), parseAnd());
  return left;
}

ChatExprPtr Parser::parseAnd() {
  ChatExprPtr left = parseNot();
  for (int line = context.line; skipName("and"); line = context.line)
    left = make(ChatExprKind::And, line, {}, std::move(left), parseNot());
  return left;
}

ChatExprPtr Parser::parseNot() {
  ChatNesting nesting(context);
  int line = context.line;
  if (skipName("not"))
    return make(ChatExprKind::Not, line, {}, parseNot());
  return parseCompare();
}

ChatExprPtr Parser::parseCompare() {
  static constexpr std::string_view operators[] = {"==", "!=", "<",
                                                   "<=", ">",  ">="};
  int line = context.line;
  ChatExprPtr left = parseSum();
  ChatExprPtr compare;
  while (true) {
    std::string op;
    if (token().kind == ChatTokenKind::Operator &&
        std::ranges::find(operators, token().text) != std::end(operators)) {
      op = token().text;
      next();
    } else if (skipName("in")) {
      op = "in";
    } else if (isName("not") && tokens[index + 1].text == "in" &&
               tokens[index + 1].kind == ChatTokenKind::Name) {
      next();
      next();
      op = "not in";
    } else {
      return compare ? std::move(compare) : std::move(left);
    }
    if (!compare)
      compare = make(ChatExprKind::Compare, line, {}, std::move(left));
    compare->keywords.push_back(op);
    add(*compare, parseSum());
  }
}

ChatExprPtr Parser::parseSum() {
  ChatExprPtr left = parseConcat();
  while (isOperator("+") || isOperator("-")) {
    int line = context.line;
    std::string op = token().text;
    next();
    left = make(ChatExprKind::Binary, line, op, std::move(left), parseConcat());
  }
  return left;
}

ChatExprPtr Parser::parseConcat() {
  ChatExprPtr left = parseProduct();
  for (int line = context.line; skipOperator("~"); line = context.line)
    left =
        make(ChatExprKind::Binary, line, "~", std::move(left), parseProduct());
  return left;
}

ChatExprPtr Parser::parseProduct() {
  ChatExprPtr left = parseUnary();
  while (isOperator("*") || isOperator("/") || isOperator("//") ||
         isOperator("%") || isOperator("**")) {
    int line = context.line;
    std::string op = token().text;
    if (op == "**")
      context.fail("the operator '**' is not supported");
    next();
    left = make(ChatExprKind::Binary, line, op, std::move(left), parseUnary());
  }
  return left;
}

ChatExprPtr Parser::parseUnary(bool withFilters) {
  ChatNesting nesting(context);
  int line = context.line;
  ChatExprPtr expr;
  if (isOperator("+"))
    context.fail("the operator '+' before a value is not supported");
  if (skipOperator("-"))
    expr = make(ChatExprKind::Negate, line, {}, parseUnary(false));
  else
    expr = parsePrimary();
  expr = parsePostfix(std::move(expr));
  return withFilters ? parseFilters(std::move(expr)) : std::move(expr);
}

ChatExprPtr Parser::parsePrimary() {
  int line = context.line;
  std::string text = token().text;
  switch (token().kind) {
  case ChatTokenKind::Name: {
    next();
    ChatExprPtr literal = make(ChatExprKind::Literal, line);
    if (text == "true" || text == "True" || text == "false" || text == "False")
      literal->literal = ChatValue::Storage(text == "true" || text == "True");
    else if (text != "none" && text != "None")
      return make(ChatExprKind::Name, line, text);
    return literal;
  }
  case ChatTokenKind::String: {
    next();
    // Neighbouring strings are one.
    for (; token().kind == ChatTokenKind::String; next())
      text += token().text;
    ChatExprPtr literal = make(ChatExprKind::Literal, line);
    literal->literal = ChatText(text);
    return literal;
  }
  case ChatTokenKind::Integer:
    return parseInteger();
  case ChatTokenKind::Float: {
    next();
    ChatExprPtr literal = make(ChatExprKind::Literal, line);
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    literal->literal = ChatValue::Storage(value);
    return literal;
  }
  default:
    break;
  }
  if (isOperator("["))
    return parseList();
  if (isOperator("{"))
    return parseDict();
  if (!skipOperator("("))
    context.fail("expected an expression but found {}", seen());
  ChatExprPtr inner =
      isOperator(")") ? make(ChatExprKind::List, line) : parseTuple();
  expectOperator(")");
  return inner;
}

ChatExprPtr Parser::parseInteger() {
  const std::string &text = token().text;
  int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec !=
      std::errc())
    context.fail("the integer {} does not fit 64 bits", text);
  ChatExprPtr literal = make(ChatExprKind::Literal, context.line);
  literal->literal = ChatValue::Storage(value);
  next();
  return literal;
}

ChatExprPtr Parser::parseList() {
  ChatExprPtr list = make(ChatExprKind::List, context.line);
  next();
  while (!isOperator("]")) {
    add(*list, parseExpression());
    if (!isOperator("]"))
      expectOperator(",");
  }
  next();
  return list;
}

ChatExprPtr Parser::parseDict() {
  ChatExprPtr dict = make(ChatExprKind::Dict, context.line);
  next();
  while (!isOperator("}")) {
    add(*dict, parseExpression());
    expectOperator(":");
    add(*dict, parseExpression());
    if (!isOperator("}"))
      expectOperator(",");
  }
  next();
  return dict;
}

ChatExprPtr Parser::parsePostfix(ChatExprPtr object) {
  while (true) {
    int line = context.line;
    if (skipOperator(".")) {
      if (token().kind == ChatTokenKind::Integer)
        object = make(ChatExprKind::Item, line, {}, std::move(object),
                      parseInteger());
      else
        object = make(ChatExprKind::Attribute, line, expectName("an attribute"),
                      std::move(object));
    } else if (skipOperator("[")) {
      object = parseSubscript(std::move(object));
    } else if (isOperator("(")) {
      object = make(ChatExprKind::Call, line, {}, std::move(object));
      parseArguments(*object);
    } else {
      return object;
    }
  }
}

/// What follows '['.
ChatExprPtr Parser::parseSubscript(ChatExprPtr object) {
  int line = context.line;
  ChatExprPtr bounds[3];
  size_t count = 0;
  for (; count < 3; ++count) {
    if (!isOperator(":") && !isOperator("]"))
      bounds[count] = parseExpression();
    if (!skipOperator(":"))
      break;
  }
  expectOperator("]");
  if (count == 0) {
    if (!bounds[0])
      context.fail("expected an index but found ']'");
    return make(ChatExprKind::Item, line, {}, std::move(object),
                std::move(bounds[0]));
  }
  ChatExprPtr slice = make(ChatExprKind::Slice, line, {}, std::move(object));
  for (ChatExprPtr &bound : bounds)
    add(*slice, std::move(bound));
  return slice;
}

ChatExprPtr Parser::parseFilters(ChatExprPtr input) {
  while (true) {
    int line = context.line;
    if (skipOperator("|")) {
      std::string name = expectName("a filter");
      if (!isChatFilter(name))
        context.fail("the filter '{}' is not supported", name);
      input = make(ChatExprKind::Filter, line, name, std::move(input));
      if (isOperator("("))
        parseArguments(*input);
    } else if (skipName("is")) {
      input = parseTest(std::move(input));
    } else if (isOperator("(")) {
      input = make(ChatExprKind::Call, line, {}, std::move(input));
      parseArguments(*input);
    } else {
      return input;
    }
  }
}

/// What follows 'is'.
ChatExprPtr Parser::parseTest(ChatExprPtr input) {
  int line = context.line;
  bool negated = skipName("not");
  std::string name = expectName("a test");
  if (!isChatTest(name))
    context.fail("the test '{}' is not supported", name);
  ChatExprPtr test = make(ChatExprKind::Test, line, name, std::move(input));
  bool operand = token().kind == ChatTokenKind::String ||
                 token().kind == ChatTokenKind::Integer ||
                 token().kind == ChatTokenKind::Float || isOperator("[") ||
                 isOperator("{");
  if (token().kind == ChatTokenKind::Name) {
    // A name is the test's argument unless it goes on with the expression.
    static constexpr std::string_view continues[] = {"else", "or", "and",
                                                     "if",   "in", "not"};
    operand = std::ranges::find(continues, token().text) == std::end(continues);
    if (isName("is"))
      context.fail("tests cannot be chained; use 'and'");
  }
  if (isOperator("("))
    parseArguments(*test);
  else if (operand)
    add(*test, parsePostfix(parsePrimary()));
  return negated ? make(ChatExprKind::Not, line, {}, std::move(test))
                 : std::move(test);
}

void Parser::parseArguments(ChatExpr &call) {
  expectOperator("(");
  while (!isOperator(")")) {
    if (isOperator("*") || isOperator("**"))
      context.fail("'{}' before an argument is not supported", token().text);
    if (token().kind == ChatTokenKind::Name &&
        tokens[index + 1].kind == ChatTokenKind::Operator &&
        tokens[index + 1].text == "=") {
      call.keywords.push_back(token().text);
      next();
      next();
    } else if (!call.keywords.empty()) {
      context.fail("an argument without a name follows one with a name");
    }
    add(call, parseExpression());
    if (!isOperator(")"))
      expectOperator(",");
  }
  next();
}

} // namespace

std::vector<ChatStmt> stem::parseChatTemplate(ChatContext &context,
                                              std::string source) {
  std::vector<ChatToken> tokens = lexChatTemplate(context, std::move(source));
  context.line = 1;
  return Parser(context, std::move(tokens)).parseBody({});
}
