//===- HostTarget.cpp - Machine code for this kind of machine -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Target/HostTarget.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"

#include <mutex>
#include <unistd.h>

using namespace mlir;
using namespace stem;

HostTarget stem::hostTarget(stem_isa isa) {
  switch (isa) {
  case STEM_ISA_AVX2:
    return {isa, "x86-64-v3", ""};
  case STEM_ISA_AVX512:
    return {isa, "x86-64-v4", "-prefer-256-bit"};
  case STEM_ISA_AVX512_BF16:
  case STEM_ISA_AMX: // Tiles are in the runtime's kernels alone.
    return {isa, "x86-64-v4", "+avx512bf16,-prefer-256-bit"};
  case STEM_ISA_NATIVE:
    break;
  }
  fail("code generation needs a known instruction set, got {}",
       static_cast<int>(isa));
}

namespace {

template <typename... Args>
[[noreturn]] void failOutput(fmt::format_string<Args...> format,
                             Args &&...args) {
  throw OutputError(fmt::format(format, std::forward<Args>(args)...));
}

/// Removes a file unless it was kept.
class TemporaryFile {
public:
  TemporaryFile(const std::filesystem::path &near, llvm::StringRef suffix) {
    llvm::SmallString<128> result;
    std::string model = near.string() + ".%%%%%%%%" + suffix.str();
    int descriptor = -1;
    if (std::error_code error =
            llvm::sys::fs::createUniqueFile(model, descriptor, result))
      failOutput("cannot create a file beside {}: {}", near.string(),
                 error.message());
    ::close(descriptor);
    path = result.str().str();
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  std::string path;
};

std::unique_ptr<llvm::TargetMachine> createMachine(const HostTarget &target) {
  static std::once_flag initialised;
  std::call_once(initialised, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  std::string message;
  llvm::Triple triple(llvm::sys::getProcessTriple());
  const llvm::Target *found =
      llvm::TargetRegistry::lookupTarget(triple, message);
  if (!found)
    fail("LLVM has no code generator for {}: {}", triple.str(), message);
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

std::unique_ptr<llvm::Module> translate(ModuleOp module,
                                        llvm::LLVMContext &context,
                                        llvm::TargetMachine &machine) {
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  std::string errors;
  ScopedDiagnosticHandler handler(
      module.getContext(), [&](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
          return failure();
        errors += diagnostic.str() + "\n";
        return success();
      });
  std::unique_ptr<llvm::Module> result =
      translateModuleToLLVMIR(module, context, "stem");
  if (!result)
    fail("translation to LLVM IR failed: {}the target phase left what LLVM "
         "does not take, a fault of the compiler: report it with the module, "
         "which stem-run --dump-ir=DIR writes",
         errors);
  result->setTargetTriple(machine.getTargetTriple());
  result->setDataLayout(machine.createDataLayout());
  for (llvm::Function &function : *result) {
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.addFnAttr("prefer-vector-width", "512");
  }
  return result;
}

/// -O3 without the vectorizer of straight-line code: the loops are vectors
/// already, and it takes most of a compilation to find nothing in the checks of
/// a model's weights.
void optimise(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PipelineTuningOptions tuning;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager calls;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(calls);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, calls, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3)
      .run(module, modules);
}

void writeObject(llvm::Module &module, llvm::TargetMachine &machine,
                 const std::string &path) {
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (error)
    failOutput("cannot write {}: {}", path, error.message());
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr,
                                  llvm::CodeGenFileType::ObjectFile))
    fail("LLVM cannot emit an object file for {}",
         machine.getTargetTriple().str());
  passes.run(module);
  stream.close();
  if (stream.has_error()) {
    error = stream.error();
    stream.clear_error(); // else the stream ends the program
    failOutput("cannot write {}: {}", path, error.message());
  }
}

std::string findLinker() {
  for (const char *name : {"ld.lld-22", "ld.lld", "ld"})
    if (auto path = llvm::sys::findProgramByName(name))
      return *path;
  fail("no linker found: looked for ld.lld-22, ld.lld and ld on PATH; install "
       "lld-22 (scripts/install-packages.sh does)");
}

/// Whether there is less room for `output` than `object` takes: a full disk
/// may have left the linker's log empty.
bool lacksRoom(const std::string &object, const std::string &output) {
  std::error_code noSize, noSpace;
  const uint64_t size = std::filesystem::file_size(object, noSize);
  const std::filesystem::space_info space = std::filesystem::space(
      std::filesystem::path(output).parent_path(), noSpace);
  return !noSize && !noSpace && space.available < size;
}

void link(const std::string &object, const std::string &output) {
  std::string linker = findLinker();
  TemporaryFile log(output, ".log");
  llvm::SmallVector<llvm::StringRef> arguments = {
      linker, "-shared", "-o", output, object, "--build-id=none", "-z", "now"};
  std::optional<llvm::StringRef> redirects[] = {
      std::nullopt, llvm::StringRef(log.path), llvm::StringRef(log.path)};
  std::string message;
  int code = llvm::sys::ExecuteAndWait(linker, arguments, std::nullopt,
                                       redirects, 0, 0, &message);
  if (code == 0)
    return;
  auto buffer = llvm::MemoryBuffer::getFile(log.path);
  const std::string text = buffer ? (*buffer)->getBuffer().str() : "";
  const std::string report =
      fmt::format("linking failed (exit code {}): {} {}\nthe command was: {}",
                  code, message, text, llvm::join(arguments, " "));
  if (text.find(output) != std::string::npos || lacksRoom(object, output))
    throw OutputError(report);
  throw Error(report);
}

} // namespace

void stem::emitSharedObject(ModuleOp module, const HostTarget &target,
                            const std::filesystem::path &path) {
  std::unique_ptr<llvm::TargetMachine> machine = createMachine(target);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translate(module, context, *machine);
  optimise(*code, *machine);
  TemporaryFile object(path, ".o");
  writeObject(*code, *machine, object.path);
  TemporaryFile shared(path, ".so");
  link(object.path, shared.path);
  std::error_code error;
  std::filesystem::rename(shared.path, path, error);
  if (error)
    failOutput("cannot rename {} to {}: {}", shared.path, path.string(),
               error.message());
}
