//===- TrainedRows.cpp - The rows that a run has trained ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainedRows.h"

using namespace stem;

TrainedRows::TrainedRows(const Checkpoint &checkpoint, std::vector<int32_t> ids,
                         RowBase base, const std::filesystem::path &out)
    : checkpoint(checkpoint), file(out / "rows.safetensors") {
  overlay.name = file.string();
  overlay.ids = std::move(ids);
  overlay.base = std::move(base);
  for (const uint64_t layer : tableLayers(checkpoint)) {
    const TensorInfo &table =
        checkpoint.tensors().get(checkpoint.weights().layers[layer].upTable);
    overlay.tables.push_back({layer, table.dtype, table.rowElements(), {}});
  }
}

uint64_t TrainedRows::bytesNeeded() const { return overlay.fileBytes(); }

/// Of a table in f32 at a time.
void TrainedRows::write(const Trainer &trainer, const Json &provenance) {
  std::vector<float> values;
  for (RowOverlay::Table &table : overlay.tables) {
    const std::string &key = checkpoint.weights().layers[table.layer].upTable;
    values.resize(overlay.ids.size() * table.columns);
    trainer.readRows(key, 0, static_cast<int64_t>(overlay.ids.size()), values);
    table.rows.resize(dtypeBytes(table.dtype, values.size()).value());
    encodeChecked(key, table.dtype, values, table.rows.data(), rounding,
                  "make the model bf16 first: stem-run import --dtype=bf16");
  }
  overlay.provenance = jsonText(provenance);
  overlay.write(file);
}
