//===- TrainOptions.cpp - Values of options of training -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainOptions.h"

#include "CommandLine.h"
#include "stem/Support/Format.h"

using namespace stem;

double stem::parseNumber(const std::string &text, std::string_view flag,
                         std::string_view wanted) {
  const std::optional<double> value = readFinite(text);
  if (!value)
    throw UsageError(
        fmt::format("{}={}: give {}", flag, printable(text), wanted));
  return *value;
}

double stem::parseAtLeastZero(const std::string &text, std::string_view flag) {
  constexpr const char *wanted = "a number from 0";
  const double value = parseNumber(text, flag, wanted);
  if (value < 0)
    throw UsageError(
        fmt::format("{}={}: give {}", flag, printable(text), wanted));
  return value;
}

void stem::parseBetas(const std::string &text, std::string_view flag,
                      AdamWOptions &options) {
  constexpr const char *wanted =
      "two numbers from 0 and below 1, like 0.9,0.95";
  const size_t comma = text.find(',');
  if (comma == std::string::npos)
    throw UsageError(
        fmt::format("{}={}: give {}", flag, printable(text), wanted));
  const auto beta = [&](const std::string &part) {
    const double value = parseNumber(part, flag, wanted);
    if (value < 0 || value >= 1)
      throw UsageError(
          fmt::format("{}={}: give {}", flag, printable(text), wanted));
    return value;
  };
  options.beta1 = beta(text.substr(0, comma));
  options.beta2 = beta(text.substr(comma + 1));
}

double stem::parseEpsilon(const std::string &text, std::string_view flag) {
  constexpr const char *wanted =
      "a number from 1e-12 to 1, for moments are kept in f32";
  const double value = parseNumber(text, flag, wanted);
  if (!isEpsilon(value))
    throw UsageError(
        fmt::format("{}={}: give {}", flag, printable(text), wanted));
  return value;
}
