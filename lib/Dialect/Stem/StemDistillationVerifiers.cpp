//===- StemDistillationVerifiers.cpp - Constraints of distillation --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Each check carries the number that the ops' descriptions give it.

#include "Verify.h"
#include "stem/Dialect/Stem/StemDialect.h"

using namespace mlir;
using namespace stem;
using namespace stem::verify;

namespace {
struct NamedVector {
  const char *what;
  Value value;
};
} // namespace

/// Constraints C1 to C4 of stem.distillation; `vectors` have `T` elements.
template <typename Op>
static LogicalResult expectTeacher(Op op, ArrayRef<NamedVector> vectors) {
  const WeightShape head = getWeightShape(op.getHead().getType());
  const WeightShape teacher = getWeightShape(op.getTeacherHead().getType());
  // C1
  if (failed(expectSize(op, "columns of x", dim(op.getX(), 1), head.inputs,
                        "the inputs of head")))
    return failure();
  // C2
  if (failed(expectSize(op, "columns of teacher", dim(op.getTeacher(), 1),
                        teacher.inputs, "the inputs of teacher_head")))
    return failure();
  // C3
  const int64_t tokens = dim(op.getX(), 0);
  if (failed(expectSize(op, "rows of teacher", dim(op.getTeacher(), 0), tokens,
                        "the rows of x")) ||
      failed(expectSize(op, "length of labels", dim(op.getLabels(), 0), tokens,
                        "the rows of x")))
    return failure();
  for (const NamedVector &vector : vectors)
    if (failed(expectSize(op, vector.what, dim(vector.value, 0), tokens,
                          "the rows of x")))
      return failure();
  // C4
  return expectSize(op, "outputs of teacher_head", teacher.outputs,
                    head.outputs, "the outputs of head");
}

/// Constraint C5 of those that have gradients.
template <typename Op> static LogicalResult expectGradients(Op op) {
  const WeightShape head = getWeightShape(op.getHead().getType());
  if (failed(expectShapeOf(op, "dx", op.getDx(), op.getX(), "x")) ||
      failed(expectSize(op, "rows of dhead", dim(op.getDhead(), 0),
                        head.outputs, "the outputs of head")))
    return failure();
  return expectSize(op, "columns of dhead", dim(op.getDhead(), 1), head.inputs,
                    "the inputs of head");
}

LogicalResult DistillationOp::verify() {
  // C1 to C4
  return expectTeacher(
      *this, {{"length of nll", getNll()}, {"length of kl", getKl()}});
}

LogicalResult DistillationVjpOp::verify() {
  // C1 to C4
  if (failed(
          expectTeacher(*this, {{"length of nll_cotangent", getNllCotangent()},
                                {"length of kl_cotangent", getKlCotangent()}})))
    return failure();
  // C5
  return expectGradients(*this);
}

LogicalResult DistillationStepOp::verify() {
  // C1 to C4
  if (failed(
          expectTeacher(*this, {{"length of nll_cotangent", getNllCotangent()},
                                {"length of kl_cotangent", getKlCotangent()},
                                {"length of nll", getNll()},
                                {"length of kl", getKl()}})))
    return failure();
  // C5
  if (failed(expectGradients(*this)))
    return failure();
  if (!getTransposed())
    return success();
  // C6
  const WeightShape head = getWeightShape(getHead().getType());
  const WeightShape transposed = getWeightShape(getTransposed().getType());
  if (failed(expectSize(*this, "inputs of transposed", transposed.inputs,
                        head.outputs, "the outputs of head")))
    return failure();
  return expectSize(*this, "outputs of transposed", transposed.outputs,
                    head.inputs, "the inputs of head");
}
