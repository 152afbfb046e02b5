//===- StemOptimizerVerifiers.cpp - Constraints of the optimizer's ops ----===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Each check carries the number that the op's description gives it.

#include "Verify.h"
#include "stem/Dialect/Stem/StemDialect.h"

using namespace mlir;
using namespace stem;
using namespace stem::verify;

static LogicalResult expectStaticSums(Operation *op, Value sums) {
  if (!ShapedType::isDynamic(dim(sums, 0)))
    return success();
  return op->emitOpError() << "the number of sums must be static, got "
                           << sums.getType();
}

LogicalResult SumSquaresOp::verify() {
  // C1
  if (failed(expectStaticSums(*this, getSums())))
    return failure();
  auto place = static_cast<int64_t>(getPlace());
  if (place >= 0 && place < dim(getSums(), 0))
    return success();
  return emitOpError() << "place is " << place << ", but there are "
                       << dim(getSums(), 0) << " sums";
}

LogicalResult GradientScaleOp::verify() {
  // C1
  return expectStaticSums(*this, getSums());
}

LogicalResult AdamWOp::verify() {
  // C1
  RankedTensorType type = getWeight().getType();
  if (!type.hasStaticShape())
    return emitOpError() << "all shapes must be static, got " << type;
  // C2
  for (const auto &[name, attribute] :
       {std::pair("beta1", getBeta1()), std::pair("beta2", getBeta2())})
    if (double beta = attribute.convertToDouble(); !(beta >= 0.0 && beta < 1.0))
      return emitOpError() << name << " must be 0 or more and less than 1, got "
                           << beta;
  // C3: the root of the least second moment that f32 holds is 1e-19.
  if (double epsilon = getEpsilon().convertToDouble();
      !(epsilon >= 1e-12 && epsilon <= 1.0))
    return emitOpError() << "epsilon must be 1e-12 to 1, got " << epsilon;
  return success();
}
