//===- DocumentSplit.cpp - Documents to train and to validate on ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/DocumentSplit.h"

#include "stem/Runtime/Philox.h"
#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

/// Keeps these draws apart from others of the same seed.
static constexpr uint32_t kSplitStream = 0x53504c54;

DocumentSplit::Draw DocumentSplit::draw(uint64_t document) const {
  const auto words = philox(
      {static_cast<uint32_t>(document), static_cast<uint32_t>(document >> 32),
       kSplitStream, kSplitStream},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {uint64_t{words[1]} << 32 | words[0], document};
}

DocumentSplit::DocumentSplit(uint64_t documents, double validationShare,
                             uint64_t seed, const std::string &name)
    : documents(documents), seed(seed) {
  if (!(validationShare >= 0 && validationShare < 1))
    fail("validation share {}: must be at least 0 and less than 1",
         validationShare);
  if (validationShare == 0)
    return;
  if (documents < 2)
    fail("{}: has one document, which cannot be parted into training and "
         "validation; give more documents, or a validation share of 0",
         name);
  limit = {static_cast<uint64_t>(validationShare * 0x1p64), 0};
  Draw least = draw(0), most = least;
  for (uint64_t document = 0; document < documents; ++document) {
    const Draw drawn = draw(document);
    validation += drawn < limit;
    least = std::min(least, drawn);
    most = std::max(most, drawn);
  }
  if (validation == 0) {
    limit = {least.first, least.second + 1};
    validation = 1;
  } else if (validation == documents) {
    limit = most;
    --validation;
  }
}
