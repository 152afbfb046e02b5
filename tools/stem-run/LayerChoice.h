//===- LayerChoice.h - What --layers means ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_LAYERCHOICE_H
#define STEM_TOOLS_STEM_RUN_LAYERCHOICE_H

#include "stem/Model/ModelConfig.h"

#include <cstdint>
#include <string>
#include <vector>

namespace stem {

/// The dense layers that "1/3" (2, 5, 8, ...), "1/2" (1, 3, 5, ...), "all" (all
/// but the first) or a list like "2,5,8" chooses, sorted. Patterns pass over
/// layers that are STEM already; a list that names one is an Error, as is a
/// choice of no layer.
std::vector<uint64_t> chooseLayers(const std::string &choice,
                                   const ModelConfig &config);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_LAYERCHOICE_H
