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

/// Fewer documents say too little of how documents differ.
inline constexpr size_t kLeastBootstrapDocuments = 8;

struct BootstrapIntervals {
  Interval all;                ///< of the mean difference of all documents
  std::vector<Interval> files; ///< of each file's
  Interval meanOfFiles;        ///< of the mean of the files' mean differences
};

/// 95 % percentile intervals of mean differences per token. A resample draws
/// from each file's documents as many as it has, with replacement; draw i of
/// resample b, counted over the files, is a function of seed, b and i alone.
/// The files must not be empty.
BootstrapIntervals
bootstrapIntervals(std::span<const std::vector<Document>> files,
                   uint64_t seed = 0, size_t resamples = 2000);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_STATISTICS_H
