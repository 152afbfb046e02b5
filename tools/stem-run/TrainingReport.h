//===- TrainingReport.h - The page about a training run ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAININGREPORT_H
#define STEM_TOOLS_STEM_RUN_TRAININGREPORT_H

#include "TrainingMetrics.h"

#include <string>

namespace stem {

/// A page with the curves of a run and how it was made. `result` is what --json
/// prints.
std::string trainingReport(const Json &result, const TrainingMetrics &metrics);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAININGREPORT_H
