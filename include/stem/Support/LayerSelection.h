//===- LayerSelection.h - Which layers a conversion takes -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_LAYERSELECTION_H
#define STEM_SUPPORT_LAYERSELECTION_H

#include <cstdint>
#include <string_view>
#include <vector>

namespace stem {

/// The layers, in rising order, that `text` names of `count`: "1/3" is 2, 5,
/// 8, …; "1/2" is 1, 3, 5, …; "all" is all but the first; else numbers from 0
/// separated by commas. Throws an Error that names what is not a layer and what
/// is taken; `also` is what the caller takes beside these, like "auto:N, ".
std::vector<uint64_t> parseLayerSelection(std::string_view text, uint64_t count,
                                          std::string_view also = "");

} // namespace stem

#endif // STEM_SUPPORT_LAYERSELECTION_H
