//===- ConversionBasis.h - What conversions have in common ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CONVERSIONBASIS_H
#define STEM_TOOLS_STEM_RUN_CONVERSIONBASIS_H

#include "Convert.h"
#include "ConvertGraph.h"
#include "TensorCopy.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// What the folders of one run share: the model, the text, the layers and the
/// tables that replace their matrices. They differ in the rank.
class ConversionBasis {
public:
  /// Opens the model, and where there is a calibration reads its text and
  /// chooses the layers. `requireSpace` throws where the tables, of so many
  /// bytes, do not fit; `spillFolder` is for what is beyond the memory.
  ConversionBasis(const ConvertArguments &arguments,
                  const std::filesystem::path &spillFolder,
                  const std::function<void(uint64_t)> &requireSpace);
  ConversionBasis(const ConversionBasis &) = delete;
  ConversionBasis &operator=(const ConversionBasis &) = delete;

  bool isCalibrated() const { return calibration != nullptr; }
  const ModelConfig &config() const { return checkpoint.config(); }
  /// Ids that keep the up-projection, rising.
  std::span<const int32_t> selectedIds() const;
  /// Whether rows are written in 8 bits, and the ids whose rows are not.
  bool hasByteRows() const { return arguments.calibration.coldRows.areBytes; }
  const HotIds &hotIds() const;
  DType storedRowType() const { return hasByteRows() ? DType::U8 : rowType; }
  /// Whether the STEM layers have lists of such ids.
  bool keepsMatrices() const;
  /// The ranks of the layers' low-rank terms.
  std::vector<LayerChoice> chooseRanks(int64_t rank) const;

  const ConvertArguments &arguments;
  const Checkpoint checkpoint;
  const TypeChoice types;
  const std::unique_ptr<Calibration> calibration; ///< null: rows need no text
  const std::vector<uint64_t> layers;             ///< to convert, rising
  const GraphConversion graph;
  const DType rowType;    ///< of rows that are not of 8 bits
  const HotIds listedHot; ///< without a calibration
  const std::vector<std::string> leftOut;

private:
  std::unique_ptr<Calibration>
  makeCalibration(const std::filesystem::path &spillFolder,
                  const std::function<void(uint64_t)> &requireSpace) const;
  std::string layerChoice() const;
  std::vector<uint64_t> chooseDenseLayers() const;
  GraphConversion makeGraph() const;
  HotIds chooseListedHot() const;
  DType chooseRowType(uint64_t layer) const;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CONVERSIONBASIS_H
