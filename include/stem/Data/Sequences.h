//===- Sequences.h - Documents packed into sequences ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DATA_SEQUENCES_H
#define STEM_DATA_SEQUENCES_H

#include "stem/Data/Batch.h"
#include "stem/Data/DocumentSplit.h"
#include "stem/Data/TokenShard.h"

#include <cstdint>
#include <span>
#include <vector>

namespace stem {

enum class DataPart { Training, Validation };

struct SequenceOptions {
  uint64_t length = 0;
  uint64_t maxPositions = 0; ///< of the model; 0: not known
  /// A token sees its own document alone: within a sequence each document has a
  /// sequence number and positions from 0 of its own, and its last token has
  /// no label. Without, documents run into each other.
  bool respectDocuments = false;
  /// The last sequence, where the tokens do not fill it, is padded; without, it
  /// is left out.
  bool keepLast = false;
};

/// The documents of one part, one after the other in the order of the shard,
/// cut into sequences of one length. Place t of a sequence predicts the token
/// behind it, which for the last place is the first token of the next sequence.
class Sequences {
public:
  /// Keeps references to both. Throws when there is not one sequence.
  Sequences(const TokenShard &shard, const DocumentSplit &split, DataPart part,
            const SequenceOptions &options);

  uint64_t count() const { return sequences; }
  uint64_t tokenCount() const { return tokens; }
  uint64_t documentCount() const { return documents; }
  uint64_t length() const { return options.length; }

  /// These sequences as the rows of a batch; memory of `batch` is used again.
  void read(std::span<const uint64_t> rows, Batch &batch) const;

  struct RowBound {
    uint64_t tokens;    ///< with each document in tiles of its own
    uint64_t documents; ///< that do not see each other; 1 where all do
    uint64_t longest;   ///< tokens of one of them
  };
  /// The most of any one sequence, each figure for itself.
  RowBound boundOfRow(uint64_t tile) const;

private:
  /// A place in the part's tokens.
  struct Cursor {
    uint64_t document;
    uint64_t offset; ///< in the document
  };
  /// Where every kIndexStep-th document of the part begins.
  struct IndexEntry {
    uint64_t document;
    uint64_t begin; ///< in the part's tokens
  };

  bool hasDocument(uint64_t document) const;
  uint64_t sizeOf(uint64_t document) const;
  uint64_t nextDocument(uint64_t document) const;
  void buildIndex();
  Cursor find(uint64_t token) const;
  void addRow(uint64_t sequence, int32_t &nextSequence, Batch &batch) const;

  const TokenShard &shard;
  const DocumentSplit &split;
  DataPart part;
  SequenceOptions options;
  std::vector<IndexEntry> index;
  uint64_t tokens = 0, documents = 0, sequences = 0;
};

} // namespace stem

#endif // STEM_DATA_SEQUENCES_H
