//===- HostCompilerTest.cpp - What fails outside the passes ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The linker, the cache's folder and the passes' words: what a caller of the
// compiler is told of them.
//
//===----------------------------------------------------------------------===//

#include "stem/Target/HostCompiler.h"
#include "../Support/TestFiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/Program.h"

#include <cstdlib>
#include <fmt/format.h>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

/// A dialect that has the canonicalizer warn of every constant.
class WarningDialect : public mlir::Dialect {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(WarningDialect)

  explicit WarningDialect(mlir::MLIRContext *context)
      : Dialect(getDialectNamespace(), context,
                mlir::TypeID::get<WarningDialect>()) {}
  static constexpr llvm::StringLiteral getDialectNamespace() {
    return "stem_test_warning";
  }

  void getCanonicalizationPatterns(
      mlir::RewritePatternSet &patterns) const override {
    struct Warn : mlir::OpRewritePattern<mlir::arith::ConstantOp> {
      using OpRewritePattern::OpRewritePattern;
      mlir::LogicalResult
      matchAndRewrite(mlir::arith::ConstantOp op,
                      mlir::PatternRewriter &rewriter) const override {
        op.emitWarning("an odd constant");
        return rewriter.notifyMatchFailure(op, "it stays");
      }
    };
    patterns.add<Warn>(getContext());
  }
};

constexpr const char *kDouble = R"(
func.func @double(%x: tensor<?x8xf32> {stem.name = "x", stem.rows = "tokens"}, %y: tensor<?x8xf32> {stem.name = "y", stem.rows = "tokens", stem.output}) -> tensor<?x8xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %0 = arith.addf %x, %x : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
})";

constexpr const char *kProduct = R"(
func.func @product(%x: tensor<8x8xf32>) -> tensor<8x8xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %c = arith.constant dense<1.0> : tensor<8x8xf32>
  %0 = linalg.matmul ins(%x, %c : tensor<8x8xf32>, tensor<8x8xf32>) outs(%x : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
})";

/// The result of a call is kept for the backward pass.
constexpr const char *kLoss = R"(
stem.param @embed = "embed" : tensor<96x32xf32>
stem.param @w = "w" : tensor<32x32xf32>
func.func private @inner(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %0 = stem.silu %x : tensor<?x32xf32> -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
func.func private @layer(%x: tensor<?x32xf32>, %w: tensor<32x32xf32>) -> tensor<?x32xf32> {
  %l = stem.linear %x, %w : tensor<?x32xf32>, tensor<32x32xf32> -> tensor<?x32xf32>
  %i = call @inner(%l) : (tensor<?x32xf32>) -> tensor<?x32xf32>
  %y = arith.mulf %i, %x : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
func.func @loss(%ids: tensor<?xi32> {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 96 : i64, stem.role = "ids"}, %labels: tensor<?xi32> {stem.name = "labels", stem.rows = "tokens", stem.label_bound = 96 : i64}, %out: tensor<?xf32> {stem.name = "nll", stem.output, stem.rows = "tokens"}) -> tensor<?xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %e = stem.param_load @embed : tensor<96x32xf32>
  %w = stem.param_load @w : tensor<32x32xf32>
  %x = stem.embedding %ids, %e : tensor<?xi32>, tensor<96x32xf32> -> tensor<?x32xf32>
  %y = call @layer(%x, %w) : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %n = stem.cross_entropy %y, %e, %labels : tensor<?x32xf32>, tensor<96x32xf32>, tensor<?xi32> -> tensor<?xf32>
  return %n : tensor<?xf32>
}
)";

/// A variable of the environment, for as long as this lives.
class Variable {
public:
  Variable(const char *name, const std::string &value) : name(name) {
    if (const char *now = std::getenv(name))
      old = now;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old)
      ::setenv(name, old->c_str(), 1);
    else
      ::unsetenv(name);
  }

private:
  const char *name;
  std::optional<std::string> old;
};

class HostCompilerTest : public testing::Test {
protected:
  HostCompilerTest() {
    mlir::DialectRegistry registry;
    registerHostCompiler(registry);
    context.appendDialectRegistry(registry);
    options.target = hostTarget(STEM_ISA_AVX2);
    options.cacheDirectory = folder / "cache";
  }

  HostCompileResult compile(const char *text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      throw std::runtime_error("the test's module does not parse");
    return compileForHost(*module, options);
  }

  /// The only linker on PATH, a shell script. It counts its calls, and knows
  /// the linker that was there before as REAL.
  void makeLinker(const std::string &script) {
    auto real = llvm::sys::findProgramByName("ld.lld-22");
    if (!real)
      real = llvm::sys::findProgramByName("ld.lld");
    if (!real)
      real = llvm::sys::findProgramByName("ld");
    ASSERT_TRUE(static_cast<bool>(real));
    const fs::path programs = folder / "programs";
    fs::create_directories(programs);
    const fs::path linker = programs / "ld.lld-22";
    std::ofstream(linker) << fmt::format(
        "#!/bin/sh\necho call >> {}\nREAL={}\n{}\n",
        (folder / "calls").string(), *real, script);
    fs::permissions(linker, fs::perms::owner_all);
    path.emplace("PATH", programs.string());
  }

  size_t linkerCalls() {
    std::ifstream calls(folder / "calls");
    size_t count = 0;
    for (std::string line; std::getline(calls, line);)
      ++count;
    return count;
  }

  TemporaryFolder folder;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  HostCompileOptions options;
  std::optional<Variable> path;
};

TEST_F(HostCompilerTest, KeepsWhatItCompiles) {
  EXPECT_FALSE(compile(kDouble).cacheHit);
  HostCompileResult again = compile(kDouble);
  EXPECT_TRUE(again.cacheHit);
  EXPECT_TRUE(again.warnings.empty());
}

TEST_F(HostCompilerTest, KeepsAModuleForEachDistance) {
  const fs::path atOnce = compile(kDouble).path;
  options.prefetchDistance = 0;
  const HostCompileResult none = compile(kDouble);
  EXPECT_FALSE(none.cacheHit);
  EXPECT_NE(none.path, atOnce);
  options.prefetchDistance = 1;
  EXPECT_FALSE(compile(kDouble).cacheHit);
  options.prefetchDistance = 0;
  EXPECT_TRUE(compile(kDouble).cacheHit);
}

TEST_F(HostCompilerTest, CacheThatIsAFile) {
  std::ofstream(options.cacheDirectory) << "text";
  HostCompileResult result = compile(kDouble);
  EXPECT_TRUE(fs::exists(result.path));
  ASSERT_EQ(result.warnings.size(), 1u);
  EXPECT_TRUE(hasAll(result.warnings[0],
                     {options.cacheDirectory.string(), "is not kept"}));
}

TEST_F(HostCompilerTest, NoPlaceForACache) {
  Variable own("STEM_CACHE_DIR", ""), cache("XDG_CACHE_HOME", ""),
      home("HOME", "");
  options.cacheDirectory.clear();
  HostCompileResult result = compile(kDouble);
  ASSERT_EQ(result.warnings.size(), 1u);
  EXPECT_TRUE(hasAll(result.warnings[0], {"set STEM_CACHE_DIR"}));
}

TEST_F(HostCompilerTest, WarningsOfPasses) {
  context.getOrLoadDialect<WarningDialect>();
  for (int run = 0; run < 2; ++run) { // the second warns as well
    HostCompileResult result = compile(kDouble);
    EXPECT_FALSE(result.cacheHit);
    ASSERT_FALSE(result.warnings.empty());
    EXPECT_EQ(result.warnings[0], "an odd constant");
  }
}

/// The caller gets the bytes. Only a call within a layer is not computed again;
/// later phases refuse it.
TEST_F(HostCompilerTest, BudgetThatIsNotMet) {
  int64_t kept = 0;
  options.trained = TrainedFunction{"loss", {}, 1, 64, [&](int64_t bytes) {
                                      kept = bytes;
                                      return std::string("over the budget");
                                    }};
  EXPECT_ERROR(compile(kLoss), "failed in the schedule phase");
  EXPECT_EQ(kept, 8192);
}

TEST_F(HostCompilerTest, NoLinker) {
  path.emplace("PATH", folder.path().string());
  EXPECT_ERROR(compile(kDouble), "no linker found", "ld.lld-22",
               "scripts/install-packages.sh");
}

TEST_F(HostCompilerTest, LinkerThatFails) {
  makeLinker("echo not my format\nexit 7");
  EXPECT_ERROR(compile(kDouble), "linking failed (exit code 7)",
               "not my format", "the command was: ", "ld.lld-22 -shared -o ");
  // Another place would not help.
  EXPECT_EQ(linkerCalls(), 1u);
  EXPECT_EQ(namesIn(options.cacheDirectory).size(), 0u);
}

TEST_F(HostCompilerTest, LinkerThatCannotWriteIntoTheCache) {
  makeLinker(
      fmt::format("case \"$3\" in {}*) echo \"$3: No space left\"; exit 1;; "
                  "esac\nexec $REAL \"$@\"",
                  options.cacheDirectory.string()));
  HostCompileResult result = compile(kDouble);
  EXPECT_TRUE(fs::exists(result.path));
  EXPECT_EQ(linkerCalls(), 2u);
  ASSERT_EQ(result.warnings.size(), 1u);
  EXPECT_TRUE(hasAll(result.warnings[0], {"No space left", "is not kept"}));
}

TEST_F(HostCompilerTest, FailedPhase) {
  Variable temporary("TMPDIR", folder.path().string());
  EXPECT_ERROR(compile(kProduct), "compilation failed in the graph phase: ",
               "'linalg.matmul' op does not belong", "graph.mlir",
               "`stem-opt --run-reproducer` repeats it");
}

TEST_F(HostCompilerTest, FailedPhaseWithoutAReproducer) {
  Variable temporary("TMPDIR", (folder / "missing").string());
  const std::string message = errorOf([&] { compile(kProduct); });
  EXPECT_TRUE(hasAll(message, {"compilation failed in the graph phase: ",
                               "'linalg.matmul' op does not belong"}));
  EXPECT_EQ(message.find("--run-reproducer"), std::string::npos);
}

/// The pass refuses its options before anything runs, so that there is nothing
/// to repeat.
TEST_F(HostCompilerTest, OptionsThatAPassRefuses) {
  Variable temporary("TMPDIR", folder.path().string());
  options.trained = TrainedFunction{.name = "double",
                                    .optimizer = StepOptimizer{.epsilon = 0}};
  const std::string message = errorOf([&] { compile(kDouble); });
  EXPECT_TRUE(hasAll(message, {"compilation failed in the graph phase: ",
                               "stem-epsilon is 0.0", "wanted 1e-12 to 1"}));
  EXPECT_EQ(message.find("--run-reproducer"), std::string::npos);
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST_F(HostCompilerTest, ModuleThatLLVMDoesNotTake) {
  module = mlir::parseSourceString<mlir::ModuleOp>(kProduct, &context);
  EXPECT_ERROR(emitSharedObject(*module, options.target, folder / "module.so"),
               "translation to LLVM IR failed: ", "func.func", "--dump-ir=DIR");
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST_F(HostCompilerTest, FolderThatIsMissing) {
  compile(kDouble); // which leaves the module in LLVM's dialect
  EXPECT_THROW(emitSharedObject(*module, options.target,
                                folder / "missing" / "module.so"),
               OutputError);
}

} // namespace
