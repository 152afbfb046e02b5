//===- FolderConversion.cpp - One folder of stem-run convert --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FolderConversion.h"

#include "CommandLine.h"
#include "Tokenizing.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <fmt/ranges.h>
#include <mutex>

using namespace stem;
namespace fs = std::filesystem;

/// A mild penalty that ended all answers of a measured chat
/// (docs/conversion.md).
static constexpr double kChatPenalty = 1.1;

std::optional<TensorInfo>
FolderConversion::selectedTensor(uint64_t layer) const {
  if (!basis.keepsMatrices())
    return std::nullopt;
  const std::span<const int32_t> ids = basis.selectedIds();
  return TensorInfo{layerTensorName(layer, "mlp.up_select.ids"),
                    DType::I32,
                    {ids.size()},
                    ids.size_bytes(),
                    {}};
}

/// Tensors that keep their name and get new values: the W_down of calibrated
/// layers.
std::set<std::string> FolderConversion::refittedKeys() const {
  std::set<std::string> keys;
  if (basis.isCalibrated())
    for (const uint64_t layer : basis.layers)
      keys.insert(basis.checkpoint.weights().layers[layer].downProj);
  return keys;
}

/// A folder's shards are linked as they are; the index leaves out what the
/// tables replace. A GGUF file has no shards to link, and a shard with a tensor
/// that gets new values is copied without it: readers that load whole shards
/// would find the name twice.
void FolderConversion::declareDense() {
  std::map<fs::path, std::vector<std::string>> shards;
  const std::set<std::string> refitted = refittedKeys();
  std::set<fs::path> changed;
  for (const std::string &name : refitted)
    changed.insert(basis.checkpoint.tensors().get(name).file);
  for (const std::string &name : basis.checkpoint.weights().names()) {
    const TensorInfo &tensor = basis.checkpoint.tensors().get(name);
    if (basis.graph.dropped.count(name) || refitted.count(name))
      continue;
    if (!basis.checkpoint.gguf() && !changed.count(tensor.file)) {
      shards[tensor.file].push_back(name);
      continue;
    }
    writer().addTensor({name, basis.types.typeOf(tensor), tensor.shape});
    copied.push_back(&tensor);
    bytesToWrite += bytesAs(tensor, basis.types.typeOf(tensor));
  }
  for (const auto &[file, names] : shards)
    writer().linkShard(file, names);
}

void FolderConversion::declareTables() {
  for (const NewTable &planned : basis.graph.tables) {
    TensorInfo table{planned.key,
                     basis.storedRowType(),
                     {planned.rows, planned.columns},
                     0,
                     {}};
    const auto bytes = dtypeBytes(table.dtype, table.elements());
    if (!bytes)
      fail("{}: a table of {} is too large", planned.key,
           formatShape(table.shape));
    table.bytes = *bytes;
    const std::string file = tableFileName(planned.layer);
    writer().addTensor({table.name, table.dtype, table.shape}, file);
    if (basis.hasByteRows())
      declareByteRows(table, file);
    if (const auto ids = selectedTensor(planned.layer))
      writer().addTensor({ids->name, ids->dtype, ids->shape}, file);
    if (!basis.isCalibrated())
      bytesToWrite += table.bytes;
    for (const TensorInfo &matrix : fittedMatrices(planned.layer))
      writer().addTensor({matrix.name, matrix.dtype, matrix.shape}, file);
    tables.push_back(std::move(table));
  }
}

/// What is written behind a table's bytes.
void FolderConversion::declareByteRows(const TensorInfo &table,
                                       const std::string &file) {
  const std::vector<TensorInfo> &tensors =
      byteTables
          .emplace_back(table.name, table.shape[0], table.shape[1],
                        basis.hotIds().ids.size(), basis.rowType)
          .tensors;
  for (const TensorInfo &tensor : std::span(tensors).subspan(1))
    writer().addTensor({tensor.name, tensor.dtype, tensor.shape}, file);
}

uint64_t FolderConversion::rankOf(uint64_t layer) const {
  const auto place =
      std::lower_bound(basis.layers.begin(), basis.layers.end(), layer);
  return static_cast<uint64_t>(
      outcome.layers[static_cast<size_t>(place - basis.layers.begin())].rank);
}

/// What basis.calibration fits beside the rows: the factors of the low-rank
/// term, if there is one, and W_down.
std::vector<TensorInfo> FolderConversion::fittedMatrices(uint64_t layer) const {
  if (!basis.isCalibrated())
    return {};
  TensorInfo down = basis.checkpoint.tensors().get(
      basis.checkpoint.weights().layers[layer].downProj);
  const DType type = basis.types.typeOf(down);
  const uint64_t rank = rankOf(layer);
  std::vector<TensorInfo> matrices;
  if (rank > 0) {
    matrices.push_back({layerTensorName(layer, "mlp.up_mix.a.weight"),
                        type,
                        {config().intermediateSize, rank},
                        0,
                        {}});
    matrices.push_back({layerTensorName(layer, "mlp.up_mix.b.weight"),
                        type,
                        {rank, config().hiddenSize},
                        0,
                        {}});
  }
  down.dtype = type;
  matrices.push_back(std::move(down));
  for (TensorInfo &matrix : matrices)
    matrix.bytes = dtypeBytes(type, matrix.elements()).value();
  return matrices;
}

std::string FolderConversion::provenance() const {
  Json json = {{"command", "convert"},
               {"source", fs::absolute(basis.arguments.source).string()},
               {"init", basis.arguments.init.kind},
               {"layers", basis.layers}};
  if (basis.arguments.init.kind == "xavier")
    json["seed"] = basis.arguments.init.seed;
  if (basis.hasByteRows())
    json["cold_rows"] = byteRowsJson();
  if (basis.isCalibrated())
    json["calibration"] = basis.calibration->summary(outcome);
  const auto &stem = config().stem;
  if (stem && !stem->provenance.empty())
    json["before"] = Json::parse(stem->provenance);
  return jsonText(json);
}

StemSection FolderConversion::section() const {
  StemSection stem;
  if (config().stem) {
    stem = *config().stem;
  } else {
    stem.baseModelType = familyName(config().family);
    const Json json = Json::parse(config().sourceText);
    if (json.contains("architectures") && json["architectures"].is_array())
      stem.baseArchitectures =
          json["architectures"].get<std::vector<std::string>>();
  }
  // Of rank 0 without a calibration: the new layers have rows alone.
  for (const uint64_t layer : basis.layers)
    stem.addLayer(layer, rankOf(layer));
  stem.rowDType = dtypeConfigName(basis.storedRowType());
  stem.select = basis.keepsMatrices();
  stem.provenance = provenance();
  return stem;
}

std::string FolderConversion::configText() const {
  std::string text = config().sourceText;
  if (const auto type = basis.types.modelType())
    text = configWithDType(text, *type);
  return configWithStem(text, section());
}

ModelCost FolderConversion::costAfter() const {
  ModelWeights weights = basis.checkpoint.weights();
  TensorSizes sizes = tensorSizes(basis.checkpoint);
  if (basis.checkpoint.gguf())
    for (auto &[name, tensor] : sizes) {
      const DType type = basis.types.typeOf(tensor);
      tensor.bytes = bytesAs(tensor, type);
      tensor.dtype = type;
    }
  for (size_t i = 0; i < basis.layers.size(); ++i) {
    LayerWeights &layer = weights.layers[basis.layers[i]];
    if (const auto ids = selectedTensor(basis.layers[i])) {
      layer.upSelectIds = ids->name;
      sizes[ids->name] = *ids;
    } else {
      layer.upProj.clear();
      layer.upBias.clear();
    }
    layer.upTable = tables[i].name;
    sizes[tables[i].name] = tables[i];
    if (basis.hasByteRows()) {
      byteTables[i].name(layer);
      for (const TensorInfo &tensor : byteTables[i].tensors)
        sizes[tensor.name] = tensor;
    }
    const std::vector<TensorInfo> matrices = fittedMatrices(basis.layers[i]);
    for (const TensorInfo &matrix : matrices)
      sizes[matrix.name] = matrix;
    if (matrices.size() > 1) {
      layer.upMixA = matrices[0].name;
      layer.upMixB = matrices[1].name;
    }
  }
  return costOf(weights, sizes);
}

void FolderConversion::writeDense(Progress &progress) {
  for (const TensorInfo *tensor : copied)
    copyTensor(basis.checkpoint.tensors(), *tensor, basis.types.typeOf(*tensor),
               writer(), rounding, [&](uint64_t count) {
                 progress.update(static_cast<double>(bytesWritten += count));
               });
}

namespace {

/// Lets threads go one after the other, in the order of their tasks.
class Turns {
public:
  /// Whether the tasks before have ended well.
  bool wait(int64_t task) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return next == task || hasFailed; });
    return !hasFailed;
  }
  void end() {
    const std::lock_guard lock(mutex);
    ++next;
    changed.notify_all();
  }
  void fail() {
    const std::lock_guard lock(mutex);
    hasFailed = true;
    changed.notify_all();
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  int64_t next = 0;
  bool hasFailed = false;
};

} // namespace

/// Each thread fills rows of its own and waits for its turn to write them.
void FolderConversion::writeRows(size_t number, TableRows &rows,
                                 const std::function<void(uint64_t)> &onBytes) {
  constexpr const char *advice = "choose --row-dtype=bf16 or f32";
  const TensorInfo &table = tables[number];
  std::optional<ByteRowWriter> byteRows;
  if (basis.hasByteRows())
    byteRows.emplace(byteTables[number], basis.hotIds().ids);
  const uint64_t vocab = config().vocabSize;
  const uint64_t f = config().intermediateSize;
  const uint64_t step = rowsAtATime(config());
  const auto threads = static_cast<size_t>(stem_context_threads(context.get()));
  std::vector<std::vector<float>> filled(threads);
  std::vector<std::byte> bytes(dtypeBytes(table.dtype, step * f).value());
  const auto write = [&](std::span<const float> values) {
    const std::span part(bytes.data(), bytes.size() / step * values.size() / f);
    if (byteRows)
      byteRows->encode(values, part, rounding, advice);
    else
      encodeChecked(table.name, table.dtype, values, part.data(), rounding,
                    advice);
    writer().write(part);
    onBytes(part.size());
  };
  Turns turns;
  std::atomic<int64_t> next{0};
  const auto pieces = static_cast<int64_t>((vocab + step - 1) / step);
  // A piece at a time: a thread that took several would keep the others
  // waiting for the last of them.
  parallelFor(context.get(), int64_t(threads), [&](int64_t task) {
    std::vector<float> &values = filled[static_cast<size_t>(task)];
    values.resize(step * f);
    try {
      for (int64_t piece = next++; piece < pieces; piece = next++) {
        const uint64_t row = static_cast<uint64_t>(piece) * step;
        const uint64_t count = std::min(step, vocab - row);
        rows.fill(row, count, values.data());
        if (!turns.wait(piece))
          return;
        write({values.data(), count * f});
        turns.end();
      }
    } catch (...) {
      turns.fail();
      throw;
    }
  });
  if (byteRows)
    byteRows->writeRest(writer());
}

void FolderConversion::writeInitialTables() {
  Progress progress("convert", static_cast<double>(bytesToWrite));
  writeDense(progress);
  for (size_t i = 0; i < tables.size(); ++i)
    writeRows(i,
              *makeTableRows(basis.arguments.init, basis.checkpoint,
                             basis.graph.tables[i].layer, context.get()),
              [&](uint64_t count) {
                progress.update(static_cast<double>(bytesWritten += count));
              });
}

/// Layers are written as they are finished, in the order of the files.
void FolderConversion::writeCalibrated() {
  {
    Progress progress("copying", static_cast<double>(bytesToWrite));
    writeDense(progress);
  }
  size_t next = 0;
  basis.calibration->convert(outcome, [&](const ConvertedLayer &layer) {
    writeRows(next++, layer.rows, [](uint64_t) {});
    writer().write(std::as_bytes(basis.selectedIds()));
    writeFittedMatrices(layer);
  });
}

void FolderConversion::writeFittedMatrices(const ConvertedLayer &layer) {
  std::vector<std::span<const float>> values = {layer.down};
  if (layer.lowRank)
    values = {layer.lowRank->a(), layer.lowRank->b(), layer.down};
  const std::vector<TensorInfo> matrices = fittedMatrices(layer.figures.layer);
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (values[i].size() != matrices[i].elements())
      fail("{}: {} values were fitted, {} are declared", matrices[i].name,
           values[i].size(), matrices[i].elements());
    std::vector<std::byte> bytes(matrices[i].bytes);
    encodeChecked(matrices[i].name, matrices[i].dtype, values[i], bytes.data(),
                  rounding, "convert fewer layers or give more text");
    writer().write(bytes);
  }
}

/// Greedy answers of a converted model tend to repeat themselves; a source that
/// has a penalty keeps its own.
void FolderConversion::declarePenalty() {
  if (!basis.isCalibrated() || basis.checkpoint.repetitionPenalty())
    return;
  const std::optional<Tokenizer> tokenizer = loadTokenizer(basis.checkpoint);
  if (tokenizer && tokenizer->chatTemplate())
    writer().addText("generation_config.json",
                     generationConfigWithPenalty(
                         generationConfigText(basis.checkpoint),
                         basis.checkpoint.path().string(), kChatPenalty));
}

void FolderConversion::declareTexts() {
  writer().addText("config.json", configText());
  writer().setProvenance(provenance());
}

FolderConversion::FolderConversion(const ConversionBasis &basis,
                                   const ConversionTarget &target)
    : basis(basis), target(target),
      context(createContext(basis.arguments.compile.threads)) {
  outcome.rank = target.rank;
  outcome.layers = basis.chooseRanks(target.rank);
  declareDense();
  declareTables();
  addModelFiles(writer(), basis.checkpoint, /*isStem=*/true);
  declarePenalty();
  declareTexts();
}

void FolderConversion::run() {
  printStderr("writing {} to {} ({} free){}\n",
              formatBytes(static_cast<double>(writer().bytesNeeded())),
              target.out.string(),
              formatBytes(static_cast<double>(writer().bytesAvailable())),
              copied.empty() ? "; the dense files are linked" : "");
  writer().start();
  if (basis.isCalibrated())
    writeCalibrated();
  else
    writeInitialTables();
  declareTexts(); // now with what the calibration came to
  writer().finish();
}

//===----------------------------------------------------------------------===//
// The result
//===----------------------------------------------------------------------===//

ModelCost FolderConversion::costBefore() const {
  return costOf(basis.checkpoint.weights(), tensorSizes(basis.checkpoint));
}

Json FolderConversion::result(double seconds) const {
  Json json = resultObject("convert");
  json.update({{"source", basis.arguments.source.string()},
               {"out", target.out.string()},
               {"converted", basis.layers},
               {"init", basis.arguments.init.kind},
               {"row_dtype", dtypeConfigName(basis.storedRowType())},
               {"replaced", basis.graph.dropped},
               {"left_out", basis.leftOut},
               {"not_finite", rounding.notFiniteJson()},
               {"before", modelCostJson(costBefore())},
               {"after", modelCostJson(costAfter())},
               {"seconds", seconds},
               {"peak_bytes", memoryStatus().peakResident}});
  if (basis.arguments.init.kind == "xavier")
    json["seed"] = basis.arguments.init.seed;
  if (basis.hasByteRows())
    json["cold_rows"] = byteRowsJson();
  if (basis.isCalibrated()) {
    json["calibration"] = basis.calibration->summary(outcome);
    json["calibration"].update(basis.calibration->ofThisRun(outcome));
  }
  return json;
}

void FolderConversion::warn() const {
  rounding.warnNotFinite();
  if (!basis.isCalibrated())
    printWarning(fmt::format("tables that start from {} ruin a trained model; "
                             "train them before use",
                             basis.arguments.init.kind));
}

void FolderConversion::print(double seconds) const {
  const std::vector<uint64_t> stems = section().layers;
  fmt::print("{}: {} of {} layers are STEM ({}), rows in {}, in {}\n",
             target.out.string(), stems.size(), config().layerCount(),
             fmt::join(stems, ", "), dtypeConfigName(basis.storedRowType()),
             formatSeconds(seconds));
  printLeftOut(basis.leftOut);
  printCosts();
  if (basis.hasByteRows())
    printByteRows();
}

uint64_t FolderConversion::tableBytes() const {
  uint64_t sum = 0;
  for (const ByteTableTensors &table : byteTables)
    sum += table.totalBytes();
  return sum;
}

Json FolderConversion::byteRowsJson() const {
  const ColdRowOptions &asked = basis.arguments.calibration.coldRows;
  uint64_t full = 0;
  for (const TensorInfo &table : tables)
    full += bytesAs(table, basis.rowType);
  return byteRowFigures(asked, basis.hotIds(), basis.rowType,
                        {.tables = tableBytes(),
                         .fullTables = full,
                         .model = costAfter().total().bytes});
}

void FolderConversion::printByteRows() const {
  stem::printByteRows(byteRowsJson(), basis.hotIds(), config().vocabSize);
}

void FolderConversion::printCalibration() const {
  if (basis.isCalibrated())
    basis.calibration->print(outcome);
}

void FolderConversion::printCosts() const {
  const ModelCost before = costBefore(), after = costAfter();
  const auto fromTo = [](uint64_t from, uint64_t to, auto format) {
    return format(static_cast<double>(from)) + " -> " +
           format(static_cast<double>(to));
  };
  const auto line = [&](const std::string &name, const Cost &from,
                        const Cost &to) {
    fmt::print("{:<9} {:>20} {:>20} {:>20} {:>20}\n", name,
               fromTo(from.parameters, to.parameters, formatCount),
               fromTo(from.flopsPerToken, to.flopsPerToken, formatCount),
               fromTo(from.bytes, to.bytes, formatBytes),
               fromTo(from.bytesPerToken, to.bytesPerToken, formatBytes));
  };
  fmt::print("{:<9} {:>20} {:>20} {:>20} {:>20}\n", "", "parameters",
             "FLOPs per token", "bytes", "read per token");
  for (const uint64_t layer : basis.layers)
    line(fmt::format("layer {}", layer), before.layers[layer],
         after.layers[layer]);
  line("model", before.total(), after.total());
  const auto share = [](uint64_t from, uint64_t to) {
    return static_cast<double>(to) / static_cast<double>(from);
  };
  fmt::print("FLOPs of linear layers; attention comes on top and is the same "
             "in both.\n");
  const Cost from = before.total(), to = after.total();
  const double saved = 1 - share(from.flopsPerToken, to.flopsPerToken);
  const std::string changes = fmt::format(
      "FLOPs fall by {:.1f} %, its bytes are {:.2f} times as many, a decoded "
      "token reads {:.2f} times as many.",
      100 * saved, share(from.bytes, to.bytes),
      share(from.bytesPerToken, to.bytesPerToken));
  fmt::print("The model's {}\n", changes);
}
