//===- StemStateOps.td - Parameters and tables -------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_STATE_OPS_TD
#define STEM_DIALECT_STEM_STATE_OPS_TD

def Stem_ParamOp : Stem_Op<"param", [Symbol]> {
  let summary = "A weight, bound to data when the program is loaded";
  let description = [{
    Names a tensor of the checkpoint. The IR never holds its values.

    Constraints: C1 the type is a ranked tensor with a static shape; C2 the
    key is not empty.

    ```mlir
    stem.param @l0.gate = "model.layers.0.mlp.gate_proj.weight" : tensor<1536x576xbf16>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$key,
                       TypeAttrOf<AnyRankedTensor>:$type);
  let assemblyFormat = "$sym_name `=` $key `:` $type attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() {
      return ::llvm::cast<::mlir::RankedTensorType>(getType());
    }
  }];
}

def Stem_TableOp : Stem_Op<"table", [Symbol]> {
  let summary = "A per-layer table, opened when the program is loaded";
  let description = [{
    Names the rows of one STEM layer. Constraints: C1 the key is not empty.

    ```mlir
    stem.table @l2.up = "model.layers.2.mlp.up_table.weight" : !stem.table<49152x1536xbf16>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$key,
                       TypeAttrOf<Stem_TableType>:$type);
  let assemblyFormat = "$sym_name `=` $key `:` $type attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::stem::TableType getTableType() {
      return ::llvm::cast<::stem::TableType>(getType());
    }
  }];
}

def Stem_ParamLoadOp : Stem_Op<"param_load", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The value of a parameter";
  let description = [{
    With `transposed` that of a matrix `[N, K]` as `[K, N]`, which the product
    with it in the other direction takes as its weight.

    Constraints: C1 the symbol names a `stem.param`; C2 the result type is the
    parameter's, transposed or not; C3 what is transposed is a matrix.
  }];
  let arguments = (ins FlatSymbolRefAttr:$param, UnitAttr:$transposed);
  // Version 1 of the dialect knew no `transposed`.
  let useCustomPropertiesEncoding = 1;
  let results = (outs AnyTypeOf<[AnyRankedTensor, Stem_PackedType]>:$result);
  let assemblyFormat = [{
    (`transposed` $transposed^)? $param `:` type($result) attr-dict
  }];
}

def Stem_TableLoadOp : Stem_Op<"table_load", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The handle of a table";
  let description = [{
    Constraints: C1 the symbol names a `stem.table`; C2 the result type is the
    table's.
  }];
  let arguments = (ins FlatSymbolRefAttr:$table);
  let results = (outs Stem_TableType:$result);
  let assemblyFormat = "$table `:` qualified(type($result)) attr-dict";
}

#endif // STEM_DIALECT_STEM_STATE_OPS_TD
