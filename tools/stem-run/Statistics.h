//===- Statistics.h - Means, medians and their intervals ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_STATISTICS_H
#define STEM_TOOLS_STEM_RUN_STATISTICS_H

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace stem {

struct Interval {
  double low = 0;
  double high = 0;
};

/// Standard error of the mean; 0 for fewer than two values.
double standardError(std::span<const double> values);

double median(std::vector<double> values);

/// Two-sided 95 % interval of the median from order statistics: no assumption
/// on the distribution. Nothing for fewer than six values, which cannot give
/// 95 %.
std::optional<Interval> medianInterval(std::vector<double> values);

/// A document's part in a mean per token.
struct Document {
  double difference = 0; ///< summed over its tokens
  int64_t tokens = 0;
};

/// 95 % interval of the mean difference per token, the documents being the
/// sample: a ratio of two sums, by linearisation, with Student's t. Nothing for
/// fewer than two documents.
std::optional<Interval> pairedInterval(std::span<const Document> documents);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_STATISTICS_H
