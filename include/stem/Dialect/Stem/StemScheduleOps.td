//===- StemScheduleOps.td - What tiles are made of ---------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops that appear from the structured phase on, on tensors and on buffers.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_SCHEDULE_OPS_TD
#define STEM_DIALECT_STEM_SCHEDULE_OPS_TD

def Stem_AnyMatrix : AnyTypeOf<[
  2DTensorOf<[F32, BF16]>, MemRefRankOf<[F32, BF16], [2]>]>;
def Stem_AnyF32Matrix : AnyTypeOf<[2DTensorOf<[F32]>, MemRefRankOf<[F32], [2]>]>;
def Stem_AnyIdVector : AnyTypeOf<[1DTensorOf<[I32]>, MemRefRankOf<[I32], [1]>]>;

def Stem_PackedMatmulOp : Stem_Op<"packed_matmul", [
    DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<Stem_CostOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Product with a block of a packed matrix";
  let description = [{
    `acc = a * b[k_offset : k_offset + K, n_offset : n_offset + N]` (plus the
    old `acc` with `accumulate`), where `a` is `M x K` and `acc` is `M x N`,
    f32. Lowers to one call of the runtime's matrix kernel.

    Constraints: C1 `a` and `acc` have the same number of rows; C2 `a` and
    `b` have the same element type; C3 on tensors there is one result of the
    type of `acc`, on buffers none; C4 `K` and `N` do not exceed those of `b`.
    The offsets are multiples of 64 (a panel) at run time.
  }];
  let arguments = (ins Stem_AnyMatrix:$a, Stem_PackedType:$b,
                       Stem_AnyF32Matrix:$acc, Index:$k_offset, Index:$n_offset,
                       UnitAttr:$accumulate);
  let results = (outs Variadic<2DTensorOf<[F32]>>:$results);
  let assemblyFormat = [{
    (`accumulate` $accumulate^)? $a `,` $b `[` $k_offset `,` $n_offset `]`
    `into` $acc attr-dict `:` functional-type(operands, $results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getAccMutable(); }
  }];
}

def Stem_PackedGatherOp : Stem_Op<"packed_gather", [
    DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<Stem_CostOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Columns of a packed matrix by id";
  let description = [{
    `out[t, k] = b[k, ids[t]]` in f32: the embedding of a model whose head has
    the same matrix, so that it is held once.

    Constraints: C1 `ids` and `out` have the same number of rows; C2 `out` has
    as many columns as `b` has rows; C3 on tensors there is one result of the
    type of `out`, on buffers none.
  }];
  let arguments = (ins Stem_AnyIdVector:$ids, Stem_PackedType:$b,
                       Stem_AnyF32Matrix:$out);
  let results = (outs Variadic<2DTensorOf<[F32]>>:$results);
  let assemblyFormat = [{
    $ids `,` $b `into` $out attr-dict `:` functional-type(operands, $results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getOutMutable(); }
  }];
}

def Stem_KVAppendOp : Stem_Op<"kv_append", [
    DeclareOpInterfaceMethods<Stem_CostOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<Stem_TokenwiseOpInterface>]> {
  let summary = "Write keys and values of tokens into the cache";
  let description = [{
    `k` and `v` are `[T, G*E]`. A token whose sequence is negative is padding
    and is not written. Constraints: C1 `k` and `v` have the same type; C2
    `positions` and `sequences` have `T` elements.
  }];
  let arguments = (ins Stem_AnyMatrix:$k, Stem_AnyMatrix:$v,
                       Stem_AnyIdVector:$positions, Stem_AnyIdVector:$sequences,
                       Stem_KVCacheType:$cache, Index:$layer);
  let assemblyFormat = [{
    $k `,` $v `at` $positions `of` $sequences `in` $cache `[` $layer `]`
    attr-dict `:` type($k) `,` type($v) `,` type($positions) `,` type($sequences)
  }];
  let hasVerifier = 1;
}

def Stem_AttendOp : Stem_TokenwiseOp<"attend", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Attention over a cache that holds the step's keys already";
  let description = [{
    What is left of `stem.attention` with a cache once `stem.kv_append` has
    written the keys and values: `q` is `[T, H*E]`, the result has its shape.
    A second result is what `stem.attention_logsumexp` gives, for tokens that
    are no padding.

    Constraints: C1 `head_dim` divides the columns of `q`; C2 the number of
    query heads is a multiple of `kv_heads`; C3 the result has the shape of
    `q`; C4 `window` is not negative; C5 `positions` and `sequences` have `T`
    elements; C6 `logsumexp` is `[T, H]`.
  }];
  let arguments = (ins Stem_FloatMatrix:$q, Stem_IdVector:$positions,
                       Stem_IdVector:$sequences, Stem_KVCacheType:$cache,
                       Index:$layer, I64Attr:$head_dim, I64Attr:$kv_heads,
                       F64Attr:$scale,
                       DefaultValuedAttr<I64Attr, "0">:$window);
  let results = (outs Stem_FloatMatrix:$result,
                      Optional<2DTensorOf<[F32]>>:$logsumexp);
  let assemblyFormat = [{
    $q `at` $positions `of` $sequences `cache` $cache `[` $layer `]` attr-dict
    `:` type($q) `,` type($positions) `,` type($sequences) `->` type($result)
    (`,` type($logsumexp)^)?
  }];
  let extraClassDeclaration = [{
    int64_t getQueryHeads() { return getQ().getType().getDimSize(1) / getHeadDim(); }
  }];
}

def Stem_AttendVjpOp : Stem_Op<"attend_vjp", [
    DeclareOpInterfaceMethods<Stem_CostOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "VJP of attention whose operands lie in caches, packed";
  let description = [{
    What is left of `stem.attention_vjp` once `stem.kv_append` has written each
    of its matrices as keys and as values: `k` into layer 0 of `keys` and `v`
    into layer 1, `q` into layer 0 of `queries`, whose heads are the query
    heads, and the cotangent into layer 1.

    Constraints: C1 to C3 and C5 to C9 are those of `stem.attention_vjp`; C10
    `q`, `k`, `v` and `cotangent` have one element type, f32 or bf16.
  }];
  let arguments = (ins Stem_FloatMatrix:$q, Stem_FloatMatrix:$k,
                       Stem_FloatMatrix:$v, Stem_FloatMatrix:$cotangent,
                       Variadic<Stem_FloatMatrix>:$forward,
                       Stem_IdVector:$positions, Stem_IdVector:$sequences,
                       Stem_KVCacheType:$keys, Stem_KVCacheType:$queries,
                       I64Attr:$head_dim, F64Attr:$scale,
                       DefaultValuedAttr<I64Attr, "0">:$window);
  let results = (outs Stem_FloatMatrix:$dq, Stem_FloatMatrix:$dk,
                      Stem_FloatMatrix:$dv);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $cotangent
    (`forward` $forward^ `:` type($forward))? `at` $positions `of` $sequences
    `keys` $keys `queries` $queries attr-dict `:` type($q) `,` type($k) `,`
    type($v) `,` type($cotangent) `,` type($positions) `,` type($sequences) `->`
    type($dq) `,` type($dk) `,` type($dv)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getQueryHeads() { return getQ().getType().getDimSize(1) / getHeadDim(); }
    int64_t getKeyValueHeads() { return getK().getType().getDimSize(1) / getHeadDim(); }
  }];
}

def Stem_KVPageOp : Stem_Op<"kv_page", [
    DeclareOpInterfaceMethods<Stem_CostOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "One page of keys or values, as a packed matrix";
  let description = [{
    The keys of 64 positions as `E x 64`, or their values as `64 x E`, of one
    layer, sequence and key-value head. A negative sequence gives a page of
    zeros. Constraints: C1 the result is `E x 64` for keys, `64 x E` for values.
  }];
  let arguments = (ins Stem_KVCacheType:$cache, Index:$layer, I32:$sequence,
                       Index:$page, Index:$head, UnitAttr:$values);
  let results = (outs Stem_PackedType:$result);
  let assemblyFormat = [{
    (`values` $values^)? $cache `[` $layer `,` $sequence `,` $page `,` $head `]`
    attr-dict `:` qualified(type($result))
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Positions in one page.
    static constexpr int64_t kPageTokens = 64;
  }];
}

class Stem_DestinationOp<string opMnemonic, string destination>
    : Stem_Op<opMnemonic, [
        DestinationStyleOpInterface,
        DeclareOpInterfaceMethods<Stem_CostOpInterface>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let hasVerifier = 1;
  let extraClassDeclaration = "::mlir::MutableOperandRange getDpsInitsMutable() "
                              "{ return get" # destination # "Mutable(); }";
}

def Stem_PackTokensOp : Stem_DestinationOp<"pack_tokens", "Panel"> {
  let summary = "Tokens as the depth of a product: one panel";
  let description = [{
    `x`, `M x C` with `C` at most 64, is written as the first `M` rows of a panel
    of the matrix kernels' layout, whose depth are tokens. `panel` is `1 x P`.

    Constraints: C1 `x` and `panel` have the same element type; C2 `C` is at
    most 64; C3 on tensors there is one result of the type of `panel`, on
    buffers none. At run time `M` is even for bf16, and `64 M` at most `P`.
  }];
  let arguments = (ins Stem_AnyMatrix:$x, Stem_AnyMatrix:$panel);
  let results = (outs Variadic<2DTensorOf<[F32, BF16]>>:$results);
  let assemblyFormat = [{
    $x `into` $panel attr-dict `:` functional-type(operands, $results)
  }];
}

def Stem_TransposeTokensOp : Stem_DestinationOp<"transpose_tokens", "Out"> {
  let summary = "A matrix with tokens as columns";
  let description = [{
    `out[n, t] = x[t, n]`.

    Constraints: C1 `x` and `out` have the same element type; C2 on tensors
    there is one result of the type of `out`, on buffers none.
  }];
  let arguments = (ins Stem_AnyMatrix:$x, Stem_AnyMatrix:$out);
  let results = (outs Variadic<2DTensorOf<[F32, BF16]>>:$results);
  let assemblyFormat = [{
    $x `into` $out attr-dict `:` functional-type(operands, $results)
  }];
}

def Stem_PanelMatmulOp : Stem_DestinationOp<"panel_matmul", "Acc"> {
  let summary = "Product with a matrix that stem.pack_tokens wrote";
  let description = [{
    `acc = a * b`, plus the old `acc` where `accumulate` is true, where `a` is
    `M x K`, `acc` is `M x N`, f32, and `b` holds a panel of `depth` rows a row.

    Constraints: C1 `a` and `acc` have the same number of rows; C2 `a` and `b`
    have the same element type; C3 on tensors there is one result of the type of
    `acc`, on buffers none; C4 `b` has the columns of a panel of `depth` rows,
    and a row for each 64 columns of `acc`. At run time `K` is at most `depth`.
  }];
  let arguments = (ins Stem_AnyMatrix:$a, Stem_AnyMatrix:$b,
                       Stem_AnyF32Matrix:$acc, I1:$accumulate, I64Attr:$depth);
  let results = (outs Variadic<2DTensorOf<[F32]>>:$results);
  let assemblyFormat = [{
    $a `,` $b `into` $acc `accumulate` $accumulate attr-dict `:`
    functional-type(operands, $results)
  }];
}

def Stem_ThreadIndexOp : Stem_Op<"thread_index", [Pure]> {
  let summary = "Which thread of the team runs the enclosing parallel body";
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Stem_ParallelCallOp : Stem_Op<"parallel_call", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Run a function for every task index, on all threads";
  let description = [{
    Calls `callee(task, thread, captures...)` for every task in `[0, tasks)`,
    in any order, on the threads of the context; returns when all are done.

    Constraints: C1 the callee is a function without results whose first two
    arguments are `index` and whose others are the captures.
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Index:$tasks,
                       Variadic<AnyType>:$captures);
  let assemblyFormat = [{
    $callee `tasks` $tasks `(` $captures `)` attr-dict (`:` type($captures)^)?
  }];
}

#endif // STEM_DIALECT_STEM_SCHEDULE_OPS_TD
