//===- TokenShardFuzzer.cpp - Any bytes as a token shard ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/Sequences.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <numeric>

using namespace stem;

static void require(bool condition) {
  if (!condition)
    __builtin_trap();
}

/// Each sequence of a part; the tokens of all are those of the part.
static void exercise(const TokenShard &shard, const DocumentSplit &split,
                     DataPart part, const SequenceOptions &options) try {
  const Sequences sequences(shard, split, part, options);
  std::vector<uint64_t> rows(std::min<uint64_t>(sequences.count(), 100));
  std::iota(rows.begin(), rows.end(), sequences.count() - rows.size());
  Batch batch;
  sequences.read(rows, batch);
  require(batch.rows == static_cast<int64_t>(rows.size()));
  const size_t places = static_cast<size_t>(batch.places());
  require(batch.ids.size() == places && batch.positions.size() == places &&
          batch.sequences.size() == places && batch.labels.size() == places);
  for (size_t i = 0; i < places; ++i) {
    require(batch.ids[i] >= 0 && batch.ids[i] < shard.settings().vocabulary);
    require(batch.positions[i] >= 0 && batch.positions[i] < batch.length);
    require(batch.sequences[i] >= -1);
    require(batch.labels[i] == -100 ||
            (batch.labels[i] >= 0 && batch.sequences[i] >= 0 &&
             batch.labels[i] < shard.settings().vocabulary));
  }
} catch (const Error &) {
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    const TokenShard shard =
        TokenShard::parse(std::as_bytes(std::span(data, size)), "fuzz");
    require(shard.documentEnd(shard.documentCount() - 1) == shard.tokenCount());
    const bool hasTwo = shard.documentCount() > 1;
    const DocumentSplit split(shard.documentCount(), hasTwo ? 0.3 : 0, size,
                              "fuzz");
    for (const uint64_t length : {1, 3, 64})
      for (const bool respect : {false, true})
        for (const DataPart part : {DataPart::Training, DataPart::Validation})
          exercise(shard, split, part,
                   {.length = length,
                    .respectDocuments = respect,
                    .keepLast = respect});
  } catch (const Error &) {
  }
  return 0;
}
