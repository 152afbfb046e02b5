//===- ReferencePasses.td - Running and measuring IR -------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

defvar referenceOptions = [
  Option<"function", "stem-function", "std::string", /*default=*/"",
         "The function to run; without it every public function.">,
  Option<"seed", "stem-seed", "uint64_t", /*default=*/"0",
         "Seeds the arguments and the parameters.">,
  Option<"tokens", "stem-tokens", "int64_t", /*default=*/"-1",
         "Size of every dynamic dimension of an argument, a multiple of the "
         "function's `stem.tile`; -1 is 8, rounded up to that.">,
  Option<"sequences", "stem-sequences", "int64_t", /*default=*/"1",
         "Cut the tokens into this many sequences of consecutive positions.">,
  Option<"past", "stem-past", "int64_t", /*default=*/"0",
         "Positions of each sequence that a cache holds before the run.">,
  Option<"idBound", "stem-id-bound", "int64_t", /*default=*/"16",
         "Ids lie below this where neither `stem.id_bound` nor a use of the "
         "argument says less.">,
  Option<"maxSteps", "stem-max-steps", "int64_t", /*default=*/"::stem::kDefaultMaxSteps",
         "Executed ops and multiply-adds before the interpreter gives up; the "
         "default is some ten seconds of ops.">
];

def StemInterpretPass : Pass<"stem-interpret", "::mlir::ModuleOp"> {
  let summary = "Run functions in double precision and print their results";
  let description = [{
    Executes functions on tensors with the reference interpreter and prints
    their results to standard output. All floating-point values are doubles
    that are never rounded to the type the IR gives them, and sums are taken
    in index order: what it prints is the reference for every pass.

    Arguments are made from the seed and their number: floats are multiples of
    1/64 in [-1, 1); an `i32` vector holds positions, sequences, ids or
    selected ids (which rise) as its uses (or the argument attribute
    `stem.role`) say. Parameters and tables
    are made from the seed and their checkpoint key, so they keep their values
    when a pass packs them, or turns them into arguments with the attribute
    `stem.param` or `stem.table`. The module is left as it is; the pass may stand at several
    places of a pipeline to compare what comes before and after others.

    It knows the `stem` ops on tensors, `arith`, `math`, `index`, `affine`
    maps, `tensor`, every `linalg` op with a body, `scf.for`, `scf.if`,
    `scf.forall`, calls, and the part of `tosa` that exporters use for
    transformers. Any other op is an error.
  }];
  let options = referenceOptions # [
    Option<"print", "stem-print", "std::string", /*default=*/"\"summary\"",
           "`summary` (sum, range and first values of each result) or `full` "
           "(all values).">
  ];
}

def StemDifferentialPass : Pass<"stem-differential", "::mlir::ModuleOp"> {
  let summary = "Name the first pass of a pipeline that changes numbers";
  let description = [{
    Runs a pipeline on a copy of the module. The reference interpreter runs
    the functions before the first pass and after each one; a pass after which
    a result differs by more than the tolerance is an error that names the
    pass, the function and the element. Where the interpreter does not know an
    op, or a function does not return tensors any more, a remark says so and
    the comparison goes on after the next pass. The module itself is left as
    it is.

    ```
    stem-opt --stem-differential='stem-pipeline=stem-fuse-ffn,canonicalize' model.mlir
    ```
  }];
  let options = referenceOptions # [
    Option<"pipeline", "stem-pipeline", "std::string", /*default=*/"",
           "The passes to run, in the syntax of --pass-pipeline, with or "
           "without `builtin.module(...)` around them.">,
    Option<"tolerance", "stem-tolerance", "double", /*default=*/"1e-9",
           "Largest difference, relative to the larger of one and the "
           "magnitude of the reference.">
  ];
}

def StemPrintCostPass : Pass<"stem-print-cost", "::mlir::ModuleOp"> {
  let summary = "Print FLOPs, bytes and the roofline share of each op";
  let description = [{
    Prints a line for each op with the cost interface and each linalg op, in
    every function, and the sums, to standard output. The time of an op is the
    larger of its FLOPs over the rate and its bytes over the bandwidth; its
    share is that of its function. `bound` says which of the two it is. Calls
    count as what they call.

    A linalg op has as many FLOPs as its body has arithmetic ops on floats,
    times the product of its loops; its operands are read once, a destination
    that the body uses is read and written, and each element that the body
    picks from a tensor itself is one more. An op in a loop counts once for each
    round; its parameters count once. NOTE: a loop whose bounds depend on more
    than sizes counts as one round: in the structured phase that is the loop over
    the pages of attention, whose `stem.packed_matmul` lines are the cost of one
    page; `stem.attention` and `stem.attend` count half of the tokens. What
    `stem-vectorize` makes of linalg ops has no line. An op whose cost is beyond
    64 bits is an error.
  }];
  let options = [
    Option<"tokens", "stem-tokens", "int64_t", /*default=*/"1",
           "What a dynamic dimension counts as.">,
    Option<"gflops", "stem-gflops", "double", /*default=*/"100.0",
           "The machine's rate of matrix products in GFLOP/s.">,
    Option<"bandwidth", "stem-bandwidth-gbs", "double", /*default=*/"20.0",
           "The machine's memory bandwidth in GB/s.">,
    Option<"json", "stem-json", "bool", /*default=*/"false",
           "Print one JSON object in place of the table.">
  ];
}
