//===- HiddenStates.h - What calibration keeps between layers -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_HIDDENSTATES_H
#define STEM_TOOLS_STEM_RUN_HIDDENSTATES_H

#include "CalibrationText.h"
#include "SpillFile.h"

#include "stem/Runtime/Arena.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>

namespace stem {

/// The residual stream of a text between two layers, places x width in f32: in
/// memory, or in a file that has no name and goes with the object.
class HiddenStates {
public:
  /// `spillFolder`: where the file is made; empty: in memory. Throws an Error
  /// where there is no room. The stream outlives the states.
  HiddenStates(const TokenStream &stream, int64_t width,
               const std::filesystem::path &spillFolder);
  /// The same, each step filled by `fill`.
  HiddenStates(
      const TokenStream &stream, int64_t width,
      const std::filesystem::path &spillFolder,
      const std::function<void(const TokenStream::Step &, float *)> &fill);
  HiddenStates(const HiddenStates &) = delete;
  HiddenStates &operator=(const HiddenStates &) = delete;

  static int64_t bytes(const TokenStream &stream, int64_t width);

  const TokenStream &stream() const { return tokens; }
  float *at(const TokenStream::Step &step) const {
    return values + step.begin * width;
  }
  std::span<const int32_t> rows(const TokenStream::Step &step) const {
    return std::span(tokens.rows).subspan(step.begin, step.count);
  }
  std::span<const uint8_t> counted(const TokenStream::Step &step) const {
    return std::span(tokens.counted).subspan(step.begin, step.count);
  }

  /// What a layer made of the step's values takes their place.
  void replace(stem_context *context, const TokenStream::Step &step,
               const float *next);
  /// The step is not needed for a while: a file's pages leave the process.
  void leave(const TokenStream::Step &step) const;

  void copyFrom(const HiddenStates &other);

private:
  const TokenStream &tokens;
  int64_t width;
  Arena memory;
  std::optional<SpillFile> file; ///< in place of `memory`
  float *values = nullptr;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_HIDDENSTATES_H
