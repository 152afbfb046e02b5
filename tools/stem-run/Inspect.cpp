//===- Inspect.cpp - stem-run inspect -----------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a folder or a GGUF file holds. Goes on where a model cannot be run: what
// stands in the way is part of the answer.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"
#include "Json.h"
#include "ModelCost.h"
#include "Tokenizing.h"
#include "stem/Model/ChatTemplate.h"
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"
#include "stem/Support/ShallowJson.h"

#include <fmt/ranges.h>

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr const char *footer = R"(Examples:
  stem-run inspect model.gguf
  stem-run inspect stem --tensors

Next: stem-run import for a folder to keep, or stem-run eval PATH --text=FILE)";

struct InspectArguments {
  fs::path path;
  std::vector<fs::path> rows;
  bool tensors = false;
  bool json = false;
};

class Inspection {
public:
  explicit Inspection(const InspectArguments &arguments);
  void printText() const;
  Json toJson() const;

private:
  void collectTensors();
  void collectOverlays();
  void collectTokenizer();
  void collectChat(const Tokenizer &tokenizer);
  void printModel() const;
  void printLayers() const;
  Json tablesJson() const;
  void printTables() const;
  bool hasByteRows() const;
  void printByteRows() const;
  std::vector<uint64_t> idCounts(std::string LayerWeights::*ids) const;
  Json byteRowsJson() const;
  Json configJson() const;

  const InspectArguments &arguments;
  bool isGguf;
  std::optional<Checkpoint> checkpoint;
  std::vector<RowOverlay> overlays;
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::pair<size_t, uint64_t>> types; ///< count, bytes
  Json tokenizerJson = nullptr;
  std::vector<std::string> unsupported;
  std::vector<std::string> warnings;
};

Inspection::Inspection(const InspectArguments &arguments)
    : arguments(arguments), isGguf(!isFolder(arguments.path)) {
  if (!pathExists(arguments.path))
    fail("{}: no such file or folder", arguments.path.string());
  try {
    checkpoint = Checkpoint::open(arguments.path);
    warnings = checkpoint->warnings();
  } catch (const Error &error) {
    unsupported.push_back(error.what());
  }
  collectTensors();
  collectOverlays();
  if (checkpoint)
    collectTokenizer();
}

void Inspection::collectOverlays() {
  if (checkpoint)
    overlays = readOverlays(*checkpoint, arguments.rows);
  else if (!arguments.rows.empty())
    fail("{}: cannot be read as a model, so that --rows={} cannot be compared "
         "with it: {}",
         arguments.path.string(), arguments.rows.front().string(),
         unsupported.front());
}

void Inspection::collectTensors() {
  try {
    if (checkpoint) {
      tensors = checkpoint->tensors().tensors();
    } else if (isGguf) {
      const GgufFile file = GgufFile::open(arguments.path);
      for (const GgufTensor &tensor : file.tensors())
        tensors.push_back({tensor.name, tensor.dtype, tensor.shape,
                           tensor.data.size(), arguments.path});
    } else {
      tensors = openSafetensorsFolder(arguments.path)->tensors();
    }
  } catch (const Error &error) {
    if (unsupported.empty() || unsupported.back() != error.what())
      unsupported.push_back(error.what());
  }
  for (const TensorInfo &tensor : tensors) {
    auto &[count, bytes] = types[std::string(dtypeName(tensor.dtype))];
    ++count;
    bytes += tensor.bytes;
  }
}

void Inspection::collectTokenizer() {
  try {
    const std::optional<Tokenizer> tokenizer = loadTokenizer(*checkpoint);
    if (!tokenizer)
      return;
    tokenizerJson = {{"tokens", tokenizer->tokenCount()},
                     {"largest_id", tokenizer->vocabSize() - 1},
                     {"adds_begin", tokenizer->addsBeginToken()},
                     {"adds_end", tokenizer->addsEndToken()},
                     {"end_ids", endIds(*checkpoint, &*tokenizer)},
                     {"chat_template", tokenizer->chatTemplate().has_value()}};
    if (const auto begin = tokenizer->beginId())
      tokenizerJson["begin_id"] = *begin;
    tokenizer->checkFits(static_cast<int64_t>(checkpoint->config().vocabSize),
                         arguments.path.string());
    collectChat(*tokenizer);
  } catch (const Error &error) {
    unsupported.push_back(error.what());
  }
}

void Inspection::collectChat(const Tokenizer &tokenizer) {
  if (const auto &text = tokenizer.chatTemplate())
    ChatTemplate::parse(*text, "chat template");
}

/// "16", or where they differ "0 in layers 1; 4 in layers 2-3, 5".
std::string formatRanks(const StemSection &stem) {
  if (const auto rank = stem.commonRank())
    return fmt::format("{}", *rank);
  std::map<uint64_t, std::vector<uint64_t>> layersOf;
  for (const uint64_t layer : stem.layers)
    layersOf[stem.rankOf(layer)].push_back(layer);
  std::vector<std::string> parts;
  for (const auto &[rank, layers] : layersOf)
    parts.push_back(fmt::format("{} in layers {}", rank, formatRanges(layers)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

void Inspection::printLayers() const {
  const ModelConfig &config = checkpoint->config();
  std::vector<uint64_t> dense, stem, windowed, unrotated;
  for (uint64_t layer = 0; layer < config.layerCount(); ++layer) {
    (config.layers[layer].isStem ? stem : dense).push_back(layer);
    if (config.layers[layer].window)
      windowed.push_back(layer);
    if (!config.layers[layer].usesRope)
      unrotated.push_back(layer);
  }
  fmt::print("layers      {}; dense: {}; STEM: {}\n", config.layerCount(),
             formatRanges(dense), formatRanges(stem));
  if (!windowed.empty())
    fmt::print("            sliding window of {}: {}\n",
               config.layers[windowed.front()].window, formatRanges(windowed));
  if (!unrotated.empty())
    fmt::print("            without rotary embedding: {}\n",
               formatRanges(unrotated));
  if (config.stem)
    fmt::print("            rows of {} x {} in {}, rank {}\n", config.vocabSize,
               config.intermediateSize, config.stem->rowDType,
               formatRanks(*config.stem));
  printTables();
  if (config.stem && config.stem->select)
    fmt::print("            ids that keep the up-projection: {}\n",
               fmt::join(idCounts(&LayerWeights::upSelectIds), ", "));
  if (hasByteRows())
    printByteRows();
}

/// The rows of each table, and the file that has them; of 8-bit rows with what
/// is beside them.
Json Inspection::tablesJson() const {
  Json tables = Json::array();
  for (size_t layer = 0; layer < checkpoint->config().layerCount(); ++layer) {
    const LayerWeights &weights = checkpoint->weights().layers[layer];
    if (weights.upTable.empty())
      continue;
    const TensorInfo &table = checkpoint->tensors().get(weights.upTable);
    uint64_t bytes = table.bytes;
    for (const std::string &name : ModelWeights::byteRowNames(weights))
      bytes += checkpoint->tensors().get(name).bytes;
    tables.push_back({{"layer", layer},
                      {"file", table.file.filename().string()},
                      {"bytes", bytes}});
  }
  return tables;
}

/// Of each file its layers and the bytes of their tables.
void Inspection::printTables() const {
  std::map<std::string, std::pair<std::vector<uint64_t>, double>> files;
  for (const Json &table : tablesJson()) {
    auto &[layers, bytes] = files[table["file"].get<std::string>()];
    layers.push_back(table["layer"].get<uint64_t>());
    bytes += table["bytes"].get<double>();
  }
  for (const auto &[file, entry] : files)
    fmt::print("            table{} of layer{} {}: {} in {}\n",
               entry.first.size() == 1 ? "" : "s",
               entry.first.size() == 1 ? "" : "s", formatRanges(entry.first),
               formatBytes(entry.second), printable(file));
}

/// Of each layer that has such a list the number of ids, equal ones once.
std::vector<uint64_t>
Inspection::idCounts(std::string LayerWeights::*ids) const {
  std::vector<uint64_t> counts;
  for (const LayerWeights &layer : checkpoint->weights().layers)
    if (!(layer.*ids).empty())
      counts.push_back(checkpoint->tensors().get(layer.*ids).elements());
  if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) ==
          counts.end() &&
      !counts.empty())
    counts.resize(1);
  return counts;
}

bool Inspection::hasByteRows() const {
  const auto &stem = checkpoint->config().stem;
  return stem && stem->rowDType == dtypeConfigName(DType::U8);
}

/// Bytes of all tables, and the rows that are kept as they were.
Json Inspection::byteRowsJson() const {
  uint64_t bytes = 0, rows = 0, hotRows = 0;
  for (const LayerWeights &layer : checkpoint->weights().layers) {
    if (layer.upTable.empty())
      continue;
    rows += checkpoint->config().vocabSize;
    bytes += checkpoint->tensors().get(layer.upTable).bytes;
    for (const std::string &name : ModelWeights::byteRowNames(layer))
      bytes += checkpoint->tensors().get(name).bytes;
    if (!layer.upTableHotIds.empty())
      hotRows += checkpoint->tensors().get(layer.upTableHotIds).elements();
  }
  return {
      {"bytes", bytes},
      {"hot_ids", idCounts(&LayerWeights::upTableHotIds)},
      {"hot_share", static_cast<double>(hotRows) / static_cast<double>(rows)}};
}

void Inspection::printByteRows() const {
  const Json rows = byteRowsJson();
  const auto ids = rows["hot_ids"].get<std::vector<uint64_t>>();
  fmt::print("            8-bit rows: {} with their scales; at full precision: "
             "{} ({:.1f} %)\n",
             formatBytes(rows["bytes"].get<double>()),
             ids.empty() ? "none" : fmt::format("{} ids", fmt::join(ids, ", ")),
             100 * rows["hot_share"].get<double>());
}

void Inspection::printModel() const {
  const ModelConfig &config = checkpoint->config();
  const Cost cost =
      costOf(checkpoint->weights(), tensorSizes(*checkpoint)).total();
  fmt::print("family      {}{}\n", familyName(config.family),
             config.stem ? ", converted to STEM" : "");
  fmt::print("shape       hidden {}, d_ff {}, vocabulary {}, {} heads of {} "
             "({} for keys and values){}\n",
             config.hiddenSize, config.intermediateSize, config.vocabSize,
             config.heads, config.headDim, config.kvHeads,
             config.tieEmbeddings ? ", head tied to the embedding" : "");
  if (config.maxPositions)
    fmt::print("context     {} positions\n", config.maxPositions);
  printLayers();
  fmt::print("parameters  {}; {} FLOPs and {} read per token\n",
             formatCount(static_cast<double>(cost.parameters)),
             formatCount(static_cast<double>(cost.flopsPerToken)),
             formatBytes(static_cast<double>(cost.bytesPerToken)));
  if (cost.selectedFlops)
    fmt::print("            {} FLOPs and {} for one whose id keeps the "
               "up-projection\n",
               formatCount(static_cast<double>(cost.flopsPerToken +
                                               cost.selectedFlops)),
               formatBytes(static_cast<double>(cost.bytesPerToken +
                                               cost.selectedBytes)));
}

void Inspection::printText() const {
  fmt::print("{}: {}\n", arguments.path.string(),
             isGguf ? "GGUF file" : "Hugging Face folder");
  if (checkpoint)
    printModel();
  for (const RowOverlay &overlay : overlays)
    fmt::print("rows        {}: {}, {}: ids {}; layers {}\n", overlay.name,
               describeOverlay(overlay),
               formatBytes(static_cast<double>(overlay.bytes())),
               formatRanges({overlay.ids.begin(), overlay.ids.end()}),
               formatRanges(overlay.layers()));
  std::vector<std::string> parts;
  uint64_t total = 0;
  for (const auto &[type, entry] : types) {
    parts.push_back(
        fmt::format("{} {} ({})", entry.first, type,
                    formatBytes(static_cast<double>(entry.second))));
    total += entry.second;
  }
  fmt::print("tensors     {}, {}: {}\n", tensors.size(),
             formatBytes(static_cast<double>(total)), fmt::join(parts, ", "));
  if (checkpoint && tokenizerJson.is_null())
    fmt::print("tokenizer   none that can be read\n");
  else if (checkpoint)
    fmt::print("tokenizer   {} tokens, ids end at {}, end ids {}, chat "
               "template: {}\n",
               tokenizerJson["tokens"].get<int64_t>(),
               tokenizerJson["largest_id"].get<int64_t>(),
               tokenizerJson["end_ids"].dump(),
               tokenizerJson["chat_template"].get<bool>() ? "yes" : "no");
  if (checkpoint && !checkpoint->weights().ignored.empty())
    fmt::print("unused      {}\n",
               fmt::join(checkpoint->weights().ignored, ", "));
  for (const std::string &warning : warnings)
    fmt::print("warning     {}\n", visible(warning));
  for (const std::string &problem : unsupported)
    fmt::print("unsupported {}\n", visible(problem));
  if (arguments.tensors)
    for (const TensorInfo &tensor : tensors)
      fmt::print("  {:<6} {:<16} {:>9}  {}\n", dtypeName(tensor.dtype),
                 formatShape(tensor.shape),
                 formatBytes(static_cast<double>(tensor.bytes)),
                 printable(tensor.name));
}

Json Inspection::configJson() const {
  const ModelConfig &config = checkpoint->config();
  Json json = {{"family", familyName(config.family)},
               {"hidden_size", config.hiddenSize},
               {"intermediate_size", config.intermediateSize},
               {"vocab_size", config.vocabSize},
               {"heads", config.heads},
               {"key_value_heads", config.kvHeads},
               {"head_dim", config.headDim},
               {"max_positions", config.maxPositions},
               {"tied_head", config.tieEmbeddings}};
  json.update(
      modelCostJson(costOf(checkpoint->weights(), tensorSizes(*checkpoint))));
  for (size_t layer = 0; layer < config.layerCount(); ++layer) {
    json["layers"][layer]["window"] = config.layers[layer].window;
    json["layers"][layer]["rope"] = config.layers[layer].usesRope;
    if (config.layers[layer].isStem)
      json["layers"][layer]["rank"] = config.stem->rankOf(layer);
    const std::string &selected =
        checkpoint->weights().layers[layer].upSelectIds;
    if (!selected.empty())
      json["layers"][layer]["selected_ids"] =
          checkpoint->tensors().get(selected).elements();
  }
  if (config.stem) {
    const auto rank = config.stem->commonRank();
    json["stem"] = {{"layers", config.stem->layers},
                    {"rank", rank ? Json(*rank) : Json(config.stem->ranks)},
                    {"select", config.stem->select},
                    {"row_dtype", config.stem->rowDType},
                    {"base", config.stem->baseModelType},
                    {"tables", tablesJson()}};
    if (hasByteRows())
      json["stem"]["byte_rows"] = byteRowsJson();
  }
  return json;
}

Json Inspection::toJson() const {
  Json json = resultObject("inspect");
  json["path"] = arguments.path.string();
  json["kind"] = isGguf ? "gguf" : "folder";
  json["model"] = checkpoint ? configJson() : Json(nullptr);
  for (const RowOverlay &overlay : overlays) {
    Json rows = {{"file", overlay.name},
                 {"ids", overlay.ids},
                 {"layers", overlay.layers()},
                 {"bytes", overlay.bytes()}};
    if (!overlay.provenance.empty())
      rows["provenance"] =
          parseShallowObject(overlay.provenance).value_or(Json());
    json["rows"].push_back(std::move(rows));
  }
  json["types"] = Json::object();
  for (const auto &[type, entry] : types)
    json["types"][type] = {{"tensors", entry.first}, {"bytes", entry.second}};
  json["tensors"] = Json::array();
  for (const TensorInfo &tensor : tensors)
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", dtypeName(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"bytes", tensor.bytes}});
  json["unused"] =
      checkpoint ? checkpoint->weights().ignored : std::vector<std::string>();
  json["tokenizer"] = tokenizerJson;
  json["warnings"] = warnings;
  json["unsupported"] = unsupported;
  return json;
}

} // namespace

void stem::addInspectCommand(CLI::App &app) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App *command = addCommand(
      app, "inspect", "Say what a folder or a GGUF file holds", footer);
  command->add_option("PATH", arguments->path, "Hugging Face folder or GGUF")
      ->required();
  addRowsOption(*command, arguments->rows);
  command->add_flag("--tensors", arguments->tensors, "List every tensor");
  addJsonOption(*command, arguments->json);
  command->callback([arguments] {
    const Inspection inspection(*arguments);
    if (arguments->json)
      printJson(inspection.toJson());
    else
      inspection.printText();
  });
}
