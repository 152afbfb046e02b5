//===- CommandLine.h - What the commands of stem-run share ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_COMMANDLINE_H
#define STEM_TOOLS_STEM_RUN_COMMANDLINE_H

#include "Engine.h"
#include "stem-c/Runtime.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Support/Error.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// A command line that parses but asks for what cannot be; exits with 2.
class UsageError : public Error {
public:
  using Error::Error;
};

/// \name The commands, one file each
/// Each adds its subcommand, whose callback runs it.
/// @{
void addImportCommand(CLI::App &app);
void addConvertCommand(CLI::App &app);
void addEvalCommand(CLI::App &app);
void addGenerateCommand(CLI::App &app);
void addInspectCommand(CLI::App &app);
void addBenchCommand(CLI::App &app);
void addTrainCommand(CLI::App &app);
void addApplyCommand(CLI::App &app);
/// @}

/// A subcommand whose --help ends with `footer`: examples, and what comes next.
CLI::App *addCommand(CLI::App &app, const std::string &name,
                     const std::string &summary, const std::string &footer);

/// The arguments with every "--name=" as the two "--name" and "", since the
/// parser takes the one for an option without its value. An option of type TEXT
/// takes the empty text; an empty value of another one is a UsageError.
std::vector<std::string>
separateEmptyValues(const CLI::App &command,
                    const std::vector<std::string> &arguments);

/// --json: the result as one object on standard output, all else on standard
/// error.
void addJsonOption(CLI::App &command, bool &json);

/// What every command that compiles takes.
struct CompileArguments {
  std::string dtype;
  int threads = 0;
  std::string maxIsa = "native";
  std::filesystem::path dumpDirectory;
  std::filesystem::path cacheDirectory;
  bool noCompileCache = false;
  std::string tables = "resident";
  std::vector<std::string> tablePlaces;
  std::string memory;           ///< empty: what is available
  std::string cacheRows;        ///< empty: not given, 5%
  std::string prefetchDistance; ///< empty: not given
  std::optional<int64_t> stagingRows;
};

/// --tables, where tables lie, and what goes with it. Gives these options.
std::vector<CLI::Option *>
addTablePlacementOptions(CLI::App &command, CompileArguments &arguments);

void addCompileOptions(CLI::App &command, CompileArguments &arguments);

/// The same without --dump-ir.
void addComputeOptions(CLI::App &command, CompileArguments &arguments);

/// Checks that a value is a whole number from 0 to `largest`. The parser takes
/// one with a sign or too many digits for another number.
CLI::Validator wholeNumber(uint64_t largest);

/// The finite number that the whole text is; nothing for another text, NaN and
/// infinity among them, which the parser takes for numbers.
std::optional<double> readFinite(std::string_view text);

/// Checks that a value is a finite number, `least` to `largest`.
CLI::Validator
finiteNumber(double least = std::numeric_limits<double>::lowest(),
             double largest = std::numeric_limits<double>::max());

/// Bytes: a whole number above 0 with a unit of thousands or, with an i, of
/// 1024, as in 4GB, 900MiB or 1500000. A UsageError names `flag`.
int64_t parseBytes(const std::string &text, std::string_view flag);

/// --threads alone, for a command that computes without compiling.
void addThreadsOption(CLI::App &command, int &threads);

stem_isa parseIsa(const std::string &name);

/// Throws a UsageError for values of these options that cannot be: before a
/// model is opened.
void checkValues(const CompileArguments &arguments);

/// The engine's options, all but the sizes. The plan is printed to standard
/// error.
EngineOptions engineOptions(const CompileArguments &arguments);

/// Compiles and loads, saying so on standard error where it takes time.
std::unique_ptr<Engine> createEngine(const Checkpoint &checkpoint,
                                     const EngineOptions &options);

/// What was read of tables in files, on standard error; nothing of others.
void printTableUse(const Engine &engine);

/// "compiled in 2.1 s for avx512, bf16, 2 threads; weights read in 0.4 s".
std::string describeEngine(const EngineReport &report);

/// Opens a model and prints its warnings to standard error.
Checkpoint openModel(const std::filesystem::path &path,
                     const OpenOptions &options = {});

/// The file of option `flag` must not take the place of a model, nor of a file
/// of its folder, under whatever name, nor lie in it. Throws an Error.
void requireOutsideModel(std::string_view flag,
                         const std::filesystem::path &file,
                         const std::filesystem::path &model);

/// --rows=FILE, repeatable: row overlays of the model.
CLI::Option *addRowsOption(CLI::App &command,
                           std::vector<std::filesystem::path> &files);

/// Reads overlays that were made for this model; nothing is attached yet.
std::vector<RowOverlay>
readOverlays(const Checkpoint &model,
             const std::vector<std::filesystem::path> &files);

/// Reads and attaches them; says so on standard error.
void attachRows(Checkpoint &model,
                const std::vector<std::filesystem::path> &files);

/// openModel and attachRows.
Checkpoint openModelWithRows(const std::filesystem::path &path,
                             const std::vector<std::filesystem::path> &files);

/// "12 rows in 3 layers".
std::string describeOverlay(const RowOverlay &overlay);

/// "1,2,3" as integers; a UsageError names `flag` and what is not one.
std::vector<int64_t> parseIntegers(const std::string &text,
                                   std::string_view flag);

/// Writes to standard error: "note: ..." and "warning: ...".
void printNote(const std::string &text);
void printWarning(const std::string &text);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_COMMANDLINE_H
