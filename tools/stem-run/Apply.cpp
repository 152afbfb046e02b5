//===- Apply.cpp - stem-run apply -----------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"
#include "Progress.h"
#include "TensorCopy.h"
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

OUT is MODEL with these rows in its tables; every other tensor keeps its bytes.

Next: stem-run eval OUT --text=FILE)";

struct ApplyArguments {
  fs::path model;
  std::vector<fs::path> rows;
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
  void report(double seconds) const;
  std::string provenance() const;

  const ApplyArguments &arguments;
  Checkpoint checkpoint;
  std::vector<RowOverlay> overlays;
  std::map<std::string, uint64_t> changed;     ///< tables and their layers
  std::set<std::pair<uint64_t, int32_t>> rows; ///< layer and id
  std::optional<ModelFolderWriter> writer;
  std::vector<const TensorInfo *> copied; ///< in the order of declaration
  uint64_t bytes = 0;
};

Application::Application(const ApplyArguments &arguments)
    : arguments(arguments), checkpoint(openModel(arguments.model)),
      overlays(readOverlays(checkpoint, arguments.rows)) {
  attach();
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

/// File by file, as the model has its tensors.
void Application::declare() {
  std::map<fs::path, std::vector<const TensorInfo *>> files;
  for (const std::string &name : checkpoint.weights().names()) {
    const TensorInfo &tensor = checkpoint.tensors().get(name);
    files[tensor.file].push_back(&tensor);
  }
  for (const auto &[file, tensors] : files)
    declareFile(file, tensors);
  for (const TensorInfo *tensor : copied)
    bytes += tensor->bytes;
  addModelFiles(*writer, checkpoint, /*isStem=*/true);
  writer->addText("config.json", checkpoint.config().sourceText);
  writer->setProvenance(provenance());
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
  const TensorDeclaration declaration{tensor.name, tensor.dtype, tensor.shape};
  if (file.empty())
    writer->addTensor(declaration);
  else
    writer->addTensor(declaration, file);
  copied.push_back(&tensor);
}

std::string Application::provenance() const {
  Json json = {{"command", "apply"},
               {"source", fs::absolute(arguments.model).string()}};
  for (size_t i = 0; i < overlays.size(); ++i)
    json["rows"].push_back({{"file", fs::absolute(arguments.rows[i]).string()},
                            {"sha256", hashFile(arguments.rows[i])},
                            {"ids", overlays[i].ids.size()},
                            {"layers", overlays[i].layers()}});
  return jsonText(json);
}

void Application::run() {
  const Stopwatch watch;
  writer->start();
  RoundingError rounding;
  uint64_t done = 0;
  {
    Progress progress("apply", static_cast<double>(bytes));
    for (const TensorInfo *tensor : copied)
      copyTensor(checkpoint.tensors(), *tensor, tensor->dtype, *writer,
                 rounding, [&](uint64_t count) {
                   progress.update(static_cast<double>(done += count));
                 });
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
                 {"bytes", bytes},
                 {"seconds", seconds},
                 {"peak_bytes", memoryStatus().peakResident}});
    return printJson(json);
  }
  fmt::print("{}: {} rows replaced in {} tables, {} written, in {}\n",
             arguments.out.string(), rows.size(), changed.size(),
             formatBytes(static_cast<double>(bytes)), formatSeconds(seconds));
}

} // namespace

void stem::addApplyCommand(CLI::App &app) {
  auto arguments = std::make_shared<ApplyArguments>();
  CLI::App *command =
      addCommand(app, "apply", "Write rows into the tables of a model", footer);
  command->add_option("MODEL", arguments->model, "Hugging Face folder")
      ->required();
  addRowsOption(*command, arguments->rows)->required();
  command->add_option("-o,--out", arguments->out, "The folder to make")
      ->required()
      ->type_name("OUT");
  command->add_flag("--force", arguments->force,
                    "Replace OUT if it is a folder that Stem made");
  addJsonOption(*command, arguments->json);
  command->callback([arguments] { Application(*arguments).run(); });
}
