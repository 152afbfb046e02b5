//===- Passes.h - Passes and pipelines of Stem ------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRANSFORMS_PASSES_H
#define STEM_TRANSFORMS_PASSES_H

#include "stem/Transforms/Defaults.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <functional>
#include <memory>

namespace stem {

#define GEN_PASS_DECL
#include "stem/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "stem/Transforms/Passes.h.inc"

/// Where the budget cannot be met, `onExcess` gets the bytes that are kept, in
/// place of a warning in the pass's own words.
std::unique_ptr<mlir::Pass>
createStemRecomputePass(const StemRecomputePassOptions &options,
                        std::function<void(int64_t)> onExcess);

} // namespace stem

#endif // STEM_TRANSFORMS_PASSES_H
