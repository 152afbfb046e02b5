//===- StemInterfaces.td - Interfaces of the stem dialect --*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_INTERFACES_TD
#define STEM_DIALECT_STEM_INTERFACES_TD

include "mlir/IR/OpBase.td"

def Stem_CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::stem";
  let description = [{
    What one execution of an op costs. A dimension that is not known counts as
    `tokens`.
  }];
  let methods = [
    InterfaceMethod<"FLOPs (a multiply-add is two), bytes moved when nothing is "
                    "cached, and parameters held by the op's weights.",
                    "::stem::OpCost", "getCost", (ins "int64_t":$tokens)>
  ];
}

def Stem_TokenwiseOpInterface : OpInterface<"TokenwiseOpInterface"> {
  let cppNamespace = "::stem";
  let description = [{
    An op whose result row `t` depends on row `t` of its token operands alone,
    so that it can be executed on any tile of tokens.
  }];
  let methods = [
    InterfaceMethod<"Whether operand `index` has the token dimension first.",
                    "bool", "isTokenOperand", (ins "unsigned":$index)>
  ];
}

def Stem_VjpOpInterface : OpInterface<"VjpOpInterface"> {
  let cppNamespace = "::stem";
  let description = [{
    A differentiable op: its vector-Jacobian product, which makes the cotangents
    of its operands from those of its results. Rules know nothing of each other;
    stem-autodiff orders them and adds up what meets.
  }];
  let methods = [
    InterfaceMethod<
      "Builds the product at `builder`. `cotangents` has one value for each "
      "result, null where nothing flows in; `adjoints` one place for each "
      "operand, which stays null where the operand has no derivative. Operands "
      "and results of the op may be used: they become residuals. A rule that "
      "cannot be built says why on the op.",
      "::llvm::LogicalResult", "buildVjp",
      (ins "::mlir::OpBuilder &":$builder,
           "::llvm::ArrayRef<::mlir::Value>":$cotangents,
           "::llvm::MutableArrayRef<::mlir::Value>":$adjoints)>,
    InterfaceMethod<
      "Whether the rule takes a floating-point operand as data, and gives it no "
      "adjoint.",
      "bool", "isDataOperand", (ins "unsigned":$index), /*methodBody=*/"",
      /*defaultImplementation=*/"return false;">
  ];
}

#endif // STEM_DIALECT_STEM_INTERFACES_TD
