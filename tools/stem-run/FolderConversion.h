//===- FolderConversion.h - One folder of stem-run convert ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_FOLDERCONVERSION_H
#define STEM_TOOLS_STEM_RUN_FOLDERCONVERSION_H

#include "ByteRowWriter.h"
#include "ConversionBasis.h"
#include "Json.h"
#include "ModelCost.h"
#include "Progress.h"
#include "TableRows.h"
#include "TensorCopy.h"

#include "stem/Model/ModelFolder.h"
#include "stem/Runtime/Context.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// Where a conversion goes.
struct ConversionTarget {
  std::filesystem::path out;
  std::filesystem::path reportFile; ///< empty: none
  int64_t rank = 0;
  std::unique_ptr<ModelFolderWriter> writer;
};

/// Makes one folder. Tables are written as a stream, in files of their own; the
/// dense shards are linked.
class FolderConversion {
public:
  /// Declares all that will be written.
  FolderConversion(const ConversionBasis &basis,
                   const ConversionTarget &target);

  uint64_t bytesNeeded() const { return target.writer->bytesNeeded(); }

  /// Converts and writes. The folder is there when this returns.
  void run();

  Json result(double seconds) const;
  void warn() const;
  void print(double seconds) const;
  void printCalibration() const;

private:
  const ModelConfig &config() const { return basis.config(); }
  ModelFolderWriter &writer() const { return *target.writer; }
  std::optional<TensorInfo> selectedTensor(uint64_t layer) const;
  std::set<std::string> refittedKeys() const;
  void declareDense();
  void declareTables();
  void declareByteRows(const TensorInfo &table, const std::string &file);
  uint64_t rankOf(uint64_t layer) const;
  std::vector<TensorInfo> fittedMatrices(uint64_t layer) const;
  StemSection section() const;
  std::string configText() const;
  std::string provenance() const;
  void declarePenalty();
  void declareTexts();
  void writeDense(Progress &progress);
  void writeRows(size_t table, TableRows &rows,
                 const std::function<void(uint64_t)> &onBytes);
  uint64_t tableBytes() const;
  Json byteRowsJson() const;
  void printByteRows() const;
  void writeInitialTables();
  void writeCalibrated();
  void writeFittedMatrices(const ConvertedLayer &layer);
  ModelCost costBefore() const;
  ModelCost costAfter() const;
  void printCosts() const;

  const ConversionBasis &basis;
  const ConversionTarget &target;
  ContextPtr context;         ///< its threads write tables
  CalibrationOutcome outcome; ///< without a calibration its layers alone
  std::vector<const TensorInfo *> copied; ///< from a GGUF file
  std::vector<TensorInfo> tables;
  std::vector<ByteTableTensors> byteTables; ///< of each, where rows are bytes
  RoundingError rounding;
  uint64_t bytesToWrite = 0;
  uint64_t bytesWritten = 0;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_FOLDERCONVERSION_H
