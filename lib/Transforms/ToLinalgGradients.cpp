//===- ToLinalgGradients.cpp - Cotangents of tokens, element by element ---===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Constants.h"
#include "FFNLowering.h"
#include "SelectUpLowering.h"
#include "TilingUtils.h"
#include "ToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace stem;

namespace {

/// `SiLU'(x) = s (1 + x (1 - s))` for one element, f32.
Value siluDerivative(OpBuilder &b, Location loc, Value x, Value sigmoid) {
  Value one = constantF32(b, loc, 1.0);
  Value rest = arith::SubFOp::create(b, loc, one, sigmoid);
  rest = arith::MulFOp::create(b, loc, x, rest);
  rest = arith::AddFOp::create(b, loc, one, rest);
  return arith::MulFOp::create(b, loc, sigmoid, rest);
}

Value buildSigmoid(OpBuilder &b, Location loc, Value x) {
  Value one = constantF32(b, loc, 1.0);
  Value power = math::ExpOp::create(b, loc, arith::NegFOp::create(b, loc, x));
  return arith::DivFOp::create(b, loc, one,
                               arith::AddFOp::create(b, loc, one, power));
}

// Pattern: silu_vjp(x, c) -> c s (1 + x (1 - s))
struct LowerSiluVjp : OpRewritePattern<SiluVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SiluVjpOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Type element = op.getType().getElementType(), f32 = b.getF32Type();
    Value out = emptyLike(b, loc, op.getX(), element);
    b.replaceOp(
        op,
        buildGeneric(
            b, loc, 2, false,
            {{op.getX(), {0, 1}}, {op.getCotangent(), {0, 1}}}, {{out, {0, 1}}},
            [&](OpBuilder &nb, Location l, ValueRange arguments) {
              Value x = convertFloat(nb, l, arguments[0], f32);
              Value slope = siluDerivative(nb, l, x, buildSigmoid(nb, l, x));
              Value c = convertFloat(nb, l, arguments[1], f32);
              return SmallVector<Value>{convertFloat(
                  nb, l, arith::MulFOp::create(nb, l, c, slope), element)};
            }));
    return success();
  }
};

// Pattern: gate_vjp(g, u, c) -> silu'(g) u c, silu(g) c, silu(g) u
struct LowerGateVjp : OpRewritePattern<GateVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GateVjpOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Type f32 = b.getF32Type();
    SmallVector<Access> outputs;
    for (Value result : op.getResults())
      outputs.push_back(
          {emptyLike(b, loc, op.getGate(),
                     cast<RankedTensorType>(result.getType()).getElementType()),
           {0, 1}});
    b.replaceOp(
        op,
        buildGeneric(
            b, loc, 2, false,
            {{op.getGate(), {0, 1}},
             {op.getUp(), {0, 1}},
             {op.getCotangent(), {0, 1}}},
            outputs, [&](OpBuilder &nb, Location l, ValueRange arguments) {
              Value g = convertFloat(nb, l, arguments[0], f32);
              Value u = convertFloat(nb, l, arguments[1], f32);
              Value c = convertFloat(nb, l, arguments[2], f32);
              Value sigmoid = buildSigmoid(nb, l, g);
              Value silu = arith::MulFOp::create(nb, l, g, sigmoid);
              Value slope = siluDerivative(nb, l, g, sigmoid);
              Value dgate = arith::MulFOp::create(
                  nb, l, arith::MulFOp::create(nb, l, slope, u), c);
              Value values[] = {dgate, arith::MulFOp::create(nb, l, silu, c),
                                arith::MulFOp::create(nb, l, silu, u)};
              SmallVector<Value> results;
              for (auto [value, like] :
                   llvm::zip_equal(values, arguments.take_back(3)))
                results.push_back(convertFloat(nb, l, value, like.getType()));
              return results;
            }));
    return success();
  }
};

/// A sum over each group of columns, `[T, groups]`, of what `term` makes of
/// elements of `inputs`, `[T, groups, group]`.
Value sumGroups(OpBuilder &b, Location loc, ArrayRef<Access> inputs,
                ArrayRef<OpFoldResult> sizes,
                function_ref<Value(OpBuilder &, Location, ValueRange)> term) {
  Value zero = constantF32(b, loc, 0.0);
  Value sums = emptyTensor(b, loc, sizes.drop_back(), b.getF32Type());
  sums = linalg::FillOp::create(b, loc, zero, sums).getResult(0);
  return buildGeneric(b, loc, 3, true, inputs, {{sums, {0, 1}}},
                      [&](OpBuilder &nb, Location l, ValueRange arguments) {
                        Value more = term(nb, l, arguments.drop_back());
                        return SmallVector<Value>{arith::AddFOp::create(
                            nb, l, arguments.back(), more)};
                      })[0];
}

// Pattern: rms_norm_input_vjp(x, w, c)
//          -> r w c - x r^3 sum(w c x) / N, r = rsqrt(sum(x^2) / N + eps)
struct LowerRMSNormInputVjp : OpRewritePattern<RMSNormInputVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(RMSNormInputVjpOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    int64_t group = op.getWeight().getType().getDimSize(0);
    Type f32 = b.getF32Type();
    Value x = splitColumns(b, loc, op.getX(), group);
    Value c = splitColumns(b, loc, op.getCotangent(), group);
    auto sizes = tensor::getMixedSizes(b, loc, x);
    Value squares = sumGroups(
        b, loc, {{x, {0, 1, 2}}}, sizes,
        [&](OpBuilder &nb, Location l, ValueRange arguments) -> Value {
          Value value = convertFloat(nb, l, arguments[0], f32);
          return arith::MulFOp::create(nb, l, value, value);
        });
    Value products = sumGroups(
        b, loc, {{x, {0, 1, 2}}, {c, {0, 1, 2}}, {op.getWeight(), {2}}}, sizes,
        [&](OpBuilder &nb, Location l, ValueRange arguments) -> Value {
          return scaledCotangent(
              nb, l, arguments[0],
              scaledCotangent(nb, l, arguments[1], arguments[2]));
        });
    ValueRange factors = rootAndShare(b, loc, op, squares, products, group);
    Type element = op.getType().getElementType();
    Value out = emptyTensor(b, loc, sizes, element);
    out = buildGeneric(
        b, loc, 3, false,
        {{x, {0, 1, 2}},
         {c, {0, 1, 2}},
         {op.getWeight(), {2}},
         {factors[0], {0, 1}},
         {factors[1], {0, 1}}},
        {{out, {0, 1, 2}}}, [&](OpBuilder &nb, Location l, ValueRange a) {
          Value direct = arith::MulFOp::create(
              nb, l, scaledCotangent(nb, l, a[1], a[2]), a[3]);
          Value through = arith::MulFOp::create(
              nb, l, convertFloat(nb, l, a[0], nb.getF32Type()), a[4]);
          Value dx = arith::SubFOp::create(nb, l, direct, through);
          return SmallVector<Value>{convertFloat(nb, l, dx, element)};
        })[0];
    b.replaceOp(op, joinColumns(b, loc, out, op.getType()));
    return success();
  }

private:
  /// lhs * rhs, both made f32.
  static Value scaledCotangent(OpBuilder &b, Location loc, Value lhs,
                               Value rhs) {
    return arith::MulFOp::create(b, loc,
                                 convertFloat(b, loc, lhs, b.getF32Type()),
                                 convertFloat(b, loc, rhs, b.getF32Type()));
  }

  /// r, and r^3 sum(w c x) / N, in place of the two sums.
  static ValueRange rootAndShare(OpBuilder &b, Location loc,
                                 RMSNormInputVjpOp op, Value squares,
                                 Value products, int64_t group) {
    Value inverse = constantF32(b, loc, 1.0 / static_cast<double>(group));
    Value eps = constantF32(b, loc, op.getEps().convertToDouble());
    return buildGeneric(
        b, loc, 2, false, {}, {{squares, {0, 1}}, {products, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange a) {
          Value mean = arith::MulFOp::create(nb, l, a[0], inverse);
          Value r = math::RsqrtOp::create(
              nb, l, arith::AddFOp::create(nb, l, mean, eps));
          Value cube = arith::MulFOp::create(
              nb, l, r, arith::MulFOp::create(nb, l, r, r));
          Value share = arith::MulFOp::create(nb, l, a[1], inverse);
          return SmallVector<Value>{r,
                                    arith::MulFOp::create(nb, l, cube, share)};
        });
  }
};

// Pattern: keep_selected(x, ids, selected)
//          -> contains(selected, ids[t]) != others ? x : 0
struct LowerKeepSelected : OpRewritePattern<KeepSelectedOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(KeepSelectedOp op,
                                PatternRewriter &b) const override {
    b.replaceOp(op, buildKeepSelected(b, op));
    return success();
  }
};

} // namespace

void stem::populateGradientPatterns(RewritePatternSet &patterns) {
  patterns
      .add<LowerSiluVjp, LowerGateVjp, LowerRMSNormInputVjp, LowerKeepSelected>(
          patterns.getContext());
}
