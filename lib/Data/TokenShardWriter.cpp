//===- TokenShardWriter.cpp - Writing tokenized texts ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ShardHeader.h"
#include "stem/Data/TokenShard.h"
#include "stem/Support/Error.h"
#include "stem/Support/Files.h"
#include "stem/Support/ScratchFolder.h"

#include <cstring>

using namespace stem;

static constexpr size_t kBufferBytes = 1 << 20;

/// Bytes on the way to a tensor whose size is not known yet.
class TokenShardWriter::Spool {
public:
  /// `path` is that of the shard, for place and messages.
  explicit Spool(const std::filesystem::path &path)
      : path(path), unfinished([&] {
          std::filesystem::path created;
          descriptor = createTemporary(path, created);
          return created;
        }),
        file(descriptor) {
    buffer.reserve(kBufferBytes);
  }

  template <typename T> void put(T value) {
    if (buffer.size() + sizeof(T) > kBufferBytes)
      flush();
    const size_t at = buffer.size();
    buffer.resize(at + sizeof(T));
    std::memcpy(buffer.data() + at, &value, sizeof(T));
  }

  /// SHA-256 of all that was put. Nothing can be put afterwards.
  std::string finish() {
    flush();
    return hash.finish();
  }

  void copyTo(SafetensorsWriter &writer) {
    FileReader reader(unfinished.path());
    buffer.resize(kBufferBytes);
    while (const size_t count = reader.read(buffer))
      writer.write(std::span(buffer).first(count));
  }

private:
  void flush() {
    hash.update(buffer);
    writeAll(file.get(), buffer, path);
    buffer.clear();
  }

  const std::filesystem::path &path;
  int descriptor = -1;
  UnfinishedPath unfinished;
  FileDescriptor file;
  Sha256 hash;
  std::vector<std::byte> buffer;
};

TokenShardWriter::TokenShardWriter(std::filesystem::path path,
                                   ShardSettings settings)
    : path(std::move(path)), settings(std::move(settings)) {
  idSpool = std::make_unique<Spool>(this->path);
  endSpool = std::make_unique<Spool>(this->path);
}

TokenShardWriter::~TokenShardWriter() = default;

void TokenShardWriter::put(int32_t id) {
  if (id < 0 || id >= settings.vocabulary)
    fail("{}: id {} of document {} lies outside the vocabulary of {}; use the "
         "tokenizer that belongs to the model",
         path.string(), id, documents, settings.vocabulary);
  if (shardDType(settings.vocabulary) == DType::U16)
    idSpool->put(static_cast<uint16_t>(id));
  else
    idSpool->put(static_cast<uint32_t>(id));
  last = id;
  ++tokens;
}

void TokenShardWriter::append(std::span<const int32_t> ids) {
  if (ids.empty())
    return;
  if (!isOpen && settings.beginToken && ids.front() != *settings.beginToken)
    put(*settings.beginToken);
  isOpen = true;
  for (const int32_t id : ids)
    put(id);
}

uint64_t TokenShardWriter::endDocument() {
  if (!isOpen)
    return 0;
  if (settings.endToken && last != *settings.endToken)
    put(*settings.endToken);
  const uint64_t size = tokens - begin;
  begin = tokens;
  isOpen = false;
  endSpool->put(tokens);
  ++documents;
  return size;
}

void TokenShardWriter::finish(const std::vector<SourceText> &sources) {
  endDocument();
  if (documents == 0)
    fail("{}: there is no document to write; give text that is not empty",
         path.string());
  const ShardHeader header = {settings, sources, idSpool->finish(),
                              endSpool->finish()};
  // Document ends first: both lie aligned.
  SafetensorsWriter writer(
      path,
      {{"document_ends", DType::U64, {documents}},
       {"tokens", shardDType(settings.vocabulary), {tokens}}},
      header.toMetadata());
  endSpool->copyTo(writer);
  idSpool->copyTo(writer);
  writer.finish();
}
