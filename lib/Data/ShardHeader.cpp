//===- ShardHeader.cpp - The metadata of a token shard --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ShardHeader.h"

#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include <charconv>
#include <nlohmann/json.hpp>

using namespace stem;
using Json = nlohmann::json;

static std::string tokenText(std::optional<int32_t> id) {
  return id ? std::to_string(*id) : "none";
}

std::map<std::string, std::string> ShardHeader::toMetadata() const {
  Json list = Json::array();
  for (const SourceText &source : sources)
    list.push_back({{"name", source.name},
                    {"bytes", source.bytes},
                    {"sha256", source.sha256}});
  return {
      {"format", shardFormat},
      {"version", shardVersion},
      {"tokenizer_sha256", settings.tokenizerSha256},
      {"vocabulary", std::to_string(settings.vocabulary)},
      {"begin_token", tokenText(settings.beginToken)},
      {"end_token", tokenText(settings.endToken)},
      {"special_tokens", settings.parsesSpecial ? "parsed" : "text"},
      {"separator", settings.separator},
      {"tokens_sha256", tokensSha256},
      {"document_ends_sha256", endsSha256},
      // A name need not be UTF-8.
      {"sources", list.dump(-1, ' ', false, Json::error_handler_t::replace)}};
}

namespace {

bool isSha256(const std::string &text) {
  return text.size() == 64 &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// False where the value describes no text.
bool addSource(const Json &value, std::vector<SourceText> &sources) {
  const auto has = [&](const char *key, Json::value_t type) {
    return value.is_object() && value.contains(key) &&
           value[key].type() == type;
  };
  if (!has("name", Json::value_t::string) ||
      !has("bytes", Json::value_t::number_unsigned) ||
      !has("sha256", Json::value_t::string))
    return false;
  sources.push_back({value["name"], value["bytes"], value["sha256"]});
  return isSha256(sources.back().sha256);
}

/// Entries of the metadata by key, each with its own complaint.
class Entries {
public:
  explicit Entries(const SafetensorsFile &file) : file(file) {}

  const std::string &text(const std::string &key) const {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end())
      fail("{}: its metadata has no \"{}\"; {}", file.fileName(), key,
           shardAdvice);
    return found->second;
  }

  [[noreturn]] void refuse(const std::string &key,
                           const std::string &wanted) const {
    fail("{}: \"{}\" in its metadata is \"{}\", which is not {}; {}",
         file.fileName(), key, printable(text(key)), wanted, shardAdvice);
  }

  int64_t number(const std::string &key, int64_t least, int64_t limit) const {
    const std::string &value = text(key);
    int64_t result = -1;
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() ||
        result < least || result >= limit)
      refuse(key, fmt::format("a number from {} to {}", least, limit - 1));
    return result;
  }

  std::optional<int32_t> token(const std::string &key,
                               int64_t vocabulary) const {
    if (text(key) == "none")
      return std::nullopt;
    return static_cast<int32_t>(number(key, 0, vocabulary));
  }

  std::string sha256(const std::string &key) const {
    if (!isSha256(text(key)))
      refuse(key, "a SHA-256 in hex");
    return text(key);
  }

  bool choice(const std::string &key, const char *no, const char *yes) const {
    const std::string &value = text(key);
    if (value != no && value != yes)
      refuse(key, fmt::format("\"{}\" or \"{}\"", no, yes));
    return value == yes;
  }

  std::vector<SourceText> sources(const std::string &key) const {
    const Json list =
        Json::parse(text(key), nullptr, /*allow_exceptions=*/false);
    std::vector<SourceText> result;
    bool isGood = list.is_array();
    for (size_t i = 0; isGood && i < list.size(); ++i)
      isGood = addSource(list[i], result);
    if (!isGood)
      refuse(key, "a list of texts with name, bytes and sha256");
    return result;
  }

private:
  const SafetensorsFile &file;
};

} // namespace

ShardHeader ShardHeader::parse(const SafetensorsFile &file) {
  const auto &metadata = file.metadata();
  const auto format = metadata.find("format");
  if (format == metadata.end() || format->second != shardFormat)
    fail("{}: is a safetensors file, but no token shard (its \"format\" is "
         "{}, not \"{}\"); give another --shard",
         file.fileName(),
         format == metadata.end()
             ? "missing"
             : fmt::format("\"{}\"", printable(format->second)),
         shardFormat);
  const Entries entries(file);
  if (entries.text("version") != shardVersion)
    fail("{}: is a token shard of version {}, this program reads version {}; "
         "{}",
         file.fileName(), printable(entries.text("version")), shardVersion,
         shardAdvice);

  ShardHeader header;
  ShardSettings &settings = header.settings;
  settings.tokenizerSha256 = entries.sha256("tokenizer_sha256");
  settings.vocabulary = entries.number("vocabulary", 1, int64_t{1} << 31);
  settings.beginToken = entries.token("begin_token", settings.vocabulary);
  settings.endToken = entries.token("end_token", settings.vocabulary);
  settings.parsesSpecial = entries.choice("special_tokens", "text", "parsed");
  settings.separator = entries.text("separator");
  header.tokensSha256 = entries.sha256("tokens_sha256");
  header.endsSha256 = entries.sha256("document_ends_sha256");
  header.sources = entries.sources("sources");
  return header;
}
