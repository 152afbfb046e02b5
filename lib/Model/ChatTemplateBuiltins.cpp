//===- ChatTemplateBuiltins.cpp - Filters, tests, methods, functions ------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything that a chat template can call, one table a kind.
//
//===----------------------------------------------------------------------===//

#include "ChatTemplateProgram.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

using namespace stem;

namespace {

using Bound = std::vector<const ChatValue *>;

bool isNumber(const ChatValue &value) {
  return value.is<int64_t>() || value.is<double>() || value.is<bool>();
}

constexpr std::string_view caseName(ChatCase to) {
  constexpr std::string_view names[] = {"lower", "upper", "title",
                                        "capitalize"};
  return names[size_t(to)];
}

/// A dict's entries as pairs.
ChatValue itemsOf(ChatContext &context, const ChatDict &dict) {
  std::vector<ChatValue> pairs;
  for (const auto &[key, value] : dict.entries) {
    context.charge(key.size());
    pairs.push_back(makeList(context, {key, value}));
  }
  return makeList(context, std::move(pairs));
}

//===----------------------------------------------------------------------===//
// Filters
//===----------------------------------------------------------------------===//

using Filter = ChatValue (*)(ChatContext &, const ChatValue &,
                             const ChatArguments &);

ChatValue filterTrim(ChatContext &context, const ChatValue &input,
                     const ChatArguments &args) {
  Bound bound = args.bind(context, "trim", {"chars"});
  return stripText(context, toText(context, input), bound[0], true, true);
}

ChatValue filterToJson(ChatContext &context, const ChatValue &input,
                       const ChatArguments &args) {
  Bound bound = args.bind(context, "tojson", {"ensure_ascii", "indent"});
  if (bound[0] && isTrue(*bound[0]))
    context.fail("the filter 'tojson' supports ensure_ascii=false only");
  int64_t indent = -1;
  if (bound[1] && !bound[1]->is<ChatNone>()) {
    indent = expectInteger(context, *bound[1], "the indent of 'tojson'");
    if (indent < 0 || indent > 16)
      context.fail("the indent of 'tojson' is {}; it must be 0 to 16", indent);
  }
  return toJson(context, input, indent);
}

ChatValue filterLength(ChatContext &context, const ChatValue &input,
                       const ChatArguments &args) {
  args.bind(context, "length", {});
  return ChatValue::Storage(lengthOf(context, input));
}

template <ChatCase to>
ChatValue filterCase(ChatContext &context, const ChatValue &input,
                     const ChatArguments &args) {
  args.bind(context, caseName(to), {});
  return changeCase(context, toText(context, input), to);
}

ChatValue filterJoin(ChatContext &context, const ChatValue &input,
                     const ChatArguments &args) {
  Bound bound = args.bind(context, "join", {"d", "attribute"});
  ChatText separator = bound[0] ? toText(context, *bound[0]) : ChatText();
  ChatText result;
  bool first = true;
  std::shared_ptr<const ChatList> list = iterate(context, input);
  for (const ChatValue &item : list->items) {
    context.charge(separator.size() + 1);
    if (!first)
      result.append(separator);
    first = false;
    result.append(
        toText(context, bound[1] ? getPath(context, item, *bound[1]) : item));
  }
  return result;
}

ChatValue filterDefault(ChatContext &context, const ChatValue &input,
                        const ChatArguments &args) {
  Bound bound = args.bind(context, "default", {"default_value", "boolean"});
  bool replaces = input.is<ChatUndefined>() ||
                  (bound[1] && isTrue(*bound[1]) && !isTrue(input));
  if (!replaces)
    return input;
  return bound[0] ? *bound[0] : ChatValue(ChatText());
}

ChatValue filterFirst(ChatContext &context, const ChatValue &input,
                      const ChatArguments &args) {
  args.bind(context, "first", {});
  auto list = iterate(context, input);
  return list->items.empty() ? ChatValue::undefined("first item of nothing")
                             : list->items.front();
}

ChatValue filterLast(ChatContext &context, const ChatValue &input,
                     const ChatArguments &args) {
  args.bind(context, "last", {});
  auto list = iterate(context, input);
  return list->items.empty() ? ChatValue::undefined("last item of nothing")
                             : list->items.back();
}

ChatValue filterList(ChatContext &context, const ChatValue &input,
                     const ChatArguments &args) {
  args.bind(context, "list", {});
  return ChatValue::Storage(iterate(context, input));
}

ChatValue filterItems(ChatContext &context, const ChatValue &input,
                      const ChatArguments &args) {
  args.bind(context, "items", {});
  if (input.is<ChatUndefined>())
    return makeList(context, {});
  const ChatDict *dict = input.as<ChatDict>();
  if (!dict)
    context.fail("the filter 'items' wants a dict, not {}", describe(input));
  return itemsOf(context, *dict);
}

ChatValue filterReplace(ChatContext &context, const ChatValue &input,
                        const ChatArguments &args) {
  Bound bound = args.bind(context, "replace", {"old", "new", "count"});
  return replaceText(context, toText(context, input), bound[0], bound[1],
                     bound[2]);
}

ChatValue filterString(ChatContext &context, const ChatValue &input,
                       const ChatArguments &args) {
  args.bind(context, "string", {});
  return toText(context, input);
}

/// The number that a string spells, blanks around it allowed.
template <typename T>
bool parseNumber(ChatContext &context, const ChatText &text, T &number) {
  ChatText stripped = stripText(context, text, nullptr, true, true);
  const char *begin = stripped.bytes.data(), *end = begin + stripped.size();
  if (stripped.size() > 1 && *begin == '+' && begin[1] != '-')
    ++begin;
  auto [rest, error] = std::from_chars(begin, end, number);
  return error == std::errc() && rest == end;
}

ChatValue filterInt(ChatContext &context, const ChatValue &input,
                    const ChatArguments &args) {
  Bound bound = args.bind(context, "int", {"default"});
  ChatValue otherwise = bound[0] ? *bound[0] : ChatValue::Storage(int64_t(0));
  int64_t integer = 0;
  double number = 0;
  if (input.is<int64_t>() || input.is<bool>())
    return ChatValue::Storage(expectInteger(context, input, "a number"));
  if (const ChatText *text = input.as<ChatText>()) {
    if (parseNumber(context, *text, integer))
      return ChatValue::Storage(integer);
    if (!parseNumber(context, *text, number))
      return otherwise;
  } else if (const double *value = input.as<double>()) {
    number = *value;
  } else {
    return otherwise;
  }
  // 2^63: the first float that does not fit.
  if (!(std::fabs(number) < 9223372036854775808.0))
    return otherwise;
  return ChatValue::Storage(int64_t(number));
}

ChatValue filterFloat(ChatContext &context, const ChatValue &input,
                      const ChatArguments &args) {
  Bound bound = args.bind(context, "float", {"default"});
  double number = 0;
  if (const double *value = input.as<double>())
    return ChatValue::Storage(*value);
  if (isNumber(input))
    return ChatValue::Storage(
        double(expectInteger(context, input, "a number")));
  if (const ChatText *text = input.as<ChatText>())
    if (parseNumber(context, *text, number))
      return ChatValue::Storage(number);
  return bound[0] ? *bound[0] : ChatValue::Storage(0.0);
}

/// The name that leads a filter's arguments, and the arguments after it.
std::pair<std::string, ChatArguments>
splitName(ChatContext &context, const ChatArguments &args, size_t position) {
  ChatArguments rest = args;
  std::string name = expectString(context, args.positional[position],
                                  "a filter's or test's "
                                  "name")
                         .bytes;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + ptrdiff_t(position) + 1);
  return {name, rest};
}

/// select, reject, selectattr and rejectattr: the items, or those whose
/// attribute, passes a test.
template <bool keep, bool byAttribute>
ChatValue filterSelect(ChatContext &context, const ChatValue &input,
                       const ChatArguments &args) {
  constexpr size_t testPosition = byAttribute ? 1 : 0;
  if (args.positional.size() < testPosition)
    context.fail("the filter '{}attr' wants an attribute",
                 keep ? "select" : "reject");
  std::string test;
  ChatArguments rest;
  if (args.positional.size() > testPosition)
    std::tie(test, rest) = splitName(context, args, testPosition);
  if (!test.empty() && !isChatTest(test))
    context.fail("the test '{}' is not supported", test);
  std::vector<ChatValue> kept;
  std::shared_ptr<const ChatList> list = iterate(context, input);
  for (const ChatValue &item : list->items) {
    context.charge(1);
    ChatValue value =
        byAttribute ? getPath(context, item, args.positional[0]) : item;
    bool passes = test.empty() ? isTrue(value)
                               : applyChatTest(context, test, value, rest);
    if (passes == keep)
      kept.push_back(item);
  }
  return makeList(context, std::move(kept));
}

ChatValue filterMap(ChatContext &context, const ChatValue &input,
                    const ChatArguments &args) {
  std::vector<ChatValue> results;
  auto list = iterate(context, input);
  if (args.positional.empty()) {
    Bound bound = args.bind(context, "map", {"attribute", "default"});
    if (!bound[0])
      context.fail("the filter 'map' wants an attribute or a filter");
    for (const ChatValue &item : list->items) {
      ChatValue value = getPath(context, item, *bound[0]);
      results.push_back(value.is<ChatUndefined>() && bound[1] ? *bound[1]
                                                              : value);
    }
    return makeList(context, std::move(results));
  }
  auto [name, rest] = splitName(context, args, 0);
  if (!isChatFilter(name))
    context.fail("the filter '{}' is not supported", name);
  // A map of maps nests as deep as its input, once more each.
  ChatNesting nesting(context);
  for (const ChatValue &item : list->items) {
    context.charge(1);
    results.push_back(applyChatFilter(context, name, item, rest));
  }
  return makeList(context, std::move(results));
}

const std::map<std::string_view, Filter> &filters() {
  static const std::map<std::string_view, Filter> table = {
      {"trim", filterTrim},
      {"tojson", filterToJson},
      {"length", filterLength},
      {"count", filterLength},
      {"upper", filterCase<ChatCase::Upper>},
      {"lower", filterCase<ChatCase::Lower>},
      {"capitalize", filterCase<ChatCase::Capitalize>},
      {"join", filterJoin},
      {"default", filterDefault},
      {"d", filterDefault},
      {"first", filterFirst},
      {"last", filterLast},
      {"list", filterList},
      {"items", filterItems},
      {"replace", filterReplace},
      {"string", filterString},
      {"safe", filterString},
      {"int", filterInt},
      {"float", filterFloat},
      {"select", filterSelect<true, false>},
      {"reject", filterSelect<false, false>},
      {"selectattr", filterSelect<true, true>},
      {"rejectattr", filterSelect<false, true>},
      {"map", filterMap},
  };
  return table;
}

//===----------------------------------------------------------------------===//
// Tests
//===----------------------------------------------------------------------===//

/// A test of a value against another, or of a value alone, where `with` is
/// none.
using Test = bool (*)(ChatContext &, const ChatValue &, const ChatValue &with);

struct TestEntry {
  bool hasOperand;
  Test test;
};

bool hasType(const ChatValue &value, bool string, bool dict) {
  return (string && value.is<ChatText>()) || (dict && value.is<ChatDict>()) ||
         value.is<ChatList>() || value.is<ChatUndefined>();
}

int64_t modulo(ChatContext &context, const ChatValue &value,
               const ChatValue &by, std::string_view test) {
  int64_t dividend = expectInteger(
      context, value, fmt::format("the value of the test '{}'", test));
  int64_t divisor = expectInteger(
      context, by, fmt::format("the operand of the test '{}'", test));
  if (divisor == 0)
    context.fail("division by zero");
  return divisor == -1 ? 0 : dividend % divisor;
}

#define STEM_CHAT_TEST(expression)                                             \
  [](ChatContext &context, const ChatValue &value,                             \
     const ChatValue &with) -> bool {                                          \
    static_cast<void>(context);                                                \
    static_cast<void>(with);                                                   \
    return expression;                                                         \
  }

const std::map<std::string_view, TestEntry> &tests() {
  static const TestEntry eq = {true,
                               STEM_CHAT_TEST(equals(context, value, with))};
  static const TestEntry ne = {true,
                               STEM_CHAT_TEST(!equals(context, value, with))};
  static const ChatValue two = ChatValue::Storage(int64_t(2));
  static const std::map<std::string_view, TestEntry> table = {
      {"defined", {false, STEM_CHAT_TEST(!value.is<ChatUndefined>())}},
      {"undefined", {false, STEM_CHAT_TEST(value.is<ChatUndefined>())}},
      {"none", {false, STEM_CHAT_TEST(value.is<ChatNone>())}},
      {"string", {false, STEM_CHAT_TEST(value.is<ChatText>())}},
      {"mapping", {false, STEM_CHAT_TEST(value.is<ChatDict>())}},
      {"iterable", {false, STEM_CHAT_TEST(hasType(value, true, true))}},
      {"sequence", {false, STEM_CHAT_TEST(hasType(value, true, true))}},
      {"number", {false, STEM_CHAT_TEST(isNumber(value))}},
      {"integer", {false, STEM_CHAT_TEST(value.is<int64_t>())}},
      {"float", {false, STEM_CHAT_TEST(value.is<double>())}},
      {"boolean", {false, STEM_CHAT_TEST(value.is<bool>())}},
      {"true", {false, STEM_CHAT_TEST(value.is<bool>() && *value.as<bool>())}},
      {"false",
       {false, STEM_CHAT_TEST(value.is<bool>() && !*value.as<bool>())}},
      {"odd", {false, STEM_CHAT_TEST(modulo(context, value, two, "odd") != 0)}},
      {"even",
       {false, STEM_CHAT_TEST(modulo(context, value, two, "even") == 0)}},
      {"divisibleby",
       {true,
        STEM_CHAT_TEST(modulo(context, value, with, "divisibleby") == 0)}},
      {"equalto", eq},
      {"eq", eq},
      {"==", eq},
      {"ne", ne},
      {"!=", ne},
      {"in", {true, STEM_CHAT_TEST(contains(context, with, value))}},
  };
  return table;
}

#undef STEM_CHAT_TEST

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

ChatDict collect(ChatContext &context, std::string_view callee,
                 const ChatArguments &args) {
  ChatDict result;
  if (args.positional.size() > 1 ||
      (args.positional.size() == 1 && !args.positional[0].is<ChatDict>()))
    context.fail("'{}' wants a dict or arguments with names", callee);
  if (args.positional.size() == 1)
    for (const auto &[key, value] : args.positional[0].as<ChatDict>()->entries)
      result.set(context, key, value);
  for (const auto &[name, value] : args.named)
    result.set(context, ChatText(name), value);
  return result;
}

ChatValue callRange(ChatContext &context, const ChatArguments &args) {
  Bound bound = args.bind(context, "range", {"start", "stop", "step"});
  if (!bound[0])
    context.fail("'range' wants a stop");
  auto integer = [&](const ChatValue *value, int64_t otherwise) {
    return value ? expectInteger(context, *value, "an argument of 'range'")
                 : otherwise;
  };
  int64_t start = bound[1] ? integer(bound[0], 0) : 0;
  int64_t stop = integer(bound[1] ? bound[1] : bound[0], 0);
  int64_t step = integer(bound[2], 1);
  if (step == 0)
    context.fail("the step of 'range' is 0");
  std::vector<ChatValue> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    context.charge(32);
    items.push_back(ChatValue::Storage(i));
    if (__builtin_add_overflow(i, step, &i))
      break;
  }
  return makeList(context, std::move(items));
}

/// The date in `format`, a conversion at a time so that none can grow it.
ChatValue callStrftime(ChatContext &context, const ChatArguments &args) {
  Bound bound = args.bind(context, "strftime_now", {"format"});
  if (!bound[0])
    context.fail("'strftime_now' wants a format");
  const ChatText &format =
      expectString(context, *bound[0], "the format of 'strftime_now'");
  context.charge(format.size() * 32);
  ChatText result;
  for (size_t i = 0; i < format.size(); ++i) {
    char user = format.user[i];
    if (format.bytes[i] != '%') {
      result.append({&format.bytes[i], 1}, user);
      continue;
    }
    std::string conversion = "%";
    if (i + 1 < format.size() && format.bytes[i + 1] == '-')
      conversion += format.bytes[++i];
    if (++i < format.size())
      conversion += format.bytes[i];
    if (conversion.size() < 2 ||
        std::string_view("aAbBcdeDFHIjmMpSTuUwWxXyY%")
                .find(conversion.back()) == std::string_view::npos)
      context.fail("'strftime_now' does not support '{}'", conversion);
    char buffer[128];
    size_t size =
        std::strftime(buffer, sizeof buffer, conversion.c_str(), &context.now);
    result.append({buffer, size}, user);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Methods
//===----------------------------------------------------------------------===//

using Method = ChatValue (*)(ChatContext &, const ChatText &,
                             const ChatArguments &);

template <bool left, bool right>
ChatValue methodStrip(ChatContext &context, const ChatText &text,
                      const ChatArguments &args) {
  constexpr const char *name = !right ? "lstrip" : !left ? "rstrip" : "strip";
  Bound bound = args.bind(context, name, {"chars"});
  return stripText(context, text, bound[0], left, right);
}

template <ChatCase to>
ChatValue methodCase(ChatContext &context, const ChatText &text,
                     const ChatArguments &args) {
  args.bind(context, caseName(to), {});
  return changeCase(context, text, to);
}

ChatValue methodReplace(ChatContext &context, const ChatText &text,
                        const ChatArguments &args) {
  Bound bound = args.bind(context, "replace", {"old", "new", "count"});
  return replaceText(context, text, bound[0], bound[1], bound[2]);
}

/// startswith and endswith: one string, or any of several.
template <bool atStart>
ChatValue methodAffix(ChatContext &context, const ChatText &text,
                      const ChatArguments &args) {
  constexpr const char *name = atStart ? "startswith" : "endswith";
  Bound bound = args.bind(context, name, {"affix"});
  if (!bound[0])
    context.fail("'{}' wants a string", name);
  auto matches = [&](const ChatValue &value) {
    const std::string &affix =
        expectString(context, value, fmt::format("the argument of '{}'", name))
            .bytes;
    context.charge(affix.size() + 1);
    return atStart ? text.bytes.starts_with(affix)
                   : text.bytes.ends_with(affix);
  };
  bool found = false;
  if (const ChatList *list = bound[0]->as<ChatList>())
    for (const ChatValue &item : list->items)
      found = found || matches(item);
  else
    found = matches(*bound[0]);
  return ChatValue::Storage(found);
}

/// Words with blanks between, at most `limit` splits.
std::vector<ChatValue> splitBlanks(ChatContext &context, const ChatText &text,
                                   uint64_t limit) {
  std::vector<ChatValue> parts;
  ChatText rest = stripText(context, text, nullptr, true, false);
  size_t begin = 0;
  while (begin < rest.size()) {
    size_t end = parts.size() == limit ? rest.size() : begin;
    while (end < rest.size() && !isSpaceAt(rest.bytes, end))
      end += characterSize(rest.bytes, end);
    context.charge(128);
    parts.push_back(rest.slice(begin, end));
    begin = end;
    while (begin < rest.size() && isSpaceAt(rest.bytes, begin))
      begin += characterSize(rest.bytes, begin);
  }
  return parts;
}

ChatValue methodSplit(ChatContext &context, const ChatText &text,
                      const ChatArguments &args) {
  Bound bound = args.bind(context, "split", {"sep", "maxsplit"});
  int64_t maximum =
      bound[1] ? expectInteger(context, *bound[1], "the limit of 'split'") : -1;
  uint64_t limit = maximum < 0 ? UINT64_MAX : uint64_t(maximum);
  context.charge(text.size());
  if (!bound[0] || bound[0]->is<ChatNone>())
    return makeList(context, splitBlanks(context, text, limit));
  const std::string &separator =
      expectString(context, *bound[0], "the separator of 'split'").bytes;
  if (separator.empty())
    context.fail("the separator of 'split' is empty");
  std::vector<ChatValue> parts;
  size_t begin = 0;
  while (true) {
    size_t end = parts.size() == limit ? std::string::npos
                                       : text.bytes.find(separator, begin);
    context.charge(128);
    if (end == std::string::npos)
      break;
    parts.push_back(text.slice(begin, end));
    begin = end + separator.size();
  }
  parts.push_back(text.slice(begin, text.size()));
  return makeList(context, std::move(parts));
}

const std::map<std::string_view, Method> &stringMethods() {
  static const std::map<std::string_view, Method> table = {
      {"strip", methodStrip<true, true>},
      {"lstrip", methodStrip<true, false>},
      {"rstrip", methodStrip<false, true>},
      {"split", methodSplit},
      {"startswith", methodAffix<true>},
      {"endswith", methodAffix<false>},
      {"upper", methodCase<ChatCase::Upper>},
      {"lower", methodCase<ChatCase::Lower>},
      {"title", methodCase<ChatCase::Title>},
      {"capitalize", methodCase<ChatCase::Capitalize>},
      {"replace", methodReplace},
  };
  return table;
}

ChatValue callDictMethod(ChatContext &context, const ChatValue &object,
                         const std::string &name, const ChatArguments &args) {
  const ChatDict &dict = *object.as<ChatDict>();
  if (name == "get") {
    Bound bound = args.bind(context, name, {"key", "default"});
    if (!bound[0])
      context.fail("'get' wants a key");
    const ChatText *key = bound[0]->as<ChatText>();
    const ChatValue *found = key ? dict.find(context, key->bytes) : nullptr;
    return found ? *found : bound[1] ? *bound[1] : ChatValue();
  }
  if (name != "items" && name != "keys" && name != "values")
    context.fail("the method '{}' of a dict is not supported", name);
  args.bind(context, name, {});
  if (name == "items")
    return itemsOf(context, dict);
  if (name == "keys")
    return ChatValue::Storage(iterate(context, object));
  std::vector<ChatValue> values;
  for (const auto &entry : dict.entries)
    values.push_back(entry.second);
  return makeList(context, std::move(values));
}

} // namespace

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

std::vector<const ChatValue *>
ChatArguments::bind(ChatContext &context, std::string_view callee,
                    std::initializer_list<std::string_view> parameters) const {
  if (positional.size() > parameters.size())
    context.fail("'{}' takes {} arguments but is given {}", callee,
                 parameters.size(), positional.size());
  std::vector<const ChatValue *> bound(parameters.size());
  for (size_t i = 0; i < positional.size(); ++i)
    bound[i] = &positional[i];
  for (const auto &[name, value] : named) {
    size_t i = size_t(std::find(parameters.begin(), parameters.end(), name) -
                      parameters.begin());
    if (i == bound.size())
      context.fail("'{}' does not support the argument '{}'", callee, name);
    if (bound[i])
      context.fail("'{}' is given the argument '{}' twice", callee, name);
    bound[i] = &value;
  }
  return bound;
}

bool stem::isChatFilter(std::string_view name) {
  return filters().contains(name);
}

bool stem::isChatTest(std::string_view name) { return tests().contains(name); }

bool stem::isChatFunction(std::string_view name) {
  return name == "raise_exception" || name == "namespace" || name == "range" ||
         name == "strftime_now" || name == "dict";
}

ChatValue stem::applyChatFilter(ChatContext &context, const std::string &name,
                                const ChatValue &input,
                                const ChatArguments &args) {
  return filters().at(name)(context, input, args);
}

bool stem::applyChatTest(ChatContext &context, const std::string &name,
                         const ChatValue &input, const ChatArguments &args) {
  const TestEntry &entry = tests().at(name);
  if (args.positional.size() != size_t(entry.hasOperand) || !args.named.empty())
    context.fail("the test '{}' takes {} but is given {} arguments", name,
                 entry.hasOperand ? "an operand" : "no operand",
                 args.positional.size() + args.named.size());
  return entry.test(context, input,
                    entry.hasOperand ? args.positional[0] : ChatValue());
}

ChatValue stem::callChatFunction(ChatContext &context, const std::string &name,
                                 const ChatArguments &args) {
  if (name == "raise_exception") {
    Bound bound = args.bind(context, name, {"message"});
    context.fail("the template refuses these messages: {}",
                 bound[0] ? printable(toText(context, *bound[0]).bytes)
                          : "no reason given");
  }
  if (name == "namespace") {
    auto space = std::make_shared<ChatNamespace>();
    space->attributes = collect(context, name, args);
    return ChatValue::Storage(std::move(space));
  }
  if (name == "dict")
    return ChatValue::Storage(
        std::make_shared<const ChatDict>(collect(context, name, args)));
  return name == "range" ? callRange(context, args)
                         : callStrftime(context, args);
}

ChatValue stem::callChatMethod(ChatContext &context, const ChatValue &object,
                               const std::string &name,
                               const ChatArguments &args) {
  if (object.is<ChatUndefined>())
    context.fail("cannot call '{}' of {}", name, describe(object));
  if (object.is<ChatDict>())
    return callDictMethod(context, object, name, args);
  const ChatText *text = object.as<ChatText>();
  auto found = stringMethods().find(name);
  if (!text || found == stringMethods().end())
    context.fail("the method '{}' of {} is not supported", name,
                 describe(object));
  return found->second(context, *text, args);
}
