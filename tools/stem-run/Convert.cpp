//===- Convert.cpp - stem-run convert -----------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dense to STEM: stem-dense-to-lookup decides on the model's IR which tables
// take the place of which matrices; their rows are computed here. Tables are
// written as a stream, in files of their own; the dense shards are linked.
//
//===----------------------------------------------------------------------===//

#include "Convert.h"

#include "ConversionReport.h"

#include "CommandLine.h"
#include "ConvertGraph.h"
#include "Json.h"
#include "ModelCost.h"
#include "Progress.h"
#include "TableRows.h"
#include "TensorCopy.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <unistd.h>

using namespace stem;
namespace fs = std::filesystem;

namespace {

class Convert {
public:
  explicit Convert(const ConvertArguments &arguments);
  void run();

private:
  bool isCalibrated() const { return calibration != nullptr; }
  std::unique_ptr<Calibration> makeCalibration() const;
  std::string layerChoice() const;
  void checkChoice() const;
  void checkReport() const;
  std::vector<uint64_t> choose();
  GraphConversion makeGraph() const;
  DType chooseRowType(uint64_t layer) const;
  std::set<std::string> refittedKeys() const;
  void declareDense();
  void declareTables();
  StemSection section() const;
  std::string configText() const;
  std::string provenance() const;
  ModelCost costAfter() const;
  void writeDense(Progress &progress);
  void writeRows(const TensorInfo &table, TableRows &rows,
                 const std::function<void(uint64_t)> &onBytes);
  void writeInitialTables();
  void writeCalibrated();
  uint64_t rankOf(uint64_t layer) const;
  std::vector<TensorInfo> fittedMatrices(uint64_t layer) const;
  std::span<const int32_t> selectedIds() const;
  bool keepsMatrices() const;
  std::optional<TensorInfo> selectedTensor(uint64_t layer) const;
  void writeFittedMatrices(const ConvertedLayer &layer);
  Json result(const ModelCost &before, const ModelCost &after,
              double seconds) const;
  void report(double seconds) const;
  void printCosts(const ModelCost &before, const ModelCost &after) const;

  const Stopwatch watch;
  const ConvertArguments &arguments;
  ModelFolderWriter writer;
  Checkpoint checkpoint;
  TypeChoice types;
  std::unique_ptr<Calibration> calibration; ///< null: rows need no text
  std::vector<uint64_t> layers;
  std::vector<int64_t> ranks; ///< of the layers' low-rank terms
  GraphConversion graph;
  DType rowType;
  std::vector<std::string> leftOut;
  std::vector<const TensorInfo *> copied; ///< from a GGUF file
  std::vector<TensorInfo> tables;
  RoundingError rounding;
  uint64_t bytesToWrite = 0;
  uint64_t bytesWritten = 0;
};

/// A dump there would stand where the new folder goes.
const ConvertArguments &checkDump(const ConvertArguments &arguments) {
  const fs::path &dump = arguments.dumpDirectory;
  if (!dump.empty() && liesWithin(dump, arguments.out))
    fail("--dump-ir={}: lies in the folder to make, {}; choose another place",
         dump.string(), arguments.out.string());
  return arguments;
}

Convert::Convert(const ConvertArguments &arguments)
    : arguments(checkDump(arguments)),
      writer(arguments.out,
             {.force = arguments.force, .source = arguments.source}),
      checkpoint(openModel(arguments.source)), types(checkpoint, std::nullopt),
      calibration(makeCalibration()), layers(choose()),
      ranks(isCalibrated() ? calibration->chooseRanks(layers)
                           : std::vector<int64_t>(layers.size())),
      graph(makeGraph()), rowType(chooseRowType(layers.front())),
      leftOut(tensorsLeftOut(checkpoint)) {}

std::unique_ptr<Calibration> Convert::makeCalibration() const {
  checkReport();
  if (arguments.init.kind != "calibrated")
    return nullptr;
  checkChoice();
  auto result =
      std::make_unique<Calibration>(checkpoint, arguments.calibration);
  const std::string choice = layerChoice();
  const auto count = parseAutoLayers(choice, checkpoint.config());
  result->printEstimate(
      count ? *count : chooseLayers(choice, checkpoint.config()).size(),
      count.has_value());
  return result;
}

/// Before anything is computed.
void Convert::checkReport() const {
  const fs::path &file = arguments.reportFile;
  if (file.empty())
    return;
  if (liesWithin(file, arguments.out))
    fail("--report={}: lies in the folder to make, {}; choose another place",
         file.string(), arguments.out.string());
  if (!isFolder(fs::absolute(file).parent_path()))
    fail("--report={}: its folder does not exist; make it first",
         file.string());
  if (access(fs::absolute(file).parent_path().c_str(), W_OK) != 0)
    fail("--report={}: its folder cannot be written to; choose another place",
         file.string());
  if (isFolder(file))
    fail("--report={}: is a folder; give the name of a file", file.string());
  if (pathExists(file) && !arguments.force)
    fail("--report={}: exists already; choose another name, or --force to "
         "replace it",
         file.string());
}

/// A third of the dense layers, the cheapest ones, unless asked.
std::string Convert::layerChoice() const {
  if (!arguments.layers.empty())
    return arguments.layers;
  return fmt::format(
      "auto:{}",
      std::max<uint64_t>(1, denseLayerCount(checkpoint.config()) / 3));
}

/// Before minutes of calibration: the layers, and whether their tables alone
/// would fill the disk.
void Convert::checkChoice() const {
  const ModelConfig &config = checkpoint.config();
  const std::optional<uint64_t> count = parseAutoLayers(layerChoice(), config);
  if (!count) {
    chooseLayers(layerChoice(), config);
    return;
  }
  const TensorInfo table{
      "", DType::F32, {config.vocabSize, config.intermediateSize}, 0, {}};
  const auto bytes = dtypeBytes(chooseRowType(0), table.elements());
  if (bytes && *bytes <= UINT64_MAX / *count)
    writer.requireSpace(*bytes * *count);
}

std::vector<uint64_t> Convert::choose() {
  const std::string choice = layerChoice();
  std::optional<uint64_t> count = parseAutoLayers(choice, checkpoint.config());
  return count ? calibration->cheapestLayers(*count)
               : chooseLayers(choice, checkpoint.config());
}

/// Ids that keep the up-projection.
std::span<const int32_t> Convert::selectedIds() const {
  return isCalibrated() ? calibration->selectedIds()
                        : std::span<const int32_t>();
}

/// All STEM layers of a model have a list of such ids, or none has. In one that
/// has them already the list of a new layer may be empty.
bool Convert::keepsMatrices() const {
  const auto &stem = checkpoint.config().stem;
  return !selectedIds().empty() || (stem && stem->select);
}

std::optional<TensorInfo> Convert::selectedTensor(uint64_t layer) const {
  if (!keepsMatrices())
    return std::nullopt;
  const std::span<const int32_t> ids = selectedIds();
  return TensorInfo{layerTensorName(layer, "mlp.up_select.ids"),
                    DType::I32,
                    {ids.size()},
                    ids.size_bytes(),
                    {}};
}

/// Ids that keep the matrix keep it in the model.
GraphConversion Convert::makeGraph() const {
  GraphConversion result = convertGraph(checkpoint, layers, arguments.init.kind,
                                        arguments.dumpDirectory);
  if (keepsMatrices())
    result.dropped.clear();
  return result;
}

/// Tensors that keep their name and get new values: the W_down of calibrated
/// layers.
std::set<std::string> Convert::refittedKeys() const {
  std::set<std::string> keys;
  if (isCalibrated())
    for (const uint64_t layer : layers)
      keys.insert(checkpoint.weights().layers[layer].downProj);
  return keys;
}

/// The model's own type unless asked; one type for all tables of a model.
DType Convert::chooseRowType(uint64_t layer) const {
  std::optional<DType> wanted;
  if (arguments.rowDType != "keep")
    wanted = dtypeFromName(arguments.rowDType == "f32"    ? "F32"
                           : arguments.rowDType == "bf16" ? "BF16"
                                                          : "F16");
  if (const auto &stem = checkpoint.config().stem) {
    const auto present = dtypeFromConfigName(stem->rowDType);
    if (!present || !(*present == DType::F32 || *present == DType::BF16 ||
                      *present == DType::F16))
      fail("{}: its tables have rows of type {}; further layers can be "
           "converted only beside float32, float16 or bfloat16 rows",
           arguments.source.string(), stem->rowDType);
    if (wanted && *wanted != *present)
      fail("--row-dtype={}: the model's tables have rows of type {}, and a "
           "model has one type of rows",
           arguments.rowDType, stem->rowDType);
    return *present;
  }
  if (wanted)
    return *wanted;
  const TensorInfo &upProj =
      checkpoint.tensors().get(checkpoint.weights().layers[layer].upProj);
  const DType own = types.typeOf(upProj);
  return own == DType::F16 || own == DType::BF16 ? own : DType::F32;
}

/// A folder's shards are linked as they are; the index leaves out what the
/// tables replace. A GGUF file has no shards to link, and a shard with a tensor
/// that gets new values is copied without it: readers that load whole shards
/// would find the name twice.
void Convert::declareDense() {
  std::map<fs::path, std::vector<std::string>> shards;
  const std::set<std::string> refitted = refittedKeys();
  std::set<fs::path> changed;
  for (const std::string &name : refitted)
    changed.insert(checkpoint.tensors().get(name).file);
  for (const std::string &name : checkpoint.weights().names()) {
    const TensorInfo &tensor = checkpoint.tensors().get(name);
    if (graph.dropped.count(name) || refitted.count(name))
      continue;
    if (!checkpoint.gguf() && !changed.count(tensor.file)) {
      shards[tensor.file].push_back(name);
      continue;
    }
    writer.addTensor({name, types.typeOf(tensor), tensor.shape});
    copied.push_back(&tensor);
    bytesToWrite += bytesAs(tensor, types.typeOf(tensor));
  }
  for (const auto &[file, names] : shards)
    writer.linkShard(file, names);
}

void Convert::declareTables() {
  for (const NewTable &planned : graph.tables) {
    TensorInfo table{
        planned.key, rowType, {planned.rows, planned.columns}, 0, {}};
    const auto bytes = dtypeBytes(rowType, table.elements());
    if (!bytes)
      fail("{}: a table of {} is too large", planned.key,
           formatShape(table.shape));
    table.bytes = *bytes;
    const std::string file =
        fmt::format("stem-table-{:03}.safetensors", planned.layer);
    writer.addTensor({table.name, rowType, table.shape}, file);
    if (const auto ids = selectedTensor(planned.layer))
      writer.addTensor({ids->name, ids->dtype, ids->shape}, file);
    if (!isCalibrated())
      bytesToWrite += table.bytes;
    for (const TensorInfo &matrix : fittedMatrices(planned.layer))
      writer.addTensor({matrix.name, matrix.dtype, matrix.shape}, file);
    tables.push_back(std::move(table));
  }
}

uint64_t Convert::rankOf(uint64_t layer) const {
  const auto place = std::lower_bound(layers.begin(), layers.end(), layer);
  return static_cast<uint64_t>(
      ranks[static_cast<size_t>(place - layers.begin())]);
}

/// What calibration fits beside the rows: the factors of the low-rank term, if
/// there is one, and W_down.
std::vector<TensorInfo> Convert::fittedMatrices(uint64_t layer) const {
  if (!isCalibrated())
    return {};
  const ModelConfig &config = checkpoint.config();
  TensorInfo down =
      checkpoint.tensors().get(checkpoint.weights().layers[layer].downProj);
  const DType type = types.typeOf(down);
  const uint64_t rank = rankOf(layer);
  std::vector<TensorInfo> matrices;
  if (rank > 0) {
    matrices.push_back({layerTensorName(layer, "mlp.up_mix.a.weight"),
                        type,
                        {config.intermediateSize, rank},
                        0,
                        {}});
    matrices.push_back({layerTensorName(layer, "mlp.up_mix.b.weight"),
                        type,
                        {rank, config.hiddenSize},
                        0,
                        {}});
  }
  down.dtype = type;
  matrices.push_back(std::move(down));
  for (TensorInfo &matrix : matrices)
    matrix.bytes = dtypeBytes(type, matrix.elements()).value();
  return matrices;
}

std::string Convert::provenance() const {
  Json json = {{"command", "convert"},
               {"source", fs::absolute(arguments.source).string()},
               {"init", arguments.init.kind},
               {"layers", layers}};
  if (arguments.init.kind == "xavier")
    json["seed"] = arguments.init.seed;
  if (isCalibrated())
    json["calibration"] = calibration->summary();
  const auto &stem = checkpoint.config().stem;
  if (stem && !stem->provenance.empty())
    json["before"] = Json::parse(stem->provenance);
  return json.dump();
}

StemSection Convert::section() const {
  const ModelConfig &config = checkpoint.config();
  StemSection stem;
  if (config.stem) {
    stem = *config.stem;
  } else {
    stem.baseModelType = familyName(config.family);
    const Json json = Json::parse(config.sourceText);
    if (json.contains("architectures") && json["architectures"].is_array())
      stem.baseArchitectures =
          json["architectures"].get<std::vector<std::string>>();
  }
  // Of rank 0 without a calibration: the new layers have rows alone.
  for (const uint64_t layer : layers)
    stem.addLayer(layer, rankOf(layer));
  stem.rowDType = dtypeConfigName(rowType);
  stem.select = keepsMatrices();
  stem.provenance = provenance();
  return stem;
}

std::string Convert::configText() const {
  std::string text = checkpoint.config().sourceText;
  if (const auto type = types.modelType())
    text = configWithDType(text, *type);
  return configWithStem(text, section());
}

ModelCost Convert::costAfter() const {
  ModelWeights weights = checkpoint.weights();
  TensorSizes sizes = tensorSizes(checkpoint);
  if (checkpoint.gguf())
    for (auto &[name, tensor] : sizes) {
      const DType type = types.typeOf(tensor);
      tensor.bytes = bytesAs(tensor, type);
      tensor.dtype = type;
    }
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerWeights &layer = weights.layers[layers[i]];
    if (const auto ids = selectedTensor(layers[i])) {
      layer.upSelectIds = ids->name;
      sizes[ids->name] = *ids;
    } else {
      layer.upProj.clear();
      layer.upBias.clear();
    }
    layer.upTable = tables[i].name;
    sizes[tables[i].name] = tables[i];
    const std::vector<TensorInfo> matrices = fittedMatrices(layers[i]);
    for (const TensorInfo &matrix : matrices)
      sizes[matrix.name] = matrix;
    if (matrices.size() > 1) {
      layer.upMixA = matrices[0].name;
      layer.upMixB = matrices[1].name;
    }
  }
  return costOf(weights, sizes);
}

void Convert::writeDense(Progress &progress) {
  for (const TensorInfo *tensor : copied)
    copyTensor(checkpoint.tensors(), *tensor, types.typeOf(*tensor), writer,
               rounding, [&](uint64_t count) {
                 progress.update(static_cast<double>(bytesWritten += count));
               });
}

void Convert::writeRows(const TensorInfo &table, TableRows &rows,
                        const std::function<void(uint64_t)> &onBytes) {
  const uint64_t vocab = checkpoint.config().vocabSize;
  const uint64_t f = checkpoint.config().intermediateSize;
  // 8 MB of f32, and enough rows to keep the threads busy.
  const uint64_t step = std::min(std::max<uint64_t>((2 << 20) / f, 64), vocab);
  std::vector<float> values(step * f);
  std::vector<std::byte> bytes(dtypeBytes(rowType, step * f).value());
  for (uint64_t row = 0; row < vocab; row += step) {
    const uint64_t count = std::min(step, vocab - row);
    rows.fill(row, count, values.data());
    encodeChecked(table.name, rowType, {values.data(), count * f}, bytes.data(),
                  rounding, "choose --row-dtype=bf16 or f32");
    const std::span part(bytes.data(), bytes.size() / step * count);
    writer.write(part);
    onBytes(part.size());
  }
}

void Convert::writeInitialTables() {
  const ContextPtr context = createContext(arguments.compile.threads);
  Progress progress("convert", static_cast<double>(bytesToWrite));
  writeDense(progress);
  for (size_t i = 0; i < tables.size(); ++i)
    writeRows(tables[i],
              *makeTableRows(arguments.init, checkpoint, graph.tables[i].layer,
                             context.get()),
              [&](uint64_t count) {
                progress.update(static_cast<double>(bytesWritten += count));
              });
}

/// Layers are written as they are finished, in the order of the files.
void Convert::writeCalibrated() {
  {
    Progress progress("copying", static_cast<double>(bytesToWrite));
    writeDense(progress);
  }
  std::vector<LayerChoice> choices;
  for (size_t i = 0; i < layers.size(); ++i)
    choices.push_back({layers[i], ranks[i]});
  size_t next = 0;
  calibration->convert(choices, [&](const ConvertedLayer &layer) {
    writeRows(tables[next++], layer.rows, [](uint64_t) {});
    writer.write(std::as_bytes(selectedIds()));
    writeFittedMatrices(layer);
  });
}

void Convert::writeFittedMatrices(const ConvertedLayer &layer) {
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
    writer.write(bytes);
  }
}

void Convert::run() {
  declareDense();
  declareTables();
  addModelFiles(writer, checkpoint, /*isStem=*/true);
  writer.addText("config.json", configText());
  writer.setProvenance(provenance());
  printStderr("writing {} to {} ({} free){}\n",
              formatBytes(static_cast<double>(writer.bytesNeeded())),
              arguments.out.string(),
              formatBytes(static_cast<double>(writer.bytesAvailable())),
              copied.empty() ? "; the dense files are linked" : "");
  writer.start();
  if (isCalibrated())
    writeCalibrated();
  else
    writeInitialTables();
  // Now with what the calibration came to.
  writer.addText("config.json", configText());
  writer.setProvenance(provenance());
  writer.finish();
  report(watch.seconds());
}

Json Convert::result(const ModelCost &before, const ModelCost &after,
                     double seconds) const {
  Json json = resultObject("convert");
  json.update({{"source", arguments.source.string()},
               {"out", arguments.out.string()},
               {"converted", layers},
               {"init", arguments.init.kind},
               {"row_dtype", dtypeConfigName(rowType)},
               {"replaced", graph.dropped},
               {"left_out", leftOut},
               {"not_finite", rounding.notFiniteJson()},
               {"before", modelCostJson(before)},
               {"after", modelCostJson(after)},
               {"seconds", seconds},
               {"peak_bytes", memoryStatus().peakResident}});
  if (isCalibrated()) {
    json["calibration"] = calibration->summary();
    json["calibration"].update(calibration->seconds());
  }
  return json;
}

void Convert::report(double seconds) const {
  const ModelCost before =
      costOf(checkpoint.weights(), tensorSizes(checkpoint));
  const ModelCost after = costAfter();
  rounding.warnNotFinite();
  if (!isCalibrated())
    printWarning(fmt::format("tables that start from {} ruin a trained model; "
                             "train them before use",
                             arguments.init.kind));
  const Json json = result(before, after, seconds);
  if (!arguments.reportFile.empty()) {
    replaceFile(arguments.reportFile, conversionReport(json));
    printStderr("report in {}\n", arguments.reportFile.string());
  }
  if (arguments.json)
    return printJson(json);
  fmt::print("{}: {} of {} layers are STEM ({}), rows in {}, in {}\n",
             arguments.out.string(), section().layers.size(),
             checkpoint.config().layerCount(),
             fmt::join(section().layers, ", "), dtypeConfigName(rowType),
             formatSeconds(seconds));
  printLeftOut(leftOut);
  printCosts(before, after);
  if (isCalibrated())
    calibration->print();
}

void Convert::printCosts(const ModelCost &before,
                         const ModelCost &after) const {
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
  for (const uint64_t layer : layers)
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

} // namespace

void stem::convertModel(const ConvertArguments &arguments) {
  Convert(arguments).run();
}
