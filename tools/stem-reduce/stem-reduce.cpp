//===- stem-reduce.cpp - Make a failing module small ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Guard.h"
#include "Registration.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Reducer/Passes.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;

static constexpr llvm::StringLiteral kOverview =
    R"(Drops from a module what a failure does not need.

  stem-reduce model.mlir -reduction-tree='traversal-mode=0 test=fails.sh'

The test is a program that gets the path of a smaller module: it exits with 1
where the failure is still there, and with 0 where it is gone.
)";

static llvm::cl::opt<std::string> inputFile(llvm::cl::Positional,
                                            llvm::cl::desc("<input file>"),
                                            llvm::cl::init("-"));
static llvm::cl::opt<std::string>
    outputFile("o", llvm::cl::desc("The file of the smaller module"),
               llvm::cl::value_desc("path"), llvm::cl::init("-"));

static OwningOpRef<ModuleOp> parseInput(MLIRContext &context) {
  std::unique_ptr<llvm::MemoryBuffer> input = stem::readInput(inputFile);
  if (!input)
    return nullptr;
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(input), llvm::SMLoc());
  SourceMgrDiagnosticHandler diagnostics(sources, &context);
  return parseSourceFile<ModuleOp>(sources, &context);
}

static LogicalResult reduce(ModuleOp module, const PassPipelineCLParser &passes,
                            MLIRContext &context) {
  PassManager manager(&context);
  auto report = [](const Twine &message) {
    llvm::errs() << "stem-reduce: " << message << "\n";
    return failure();
  };
  if (failed(passes.addToPipeline(manager, report)))
    return failure();
  if (manager.empty())
    return report("wants -reduction-tree='traversal-mode=0 test=PROGRAM'");
  // Smaller modules that do not verify are part of the search.
  ScopedDiagnosticHandler quiet(&context,
                                [](Diagnostic &) { return success(); });
  if (failed(manager.run(module)))
    return report("nothing was reduced: the test must exit with 1 for the "
                  "module as it is");
  return success();
}

int main(int argc, char **argv) {
  stem::guardAgainstCrashes("stem-reduce");
  llvm::InitLLVM init(argc, argv);
  stem::registerPasses();
  registerReducerPasses();
  DialectRegistry registry;
  stem::registerDialects(registry);
  PassPipelineCLParser passes("", "Passes to run");
  llvm::cl::ParseCommandLineOptions(argc, argv, kOverview);

  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = parseInput(context);
  if (!module)
    return EXIT_FAILURE;
  std::string error;
  auto output = openOutputFile(outputFile, &error);
  if (!output) {
    llvm::errs() << "stem-reduce: " << error << "\n";
    return EXIT_FAILURE;
  }
  if (failed(reduce(*module, passes, context)))
    return EXIT_FAILURE;
  module->print(output->os());
  output->keep();
  return EXIT_SUCCESS;
}
