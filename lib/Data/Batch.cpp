//===- Batch.cpp - Tokens of one training step ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/Batch.h"

#include "stem/Model/TensorSource.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cstring>

using namespace stem;

void stem::checkSequenceLength(uint64_t length, uint64_t maxPositions) {
  if (length == 0)
    fail("sequences of length 0: a sequence has at least one token");
  if (maxPositions && length > maxPositions)
    fail("sequences of length {}: the model has {} positions "
         "(max_position_embeddings); give shorter ones",
         length, maxPositions);
}

namespace {

const TensorView &getMatrix(const SafetensorsFile &file, const char *name) {
  const TensorView *view = file.find(name);
  if (!view)
    fail("{}: there is no tensor \"{}\"; a batch is \"input_ids\" and "
         "\"labels\", both [rows, length] of I32 or I64",
         file.fileName(), name);
  if (view->dtype != DType::I32 && view->dtype != DType::I64)
    fail("{}: tensor \"{}\" is of type {}; I32 or I64 was expected",
         file.fileName(), name, dtypeName(view->dtype));
  if (view->shape.size() != 2 || view->shape[0] == 0 || view->shape[1] == 0)
    fail("{}: tensor \"{}\" has shape {}; [rows, length] was expected, none of "
         "them 0",
         file.fileName(), name, formatShape(view->shape));
  return *view;
}

template <typename T>
std::vector<int32_t> readNumbers(const TensorView &view, uint64_t vocabulary,
                                 bool areLabels, const std::string &fileName) {
  std::vector<int32_t> result(view.data.size() / sizeof(T));
  for (size_t i = 0; i < result.size(); ++i) {
    T value;
    std::memcpy(&value, view.data.data() + i * sizeof(T), sizeof(T));
    const bool isId = value >= 0 && static_cast<uint64_t>(value) < vocabulary;
    if (!isId && !(areLabels && value == kNoLabel))
      fail("{}: {} {} in row {}, column {} is out of range; the vocabulary has "
           "ids 0 to {}{}",
           fileName, areLabels ? "label" : "id", value, i / view.shape[1],
           i % view.shape[1], vocabulary - 1,
           areLabels ? ", and -100 is no label" : "");
    result[i] = static_cast<int32_t>(value);
  }
  return result;
}

std::vector<int32_t> readMatrix(const TensorView &view, uint64_t vocabulary,
                                bool areLabels, const std::string &fileName) {
  return view.dtype == DType::I32
             ? readNumbers<int32_t>(view, vocabulary, areLabels, fileName)
             : readNumbers<int64_t>(view, vocabulary, areLabels, fileName);
}

} // namespace

Batch stem::batchFromTensors(const SafetensorsFile &file,
                             const BatchLimits &limits) {
  const TensorView &ids = getMatrix(file, "input_ids");
  const TensorView &labels = getMatrix(file, "labels");
  if (ids.shape != labels.shape)
    fail(
        "{}: \"input_ids\" has shape {}, \"labels\" has {}; there is one label "
        "for each id",
        file.fileName(), formatShape(ids.shape), formatShape(labels.shape));
  try {
    checkSequenceLength(ids.shape[1], limits.maxPositions);
  } catch (const Error &error) {
    fail("{}: {}", file.fileName(), error.what());
  }
  Batch batch;
  batch.rows = static_cast<int64_t>(ids.shape[0]);
  batch.length = static_cast<int64_t>(ids.shape[1]);
  batch.ids = readMatrix(ids, limits.vocabulary, false, file.fileName());
  batch.labels = readMatrix(labels, limits.vocabulary, true, file.fileName());
  for (int64_t i = 0; i < batch.places(); ++i) {
    batch.positions.push_back(static_cast<int32_t>(i % batch.length));
    batch.sequences.push_back(static_cast<int32_t>(i / batch.length));
  }
  batch.labelCount =
      batch.places() - std::ranges::count(batch.labels, kNoLabel);
  return batch;
}

Batch stem::readBatchIds(const std::filesystem::path &path,
                         const BatchLimits &limits) {
  return batchFromTensors(SafetensorsFile::open(path), limits);
}
