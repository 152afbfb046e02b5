//===- Gguf.h - Reading GGUF files ------------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A GGUF file as it is: metadata and tensors under their own names. The view of
// it as a Hugging Face checkpoint (names, shapes, row order, config.json) is in
// GgufCheckpoint.h.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_GGUF_H
#define STEM_MODEL_GGUF_H

#include "stem/Model/DType.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

class MappedFile;

/// The value types of GGUF metadata, numbered as in the format.
enum class GgufType : uint32_t {
  U8 = 0,
  I8 = 1,
  U16 = 2,
  I16 = 3,
  U32 = 4,
  I32 = 5,
  F32 = 6,
  Bool = 7,
  String = 8,
  Array = 9,
  U64 = 10,
  I64 = 11,
  F64 = 12,
};

/// "u32", "string", …
std::string_view ggufTypeName(GgufType type);

/// A metadata value: checked when the file is opened, decoded when asked for.
struct GgufValue {
  GgufType type;
  GgufType elementType; ///< of an array
  uint64_t count;       ///< of an array's elements, else 1
  std::span<const std::byte> data;
};

struct GgufTensor {
  std::string name;
  DType dtype;
  /// Slowest dimension first, as in safetensors (the file stores it reversed).
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;
};

/// Versions 2 and 3, little-endian. Every length is checked against the file
/// before it is used. The object may be moved; the spans it gives live as long
/// as it does.
class GgufFile {
public:
  static GgufFile open(const std::filesystem::path &path);

  /// Reads from memory that outlives the result; `name` stands for the file in
  /// messages.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  GgufFile(GgufFile &&) noexcept;
  GgufFile &operator=(GgufFile &&) noexcept;
  ~GgufFile();

  const std::string &fileName() const { return name; }
  uint32_t version() const { return formatVersion; }

  /// All keys with their values, sorted by key.
  const std::map<std::string, GgufValue, std::less<>> &metadata() const {
    return values;
  }
  const GgufValue *metadata(std::string_view key) const;
  bool has(std::string_view key) const { return metadata(key) != nullptr; }

  /// \name Typed access
  /// Empty when the key is absent; an Error that names key, the type found and
  /// the type wanted when the value has another type. Any integer type (and
  /// bool) that holds a value in range serves as an integer, any number as a
  /// double.
  /// @{
  std::optional<std::string> getString(std::string_view key) const;
  std::optional<uint64_t> getUnsigned(std::string_view key) const;
  std::optional<int64_t> getSigned(std::string_view key) const;
  std::optional<double> getDouble(std::string_view key) const;
  std::optional<bool> getBool(std::string_view key) const;
  std::optional<std::vector<std::string>>
  getStrings(std::string_view key) const;
  std::optional<std::vector<int64_t>> getIntegers(std::string_view key) const;
  std::optional<std::vector<double>> getDoubles(std::string_view key) const;
  /// @}

  /// In the order of the file.
  const std::vector<GgufTensor> &tensors() const { return tensorList; }
  const GgufTensor *findTensor(std::string_view name) const;

  /// Lets the system drop the pages of `data`, which must come from this file.
  void release(std::span<const std::byte> data) const;

private:
  GgufFile();
  void parseBytes(std::span<const std::byte> bytes);
  [[noreturn]] void wrongType(std::string_view key, const GgufValue &value,
                              std::string_view wanted) const;

  std::string name;
  uint32_t formatVersion = 0;
  std::unique_ptr<MappedFile> file;
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<GgufTensor> tensorList;
  std::map<std::string, size_t, std::less<>> tensorIndex;
};

} // namespace stem

#endif // STEM_MODEL_GGUF_H
