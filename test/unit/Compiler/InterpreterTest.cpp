//===- InterpreterTest.cpp - Numbers of the reference interpreter ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Reference/Interpreter.h"

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;
using namespace stem;

namespace {

using Shape = SmallVector<int64_t>;

ReferenceTensor makeTensor(Shape shape, std::vector<double> values) {
  return {shape, std::move(values)};
}

/// Values in [-1, 1) that differ from call to call of `name`.
ReferenceTensor seeded(Shape shape, StringRef name) {
  ReferenceTensor result{shape, {}};
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  SeededStream stream(1, name);
  for (int64_t i = 0; i < count; ++i)
    result.values.push_back(stream.real(i));
  return result;
}

class InterpreterTest : public ::testing::Test {
protected:
  InterpreterTest() {
    context.loadDialect<StemDialect, func::FuncDialect, arith::ArithDialect,
                        tensor::TensorDialect, scf::SCFDialect,
                        linalg::LinalgDialect>();
  }

  /// Parses `body` and makes it ready to run.
  void load(const std::string &text) {
    module = parseSourceString<ModuleOp>(text, &context);
    ASSERT_TRUE(module);
    interpreter = std::make_unique<Interpreter>(*module);
  }

  /// Runs @f and gives its first result.
  std::vector<double> run(ArrayRef<ReferenceValue> arguments) {
    return runFunction("f", arguments);
  }

  std::vector<double> runFunction(StringRef name,
                                  ArrayRef<ReferenceValue> arguments) {
    auto results =
        interpreter->run(module->lookupSymbol<func::FuncOp>(name), arguments);
    if (failed(results) || results->empty())
      return {};
    const ReferenceValue &value = results->front();
    return value.tensor ? value.tensor->values
                        : std::vector<double>{value.number};
  }

  /// Runs @f, which must fail, and gives the first message.
  std::string runToError(ArrayRef<ReferenceValue> arguments) {
    std::string message;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diag) {
      if (message.empty())
        message = diag.str();
      return success();
    });
    EXPECT_TRUE(failed(
        interpreter->run(module->lookupSymbol<func::FuncOp>("f"), arguments)));
    return message;
  }

  void expectNear(const std::vector<double> &seen,
                  const std::vector<double> &wanted, double bound = 1e-12) {
    ASSERT_EQ(seen.size(), wanted.size());
    for (size_t i = 0; i < seen.size(); ++i)
      EXPECT_NEAR(seen[i], wanted[i], bound) << "at " << i;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::unique_ptr<Interpreter> interpreter;
};

TEST_F(InterpreterTest, RMSNormOfRowsAndOfHeads) {
  load(
      R"(func.func @f(%x: tensor<?x4xf32>, %w: tensor<2xf32>) -> tensor<?x4xf32> {
    %0 = stem.rms_norm %x, %w {eps = 0.5 : f64} : tensor<?x4xf32>, tensor<2xf32> -> tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  })");
  // mean(3^2, 4^2) + 0.5 = 13; mean(1, 0) + 0.5 = 1.
  expectNear(run({makeTensor({1, 4}, {3, 4, 1, 0}), makeTensor({2}, {1, 2})}),
             {3 / std::sqrt(13.0), 8 / std::sqrt(13.0), 1, 0});
}

TEST_F(InterpreterTest, LinearReadsPackedAsTransposed) {
  load(
      R"(func.func @f(%x: tensor<?x2xf32>, %w: tensor<3x2xf32>, %b: tensor<3xf32>) -> tensor<?x3xf32> {
    %0 = stem.linear %x, %w bias %b : tensor<?x2xf32>, tensor<3x2xf32>, tensor<3xf32> -> tensor<?x3xf32>
    return %0 : tensor<?x3xf32>
  }
  func.func @packed(%x: tensor<?x2xf32>, %w: !stem.packed<2x3xf32>) -> tensor<?x3xf32> {
    %0 = stem.linear %x, %w : tensor<?x2xf32>, !stem.packed<2x3xf32> -> tensor<?x3xf32>
    return %0 : tensor<?x3xf32>
  })");
  ReferenceTensor x = makeTensor({2, 2}, {1, 2, 3, 4});
  ReferenceTensor w = makeTensor({3, 2}, {1, 0, 0, 1, 10, 100});
  expectNear(run({x, w, makeTensor({3}, {0.5, 0, 0})}),
             {1.5, 2, 210, 3.5, 4, 430});
  expectNear(runFunction("packed", {x, transposed(w)}), {1, 2, 210, 3, 4, 430});
}

TEST_F(InterpreterTest, RopeTurnsPairsOfHalves) {
  load(
      R"(func.func @f(%x: tensor<?x4xf32>, %p: tensor<?xi32>) -> tensor<?x4xf32> {
    %c, %s = stem.rotary_angles %p {inv_freq = array<f32: 0.5, 0.25>, scaling = 2.0 : f64} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
    %0 = stem.rope %x, %c, %s : tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  })");
  double a = 2 * std::cos(1.5), b = 2 * std::sin(1.5);
  double c = 2 * std::cos(0.75), d = 2 * std::sin(0.75);
  expectNear(run({makeTensor({1, 4}, {1, 2, 3, 4}), makeTensor({1}, {3})}),
             {a - 3 * b, 2 * c - 4 * d, 3 * a + b, 4 * c + 2 * d});
}

const char *const kAttention = R"(
func.func @f(%q: tensor<?x4xf32>, %k: tensor<?x2xf32>, %v: tensor<?x2xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> tensor<?x4xf32> {
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 2 : i64, scale = 0.5 : f64} : tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
func.func @window(%q: tensor<?x4xf32>, %k: tensor<?x2xf32>, %v: tensor<?x2xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> tensor<?x4xf32> {
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 2 : i64, scale = 0.5 : f64, window = 1 : i64} : tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
func.func @cache(%q: tensor<?x4xf32>, %k: tensor<?x2xf32>, %v: tensor<?x2xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x4xf32> {
  %0 = stem.attention %q, %k, %v at %p of %s cache %c[%l] {head_dim = 2 : i64, scale = 0.5 : f64} : tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
func.func @split(%q: tensor<?x4xf32>, %k: tensor<?x2xf32>, %v: tensor<?x2xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x4xf32> {
  stem.kv_append %k, %v at %p of %s in %c[%l] : tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 2 : i64, kv_heads = 1 : i64, scale = 0.5 : f64} : tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
})";

TEST_F(InterpreterTest, AttentionSharesKeysAmongQueryHeads) {
  load(kAttention);
  // Two query heads read one key head; the second token sees both keys.
  ReferenceTensor q = makeTensor({2, 4}, {1, 0, 0, 1, 2, 0, 0, 2});
  ReferenceTensor k = makeTensor({2, 2}, {1, 0, 0, 1});
  ReferenceTensor v = makeTensor({2, 2}, {1, 2, 3, 4});
  ReferenceTensor p = makeTensor({2}, {0, 1}), s = makeTensor({2}, {0, 0});
  // Scores of head 0: 1 and 0; of head 1: 0 and 1.
  double w = std::exp(1.0) / (std::exp(1.0) + 1.0);
  expectNear(run({q, k, v, p, s}),
             {1, 2, 1, 2, w + 3 * (1 - w), 2 * w + 4 * (1 - w), (1 - w) + 3 * w,
              2 * (1 - w) + 4 * w});
  // A window of one token: each sees itself.
  expectNear(runFunction("window", {q, k, v, p, s}), {1, 2, 1, 2, 3, 4, 3, 4});
  // Two sequences: neither sees the other.
  expectNear(run({q, k, v, makeTensor({2}, {0, 0}), makeTensor({2}, {0, 1})}),
             {1, 2, 1, 2, 3, 4, 3, 4});
  // Padding gives zero and is not seen.
  expectNear(run({q, k, v, p, makeTensor({2}, {-1, 0})}),
             {0, 0, 0, 0, 3, 4, 3, 4});
}

TEST_F(InterpreterTest, CacheGivesWhatOneCallGives) {
  load(kAttention);
  const int64_t tokens = 5;
  ReferenceTensor q = seeded({tokens, 4}, "q"), k = seeded({tokens, 2}, "k"),
                  v = seeded({tokens, 2}, "v");
  ReferenceTensor p = makeTensor({tokens}, {0, 1, 2, 3, 4});
  ReferenceTensor s = makeTensor({tokens}, {7, 7, 7, 7, 7});
  std::vector<double> whole = run({q, k, v, p, s});
  ASSERT_EQ(whole.size(), size_t(4 * tokens));
  for (StringRef name : {"cache", "split"}) {
    double layer = name == "cache" ? 2 : 3;
    std::vector<double> stepwise;
    for (int64_t t = 0; t < tokens; ++t) {
      auto row = [&](const ReferenceTensor &x, int64_t columns) {
        return makeTensor({1, columns}, {x.values.begin() + t * columns,
                                         x.values.begin() + (t + 1) * columns});
      };
      for (double value : runFunction(
               name, {row(q, 4), row(k, 2), row(v, 2),
                      makeTensor({1}, {double(t)}), makeTensor({1}, {7}),
                      ReferenceValue(0.0), ReferenceValue(layer)}))
        stepwise.push_back(value);
    }
    expectNear(stepwise, whole);
  }
}

TEST_F(InterpreterTest, PagesHoldWhatWasAppended) {
  load(
      R"(func.func @f(%k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache) -> tensor<1x2xf32> {
    %i0 = arith.constant 0 : index
    %i1 = arith.constant 1 : index
    %seq = arith.constant 5 : i32
    %zero = arith.constant dense<0.0> : tensor<1x2xf32>
    %a = arith.constant dense<1.0> : tensor<1x64xf32>
    stem.kv_append %k, %v at %p of %s in %c[%i0] : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32>
    %page = stem.kv_page values %c[%i0, %seq, %i1, %i1] : !stem.packed<64x2xf32>
    %sum = stem.packed_matmul %a, %page[%i0, %i0] into %zero : (tensor<1x64xf32>, !stem.packed<64x2xf32>, tensor<1x2xf32>, index, index) -> tensor<1x2xf32>
    return %sum : tensor<1x2xf32>
  })");
  // Positions 64 and 70 lie in page 1, position 3 does not; head 1 has the
  // last two columns.
  expectNear(run({makeTensor({3, 4}, std::vector<double>(12, 9.0)),
                  makeTensor({3, 4}, {0, 0, 1, 2, 0, 0, 4, 8, 0, 0, 16, 32}),
                  makeTensor({3}, {64, 3, 70}), makeTensor({3}, {5, 5, 5}),
                  ReferenceValue(0.0)}),
             {17, 34});
}

const char *const kFFN = R"(
func.func @f(%x: tensor<?x2xf32>, %g: tensor<3x2xf32>, %u: tensor<3x2xf32>, %d: tensor<2x3xf32>) -> tensor<?x2xf32> {
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<2x3xf32>) -> tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
}
func.func @gated(%x: tensor<?x2xf32>, %g: tensor<3x2xf32>, %rows: tensor<?x3xf32>, %i: tensor<?xi32>, %d: tensor<2x3xf32>) -> tensor<?x2xf32> {
  %up = stem.lookup %rows, %i : tensor<?x3xf32>, tensor<?xi32> -> tensor<?x3xf32>
  %0 = stem.gated_ffn %x gate %g rows %up down %d : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>) -> tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
}
func.func @fused(%x: tensor<?x2xf32>, %g: tensor<3x2xf32>, %rows: tensor<?x3xf32>, %i: tensor<?xi32>, %d: tensor<2x3xf32>) -> tensor<?x2xf32> {
  %0 = stem.fused_ffn %x gate %g rows %rows[%i] down %d : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<?xi32>, tensor<2x3xf32>) -> tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
})";

TEST_F(InterpreterTest, GatedFFNs) {
  load(kFFN);
  auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  ReferenceTensor x = makeTensor({1, 2}, {1, 2});
  ReferenceTensor gate = makeTensor({3, 2}, {1, 0, 0, 1, 1, 1});
  ReferenceTensor down = makeTensor({2, 3}, {1, 1, 0, 0, 0, 1});
  // Gate 1, 2, 3; up 2, -1, 3.
  std::vector<double> wanted{silu(1) * 2 - silu(2), silu(3) * 3};
  expectNear(run({x, gate, makeTensor({3, 2}, {0, 1, 1, -1, 1, 1}), down}),
             wanted);
  ReferenceTensor rows = makeTensor({2, 3}, {9, 9, 9, 2, -1, 3});
  ReferenceTensor index = makeTensor({1}, {1});
  expectNear(runFunction("gated", {x, gate, rows, index, down}), wanted);
  expectNear(runFunction("fused", {x, gate, rows, index, down}), wanted);
}

TEST_F(InterpreterTest, IdsMixAndSelect) {
  load(
      R"(func.func @f(%ids: tensor<?xi32>, %map: tensor<?xi32>) -> tensor<?xi32> {
    %0 = stem.map_ids %ids, %map {unknown = 6 : i32} : tensor<?xi32>, tensor<?xi32> -> tensor<?xi32>
    return %0 : tensor<?xi32>
  }
  func.func @mix(%up: tensor<?x2xf32>, %x: tensor<?x2xf32>, %a: tensor<2x1xf32>, %b: tensor<1x2xf32>) -> tensor<?x2xf32> {
    %0 = stem.mix %up, %x a %a b %b : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<2x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
    return %0 : tensor<?x2xf32>
  }
  func.func @select(%up: tensor<?x2xf32>, %x: tensor<?x2xf32>, %w: tensor<2x2xf32>, %ids: tensor<?xi32>, %in: tensor<?xi32>) -> tensor<?x2xf32> {
    %0 = stem.select_up %up, %x weight %w ids %ids in %in : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<2x2xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2xf32>
    return %0 : tensor<?x2xf32>
  })");
  expectNear(run({makeTensor({4}, {0, 1, 2, 3}), makeTensor({3}, {5, -1, 2})}),
             {5, 6, 2, 6});
  ReferenceTensor up = makeTensor({2, 2}, {1, 2, 3, 4});
  ReferenceTensor x = makeTensor({2, 2}, {1, 1, 2, 0});
  expectNear(runFunction("mix", {up, x, makeTensor({2, 1}, {10, 100}),
                                 makeTensor({1, 2}, {1, 2})}),
             {31, 302, 23, 204});
  expectNear(
      runFunction("select", {up, x, makeTensor({2, 2}, {1, 1, 0, 1}),
                             makeTensor({2}, {4, 9}), makeTensor({1}, {9})}),
      {1, 2, 2, 0});
}

TEST_F(InterpreterTest, CrossEntropySkipsIgnoredLabels) {
  load(
      R"(func.func @f(%x: tensor<?x1xf32>, %h: tensor<2x1xf32>, %l: tensor<?xi32>) -> tensor<?xf32> {
    %0 = stem.cross_entropy %x, %h, %l : tensor<?x1xf32>, tensor<2x1xf32>, tensor<?xi32> -> tensor<?xf32>
    return %0 : tensor<?xf32>
  })");
  ReferenceTensor head = makeTensor({2, 1}, {0, 1});
  expectNear(
      run({makeTensor({2, 1}, {3, 3}), head, makeTensor({2}, {0, -100})}),
      {std::log(1 + std::exp(3.0)), 0});
  EXPECT_EQ(runToError({makeTensor({1, 1}, {3}), head, makeTensor({1}, {2})}),
            "label 2 at token 0 is outside of a vocabulary of 2");
}

TEST_F(InterpreterTest, ParametersAreSeededByKey) {
  load(R"(stem.param @w = "some.key" : tensor<3x2xf32>
  func.func @f() -> tensor<3x2xf32> {
    %0 = stem.param_load @w : tensor<3x2xf32>
    return %0 : tensor<3x2xf32>
  }
  func.func @packed() -> tensor<1x3xf32> {
    %i = arith.constant 0 : index
    %a = arith.constant dense<[[0.0, 1.0]]> : tensor<1x2xf32>
    %z = arith.constant dense<0.0> : tensor<1x3xf32>
    %w = stem.param_load @w : !stem.packed<2x3xf32>
    %0 = stem.packed_matmul %a, %w[%i, %i] into %z : (tensor<1x2xf32>, !stem.packed<2x3xf32>, tensor<1x3xf32>, index, index) -> tensor<1x3xf32>
    return %0 : tensor<1x3xf32>
  })");
  std::vector<double> seeds = run({});
  ASSERT_EQ(seeds.size(), 6u);
  auto type = RankedTensorType::get({3, 2}, Float32Type::get(&context));
  EXPECT_EQ(seeds, interpreter->getParameter("some.key", type).values);
  EXPECT_NE(seeds, interpreter->getParameter("other.key", type).values);
  expectNear(runFunction("packed", {}), {seeds[1], seeds[3], seeds[5]});
  interpreter->setParameter("some.key", makeTensor({3, 2}, {1, 2, 3, 4, 5, 6}));
  expectNear(run({}), {1, 2, 3, 4, 5, 6});
}

TEST_F(InterpreterTest, ForallReadsWhatWasThereBefore) {
  load(R"(func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    %c3 = arith.constant 3 : index
    %0 = scf.forall (%i) in (4) shared_outs(%o = %x) -> tensor<4xf32> {
      %j = arith.subi %c3, %i : index
      %s = tensor.extract_slice %o[%j] [1] [1] : tensor<4xf32> to tensor<1xf32>
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %s into %o[%i] [1] [1] : tensor<1xf32> into tensor<4xf32>
      }
    }
    return %0 : tensor<4xf32>
  })");
  expectNear(run({makeTensor({4}, {1, 2, 3, 4})}), {4, 3, 2, 1});
}

TEST_F(InterpreterTest, LinalgOpsRunTheirBodies) {
  load(
      R"(func.func @f(%a: tensor<?x2xf32>, %b: tensor<2x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
    %0 = linalg.matmul ins(%a, %b : tensor<?x2xf32>, tensor<2x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
    return %0 : tensor<?x?xf32>
  })");
  ReferenceTensor a = makeTensor({1, 2}, {1, 2});
  expectNear(run({a, makeTensor({2, 2}, {1, 2, 3, 4}),
                  makeTensor({1, 2}, {100, 200})}),
             {107, 210});
  EXPECT_EQ(runToError({a, makeTensor({2, 2}, {1, 2, 3, 4}),
                        makeTensor({2, 2}, {0, 0, 0, 0})}),
            "operands disagree on the size of loop 0: 1 and 2");
}

TEST_F(InterpreterTest, RefusesWhatItCannotRun) {
  load(R"(func.func @f(%n: index) -> index {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %0 = scf.for %i = %c0 to %n step %c1 iter_args(%s = %c0) -> (index) {
      %t = arith.addi %s, %i : index
      scf.yield %t : index
    }
    %1 = arith.divsi %0, %c0 : index
    return %1 : index
  })");
  EXPECT_EQ(runToError({ReferenceValue(4.0)}),
            "the result is undefined: division by zero, overflow or too large "
            "a shift");
  InterpreterOptions few;
  few.maxSteps = 50;
  interpreter = std::make_unique<Interpreter>(*module, few);
  EXPECT_EQ(runToError({ReferenceValue(1e18)}),
            "the interpreter stops after 50 steps; use a smaller program or "
            "raise stem-max-steps");
  EXPECT_EQ(runToError({}), "the interpreter was given 0 arguments for 'f', "
                            "which takes 1");
}

TEST_F(InterpreterTest, RefusesLargeTensorsAndBadIndices) {
  load(R"(func.func @f(%n: index, %i: index) -> f32 {
    %0 = tensor.empty(%n) : tensor<?x1024xf32>
    %1 = tensor.extract %0[%i, %i] : tensor<?x1024xf32>
    return %1 : f32
  })");
  EXPECT_EQ(runToError({ReferenceValue(1e15), ReferenceValue(0.0)}),
            "the interpreter refuses a tensor of 1000000000000000 x 1024 "
            "elements, its limit is 134217728");
  EXPECT_EQ(runToError({ReferenceValue(-1.0), ReferenceValue(0.0)}),
            "a tensor cannot have the size -1");
  EXPECT_EQ(runToError({ReferenceValue(2.0), ReferenceValue(3.0)}),
            "the index [3, 3] lies outside of a tensor of shape [2, 1024]");
}

} // namespace
