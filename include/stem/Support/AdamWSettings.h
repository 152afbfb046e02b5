//===- AdamWSettings.h - Defaults and ranges of AdamW -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For the runtime's AdamW, the passes that put it into a step, and the command
// line.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_ADAMWSETTINGS_H
#define STEM_SUPPORT_ADAMWSETTINGS_H

namespace stem {

inline constexpr double kDefaultBeta1 = 0.9;
inline constexpr double kDefaultBeta2 = 0.95;
inline constexpr double kDefaultEpsilon = 1e-8;
inline constexpr double kDefaultWeightDecay = 0.1;

constexpr bool isBeta(double value) { return value >= 0 && value < 1; }

/// From 1e-12: moments are kept in f32, and the root of the least second moment
/// that f32 holds is 1e-19.
constexpr bool isEpsilon(double value) { return value >= 1e-12 && value <= 1; }

} // namespace stem

#endif // STEM_SUPPORT_ADAMWSETTINGS_H
