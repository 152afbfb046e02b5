//===- Apply.cpp - stem-run apply -----------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ByteRowWriter.h"
#include "ByteTable.h"
#include "CommandLine.h"
#include "Eval.h"
#include "Progress.h"
#include "TableRows.h"
#include "TensorCopy.h"
#include "Tokenizing.h"
#include "stem/Runtime/Arena.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"

#include <algorithm>
#include <set>

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr const char *footer = R"(Examples:
  stem-run apply stem --rows=law/rows.safetensors -o stem-law
  stem-run apply stem --rows=a.safetensors --rows=b.safetensors -o both
  stem-run apply stem --cold-rows=int8 -o small
  stem-run apply stem --cold-rows=int8 --hot-fraction=auto --text=a.txt -o small

OUT is MODEL with these rows in its tables, or with rows of 8 bits; every other
tensor keeps its bytes. Rows of --rows keep their type.

Next: stem-run eval OUT --against=MODEL --text=FILE)";

struct ApplyArguments {
  fs::path model;
  std::vector<fs::path> rows;
  ColdRowOptions coldRows;
  std::vector<std::string> texts; ///< that ids are counted in
  fs::path out;
  bool force = false;
  bool json = false;
};

class Application {
public:
  explicit Application(const ApplyArguments &arguments);
  void run();

private:
  void attach();
  void declare();
  void declareFile(const fs::path &file,
                   const std::vector<const TensorInfo *> &tensors);
  void declareTensor(const TensorInfo &tensor, const std::string &file);
  void chooseHot();
  std::vector<int32_t> hotIdsOf(uint64_t layer) const;
  void declareTable(const TensorInfo &tensor, const std::string &file);
  void writeTable(const TensorInfo &tensor, const BytesDone &onBytes);
  std::string configText() const;
  Json byteRowsJson() const;
  void report(double seconds) const;
  Json provenance() const;

  const ApplyArguments &arguments;
  Checkpoint checkpoint;
  std::vector<RowOverlay> overlays;
  std::map<std::string, uint64_t> changed;     ///< tables and their layers
  std::set<std::pair<uint64_t, int32_t>> rows; ///< layer and id
  HotIds hot;
  /// Tables of 8-bit rows, by the key of what they take the place of.
  struct NewTable {
    std::vector<int32_t> hotIds;
    ByteTableTensors tensors;
  };
  std::map<std::string, NewTable> byteTables;
  std::optional<ModelFolderWriter> writer;
  std::vector<const TensorInfo *> copied; ///< in the order of declaration
  RoundingError rounding;
  uint64_t bytes = 0; ///< of the tensors that are written
};

Application::Application(const ApplyArguments &arguments)
    : arguments(arguments), checkpoint(openModel(arguments.model)),
      overlays(readOverlays(checkpoint, arguments.rows)) {
  attach();
  if (arguments.coldRows.areBytes)
    chooseHot();
  writer.emplace(arguments.out, FolderOptions{.force = arguments.force,
                                              .source = arguments.model});
  declare();
}

void Application::attach() {
  for (const RowOverlay &overlay : overlays) {
    checkpoint.attach(overlay);
    for (const RowOverlay::Table &table : overlay.tables) {
      changed[checkpoint.weights().layers[table.layer].upTable] = table.layer;
      for (const int32_t id : overlay.ids)
        rows.emplace(table.layer, id);
    }
  }
}

/// All tables are to be written anew.
void Application::chooseHot() {
  requireFullRows(checkpoint, "8-bit rows are made of others");
  const uint64_t vocabulary = checkpoint.config().vocabSize;
  if (tableLayers(checkpoint).empty())
    fail("{}: has no tables: no layer of it is a STEM layer; stem-run convert "
         "makes such a model",
         arguments.model.string());
  for (const uint64_t layer : tableLayers(checkpoint))
    changed[checkpoint.weights().layers[layer].upTable] = layer;
  const std::vector<int32_t> listed =
      readHotIds(checkpoint, arguments.coldRows);
  std::vector<int64_t> counts(vocabulary);
  if (arguments.coldRows.needsText()) {
    EvalArguments reading;
    reading.texts = arguments.texts;
    const Tokenizer tokenizer =
        requireTokenizer(checkpoint, "leave --hot-fraction out");
    std::map<std::string, std::string> names; // by the text's hash
    for (const EvalFile &file :
         readFiles(reading, tokenizer, kStepTokens, kStepTokens)) {
      const auto [other, isNew] = names.emplace(file.sha256, file.path);
      if (!isNew)
        fail("--text={}: is the same text as {}; give it once", file.path,
             other->second);
      for (const std::vector<int32_t> &document : file.documents)
        for (const int32_t id : document)
          ++counts[static_cast<size_t>(id)];
    }
  }
  hot = chooseHotIds(counts, arguments.coldRows, listed);
}

/// With those whose rows were replaced: they stay what they are.
std::vector<int32_t> Application::hotIdsOf(uint64_t layer) const {
  std::set<int32_t> ids(hot.ids.begin(), hot.ids.end());
  for (const RowOverlay &overlay : overlays)
    if (std::ranges::count(overlay.layers(), layer))
      ids.insert(overlay.ids.begin(), overlay.ids.end());
  return {ids.begin(), ids.end()};
}

/// File by file, as the model has its tensors.
void Application::declare() {
  std::map<fs::path, std::vector<const TensorInfo *>> files;
  for (const std::string &name : checkpoint.weights().names()) {
    const TensorInfo &tensor = checkpoint.tensors().get(name);
    files[tensor.file].push_back(&tensor);
  }
  for (const auto &[file, tensors] : files)
    declareFile(file, tensors);
  for (const TensorInfo *tensor : copied) {
    const auto table = byteTables.find(tensor->name);
    bytes += table == byteTables.end() ? tensor->bytes
                                       : table->second.tensors.totalBytes();
  }
  addModelFiles(*writer, checkpoint, /*isStem=*/true);
  writer->addText("config.json", configText());
  writer->setProvenance(jsonText(provenance()));
}

/// A file of tables is written with its name, one without a row that changes is
/// taken over. Of a file that has both the tables get files of their own.
void Application::declareFile(const fs::path &file,
                              const std::vector<const TensorInfo *> &tensors) {
  const std::string name = file.filename().string();
  const auto isKept = [&](const TensorInfo *tensor) {
    return !changed.contains(tensor->name);
  };
  if (isTableFileName(name)) {
    for (const TensorInfo *tensor : tensors)
      declareTensor(*tensor, name);
  } else if (std::ranges::all_of(tensors, isKept)) {
    std::vector<std::string> names;
    for (const TensorInfo *tensor : tensors)
      names.push_back(tensor->name);
    writer->linkShard(file, names);
  } else {
    for (const TensorInfo *tensor : tensors)
      if (isKept(tensor))
        declareTensor(*tensor, "");
    for (const TensorInfo *tensor : tensors)
      if (!isKept(tensor))
        declareTensor(*tensor, tableFileName(changed.at(tensor->name)));
  }
}

/// In this file, or in a shard.
void Application::declareTensor(const TensorInfo &tensor,
                                const std::string &file) {
  if (arguments.coldRows.areBytes && changed.contains(tensor.name))
    return declareTable(tensor, file);
  const TensorDeclaration declaration{tensor.name, tensor.dtype, tensor.shape};
  if (file.empty())
    writer->addTensor(declaration);
  else
    writer->addTensor(declaration, file);
  copied.push_back(&tensor);
}

void Application::declareTable(const TensorInfo &tensor,
                               const std::string &file) {
  std::vector<int32_t> ids = hotIdsOf(changed.at(tensor.name));
  ByteTableTensors tensors(tensor.name, tensor.shape[0], tensor.shape[1],
                           ids.size(), tensor.dtype);
  for (const TensorInfo &part : tensors.tensors)
    writer->addTensor({part.name, part.dtype, part.shape}, file);
  byteTables.try_emplace(tensor.name,
                         NewTable{std::move(ids), std::move(tensors)});
  copied.push_back(&tensor);
}

std::string Application::configText() const {
  const std::string &text = checkpoint.config().sourceText;
  if (byteTables.empty())
    return text;
  StemSection stem = *checkpoint.config().stem;
  Json origin = provenance();
  if (!stem.provenance.empty())
    origin["before"] = Json::parse(stem.provenance);
  stem.rowDType = dtypeConfigName(DType::U8);
  stem.provenance = jsonText(origin);
  return configWithStem(text, stem);
}

Json Application::byteRowsJson() const {
  ByteRowSizes sizes;
  for (const std::string &name : checkpoint.weights().names())
    sizes.model += checkpoint.tensors().get(name).bytes;
  DType type = DType::F32;
  for (const auto &[key, table] : byteTables) {
    const TensorInfo &before = checkpoint.tensors().get(key);
    type = before.dtype;
    sizes.fullTables += before.bytes;
    sizes.tables += table.tensors.totalBytes();
  }
  sizes.model -= sizes.fullTables - sizes.tables;
  Json json = byteRowFigures(arguments.coldRows, hot, type, sizes);
  json["texts"] = Json::array();
  for (const std::string &text : arguments.texts)
    json["texts"].push_back(
        {{"file", fs::absolute(text).string()}, {"sha256", hashFile(text)}});
  return json;
}

Json Application::provenance() const {
  Json json = {{"command", "apply"},
               {"source", fs::absolute(arguments.model).string()}};
  for (size_t i = 0; i < overlays.size(); ++i)
    json["rows"].push_back({{"file", fs::absolute(arguments.rows[i]).string()},
                            {"sha256", hashFile(arguments.rows[i])},
                            {"ids", overlays[i].ids.size()},
                            {"layers", overlays[i].layers()}});
  if (!byteTables.empty())
    json["cold_rows"] = byteRowsJson();
  return json;
}

void Application::writeTable(const TensorInfo &tensor,
                             const BytesDone &onBytes) {
  const NewTable &table = byteTables.at(tensor.name);
  ByteRowWriter coded(table.tensors, table.hotIds);
  const uint64_t columns = tensor.rowElements();
  const uint64_t step = rowsAtATime(checkpoint.config());
  std::vector<float> rows(step * columns);
  std::vector<std::byte> bytesOfRows(rows.size());
  for (uint64_t row = 0; row < tensor.rows(); row += step) {
    const uint64_t count = std::min(step, tensor.rows() - row);
    checkpoint.tensors().readF32(tensor.name, row, count, rows.data());
    const std::span part(bytesOfRows.data(), count * columns);
    coded.encode({rows.data(), count * columns}, part, rounding, "");
    writer->write(part);
    checkpoint.tensors().release(tensor.name, row, count);
    onBytes(part.size());
  }
  coded.writeRest(*writer);
}

void Application::run() {
  const Stopwatch watch;
  writer->start();
  uint64_t done = 0;
  {
    Progress progress("apply", static_cast<double>(bytes));
    const BytesDone onBytes = [&](uint64_t count) {
      progress.update(static_cast<double>(done += count));
    };
    for (const TensorInfo *tensor : copied)
      if (byteTables.contains(tensor->name))
        writeTable(*tensor, onBytes);
      else
        copyTensor(checkpoint.tensors(), *tensor, tensor->dtype, *writer,
                   rounding, onBytes);
  }
  writer->finish();
  rounding.warnNotFinite();
  report(watch.seconds());
}

void Application::report(double seconds) const {
  if (arguments.json) {
    Json json = resultObject("apply");
    json.update({{"model", arguments.model.string()},
                 {"out", arguments.out.string()},
                 {"rows", rows.size()},
                 {"tables", changed.size()},
                 {"bytes", writer->bytesNeeded()},
                 {"seconds", seconds},
                 {"peak_bytes", memoryStatus().peakResident}});
    if (!byteTables.empty())
      json["cold_rows"] = byteRowsJson();
    return printJson(json);
  }
  const std::string done = arguments.rows.empty()
                               ? std::string("rows of 8 bits")
                               : fmt::format("{} rows replaced", rows.size());
  fmt::print("{}: {} in {} tables, {} written, in {}\n", arguments.out.string(),
             done, changed.size(),
             formatBytes(static_cast<double>(writer->bytesNeeded())),
             formatSeconds(seconds));
  if (!byteTables.empty())
    printByteRows(byteRowsJson(), hot, checkpoint.config().vocabSize);
}

/// What is asked for goes together.
void checkArguments(const CLI::App &command, const ApplyArguments &arguments) {
  checkColdRows(command, arguments.coldRows);
  if (arguments.rows.empty() && !arguments.coldRows.areBytes)
    throw UsageError("nothing to write: give --rows=FILE or --cold-rows=int8");
  if (arguments.coldRows.needsText() && arguments.texts.empty())
    throw UsageError("--hot-fraction: ids are counted in a text; give "
                     "--text=FILE");
  if (command.count("--hot-fraction") && !arguments.coldRows.needsText() &&
      !arguments.texts.empty())
    throw UsageError("--text with --hot-fraction=0: no id keeps full "
                     "precision, so that none is counted; leave out --text, or "
                     "give a share above 0");
  if (!arguments.coldRows.needsText() && !arguments.texts.empty())
    throw UsageError("--text is for --hot-fraction, which counts ids in it");
}

} // namespace

void stem::addApplyCommand(CLI::App &app) {
  auto arguments = std::make_shared<ApplyArguments>();
  CLI::App *command =
      addCommand(app, "apply", "Write rows into the tables of a model", footer);
  command->add_option("MODEL", arguments->model, "Hugging Face folder")
      ->required();
  addRowsOption(*command, arguments->rows);
  addColdRowOptions(*command, arguments->coldRows);
  command
      ->add_option("--text", arguments->texts,
                   "Text in UTF-8 that --hot-fraction counts ids in; may be "
                   "repeated")
      ->type_name("FILE");
  command->add_option("-o,--out", arguments->out, "The folder to make")
      ->required()
      ->type_name("OUT");
  command->add_flag("--force", arguments->force,
                    "Replace OUT if it is a folder that Stem made");
  addJsonOption(*command, arguments->json);
  command->callback([arguments, command] {
    checkArguments(*command, *arguments);
    Application(*arguments).run();
  });
}
