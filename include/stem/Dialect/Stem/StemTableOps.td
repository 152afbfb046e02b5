//===- StemTableOps.td - Rows in place of the up-projection *- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_TABLE_OPS_TD
#define STEM_DIALECT_STEM_TABLE_OPS_TD

def Stem_TableRowsOp : Stem_Op<"table_rows", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "The rows of a table that a step needs";
  let description = [{
    Gives a matrix of rows and, for each token, the index of its row in that
    matrix: `table[ids[t]] = rows[index[t]]`. A resident table gives itself
    and the ids; a staged one the staging buffer and the inverse map. It is
    the only op of the graph phase that reads a table, and it stands in an entry
    function. `stem-insert-prefetch` puts `stem.prefetch` and `stem.await` in
    its place.

    Constraints: C1 `rows` has the columns and element type of the table; C2
    `index` has as many elements as `ids`.

    ```mlir
    %rows, %index = stem.table_rows %table, %ids : !stem.table<49152x1536xbf16>, tensor<?xi32> -> tensor<?x1536xbf16>, tensor<?xi32>
    ```
  }];
  let arguments = (ins Stem_TableType:$table, Stem_IdVector:$ids);
  let results = (outs Stem_FloatMatrix:$rows, Stem_IdVector:$index);
  let assemblyFormat = [{
    $table `,` $ids attr-dict `:` qualified(type($table)) `,` type($ids) `->`
    type($rows) `,` type($index)
  }];
  let hasVerifier = 1;
}

// Rows and ids of the table store, on tensors and on buffers.
def Stem_StoredRows : AnyTypeOf<[
  2DTensorOf<[F32, BF16, F16]>, MemRefRankOf<[F32, BF16, F16], [2]>]>;
def Stem_StoredIds : AnyTypeOf<[1DTensorOf<[I32]>, MemRefRankOf<[I32], [1]>]>;

// What a step does with the store happens in the order in which it stands.
class Stem_StoreOp<string opMnemonic>
    : Stem_Op<opMnemonic, [MemoryEffects<[MemRead, MemWrite]>]>;

def Stem_PlanRowsOp : Stem_StoreOp<"plan_rows"> {
  let summary = "Finds out which rows the ids of a step need";
  let description = [{
    Deduplicates the ids: the plan holds the different ones, and for each token
    the place of its own among them. It serves all tables that are looked up by
    these ids, which must not change while it does, and lasts until the entry
    returns.

    ```mlir
    %plan = stem.plan_rows %ids : tensor<?xi32>
    ```
  }];
  let arguments = (ins Stem_StoredIds:$ids);
  let results = (outs Stem_RowPlanType:$plan);
  let assemblyFormat = "$ids attr-dict `:` type($ids)";
}

def Stem_PrefetchOp : Stem_StoreOp<"prefetch"> {
  let summary = "Starts to read the rows of a plan";
  let description = [{
    Asks for the plan's rows of one table and waits for nothing. Unless the
    table is resident, the rows have their place in the staging memory from here
    until `stem.release` ends the ticket. `stem-verify-tables` says what becomes
    of every ticket.

    Constraints: C1 the ticket has the columns and the element type of the
    table.

    ```mlir
    %ticket = stem.prefetch %table, %plan : !stem.table<49152x1536xbf16> -> !stem.ticket<1536xbf16>
    ```
  }];
  let arguments = (ins Stem_TableType:$table, Stem_RowPlanType:$plan);
  let results = (outs Stem_TicketType:$ticket);
  let assemblyFormat = [{
    $table `,` $plan attr-dict `:` qualified(type($table)) `->`
    qualified(type($ticket))
  }];
  let hasVerifier = 1;
}

def Stem_AwaitOp : Stem_StoreOp<"await"> {
  let summary = "Waits for the rows of a ticket";
  let description = [{
    Gives a matrix of rows and, for each token, the index of its row in that
    matrix, as `stem.table_rows` does. Both are the store's: they are read-only
    and hold until the ticket is released.

    Constraints: C1 `rows` has the columns and element type of the ticket.

    ```mlir
    %rows, %index = stem.await %ticket : !stem.ticket<1536xbf16> -> tensor<?x1536xbf16>, tensor<?xi32>
    ```
  }];
  let arguments = (ins Stem_TicketType:$ticket);
  let results = (outs Stem_StoredRows:$rows, Stem_StoredIds:$index);
  let assemblyFormat = [{
    $ticket attr-dict `:` qualified(type($ticket)) `->` type($rows) `,`
    type($index)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The op that the ticket is of, and the ids that were planned; null where
    /// they come from elsewhere, as through an argument.
    PrefetchOp getPrefetch();
    ::mlir::Value getIds();
  }];
}

def Stem_ReleaseOp : Stem_StoreOp<"release"> {
  let summary = "Ends a ticket";
  let description = [{
    Gives back the staging memory of the ticket's rows. Nothing reads them, nor
    their index, afterwards.

    ```mlir
    stem.release %ticket : !stem.ticket<1536xbf16>
    ```
  }];
  let arguments = (ins Stem_TicketType:$ticket);
  let assemblyFormat = "$ticket attr-dict `:` qualified(type($ticket))";
}

def Stem_LookupOp : Stem_PureTokenwiseOp<"lookup", [Stem_Differentiable]> {
  let summary = "One row for each token";
  let description = [{
    `result[t] = rows[index[t]]`, converted to the result's element type.

    Constraints: C1 the result has as many rows as `index`; C2 the result has
    the columns of `rows`.
  }];
  let arguments = (ins Stem_FloatMatrix:$rows, Stem_IdVector:$index);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $rows `,` $index attr-dict `:` type($rows) `,` type($index) `->` type($result)
  }];
}

def Stem_GatedFFNOp : Stem_PureTokenwiseOp<"gated_ffn", [
    AttrSizedOperandSegments, Stem_Differentiable]> {
  let summary = "The STEM FFN: gate times a row, then down";
  let description = [{
    `y[t] = W_down (SiLU(W_gate x[t] + b_gate) * up[t]) + b_down`, where
    `up` is `[T, F]`: one table row for each token, or what `stem.mix` or
    `stem.select_up` make of it.

    Constraints: C1 the columns of `x` equal the inputs of `gate`; C2 `up` is
    `[T, F]`; C3 `down` is `[D, F]`; C4 a bias has the outputs of its weight;
    C5 the result has the shape of `x`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$gate,
                       Stem_FloatMatrix:$up,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$down,
                       Optional<Stem_FloatVector>:$gate_bias,
                       Optional<Stem_FloatVector>:$down_bias);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `gate` $gate `rows` $up `down` $down
    (`gate_bias` $gate_bias^)? (`down_bias` $down_bias^)?
    attr-dict `:` functional-type(operands, $result)
  }];
}

def Stem_FusedFFNOp : Stem_PureTokenwiseOp<"fused_ffn", [AttrSizedOperandSegments]> {
  let summary = "The STEM FFN with the lookup inside";
  let description = [{
    `y[t] = W_down (SiLU(W_gate x[t] + b_gate) * rows[index[t]]) + b_down`.
    `stem-fuse-ffn` makes it, so that neither the gathered rows nor the
    product is written to memory.

    Constraints: C1 the columns of `x` equal the inputs of `gate`; C2 `rows`
    has `F` columns; C3 `index` has `T` elements; C4 `down` is `[D, F]`; C5 a
    bias has the outputs of its weight; C6 the result has the shape of `x`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$gate,
                       Stem_FloatMatrix:$rows, Stem_IdVector:$index,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$down,
                       Optional<Stem_FloatVector>:$gate_bias,
                       Optional<Stem_FloatVector>:$down_bias);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `gate` $gate `rows` $rows `[` $index `]` `down` $down
    (`gate_bias` $gate_bias^)? (`down_bias` $down_bias^)?
    attr-dict `:` functional-type(operands, $result)
  }];
}

def Stem_MapIdsOp : Stem_PureTokenwiseOp<"map_ids"> {
  let summary = "Token ids to row ids";
  let description = [{
    `result[t] = map[ids[t]]`, and `unknown` for an id that lies outside the
    map or maps to a negative number.

    Constraints: C1 the result has as many elements as `ids`; C2 `unknown` is
    not negative; C3 the map has at least one element.
  }];
  let arguments = (ins Stem_IdVector:$ids, Stem_IdVector:$map, I32Attr:$unknown);
  let results = (outs Stem_IdVector:$result);
  let assemblyFormat = [{
    $ids `,` $map attr-dict `:` type($ids) `,` type($map) `->` type($result)
  }];
}

def Stem_MixOp : Stem_PureTokenwiseOp<"mix", [Stem_Differentiable]> {
  let summary = "Rows plus a low-rank map of the hidden state";
  let description = [{
    `result[t] = up[t] + A (B x[t])`, with `a` `[F, R]` and `b` `[R, D]`.

    Constraints: C1 the columns of `b` equal those of `x`; C2 the columns of
    `a` equal the rows of `b`; C3 the rows of `a` equal the columns of `up`;
    C4 `x` has the rows of `up`; C5 the result has the shape of `up`.
  }];
  let arguments = (ins Stem_FloatMatrix:$up, Stem_FloatMatrix:$x,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$a,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$b);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $up `,` $x `a` $a `b` $b attr-dict `:` functional-type(operands, $result)
  }];
  let hasFolder = 1;
}

def Stem_SelectUpOp : Stem_PureTokenwiseOp<"select_up", [Stem_Differentiable]> {
  let summary = "Rows for most ids, the up-projection for some";
  let description = [{
    `result[t] = W_up x[t] + bias` where `ids[t]` occurs in `selected`, else
    `up[t]`. Only the selected tokens are multiplied: they are gathered, and
    their products take the places of their rows. `selected` rises strictly, at
    run time: each id is looked for by halving.

    Its cost is a bound, as if all tokens were selected: how many are is known
    when the ids are.

    Constraints: C1 the columns of `x` equal the inputs of `weight`; C2 the
    outputs of `weight` equal the columns of `up`; C3 `ids` has `T` elements;
    C4 `x` has the rows of `up`; C5 the result has the shape of `up`; C6 the
    bias has the outputs of `weight`.

    ```mlir
    %u1 = stem.select_up %u, %x weight %w bias %b ids %ids in %selected : (tensor<?x1536xf32>, tensor<?x576xf32>, tensor<1536x576xf32>, tensor<?xi32>, tensor<412xi32>, tensor<1536xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let arguments = (ins Stem_FloatMatrix:$up, Stem_FloatMatrix:$x,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$weight,
                       Stem_IdVector:$ids, Stem_IdVector:$selected,
                       Optional<Stem_FloatVector>:$bias);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $up `,` $x `weight` $weight (`bias` $bias^)? `ids` $ids `in` $selected
    attr-dict `:` functional-type(operands, $result)
  }];
  let hasFolder = 1;
}

#endif // STEM_DIALECT_STEM_TABLE_OPS_TD
