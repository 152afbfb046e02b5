//===- stem-opt.cpp - Every pass and pipeline, on IR ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Guard.h"
#include "Registration.h"

#include "stem/Support/Process.h"
#include "stem/Transforms/Pipelines.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/ToolOutputFile.h"

#include <csignal>

using namespace mlir;
using namespace stem;

static constexpr llvm::StringLiteral kOverview =
    R"(Runs passes of Stem and MLIR on IR.

A model goes through six phases: import, graph, schedule, structured, buffers,
target. Each is a pipeline (--stem-import-pipeline, ..., --stem-buffer-pipeline,
...); --stem-host-pipeline is all of them. Ops that do not belong into a phase are
reported where it ends, all at once.

  stem-opt model.mlir --stem-compile-to=schedule        what a phase makes of it
  stem-opt model.mlir --stem-raise-ffn --stem-fuse-ffn  single passes
  stem-opt model.mlir --stem-interpret                  run it in double precision
  stem-opt model.mlir --stem-print-cost                 FLOPs and bytes of each op
  stem-opt model.mlir --stem-differential='stem-pipeline=stem-fuse-ffn,cse'
                             which pass, if any, changes numbers

When a pass fails, the module and the passes are written to a file in the
temporary directory, and the command that runs them again is printed.
)";

static llvm::cl::opt<std::string> compileTo(
    "stem-compile-to",
    llvm::cl::desc("After the other passes, run the host pipeline to the end "
                   "of this phase: import, graph, schedule, structured, "
                   "buffers or target"),
    llvm::cl::value_desc("phase"));

static LogicalResult addPhases(PassManager &manager) {
  if (compileTo.getNumOccurrences() == 0)
    return success();
  std::optional<Phase> last = parsePhase(compileTo);
  if (!last) {
    llvm::errs() << "stem-opt: --stem-compile-to='" << compileTo
                 << "' is not a phase; phases are import, graph, schedule, "
                    "structured, buffers and target\n";
    return failure();
  }
  buildHostPipeline(manager, HostPipelineOptions(), *last);
  return success();
}

namespace {

/// A file of its own in the temporary directory for each failure. Its first
/// line is the command line; the passes and the module follow.
class FailureFile : public ReproducerStream {
public:
  FailureFile(int descriptor, StringRef path, StringRef commandLine)
      : path(path), file(descriptor, /*shouldClose=*/true) {
    file << "// " << commandLine << "\n";
  }
  ~FailureFile() override {
    llvm::errs() << "stem-opt: to repeat this failure: stem-opt "
                    "--run-reproducer "
                 << path << "\n";
  }
  StringRef description() override { return path; }
  raw_ostream &os() override { return file; }

private:
  std::string path;
  llvm::raw_fd_ostream file;
};

} // namespace

static std::string commandLineOf(int argc, char **argv) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleave(
      ArrayRef(argv, argc), os,
      [&](StringRef argument) {
        llvm::sys::printArg(os, argument, /*Quote=*/false);
      },
      " ");
  // A line break in an argument would end the comment.
  llvm::replace(text, '\n', ' ');
  return text;
}

static ReproducerStreamFactory failureFiles(std::string commandLine) {
  return [=](std::string &error) -> std::unique_ptr<ReproducerStream> {
    int descriptor;
    SmallString<128> path;
    if (std::error_code code = llvm::sys::fs::createTemporaryFile(
            "stem-opt", "mlir", descriptor, path)) {
      error =
          "cannot create a file in the temporary directory: " + code.message();
      return nullptr;
    }
    return std::make_unique<FailureFile>(descriptor, path, commandLine);
  };
}

/// Whether the person asked for a file of their own.
static bool namesReproducer() {
  auto &options = llvm::cl::getRegisteredOptions();
  auto it = options.find("mlir-pass-pipeline-crash-reproducer");
  return it != options.end() && it->second->getNumOccurrences() != 0;
}

static LogicalResult run(int argc, char **argv, StringRef inputFile,
                         StringRef outputFile, DialectRegistry &registry) {
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  // Diagnostics that a test expects are not failures to keep.
  bool keepFailures = !config.shouldVerifyDiagnostics() &&
                      !config.shouldRunReproducer() && !namesReproducer();
  MlirOptMainConfig passesOfCommandLine = config;
  config.setPassPipelineSetupFn([&](PassManager &manager) -> LogicalResult {
    if (failed(passesOfCommandLine.setupPassPipeline(manager)) ||
        failed(addPhases(manager)))
      return failure();
    if (keepFailures)
      manager.enableCrashReproducerGeneration(
          failureFiles(commandLineOf(argc, argv)));
    return success();
  });

  std::unique_ptr<llvm::MemoryBuffer> input = readInput(inputFile);
  if (!input)
    return failure();
  std::string error;
  std::unique_ptr<llvm::ToolOutputFile> output =
      openOutputFile(outputFile, &error);
  if (!output) {
    llvm::errs() << "stem-opt: " << error << "\n";
    return failure();
  }
  if (failed(MlirOptMain(output->os(), std::move(input), registry, config)))
    return failure();
  output->keep();
  return success();
}

int main(int argc, char **argv) {
  guardAgainstCrashes("stem-opt");
  openStandardDescriptors();
  llvm::InitLLVM init(argc, argv);
  // After LLVM's own handlers, which know the output file.
  cleanUpOnSignals([](int signal) {
    llvm::sys::RunInterruptHandlers();
    if (signal == SIGBUS)
      endWithCrashMessage();
  });
  stem::registerPasses();
  DialectRegistry registry;
  stem::registerDialects(registry);
  // --help shows the header as it is, so it can teach.
  auto [inputFile, outputFile] =
      registerAndParseCLIOptions(argc, argv, kOverview, registry);
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  // These need no input.
  if (config.shouldShowDialects() || config.shouldListPasses())
    return asMainReturnCode(
        MlirOptMain(argc, argv, inputFile, outputFile, registry));
  return asMainReturnCode(run(argc, argv, inputFile, outputFile, registry));
}
