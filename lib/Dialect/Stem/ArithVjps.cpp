//===- ArithVjps.cpp - Vector-Jacobian products of arith ops --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Dialect/Stem/StemVjp.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace stem;

namespace {

using Cotangents = ArrayRef<Value>;
using Adjoints = MutableArrayRef<Value>;

struct AddFVjp : VjpOpInterface::ExternalModel<AddFVjp, arith::AddFOp> {
  LogicalResult buildVjp(Operation *, OpBuilder &, Cotangents cotangents,
                         Adjoints adjoints) const {
    adjoints[0] = adjoints[1] = cotangents[0];
    return success();
  }
};

struct SubFVjp : VjpOpInterface::ExternalModel<SubFVjp, arith::SubFOp> {
  LogicalResult buildVjp(Operation *op, OpBuilder &b, Cotangents cotangents,
                         Adjoints adjoints) const {
    adjoints[0] = cotangents[0];
    adjoints[1] = arith::NegFOp::create(b, op->getLoc(), cotangents[0]);
    return success();
  }
};

struct NegFVjp : VjpOpInterface::ExternalModel<NegFVjp, arith::NegFOp> {
  LogicalResult buildVjp(Operation *op, OpBuilder &b, Cotangents cotangents,
                         Adjoints adjoints) const {
    adjoints[0] = arith::NegFOp::create(b, op->getLoc(), cotangents[0]);
    return success();
  }
};

/// In the type of a cotangent.
Value widened(OpBuilder &b, Location loc, Value value) {
  Type wide = getCotangentType(value.getType());
  if (wide == value.getType())
    return value;
  return arith::ExtFOp::create(b, loc, wide, value);
}

struct MulFVjp : VjpOpInterface::ExternalModel<MulFVjp, arith::MulFOp> {
  LogicalResult buildVjp(Operation *op, OpBuilder &b, Cotangents cotangents,
                         Adjoints adjoints) const {
    Location loc = op->getLoc();
    for (unsigned i : {0, 1})
      adjoints[i] = arith::MulFOp::create(
          b, loc, cotangents[0], widened(b, loc, op->getOperand(1 - i)));
    return success();
  }
};

template <typename Op>
struct CastVjp : VjpOpInterface::ExternalModel<CastVjp<Op>, Op> {
  LogicalResult buildVjp(Operation *op, OpBuilder &b, Cotangents cotangents,
                         Adjoints adjoints) const {
    adjoints[0] =
        convertCotangent(b, op->getLoc(), cotangents[0],
                         getCotangentType(op->getOperand(0).getType()));
    return success();
  }
};

} // namespace

Value stem::convertCotangent(OpBuilder &builder, Location loc, Value cotangent,
                             Type type) {
  Type element = getElementTypeOrSelf(type);
  if (element == getElementTypeOrSelf(cotangent))
    return cotangent;
  Type wanted = cast<RankedTensorType>(cotangent.getType()).clone(element);
  if (element.isF64())
    return arith::ExtFOp::create(builder, loc, wanted, cotangent);
  return arith::TruncFOp::create(builder, loc, wanted, cotangent);
}

void stem::registerVjpModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *) {
    arith::AddFOp::attachInterface<AddFVjp>(*context);
    arith::SubFOp::attachInterface<SubFVjp>(*context);
    arith::MulFOp::attachInterface<MulFVjp>(*context);
    arith::NegFOp::attachInterface<NegFVjp>(*context);
    arith::ExtFOp::attachInterface<CastVjp<arith::ExtFOp>>(*context);
    arith::TruncFOp::attachInterface<CastVjp<arith::TruncFOp>>(*context);
  });
}
