//===- TrainOptions.h - Values of options of training -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each throws a UsageError that names the flag and what was wanted.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAINOPTIONS_H
#define STEM_TOOLS_STEM_RUN_TRAINOPTIONS_H

#include "stem/Training/AdamW.h"

#include <string>
#include <string_view>

namespace stem {

/// A finite number; `wanted` is for the message.
double parseNumber(const std::string &text, std::string_view flag,
                   std::string_view wanted);

double parseAtLeastZero(const std::string &text, std::string_view flag);

/// "0.9,0.95".
void parseBetas(const std::string &text, std::string_view flag,
                AdamWOptions &options);

/// What AdamW takes, which every step is compiled with.
double parseEpsilon(const std::string &text, std::string_view flag);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAINOPTIONS_H
