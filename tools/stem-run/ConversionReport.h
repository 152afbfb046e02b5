//===- ConversionReport.h - convert --report --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CONVERSIONREPORT_H
#define STEM_TOOLS_STEM_RUN_CONVERSIONREPORT_H

#include "Json.h"

#include <string>

namespace stem {

/// What `convert --json` prints, drawn as a self-contained HTML page. What the
/// result does not hold is left out of the page.
std::string conversionReport(const Json &result);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CONVERSIONREPORT_H
