//===- SafetensorsWriter.cpp - Writing safetensors ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FileIO.h"
#include "stem/Model/Safetensors.h"
#include "stem/Model/TensorSource.h"
#include "stem/Support/Error.h"
#include "stem/Support/Files.h"
#include "stem/Support/ScratchFolder.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>

using namespace stem;
using nlohmann::ordered_json;

namespace {

uint64_t declaredBytes(const TensorDeclaration &tensor) {
  const auto elements = elementCount(tensor.shape);
  const auto bytes =
      elements ? dtypeBytes(tensor.dtype, *elements) : std::nullopt;
  if (!bytes || isQuantized(tensor.dtype))
    fail("tensor \"{}\": {} {} cannot be written to safetensors",
         printable(tensor.name), dtypeName(tensor.dtype),
         formatShape(tensor.shape));
  return *bytes;
}

/// Length and JSON, padded with spaces so that the data begins at a multiple of
/// eight.
std::string headerText(const std::vector<TensorDeclaration> &tensors,
                       const std::map<std::string, std::string> &metadata,
                       uint64_t &dataBytes) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  dataBytes = 0;
  std::set<std::string> names;
  for (const TensorDeclaration &tensor : tensors) {
    const uint64_t begin = dataBytes;
    if (__builtin_add_overflow(dataBytes, declaredBytes(tensor), &dataBytes))
      fail("tensor \"{}\": the file's size overflows", printable(tensor.name));
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second)
      fail("tensor name \"{}\" cannot be used (twice)", printable(tensor.name));
    // push_back, because looking a key up in an ordered object is linear.
    ordered_json entry = {{"dtype", std::string(dtypeName(tensor.dtype))},
                          {"shape", tensor.shape},
                          {"data_offsets", {begin, dataBytes}}};
    header.get_ref<ordered_json::object_t &>().push_back(
        {tensor.name, std::move(entry)});
  }
  std::string json;
  try {
    json = header.dump();
  } catch (const ordered_json::exception &) {
    fail("a tensor name or metadata entry is not valid UTF-8");
  }
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  std::string result(sizeof(length), '\0');
  std::memcpy(result.data(), &length, sizeof(length));
  return result + json;
}

} // namespace

SafetensorsWriter::SafetensorsWriter(
    std::filesystem::path path, std::vector<TensorDeclaration> tensors,
    const std::map<std::string, std::string> &metadata)
    : path(std::move(path)), declarations(std::move(tensors)) {
  const std::string header = headerText(declarations, metadata, dataBytes);
  headerBytes = header.size();
  temporary = std::make_unique<UnfinishedPath>([&] {
    std::filesystem::path created;
    descriptor = createTemporary(this->path, created);
    return created;
  });
  try {
    writeAll(descriptor, std::as_bytes(std::span(header)), this->path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (descriptor >= 0)
    ::close(descriptor);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > dataBytes - written)
    fail("{}: {} bytes of tensor data were declared, more than that came",
         path.string(), dataBytes);
  writeAll(descriptor, bytes, path);
  written += bytes.size();
}

void SafetensorsWriter::finish() {
  uint64_t end = 0;
  for (const TensorDeclaration &tensor : declarations) {
    end += declaredBytes(tensor);
    if (end > written)
      fail("{}: the data of tensor \"{}\" is incomplete: {} of {} bytes came",
           path.string(), printable(tensor.name), written, dataBytes);
  }
  if (::fsync(descriptor) != 0)
    fail("{}: cannot sync to disk: {}", path.string(), std::strerror(errno));
  uninterrupted([&] {
    renamePath(temporary->path(), path);
    temporary->keep();
  });
  ::close(descriptor);
  descriptor = -1;
  syncPath(path.has_parent_path() ? path.parent_path() : ".");
}

uint64_t SafetensorsWriter::plannedBytes(
    const std::vector<TensorDeclaration> &tensors,
    const std::map<std::string, std::string> &metadata) {
  uint64_t dataBytes;
  const uint64_t headerBytes = headerText(tensors, metadata, dataBytes).size();
  return headerBytes + dataBytes;
}
