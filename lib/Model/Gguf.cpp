//===- Gguf.cpp - Reading GGUF files --------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layout: magic, version (u32), number of tensors and of metadata entries
// (u64); entries: key, value type (u32), value; tensors: name, rank (u32),
// dimensions (u64, fastest first), type (u32), offset (u64); padding to the
// alignment; data. A string is a length (u64) and its bytes; an array an
// element type (u32), a count (u64) and the elements.
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Gguf.h"

#include "FileIO.h"
#include "stem/Model/TensorSource.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace stem;

namespace {

constexpr uint32_t maximumRank = 4;

struct TypeInfo {
  std::string_view name;
  uint64_t bytes; ///< of a value; for strings and arrays the least there can be
};

/// In the order of GgufType.
constexpr TypeInfo typeInfos[] = {
    {"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
    {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 8}, {"array", 12},
    {"u64", 8}, {"i64", 8}, {"f64", 8},
};

const TypeInfo &info(GgufType type) {
  return typeInfos[static_cast<uint32_t>(type)];
}

struct TensorType {
  uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;
};

constexpr TensorType tensorTypes[] = {
    {0, "F32", DType::F32},        {1, "F16", DType::F16},
    {2, "Q4_0", DType::Q4_0},      {3, "Q4_1", DType::Q4_1},
    {6, "Q5_0", DType::Q5_0},      {7, "Q5_1", DType::Q5_1},
    {8, "Q8_0", DType::Q8_0},      {9, "Q8_1", std::nullopt},
    {10, "Q2_K", std::nullopt},    {11, "Q3_K", std::nullopt},
    {12, "Q4_K", DType::Q4_K},     {13, "Q5_K", DType::Q5_K},
    {14, "Q6_K", DType::Q6_K},     {15, "Q8_K", std::nullopt},
    {16, "IQ2_XXS", std::nullopt}, {17, "IQ2_XS", std::nullopt},
    {18, "IQ3_XXS", std::nullopt}, {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", std::nullopt},  {21, "IQ3_S", std::nullopt},
    {22, "IQ2_S", std::nullopt},   {23, "IQ4_XS", std::nullopt},
    {24, "I8", DType::I8},         {25, "I16", DType::I16},
    {26, "I32", DType::I32},       {27, "I64", DType::I64},
    {28, "F64", DType::F64},       {29, "IQ1_M", std::nullopt},
    {30, "BF16", DType::BF16},     {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},   {39, "MXFP4", std::nullopt},
};

/// A cursor that never leaves its bytes.
class Reader {
public:
  Reader(std::span<const std::byte> bytes, const std::string &file)
      : bytes(bytes), file(file) {}

  uint64_t position() const { return at; }
  uint64_t remaining() const { return bytes.size() - at; }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > remaining())
      fail("{}: truncated or malformed: {} needs {} bytes at byte {}, {} are "
           "left",
           file, what, count, at, remaining());
    const auto result = bytes.subspan(at, count);
    at += count;
    return result;
  }

  template <typename T> T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string string(std::string_view what) {
    const auto data = take(number<uint64_t>(what), what);
    return std::string(reinterpret_cast<const char *>(data.data()),
                       data.size());
  }

  /// A number of things that take at least `leastBytes` each.
  uint64_t count(uint64_t value, uint64_t leastBytes, std::string_view what) {
    if (value > remaining() / leastBytes)
      fail("{}: malformed: {} {} do not fit in the {} bytes that are left",
           file, value, what, remaining());
    return value;
  }

  GgufType valueType(std::string_view key) {
    const auto type = number<uint32_t>(key);
    if (type >= std::size(typeInfos))
      fail("{}: metadata \"{}\" has the unknown value type {}", file,
           printable(key), type);
    return static_cast<GgufType>(type);
  }

  /// Walks over a value, so that it can be decoded later without checks.
  GgufValue value(GgufType type, std::string_view key, int depth = 0) {
    GgufValue result{type, type, 1, {}};
    const uint64_t start = at;
    if (type == GgufType::String) {
      take(number<uint64_t>(key), key);
    } else if (type == GgufType::Array) {
      if (depth == 4)
        fail("{}: metadata \"{}\" nests arrays too deeply", file,
             printable(key));
      result.elementType = valueType(key);
      result.count = count(number<uint64_t>(key),
                           info(result.elementType).bytes, "array elements");
      const uint64_t first = at;
      const bool hasFixedSize = result.elementType != GgufType::String &&
                                result.elementType != GgufType::Array;
      if (hasFixedSize)
        take(result.count * info(result.elementType).bytes, key);
      else
        for (uint64_t i = 0; i < result.count; ++i)
          value(result.elementType, key, depth + 1);
      result.data = bytes.subspan(first, at - first);
      return result;
    } else {
      take(info(type).bytes, key);
    }
    result.data = bytes.subspan(start, at - start);
    return result;
  }

private:
  std::span<const std::byte> bytes;
  const std::string &file;
  uint64_t at = 0;
};

template <typename T> T load(const std::byte *data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

/// An integer or bool; nothing for other types and beyond i64.
std::optional<int64_t> integerAt(GgufType type, const std::byte *data) {
  switch (type) {
  case GgufType::U8:
    return load<uint8_t>(data);
  case GgufType::Bool:
    return load<uint8_t>(data) != 0;
  case GgufType::I8:
    return load<int8_t>(data);
  case GgufType::U16:
    return load<uint16_t>(data);
  case GgufType::I16:
    return load<int16_t>(data);
  case GgufType::U32:
    return load<uint32_t>(data);
  case GgufType::I32:
    return load<int32_t>(data);
  case GgufType::I64:
    return load<int64_t>(data);
  case GgufType::U64:
    if (load<uint64_t>(data) > INT64_MAX)
      return std::nullopt;
    return static_cast<int64_t>(load<uint64_t>(data));
  default:
    return std::nullopt;
  }
}

std::optional<double> doubleAt(GgufType type, const std::byte *data) {
  if (type == GgufType::F32)
    return load<float>(data);
  if (type == GgufType::F64)
    return load<double>(data);
  if (const auto integer = integerAt(type, data))
    return static_cast<double>(*integer);
  return std::nullopt;
}

std::string stringAt(const std::byte *&data) {
  const auto length = load<uint64_t>(data);
  std::string result(reinterpret_cast<const char *>(data) + 8, length);
  data += 8 + length;
  return result;
}

uint64_t alignmentOf(const GgufFile &file) {
  const uint64_t alignment = file.getUnsigned("general.alignment").value_or(32);
  if (alignment == 0 || alignment % 8 || alignment > (1u << 20))
    fail("{}: general.alignment is {}; a multiple of 8 was expected",
         file.fileName(), alignment);
  return alignment;
}

/// What the file says about a tensor before its data is located.
struct TensorHeader {
  GgufTensor tensor;
  uint64_t bytes;
  uint64_t offset;
};

TensorHeader readTensorHeader(Reader &reader, const std::string &file) {
  TensorHeader header;
  GgufTensor &tensor = header.tensor;
  tensor.name = reader.string("a tensor name");
  const auto rank = reader.number<uint32_t>("a tensor's rank");
  if (rank > maximumRank)
    fail("{}: tensor \"{}\" has {} dimensions; at most {} are allowed", file,
         printable(tensor.name), rank, maximumRank);
  for (uint32_t i = 0; i < rank; ++i)
    tensor.shape.insert(tensor.shape.begin(),
                        reader.number<uint64_t>("a tensor's dimension"));
  const auto id = reader.number<uint32_t>("a tensor's type");
  const auto type =
      std::find_if(std::begin(tensorTypes), std::end(tensorTypes),
                   [&](const TensorType &t) { return t.id == id; });
  if (type == std::end(tensorTypes) || !type->dtype)
    fail("{}: tensor \"{}\" has type {}, which is not supported; F32, F16, "
         "BF16, "
         "Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are",
         file, printable(tensor.name),
         type == std::end(tensorTypes) ? fmt::format("number {}", id)
                                       : std::string(type->name));
  tensor.dtype = *type->dtype;
  const auto elements = elementCount(tensor.shape);
  const uint64_t rowLength = tensor.shape.empty() ? 1 : tensor.shape.back();
  const auto bytes =
      elements && rowLength % dtypeBlockElements(tensor.dtype) == 0
          ? dtypeBytes(tensor.dtype, *elements)
          : std::nullopt;
  if (!bytes)
    fail("{}: tensor \"{}\": shape {} overflows or its rows do not fill blocks "
         "of {} elements ({})",
         file, printable(tensor.name), formatShape(tensor.shape),
         dtypeBlockElements(tensor.dtype), dtypeName(tensor.dtype));
  header.bytes = *bytes;
  header.offset = reader.number<uint64_t>("a tensor's offset");
  return header;
}

void checkNoOverlap(std::vector<GgufTensor> &tensors, const std::string &file) {
  std::vector<const GgufTensor *> order;
  for (const GgufTensor &tensor : tensors)
    if (!tensor.data.empty())
      order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const GgufTensor *a, const GgufTensor *b) {
              return a->data.data() < b->data.data();
            });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->data.data() + order[i - 1]->data.size() >
        order[i]->data.data())
      fail("{}: tensors \"{}\" and \"{}\" overlap", file,
           printable(order[i - 1]->name), printable(order[i]->name));
}

void checkMagic(std::span<const std::byte> bytes, const std::string &file) {
  const bool isGguf =
      bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  if (isGguf)
    return;
  const std::string foreign = foreignFormat(bytes);
  fail("{}: not a GGUF file{}{}", file, foreign.empty() ? "" : ": it is ",
       foreign);
}

} // namespace

std::string_view stem::ggufTypeName(GgufType type) { return info(type).name; }

GgufFile::GgufFile() = default;
GgufFile::GgufFile(GgufFile &&) noexcept = default;
GgufFile &GgufFile::operator=(GgufFile &&) noexcept = default;
GgufFile::~GgufFile() = default;

GgufFile GgufFile::open(const std::filesystem::path &path) {
  GgufFile result;
  result.name = path.string();
  result.file = std::make_unique<MappedFile>(path);
  result.parseBytes(result.file->bytes());
  return result;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile result;
  result.name = std::move(name);
  result.parseBytes(bytes);
  return result;
}

void GgufFile::parseBytes(std::span<const std::byte> bytes) {
  checkMagic(bytes, name);
  Reader reader(bytes, name);
  reader.take(4, "the magic");
  formatVersion = reader.number<uint32_t>("the version");
  if (formatVersion != 2 && formatVersion != 3)
    fail("{}: GGUF version {} is not supported{}; 2 and 3 are, little-endian",
         name, formatVersion,
         formatVersion & 0xffff ? "" : " (a big-endian file)");
  const auto tensorCount = reader.number<uint64_t>("the tensor count");
  const auto valueCount = reader.number<uint64_t>("the metadata count");
  // At least a length and a type; a length, a rank, a type and an offset.
  reader.count(valueCount, 8 + 4 + 1, "metadata entries");
  for (uint64_t i = 0; i < valueCount; ++i) {
    std::string key = reader.string("a metadata key");
    const GgufType type = reader.valueType(key);
    const GgufValue value = reader.value(type, key);
    if (!values.emplace(key, value).second)
      fail("{}: metadata \"{}\" appears twice", name, printable(key));
  }

  reader.count(tensorCount, 8 + 4 + 4 + 8, "tensors");
  std::vector<TensorHeader> headers;
  for (uint64_t i = 0; i < tensorCount; ++i)
    headers.push_back(readTensorHeader(reader, name));
  const uint64_t alignment = alignmentOf(*this);
  const uint64_t start =
      (reader.position() + alignment - 1) / alignment * alignment;
  const uint64_t dataBytes = bytes.size() > start ? bytes.size() - start : 0;
  for (TensorHeader &header : headers) {
    if (header.offset % alignment || header.offset > dataBytes ||
        header.bytes > dataBytes - header.offset)
      fail("{}: tensor \"{}\": {} bytes at offset {} do not fit in {} bytes of "
           "data (alignment {}); the file is truncated or malformed",
           name, printable(header.tensor.name), header.bytes, header.offset,
           dataBytes, alignment);
    if (header.bytes)
      header.tensor.data = bytes.subspan(start + header.offset, header.bytes);
    if (!tensorIndex.emplace(header.tensor.name, tensorList.size()).second)
      fail("{}: tensor \"{}\" appears twice", name,
           printable(header.tensor.name));
    tensorList.push_back(std::move(header.tensor));
  }
  checkNoOverlap(tensorList, name);
}

const GgufValue *GgufFile::metadata(std::string_view key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

const GgufTensor *GgufFile::findTensor(std::string_view tensorName) const {
  const auto found = tensorIndex.find(tensorName);
  return found == tensorIndex.end() ? nullptr : &tensorList[found->second];
}

void GgufFile::release(std::span<const std::byte> data) const {
  if (file)
    file->release(data);
}

void GgufFile::wrongType(std::string_view key, const GgufValue &value,
                         std::string_view wanted) const {
  const bool isArray = value.type == GgufType::Array;
  fail("{}: metadata \"{}\" is {}{}; {} was expected", name, key,
       isArray ? "an array of " : "of type ",
       ggufTypeName(isArray ? value.elementType : value.type), wanted);
}

std::optional<std::string> GgufFile::getString(std::string_view key) const {
  const GgufValue *value = metadata(key);
  if (!value)
    return std::nullopt;
  if (value->type != GgufType::String)
    wrongType(key, *value, "a string");
  const std::byte *data = value->data.data();
  return stringAt(data);
}

std::optional<int64_t> GgufFile::getSigned(std::string_view key) const {
  const GgufValue *value = metadata(key);
  if (!value)
    return std::nullopt;
  const auto integer = integerAt(value->type, value->data.data());
  if (!integer)
    wrongType(key, *value, "an integer within 64 bits, signed,");
  return integer;
}

std::optional<uint64_t> GgufFile::getUnsigned(std::string_view key) const {
  const GgufValue *value = metadata(key);
  if (value && value->type == GgufType::U64)
    return load<uint64_t>(value->data.data());
  const auto integer = getSigned(key);
  if (integer && *integer < 0)
    fail("{}: metadata \"{}\" is {}; no negative number was expected", name,
         key, *integer);
  return integer ? std::optional<uint64_t>(*integer) : std::nullopt;
}

std::optional<double> GgufFile::getDouble(std::string_view key) const {
  const GgufValue *value = metadata(key);
  if (!value)
    return std::nullopt;
  const auto number = doubleAt(value->type, value->data.data());
  if (!number)
    wrongType(key, *value, "a number");
  return number;
}

std::optional<bool> GgufFile::getBool(std::string_view key) const {
  const GgufValue *value = metadata(key);
  if (!value)
    return std::nullopt;
  if (value->type != GgufType::Bool)
    wrongType(key, *value, "a bool");
  return load<uint8_t>(value->data.data()) != 0;
}

std::optional<std::vector<std::string>>
GgufFile::getStrings(std::string_view key) const {
  const GgufValue *value = metadata(key);
  if (!value)
    return std::nullopt;
  if (value->type != GgufType::Array || value->elementType != GgufType::String)
    wrongType(key, *value, "an array of strings");
  std::vector<std::string> result;
  result.reserve(value->count);
  const std::byte *data = value->data.data();
  for (uint64_t i = 0; i < value->count; ++i)
    result.push_back(stringAt(data));
  return result;
}

std::optional<std::vector<int64_t>>
GgufFile::getIntegers(std::string_view key) const {
  const GgufValue *value = metadata(key);
  if (!value)
    return std::nullopt;
  std::vector<int64_t> result;
  const uint64_t bytes = info(value->elementType).bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto integer =
        value->type == GgufType::Array
            ? integerAt(value->elementType, value->data.data() + i * bytes)
            : std::nullopt;
    if (!integer)
      wrongType(key, *value, "an array of integers");
    result.push_back(*integer);
  }
  return result;
}

std::optional<std::vector<double>>
GgufFile::getDoubles(std::string_view key) const {
  const GgufValue *value = metadata(key);
  if (!value)
    return std::nullopt;
  std::vector<double> result;
  const uint64_t bytes = info(value->elementType).bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number =
        value->type == GgufType::Array
            ? doubleAt(value->elementType, value->data.data() + i * bytes)
            : std::nullopt;
    if (!number)
      wrongType(key, *value, "an array of numbers");
    result.push_back(*number);
  }
  return result;
}
