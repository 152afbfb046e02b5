//===- Convert.cpp - stem-run convert -----------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dense to STEM: stem-dense-to-lookup decides on the model's IR which tables
// take the place of which matrices; their rows are computed here. Folders that
// differ in the rank alone share what comes before the conversion of layers.
//
//===----------------------------------------------------------------------===//

#include "Convert.h"

#include "CommandLine.h"
#include "ConversionReport.h"
#include "FolderConversion.h"
#include "OutputFile.h"
#include "Tokenizing.h"
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <deque>
#include <functional>
#include <system_error>
#include <unistd.h>

using namespace stem;
namespace fs = std::filesystem;

namespace {

//===----------------------------------------------------------------------===//
// Where the folders and pages go
//===----------------------------------------------------------------------===//

constexpr std::string_view kRank = "{rank}"; ///< of the conversion, in names

/// `path` for this rank. `option` names it in messages.
fs::path pathOfRank(const fs::path &path, int64_t rank,
                    const ConvertArguments &arguments,
                    std::string_view option) {
  std::string text = path.string();
  const bool hasRank = text.find(kRank) != std::string::npos;
  if (hasRank && !arguments.isRankNamed)
    throw UsageError(fmt::format("{}{}: {} stands for a rank of --mix-rank; "
                                 "give this option, or another name",
                                 option, text, kRank));
  if (!hasRank && arguments.calibration.ranks.size() > 1)
    throw UsageError(fmt::format("{}{}: --mix-rank has {} ranks, and each gets "
                                 "its own; give a name with {} in it, which "
                                 "stands for the rank",
                                 option, text,
                                 arguments.calibration.ranks.size(), kRank));
  for (size_t at; (at = text.find(kRank)) != std::string::npos;)
    text.replace(at, kRank.size(), std::to_string(rank));
  return text;
}

/// The page must not take the place of what the conversion reads.
void checkWhatReportReplaces(const fs::path &file,
                             const ConvertArguments &arguments) {
  requireOutsideModel("--report", file, arguments.source);
  std::error_code error;
  for (const fs::path &text : arguments.calibration.text.files)
    if (fs::equivalent(file, text, error) && !error)
      fail("--report={}: is the text of --calibrate={}; choose another name",
           file.string(), text.string());
}

/// The page of one rank may have the name of another one's folder.
void checkReportsAndFolders(const std::vector<ConversionTarget> &targets) {
  for (const ConversionTarget &page : targets)
    for (const ConversionTarget &folder : targets)
      if (!page.reportFile.empty() && liesWithin(page.reportFile, folder.out))
        fail(
            "--report={}: is or lies in the folder to make, {}; choose another "
            "place",
            page.reportFile.string(), folder.out.string());
}

/// Before anything is computed.
void checkReport(const ConversionTarget &target,
                 const ConvertArguments &arguments) {
  const fs::path &file = target.reportFile;
  if (file.empty())
    return;
  checkWhatReportReplaces(file, arguments);
  if (!isFolder(fs::absolute(file).parent_path()))
    fail("--report={}: its folder does not exist; make it first",
         file.string());
  if (access(fs::absolute(file).parent_path().c_str(), W_OK) != 0)
    fail("--report={}: its folder cannot be written to; choose another place",
         file.string());
  if (isFolder(file))
    fail("--report={}: is a folder; give the name of a file", file.string());
  requireReplaceable(file, "--report=" + file.string(), arguments.force);
}

/// A dump there would stand where the new folder goes, or change the model.
void checkDump(const ConvertArguments &arguments, const fs::path &out) {
  const fs::path &dump = arguments.dumpDirectory;
  if (dump.empty())
    return;
  if (liesWithin(dump, out))
    fail("--dump-ir={}: lies in the folder to make, {}; choose another place",
         dump.string(), out.string());
  requireOutsideModel("--dump-ir", dump, arguments.source);
}

/// All conversions read the source; the first must not replace it.
void checkSource(const ConvertArguments &arguments, const fs::path &out) {
  if (arguments.calibration.ranks.size() > 1 &&
      liesWithin(arguments.source, out))
    fail(
        "{}: is or holds what is converted, {}, which the other ranks are made "
        "from too; choose another name",
        out.string(), arguments.source.string());
}

std::vector<ConversionTarget> makeTargets(const ConvertArguments &arguments) {
  std::vector<ConversionTarget> targets;
  for (const int64_t rank : arguments.calibration.ranks) {
    ConversionTarget target;
    target.rank = rank;
    target.out = pathOfRank(arguments.out, rank, arguments, "");
    if (!arguments.reportFile.empty())
      target.reportFile =
          pathOfRank(arguments.reportFile, rank, arguments, "--report=");
    checkDump(arguments, target.out);
    checkSource(arguments, target.out);
    target.writer = std::make_unique<ModelFolderWriter>(
        target.out,
        FolderOptions{.force = arguments.force, .source = arguments.source});
    targets.push_back(std::move(target));
  }
  checkReportsAndFolders(targets);
  for (const ConversionTarget &target : targets)
    checkReport(target, arguments);
  return targets;
}

/// "a/b/" and "a/b" are the same folder.
fs::path parentOf(const fs::path &folder) {
  return (fs::absolute(folder) / "")
      .lexically_normal()
      .parent_path()
      .parent_path();
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

class Convert {
public:
  explicit Convert(const ConvertArguments &arguments)
      : arguments(arguments), targets(makeTargets(arguments)),
        basis(arguments, parentOf(targets.front().out),
              [&](uint64_t bytes) { requireSpace(bytes); }) {}
  void run();

private:
  bool areSeveral() const { return targets.size() > 1; }
  /// All folders lie beside each other.
  void requireSpace(uint64_t bytes) const {
    targets.front().writer->requireSpace(bytes);
  }
  Json convert(FolderConversion &conversion, const ConversionTarget &target);
  void tell(const std::function<void()> &say);
  void printResults(const Json &results) const;
  void requireTold() const;

  const Stopwatch watch;
  const ConvertArguments &arguments;
  const std::vector<ConversionTarget> targets;
  const ConversionBasis basis;
  std::string failure; ///< to tell of a folder; the first
};

/// The folders are there whatever becomes of what is said of them, so the
/// conversions that are left go on.
void Convert::tell(const std::function<void()> &say) {
  std::string message;
  try {
    say();
  } catch (const std::system_error &error) {
    // What fmt throws.
    message = fmt::format("cannot write to standard output: {}",
                          error.code().message());
  } catch (const Error &error) {
    message = error.what();
  }
  if (failure.empty())
    failure = message;
}

void Convert::requireTold() const {
  if (failure.empty())
    return;
  std::string folders;
  for (const ConversionTarget &target : targets)
    folders += (folders.empty() ? "" : ", ") + target.out.string();
  fail("{}; {} {} complete all the same", failure, folders,
       areSeveral() ? "are" : "is");
}

/// Of several folders each has its own time.
Json Convert::convert(FolderConversion &conversion,
                      const ConversionTarget &target) {
  const Stopwatch own;
  conversion.run();
  const double seconds = (areSeveral() ? own : watch).seconds();
  conversion.warn();
  Json result = conversion.result(seconds);
  if (!target.reportFile.empty())
    tell([&] {
      replaceFile(target.reportFile, conversionReport(result));
      printStderr("report in {}\n", target.reportFile.string());
    });
  if (!arguments.json)
    tell([&] {
      conversion.print(seconds);
      if (basis.isCalibrated() && &target == &targets.front())
        basis.calibration->printSensitivities();
      conversion.printCalibration();
    });
  return result;
}

void Convert::run() {
  if (!basis.isCalibrated())
    warnOfTokenizer(basis.checkpoint);
  std::deque<FolderConversion> conversions;
  uint64_t bytes = 0;
  for (const ConversionTarget &target : targets)
    bytes += conversions.emplace_back(basis, target).bytesNeeded();
  requireSpace(bytes);
  Json results = Json::array();
  for (size_t i = 0; i < targets.size(); ++i)
    results.push_back(convert(conversions[i], targets[i]));
  tell([&] {
    if (arguments.json)
      printResults(results);
    finishStdout();
  });
  requireTold();
}

void Convert::printResults(const Json &results) const {
  if (!areSeveral())
    return printJson(results.front());
  Json json = resultObject("convert");
  json.update({{"source", arguments.source.string()},
               {"conversions", results},
               {"seconds", watch.seconds()},
               {"peak_bytes", memoryStatus().peakResident}});
  printJson(json);
}

} // namespace

void stem::convertModel(const ConvertArguments &arguments) {
  Convert(arguments).run();
}
