//===- StemOps.td - Operations of the stem dialect ---------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_OPS_TD
#define STEM_DIALECT_STEM_OPS_TD

include "stem/Dialect/Stem/StemBase.td"
include "stem/Dialect/Stem/StemInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"

class Stem_Op<string opMnemonic, list<Trait> traits = []>
    : Op<Stem_Dialect, opMnemonic, traits>;

def Stem_IdVector : 1DTensorOf<[I32]>;
def Stem_FloatVector : 1DTensorOf<[F32, BF16, F16, F64]>;
def Stem_FloatMatrix : 2DTensorOf<[F32, BF16, F16, F64]>;
def Stem_F32Vector : 1DTensorOf<[F32]>;
def Stem_F32Matrix : 2DTensorOf<[F32]>;

// Row t of every result depends on row t of the token operands alone.
class Stem_TokenwiseOp<string opMnemonic, list<Trait> traits = []>
    : Stem_Op<opMnemonic, traits # [
        DeclareOpInterfaceMethods<Stem_CostOpInterface>,
        DeclareOpInterfaceMethods<Stem_TokenwiseOpInterface>]> {
  let hasVerifier = 1;
}

def Stem_Differentiable : DeclareOpInterfaceMethods<Stem_VjpOpInterface>;
def Stem_DifferentiableWithData
    : DeclareOpInterfaceMethods<Stem_VjpOpInterface, ["isDataOperand"]>;

class Stem_PureTokenwiseOp<string opMnemonic, list<Trait> traits = []>
    : Stem_TokenwiseOp<opMnemonic, traits # [Pure]>;

include "stem/Dialect/Stem/StemStateOps.td"
include "stem/Dialect/Stem/StemTransformerOps.td"
include "stem/Dialect/Stem/StemTableOps.td"
include "stem/Dialect/Stem/StemGradientOps.td"
include "stem/Dialect/Stem/StemStepOps.td"
include "stem/Dialect/Stem/StemOptimizerOps.td"
include "stem/Dialect/Stem/StemScheduleOps.td"

#endif // STEM_DIALECT_STEM_OPS_TD
