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

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr const char *footer = R"(Examples:
  stem-run convert dense stem --layers=1/3 --init=row-mean
  stem-run convert dense stem --layers=2,5,8 --init=embedding
  stem-run convert model.gguf stem --layers=all --init=xavier --seed=7

Rows start from
  embedding  U[t] = W_up norm(emb[t]) + b, what the layer would compute from the
             token's embedding alone
  row-mean   the mean of these rows over all ids, in every row
  xavier     random numbers, variance 2 / (V + d_ff)
All three ruin a trained model: they are starts for training.

Next: stem-run eval OUT --text=FILE, stem-run bench SRC OUT)";

struct ConvertArguments {
  fs::path source;
  fs::path out;
  std::string layers;
  TableInit init;
  std::string rowDType = "keep";
  int threads = 0;
  fs::path dumpDirectory;
  bool force = false;
  bool json = false;
};

class Convert {
public:
  explicit Convert(const ConvertArguments &arguments);
  void run();

private:
  DType chooseRowType() const;
  void declareDense();
  void declareTables();
  StemSection section() const;
  std::string configText() const;
  std::string provenance() const;
  ModelCost costAfter() const;
  void writeDense(Progress &progress);
  void writeTable(const TensorInfo &table, uint64_t layer,
                  stem_context *context, Progress &progress);
  void report(double seconds) const;
  void printCosts(const ModelCost &before, const ModelCost &after) const;

  const ConvertArguments &arguments;
  ModelFolderWriter writer;
  Checkpoint checkpoint;
  TypeChoice types;
  std::vector<uint64_t> layers;
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
      layers(chooseLayers(arguments.layers, checkpoint.config())),
      graph(convertGraph(checkpoint, layers, arguments.init.kind,
                         arguments.dumpDirectory)),
      rowType(chooseRowType()), leftOut(tensorsLeftOut(checkpoint)) {}

/// The model's own type unless asked; one type for all tables of a model.
DType Convert::chooseRowType() const {
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
  const TensorInfo &upProj = checkpoint.tensors().get(
      checkpoint.weights().layers[layers.front()].upProj);
  const DType own = types.typeOf(upProj);
  return own == DType::F16 || own == DType::BF16 ? own : DType::F32;
}

/// A folder's shards are linked as they are; the index leaves out what the
/// tables replace. A GGUF file has no shards to link.
void Convert::declareDense() {
  std::map<fs::path, std::vector<std::string>> shards;
  for (const std::string &name : checkpoint.weights().names()) {
    const TensorInfo &tensor = checkpoint.tensors().get(name);
    if (graph.dropped.count(name))
      continue;
    if (!checkpoint.gguf()) {
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
    writer.addTensor(
        {table.name, rowType, table.shape},
        fmt::format("stem-table-{:03}.safetensors", planned.layer));
    bytesToWrite += table.bytes;
    tables.push_back(std::move(table));
  }
}

std::string Convert::provenance() const {
  Json json = {{"command", "convert"},
               {"source", fs::absolute(arguments.source).string()},
               {"init", arguments.init.kind},
               {"layers", layers}};
  if (arguments.init.kind == "xavier")
    json["seed"] = arguments.init.seed;
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
  stem.layers.insert(stem.layers.end(), layers.begin(), layers.end());
  std::sort(stem.layers.begin(), stem.layers.end());
  stem.rowDType = dtypeConfigName(rowType);
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
    layer.upProj.clear();
    layer.upBias.clear();
    layer.upTable = tables[i].name;
    sizes[tables[i].name] = tables[i];
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

void Convert::writeTable(const TensorInfo &table, uint64_t layer,
                         stem_context *context, Progress &progress) {
  const uint64_t vocab = checkpoint.config().vocabSize;
  const uint64_t f = checkpoint.config().intermediateSize;
  const auto rows = makeTableRows(arguments.init, checkpoint, layer, context);
  // 8 MB of f32, and enough rows to keep the threads busy.
  const uint64_t step = std::min(std::max<uint64_t>((2 << 20) / f, 64), vocab);
  std::vector<float> values(step * f);
  std::vector<std::byte> bytes(dtypeBytes(rowType, step * f).value());
  for (uint64_t row = 0; row < vocab; row += step) {
    const uint64_t count = std::min(step, vocab - row);
    rows->fill(row, count, values.data());
    encodeChecked(table.name, rowType, {values.data(), count * f}, bytes.data(),
                  rounding, "choose --row-dtype=bf16 or f32");
    const std::span part(bytes.data(), bytes.size() / step * count);
    writer.write(part);
    progress.update(static_cast<double>(bytesWritten += part.size()));
  }
}

void Convert::run() {
  const Stopwatch watch;
  const ContextPtr context = createContext(arguments.threads);
  declareDense();
  declareTables();
  addModelFiles(writer, checkpoint, /*isStem=*/true);
  writer.addText("config.json", configText());
  writer.setProvenance(provenance());
  printStderr("writing {} to {} ({} free){}\n",
              formatBytes(static_cast<double>(writer.bytesNeeded())),
              arguments.out.string(),
              formatBytes(static_cast<double>(writer.bytesAvailable())),
              checkpoint.gguf() ? "" : "; the dense files are linked");
  writer.start();
  {
    Progress progress("convert", static_cast<double>(bytesToWrite));
    writeDense(progress);
    for (size_t i = 0; i < tables.size(); ++i)
      writeTable(tables[i], graph.tables[i].layer, context.get(), progress);
  }
  writer.finish();
  report(watch.seconds());
}

void Convert::report(double seconds) const {
  const ModelCost before =
      costOf(checkpoint.weights(), tensorSizes(checkpoint));
  const ModelCost after = costAfter();
  rounding.warnNotFinite();
  printWarning(fmt::format("tables that start from {} ruin a trained model; "
                           "train them before use",
                           arguments.init.kind));
  if (arguments.json) {
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
    return printJson(json);
  }
  fmt::print("{}: {} of {} layers are STEM ({}), rows in {}, in {}\n",
             arguments.out.string(), section().layers.size(),
             checkpoint.config().layerCount(),
             fmt::join(section().layers, ", "), dtypeConfigName(rowType),
             formatSeconds(seconds));
  printLeftOut(leftOut);
  printCosts(before, after);
}

void Convert::printCosts(const ModelCost &before,
                         const ModelCost &after) const {
  const auto change = [](uint64_t from, uint64_t to, auto format) {
    return format(static_cast<double>(from)) + " -> " +
           format(static_cast<double>(to));
  };
  const auto line = [&](const std::string &name, const Cost &from,
                        const Cost &to) {
    fmt::print("{:<9} {:>20} {:>20} {:>20} {:>20}\n", name,
               change(from.parameters, to.parameters, formatCount),
               change(from.flopsPerToken, to.flopsPerToken, formatCount),
               change(from.bytes, to.bytes, formatBytes),
               change(from.bytesPerToken, to.bytesPerToken, formatBytes));
  };
  fmt::print("{:<9} {:>20} {:>20} {:>20} {:>20}\n", "", "parameters",
             "FLOPs per token", "bytes", "read per token");
  for (const uint64_t layer : layers)
    line(fmt::format("layer {}", layer), before.layers[layer],
         after.layers[layer]);
  line("model", before.total(), after.total());
  fmt::print("FLOPs of linear layers; attention comes on top and is the same "
             "in both.\n");
}

} // namespace

void stem::addConvertCommand(CLI::App &app) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App *command =
      addCommand(app, "convert",
                 "Replace up-projections by tables: dense to STEM", footer);
  command->add_option("SRC", arguments->source, "Hugging Face folder or GGUF")
      ->required();
  command->add_option("OUT", arguments->out, "The folder to make")->required();
  command
      ->add_option("--layers", arguments->layers,
                   "1/3 (layers 2, 5, 8, ...), 1/2 (1, 3, 5, ...), all (all "
                   "but the first), or a list like 2,5,8; counted from 0")
      ->required()
      ->type_name("LAYERS");
  command
      ->add_option("--init", arguments->init.kind,
                   "What the rows start from: embedding, row-mean or xavier")
      ->required()
      ->check(CLI::IsMember({"embedding", "row-mean", "xavier"}))
      ->type_name("KIND");
  command->add_option("--seed", arguments->init.seed, "For xavier (default: 0)")
      ->check(wholeNumber(UINT64_MAX));
  command
      ->add_option("--row-dtype", arguments->rowDType,
                   "Type of the rows: keep (default: the model's own), f32, "
                   "f16 or bf16")
      ->check(CLI::IsMember({"keep", "f32", "f16", "bf16"}))
      ->type_name("TYPE");
  command
      ->add_option("--dump-ir", arguments->dumpDirectory,
                   "Write the model's IR before and after into this folder")
      ->type_name("DIR");
  command->add_flag("--force", arguments->force,
                    "Replace OUT if it is a folder that Stem made");
  addThreadsOption(*command, arguments->threads);
  addJsonOption(*command, arguments->json);
  command->callback([arguments] { Convert(*arguments).run(); });
}
