//===- Import.cpp - stem-run import -------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A Hugging Face folder or a GGUF file to a Hugging Face folder, as a stream.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"
#include "Json.h"
#include "Progress.h"
#include "TensorCopy.h"
#include "Tokenizing.h"
#include "stem/Runtime/Arena.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr const char *footer = R"(Examples:
  stem-run import SmolLM2-135M-Instruct.Q4_1.gguf smollm2
  stem-run import Llama-3.2-1B llama-f32 --dtype=f32

GGUF types: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K. The other
commands read both kinds of source directly; import is for a folder to keep.

Next: stem-run eval OUT --text=FILE, or stem-run convert OUT STEM --layers=1/3)";

struct ImportArguments {
  fs::path source;
  fs::path out;
  std::string dtype = "keep";
  OpenOptions open;
  bool force = false;
  bool json = false;
};

class Import {
public:
  explicit Import(const ImportArguments &arguments);
  void run();

private:
  std::optional<DType> wantedType() const;
  void report() const;

  const ImportArguments &arguments;
  // Made first: what cannot be written is not read.
  ModelFolderWriter writer;
  Checkpoint checkpoint;
  TypeChoice types;
  std::vector<const TensorInfo *> tensors;
  std::vector<std::string> leftOut;
  RoundingError rounding;
  uint64_t bytes = 0;
  double seconds = 0;
};

Import::Import(const ImportArguments &arguments)
    : arguments(arguments), writer(arguments.out, {.force = arguments.force,
                                                   .source = arguments.source}),
      checkpoint(openModel(arguments.source, arguments.open)),
      types(checkpoint, wantedType()), leftOut(tensorsLeftOut(checkpoint)) {}

std::optional<DType> Import::wantedType() const {
  if (arguments.dtype == "keep")
    return std::nullopt;
  return arguments.dtype == "f32" ? DType::F32 : DType::BF16;
}

void Import::run() {
  const Stopwatch watch;
  tensors = declareTensors(writer, checkpoint, types);
  for (const TensorInfo *tensor : tensors)
    bytes += bytesAs(*tensor, types.typeOf(*tensor));
  warnOfTokenizer(checkpoint);
  addModelFiles(writer, checkpoint, checkpoint.config().stem.has_value());
  writer.addText("config.json", configTextAs(checkpoint, types));
  writer.setProvenance(
      jsonText({{"command", "import"},
                {"source", fs::absolute(arguments.source).string()},
                {"dtype", arguments.dtype}}));
  printStderr("writing {} to {} ({} free)\n",
              formatBytes(static_cast<double>(writer.bytesNeeded())),
              arguments.out.string(),
              formatBytes(static_cast<double>(writer.bytesAvailable())));
  writer.start();
  {
    Progress progress("import", static_cast<double>(bytes));
    uint64_t done = 0;
    for (const TensorInfo *tensor : tensors)
      copyTensor(checkpoint.tensors(), *tensor, types.typeOf(*tensor), writer,
                 rounding, [&](uint64_t count) {
                   progress.update(static_cast<double>(done += count));
                 });
  }
  writer.finish();
  seconds = watch.seconds();
  report();
}

void Import::report() const {
  rounding.warnNotFinite();
  std::map<std::string, size_t> byType;
  for (const TensorInfo *tensor : tensors)
    ++byType[fmt::format("{} to {}", dtypeName(tensor->dtype),
                         dtypeName(types.typeOf(*tensor)))];
  if (arguments.json) {
    Json json = resultObject("import");
    json.update(
        {{"source", arguments.source.string()},
         {"out", arguments.out.string()},
         {"tensors", tensors.size()},
         {"tensors_in_source", checkpoint.tensors().tensors().size() +
                                   checkpoint.tensors().unlisted().size()},
         {"types", byType},
         {"left_out", leftOut},
         {"bytes", bytes},
         {"seconds", seconds},
         {"peak_bytes", memoryStatus().peakResident}});
    if (rounding.values)
      json["rounding"] = {{"values", rounding.values},
                          {"largest", rounding.largest},
                          {"tensor", rounding.tensor},
                          {"relative", rounding.relative()}};
    json["not_finite"] = rounding.notFiniteJson();
    return printJson(json);
  }
  fmt::print("{}: {} tensors, {}, in {}\n", arguments.out.string(),
             tensors.size(), formatBytes(static_cast<double>(bytes)),
             formatSeconds(seconds));
  for (const auto &[type, count] : byType)
    fmt::print("  {} {}\n", count, type);
  if (rounding.values)
    fmt::print("  rounding: {:.2g} of the values' size (root mean square), "
               "at most {:.2g}{}\n",
               rounding.relative(), rounding.largest,
               rounding.tensor.empty() ? "" : " in " + rounding.tensor);
  printLeftOut(leftOut);
}

} // namespace

void stem::addImportCommand(CLI::App &app) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App *command = addCommand(
      app, "import", "Make a Hugging Face folder of a folder or a GGUF file",
      footer);
  command->add_option("SRC", arguments->source, "Hugging Face folder or GGUF")
      ->required();
  command->add_option("OUT", arguments->out, "The folder to make")->required();
  command
      ->add_option("--dtype", arguments->dtype,
                   "Type of the tensors: keep (default; a quantised GGUF "
                   "becomes bf16), f32 or bf16")
      ->check(CLI::IsMember({"keep", "f32", "bf16"}))
      ->type_name("TYPE");
  command->add_flag("--ignore-index", arguments->open.ignoreIndex,
                    "Take what SRC's *.safetensors files hold, whatever its "
                    "index says");
  command->add_flag("--force", arguments->force,
                    "Replace OUT if it is a folder that Stem made");
  addJsonOption(*command, arguments->json);
  command->callback([arguments] { Import(*arguments).run(); });
}
