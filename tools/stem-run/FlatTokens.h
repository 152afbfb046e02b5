//===- FlatTokens.h - The tokens of a step ----------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_FLATTOKENS_H
#define STEM_TOOLS_STEM_RUN_FLATTOKENS_H

#include "stem/Runtime/Tensor.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace stem {

/// What padding reads; nothing depends on it.
inline constexpr int32_t kPaddingId = 0;

/// The tokens of a step, those of all sequences one after the other, as
/// compiled entries take them.
struct FlatTokens {
  std::vector<int32_t> ids, positions, sequences, labels;

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  void append(int32_t id, int64_t position, int32_t sequence, int32_t label);
  /// What an entry's argument of this name takes; nothing for another one.
  std::optional<stem_tensor> input(std::string_view name) const;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_FLATTOKENS_H
