//===- Sequences.cpp - Documents packed into sequences --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/Sequences.h"

#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

/// Documents that are passed to find a token, at most; the index has an entry
/// for as many.
static constexpr uint64_t kIndexStep = 64;

Sequences::Sequences(const TokenShard &shard, const DocumentSplit &split,
                     DataPart part, const SequenceOptions &options)
    : shard(shard), split(split), part(part), options(options) {
  checkSequenceLength(options.length, options.maxPositions);
  buildIndex();
  // The last token predicts nothing.
  const uint64_t inputs = tokens ? tokens - 1 : 0;
  const uint64_t length = options.length;
  sequences = options.keepLast ? inputs / length + (inputs % length != 0)
                               : inputs / length;
  if (sequences == 0)
    fail("{}: the {} documents have {} tokens, fewer than the {} that a "
         "sequence of {} needs; give more text{}",
         shard.fileName(),
         part == DataPart::Training ? "training" : "validation", tokens,
         options.keepLast ? 2 : length + 1, length,
         options.keepLast ? "" : " or shorter sequences");
}

bool Sequences::hasDocument(uint64_t document) const {
  return split.isValidation(document) == (part == DataPart::Validation);
}

uint64_t Sequences::sizeOf(uint64_t document) const {
  return shard.documentEnd(document) - shard.documentBegin(document);
}

/// The part's next document, this one included.
uint64_t Sequences::nextDocument(uint64_t document) const {
  while (!hasDocument(document))
    ++document;
  return document;
}

void Sequences::buildIndex() {
  for (uint64_t document = 0; document < shard.documentCount(); ++document) {
    if (!hasDocument(document))
      continue;
    if (documents % kIndexStep == 0)
      index.push_back({document, tokens});
    tokens += sizeOf(document);
    ++documents;
  }
}

/// `token` counts the part's tokens and is below their number.
Sequences::Cursor Sequences::find(uint64_t token) const {
  auto entry = std::upper_bound(index.begin(), index.end(), token,
                                [](uint64_t token, const IndexEntry &entry) {
                                  return token < entry.begin;
                                });
  --entry;
  Cursor cursor = {entry->document, token - entry->begin};
  while (cursor.offset >= sizeOf(cursor.document)) {
    cursor.offset -= sizeOf(cursor.document);
    cursor.document = nextDocument(cursor.document + 1);
  }
  return cursor;
}

Sequences::RowBound Sequences::boundOfRow(uint64_t tile) const {
  const uint64_t length = options.length;
  const auto inTiles = [&](uint64_t count) {
    return (count + tile - 1) / tile * tile;
  };
  const uint64_t inputs = std::min(tokens - 1, sequences * length);
  if (!options.respectDocuments) {
    const uint64_t longest = std::min(inputs, length);
    return {inTiles(longest), 1, longest};
  }
  RowBound most = {}, row = {};
  Cursor cursor = find(0);
  for (uint64_t place = 0; place < inputs;) {
    if (place % length == 0)
      row = {};
    const uint64_t count = std::min({sizeOf(cursor.document) - cursor.offset,
                                     length - place % length, inputs - place});
    row.tokens += inTiles(count);
    ++row.documents;
    most = {std::max(most.tokens, row.tokens),
            std::max(most.documents, row.documents),
            std::max(most.longest, count)};
    place += count;
    cursor.offset += count;
    if (cursor.offset == sizeOf(cursor.document) && place < inputs)
      cursor = {nextDocument(cursor.document + 1), 0};
  }
  return most;
}

void Sequences::read(std::span<const uint64_t> rows, Batch &batch) const {
  batch.rows = static_cast<int64_t>(rows.size());
  batch.length = static_cast<int64_t>(options.length);
  for (std::vector<int32_t> *values :
       {&batch.ids, &batch.positions, &batch.sequences, &batch.labels}) {
    values->clear();
    values->reserve(rows.size() * options.length + 1);
  }
  int32_t nextSequence = 0;
  for (const uint64_t row : rows)
    addRow(row, nextSequence, batch);
  batch.labelCount =
      batch.places() - std::ranges::count(batch.labels, kNoLabel);
}

void Sequences::addRow(uint64_t sequence, int32_t &nextSequence,
                       Batch &batch) const {
  const size_t begin = batch.ids.size();
  const uint64_t first = sequence * options.length;
  const uint64_t inputs = std::min(options.length, tokens - 1 - first);
  // The last label is one token further; that token is taken off again.
  Cursor cursor = find(first);
  int32_t position = 0;
  for (uint64_t left = inputs + 1;;) {
    const uint64_t count =
        std::min(left, sizeOf(cursor.document) - cursor.offset);
    const size_t place = batch.ids.size();
    batch.ids.resize(place + count);
    shard.read(shard.documentBegin(cursor.document) + cursor.offset,
               std::span(batch.ids).subspan(place));
    for (uint64_t i = 0; i < count; ++i)
      batch.positions.push_back(position++);
    batch.sequences.resize(place + count, nextSequence);
    left -= count;
    if (left == 0)
      break;
    cursor = {nextDocument(cursor.document + 1), 0};
    if (options.respectDocuments) {
      position = 0;
      ++nextSequence;
    }
  }
  for (size_t place = begin; place < begin + inputs; ++place)
    batch.labels.push_back(batch.sequences[place + 1] == batch.sequences[place]
                               ? batch.ids[place + 1]
                               : kNoLabel);
  const auto finish = [&](std::vector<int32_t> &values, int32_t padding) {
    values.resize(begin + inputs);
    values.resize(begin + options.length, padding);
  };
  nextSequence = batch.sequences[begin + inputs - 1] + 1;
  finish(batch.ids, batch.ids[begin + inputs - 1]);
  finish(batch.positions, 0);
  finish(batch.sequences, kPadding);
  finish(batch.labels, kNoLabel);
}
