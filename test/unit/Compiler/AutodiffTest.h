//===- AutodiffTest.h - Derives a function and compares ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each test derives a function @f and runs @f and @f_vjp in the reference
// interpreter, which rounds nothing. Every gradient is compared, element by
// element, with the central difference of sum(cotangent * result); what has no
// gradient must have no difference either, unless it is frozen. The passes that
// take gradients apart and transpose weights must not change a number.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_COMPILER_AUTODIFFTEST_H
#define STEM_TEST_UNIT_COMPILER_AUTODIFFTEST_H

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Reference/Interpreter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "gtest/gtest.h"

#include <map>

namespace stem {

using namespace mlir;

using Shape = SmallVector<int64_t>;

class AutodiffTest : public ::testing::Test {
protected:
  AutodiffTest() {
    context.loadDialect<StemDialect, func::FuncDialect, arith::ArithDialect,
                        tensor::TensorDialect, linalg::LinalgDialect>();
  }

  /// Parses a module and derives its @f.
  void load(const std::string &text);
  void setState(StringRef key, Type type);
  /// Derives and compares: @f gets the vectors of ids, in their order, and
  /// random numbers in its other arguments, whose dynamic sizes are `tokens`.
  void check(const std::string &text, int64_t tokens,
             ArrayRef<std::vector<double>> ids = {});

  void makeArguments(int64_t tokens, ArrayRef<std::vector<double>> ids);
  void runBackward();
  void compareArguments();
  void compareState();
  void compareStep();

  double objective();
  ReferenceTensor differences(const ReferenceTensor &at,
                              function_ref<void(ReferenceTensor)> set);
  void compare(const std::string &what, const ReferenceTensor *gradient,
               const ReferenceTensor &wanted, bool frozen);
  ReferenceTensor scatter(const ReferenceTensor &ids,
                          const ReferenceTensor &rows, int64_t count);

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp function, vjp;
  std::unique_ptr<Interpreter> interpreter;
  std::map<std::string, ReferenceTensor> state;
  SmallVector<ReferenceValue> arguments, cotangents;
  /// What @f_vjp gave: by argument, by symbol, and a table's ids.
  std::map<int64_t, ReferenceTensor> ofArgument;
  std::map<std::string, ReferenceTensor> ofSymbol, idsOf;
};

} // namespace stem

#endif // STEM_TEST_UNIT_COMPILER_AUTODIFFTEST_H
