//===- CalibrationSources.h - Where a calibration's text comes from -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CALIBRATIONSOURCES_H
#define STEM_TOOLS_STEM_RUN_CALIBRATIONSOURCES_H

#include "CalibrationText.h"
#include "Json.h"

#include <CLI/CLI.hpp>

namespace stem {

/// Windows are no longer than the model's context. An Error where that has no
/// two tokens.
CalibrationTextOptions fittedOptions(CalibrationTextOptions options,
                                     const Checkpoint &checkpoint);

/// Of a LayerRunner for such a text.
EngineOptions runnerOptions(EngineOptions engine,
                            const CalibrationTextOptions &options);

/// The text of a conversion's calibration. Says on standard error what it
/// does.
CalibrationText gatherCalibrationText(const Checkpoint &checkpoint,
                                      const CalibrationTextOptions &options,
                                      const EngineOptions &engine);

/// What the folder and --json say of the text.
Json textSummary(const CalibrationText &text,
                 const CalibrationTextOptions &options);

void addCalibrationTextOptions(CLI::App &command,
                               CalibrationTextOptions &options);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CALIBRATIONSOURCES_H
