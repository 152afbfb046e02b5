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
  Option<"tokens", "stem-tokens", "int64_t", /*default=*/"8",
         "Size of every dynamic dimension of an argument.">,
  Option<"sequences", "stem-sequences", "int64_t", /*default=*/"1",
         "Cut the tokens into this many sequences of consecutive positions.">,
  Option<"past", "stem-past", "int64_t", /*default=*/"0",
         "Positions of each sequence that a cache holds before the run.">,
  Option<"idBound", "stem-id-bound", "int64_t", /*default=*/"16",
         "Ids lie below this where neither `stem.id_bound` nor a use of the "
         "argument says less.">,
  Option<"maxSteps", "stem-max-steps", "int64_t", /*default=*/"4294967296",
         "Executed ops and multiply-adds before the interpreter gives up.">
];

def StemInterpretPass : Pass<"stem-interpret", "::mlir::ModuleOp"> {
  let summary = "Run functions in double precision and print their results";
  let description = [{
    Executes functions on tensors with the reference interpreter and prints
    their results to standard output. All floating-point values are doubles
    that are never rounded to the type the IR gives them, and sums are taken
    in index order: what it prints is the reference for every pass.

    Arguments are made from the seed and their number: floats are multiples of
    1/64 in [-1, 1); an `i32` vector holds positions, sequences or ids as its
    uses (or the argument attribute `stem.role`) say. Parameters and tables
    are made from the seed and their checkpoint key, so they keep their values
    when a pass packs them, or turns them into arguments with the attribute
    `stem.param`. The module is left as it is; the pass may stand at several
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
