//===- AutodiffTest.cpp - Gradients against finite differences ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AutodiffTest.h"

using namespace stem;

namespace {

//===----------------------------------------------------------------------===//
// Ops of a transformer
//===----------------------------------------------------------------------===//

TEST_F(AutodiffTest, Embedding) {
  check(
      R"(func.func @f(%ids: tensor<?xi32>, %w: tensor<7x5xf32>, %p: !stem.packed<3x7xbf16>) -> (tensor<?x5xf32>, tensor<?x3xf32>) {
    %0 = stem.embedding %ids, %w : tensor<?xi32>, tensor<7x5xf32> -> tensor<?x5xf32>
    %1 = stem.embedding %ids, %p : tensor<?xi32>, !stem.packed<3x7xbf16> -> tensor<?x3xf32>
    return %0, %1 : tensor<?x5xf32>, tensor<?x3xf32>
  })",
      4, {{3, 0, 6, 3}});
}

TEST_F(AutodiffTest, RMSNormOfRows) {
  check(
      R"(func.func @f(%x: tensor<?x7xf32>, %w: tensor<7xf32>) -> tensor<?x7xf32> {
    %0 = stem.rms_norm %x, %w {eps = 0.125 : f64} : tensor<?x7xf32>, tensor<7xf32> -> tensor<?x7xf32>
    return %0 : tensor<?x7xf32>
  })",
      3);
}

TEST_F(AutodiffTest, RMSNormOfHeads) {
  check(
      R"(func.func @f(%x: tensor<?x9xbf16>, %w: tensor<3xf32>) -> tensor<?x9xf32> {
    %0 = stem.rms_norm %x, %w {eps = 0.125 : f64} : tensor<?x9xbf16>, tensor<3xf32> -> tensor<?x9xf32>
    return %0 : tensor<?x9xf32>
  })",
      3);
}

TEST_F(AutodiffTest, Silu) {
  check(R"(func.func @f(%x: tensor<?x5xf32>) -> tensor<?x5xbf16> {
    %0 = stem.silu %x : tensor<?x5xf32> -> tensor<?x5xbf16>
    return %0 : tensor<?x5xbf16>
  })",
        3);
}

TEST_F(AutodiffTest, Linear) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %w: tensor<3x5xbf16>) -> tensor<?x3xf32> {
    %0 = stem.linear %x, %w : tensor<?x5xf32>, tensor<3x5xbf16> -> tensor<?x3xf32>
    return %0 : tensor<?x3xf32>
  })",
      4);
}

TEST_F(AutodiffTest, LinearWithBias) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %w: tensor<3x5xf32>, %b: tensor<3xf32>) -> tensor<?x3xf32> {
    %0 = stem.linear %x, %w bias %b : tensor<?x5xf32>, tensor<3x5xf32>, tensor<3xf32> -> tensor<?x3xf32>
    return %0 : tensor<?x3xf32>
  })",
      4);
}

TEST_F(AutodiffTest, LinearWithPackedWeight) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %w: !stem.packed<5x3xf32>) -> tensor<?x3xf32> {
    %0 = stem.linear %x, %w : tensor<?x5xf32>, !stem.packed<5x3xf32> -> tensor<?x3xf32>
    return %0 : tensor<?x3xf32>
  })",
      4);
}

TEST_F(AutodiffTest, RopeTakesAnglesAsData) {
  check(
      R"(func.func @f(%x: tensor<?x8xf32>, %p: tensor<?xi32>) -> tensor<?x8xf32> {
    %c, %s = stem.rotary_angles %p {inv_freq = array<f32: 0.5, 0.25>, scaling = 1.5 : f64} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
    %0 = stem.rope %x, %c, %s : tensor<?x8xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  })",
      3, {{0, 1, 5}});
}

/// Four query heads share two key-value heads.
std::string attention(StringRef attributes) {
  return (R"(func.func @f(%q: tensor<?x12xf32>, %k: tensor<?x6xf32>, %v: tensor<?x6xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> tensor<?x12xf32> {
    %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 3 : i64, scale = 0.75 : f64)" +
          attributes +
          R"(} : tensor<?x12xf32>, tensor<?x6xf32>, tensor<?x6xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x12xf32>
    return %0 : tensor<?x12xf32>
  })")
      .str();
}

TEST_F(AutodiffTest, AttentionOfGroupedHeads) {
  check(attention(""), 5, {{0, 1, 2, 3, 4}, {2, 2, 2, 2, 2}});
}

TEST_F(AutodiffTest, AttentionInAWindow) {
  check(attention(", window = 2 : i64"), 5, {{0, 1, 2, 3, 4}, {0, 0, 0, 0, 0}});
}

TEST_F(AutodiffTest, AttentionOfSequencesWithPadding) {
  check(attention(", window = 3 : i64"), 8,
        {{0, 1, 0, 2, 1, 2, 3, 0}, {0, 0, 1, 0, 1, -1, 0, -1}});
}

// The later of two tokens at one place is the one that is seen.
TEST_F(AutodiffTest, AttentionOfTwoTokensAtOnePlace) {
  check(attention(""), 4, {{0, 1, 1, 2}, {0, 0, 0, 0}});
}

TEST_F(AutodiffTest, DenseFFN) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %g: tensor<7x5xf32>, %u: tensor<7x5xf32>, %d: tensor<5x7xf32>) -> tensor<?x5xf32> {
    %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<?x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<5x7xf32>) -> tensor<?x5xf32>
    return %0 : tensor<?x5xf32>
  })",
      3);
}

TEST_F(AutodiffTest, DenseFFNWithBiases) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %g: tensor<7x5xf32>, %u: !stem.packed<5x7xf32>, %d: tensor<5x7xf32>, %bg: tensor<7xf32>, %bu: tensor<7xf32>, %bd: tensor<5xf32>) -> tensor<?x5xf32> {
    %0 = stem.dense_ffn %x gate %g up %u down %d gate_bias %bg up_bias %bu down_bias %bd : (tensor<?x5xf32>, tensor<7x5xf32>, !stem.packed<5x7xf32>, tensor<5x7xf32>, tensor<7xf32>, tensor<7xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    return %0 : tensor<?x5xf32>
  })",
      3);
}

TEST_F(AutodiffTest, DenseFFNWithOneBias) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %g: tensor<7x5xf32>, %u: tensor<7x5xf32>, %d: tensor<5x7xf32>, %bu: tensor<7xf32>) -> tensor<?x5xf32> {
    %0 = stem.dense_ffn %x gate %g up %u down %d up_bias %bu : (tensor<?x5xf32>, tensor<7x5xf32>, tensor<7x5xf32>, tensor<5x7xf32>, tensor<7xf32>) -> tensor<?x5xf32>
    return %0 : tensor<?x5xf32>
  })",
      3);
}

TEST_F(AutodiffTest, CrossEntropyWithAnIgnoredLabel) {
  check(
      R"(func.func @f(%x: tensor<?x3xf32>, %h: tensor<7x3xf32>, %l: tensor<?xi32>) -> tensor<?xf32> {
    %0 = stem.cross_entropy %x, %h, %l : tensor<?x3xf32>, tensor<7x3xf32>, tensor<?xi32> -> tensor<?xf32>
    return %0 : tensor<?xf32>
  })",
      4, {{6, -100, 0, 2}});
}

TEST_F(AutodiffTest, DistillationTakesTheTeacherAsData) {
  check(
      R"(stem.param @teacher = "teacher" : tensor<4x5xf32> {stem.frozen}
  stem.param @teacher_head = "teacher_head" : tensor<7x5xf32> {stem.frozen}
  func.func @f(%x: tensor<4x3xf32>, %h: tensor<7x3xf32>, %l: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %y = stem.param_load @teacher : tensor<4x5xf32>
    %g = stem.param_load @teacher_head : !stem.packed<5x7xf32>
    %0:2 = stem.distillation %x, %h, %l from %y, %g : (tensor<4x3xf32>, tensor<7x3xf32>, tensor<4xi32>, tensor<4x5xf32>, !stem.packed<5x7xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
  })",
      4, {{6, -100, 0, 2}});
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

TEST_F(AutodiffTest, LookupAddsUpTheRowsOfATable) {
  check(R"(stem.table @t = "t" : !stem.table<9x5xbf16>
  func.func @f(%ids: tensor<?xi32>) -> tensor<?x5xf32> {
    %t = stem.table_load @t : !stem.table<9x5xbf16>
    %rows, %index = stem.table_rows %t, %ids : !stem.table<9x5xbf16>, tensor<?xi32> -> tensor<?x5xbf16>, tensor<?xi32>
    %0 = stem.lookup %rows, %index : tensor<?x5xbf16>, tensor<?xi32> -> tensor<?x5xf32>
    return %0 : tensor<?x5xf32>
  })",
        5, {{7, 2, 7, 0, 7}});
  EXPECT_EQ(idsOf["t"].values, (std::vector<double>{0, 2, 7}));
}

// The second lookup reads some rows once more: pairs of both are added up.
TEST_F(AutodiffTest, TwoLookupsOfOneTable) {
  check(R"(stem.table @t = "t" : !stem.table<9x5xf32>
  func.func @f(%ids: tensor<?xi32>) -> tensor<?x5xf32> {
    %t = stem.table_load @t : !stem.table<9x5xf32>
    %rows, %index = stem.table_rows %t, %ids : !stem.table<9x5xf32>, tensor<?xi32> -> tensor<?x5xf32>, tensor<?xi32>
    %0 = stem.lookup %rows, %index : tensor<?x5xf32>, tensor<?xi32> -> tensor<?x5xf32>
    %1 = stem.lookup %rows, %index : tensor<?x5xf32>, tensor<?xi32> -> tensor<?x5xf64>
    %2 = arith.truncf %1 : tensor<?x5xf64> to tensor<?x5xf32>
    %3 = arith.mulf %0, %2 : tensor<?x5xf32>
    return %3 : tensor<?x5xf32>
  })",
        4, {{8, 2, 8, 1}});
}

TEST_F(AutodiffTest, LookupInAnArgument) {
  check(
      R"(func.func @f(%rows: tensor<?x5xf32>, %index: tensor<?xi32>) -> tensor<?x5xf32> {
    %0 = stem.lookup %rows, %index : tensor<?x5xf32>, tensor<?xi32> -> tensor<?x5xf32>
    return %0 : tensor<?x5xf32>
  })",
      4, {{3, 1, 3}});
}

TEST_F(AutodiffTest, GatedFFN) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %g: tensor<7x5xf32>, %u: tensor<?x7xf32>, %d: tensor<5x7xf32>) -> tensor<?x5xf32> {
    %0 = stem.gated_ffn %x gate %g rows %u down %d : (tensor<?x5xf32>, tensor<7x5xf32>, tensor<?x7xf32>, tensor<5x7xf32>) -> tensor<?x5xf32>
    return %0 : tensor<?x5xf32>
  })",
      3);
}

TEST_F(AutodiffTest, GatedFFNWithBiases) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %g: tensor<7x5xf32>, %u: tensor<?x7xf32>, %d: !stem.packed<7x5xf32>, %bg: tensor<7xf32>, %bd: tensor<5xf32>) -> tensor<?x5xf32> {
    %0 = stem.gated_ffn %x gate %g rows %u down %d gate_bias %bg down_bias %bd : (tensor<?x5xf32>, tensor<7x5xf32>, tensor<?x7xf32>, !stem.packed<7x5xf32>, tensor<7xf32>, tensor<5xf32>) -> tensor<?x5xf32>
    return %0 : tensor<?x5xf32>
  })",
      3);
}

TEST_F(AutodiffTest, Mix) {
  check(
      R"(func.func @f(%u: tensor<?x7xf32>, %x: tensor<?x5xf32>, %a: tensor<7x2xf32>, %b: tensor<2x5xf32>) -> tensor<?x7xf32> {
    %0 = stem.mix %u, %x a %a b %b : (tensor<?x7xf32>, tensor<?x5xf32>, tensor<7x2xf32>, tensor<2x5xf32>) -> tensor<?x7xf32>
    return %0 : tensor<?x7xf32>
  })",
      3);
}

TEST_F(AutodiffTest, SelectUp) {
  check(
      R"(func.func @f(%u: tensor<?x7xf32>, %x: tensor<?x5xf32>, %w: tensor<7x5xf32>, %ids: tensor<?xi32>, %in: tensor<?xi32>) -> tensor<?x7xf32> {
    %0 = stem.select_up %u, %x weight %w ids %ids in %in : (tensor<?x7xf32>, tensor<?x5xf32>, tensor<7x5xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x7xf32>
    return %0 : tensor<?x7xf32>
  })",
      4, {{5, 2, 9, 4}, {2, 4, 6}});
}

TEST_F(AutodiffTest, SelectUpWithBias) {
  check(
      R"(func.func @f(%u: tensor<?x7xbf16>, %x: tensor<?x5xf32>, %w: tensor<7x5xf32>, %b: tensor<7xf32>, %ids: tensor<?xi32>, %in: tensor<?xi32>) -> tensor<?x7xf32> {
    %0 = stem.select_up %u, %x weight %w bias %b ids %ids in %in : (tensor<?x7xbf16>, tensor<?x5xf32>, tensor<7x5xf32>, tensor<?xi32>, tensor<?xi32>, tensor<7xf32>) -> tensor<?x7xf32>
    return %0 : tensor<?x7xf32>
  })",
      4, {{5, 2, 9, 4}, {2, 4, 6}});
}

//===----------------------------------------------------------------------===//
// Ops between them
//===----------------------------------------------------------------------===//

TEST_F(AutodiffTest, Arith) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %y: tensor<?x5xf32>, %z: tensor<?x5xbf16>, %d: tensor<?x5xf64>) -> tensor<?x5xf64> {
    %0 = arith.addf %x, %y : tensor<?x5xf32>
    %1 = arith.mulf %0, %x : tensor<?x5xf32>
    %2 = arith.negf %y : tensor<?x5xf32>
    %3 = arith.subf %1, %2 : tensor<?x5xf32>
    %4 = arith.truncf %3 : tensor<?x5xf32> to tensor<?x5xbf16>
    %5 = arith.mulf %4, %z : tensor<?x5xbf16>
    %6 = arith.extf %5 : tensor<?x5xbf16> to tensor<?x5xf64>
    %7 = arith.subf %6, %d : tensor<?x5xf64>
    %8 = arith.truncf %7 : tensor<?x5xf64> to tensor<?x5xf32>
    %9 = arith.extf %8 : tensor<?x5xf32> to tensor<?x5xf64>
    %10 = arith.mulf %9, %9 : tensor<?x5xf64>
    return %10 : tensor<?x5xf64>
  })",
      3);
}

// Static and dynamic sizes meet, f32 and f64 too.
TEST_F(AutodiffTest, CotangentsTakeTheTypeOfTheirValue) {
  check(
      R"(func.func @f(%x: tensor<?x5xf32>, %w: tensor<3x5xf64>) -> (tensor<4x3xf64>, tensor<4x5xf32>, tensor<?x5xf32>) {
    %0 = stem.linear %x, %w : tensor<?x5xf32>, tensor<3x5xf64> -> tensor<4x3xf64>
    %1 = stem.silu %x : tensor<?x5xf32> -> tensor<4x5xf32>
    %2 = arith.negf %x : tensor<?x5xf32>
    return %0, %1, %2 : tensor<4x3xf64>, tensor<4x5xf32>, tensor<?x5xf32>
  })",
      4);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

const char *const kLayer = R"(
func.func private @layer(%x: tensor<?x3xf32>, %w: tensor<3x3xf32>, %b: tensor<3xf32>) -> tensor<?x3xf32> {
  %0 = stem.linear %x, %w bias %b : tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32> -> tensor<?x3xf32>
  %1 = stem.silu %0 : tensor<?x3xf32> -> tensor<?x3xf32>
  %2 = arith.mulf %1, %x : tensor<?x3xf32>
  return %2 : tensor<?x3xf32>
}
)";

TEST_F(AutodiffTest, OneLayerFunctionIsCalledTwice) {
  check(std::string(kLayer) + R"(
  stem.param @w0 = "w0" : tensor<3x3xf32>
  stem.param @w1 = "w1" : tensor<3x3xf32>
  stem.param @b = "b" : tensor<3xf32>
  func.func @f(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
    %w0 = stem.param_load @w0 : tensor<3x3xf32>
    %w1 = stem.param_load @w1 : tensor<3x3xf32>
    %b = stem.param_load @b : tensor<3xf32>
    %0 = call @layer(%x, %w0, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    %1 = call @layer(%0, %w1, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    return %1 : tensor<?x3xf32>
  })",
        4);
  int64_t derived = 0;
  for (auto any : module->getOps<func::FuncOp>())
    derived += any.getName().starts_with("layer_");
  EXPECT_EQ(derived, 2) << "one forward and one backward";
}

TEST_F(AutodiffTest, EmbeddingTiedToTheHead) {
  check(R"(stem.param @e = "e" : tensor<7x3xf32>
  func.func @f(%ids: tensor<?xi32>, %labels: tensor<?xi32>) -> tensor<?xf32> {
    %e = stem.param_load @e : tensor<7x3xf32>
    %x = stem.embedding %ids, %e : tensor<?xi32>, tensor<7x3xf32> -> tensor<?x3xf32>
    %head = stem.param_load @e : !stem.packed<3x7xf32>
    %0 = stem.cross_entropy %x, %head, %labels : tensor<?x3xf32>, !stem.packed<3x7xf32>, tensor<?xi32> -> tensor<?xf32>
    return %0 : tensor<?xf32>
  })",
        4, {{6, 1, 1, 3}, {1, 1, -100, 0}});
}

TEST_F(AutodiffTest, FrozenWeightsHaveNoGradient) {
  check(std::string(kLayer) + R"(
  stem.param @w = "w" : tensor<3x3xf32> {stem.frozen}
  stem.param @b = "b" : tensor<3xf32>
  stem.table @frozen = "frozen" : !stem.table<5x3xf32> {stem.frozen}
  stem.table @trained = "trained" : !stem.table<5x3xf32>
  func.func @f(%ids: tensor<?xi32>) -> tensor<?x3xf32> {
    %w = stem.param_load @w : tensor<3x3xf32>
    %b = stem.param_load @b : tensor<3xf32>
    %t0 = stem.table_load @frozen : !stem.table<5x3xf32>
    %rows0, %index0 = stem.table_rows %t0, %ids : !stem.table<5x3xf32>, tensor<?xi32> -> tensor<?x3xf32>, tensor<?xi32>
    %x0 = stem.lookup %rows0, %index0 : tensor<?x3xf32>, tensor<?xi32> -> tensor<?x3xf32>
    %t1 = stem.table_load @trained : !stem.table<5x3xf32>
    %rows1, %index1 = stem.table_rows %t1, %ids : !stem.table<5x3xf32>, tensor<?xi32> -> tensor<?x3xf32>, tensor<?xi32>
    %x1 = stem.lookup %rows1, %index1 : tensor<?x3xf32>, tensor<?xi32> -> tensor<?x3xf32>
    %x = arith.addf %x0, %x1 : tensor<?x3xf32>
    %0 = call @layer(%x, %w, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    return %0 : tensor<?x3xf32>
  })",
        3, {{4, 1, 4}});
  EXPECT_EQ(ofSymbol.size(), 2u) << "of b and of the trained table";
}

// At one call the layer's input varies, at the other only its weight.
TEST_F(AutodiffTest, CallsWithOtherThingsThatVary) {
  check(std::string(kLayer) + R"(
  stem.param @w = "w" : tensor<3x3xf32>
  stem.param @b = "b" : tensor<3xf32> {stem.frozen}
  func.func @f(%x: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<2x3xf32>) {
    %c = arith.constant dense<[[0.5, -0.25, 1.0], [0.125, 2.0, -1.0]]> : tensor<2x3xf32>
    %constant = tensor.cast %c : tensor<2x3xf32> to tensor<?x3xf32>
    %w = stem.param_load @w : tensor<3x3xf32>
    %b = stem.param_load @b : tensor<3xf32>
    %0 = call @layer(%x, %w, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    %1 = call @layer(%constant, %w, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    %2 = stem.silu %1 : tensor<?x3xf32> -> tensor<2x3xf32>
    return %0, %2 : tensor<?x3xf32>, tensor<2x3xf32>
  })",
        4);
}

TEST_F(AutodiffTest, CallsInCalledFunctions) {
  check(std::string(kLayer) + R"(
  func.func private @block(%x: tensor<?x3xf32>, %w: tensor<3x3xf32>, %b: tensor<3xf32>) -> tensor<?x3xf32> {
    %0 = call @layer(%x, %w, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    %1 = stem.silu %0 : tensor<?x3xf32> -> tensor<?x3xf32>
    %2 = call @layer(%1, %w, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    %3 = arith.addf %2, %x : tensor<?x3xf32>
    return %3 : tensor<?x3xf32>
  }
  stem.param @w = "w" : tensor<3x3xf32>
  func.func @f(%x: tensor<?x3xf32>, %b: tensor<3xf32>) -> tensor<?x3xf32> {
    %w = stem.param_load @w : tensor<3x3xf32>
    %0 = call @block(%x, %w, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    %1 = call @block(%0, %w, %b) : (tensor<?x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    return %1 : tensor<?x3xf32>
  })",
        3);
}

// One call gives both results a cotangent, the other one of them; an argument
// that is no tensor stays one.
TEST_F(AutodiffTest, FunctionsOfTwoResults) {
  check(R"(
  func.func private @two(%x: tensor<?x3xf32>, %n: index, %w: tensor<3x3xf32>, %s: f32) -> (tensor<?x3xf32>, index, tensor<?x3xf32>, f32) {
    %0 = stem.linear %x, %w : tensor<?x3xf32>, tensor<3x3xf32> -> tensor<?x3xf32>
    %1 = stem.silu %0 : tensor<?x3xf32> -> tensor<?x3xf32>
    %2 = arith.mulf %s, %s : f32
    return %1, %n, %0, %2 : tensor<?x3xf32>, index, tensor<?x3xf32>, f32
  }
  func.func @f(%x: tensor<?x3xf32>, %w: tensor<3x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>) {
    %c0 = arith.constant 0 : index
    %half = arith.constant 0.5 : f32
    %n = tensor.dim %x, %c0 : tensor<?x3xf32>
    %0:4 = call @two(%x, %n, %w, %half) : (tensor<?x3xf32>, index, tensor<3x3xf32>, f32) -> (tensor<?x3xf32>, index, tensor<?x3xf32>, f32)
    %1:4 = call @two(%0#2, %0#1, %w, %0#3) : (tensor<?x3xf32>, index, tensor<3x3xf32>, f32) -> (tensor<?x3xf32>, index, tensor<?x3xf32>, f32)
    return %0#0, %1#0 : tensor<?x3xf32>, tensor<?x3xf32>
  })",
        3);
}

TEST_F(AutodiffTest, ConstantsAreMadeAgain) {
  check(R"(
  func.func private @scaled(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %c = arith.constant dense<[[0.5, -0.25, 1.0], [0.125, 2.0, -1.0]]> : tensor<2x3xf32>
    %0 = arith.mulf %x, %c : tensor<2x3xf32>
    %1 = arith.mulf %0, %c : tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
  func.func @f(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = call @scaled(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  })",
        2);
  auto backward = module->lookupSymbol<func::FuncOp>("scaled_backward");
  ASSERT_TRUE(backward);
  EXPECT_EQ(backward.getNumArguments(), 1u) << "the cotangent";
}

TEST_F(AutodiffTest, ResultsThatAreArgumentsOrTheSame) {
  check(
      R"(func.func @f(%x: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>) {
    %0 = stem.silu %x : tensor<?x3xf32> -> tensor<?x3xf32>
    return %0, %x, %0 : tensor<?x3xf32>, tensor<?x3xf32>, tensor<?x3xf32>
  })",
      3);
}

// A transformer of two layers, one of them with a table.
TEST_F(AutodiffTest, WholeModel) {
  check(R"(
  stem.param @e = "e" : tensor<9x4xbf16>
  stem.param @n = "n" : tensor<4xf32>
  stem.param @q0 = "q0" : tensor<8x4xf32>
  stem.param @kv0 = "kv0" : tensor<4x4xf32>
  stem.param @o0 = "o0" : tensor<4x8xf32>
  stem.param @gate = "gate" : tensor<5x4xf32>
  stem.param @down = "down" : tensor<4x5xf32>
  stem.param @up = "up" : tensor<5x4xf32>
  stem.param @a = "a" : tensor<5x1xf32>
  stem.param @b = "b" : tensor<1x4xf32>
  stem.table @t = "t" : !stem.table<9x5xbf16>
  func.func private @mixer(%x: tensor<?x4xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: tensor<?x2xf32>, %sn: tensor<?x2xf32>, %n: tensor<4xf32>, %wq: tensor<8x4xf32>, %wkv: tensor<4x4xf32>, %wo: tensor<4x8xf32>) -> tensor<?x4xf32> {
    %h = stem.rms_norm %x, %n {eps = 1.0e-2 : f64} : tensor<?x4xf32>, tensor<4xf32> -> tensor<?x4xf32>
    %q0 = stem.linear %h, %wq : tensor<?x4xf32>, tensor<8x4xf32> -> tensor<?x8xf32>
    %k0 = stem.linear %h, %wkv : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
    %q1 = stem.rms_norm %q0, %n {eps = 1.0e-2 : f64} : tensor<?x8xf32>, tensor<4xf32> -> tensor<?x8xf32>
    %q = stem.rope %q1, %c, %sn : tensor<?x8xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
    %k = stem.rope %k0, %c, %sn : tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x4xf32>
    %0 = stem.attention %q, %k, %k0 at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
    %1 = stem.linear %0, %wo : tensor<?x8xf32>, tensor<4x8xf32> -> tensor<?x4xf32>
    %2 = arith.addf %x, %1 : tensor<?x4xf32>
    return %2 : tensor<?x4xf32>
  }
  func.func private @ffn(%x: tensor<?x4xf32>, %rows: tensor<?x5xbf16>, %index: tensor<?xi32>, %ids: tensor<?xi32>, %selected: tensor<2xi32>, %g: tensor<5x4xf32>, %d: tensor<4x5xf32>, %up: tensor<5x4xf32>, %a: tensor<5x1xf32>, %b: tensor<1x4xf32>) -> tensor<?x4xf32> {
    %u0 = stem.lookup %rows, %index : tensor<?x5xbf16>, tensor<?xi32> -> tensor<?x5xf32>
    %u1 = stem.mix %u0, %x a %a b %b : (tensor<?x5xf32>, tensor<?x4xf32>, tensor<5x1xf32>, tensor<1x4xf32>) -> tensor<?x5xf32>
    %u2 = stem.select_up %u1, %x weight %up ids %ids in %selected : (tensor<?x5xf32>, tensor<?x4xf32>, tensor<5x4xf32>, tensor<?xi32>, tensor<2xi32>) -> tensor<?x5xf32>
    %0 = stem.gated_ffn %x gate %g rows %u2 down %d : (tensor<?x4xf32>, tensor<5x4xf32>, tensor<?x5xf32>, tensor<4x5xf32>) -> tensor<?x4xf32>
    %1 = arith.addf %x, %0 : tensor<?x4xf32>
    return %1 : tensor<?x4xf32>
  }
  func.func @f(%ids: tensor<?xi32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %labels: tensor<?xi32>) -> tensor<?xf32> {
    %selected = arith.constant dense<[3, 8]> : tensor<2xi32>
    %e = stem.param_load @e : tensor<9x4xbf16>
    %n = stem.param_load @n : tensor<4xf32>
    %q = stem.param_load @q0 : tensor<8x4xf32>
    %kv = stem.param_load @kv0 : tensor<4x4xf32>
    %o = stem.param_load @o0 : tensor<4x8xf32>
    %g = stem.param_load @gate : tensor<5x4xf32>
    %d = stem.param_load @down : tensor<4x5xf32>
    %up = stem.param_load @up : tensor<5x4xf32>
    %a = stem.param_load @a : tensor<5x1xf32>
    %b = stem.param_load @b : tensor<1x4xf32>
    %t = stem.table_load @t : !stem.table<9x5xbf16>
    %rows, %index = stem.table_rows %t, %ids : !stem.table<9x5xbf16>, tensor<?xi32> -> tensor<?x5xbf16>, tensor<?xi32>
    %c, %sn = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.25>} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
    %x0 = stem.embedding %ids, %e : tensor<?xi32>, tensor<9x4xbf16> -> tensor<?x4xf32>
    %x1 = call @mixer(%x0, %p, %s, %c, %sn, %n, %q, %kv, %o) : (tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<4xf32>, tensor<8x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
    %x2 = stem.dense_ffn %x1 gate %g up %up down %d : (tensor<?x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>, tensor<4x5xf32>) -> tensor<?x4xf32>
    %x3 = call @mixer(%x2, %p, %s, %c, %sn, %n, %q, %kv, %o) : (tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<4xf32>, tensor<8x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
    %x4 = call @ffn(%x3, %rows, %index, %ids, %selected, %g, %d, %up, %a, %b) : (tensor<?x4xf32>, tensor<?x5xbf16>, tensor<?xi32>, tensor<?xi32>, tensor<2xi32>, tensor<5x4xf32>, tensor<4x5xf32>, tensor<5x4xf32>, tensor<5x1xf32>, tensor<1x4xf32>) -> tensor<?x4xf32>
    %x5 = stem.rms_norm %x4, %n {eps = 1.0e-2 : f64} : tensor<?x4xf32>, tensor<4xf32> -> tensor<?x4xf32>
    %0 = stem.cross_entropy %x5, %e, %labels : tensor<?x4xf32>, tensor<9x4xbf16>, tensor<?xi32> -> tensor<?xf32>
    return %0 : tensor<?xf32>
  })",
        7,
        {{3, 1, 8, 1, 5, 8, 0},
         {0, 1, 2, 3, 0, 1, 0},
         {0, 0, 0, 0, 1, 1, -1},
         {1, 8, 1, 5, 8, 0, -100}});
}

} // namespace
