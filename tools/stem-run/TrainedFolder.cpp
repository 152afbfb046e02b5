//===- TrainedFolder.cpp - The model that a run has trained ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainedFolder.h"

#include "Progress.h"
#include "stem/Support/Error.h"
#include "stem/Support/Files.h"

#include <algorithm>

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kBlockElements = 1 << 20;
constexpr const char *kConfig = "config.json";

} // namespace

TrainedFolder::TrainedFolder(const Checkpoint &checkpoint, fs::path out,
                             fs::path scratch)
    : checkpoint(checkpoint), out(std::move(out)),
      fresh(std::move(scratch) / "model"), types(checkpoint, std::nullopt) {
  // Of a run that was killed while it moved files.
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
}

std::vector<const TensorInfo *>
TrainedFolder::declare(ModelFolderWriter &writer) const {
  addModelFiles(writer, checkpoint, checkpoint.config().stem.has_value());
  writer.addText(kConfig, configTextAs(checkpoint, types));
  return declareTensors(writer, checkpoint, types);
}

uint64_t TrainedFolder::bytesNeeded() const {
  ModelFolderWriter writer(fresh, {.force = true});
  declare(writer);
  return writer.bytesNeeded();
}

/// A block of rows at a time.
void TrainedFolder::writeTrained(const TensorInfo &tensor,
                                 const Trainer &trainer,
                                 ModelFolderWriter &writer) {
  const DType type = types.typeOf(tensor);
  const uint64_t rows = tensor.rows(), columns = tensor.rowElements();
  const uint64_t step =
      std::clamp<uint64_t>(kBlockElements / std::max<uint64_t>(columns, 1), 1,
                           std::max<uint64_t>(rows, 1));
  const std::span<const float> dense = trainer.values(tensor.name);
  std::vector<float> part;
  std::vector<std::byte> bytes;
  for (uint64_t row = 0; row < rows; row += step) {
    const uint64_t count = std::min(step, rows - row);
    part.resize(count * columns);
    if (dense.empty())
      trainer.readRows(tensor.name, static_cast<int64_t>(row),
                       static_cast<int64_t>(count), part);
    else
      std::ranges::copy(dense.subspan(row * columns, part.size()),
                        part.begin());
    bytes.resize(dtypeBytes(type, part.size()).value());
    encodeChecked(tensor.name, type, part, bytes.data(), rounding,
                  "make the model bf16 first: stem-run import --dtype=bf16");
    writer.write(bytes);
  }
}

void TrainedFolder::write(const Trainer &trainer, const Json &provenance) {
  ModelFolderWriter writer(fresh, {.force = true});
  const std::vector<const TensorInfo *> tensors = declare(writer);
  writer.setProvenance(jsonText(provenance));
  writer.start();
  for (const TensorInfo *tensor : tensors)
    if (trainer.isTrained(tensor->name))
      writeTrained(*tensor, trainer, writer);
    else
      copyTensor(checkpoint.tensors(), *tensor, types.typeOf(*tensor), writer,
                 rounding, [](uint64_t) {});
  writer.finish();
  publish();
}

void TrainedFolder::publish() const {
  std::error_code error;
  fs::remove(out / kConfig, error);
  syncPath(out);
  std::vector<fs::path> names;
  for (const fs::directory_entry &entry : fs::directory_iterator(fresh))
    names.push_back(entry.path().filename());
  for (const fs::path &name : names)
    if (name != kConfig)
      renamePath(fresh / name, out / name);
  syncPath(out);
  renamePath(fresh / kConfig, out / kConfig);
  syncPath(out);
  fs::remove(fresh, error);
}
