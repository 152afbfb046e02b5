//===- Safetensors.cpp - Reading safetensors ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layout: header length N (u64, little-endian), N bytes of JSON, then the data.
// Each header entry is name → {dtype, shape, data_offsets [begin, end)} with
// offsets from the start of the data.
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Safetensors.h"

#include "FileIO.h"
#include "stem/Model/TensorSource.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

using namespace stem;

namespace {

constexpr uint64_t maximumHeaderBytes = 100'000'000;

struct HeaderEntry {
  std::string name;
  std::optional<DType> dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool hasShape = false;
};

/// Reads the header event by event, so that memory follows the number of real
/// tensors and not the JSON tree.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
public:
  explicit HeaderReader(const std::string &file) : file(file) {}

  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string syntaxError;

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override {
    unexpected("a negative number");
  }
  bool number_float(number_float_t, const string_t &) override {
    unexpected("a number that is not an integer below 2^64");
  }
  bool binary(binary_t &) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place != Place::Array)
      unexpected("a number");
    if (array->size() == maximumRank)
      fail("{}: tensor \"{}\": more than {} numbers in \"{}\"", file,
           printable(entries.back().name), maximumRank, field);
    array->push_back(value);
    return true;
  }

  bool string(string_t &value) override {
    if (place == Place::Metadata) {
      metadata[field] = value;
      return true;
    }
    if (place != Place::Tensor || field != "dtype")
      unexpected("a string");
    entries.back().dtype = dtypeFromName(value);
    if (!entries.back().dtype)
      fail("{}: tensor \"{}\": unknown dtype \"{}\"", file,
           printable(entries.back().name), printable(value));
    return true;
  }

  bool start_object(std::size_t) override {
    if (place == Place::Before)
      place = Place::Top;
    else if (place == Place::Top && field == "__metadata__")
      place = Place::Metadata;
    else if (place == Place::Top) {
      place = Place::Tensor;
      entries.emplace_back().name = field;
    } else
      unexpected("an object");
    field.clear();
    return true;
  }

  bool key(string_t &name) override {
    field = name;
    if (place == Place::Metadata && metadata.count(name))
      fail("{}: __metadata__ has key \"{}\" twice", file, printable(name));
    if (place == Place::Tensor) {
      const HeaderEntry &entry = entries.back();
      const bool isTwice = (name == "dtype" && entry.dtype) ||
                           (name == "shape" && entry.hasShape) ||
                           (name == "data_offsets" && !entry.offsets.empty());
      if (isTwice)
        fail("{}: tensor \"{}\" has \"{}\" twice", file, printable(entry.name),
             name);
      if (name != "dtype" && name != "shape" && name != "data_offsets")
        fail("{}: tensor \"{}\" has the unknown field \"{}\"", file,
             printable(entry.name), printable(name));
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place != Place::Tensor || field == "dtype")
      unexpected("an array");
    HeaderEntry &entry = entries.back();
    entry.hasShape |= field == "shape";
    array = field == "shape" ? &entry.shape : &entry.offsets;
    place = Place::Array;
    return true;
  }

  bool end_array() override {
    place = Place::Tensor;
    return true;
  }

  bool end_object() override {
    if (place == Place::Tensor) {
      const HeaderEntry &entry = entries.back();
      if (!entry.dtype || !entry.hasShape || entry.offsets.size() != 2)
        fail("{}: tensor \"{}\" needs dtype, shape and two data_offsets", file,
             printable(entry.name));
    }
    place = place == Place::Top ? Place::After : Place::Top;
    return true;
  }

  bool parse_error(std::size_t, const std::string &,
                   const nlohmann::detail::exception &error) override {
    syntaxError = error.what();
    return false;
  }

private:
  static constexpr size_t maximumRank = 16;
  enum class Place { Before, Top, Metadata, Tensor, Array, After };

  [[noreturn]] void unexpected(std::string_view what) const {
    if (place == Place::Before)
      fail("{}: the header must be a JSON object, found {}", file, what);
    if (entries.empty() || place == Place::Top || place == Place::Metadata)
      fail("{}: the header has {} for \"{}\"", file, what, printable(field));
    fail("{}: tensor \"{}\" has {} in \"{}\"", file,
         printable(entries.back().name), what, printable(field));
  }

  const std::string &file;
  Place place = Place::Before;
  std::string field;
  std::vector<uint64_t> *array = nullptr;
};

/// Size from shape and dtype against the offsets, then: sorted by offset, the
/// tensors must fill the data without holes or overlap.
void checkEntries(std::vector<HeaderEntry> &entries, uint64_t dataBytes,
                  const std::string &file) {
  for (const HeaderEntry &entry : entries) {
    const uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    const auto elements = elementCount(entry.shape);
    if (!elements)
      fail("{}: tensor \"{}\": the product of shape {} overflows", file,
           printable(entry.name), formatShape(entry.shape));
    const auto bytes = dtypeBytes(*entry.dtype, *elements);
    if (!bytes)
      fail("{}: tensor \"{}\": {} elements of {} do not make whole bytes", file,
           printable(entry.name), *elements, dtypeName(*entry.dtype));
    if (end < begin || *bytes != end - begin)
      fail("{}: tensor \"{}\": {} {} takes {} bytes but its data_offsets are "
           "[{}, {}]",
           file, printable(entry.name), dtypeName(*entry.dtype),
           formatShape(entry.shape), *bytes, begin, end);
  }
  std::sort(entries.begin(), entries.end(),
            [](const HeaderEntry &a, const HeaderEntry &b) {
              return a.offsets < b.offsets;
            });
  uint64_t expected = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint64_t begin = entries[i].offsets[0];
    if (begin < expected)
      fail(
          "{}: tensor \"{}\" begins at byte {} inside tensor \"{}\"; two names "
          "for one range are not allowed, write tied weights once",
          file, printable(entries[i].name), begin,
          printable(entries[i - 1].name));
    if (begin > expected)
      fail(
          "{}: tensor \"{}\" begins at byte {}, but the data before it ends at "
          "byte {}",
          file, printable(entries[i].name), begin, expected);
    expected = entries[i].offsets[1];
  }
  if (expected > dataBytes)
    fail("{}: truncated: the header describes {} bytes of data, the file has "
         "{}; download it again",
         file, expected, dataBytes);
  if (expected < dataBytes)
    fail(
        "{}: {} bytes follow the last tensor; the header describes {} bytes of "
        "data, the file has {}",
        file, dataBytes - expected, expected, dataBytes);
}

/// The header's length, checked against the limit and the file.
uint64_t readHeaderLength(std::span<const std::byte> bytes,
                          const std::string &file) {
  // A header length can look like another format's magic, so the brace decides.
  const bool hasBrace = bytes.size() > 8 && bytes[8] == std::byte{'{'};
  const std::string foreign = hasBrace ? "" : foreignFormat(bytes);
  if (!foreign.empty())
    fail("{}: not a safetensors file: it is {}", file, foreign);
  uint64_t length;
  if (bytes.size() < sizeof(length))
    fail("{}: header too small: {} bytes, a safetensors file has at least 8{}",
         file, bytes.size(),
         bytes.empty() ? " (the file is empty; download it again)" : "");
  std::memcpy(&length, bytes.data(), sizeof(length));
  const bool fits = length <= bytes.size() - sizeof(length);
  if (length > maximumHeaderBytes && fits)
    fail("{}: the header takes {} bytes, the limit of the format is {}; save "
         "the model in several files (shards)",
         file, length, maximumHeaderBytes);
  if (!fits)
    fail(
        "{}: header length {} {} and exceeds the file of {} bytes; the file is "
        "truncated or not safetensors",
        file, length,
        length > maximumHeaderBytes ? "is too large (limit 100000000)"
                                    : "is declared",
        bytes.size());
  return length;
}

} // namespace

SafetensorsFile::SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile &&) noexcept = default;
SafetensorsFile &
SafetensorsFile::operator=(SafetensorsFile &&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

SafetensorsFile SafetensorsFile::open(const std::filesystem::path &path) {
  SafetensorsFile result;
  result.name = path.string();
  result.file = std::make_unique<MappedFile>(path);
  result.parseBytes(result.file->bytes());
  return result;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes,
                                       std::string name) {
  SafetensorsFile result;
  result.name = std::move(name);
  result.parseBytes(bytes);
  return result;
}

void SafetensorsFile::parseBytes(std::span<const std::byte> bytes) {
  const uint64_t headerLength = readHeaderLength(bytes, name);
  const char *header = reinterpret_cast<const char *>(bytes.data()) + 8;
  HeaderReader reader(name);
  if (!nlohmann::json::sax_parse(header, header + headerLength, &reader))
    fail("{}: the header is not valid JSON in UTF-8: {}", name,
         printable(reader.syntaxError));
  const auto data = bytes.subspan(8 + headerLength);
  checkEntries(reader.entries, data.size(), name);

  views.reserve(reader.entries.size());
  for (HeaderEntry &entry : reader.entries) {
    if (!index.emplace(entry.name, views.size()).second)
      fail("{}: tensor \"{}\" appears twice in the header", name,
           printable(entry.name));
    views.push_back(
        {std::move(entry.name), *entry.dtype, std::move(entry.shape),
         data.subspan(entry.offsets[0], entry.offsets[1] - entry.offsets[0])});
  }
  metadataMap = std::move(reader.metadata);
}

const TensorView *SafetensorsFile::find(std::string_view tensorName) const {
  const auto found = index.find(tensorName);
  return found == index.end() ? nullptr : &views[found->second];
}

const TensorView &SafetensorsFile::get(std::string_view tensorName) const {
  if (const TensorView *view = find(tensorName))
    return *view;
  fail("{}: there is no tensor \"{}\"", name, printable(tensorName));
}

uint64_t SafetensorsFile::offsetOf(std::span<const std::byte> data) const {
  return static_cast<uint64_t>(data.data() - file->bytes().data());
}

void SafetensorsFile::release(std::span<const std::byte> data) const {
  if (file)
    file->release(data);
}
