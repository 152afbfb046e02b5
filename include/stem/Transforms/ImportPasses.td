//===- ImportPasses.td - Phase 0 passes ---------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def StemExternalizeConstantsPass
    : Pass<"stem-externalize-constants", "::mlir::ModuleOp"> {
  let summary = "Move weights out of the IR into a safetensors file";
  let description = [{
    Float constants with at least `stem-min-elements` elements (`dense`,
    `dense_resource`, `tosa.const`, splats too) become `stem.param` symbols
    that are loaded where the constant stood, and their values are written to
    `stem-file`. Shapes are kept, `[1, K, N]` ones of TOSA too.

    ```mlir
    func.func @f() -> tensor<64x160xf32> {
      %0 = arith.constant dense_resource<w> : tensor<64x160xf32>
      return %0 : tensor<64x160xf32>
    }
    ```
    becomes
    ```mlir
    stem.param @w = "w" : tensor<64x160xf32>
    func.func @f() -> tensor<64x160xf32> {
      %0 = stem.param_load @w : tensor<64x160xf32>
      return %0 : tensor<64x160xf32>
    }
    ```

    A key is the name of the resource, or else the name of the function and the
    number of the constant in it. A resource that occurs twice is one
    parameter; equal `dense` constants are not, since they may be weights of
    different layers.

    Splats that are no weights stay: what an op with a destination starts from,
    and what is combined elementwise with a tensor of its own shape.

    The file appears whole or not at all, before the IR changes; without a
    constant to write there is no file. It must fit into the free space, and
    what it replaces must be a safetensors file: the name of the module itself,
    given by mistake, is an error. Run it before `stem-raise-ffn`, which
    then gives `stem.dense_ffn` on parameters.
  }];
  let dependentDialects = ["::stem::StemDialect"];
  let options = [
    Option<"file", "stem-file", "std::string", /*default=*/"",
           "The safetensors file to write; needed.">,
    Option<"minElements", "stem-min-elements", "int64_t",
           /*default=*/"::stem::kDefaultMinElements",
           "Constants with fewer elements stay in the IR.">
  ];
}

def StemRaiseFFNPass : Pass<"stem-raise-ffn", "::mlir::ModuleOp"> {
  let summary = "Recognise SwiGLU in linalg and TOSA";
  let description = [{
    Replaces `down(silu(gate(x)) * up(x))`, however an exporter wrote it, by
    `stem.dense_ffn`:

    ```mlir
    %g = linalg.matmul ins(%x, %wg : ...) outs(%zero : ...) -> tensor<8x160xf32>
    %s = linalg.generic ... ins(%g : ...) { ... g / (1 + exp(-g)) ... }
    %u = linalg.matmul ins(%x, %wu : ...) outs(%zero : ...) -> tensor<8x160xf32>
    %h = linalg.mul ins(%s, %u : ...) outs(...) -> tensor<8x160xf32>
    %y = linalg.matmul ins(%h, %wd : ...) outs(%zero2 : ...) -> tensor<8x64xf32>
    ```
    becomes
    ```mlir
    %y = stem.dense_ffn %x gate %wg_t up %wu_t down %wd_t : ...
    ```
    where a weight that is used as `[in, out]` is transposed and one that was
    transposed before its product is used as it is.

    The elementwise ops between the products (linalg named ops and generics,
    TOSA, arith and math on tensors) are read into one formula per element,
    which is compared with `g * sigmoid(g) * u` up to order and grouping.
    Products are linalg contractions and `tosa.matmul`; a bias is what a product
    starts from or what is added to it along the last dimension.

    A match is exact in real arithmetic, and the sums are taken in the type in
    which `stem.dense_ffn` takes them (f32, or f64 for f64). Values between
    products of bf16 or f16 may be rounded to that type in the input IR; these
    roundings are taken for storage and are not kept. What looks like an FFN but
    is not one, or has values or weights that are used elsewhere, stays as it
    is, and a remark (`--remarks-filter=stem-raise-ffn`) says why.

    NOTE: equal subexpressions are found, but two products of the same operands
    are two; run `cse` before.
  }];
  let dependentDialects = ["::stem::StemDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def StemVerifyImportPass : Pass<"stem-verify-import", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for the graph phase";
  let description = [{
    Ends the import phase. Reports every offending op, then fails.
    Constraints: I1 ops are `stem` ops of the graph phase or what exporters
    write and the interpreter knows: linalg ops with a body, on tensors, `tosa`,
    `tensor`, `arith`, `math`, `index`, functions, `affine.apply`, `max` and
    `min`, `scf.for`, `if` and `forall`; I2 no weight is left in the IR, that
    is, nothing that `stem-externalize-constants` would move out of it; I3 every
    tensor has a rank.

    ```mlir
    %w = arith.constant dense_resource<w> : tensor<64x160xf32>
    // error: 'arith.constant' op holds a weight of 10240 elements in the IR ...
    ```

    Runs after `stem-externalize-constants` and `stem-raise-ffn`. The graph
    phase allows less: what import could not raise is reported at its end.

    NOTE: symbols that an exporter leaves unused, as the seed of its random
    numbers, are offending too; `symbol-dce` removes them.
  }];
  let options = [
    Option<"minElements", "stem-min-elements", "int64_t",
           /*default=*/"::stem::kDefaultMinElements",
           "Constants with fewer elements may stay in the IR.">
  ];
}
