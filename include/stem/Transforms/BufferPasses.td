//===- BufferPasses.td - Phase 5 passes ---------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def StemPlanMemoryPass : Pass<"stem-plan-memory", "::mlir::ModuleOp"> {
  let summary = "Give every buffer a place in one arena";
  let description = [{
    Replaces each `memref.alloc` and `memref.alloca` by a view of memory that
    the caller of the program provides, so that a step allocates nothing. A
    function that needs memory, or calls one that does, gets two more
    arguments: the scratch of all threads, and an arena.

    ```mlir
    func.func private @layer(%x: memref<?x576xf32>) {
      %c0 = arith.constant 0 : index
      %t = memref.dim %x, %c0 : memref<?x576xf32>
      %a = memref.alloc(%t) : memref<?x64xf32>
      "use"(%a) : (memref<?x64xf32>) -> ()
      return
    }
    // becomes
    func.func private @layer(%x: memref<?x576xf32>,
                             %scratch: memref<?xi8> {stem.scratch},
                             %arena: memref<?xi8> {stem.arena}) {
      ...
      %a = memref.view %arena[%offset][%t] : memref<?xi8> to memref<?x64xf32>
      "use"(%a) : (memref<?x64xf32>) -> ()
      return
    }
    ```

    A buffer lives from the first to the last op of the function's body that
    touches it or a view of it; buffers that do not live at the same time may
    share a place. Offsets are multiples of 64 bytes. The arena holds buffers
    of a static size, then those with a row for each token, then those with a
    row for each output. The callee's frame begins where the caller's ends. A
    buffer of a static size inside an `scf.forall` lies in the scratch of the
    thread that runs the body; one with token or output rows has a copy for
    each task in the arena.

    What a dynamic size counts follows from `memref.dim` of arguments: an
    argument attribute `stem.rows` is "tokens" or "outputs", other functions
    inherit from their callers. `memref.dealloc` is dropped.

    Entries (`stem.entry`) get the attributes `stem.fixed_bytes`,
    `stem.bytes_per_token`, `stem.bytes_per_output` and
    `stem.bytes_per_thread`, callees included; the sum is also an analysis
    remark of the category `stem-plan-memory`.

    Runs after bufferization and before `stem-outline-parallel`.

    NOTE: buffers whose size is not linear in tokens and outputs, calls from
    inside `scf.forall` to functions with buffers, buffers carried from one
    iteration of a loop to the next and recursion are errors.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect",
    "::stem::StemDialect"
  ];
}

def StemOutlineParallelPass : Pass<"stem-outline-parallel", "::mlir::ModuleOp"> {
  let summary = "Make functions of the bodies of parallel loops";
  let description = [{
    Each outermost `scf.forall` on buffers becomes a `stem.parallel_call` of a
    private function that runs one of its tasks. Several dimensions are
    counted as one, row by row. Constants are cloned into the function, other
    values from outside are its captures.

    ```mlir
    func.func private @layer(%x: memref<?x576xf32>, %tiles: index) {
      scf.forall (%i) in (%tiles) {
        %t = stem.thread_index
        "use"(%x, %i, %t) : (memref<?x576xf32>, index, index) -> ()
      }
      return
    }
    // becomes
    func.func private @layer(%x: memref<?x576xf32>, %tiles: index) {
      stem.parallel_call @layer_par0 tasks %tiles(%x) : memref<?x576xf32>
      return
    }
    func.func private @layer_par0(%task: index, %thread: index,
                                  %x: memref<?x576xf32>) {
      "use"(%x, %task, %thread) : (memref<?x576xf32>, index, index) -> ()
      return
    }
    ```

    Loops of the same body share one function, whatever functions they stand
    in: a step updates each layer's parameters in its entry, and compiles the
    update of each shape once.

    `scf.forall` inside another one becomes `scf.for`: the threads are busy
    already. `stem.thread_index` outside of every parallel loop is 0.

    Runs after `stem-plan-memory`, which needs to see the loops, and before
    the lowering of `scf`.

    NOTE: loops with results (on tensors) are errors, and so is a call from
    inside a loop to a function that has parallel loops or asks for its thread.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::scf::SCFDialect", "::stem::StemDialect"
  ];
}

def StemVerifyBuffersPass : Pass<"stem-verify-buffers", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for the target phase";
  let description = [{
    Ends the buffer phase. Reports every offending op, then fails.
    Constraints: B1 ops are those of functions, memref, scf, `affine`, `arith`,
    `math` and `vector`, and of stem `param`, `table`, `plan_rows`,
    `prefetch`, `await`, `release`, `packed_matmul`, `packed_gather`, `pack_tokens`, `transpose_tokens`,
    `panel_matmul`, `kv_append`, `kv_page` and `parallel_call`; B2 none
    allocates memory or frees it; B3 loops are sequential or outlined; B4 no op
    gives a tensor.

    ```mlir
    %m = memref.alloc() : memref<4xf32>
    // error: 'memref.alloc' op does not belong at the end of the buffer phase
    ```

    Runs after `stem-plan-memory` and `stem-outline-parallel`. The target phase
    ends with the checks of `stem-lower-to-host` itself.
  }];
}
