//===- OptimizerTest.cpp - AdamW in compiled code -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// stem.sum_squares, stem.gradient_scale and stem.adamw, compiled for the host,
// have the bits of the runtime's AdamW and norms.
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Module.h"
#include "stem/Runtime/Tensor.h"
#include "stem/Target/HostCompiler.h"
#include "stem/Training/AdamW.h"
#include "stem/Training/GradientNorm.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <random>

using namespace stem;

namespace {

// Several blocks of sums and of updates, and a rest that fills no vector.
constexpr int64_t kRows = 67, kColumns = 1001, kElements = kRows * kColumns;
constexpr int64_t kWidth = 5; ///< of the rows of a table's gradient
constexpr AdamWOptions kOptions = {.epsilon = 1e-6};

std::string moduleText(bool decays) {
  return fmt::format(R"(
stem.param @w = "w" : tensor<{0}x{1}xf32>
func.func @update(%g: tensor<{0}x{1}xf32> {{stem.name = "gradient"}}, %r: tensor<?x{2}xf32> {{stem.name = "rows", stem.rows = "outputs"}}, %s: tensor<3xf32> {{stem.name = "step"}}, %w: tensor<{0}x{1}xf32> {{stem.name = "w", stem.output, stem.state_of = @w}}, %m: tensor<{0}x{1}xf32> {{stem.name = "m", stem.output, stem.state_of = @w}}, %v: tensor<{0}x{1}xf32> {{stem.name = "v", stem.output, stem.state_of = @w}}, %n: tensor<2xf32> {{stem.name = "norms", stem.output}}, %c: tensor<1xf32> {{stem.name = "scale", stem.output}}) -> (tensor<{0}x{1}xf32>, tensor<{0}x{1}xf32>, tensor<{0}x{1}xf32>, tensor<2xf32>, tensor<1xf32>) attributes {{stem.entry, stem.tile = 64 : i64}} {{
  %zeros = arith.constant dense<0.0> : tensor<2xf64>
  %0 = stem.sum_squares %r into %zeros[1] : tensor<?x{2}xf32>, tensor<2xf64>
  %sums = stem.sum_squares %g into %0[0] : tensor<{0}x{1}xf32>, tensor<2xf64>
  %scale = stem.gradient_scale %sums : tensor<2xf64>
  %1:3 = stem.adamw %g into %w, %m, %v step %s scale %scale {{beta1 = {3:.17e} : f64, beta2 = {4:.17e} : f64, epsilon = {5:.17e} : f64{6}}} : tensor<{0}x{1}xf32>
  %2 = math.sqrt %sums : tensor<2xf64>
  %norms = arith.truncf %2 : tensor<2xf64> to tensor<2xf32>
  return %1#0, %1#1, %1#2, %norms, %scale : tensor<{0}x{1}xf32>, tensor<{0}x{1}xf32>, tensor<{0}x{1}xf32>, tensor<2xf32>, tensor<1xf32>
}}
)",
                     kRows, kColumns, kWidth, kOptions.beta1, kOptions.beta2,
                     kOptions.epsilon, decays ? ", decays" : "");
}

/// Of every magnitude down to those that f32 has not as normal numbers, and
/// zeros.
std::vector<float> someFloats(int64_t count, uint32_t seed, double largest) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-46, 0), sign(-1, 1);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const double size =
        i % 3 ? largest : largest * std::pow(10, exponent(random));
    values.push_back(i % 11 ? static_cast<float>(sign(random) * size) : 0.0f);
  }
  return values;
}

std::span<const std::byte> bytesOf(std::span<const float> values) {
  return std::as_bytes(values);
}

bool haveSameBits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(bytesOf(a), bytesOf(b));
}

/// A parameter that compiled code updates.
struct CompiledUpdate {
  CompiledUpdate(bool decays, int threads) : context(createContext(threads)) {
    mlir::DialectRegistry registry;
    registerHostCompiler(registry);
    registry.insert<mlir::math::MathDialect>();
    mlir::MLIRContext mlirContext(registry);
    auto ir = mlir::parseSourceString<mlir::ModuleOp>(moduleText(decays),
                                                      &mlirContext);
    HostCompileOptions options;
    options.target = hostTarget(stem_context_isa(context.get()));
    options.useCache = false;
    compiled = compileForHost(*ir, options);
    module = std::make_unique<Module>(compiled.path.string(), context.get());
  }

  void run(std::vector<float> gradient, std::vector<float> rows,
           const AdamWScalars &scalars) {
    const stem_entry *entry = module->find("update");
    std::vector<float> step = {scalars.rate, scalars.root, scalars.decay};
    const int64_t count = static_cast<int64_t>(rows.size()) / kWidth;
    std::vector<stem_tensor> arguments;
    for (int64_t i = 0; i < entry->argument_count; ++i) {
      const stem_argument &argument = entry->arguments[i];
      const std::string name = entry->texts + argument.name;
      const bool isState = name == "w" || name == "m" || name == "v";
      EXPECT_EQ(argument.kind == STEM_ARG_STATE, isState) << name;
      EXPECT_EQ(entry->texts + argument.key, std::string(isState ? "w" : ""));
      std::vector<float> &values = name == "gradient" ? gradient
                                   : name == "rows"   ? rows
                                   : name == "step"   ? step
                                   : name == "w"      ? w
                                   : name == "m"      ? m
                                   : name == "v"      ? v
                                   : name == "norms"  ? norms
                                                      : scale;
      const int64_t sizes[] = {
          argument.sizes[0] < 0 ? count : argument.sizes[0], argument.sizes[1]};
      arguments.push_back(
          denseTensor(values.data(), STEM_F32, sizes, argument.rank));
    }
    Arena arena(
        arenaBytes(*entry, 0, count, stem_context_threads(context.get())),
        "the arena");
    throwIfFailed(context.get(),
                  entry->function(context.get(), arguments.data(),
                                  static_cast<int64_t>(arguments.size()),
                                  arena.data(), arena.size()));
  }

  ContextPtr context;
  HostCompileResult compiled;
  std::unique_ptr<Module> module;
  std::vector<float> w = someFloats(kElements, 1, 0.1);
  std::vector<float> m = std::vector<float>(kElements);
  std::vector<float> v = std::vector<float>(kElements);
  std::vector<float> norms = std::vector<float>(2), scale = {0};
};

/// Three rows, and more than one block of sums.
constexpr int64_t kRowCounts[] = {3, 14000};

void compareSteps(bool decays, int threads) {
  CompiledUpdate seen(decays, threads);
  AdamWOptions options = kOptions;
  options.decay = decays ? options.decay : 0;
  std::vector<float> weights = seen.w;
  AdamW wanted(seen.context.get(), "w", weights, options);
  for (int step = 1; step <= 6; ++step) {
    const auto gradient = someFloats(kElements, 10 + step, step < 4 ? 1 : 1e-4);
    const auto rows =
        someFloats(kWidth * kRowCounts[step % 2], 20 + step, 1e-3);
    const double rate = 1e-2 / step;
    seen.run(gradient, rows, wanted.nextStep(rate));
    const NamedGradient both[] = {{"g", gradient, {}}, {"r", rows, {}}};
    wanted.update(gradient, rate);
    EXPECT_EQ(seen.scale[0], 1) << step;
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(seen.norms[i],
                float(globalNorm(seen.context.get(), {&both[i], 1}).norm));
    ASSERT_TRUE(haveSameBits(seen.w, weights)) << step;
    ASSERT_TRUE(haveSameBits(seen.m, {wanted.firstMoments(), kElements}));
    ASSERT_TRUE(haveSameBits(seen.v, {wanted.secondMoments(), kElements}));
  }
}

TEST(CompiledAdamW, HasTheBitsOfTheRuntime) { compareSteps(true, 1); }

TEST(CompiledAdamW, HasThemOnTwoThreads) { compareSteps(true, 2); }

TEST(CompiledAdamW, HasThemWithoutDecay) { compareSteps(false, 2); }

TEST(CompiledAdamW, ChangesNothingWhereAGradientIsNotFinite) {
  CompiledUpdate update(true, 2);
  const auto gradient = someFloats(kElements, 10, 1);
  const auto rows = someFloats(kWidth * 3, 20, 1);
  const AdamWScalars scalars = {1e-2f, 4, 1e-3f};
  update.run(gradient, rows, scalars);
  const auto w = update.w, m = update.m, v = update.v;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    auto badGradient = gradient;
    badGradient[kElements - 1] = bad;
    update.run(badGradient, rows, scalars);
    EXPECT_FALSE(std::isfinite(update.norms[0]));
    EXPECT_TRUE(std::isfinite(update.norms[1]));
    EXPECT_TRUE(std::isnan(update.scale[0]));
    auto badRows = rows;
    badRows[7] = bad;
    update.run(gradient, badRows, scalars);
    EXPECT_FALSE(std::isfinite(update.norms[1]));
    EXPECT_TRUE(haveSameBits(update.w, w));
    EXPECT_TRUE(haveSameBits(update.m, m));
    EXPECT_TRUE(haveSameBits(update.v, v));
  }
}

} // namespace
