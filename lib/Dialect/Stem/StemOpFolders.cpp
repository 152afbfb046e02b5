//===- StemOpFolders.cpp - What is known without running -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Only what gives the same bits.

#include "stem/Dialect/Stem/StemDialect.h"

using namespace mlir;
using namespace stem;

// Pattern: mix(up, x, a : [F, 0], b) -> up
OpFoldResult MixOp::fold(FoldAdaptor) {
  if (getWeightShape(getA().getType()).inputs == 0 &&
      getUp().getType() == getType())
    return getUp();
  return {};
}

// Pattern: select_up(up, x, weight, ids, selected : [0]) -> up
OpFoldResult SelectUpOp::fold(FoldAdaptor) {
  if (getSelected().getType().getDimSize(0) == 0 &&
      getUp().getType() == getType())
    return getUp();
  return {};
}
