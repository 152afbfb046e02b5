//===- StemBase.td - The stem dialect ----------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_BASE_TD
#define STEM_DIALECT_STEM_BASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Stem_Dialect : Dialect {
  let name = "stem";
  let cppNamespace = "::stem";
  let summary = "Transformers whose gated FFN reads a row of a per-layer table";
  let description = [{
    The `stem` dialect describes decoder-only transformers at the level where
    the decisions of this compiler are made: which rows a step needs, what is
    fused, what is kept. An op exists here because a pass has to see it whole.

    Activations are flat: the tokens of all sequences of a step form one
    leading dimension `T`; two `i32` vectors of length `T` say which position
    of which sequence each token is. Weights are laid out `[out, in]`, as
    checkpoints hold them. Sizes below: `D` hidden, `F` FFN, `V` rows of a
    table, `H` query heads, `G` key-value heads, `E` head_dim.

    Attributes of the dialect on ops and arguments of others. Constraints: A1
    each stands where the list says; A2 it is what the list says.

    - on functions: `stem.entry` (unit: the runtime calls it), `stem.tile` (a
      positive i64, the tokens of one tile), and what an entry's memory
      takes, `stem.fixed_bytes`, `stem.bytes_per_token`,
      `stem.bytes_per_output`, `stem.bytes_per_thread` (i64, not negative);
    - on `stem.table`: `stem.from` (string: the key of the matrix that it
      replaces), `stem.init` (string: how its rows start);
    - on `stem.param` and `stem.table`: `stem.frozen` (unit: no gradient is
      asked for);
    - on results: `stem.gradient_of` (the symbol whose gradient, or the rows of
      whose gradient, it is), `stem.gradient_ids_of` (the symbol of the table
      whose rows have these ids) and `stem.gradient_of_argument` (i64, not
      negative: the number of the argument whose gradient it is);
    - on arguments: `stem.name` (string, in the artefact's description),
      `stem.rows` (string: what its dynamic rows count), `stem.output` (unit:
      the result is built there), `stem.param`, `stem.table` (the symbol that
      is bound to it), `stem.transposed` (unit: with
      rows and columns exchanged), `stem.id_bound` (positive i64: ids lie below it),
      `stem.label_bound` (the same for labels, of which -100 is none),
      `stem.row_index` (unit: it numbers tokens of the step),
      `stem.output_index` (unit: it numbers output rows), `stem.gradient_of` (as
      on results, of an argument that one is built in), `stem.state_of` (the
      symbol whose optimizer state is updated there), `stem.role`
      (`"ids"`, `"positions"` or `"sequences"`, for the interpreter),
      `stem.scratch`, `stem.arena` (unit: planned memory),
      `stem.scratch_cache` (unit: a cache that holds nothing between steps).
  }];
  let useDefaultTypePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect"];
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Version written into bytecode; a reader accepts this and older ones.
    static constexpr int64_t kBytecodeVersion = 2;

    /// Function attribute: the number of rows of one token tile.
    static constexpr ::llvm::StringLiteral kTileAttr = "stem.tile";
    /// Function attribute: an exported entry of the artefact.
    static constexpr ::llvm::StringLiteral kEntryAttr = "stem.entry";
    /// Argument attribute: ids in this vector lie in [0, bound).
    static constexpr ::llvm::StringLiteral kIdBoundAttr = "stem.id_bound";
    /// Argument attribute: labels in this vector lie there too, or are -100.
    static constexpr ::llvm::StringLiteral kLabelBoundAttr = "stem.label_bound";
    /// Argument attribute (unit): this vector numbers tokens of the step.
    static constexpr ::llvm::StringLiteral kRowIndexAttr = "stem.row_index";
    /// Argument attribute (unit): this vector numbers rows of outputs.
    static constexpr ::llvm::StringLiteral kOutputIndexAttr =
        "stem.output_index";
    /// Argument attributes: the stem.param or stem.table bound to it.
    static constexpr ::llvm::StringLiteral kParamAttr = "stem.param";
    static constexpr ::llvm::StringLiteral kTableAttr = "stem.table";
    /// Argument attribute (unit): the parameter is bound transposed.
    static constexpr ::llvm::StringLiteral kTransposedAttr = "stem.transposed";
    /// Argument attribute: its name in the artefact's description.
    static constexpr ::llvm::StringLiteral kNameAttr = "stem.name";
    /// Argument attribute: what its dynamic rows count, "tokens" or "outputs".
    static constexpr ::llvm::StringLiteral kRowsAttr = "stem.rows";
    /// Argument attribute (unit): the returned value is built here.
    static constexpr ::llvm::StringLiteral kOutputAttr = "stem.output";
    /// Argument attribute: what an i32 vector holds, "ids", "positions" or
    /// "sequences".
    static constexpr ::llvm::StringLiteral kRoleAttr = "stem.role";
    /// Argument attributes (unit): the scratch of all threads and the arena.
    static constexpr ::llvm::StringLiteral kScratchAttr = "stem.scratch";
    static constexpr ::llvm::StringLiteral kArenaAttr = "stem.arena";
    /// Argument attribute (unit): a cache that holds nothing between steps.
    static constexpr ::llvm::StringLiteral kScratchCacheAttr =
        "stem.scratch_cache";
    /// Entry attributes: bytes of the arena, in all and for each token and
    /// output row, and bytes of scratch for each thread.
    static constexpr ::llvm::StringLiteral kFixedBytesAttr = "stem.fixed_bytes";
    static constexpr ::llvm::StringLiteral kTokenBytesAttr =
        "stem.bytes_per_token";
    static constexpr ::llvm::StringLiteral kOutputBytesAttr =
        "stem.bytes_per_output";
    static constexpr ::llvm::StringLiteral kThreadBytesAttr =
        "stem.bytes_per_thread";
    /// stem.table attributes: the key of the matrix that it replaces, and how
    /// its rows start.
    static constexpr ::llvm::StringLiteral kFromAttr = "stem.from";
    static constexpr ::llvm::StringLiteral kInitAttr = "stem.init";
    /// stem.param and stem.table attribute (unit): no gradient is asked for.
    static constexpr ::llvm::StringLiteral kFrozenAttr = "stem.frozen";
    /// Argument attribute: the stem.param whose weight in f32, or moment of an
    /// optimizer, is read and updated there.
    static constexpr ::llvm::StringLiteral kStateOfAttr = "stem.state_of";
    /// Result attributes: the symbol whose gradient it is, or whose rows' ids.
    static constexpr ::llvm::StringLiteral kGradientOfAttr =
        "stem.gradient_of";
    static constexpr ::llvm::StringLiteral kGradientIdsOfAttr =
        "stem.gradient_ids_of";
    static constexpr ::llvm::StringLiteral kGradientOfArgumentAttr =
        "stem.gradient_of_argument";

    void registerTypes();
  }];
}

class Stem_Type<string name, string typeMnemonic, list<Trait> traits = []>
    : TypeDef<Stem_Dialect, name, traits> {
  let mnemonic = typeMnemonic;
}

def Stem_TableType : Stem_Type<"Table", "table"> {
  let summary = "A per-layer table of V rows with F columns";
  let description = [{
    `!stem.table<V x F x T>` is a handle to rows that may live anywhere: the
    placement is not part of the type, and no op but `stem.table_rows`, later
    `stem.prefetch`, reads one. Constraints: C1 `V` and `F` are positive; C2 the element type is
    `f32`, `bf16` or `f16`.
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$columns,
                        "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Stem_PackedType : Stem_Type<"Packed", "packed"> {
  let summary = "The right-hand matrix of a product, in the kernels' layout";
  let description = [{
    `!stem.packed<K x N x T>`: a `K x N` matrix in column panels, as the
    matrix kernels of the target read it (the runtime's `stem_pack_weight`
    writes it). Constraints: C1 `K` and `N` are positive; C2 the element type
    is `f32` or `bf16`.
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$columns,
                        "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Columns of one panel.
    static constexpr int64_t kPanelColumns = 64;
  }];
}

def Stem_RowGradientType : Stem_Type<"RowGradient", "row_gradient"> {
  let summary = "The gradient of a table: pairs of a row's number and a row";
  let description = [{
    `!stem.row_gradient<F x T>`: any number of pairs, each a number and `F`
    elements; the gradient of a row is the sum of its pairs. Constraints: C1
    `F` is positive; C2 the element type is `f32` or `f64`.
  }];
  let parameters = (ins "int64_t":$columns, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Stem_RowPlanType : Stem_Type<"RowPlan", "row_plan"> {
  let summary = "A handle to the different ids of a step";
  let description = [{
    Owned by the table store until the entry returns.
  }];
}

def Stem_TicketType : Stem_Type<"Ticket", "ticket"> {
  let summary = "A handle to rows of a table that are on their way";
  let description = [{
    `!stem.ticket<F x T>`: rows of `F` elements, owned by the table store until
    the ticket is released. Constraints: C1 `F` is positive; C2 the element type
    is `f32`, `bf16` or `f16`.
  }];
  let parameters = (ins "int64_t":$columns, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Stem_KVCacheType : Stem_Type<"KVCache", "kv_cache"> {
  let summary = "A handle to the keys and values of past positions";
  let description = [{
    Fixed pages of keys and values per layer, sequence and key-value head,
    owned by the runtime and updated in place.
  }];
}

#endif // STEM_DIALECT_STEM_BASE_TD
