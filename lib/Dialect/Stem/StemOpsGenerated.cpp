//===- StemOpsGenerated.cpp - Generated op definitions ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The largest unit of the dialect: apart, so that a change to a verifier does
// not compile it again.

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

#define GET_OP_CLASSES
#include "stem/Dialect/Stem/StemOps.cpp.inc"
