//===- SelfText.cpp - The model's own text to calibrate on ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SelfText.h"

#include "stem/Runtime/Philox.h"
#include "stem/Support/Error.h"
#include "stem/Support/Hash.h"

#include <algorithm>

using namespace stem;

namespace {

/// Tokens that are the likeliest ones, so that a random start becomes a text.
constexpr int64_t kGreedy = 4;
/// Of a sequence's random numbers this one draws its first token.
constexpr uint64_t kFirstToken = uint64_t(1) << 32;
constexpr int64_t kLeastMean = 16;

std::vector<int32_t> ordinaryIds(const Tokenizer &tokenizer) {
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < tokenizer.vocabSize(); ++id) {
    const int32_t token = static_cast<int32_t>(id);
    if (tokenizer.tokenText(token) && !tokenizer.isSpecial(token))
      ids.push_back(token);
  }
  if (ids.empty())
    fail("--calibrate=self: all tokens of the model are special, so no text "
         "can start; give --calibrate=FILE");
  return ids;
}

} // namespace

std::string stem::hashIds(const std::vector<std::vector<int32_t>> &documents) {
  std::string bytes;
  for (const std::vector<int32_t> &document : documents)
    for (const int32_t id : document)
      for (int shift = 0; shift < 32; shift += 8)
        bytes += static_cast<char>(static_cast<uint32_t>(id) >> shift);
  return hashText(bytes);
}

TextSource stem::writeSelfText(ModelWriter &writer, const Tokenizer &tokenizer,
                               int64_t tokens, int64_t length, uint64_t seed) {
  const std::vector<int32_t> starts = ordinaryIds(tokenizer);
  std::vector<int32_t> begin;
  if (tokenizer.addsBeginToken() && tokenizer.beginId())
    begin.push_back(*tokenizer.beginId());
  uint64_t stream = 0;
  const auto nextTask = [&] {
    const double draw = philoxUniform(seed, stream, kFirstToken);
    WritingTask task{begin, 0, kGreedy, stream++};
    task.prompt.push_back(
        starts[static_cast<size_t>(draw * static_cast<double>(starts.size()))]);
    task.most = length - static_cast<int64_t>(task.prompt.size());
    return task;
  };
  TextSource source{"self", "", {}};
  source.isSelf = true;
  // Sequences shorter than expected ask for another round.
  for (int64_t rest = tokens; rest > 0; rest = tokens - source.tokens()) {
    for (std::vector<int32_t> &document :
         writer.writeUntil(rest, nextTask, "its own text"))
      source.documents.push_back(std::move(document));
    const int64_t mean =
        source.tokens() / static_cast<int64_t>(source.documents.size());
    if (mean < kLeastMean)
      fail("--calibrate=self: the model ends its own text after {} tokens on "
           "average, {} are the least; give --calibrate=FILE",
           mean, kLeastMean);
  }
  source.sha256 = hashIds(source.documents);
  return source;
}
