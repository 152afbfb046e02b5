//===- ShardHeader.h - The metadata of a token shard ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_DATA_SHARDHEADER_H
#define STEM_LIB_DATA_SHARDHEADER_H

#include "stem/Data/TokenShard.h"

#include <map>
#include <string>
#include <vector>

namespace stem {

/// What a shard's metadata says.
struct ShardHeader {
  ShardSettings settings;
  std::vector<SourceText> sources;
  std::string tokensSha256, endsSha256; ///< of the tensors' bytes

  std::map<std::string, std::string> toMetadata() const;
  /// Throws an Error for a file that is no shard or of another version, and for
  /// an entry that is missing or is not what it should be.
  static ShardHeader parse(const SafetensorsFile &file);
};

/// What to do about a shard that does not fit.
inline constexpr const char *shardAdvice =
    "remove the file, so that it is made anew, or give another --shard";

} // namespace stem

#endif // STEM_LIB_DATA_SHARDHEADER_H
