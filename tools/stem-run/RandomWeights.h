//===- RandomWeights.h - A model that begins from a config ------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_RANDOMWEIGHTS_H
#define STEM_TOOLS_STEM_RUN_RANDOMWEIGHTS_H

#include "stem/Model/Checkpoint.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

namespace stem {

/// A model of this config.json whose weights are drawn:
///   matrices   normal, deviation `initializer_range` (0.02 without one)
///   tables     normal, variance 2 / (V + d_ff)
///   norms 1, biases 0
/// Element i of a tensor depends on the seed, the tensor's name and i alone.
/// Tensors have the config's dtype (f32 without one), tables stem.row_dtype;
/// what they hold is computed whenever it is read and takes no memory.
///
/// Throws for what cannot begin so: 8-bit rows, ids that keep the matrix.
Checkpoint openRandomModel(const std::filesystem::path &config, uint64_t seed,
                           int threads);

/// SHA-256 of what such a model's weights depend on.
std::string randomModelFingerprint(const Checkpoint &checkpoint, uint64_t seed);

/// Four standard normal numbers from four random words, by the inverse of the
/// distribution function: at most 6.34 in size, with an error below 1e-6.
std::array<float, 4> normalsOf(const std::array<uint32_t, 4> &words);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_RANDOMWEIGHTS_H
