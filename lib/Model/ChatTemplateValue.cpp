//===- ChatTemplateValue.cpp - Values of a chat template ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChatTemplateValue.h"

#include <algorithm>
#include <cmath>
#include <optional>

using namespace stem;

namespace {

constexpr int maxContainerDepth = 64;
// What one more list item or one more string costs, in bytes.
constexpr uint64_t itemCost = 32;
constexpr uint64_t textCost = 128;

/// Bools are integers to Python.
std::optional<int64_t> asInteger(const ChatValue &value) {
  if (const bool *flag = value.as<bool>())
    return *flag;
  if (const int64_t *integer = value.as<int64_t>())
    return *integer;
  return std::nullopt;
}

std::optional<double> asNumber(const ChatValue &value) {
  if (const double *number = value.as<double>())
    return *number;
  if (std::optional<int64_t> integer = asInteger(value))
    return double(*integer);
  return std::nullopt;
}

/// The depth of a container that holds `item`.
int depthAround(ChatContext &context, const ChatValue &item) {
  if (item.asNamespace() || item.is<ChatLoop>())
    context.fail("{} cannot be kept in a list, dict or namespace",
                 describe(item));
  int depth = 1;
  if (const ChatList *list = item.as<ChatList>())
    depth += list->depth;
  else if (const ChatDict *dict = item.as<ChatDict>())
    depth += dict->depth;
  if (depth > maxContainerDepth)
    context.fail("lists and dicts are nested deeper than {}",
                 maxContainerDepth);
  return depth;
}

std::string formatFloat(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text;
}

ChatValue missing(const ChatValue &object, const std::string &name) {
  return ChatValue::undefined(
      fmt::format("'{}' of {}", name, describe(object)));
}

ChatValue loopAttribute(const ChatValue &object, const ChatLoop &loop,
                        const std::string &name) {
  auto integer = [](size_t value) {
    return ChatValue::Storage(int64_t(value));
  };
  const std::vector<ChatValue> &items = loop.items->items;
  if (name == "index")
    return integer(loop.index + 1);
  if (name == "index0")
    return integer(loop.index);
  if (name == "revindex")
    return integer(items.size() - loop.index);
  if (name == "revindex0")
    return integer(items.size() - loop.index - 1);
  if (name == "length")
    return integer(items.size());
  if (name == "first")
    return ChatValue::Storage(loop.index == 0);
  if (name == "last")
    return ChatValue::Storage(loop.index + 1 == items.size());
  if (name == "previtem" && loop.index > 0)
    return items[loop.index - 1];
  if (name == "nextitem" && loop.index + 1 < items.size())
    return items[loop.index + 1];
  return missing(object, name);
}

/// The positions that [start:stop:step] takes of `length` items.
std::vector<size_t> slicePositions(ChatContext &context, int64_t length,
                                   const ChatValue *startValue,
                                   const ChatValue *stopValue,
                                   const ChatValue *stepValue) {
  auto given = [&](const ChatValue *value) -> std::optional<int64_t> {
    if (!value || value->is<ChatNone>())
      return std::nullopt;
    return expectInteger(context, *value, "a slice's bound");
  };
  int64_t step = given(stepValue).value_or(1);
  if (step == 0)
    context.fail("a slice's step is 0");
  // Where a bound may lie: one before the first item only going backward.
  int64_t low = step > 0 ? 0 : -1;
  int64_t high = step > 0 ? length : length - 1;
  auto bound = [&](std::optional<int64_t> value, int64_t otherwise) {
    if (!value)
      return otherwise;
    return std::clamp(*value < 0 ? *value + length : *value, low, high);
  };
  int64_t start = bound(given(startValue), step > 0 ? low : high);
  int64_t stop = bound(given(stopValue), step > 0 ? high : low);
  // Longer steps than the length take one item all the same.
  step = std::clamp(step, -length - 1, length + 1);
  std::vector<size_t> positions;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
    positions.push_back(size_t(i));
  context.charge(positions.size() * itemCost);
  return positions;
}

void writeJsonString(ChatText &out, const ChatText &text) {
  out.append("\"", 0);
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text.bytes[i];
    char user = text.user[i];
    static constexpr std::string_view plain = "\"\\\b\f\n\r\t";
    static constexpr std::string_view escaped = "\"\\bfnrt";
    if (size_t found = plain.find(c); found != std::string_view::npos) {
      out.append("\\", user);
      out.append(escaped.substr(found, 1), user);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.append(fmt::format("\\u{:04x}", c), user);
    } else {
      out.append({&c, 1}, user);
    }
  }
  out.append("\"", 0);
}

class JsonWriter {
public:
  JsonWriter(ChatContext &context, int64_t indent)
      : context(context), indent(indent) {}

  void write(const ChatValue &value) {
    size_t before = out.size();
    if (const ChatText *text = value.as<ChatText>())
      writeJsonString(out, *text);
    else if (const ChatList *list = value.as<ChatList>())
      writeItems('[', ']', list->items,
                 [&](const ChatValue &item) { write(item); });
    else if (const ChatDict *dict = value.as<ChatDict>())
      writeItems('{', '}', dict->entries, [&](const auto &entry) {
        writeJsonString(out, entry.first);
        out.append(": ", 0);
        write(entry.second);
      });
    else if (value.is<ChatNone>())
      out.append("null", 0);
    else if (const bool *flag = value.as<bool>())
      out.append(*flag ? "true" : "false", 0);
    else if (asNumber(value))
      out.append(toText(context, value));
    else
      context.fail("{} has no JSON form", describe(value));
    context.charge(out.size() - before + 1);
  }

  ChatText out;

private:
  template <typename Items, typename Write>
  void writeItems(char open, char close, const Items &items, Write writeItem) {
    out.append({&open, 1}, 0);
    depth += 1;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0)
        out.append(indent >= 0 ? "," : ", ", 0);
      startLine();
      writeItem(items[i]);
    }
    depth -= 1;
    if (!items.empty())
      startLine();
    out.append({&close, 1}, 0);
  }
  void startLine() {
    if (indent >= 0)
      out.append("\n" + std::string(size_t(indent * depth), ' '), 0);
  }

  ChatContext &context;
  int64_t indent;
  int64_t depth = 0;
};

ChatValue integerArithmetic(ChatContext &context, char op, int64_t a,
                            int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == '+')
    overflow = __builtin_add_overflow(a, b, &result);
  else if (op == '-')
    overflow = __builtin_sub_overflow(a, b, &result);
  else if (op == '*')
    overflow = __builtin_mul_overflow(a, b, &result);
  else if (b == -1)
    // The quotient may not fit, and the division would trap.
    overflow = op == '/' && __builtin_sub_overflow(0, a, &result);
  else if (op == '/')
    result = a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
  else
    result = a % b + ((a % b != 0) && ((a < 0) != (b < 0)) ? b : 0);
  if (overflow)
    context.fail("an integer result does not fit 64 bits");
  return ChatValue::Storage(result);
}

ChatValue floatArithmetic(const std::string &op, double a, double b) {
  double result = 0;
  if (op == "+")
    result = a + b;
  else if (op == "-")
    result = a - b;
  else if (op == "*")
    result = a * b;
  else if (op == "/")
    result = a / b;
  else if (op == "//")
    result = std::floor(a / b);
  else
    result = a - std::floor(a / b) * b;
  return ChatValue::Storage(result);
}

} // namespace

//===----------------------------------------------------------------------===//
// Characters
//===----------------------------------------------------------------------===//

size_t stem::characterSize(std::string_view text, size_t position) {
  unsigned char lead = static_cast<unsigned char>(text[position]);
  size_t size = lead < 0xC2   ? 1
                : lead < 0xE0 ? 2
                : lead < 0xF0 ? 3
                : lead < 0xF5 ? 4
                              : 1;
  if (text.size() - position < size)
    return 1;
  for (size_t i = 1; i < size; ++i)
    if ((static_cast<unsigned char>(text[position + i]) & 0xC0) != 0x80)
      return 1;
  return size;
}

std::vector<size_t> stem::characterOffsets(ChatContext &context,
                                           std::string_view text) {
  context.charge(text.size() * sizeof(size_t));
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); i += characterSize(text, i))
    offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

bool stem::isSpaceAt(std::string_view text, size_t position) {
  std::string_view c = text.substr(position, characterSize(text, position));
  if (c.size() == 1)
    return (c[0] >= 9 && c[0] <= 13) || (c[0] >= 28 && c[0] <= 32);
  // U+2000 to U+200A.
  if (c.size() == 3 && c.starts_with("\xE2\x80") && c[2] >= '\x80' &&
      c[2] <= '\x8A')
    return true;
  static constexpr std::string_view others[] = {"\u0085", "\u00A0", "\u1680",
                                                "\u2028", "\u2029", "\u202F",
                                                "\u205F", "\u3000"};
  return std::ranges::find(others, c) != std::end(others);
}

//===----------------------------------------------------------------------===//
// Containers
//===----------------------------------------------------------------------===//

const ChatValue *ChatDict::find(ChatContext &context,
                                std::string_view key) const {
  context.charge(entries.size());
  for (const auto &[name, value] : entries)
    if (name.bytes == key)
      return &value;
  return nullptr;
}

void ChatDict::set(ChatContext &context, ChatText key, ChatValue value) {
  context.charge(entries.size() + itemCost + key.size());
  depth = std::max(depth, depthAround(context, value));
  for (auto &[name, old] : entries)
    if (name.bytes == key.bytes) {
      old = std::move(value);
      return;
    }
  entries.emplace_back(std::move(key), std::move(value));
}

ChatValue stem::makeList(ChatContext &context, std::vector<ChatValue> items) {
  context.charge(items.size() * itemCost);
  auto list = std::make_shared<ChatList>();
  for (const ChatValue &item : items)
    list->depth = std::max(list->depth, depthAround(context, item));
  list->items = std::move(items);
  return ChatValue::Storage(std::shared_ptr<const ChatList>(std::move(list)));
}

std::shared_ptr<const ChatList> stem::iterate(ChatContext &context,
                                              const ChatValue &value) {
  if (auto *list = std::get_if<std::shared_ptr<const ChatList>>(&value.storage))
    return *list;
  auto result = std::make_shared<ChatList>();
  if (const ChatText *text = value.as<ChatText>()) {
    std::vector<size_t> offsets = characterOffsets(context, text->bytes);
    context.charge(offsets.size() * textCost);
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      result->items.push_back(text->slice(offsets[i], offsets[i + 1]));
  } else if (const ChatDict *dict = value.as<ChatDict>()) {
    for (const auto &entry : dict->entries) {
      context.charge(textCost + entry.first.size());
      result->items.push_back(entry.first);
    }
  } else if (!value.is<ChatUndefined>()) {
    context.fail("{} cannot be iterated over", describe(value));
  }
  return result;
}

int64_t stem::lengthOf(ChatContext &context, const ChatValue &value) {
  if (const ChatText *text = value.as<ChatText>())
    return int64_t(characterOffsets(context, text->bytes).size()) - 1;
  if (const ChatDict *dict = value.as<ChatDict>())
    return int64_t(dict->entries.size());
  if (const ChatList *list = value.as<ChatList>())
    return int64_t(list->items.size());
  if (value.is<ChatUndefined>())
    return 0;
  context.fail("{} has no length", describe(value));
}

ChatValue stem::getAttribute(ChatContext &context, const ChatValue &object,
                             const std::string &name) {
  if (object.is<ChatUndefined>())
    context.fail("cannot read '{}' of {}", name, describe(object));
  const ChatValue *found = nullptr;
  if (const ChatDict *dict = object.as<ChatDict>())
    found = dict->find(context, name);
  else if (const ChatNamespace *space = object.asNamespace())
    found = space->attributes.find(context, name);
  else if (const ChatLoop *loop = object.as<ChatLoop>())
    return loopAttribute(object, *loop, name);
  return found ? *found : missing(object, name);
}

ChatValue stem::getItem(ChatContext &context, const ChatValue &object,
                        const ChatValue &key) {
  if (const ChatText *name = key.as<ChatText>())
    return getAttribute(context, object, name->bytes);
  if (object.is<ChatUndefined>())
    context.fail("cannot read an item of {}", describe(object));
  std::optional<int64_t> index = asInteger(key);
  const ChatText *text = object.as<ChatText>();
  const ChatList *list = object.as<ChatList>();
  if (!index || (!text && !list))
    return ChatValue::undefined(
        fmt::format("item of {} under {}", describe(object), describe(key)));
  std::vector<size_t> offsets;
  if (text)
    offsets = characterOffsets(context, text->bytes);
  int64_t length =
      text ? int64_t(offsets.size()) - 1 : int64_t(list->items.size());
  int64_t position = *index < 0 ? *index + length : *index;
  if (position < 0 || position >= length)
    return ChatValue::undefined(fmt::format("item {} of {} of {} items", *index,
                                            describe(object), length));
  size_t i = size_t(position);
  return text ? ChatValue(text->slice(offsets[i], offsets[i + 1]))
              : list->items[i];
}

ChatValue stem::getPath(ChatContext &context, ChatValue object,
                        const ChatValue &path) {
  const ChatText *text = path.as<ChatText>();
  if (!text)
    return getItem(context, object, path);
  for (size_t begin = 0; begin <= text->size();) {
    size_t end = std::min(text->bytes.find('.', begin), text->size());
    object =
        getAttribute(context, object, text->bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return object;
}

ChatValue stem::getSlice(ChatContext &context, const ChatValue &object,
                         const ChatValue *start, const ChatValue *stop,
                         const ChatValue *step) {
  if (const ChatText *text = object.as<ChatText>()) {
    std::vector<size_t> offsets = characterOffsets(context, text->bytes);
    ChatText result;
    for (size_t i : slicePositions(context, int64_t(offsets.size()) - 1, start,
                                   stop, step))
      result.append(text->slice(offsets[i], offsets[i + 1]));
    return result;
  }
  const ChatList *list = object.as<ChatList>();
  if (!list)
    context.fail("a slice wants a list or a string, not {}", describe(object));
  std::vector<ChatValue> items;
  for (size_t i :
       slicePositions(context, int64_t(list->items.size()), start, stop, step))
    items.push_back(list->items[i]);
  return makeList(context, std::move(items));
}

//===----------------------------------------------------------------------===//
// Python's rules
//===----------------------------------------------------------------------===//

std::string stem::describe(const ChatValue &value) {
  if (const ChatUndefined *undefined = value.as<ChatUndefined>())
    return "undefined " + undefined->what;
  static constexpr const char *names[] = {
      "",       "none",   "a boolean",   "an integer", "a float",   "a string",
      "a list", "a dict", "a namespace", "a loop",     "a function"};
  return names[value.storage.index()];
}

bool stem::isTrue(const ChatValue &value) {
  if (std::optional<double> number = asNumber(value))
    return *number != 0;
  if (const ChatText *text = value.as<ChatText>())
    return text->size() > 0;
  if (const ChatList *list = value.as<ChatList>())
    return !list->items.empty();
  if (const ChatDict *dict = value.as<ChatDict>())
    return !dict->entries.empty();
  return !value.is<ChatUndefined>() && !value.is<ChatNone>();
}

bool stem::equals(ChatContext &context, const ChatValue &a,
                  const ChatValue &b) {
  context.charge(1);
  std::optional<int64_t> intA = asInteger(a), intB = asInteger(b);
  if (intA && intB)
    return *intA == *intB;
  std::optional<double> numberA = asNumber(a), numberB = asNumber(b);
  if (numberA && numberB)
    return *numberA == *numberB;
  if (a.storage.index() != b.storage.index())
    return false;
  if (const ChatText *text = a.as<ChatText>()) {
    context.charge(text->size());
    return text->bytes == b.as<ChatText>()->bytes;
  }
  if (const ChatList *list = a.as<ChatList>())
    return std::ranges::equal(list->items, b.as<ChatList>()->items,
                              [&](const ChatValue &x, const ChatValue &y) {
                                return equals(context, x, y);
                              });
  if (const ChatDict *dict = a.as<ChatDict>()) {
    const ChatDict *other = b.as<ChatDict>();
    return dict->entries.size() == other->entries.size() &&
           std::ranges::all_of(dict->entries, [&](const auto &entry) {
             const ChatValue *match = other->find(context, entry.first.bytes);
             return match && equals(context, entry.second, *match);
           });
  }
  if (const ChatFunction *function = a.as<ChatFunction>())
    return function->name == b.as<ChatFunction>()->name &&
           function->macro == b.as<ChatFunction>()->macro;
  if (const ChatNamespace *space = a.asNamespace())
    return space == b.asNamespace();
  return !a.is<ChatLoop>() || a.as<ChatLoop>() == b.as<ChatLoop>();
}

int stem::compareOrder(ChatContext &context, const ChatValue &a,
                       const ChatValue &b) {
  if (const ChatText *textA = a.as<ChatText>())
    if (const ChatText *textB = b.as<ChatText>()) {
      context.charge(textA->size());
      return textA->bytes.compare(textB->bytes);
    }
  std::optional<int64_t> intA = asInteger(a), intB = asInteger(b);
  if (intA && intB)
    return *intA < *intB ? -1 : *intA > *intB;
  std::optional<double> numberA = asNumber(a), numberB = asNumber(b);
  if (!numberA || !numberB)
    context.fail("{} and {} cannot be put in order", describe(a), describe(b));
  return *numberA < *numberB ? -1 : *numberA > *numberB;
}

bool stem::contains(ChatContext &context, const ChatValue &container,
                    const ChatValue &item) {
  if (const ChatText *text = container.as<ChatText>()) {
    const ChatText &part =
        expectString(context, item, "what 'in' looks for in a string");
    context.charge(text->size());
    return text->bytes.find(part.bytes) != std::string::npos;
  }
  if (const ChatDict *dict = container.as<ChatDict>()) {
    const ChatText *key = item.as<ChatText>();
    return key && dict->find(context, key->bytes);
  }
  if (const ChatList *list = container.as<ChatList>())
    return std::ranges::any_of(list->items, [&](const ChatValue &other) {
      return equals(context, item, other);
    });
  if (container.is<ChatUndefined>())
    return false;
  context.fail("'in' cannot look into {}", describe(container));
}

ChatText stem::toText(ChatContext &context, const ChatValue &value) {
  if (const ChatText *text = value.as<ChatText>()) {
    context.charge(text->size() + 1);
    return *text;
  }
  if (value.is<ChatUndefined>())
    return {};
  if (value.is<ChatNone>())
    return ChatText("None");
  if (const bool *flag = value.as<bool>())
    return ChatText(*flag ? "True" : "False");
  if (const int64_t *integer = value.as<int64_t>())
    return ChatText(std::to_string(*integer));
  if (const double *number = value.as<double>())
    return ChatText(formatFloat(*number));
  context.fail("{} cannot be written as text; use the filter 'tojson' or "
               "'join'",
               describe(value));
}

const ChatText &stem::expectString(ChatContext &context, const ChatValue &value,
                                   std::string_view what) {
  if (const ChatText *text = value.as<ChatText>())
    return *text;
  context.fail("{} must be a string, not {}", what, describe(value));
}

int64_t stem::expectInteger(ChatContext &context, const ChatValue &value,
                            std::string_view what) {
  if (std::optional<int64_t> integer = asInteger(value))
    return *integer;
  context.fail("{} must be an integer, not {}", what, describe(value));
}

ChatText stem::toJson(ChatContext &context, const ChatValue &value,
                      int64_t indent) {
  JsonWriter writer(context, indent);
  writer.write(value);
  return std::move(writer.out);
}

ChatValue stem::arithmetic(ChatContext &context, const std::string &op,
                           const ChatValue &a, const ChatValue &b) {
  if (op == "+" && a.is<ChatText>() && b.is<ChatText>()) {
    ChatText sum = toText(context, a);
    sum.append(toText(context, b));
    return sum;
  }
  if (op == "+" && a.is<ChatList>() && b.is<ChatList>()) {
    std::vector<ChatValue> items = a.as<ChatList>()->items;
    const std::vector<ChatValue> &more = b.as<ChatList>()->items;
    items.insert(items.end(), more.begin(), more.end());
    return makeList(context, std::move(items));
  }
  std::optional<int64_t> intA = asInteger(a), intB = asInteger(b);
  if (op == "*" && a.is<ChatText>() && intB) {
    ChatText text = toText(context, a), result;
    uint64_t count = uint64_t(std::max<int64_t>(*intB, 0));
    // Not more than the budget can hold, so that the product is safe.
    context.charge(std::min(count, ChatContext::maxWork) *
                   std::min<uint64_t>(text.size() + 1, ChatContext::maxWork));
    for (uint64_t i = 0; i < count; ++i)
      result.append(text);
    return result;
  }
  std::optional<double> numberA = asNumber(a), numberB = asNumber(b);
  if (!numberA || !numberB)
    context.fail("'{}' cannot be applied to {} and {}", op, describe(a),
                 describe(b));
  if (*numberB == 0 && (op == "/" || op == "//" || op == "%"))
    context.fail("division by zero");
  if (intA && intB && op != "/")
    return integerArithmetic(context, op[0], *intA, *intB);
  return floatArithmetic(op, *numberA, *numberB);
}
