//===- DataTestSupport.h - Shards that tests write --------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_DATA_DATATESTSUPPORT_H
#define STEM_TEST_UNIT_DATA_DATATESTSUPPORT_H

#include "../Model/TestFiles.h"

#include "stem/Data/TokenShard.h"

#include <vector>

namespace stem::test {

using Ids = std::vector<int32_t>;
using Documents = std::vector<Ids>;

inline const std::string someHash(64, 'a');

inline ShardSettings plainSettings(int64_t vocabulary = 1000) {
  ShardSettings settings;
  settings.tokenizerSha256 = someHash;
  settings.vocabulary = vocabulary;
  return settings;
}

inline void writeShard(const std::filesystem::path &path,
                       const Documents &documents,
                       const ShardSettings &settings = plainSettings(),
                       const std::vector<SourceText> &sources = {}) {
  TokenShardWriter writer(path, settings);
  for (const Ids &document : documents) {
    writer.append(document);
    writer.endDocument();
  }
  writer.finish(sources);
}

inline Documents readDocuments(const TokenShard &shard) {
  Documents documents;
  for (uint64_t i = 0; i < shard.documentCount(); ++i) {
    const uint64_t begin = shard.documentBegin(i);
    documents.emplace_back(shard.documentEnd(i) - begin);
    shard.read(begin, documents.back());
  }
  return documents;
}

/// So many documents of 1 to `longest` ids, each id another.
inline Documents numberedDocuments(size_t count, size_t longest) {
  Documents documents;
  int32_t id = 0;
  for (size_t i = 0; i < count; ++i) {
    documents.emplace_back();
    for (size_t k = 0; k <= i * 7 % longest; ++k)
      documents.back().push_back(id++);
  }
  return documents;
}

} // namespace stem::test

#endif // STEM_TEST_UNIT_DATA_DATATESTSUPPORT_H
