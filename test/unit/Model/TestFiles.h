//===- TestFiles.h - Checkpoint files that tests write ---*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_MODEL_TESTFILES_H
#define STEM_TEST_UNIT_MODEL_TESTFILES_H

#include "../Support/TestFiles.h"

#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace stem::test {

inline std::span<const std::byte> bytesOf(const std::string &text) {
  return std::as_bytes(std::span(text));
}

template <typename T>
std::span<const std::byte> bytesOf(const std::vector<T> &values) {
  return std::as_bytes(std::span(values));
}

/// Little-endian bytes of a number.
template <typename T> std::string raw(T value) {
  std::string result(sizeof(T), '\0');
  std::memcpy(result.data(), &value, sizeof(T));
  return result;
}

/// A safetensors file from its header text and data.
inline std::string safetensors(const std::string &header,
                               const std::string &data = "") {
  return raw<uint64_t>(header.size()) + header + data;
}

/// Puts a GGUF file together piece by piece.
class GgufBuilder {
public:
  void string(const std::string &key, const std::string &value) {
    entry(key, 8) += text(value);
  }
  void u32(const std::string &key, uint32_t value) {
    entry(key, 4) += raw(value);
  }
  void f32(const std::string &key, float value) { entry(key, 6) += raw(value); }
  void strings(const std::string &key, const std::vector<std::string> &values) {
    std::string &out = entry(key, 9);
    out += raw<uint32_t>(8) + raw<uint64_t>(values.size());
    for (const std::string &value : values)
      out += text(value);
  }
  /// A value of any type, given as bytes.
  void value(const std::string &key, uint32_t type, const std::string &bytes) {
    entry(key, type) += bytes;
  }

  /// Dimensions fastest first, as the file has them.
  void tensor(const std::string &name, const std::vector<uint64_t> &dimensions,
              uint32_t type, std::span<const std::byte> bytes) {
    data.resize((data.size() + 31) / 32 * 32);
    header(name, dimensions, type, data.size());
    data.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  }
  void header(const std::string &name, const std::vector<uint64_t> &dimensions,
              uint32_t type, uint64_t offset) {
    ++tensorCount;
    tensors += text(name) + raw<uint32_t>(dimensions.size());
    for (uint64_t dimension : dimensions)
      tensors += raw(dimension);
    tensors += raw(type) + raw(offset);
  }

  std::string build(uint32_t version = 3) const {
    std::string file = "GGUF" + raw(version) + raw(tensorCount) +
                       raw(entryCount) + entries + tensors;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data;
  }

private:
  static std::string text(const std::string &value) {
    return raw<uint64_t>(value.size()) + value;
  }
  std::string &entry(const std::string &key, uint32_t type) {
    ++entryCount;
    return entries += text(key) + raw(type);
  }

  uint64_t tensorCount = 0, entryCount = 0;
  std::string entries, tensors, data;
};

} // namespace stem::test

#endif // STEM_TEST_UNIT_MODEL_TESTFILES_H
