//===- TargetPasses.td - Phase 6 passes ---------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def StemLowerToHostPass : Pass<"stem-lower-to-host", "::mlir::ModuleOp"> {
  let summary = "Lower buffers, loops and runtime calls to the LLVM dialect";
  let description = [{
    Turns a module of functions on buffers into one of the LLVM dialect that
    calls nothing but the runtime, through include/stem-c/Runtime.h. Every
    function gets the context as its first argument.

    ```mlir
    func.func @decode(%x: memref<?x64xf32> {stem.name = "x", stem.rows = "tokens"},
                      %w: !stem.packed<64x64xf32> {stem.param = @w},
                      %y: memref<?x64xf32> {stem.name = "y", stem.output, stem.rows = "tokens"})
        attributes {stem.entry} {
      stem.packed_matmul %x, %w[%c0, %c0] into %y : ...
      return
    }
    // becomes
    llvm.func internal @decode_body(%context: !llvm.ptr, ...) -> i32 {
      llvm.call @stem_packed_matmul(%context, ...) : ...
      llvm.return %ok : i32
    }
    llvm.func internal @decode(%context: !llvm.ptr, %arguments: !llvm.ptr,
                               %count: i64, %arena: !llvm.ptr,
                               %arena_bytes: i64) -> i32
    llvm.func @stem_module_query(%abi_version: i32) -> !llvm.ptr
    ```

    An entry (`stem.entry`) checks the number, types, shapes and strides of its
    arguments, that the token count is a positive multiple of `stem.tile`, the
    shapes of the cache and of the store's tables, that the arena is large
    enough, and that ids lie in their bounds; then it calls its body.
    Attributes of its arguments: `stem.name`; `stem.param` names a parameter,
    `stem.table` the table of an argument of table type, `stem.output` marks
    what the step writes, `stem.rows` says what a dynamic leading size counts
    ("tokens", "outputs"), `stem.id_bound` bounds ids, `stem.label_bound`
    labels, of which -100 is none; `stem.row_index` marks numbers of the step's
    tokens. All tables come as one argument, the store, behind the others; a
    table's number is the position of its symbol among the tables of the
    module.

    `stem.plan_rows`, `stem.prefetch`, `stem.await` and `stem.release` are a
    call each, after the checks of `stem-verify-tables`. A plan is given back on
    every way out, and with it the tickets that a failure left.

    `stem.parallel_call` stores its captures on the stack and hands them to
    `stem_parallel_for`. `!stem.packed` is the address of the panels, so a page
    of the cache and a weight are one type.

    Only `stem_module_query` is exported; it gives a description of entries,
    arguments and tables (`stem_module`).

    Runs last: after `stem-plan-memory`, `stem-outline-parallel` and
    `stem-expand-math`.

    NOTE: ops that would become calls into the C library (most of `math`) or an
    allocation are errors, and so are copies of strided buffers.
  }];
  let options = [
    Option<"isa", "stem-isa", "int32_t", /*default=*/"0",
           "The instruction set that the module asks for, a stem_isa. Without "
           "that of bf16, conversions to bf16 are spelled out.">
  ];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::affine::AffineDialect",
    "::mlir::arith::ArithDialect", "::mlir::cf::ControlFlowDialect",
    "::mlir::func::FuncDialect", "::mlir::index::IndexDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::ub::UBDialect",
    "::mlir::vector::VectorDialect", "::stem::StemDialect"
  ];
}
