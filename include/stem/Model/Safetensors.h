//===- Safetensors.h - Reading and writing safetensors ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_SAFETENSORS_H
#define STEM_MODEL_SAFETENSORS_H

#include "stem/Model/DType.h"
#include "stem/Support/UnfinishedPath.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

class MappedFile;

/// One tensor of a file; `data` points into the mapping.
struct TensorView {
  std::string name;
  DType dtype;
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;
};

/// A read-only mapped file whose header has passed every rule of the format:
/// tensors fill the data section exactly, without holes or overlap. The object
/// may be moved; the views live as long as it does.
class SafetensorsFile {
public:
  static SafetensorsFile open(const std::filesystem::path &path);

  /// Reads from memory that outlives the result; `name` stands for the file in
  /// messages.
  static SafetensorsFile parse(std::span<const std::byte> bytes,
                               std::string name);

  SafetensorsFile(SafetensorsFile &&) noexcept;
  SafetensorsFile &operator=(SafetensorsFile &&) noexcept;
  ~SafetensorsFile();

  const std::string &fileName() const { return name; }

  /// In the order of their data.
  const std::vector<TensorView> &tensors() const { return views; }
  const TensorView *find(std::string_view tensorName) const;
  /// Like find; an Error that names file and tensor when there is none.
  const TensorView &get(std::string_view tensorName) const;

  /// The header's __metadata__.
  const std::map<std::string, std::string> &metadata() const {
    return metadataMap;
  }

  /// Where in the file `data` begins, which must come from it; not after parse.
  uint64_t offsetOf(std::span<const std::byte> data) const;

  /// Lets the system drop the pages of `data`, which must come from this file;
  /// they are read again when touched.
  void release(std::span<const std::byte> data) const;

private:
  SafetensorsFile();
  void parseBytes(std::span<const std::byte> bytes);

  std::string name;
  std::unique_ptr<MappedFile> file;
  std::vector<TensorView> views;
  std::map<std::string, size_t, std::less<>> index;
  std::map<std::string, std::string> metadataMap;
};

/// What a writer is told about a tensor before its data comes.
struct TensorDeclaration {
  std::string name;
  DType dtype;
  std::vector<uint64_t> shape;
};

/// Writes one file as a stream: every tensor declared first, then the data in
/// the order of the declarations, in pieces of any size. The file appears under
/// its own name only when finish() has synced it; before that it has a
/// temporary name in the same folder, so that a crash leaves the old file (if
/// any) as it was, and a source that is still mapped may be the file being
/// replaced. Holds no tensor data in memory.
class SafetensorsWriter {
public:
  /// Creates the temporary file and writes the header. `metadata` is kept as
  /// __metadata__ (an empty map writes none).
  SafetensorsWriter(std::filesystem::path path,
                    std::vector<TensorDeclaration> tensors,
                    const std::map<std::string, std::string> &metadata = {
                        {"format", "pt"}});
  SafetensorsWriter(const SafetensorsWriter &) = delete;
  SafetensorsWriter &operator=(const SafetensorsWriter &) = delete;

  /// Removes the temporary file unless finish() has succeeded.
  ~SafetensorsWriter();

  /// Appends the next bytes. More bytes than declared are an Error.
  void write(std::span<const std::byte> bytes);

  /// Syncs and renames. An Error names the tensor whose data is incomplete.
  void finish();

  /// The size of the whole file.
  uint64_t fileBytes() const { return headerBytes + dataBytes; }

  /// The size that a file with these tensors has.
  static uint64_t plannedBytes(
      const std::vector<TensorDeclaration> &tensors,
      const std::map<std::string, std::string> &metadata = {{"format", "pt"}});

private:
  std::filesystem::path path;
  std::unique_ptr<UnfinishedPath> temporary;
  std::vector<TensorDeclaration> declarations;
  int descriptor = -1;
  uint64_t headerBytes = 0;
  uint64_t dataBytes = 0;
  uint64_t written = 0;
};

} // namespace stem

#endif // STEM_MODEL_SAFETENSORS_H
