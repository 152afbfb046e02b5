//===- Convert.h - stem-run convert ---------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CONVERT_H
#define STEM_TOOLS_STEM_RUN_CONVERT_H

#include "Calibration.h"
#include "CommandLine.h"
#include "TableRows.h"

#include <filesystem>
#include <string>

namespace stem {

struct ConvertArguments {
  std::filesystem::path source;
  std::filesystem::path out; ///< "{rank}" in it stands for the rank
  std::string layers;
  TableInit init = {"calibrated", 0};
  CalibrationArguments calibration;
  bool isRankNamed = false;         ///< the ranks were given
  std::string rowDType = "keep";    ///< of 8-bit tables the hot rows'
  std::filesystem::path reportFile; ///< HTML, as `out`; empty: none
  CompileArguments compile;
  std::filesystem::path dumpDirectory;
  bool force = false;
  bool json = false;
};

/// Converts as the command line asks; prints the result.
void convertModel(const ConvertArguments &arguments);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CONVERT_H
