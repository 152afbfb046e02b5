//===- SequencesTest.cpp - Documents packed into sequences ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/Sequences.h"

#include "DataTestSupport.h"

#include <algorithm>
#include <map>

using namespace stem;
using namespace stem::test;

namespace {

struct Row {
  Ids ids, positions, sequences, labels;
  bool operator==(const Row &) const = default;
};

/// The reference: every place of every sequence, from the part's tokens as one
/// list. A row's sequences count from 0.
std::vector<Row> pack(const Documents &documents, const DocumentSplit &split,
                      DataPart part, const SequenceOptions &options) {
  Ids ids;
  std::vector<size_t> documentOf;
  for (size_t i = 0; i < documents.size(); ++i)
    if (split.isValidation(i) == (part == DataPart::Validation)) {
      ids.insert(ids.end(), documents[i].begin(), documents[i].end());
      documentOf.resize(ids.size(), i);
    }
  std::vector<Row> rows;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += options.length) {
    const bool isWhole = begin + options.length < ids.size();
    if (!isWhole && !options.keepLast)
      break;
    Row row;
    int32_t sequence = 0, position = 0;
    for (size_t at = begin; at < begin + options.length; ++at) {
      const bool isPadding = at + 1 >= ids.size();
      if (!isPadding && at > begin && options.respectDocuments &&
          documentOf[at] != documentOf[at - 1]) {
        ++sequence;
        position = 0;
      }
      const bool hasLabel =
          !isPadding &&
          (!options.respectDocuments || documentOf[at] == documentOf[at + 1]);
      row.ids.push_back(isPadding ? row.ids.back() : ids[at]);
      row.positions.push_back(isPadding ? 0 : position++);
      row.sequences.push_back(isPadding ? -1 : sequence);
      row.labels.push_back(hasLabel ? ids[at + 1] : -100);
    }
    rows.push_back(row);
  }
  return rows;
}

/// One row of a batch, its sequences counted from 0.
Row rowOf(const Batch &batch, size_t row) {
  const size_t length = static_cast<size_t>(batch.length);
  const auto part = [&](const Ids &values) {
    return Ids(values.begin() + static_cast<long>(row * length),
               values.begin() + static_cast<long>((row + 1) * length));
  };
  Row result = {part(batch.ids), part(batch.positions), part(batch.sequences),
                part(batch.labels)};
  const int32_t first = result.sequences[0];
  for (int32_t &sequence : result.sequences)
    sequence -= sequence < 0 ? 0 : first;
  return result;
}

/// The most of any row, from its places.
Sequences::RowBound boundOf(const std::vector<Row> &rows, uint64_t tile) {
  Sequences::RowBound most = {};
  for (const Row &row : rows) {
    std::map<int32_t, uint64_t> lengths;
    for (const int32_t sequence : row.sequences)
      if (sequence >= 0)
        ++lengths[sequence];
    uint64_t tokens = 0;
    for (const auto &[sequence, length] : lengths) {
      tokens += (length + tile - 1) / tile * tile;
      most.longest = std::max(most.longest, length);
    }
    most.tokens = std::max(most.tokens, tokens);
    most.documents = std::max<uint64_t>(most.documents, lengths.size());
  }
  return most;
}

class SequencesTest : public testing::Test {
protected:
  TokenShard open(const Documents &documents) {
    writeShard(folder / "a.shard", documents, plainSettings(100000));
    return TokenShard::open(folder / "a.shard");
  }

  TemporaryFolder folder;
};

TEST_F(SequencesTest, boundOfARow) {
  Documents documents;
  for (int32_t i = 0; i < 40; ++i)
    documents.push_back(Ids(static_cast<size_t>(1 + i * i % 23), i));
  const TokenShard shard = open(documents);
  const DocumentSplit split(documents.size(), 0.2, 3, "x");
  for (const DataPart part : {DataPart::Training, DataPart::Validation})
    for (const uint64_t length : {3, 16, 50})
      for (const bool respects : {false, true}) {
        const SequenceOptions options = {
            .length = length, .respectDocuments = respects, .keepLast = true};
        const Sequences sequences(shard, split, part, options);
        const Sequences::RowBound seen = sequences.boundOfRow(8);
        const Sequences::RowBound wanted =
            boundOf(pack(documents, split, part, options), 8);
        EXPECT_EQ(seen.tokens, wanted.tokens);
        EXPECT_EQ(seen.documents, wanted.documents);
        EXPECT_EQ(seen.longest, wanted.longest);
      }
}

TEST_F(SequencesTest, documentsRunOn) {
  const TokenShard shard = open({{1, 2, 3}, {4, 5}, {6, 7, 8, 9}});
  const DocumentSplit split(3, 0, 0, "x");
  const Sequences sequences(shard, split, DataPart::Training, {.length = 4});
  EXPECT_EQ(sequences.count(), 2u);
  EXPECT_EQ(sequences.length(), 4u);
  EXPECT_EQ(sequences.tokenCount(), 9u);
  EXPECT_EQ(sequences.documentCount(), 3u);
  Batch batch;
  sequences.read(std::vector<uint64_t>{1, 0}, batch);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 4);
  EXPECT_EQ(batch.ids, (Ids{5, 6, 7, 8, 1, 2, 3, 4}));
  EXPECT_EQ(batch.labels, (Ids{6, 7, 8, 9, 2, 3, 4, 5}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(batch.sequences, (Ids{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(batch.labelCount, 8);
}

TEST_F(SequencesTest, documentsAreRespected) {
  const TokenShard shard = open({{1, 2, 3}, {4, 5}, {6, 7, 8, 9, 10}});
  const DocumentSplit split(3, 0, 0, "x");
  const Sequences sequences(
      shard, split, DataPart::Training,
      {.length = 4, .respectDocuments = true, .keepLast = true});
  EXPECT_EQ(sequences.count(), 3u);
  Batch batch;
  sequences.read(std::vector<uint64_t>{0, 1, 2}, batch);
  EXPECT_EQ(batch.ids, (Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9}));
  EXPECT_EQ(batch.labels,
            (Ids{2, 3, -100, 5, -100, 7, 8, 9, 10, -100, -100, -100}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 0}));
  EXPECT_EQ(batch.sequences, (Ids{0, 0, 0, 1, 2, 3, 3, 3, 4, -1, -1, -1}));
  EXPECT_EQ(batch.labelCount, 7);
}

TEST_F(SequencesTest, agreesWithTheReference) {
  for (const size_t longest : {1, 3, 50, 130}) {
    const Documents documents = numberedDocuments(300, longest);
    const TokenShard shard = open(documents);
    for (const double share : {0.0, 0.1, 0.9}) {
      const DocumentSplit split(documents.size(), share, 5, "x");
      for (const DataPart part : {DataPart::Training, DataPart::Validation}) {
        if (part == DataPart::Validation && share == 0)
          continue;
        for (const uint64_t length : {1, 2, 7, 16})
          for (const int bits : {0, 1, 2, 3}) {
            const SequenceOptions options = {.length = length,
                                             .respectDocuments = bits % 2 == 1,
                                             .keepLast = bits >= 2};
            const std::vector<Row> wanted =
                pack(documents, split, part, options);
            const Sequences sequences(shard, split, part, options);
            ASSERT_EQ(sequences.count(), wanted.size());
            Batch batch;
            int64_t labels = 0;
            for (uint64_t i = 0; i < sequences.count(); ++i) {
              sequences.read({&i, 1}, batch);
              ASSERT_EQ(rowOf(batch, 0), wanted[i])
                  << longest << " " << share << " " << length << " " << bits
                  << " " << i;
              EXPECT_EQ(batch.sequences[0], 0);
              labels = batch.places() - std::count(batch.labels.begin(),
                                                   batch.labels.end(), -100);
              EXPECT_EQ(batch.labelCount, labels);
            }
          }
      }
    }
  }
}

// A batch of many rows has the rows of batches of one, and no two rows share a
// sequence.
TEST_F(SequencesTest, rowsDoNotDependOnTheBatch) {
  const TokenShard shard = open(numberedDocuments(100, 20));
  const DocumentSplit split(100, 0.2, 5, "x");
  for (const bool respect : {false, true}) {
    const Sequences sequences(
        shard, split, DataPart::Training,
        {.length = 11, .respectDocuments = respect, .keepLast = true});
    std::vector<uint64_t> rows;
    for (uint64_t i = 0; i < sequences.count(); ++i)
      rows.push_back(sequences.count() - 1 - i);
    Batch all, one;
    sequences.read(rows, all);
    int32_t last = -1;
    for (size_t i = 0; i < rows.size(); ++i) {
      sequences.read({&rows[i], 1}, one);
      EXPECT_EQ(rowOf(all, i), rowOf(one, 0));
      EXPECT_EQ(all.sequences[i * 11], last + 1);
      for (size_t k = 0; k < 11; ++k)
        last = std::max(last, all.sequences[i * 11 + k]);
    }
    sequences.read({}, all);
    EXPECT_EQ(all.places(), 0);
    EXPECT_TRUE(all.ignoresAll());
  }
}

TEST_F(SequencesTest, refusesTooFewTokens) {
  const TokenShard shard = open({{1, 2, 3}, {4}});
  const DocumentSplit none(2, 0, 0, "x");
  const auto make = [&](const DocumentSplit &split, DataPart part,
                        const SequenceOptions &options) {
    return Sequences(shard, split, part, options).count();
  };
  EXPECT_EQ(make(none, DataPart::Training, {.length = 3}), 1u);
  EXPECT_ERROR(make(none, DataPart::Training, {.length = 4}),
               "a.shard: the training documents have 4 tokens, fewer than the "
               "5 that a sequence of 4 needs",
               "give more text or shorter sequences");
  EXPECT_EQ(make(none, DataPart::Training, {.length = 4, .keepLast = true}),
            1u);
  EXPECT_ERROR(
      make(none, DataPart::Validation, {.length = 4, .keepLast = true}),
      "the validation documents have 0 tokens, fewer than the 2",
      "give more text");
  // A single token predicts nothing.
  uint64_t seed = 0;
  while (!DocumentSplit(2, 0.5, seed, "x").isValidation(1) ||
         DocumentSplit(2, 0.5, seed, "x").validationCount() != 1)
    ++seed;
  const DocumentSplit split(2, 0.5, seed, "x");
  EXPECT_ERROR(
      make(split, DataPart::Validation, {.length = 1, .keepLast = true}),
      "the validation documents have 1 tokens, fewer than the 2");
}

TEST_F(SequencesTest, refusesBadLengths) {
  const TokenShard shard = open({{1, 2, 3}});
  const DocumentSplit split(1, 0, 0, "x");
  EXPECT_ERROR(Sequences(shard, split, DataPart::Training, {.length = 0}),
               "a sequence has at least one token");
  EXPECT_ERROR(Sequences(shard, split, DataPart::Training,
                         {.length = 3, .maxPositions = 2}),
               "sequences of length 3: the model has 2 positions");
}

} // namespace
