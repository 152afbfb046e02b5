//===- CommandLine.cpp - What the commands of stem-run share --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"

#include "Progress.h"
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

using namespace stem;

CLI::App *stem::addCommand(CLI::App &app, const std::string &name,
                           const std::string &summary,
                           const std::string &footer) {
  CLI::App *command = app.add_subcommand(name, summary);
  command->footer("\n" + footer);
  return command;
}

static void checkEmptyValue(const CLI::Option &option,
                            const std::string &name) {
  const std::string type = option.get_type_name();
  if (type != "TEXT") // what the checks add follows a colon
    throw UsageError(fmt::format("{}= is empty; give {}={}", name, name,
                                 type.substr(0, type.find(':'))));
}

std::vector<std::string>
stem::separateEmptyValues(const CLI::App &command,
                          const std::vector<std::string> &arguments) {
  std::vector<std::string> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    const bool isAssigned =
        argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    const std::string name =
        isAssigned ? argument.substr(0, argument.size() - 1) : argument;
    const CLI::Option *option =
        name.starts_with('-') ? command.get_option_no_throw(name) : nullptr;
    const bool takesValue = option && option->get_items_expected_max() > 0;
    if (!takesValue || (!isAssigned && i + 1 == arguments.size())) {
      result.push_back(argument);
      continue;
    }
    const std::string value = isAssigned ? "" : arguments[++i];
    if (value.empty())
      checkEmptyValue(*option, name);
    result.push_back(name);
    result.push_back(value);
  }
  return result;
}

void stem::addJsonOption(CLI::App &command, bool &json) {
  command.add_flag("--json", json,
                   "Print the result as one JSON object on standard output; "
                   "everything else goes to standard error");
}

CLI::Validator stem::wholeNumber(uint64_t largest) {
  return CLI::Validator(
      [largest](const std::string &text) {
        uint64_t value = 0;
        const auto [rest, code] =
            std::from_chars(text.data(), text.data() + text.size(), value);
        const bool isRead =
            code == std::errc() && rest == text.data() + text.size();
        return isRead && value <= largest
                   ? std::string()
                   : fmt::format("{} is no whole number from 0 to {}",
                                 printable(text), largest);
      },
      "");
}

std::optional<double> stem::readFinite(std::string_view text) {
  double value = 0;
  const char *begin = std::to_address(text.begin());
  const char *end = begin + text.size();
  const auto [rest, code] = std::from_chars(begin, end, value);
  if (code != std::errc() || rest != end || !std::isfinite(value))
    return std::nullopt;
  return value;
}

CLI::Validator stem::finiteNumber(double least, double largest) {
  return CLI::Validator(
      [=](const std::string &text) {
        const std::optional<double> value = readFinite(text);
        if (value && *value >= least && *value <= largest)
          return std::string();
        const bool isAny = largest == std::numeric_limits<double>::max();
        return fmt::format(
            "{} is no {}", printable(text),
            isAny ? std::string("finite number")
                  : fmt::format("number from {} to {}", least, largest));
      },
      "");
}

/// Of "", "B", "K", "KB", "KiB" and so on up to E, in any case; 0: of none.
static int64_t bytesOfUnit(std::string_view unit) {
  constexpr std::string_view kPrefixes = "kmgtpe";
  std::string name;
  for (const char c : unit)
    name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (name.ends_with('b'))
    name.pop_back();
  if (name.empty())
    return 1;
  const size_t power = kPrefixes.find(name[0]);
  const std::string rest = name.substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "i"))
    return 0;
  int64_t bytes = 1;
  for (size_t i = 0; i <= power; ++i)
    bytes *= rest.empty() ? 1000 : 1024;
  return bytes;
}

int64_t stem::parseBytes(const std::string &text, std::string_view flag) {
  uint64_t count = 0; // a sign is no part of it
  int64_t bytes = 0;
  const char *end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, count);
  std::string_view unit(rest, end);
  while (unit.starts_with(' '))
    unit.remove_prefix(1);
  const int64_t each = bytesOfUnit(unit);
  if (code == std::errc::result_out_of_range ||
      (code == std::errc() && each > 0 &&
       __builtin_mul_overflow(count, each, &bytes)))
    throw UsageError(fmt::format("{}={}: is beyond {} bytes, more than any "
                                 "memory has; give less, like 4GB",
                                 flag, printable(text), INT64_MAX));
  if (code != std::errc() || each == 0 || bytes == 0)
    throw UsageError(fmt::format("{}={}: give a whole number above 0 with a "
                                 "unit, like 4GB, 1500MB or 900MiB",
                                 flag, printable(text)));
  return bytes;
}

void stem::addThreadsOption(CLI::App &command, int &threads) {
  command.add_option("--threads", threads, "Threads (default: physical cores)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
}

static constexpr const char *kCompiling = "Compiling";

void stem::addCompileOptions(CLI::App &command, CompileArguments &arguments) {
  addComputeOptions(command, arguments);
  command
      .add_option("--dump-ir", arguments.dumpDirectory,
                  "Write the module after each phase into this folder; "
                  "stem-opt reads these files")
      ->type_name("DIR")
      ->group(kCompiling);
}

void stem::addComputeOptions(CLI::App &command, CompileArguments &arguments) {
  const std::string group = kCompiling;
  command
      .add_option("--dtype", arguments.dtype,
                  "Type of weights and products: f32 or bf16 (default: the "
                  "model's own; sums, norms and softmax are f32 in both)")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->type_name("TYPE")
      ->group(group);
  addThreadsOption(command, arguments.threads);
  command.get_option("--threads")->group(group);
  command
      .add_option("--max-isa", arguments.maxIsa,
                  "Use no newer instructions than these: native, avx2, avx512, "
                  "avx512bf16 or amx (default: native)")
      ->check(CLI::IsMember({"native", "avx2", "avx512", "avx512bf16", "amx"}))
      ->type_name("ISA")
      ->group(group);
  command
      .add_option("--cache-dir", arguments.cacheDirectory,
                  "Keep compiled modules here (default: stem/ in "
                  "$XDG_CACHE_HOME or ~/.cache)")
      ->type_name("DIR")
      ->group(group);
  command
      .add_flag("--no-compile-cache", arguments.noCompileCache,
                "Compile anew and keep nothing")
      ->group(group);
}

std::vector<CLI::Option *>
stem::addTablePlacementOptions(CLI::App &command, CompileArguments &arguments) {
  CLI::Option *tables =
      command
          .add_option("--tables", arguments.tables,
                      "Where tables lie: resident (default), with the weights; "
                      "host, in host memory, which on a CPU is the same; file, "
                      "in the model's files, of which the rows of a step are "
                      "read while it runs; or auto, in memory if they fit, "
                      "else in the files")
          ->check(CLI::IsMember({"resident", "host", "file", "auto"}))
          ->type_name("PLACE");
  CLI::Option *places =
      command
          .add_option(
              "--table-place", arguments.tablePlaces,
              "Where the tables of these layers lie, resident, host or "
              "file, whatever --tables says of the others, like 2,5=file; "
              "layers counted from 0; may be repeated")
          ->allow_extra_args(false)
          ->type_name("LAYERS=PLACE");
  command
      .add_option("--memory", arguments.memory,
                  "Keep within so many bytes of memory, like 4GB (default: "
                  "what is available)")
      ->type_name("BYTES");
  CLI::Option *cache =
      command
          .add_option("--cache-rows", arguments.cacheRows,
                      "Of tables in files: ids whose rows are kept in memory, "
                      "a number or a share of the vocabulary (default: 5%)")
          ->type_name("N|P%");
  CLI::Option *distance =
      command
          .add_option("--prefetch-distance", arguments.prefetchDistance,
                      "Of tables in files: how many tables ahead rows are "
                      "asked for, or auto (default), all at the start of a "
                      "step")
          ->type_name("N|auto");
  CLI::Option *staging =
      command
          .add_option("--staging-rows", arguments.stagingRows,
                      "Different rows of one table that are staged at a time, "
                      "of tables in files or of 8-bit rows; a step of more ids "
                      "is computed in parts (default: those of the largest "
                      "step)")
          ->check(wholeNumber(INT32_MAX))
          ->type_name("N");
  return {tables, places, cache, distance, staging};
}

/// `flag` is for tables in files.
static void requireFiles(const std::string &flag, const char *why,
                         const std::string &tables,
                         const EngineOptions &options) {
  const bool mayLieInFiles =
      options.tables == TablePlacement::File || options.tablesMayStayInFiles ||
      std::ranges::count(options.layerPlaces, TablePlacement::File,
                         &LayerPlace::place) > 0;
  if (!mayLieInFiles)
    throw UsageError(fmt::format("{} with --tables={}: {}; leave it out, or "
                                 "choose --tables=file",
                                 flag, tables, why));
}

static void parsePrefetchDistance(const CompileArguments &arguments,
                                  EngineOptions &options) {
  const std::string &text = arguments.prefetchDistance;
  if (text.empty())
    return;
  const std::optional<double> value = readFinite(text);
  const bool isNumber = value && *value >= 0 && *value <= INT32_MAX &&
                        *value == std::floor(*value);
  if (!isNumber && text != "auto")
    throw UsageError(fmt::format("--prefetch-distance={}: wanted auto, or a "
                                 "number of tables, 0 to {}",
                                 text, INT32_MAX));
  requireFiles("--prefetch-distance=" + text,
               "rows in memory are not asked for ahead", arguments.tables,
               options);
  if (isNumber)
    options.prefetchDistance = static_cast<int64_t>(*value);
}

static void parseCacheRows(const CompileArguments &arguments,
                           EngineOptions &options) {
  const std::string text =
      arguments.cacheRows.empty() ? "5%" : arguments.cacheRows;
  const bool isShare = text.ends_with('%');
  const std::optional<double> value =
      readFinite(text.substr(0, text.size() - isShare));
  const bool isGood =
      value && *value >= 0 &&
      (isShare ? *value <= 100
               : *value <= INT32_MAX && *value == std::floor(*value));
  if (!isGood)
    throw UsageError(fmt::format(
        "--cache-rows={}: wanted a number of ids, 0 to {}, or a share of the "
        "vocabulary from 0% to 100%",
        text, INT32_MAX));
  if (!arguments.cacheRows.empty())
    requireFiles("--cache-rows=" + text, "rows in memory need not be kept",
                 arguments.tables, options);
  if (isShare)
    options.cacheShare = *value / 100;
  else
    options.cacheIds = static_cast<int64_t>(*value);
}

stem_isa stem::parseIsa(const std::string &name) {
  if (name == "avx2")
    return STEM_ISA_AVX2;
  if (name == "avx512")
    return STEM_ISA_AVX512;
  if (name == "avx512bf16")
    return STEM_ISA_AVX512_BF16;
  return name == "amx" ? STEM_ISA_AMX : STEM_ISA_NATIVE;
}

EngineOptions stem::engineOptions(const CompileArguments &arguments) {
  EngineOptions options;
  if (!arguments.dtype.empty())
    options.dtype = arguments.dtype == "f32" ? DType::F32 : DType::BF16;
  options.threads = arguments.threads;
  options.maxIsa = parseIsa(arguments.maxIsa);
  options.dumpDirectory = arguments.dumpDirectory;
  options.cacheDirectory = arguments.cacheDirectory;
  options.useCache = !arguments.noCompileCache;
  options.tables = arguments.tables == "file" ? TablePlacement::File
                                              : TablePlacement::Resident;
  options.tablesMayStayInFiles = arguments.tables == "auto";
  options.stagingRows = arguments.stagingRows;
  options.layerPlaces = parseLayerPlaces(arguments.tablePlaces);
  if (!arguments.memory.empty())
    options.memory = parseBytes(arguments.memory, "--memory");
  parseCacheRows(arguments, options);
  parsePrefetchDistance(arguments, options);
  options.onPlan = [](const std::string &plan) { printStderr("{}\n", plan); };
  return options;
}

void stem::checkValues(const CompileArguments &arguments) {
  engineOptions(arguments);
}

std::unique_ptr<Engine> stem::createEngine(const Checkpoint &checkpoint,
                                           const EngineOptions &options) {
  std::unique_ptr<Engine> engine;
  {
    const Heartbeat heartbeat("compiling and reading weights");
    engine = Engine::create(checkpoint, options);
  }
  const EngineReport &report = engine->report();
  printStderr("{}\n", describeEngine(report));
  if (!report.dtypeNote.empty())
    printNote(report.dtypeNote);
  if (report.tables.empty() &&
      (options.tables == TablePlacement::File || !options.layerPlaces.empty()))
    printNote(fmt::format("{}: no layer has a table: {} changes nothing",
                          checkpoint.path().string(),
                          options.tables == TablePlacement::File
                              ? "--tables=file"
                              : options.layerPlaces.front().given));
  else if (options.stagingRows && report.plan.stagedTables == 0)
    printNote(fmt::format("{}: no row of a table is staged: --staging-rows={} "
                          "changes nothing",
                          checkpoint.path().string(), *options.stagingRows));
  return engine;
}

void stem::printTableUse(const Engine &engine) {
  const stem_table_statistics use = engine.tableStatistics();
  if (use.bytes_in_files == 0)
    return;
  const uint64_t rows = use.rows_read + use.rows_cached;
  const std::vector<PlacedTable> &tables = engine.report().tables;
  std::string where;
  if (arePlacedApart(tables))
    where = fmt::format("layers {} in memory, layers {} with ",
                        layersOf(tables, /*inFiles=*/false),
                        layersOf(tables, /*inFiles=*/true));
  const std::string cuts =
      engine.stagingCuts() > 0
          ? fmt::format(" ({} because staging was full)", engine.stagingCuts())
          : "";
  printStderr("tables: {}{} in files; {} rows wanted for {} ids in {} "
              "step{}{}, {:.1f} % "
              "of them kept from before, {} read; {} waits, {} in all\n",
              where, formatBytes(static_cast<double>(use.bytes_in_files)), rows,
              use.lookups, engine.steps(), engine.steps() == 1 ? "" : "s", cuts,
              rows ? 100 * double(use.rows_cached) / double(rows) : 0.0,
              formatBytes(static_cast<double>(use.bytes_moved)), use.stalls,
              formatSeconds(1e-9 * static_cast<double>(use.stall_nanoseconds)));
}

std::string stem::describeEngine(const EngineReport &report) {
  return fmt::format("{} in {} ({}, {}, {} thread{}); weights read in {}",
                     report.cacheHit ? "found compiled" : "compiled",
                     formatSeconds(report.compileSeconds), report.isa,
                     report.dtype == DType::F32 ? "f32" : "bf16",
                     report.threads, report.threads == 1 ? "" : "s",
                     formatSeconds(report.loadSeconds));
}

Checkpoint stem::openModel(const std::filesystem::path &path,
                           const OpenOptions &options) {
  Checkpoint checkpoint = Checkpoint::open(path, options);
  for (const std::string &warning : checkpoint.warnings())
    printWarning(warning);
  return checkpoint;
}

void stem::requireOutsideModel(std::string_view flag,
                               const std::filesystem::path &file,
                               const std::filesystem::path &model) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto isSame = [&](const fs::path &other) {
    return fs::equivalent(file, other, error) && !error;
  };
  if (isSame(model) || liesWithin(file, model))
    fail("{}={}: is or lies in the model {}, which must stay as it is; choose "
         "another place",
         flag, file.string(), model.string());
  if (!isFolder(model))
    return;
  std::error_code end;
  for (fs::directory_iterator it(model, end), last; !end && it != last;
       it.increment(end))
    if (isSame(it->path()))
      fail("{}={}: is the model's file {}; choose another name", flag,
           file.string(), it->path().string());
}

CLI::Option *stem::addRowsOption(CLI::App &command,
                                 std::vector<std::filesystem::path> &files) {
  return command
      .add_option("--rows", files,
                  "Rows in the place of the model's, as stem-run train "
                  "--train=rows:FILE writes them; may be repeated, later ones "
                  "win")
      ->allow_extra_args(false)
      ->type_name("FILE");
}

std::vector<RowOverlay>
stem::readOverlays(const Checkpoint &model,
                   const std::vector<std::filesystem::path> &files) {
  std::vector<RowOverlay> overlays;
  for (const std::filesystem::path &file : files) {
    overlays.push_back(RowOverlay::read(file));
    overlays.back().requireBase(model);
  }
  return overlays;
}

void stem::attachRows(Checkpoint &model,
                      const std::vector<std::filesystem::path> &files) {
  for (const RowOverlay &overlay : readOverlays(model, files)) {
    model.attach(overlay);
    printNote(fmt::format("{}: {}, in the place of the model's", overlay.name,
                          describeOverlay(overlay)));
  }
}

Checkpoint
stem::openModelWithRows(const std::filesystem::path &path,
                        const std::vector<std::filesystem::path> &files) {
  Checkpoint model = openModel(path);
  attachRows(model, files);
  return model;
}

std::string stem::describeOverlay(const RowOverlay &overlay) {
  const auto count = [](size_t number, const char *what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  return fmt::format("{} in {}", count(overlay.ids.size(), "row"),
                     count(overlay.tables.size(), "layer"));
}

std::vector<int64_t> stem::parseIntegers(const std::string &text,
                                         std::string_view flag) {
  std::vector<int64_t> result;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view item = std::string_view(text).substr(begin, end - begin);
    while (!item.empty() && item.front() == ' ')
      item.remove_prefix(1);
    int64_t value = 0;
    const auto [rest, code] =
        std::from_chars(item.data(), item.data() + item.size(), value);
    if (code != std::errc() || rest != item.data() + item.size())
      throw UsageError(
          fmt::format("{}={}: \"{}\" is not an integer; give a list like 1,2,3",
                      flag, printable(text), printable(item)));
    result.push_back(value);
    begin = end + 1;
  }
  return result;
}

void stem::printNote(const std::string &text) {
  printStderr("note: {}\n", visible(text));
}

void stem::printWarning(const std::string &text) {
  printStderr("warning: {}\n", visible(text));
}
