//===- TokenNames.cpp - Tokens as a user names them -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenNames.h"

#include "CommandLine.h"
#include "Tokenizing.h"
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

using namespace stem;

namespace {

bool isDigits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// '"text"', as JSON has it: quotes and controls escaped.
std::string inQuotes(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false,
                                   nlohmann::json::error_handler_t::replace);
}

/// Where a JSON string that begins `text` ends: behind its closing quote.
size_t endOfQuoted(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  return std::string_view::npos;
}

std::vector<std::string> formsOf(const TokenName &name) {
  if (name.isWord)
    return {name.text, " " + name.text};
  return {name.text};
}

} // namespace

TokenName TokenName::parse(std::string_view text, const std::string &where) {
  TokenName name;
  if (text.empty())
    fail("{}: a token has no name; give an id, a word, or a text in quotes",
         where);
  if (isDigits(text)) {
    int64_t id = 0;
    const auto [rest, code] =
        std::from_chars(text.data(), text.data() + text.size(), id);
    if (code != std::errc())
      fail("{}: {} is too large for a token id", where, text);
    name.id = id;
    return name;
  }
  if (text.front() != '"') {
    name.text = text;
    name.isWord = true;
    return name;
  }
  const auto json =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_string() || json.get_ref<const std::string &>().empty())
    fail("{}: {} begins with a quote but is no JSON string with a text", where,
         printable(text));
  name.text = json.get<std::string>();
  return name;
}

const Tokenizer &TokenFinder::textTokenizer() {
  if (!tokenizer)
    tokenizer = requireTokenizer(checkpoint, "name tokens by their ids");
  return *tokenizer;
}

std::vector<int32_t> TokenFinder::encode(const std::string &text,
                                         const std::string &where) {
  try {
    return textTokenizer().encode(
        text, {.addSpecialTokens = false, .parseSpecial = false});
  } catch (const Error &error) {
    fail("{}: {}", where, error.what());
  }
}

std::string TokenFinder::spelled(int32_t id) const {
  const std::string text = tokenizer->decode({id}, /*skipSpecial=*/false);
  return inQuotes(text);
}

std::string TokenFinder::describe(int32_t id) const {
  return tokenizer ? fmt::format("{} ({})", spelled(id), id)
                   : fmt::format("{}", id);
}

std::vector<std::optional<int32_t>>
TokenFinder::find(const TokenName &name, const std::string &where) {
  if (name.id)
    return {
        checkedIds({&*name.id, 1}, checkpoint.config().vocabSize, where)[0]};
  std::vector<std::optional<int32_t>> result;
  for (const std::string &form : formsOf(name)) {
    const std::vector<int32_t> ids = encode(form, where);
    result.push_back(ids.size() == 1 ? std::optional(ids[0]) : std::nullopt);
  }
  return result;
}

std::vector<int32_t> TokenFinder::require(const TokenName &name,
                                          const std::string &where) {
  std::vector<int32_t> ids;
  for (const std::optional<int32_t> id : find(name, where))
    if (id)
      ids.push_back(*id);
  if (ids.empty())
    refuse(name, where);
  return ids;
}

void TokenFinder::refuse(const TokenName &name, const std::string &where) {
  std::string forms;
  for (const std::string &form : formsOf(name)) {
    std::string tokens;
    for (const int32_t id : encode(form, where))
      tokens += (tokens.empty() ? "" : " ") + describe(id);
    forms += fmt::format("{}{} is {}", forms.empty() ? "" : ", ",
                         inQuotes(form), tokens.empty() ? "no token" : tokens);
  }
  fail("{}: a row is of one token, but {}; name a text that is one token, or "
       "an id",
       where, forms);
}

std::vector<int32_t> stem::readTokenList(const Checkpoint &checkpoint,
                                         const std::filesystem::path &path) {
  TokenFinder finder(checkpoint);
  const std::string text = readText(path);
  std::set<int32_t> ids;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++number;
    constexpr std::string_view blanks = " \t\r";
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    line = line.substr(0, line.find_last_not_of(blanks) + 1);
    if (line.empty())
      continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    for (const int32_t id :
         finder.require(TokenName::parse(line, where), where))
      ids.insert(id);
  }
  if (ids.empty())
    fail("{}: names no token; give an id, a word, or a text in quotes on each "
         "line",
         path.string());
  return {ids.begin(), ids.end()};
}

TokenSwap TokenSwap::parse(const std::string &text) {
  const std::string where = "--swap-rows=" + printable(text);
  const size_t end = text.starts_with('"') ? endOfQuoted(text) : text.find('=');
  if (end == std::string::npos || end >= text.size() || text[end] != '=')
    throw UsageError(where + ": give LEFT=RIGHT, two tokens; LEFT gets the "
                             "row of RIGHT");
  const std::string_view view = text;
  try {
    return {text, TokenName::parse(view.substr(0, end), where),
            TokenName::parse(view.substr(end + 1), where)};
  } catch (const Error &error) {
    throw UsageError(error.what());
  }
}

namespace {

/// Left tokens and the right ones whose rows they get.
class SwapList {
public:
  explicit SwapList(const Checkpoint &checkpoint)
      : checkpoint(checkpoint), finder(checkpoint) {}

  void add(const TokenSwap &swap) {
    const std::string where = "--swap-rows=" + printable(swap.given);
    if (swap.left.isWord != swap.right.isWord)
      fail("{}: one side is a word, with and without a space before it, the "
           "other a single token; give two words, or ids and quoted texts",
           where);
    const auto left = finder.find(swap.left, where);
    const auto right = finder.find(swap.right, where);
    bool isFound = false;
    for (size_t form = 0; form < left.size(); ++form)
      if (left[form] && right[form]) {
        addPair(*left[form], *right[form], where);
        isFound = true;
      }
    if (!isFound)
      refuse(swap, left, right, where);
  }

  const std::map<int32_t, int32_t> &pairs() const { return rightOf; }

private:
  [[noreturn]] void refuse(const TokenSwap &swap,
                           const std::vector<std::optional<int32_t>> &left,
                           const std::vector<std::optional<int32_t>> &right,
                           const std::string &where) {
    const auto isToken = [](const std::optional<int32_t> &id) {
      return id.has_value();
    };
    if (std::ranges::none_of(left, isToken))
      finder.refuse(swap.left, where);
    if (std::ranges::none_of(right, isToken))
      finder.refuse(swap.right, where);
    fail("{}: {} is one token {} a space before it, {} {}; name both by id or "
         "quoted text",
         where, printable(swap.left.text), left[1] ? "with" : "without",
         printable(swap.right.text), right[1] ? "with" : "without");
  }

  void addPair(int32_t left, int32_t right, const std::string &where) {
    if (left == right)
      fail("{}: {} is on both sides", where, finder.describe(left));
    if (!rightOf.emplace(left, right).second)
      fail("{}: {} gets a row twice", where, finder.describe(left));
    printNote(fmt::format("{} gets the row of {} in {} layers",
                          finder.describe(left), finder.describe(right),
                          tableLayers(checkpoint).size()));
  }

  const Checkpoint &checkpoint;
  TokenFinder finder;
  std::map<int32_t, int32_t> rightOf;
};

} // namespace

RowOverlay stem::swapRows(const Checkpoint &checkpoint,
                          const std::vector<TokenSwap> &swaps) {
  RowOverlay overlay;
  overlay.name = "--swap-rows";
  if (tableLayers(checkpoint).empty())
    fail("--swap-rows: {} has no tables: no layer of it is a STEM layer; "
         "stem-run convert makes such a model",
         checkpoint.path().string());
  SwapList list(checkpoint);
  for (const TokenSwap &swap : swaps)
    list.add(swap);
  std::vector<int32_t> all;
  for (const auto &[left, right] : list.pairs()) {
    overlay.ids.push_back(left);
    all.insert(all.end(), {left, right});
  }
  std::ranges::sort(all);
  warnOfSelectedRows(checkpoint, all, "--swap-rows");
  const TensorSource &source = checkpoint.tensors();
  for (const uint64_t layer : tableLayers(checkpoint)) {
    const TensorInfo &info =
        source.get(checkpoint.weights().layers[layer].upTable);
    const uint64_t rowBytes = info.bytes / info.rows();
    RowOverlay::Table table{
        layer, info.dtype, info.rowElements(),
        std::vector<std::byte>(overlay.ids.size() * rowBytes)};
    std::byte *out = table.rows.data();
    for (const auto &[left, right] : list.pairs()) {
      source.readRaw(info.name, static_cast<uint64_t>(right), 1, out);
      out += rowBytes;
    }
    overlay.tables.push_back(std::move(table));
  }
  return overlay;
}

template <typename T>
static std::vector<int64_t> readIds(const TensorSource &source,
                                    const TensorInfo &info) {
  std::vector<T> ids(info.elements());
  source.readRaw(info.name, 0, info.rows(),
                 reinterpret_cast<std::byte *>(ids.data()));
  return {ids.begin(), ids.end()};
}

void stem::warnOfSelectedRows(const Checkpoint &checkpoint,
                              std::span<const int32_t> ids,
                              const std::string &where) {
  const std::vector<LayerWeights> &layers = checkpoint.weights().layers;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].upSelectIds.empty())
      continue;
    const TensorInfo &info =
        checkpoint.tensors().get(layers[layer].upSelectIds);
    const std::vector<int64_t> selected =
        info.dtype == DType::I64 ? readIds<int64_t>(checkpoint.tensors(), info)
                                 : readIds<int32_t>(checkpoint.tensors(), info);
    std::string unread;
    for (const int32_t id : ids)
      if (std::ranges::binary_search(selected, int64_t{id}) &&
          !unread.ends_with(fmt::format(" {}", id)))
        unread += fmt::format("{} {}", unread.empty() ? "" : ",", id);
    if (!unread.empty())
      printWarning(fmt::format("{}: layer {} computes with the matrix for{}: "
                               "it reads no row of theirs",
                               where, layer, unread));
  }
}
