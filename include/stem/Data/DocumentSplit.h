//===- DocumentSplit.h - Documents to train and to validate on --*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DATA_DOCUMENTSPLIT_H
#define STEM_DATA_DOCUMENTSPLIT_H

#include <cstdint>
#include <string>
#include <utility>

namespace stem {

/// Each document is for training or for validation, as a number drawn for it
/// from the seed says: whole documents, in memory that does not depend on how
/// many there are. Neither part is empty.
class DocumentSplit {
public:
  /// A share of 0 makes all documents training. Throws for a share that is none
  /// and for a single document; `name` stands for the data in messages.
  DocumentSplit(uint64_t documents, double validationShare, uint64_t seed,
                const std::string &name);

  bool isValidation(uint64_t document) const {
    return validation != 0 && draw(document) < limit;
  }

  uint64_t documentCount() const { return documents; }
  uint64_t validationCount() const { return validation; }

private:
  /// Documents in the order in which they become validation: a number below
  /// 2^64, drawn, then the document, so that no two are equal.
  using Draw = std::pair<uint64_t, uint64_t>;
  Draw draw(uint64_t document) const;

  uint64_t documents, seed;
  uint64_t validation = 0;
  Draw limit = {0, 0}; ///< of the validation documents' draws
};

} // namespace stem

#endif // STEM_DATA_DOCUMENTSPLIT_H
