//===- ExpandMath.cpp - Transcendental functions as polynomials -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The coefficients come from test/tools/fit_polynomials.py.
//
//===----------------------------------------------------------------------===//

#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/TypeSwitch.h"

#include <limits>

namespace stem {
#define GEN_PASS_DEF_STEMEXPANDMATHPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

using Coefficients = ArrayRef<double>; // lowest power first

constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2High = 0.693147182464599609375; // an f32
constexpr double kLn2Low = -1.904654299957768e-09;
constexpr double kTwoOverPi = 0.6366197723675814;
constexpr double kHalfPiHigh = 1.5707963267948966;
constexpr double kHalfPiLow = 6.123233995736766e-17;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Adding 1.5 * 2^(mantissa bits) rounds to an integer, to nearest even, and
/// leaves that integer in the low bits of the sum.
constexpr double kRoundF32 = 12582912.0;
constexpr double kRoundF64 = 6755399441055744.0;

/// Builds on one float type, scalar or vector.
class FloatBuilder {
public:
  FloatBuilder(ImplicitLocOpBuilder &b, Type type) : b(b), type(type) {
    unsigned width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
    intType = withElement(b.getIntegerType(width));
  }

  Type withElement(Type element) const {
    auto vector = dyn_cast<VectorType>(type);
    return vector ? Type(vector.clone(element)) : element;
  }

  Value real(double value) {
    return constant(type, b.getFloatAttr(getElementTypeOrSelf(type), value));
  }
  Value integer(int64_t value) {
    return constant(intType,
                    b.getIntegerAttr(getElementTypeOrSelf(intType), value));
  }

  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, x, y); }
  Value fma(Value x, Value y, Value z) {
    return math::FmaOp::create(b, x, y, z);
  }
  Value addInt(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value subInt(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
  Value shiftLeft(Value x, int64_t bits) {
    return arith::ShLIOp::create(b, x, integer(bits));
  }
  Value bits(Value x) { return arith::BitcastOp::create(b, intType, x); }
  Value fromBits(Value x) { return arith::BitcastOp::create(b, type, x); }
  Value compare(arith::CmpFPredicate predicate, Value x, double y) {
    return arith::CmpFOp::create(b, predicate, x, real(y));
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, condition, x, y);
  }

  Value polynomial(Coefficients coefficients, Value x) {
    Value sum = real(coefficients.back());
    for (double c : llvm::reverse(coefficients.drop_back()))
      sum = fma(sum, x, real(c));
    return sum;
  }

  ImplicitLocOpBuilder &b;
  Type type;
  Type intType;

private:
  Value constant(Type of, TypedAttr element) {
    if (auto vector = dyn_cast<VectorType>(of))
      return arith::ConstantOp::create(
          b, DenseElementsAttr::get(vector, Attribute(element)));
    return arith::ConstantOp::create(b, element);
  }
};

/// `p * 2^n`, where `n` is the integer in the low bits of `rounded` and the
/// result is a normal f32: only the exponent changes.
Value scale(FloatBuilder &f, Value p, Value rounded) {
  Value exponent = f.shiftLeft(f.bits(rounded), 23);
  return f.fromBits(f.addInt(f.bits(p), exponent));
}

/// `inner` between the bounds, 0 below, infinity above, NaN for NaN.
Value saturate(FloatBuilder &f, Value x, double low, double high, Value inner) {
  Value above = f.compare(arith::CmpFPredicate::UGT, x, high);
  Value below = f.compare(arith::CmpFPredicate::OLT, x, low);
  return f.select(above, f.add(x, f.real(kInfinity)),
                  f.select(below, f.real(0), inner));
}

// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2.
Value expandExp(FloatBuilder &f, Value x) {
  static constexpr double kCoefficients[] = {
      0.5, 0.16666576583158002, 0.041666554109346714, 0.008363246669753728,
      0.0013926268052570573};
  Value rounded = f.fma(x, f.real(kLog2E), f.real(kRoundF32));
  Value n = f.sub(rounded, f.real(kRoundF32));
  Value r = f.fma(n, f.real(-kLn2High), x);
  r = f.fma(n, f.real(-kLn2Low), r);
  Value tail = f.fma(f.mul(r, r), f.polynomial(kCoefficients, r), r);
  Value p = f.add(tail, f.real(1));
  // The logarithms of the largest and of the smallest normal f32, rounded
  // inwards.
  return saturate(f, x, -87.33654022216797, 88.72283935546875,
                  scale(f, p, rounded));
}

// exp2(x) = 2^n * 2^r, n = round(x), |r| <= 1/2.
Value expandExp2(FloatBuilder &f, Value x) {
  static constexpr double kCoefficients[] = {
      0.6931471805599453,    0.24022650922288757,  0.055504108839096185,
      0.009618056678524637,  0.001333350238616277, 0.0001546144469856913,
      1.5297323760701075e-05};
  Value rounded = f.add(x, f.real(kRoundF32));
  Value r = f.sub(x, f.sub(rounded, f.real(kRoundF32)));
  Value p = f.fma(r, f.polynomial(kCoefficients, r), f.real(1));
  double belowInfinity = 128.0 - 0x1p-17; // the largest f32 below 128
  return saturate(f, x, -126, belowInfinity, scale(f, p, rounded));
}

// log(x) = e * ln 2 + log(m), x = m * 2^e, sqrt(1/2) <= m < sqrt(2).
Value expandLog(FloatBuilder &f, Value x) {
  static constexpr double kCoefficients[] = {
      0.3333333117801879,   -0.2499999700104478,  0.20000716304422572,
      -0.16667798276479848, 0.14249032730785605,  -0.12425776722809438,
      0.11685795939274597,  -0.11479188086670764, 0.06969753982083549};
  constexpr int64_t kBitsOfSqrtHalf = 0x3f3504f3;
  Value isSubnormal = f.compare(arith::CmpFPredicate::OLT, x, 0x1p-126);
  Value normal = f.select(isSubnormal, f.mul(x, f.real(0x1p23)), x);
  Value bits = f.bits(normal);
  Value exponent = arith::ShRSIOp::create(
      f.b, f.subInt(bits, f.integer(kBitsOfSqrtHalf)), f.integer(23));
  Value m = f.fromBits(f.subInt(bits, f.shiftLeft(exponent, 23)));
  Value e = f.add(arith::SIToFPOp::create(f.b, f.type, exponent),
                  f.select(isSubnormal, f.real(-23), f.real(0)));
  Value r = f.sub(m, f.real(1));
  Value square = f.mul(r, r);
  Value tail = f.mul(f.mul(square, r), f.polynomial(kCoefficients, r));
  tail = f.fma(e, f.real(kLn2Low), tail);
  tail = f.fma(square, f.real(-0.5), tail);
  Value result = f.fma(e, f.real(kLn2High), f.add(r, tail));

  Value isInfinite = f.compare(arith::CmpFPredicate::OEQ, x, kInfinity);
  Value isZero = f.compare(arith::CmpFPredicate::OEQ, x, 0);
  Value isPositive = f.compare(arith::CmpFPredicate::OGT, x, 0);
  return f.select(isPositive, f.select(isInfinite, x, result),
                  f.select(isZero, f.real(-kInfinity), f.real(kNaN)));
}

// tanh(|x|) = 1 - 2 / (exp(2 |x|) + 1), near 0 an odd polynomial.
Value expandTanh(FloatBuilder &f, Value x) {
  static constexpr double kCoefficients[] = {
      -0.33333333171275803, 0.1333330342585789,    -0.05395922855611955,
      0.021768666325116613, -0.008343119638547832, 0.0022918094207610654};
  Value a = math::AbsFOp::create(f.b, x);
  Value square = f.mul(a, a);
  Value small = f.fma(f.mul(square, a), f.polynomial(kCoefficients, square), a);
  Value e = expandExp(f, f.add(a, a));
  Value large = f.sub(f.real(1), f.div(f.real(2), f.add(e, f.real(1))));
  Value isSmall = f.compare(arith::CmpFPredicate::OLT, a, 0.625);
  return math::CopySignOp::create(f.b, f.select(isSmall, small, large), x);
}

struct TrigTables {
  Coefficients sin, cos; // in r^2, from r^3 and from r^4 on
};

TrigTables trigTables(bool isF32) {
  static constexpr double kSinF32[] = {
      -0.16666666663852564, 0.008333331873650577, -0.00019840086163020333,
      2.7249851596168045e-06};
  static constexpr double kCosF32[] = {
      0.0416666646580437, -0.0013888302752417692, 2.454788084226998e-05};
  static constexpr double kSinF64[] = {
      -0.16666666666666666,  0.008333333333333331,   -0.0001984126984126506,
      2.755731921933466e-06, -2.505210623088241e-08, 1.6058531370931902e-10,
      -7.586682497157786e-13};
  static constexpr double kCosF64[] = {
      0.041666666666666664,   -0.0013888888888888887, 2.4801587301584642e-05,
      -2.755731922140032e-07, 2.0876755790210228e-09, -1.1470460749696862e-11,
      4.7458637732829623e-14};
  return isF32 ? TrigTables{kSinF32, kCosF32} : TrigTables{kSinF64, kCosF64};
}

// sin(x) = one of sin(r), cos(r), -sin(r), -cos(r) by n mod 4, where
// n = round(x / (pi / 2)) and |r| <= pi / 4; cos(x) = sin(x + pi / 2). The
// reduction is in f64, the polynomials in the type of x.
Value expandSinCos(FloatBuilder &f, Value x, bool isCos) {
  bool isF32 = getElementTypeOrSelf(f.type).isF32();
  FloatBuilder wide(f.b, f.withElement(f.b.getF64Type()));
  Value wideX = isF32 ? arith::ExtFOp::create(f.b, wide.type, x) : x;
  Value rounded = wide.fma(wideX, wide.real(kTwoOverPi), wide.real(kRoundF64));
  Value n = wide.sub(rounded, wide.real(kRoundF64));
  Value r = wide.fma(n, wide.real(-kHalfPiHigh), wideX);
  r = wide.fma(n, wide.real(-kHalfPiLow), r);
  Value quadrant = wide.bits(rounded);
  if (isF32) {
    r = arith::TruncFOp::create(f.b, f.type, r);
    quadrant = arith::TruncIOp::create(f.b, f.intType, quadrant);
  }
  if (isCos)
    quadrant = f.addInt(quadrant, f.integer(1));

  TrigTables tables = trigTables(isF32);
  Value square = f.mul(r, r);
  Value sin = f.fma(f.mul(square, r), f.polynomial(tables.sin, square), r);
  Value cos = f.fma(f.mul(square, square), f.polynomial(tables.cos, square),
                    f.fma(square, f.real(-0.5), f.real(1)));

  Value isOdd = arith::CmpIOp::create(
      f.b, arith::CmpIPredicate::ne,
      arith::AndIOp::create(f.b, quadrant, f.integer(1)), f.integer(0));
  Value sign = f.shiftLeft(arith::AndIOp::create(f.b, quadrant, f.integer(2)),
                           isF32 ? 30 : 62);
  Value result = f.fromBits(
      arith::XOrIOp::create(f.b, f.bits(f.select(isOdd, cos, sin)), sign));
  Value isTooLarge = f.compare(arith::CmpFPredicate::OGT,
                               math::AbsFOp::create(f.b, x), 0x1p48);
  return f.select(isTooLarge, f.real(kNaN), result);
}

// f32 to bf16, to nearest even: half of the last kept bit, less one if that
// bit is even, carries into it. A NaN is made one that this keeps; doing so
// first keeps the choice among i32, as LLVM takes one among bf16 apart.
Value expandToBf16(ImplicitLocOpBuilder &b, Value x) {
  FloatBuilder f(b, x.getType());
  FloatBuilder narrow(b, f.withElement(b.getBF16Type()));
  Value isNaN = f.compare(arith::CmpFPredicate::UNO, x, 0);
  Value bits = f.select(isNaN, f.integer(0x7fc00000), f.bits(x));
  Value sixteen = f.integer(16);
  Value last = arith::AndIOp::create(
      b, arith::ShRUIOp::create(b, bits, sixteen), f.integer(1));
  Value rounded = f.addInt(f.addInt(bits, f.integer(0x7fff)), last);
  return narrow.fromBits(arith::TruncIOp::create(
      b, narrow.intType, arith::ShRUIOp::create(b, rounded, sixteen)));
}

// maximumf(x, y) -> x > y ? x : y, or x if that is NaN; minimumf likewise.
// LLVM also orders the zeros, which takes as long again. With nnan the result
// for a NaN does not matter: a comparison and a choice are one instruction.
Value expandExtremum(Operation *op, arith::CmpFPredicate better) {
  ImplicitLocOpBuilder b(op->getLoc(), op);
  Value x = op->getOperand(0), y = op->getOperand(1);
  Value isBetter = arith::CmpFOp::create(b, better, x, y);
  Value best = arith::SelectOp::create(b, isBetter, x, y);
  auto flags = cast<arith::ArithFastMathInterface>(op).getFastMathFlagsAttr();
  if (bitEnumContainsAll(flags.getValue(), arith::FastMathFlags::nnan))
    return best;
  Value isNaN = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, x, x);
  return arith::SelectOp::create(b, isNaN, x, best);
}

bool isF32ToBf16(arith::TruncFOp op) {
  auto mode = op.getRoundingmode();
  return !isa<TensorType>(op.getType()) &&
         getElementTypeOrSelf(op.getIn().getType()).isF32() &&
         getElementTypeOrSelf(op.getType()).isBF16() &&
         (!mode || *mode == arith::RoundingMode::to_nearest_even);
}

/// What replaces `op`: null if it stays, then `isMissed` says whether it
/// should not have.
Value expand(Operation *op, bool &isMissed) {
  if (!isa<math::ExpOp, math::Exp2Op, math::LogOp, math::TanhOp, math::SinOp,
           math::CosOp, math::RsqrtOp>(op))
    return {};
  Type type = op->getResult(0).getType();
  Type element = getElementTypeOrSelf(type);
  bool isTrig = isa<math::SinOp, math::CosOp>(op);
  isMissed = isa<TensorType>(type) ||
             !(element.isF32() || (isTrig && element.isF64()) ||
               isa<math::RsqrtOp>(op));
  if (isMissed)
    return {};
  ImplicitLocOpBuilder b(op->getLoc(), op);
  FloatBuilder f(b, type);
  Value x = op->getOperand(0);
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](math::ExpOp) { return expandExp(f, x); })
      .Case([&](math::Exp2Op) { return expandExp2(f, x); })
      .Case([&](math::LogOp) { return expandLog(f, x); })
      .Case([&](math::TanhOp) { return expandTanh(f, x); })
      .Case([&](math::SinOp) { return expandSinCos(f, x, false); })
      .Case([&](math::CosOp) { return expandSinCos(f, x, true); })
      .Case([&](math::RsqrtOp) {
        return f.div(f.real(1), math::SqrtOp::create(b, x));
      });
}

struct ExpandMathPass
    : public stem::impl::StemExpandMathPassBase<ExpandMathPass> {
  using StemExpandMathPassBase::StemExpandMathPassBase;

  void runOnOperation() override {
    getOperation()->walk([&](Operation *op) {
      auto toBf16 = dyn_cast<arith::TruncFOp>(op);
      if (toBf16 && isF32ToBf16(toBf16) && !nativeBf16) {
        ImplicitLocOpBuilder b(op->getLoc(), op);
        return replace(op, expandToBf16(b, toBf16.getIn()));
      }
      if (isa<arith::MaximumFOp, arith::MinimumFOp>(op) &&
          !isa<TensorType>(op->getResult(0).getType()))
        return replace(op, expandExtremum(op, isa<arith::MaximumFOp>(op)
                                                  ? arith::CmpFPredicate::OGT
                                                  : arith::CmpFPredicate::OLT));
      bool isMissed = false;
      if (Value expanded = expand(op, isMissed))
        return replace(op, expanded);
      if (isMissed)
        remark::missed(op->getLoc(), remark::RemarkOpts::name("NotExpanded")
                                         .category("stem-expand-math"))
            << remark::reason("no polynomial for {0}",
                              op->getResult(0).getType());
    });
  }

  static void replace(Operation *op, Value value) {
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
  }
};

} // namespace
