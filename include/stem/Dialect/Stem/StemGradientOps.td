//===- StemGradientOps.td - What derivatives are made of ---*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops that stem-autodiff builds. A cotangent has the shape of its value and the
// element type f32 (f64 of an f64 value), whatever the value's own type is.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_GRADIENT_OPS_TD
#define STEM_DIALECT_STEM_GRADIENT_OPS_TD

class Stem_GradientOp<string opMnemonic, list<Trait> traits = []>
    : Stem_Op<opMnemonic, traits # [
        Pure, DeclareOpInterfaceMethods<Stem_CostOpInterface>]> {
  let hasVerifier = 1;
}

def Stem_Weight : AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>;

def Stem_RMSNormVjpOp : Stem_GradientOp<"rms_norm_vjp"> {
  let summary = "VJP of stem.rms_norm";
  let description = [{
    With `r = 1 / sqrt(mean(x^2) + eps)` and `h = weight * cotangent` in each
    group of `N` columns, `dx = r h - x r^3 (h . x) / N`; `dweight` is the sum
    of `cotangent * x r` over tokens and groups.

    Constraints: C1 the length of `weight` divides the columns of `x`; C2
    `eps` is positive; C3 `cotangent` and `dx` have the shape of `x`; C4
    `dweight` has that of `weight`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_FloatVector:$weight,
                       Stem_FloatMatrix:$cotangent, F64Attr:$eps);
  let results = (outs Stem_FloatMatrix:$dx, Stem_FloatVector:$dweight);
  let assemblyFormat = [{
    $x `,` $weight `,` $cotangent attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_SiluVjpOp : Stem_PureTokenwiseOp<"silu_vjp"> {
  let summary = "VJP of stem.silu";
  let description = [{
    `dx = cotangent * s (1 + x (1 - s))` with `s = 1 / (1 + exp(-x))`.

    Constraints: C1 `cotangent` has the shape of `x`; C2 the result has the
    shape of `x`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_FloatMatrix:$cotangent);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `,` $cotangent attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_LinearInputVjpOp : Stem_PureTokenwiseOp<"linear_input_vjp"> {
  let summary = "Cotangent of the input of stem.linear";
  let description = [{
    `dx = cotangent W`, with `cotangent` `[T, N]` and the weight `[N, K]`. The
    product is taken in the weight's element type, its sums in f32.

    Constraints: C1 the columns of `cotangent` equal the outputs of `weight`;
    C2 the result is `[T, K]`.
  }];
  let arguments = (ins Stem_FloatMatrix:$cotangent, Stem_Weight:$weight);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $cotangent `,` $weight attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_LinearWeightVjpOp : Stem_GradientOp<"linear_weight_vjp"> {
  let summary = "Cotangent of the weight of stem.linear";
  let description = [{
    `dW = cotangent^T x`, `[N, K]`, summed over tokens. The product is taken in
    the element type of `x`, its sums in f32.

    Constraints: C1 `cotangent` has the rows of `x`; C2 the result has the
    columns of `cotangent` as rows and those of `x` as columns.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_FloatMatrix:$cotangent);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `,` $cotangent attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_SumTokensOp : Stem_GradientOp<"sum_tokens"> {
  let summary = "Sum over tokens, the cotangent of a bias";
  let description = [{
    `result[n] = sum_t x[t, n]`. Of a result with `N` elements, where `x` has
    `G N` columns, also over the groups of columns: `sum_t sum_g x[t, g N + n]`.

    Constraints: C1 the length of the result divides the columns of `x`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x);
  let results = (outs Stem_FloatVector:$result);
  let assemblyFormat = "$x attr-dict `:` type($x) `->` type($result)";
}

def Stem_AttentionLogSumExpOp : Stem_GradientOp<"attention_logsumexp"> {
  let summary = "Logarithms of the sums that the probabilities are divided by";
  let description = [{
    `result[t, h] = log(sum_s exp(scale q_t . k_s))` over the tokens `s` that
    `stem.attention` of the same operands lets token `t` see; without a cache.
    0 for padding. The VJP needs no more than this of the scores, and attention
    has it at hand.

    Constraints: C1, C3, C6 and C7 are those of `stem.attention`; C2 the result
    is `[T, H]`.
  }];
  let arguments = (ins Stem_FloatMatrix:$q, Stem_FloatMatrix:$k,
                       Stem_IdVector:$positions, Stem_IdVector:$sequences,
                       I64Attr:$head_dim, F64Attr:$scale,
                       DefaultValuedAttr<I64Attr, "0">:$window);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $q `,` $k `at` $positions `of` $sequences attr-dict `:`
    functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    int64_t getQueryHeads() { return getQ().getType().getDimSize(1) / getHeadDim(); }
    int64_t getKeyValueHeads() { return getK().getType().getDimSize(1) / getHeadDim(); }
  }];
}

def Stem_AttentionVjpOp : Stem_GradientOp<"attention_vjp"> {
  let summary = "VJP of stem.attention without a cache";
  let description = [{
    With the probabilities `p` that token `t` gives to token `s` and the
    cotangent `g`: `dv_s = sum_t p_ts g_t`, and with `e_ts = p_ts (g_t . v_s -
    sum_u p_tu g_t . v_u)`, `dq_t = scale sum_s e_ts k_s` and `dk_s = scale
    sum_t e_ts q_t`. Sums over `t` also go over the query heads that share a
    key-value head. `forward` is nothing, or what attention gave and its
    `stem.attention_logsumexp`, which then need not be computed again.

    Constraints: C1 to C3 and C5 to C7 are those of `stem.attention`, for
    `cotangent` in place of its result; C8 each result has the shape of its
    value; C9 `forward` has no values, or two of the shapes `[T, H*E]` and
    `[T, H]`.
  }];
  let arguments = (ins Stem_FloatMatrix:$q, Stem_FloatMatrix:$k,
                       Stem_FloatMatrix:$v, Stem_FloatMatrix:$cotangent,
                       Variadic<Stem_FloatMatrix>:$forward,
                       Stem_IdVector:$positions, Stem_IdVector:$sequences,
                       I64Attr:$head_dim, F64Attr:$scale,
                       DefaultValuedAttr<I64Attr, "0">:$window);
  let results = (outs Stem_FloatMatrix:$dq, Stem_FloatMatrix:$dk,
                      Stem_FloatMatrix:$dv);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $cotangent (`forward` $forward^)? `at` $positions `of`
    $sequences attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    int64_t getQueryHeads() { return getQ().getType().getDimSize(1) / getHeadDim(); }
    int64_t getKeyValueHeads() { return getK().getType().getDimSize(1) / getHeadDim(); }
  }];
}

def Stem_DenseFFNVjpOp : Stem_GradientOp<"dense_ffn_vjp", [
    AttrSizedOperandSegments, AttrSizedResultSegments]> {
  let summary = "VJP of stem.dense_ffn";
  let description = [{
    With `g = W_gate x + b_gate`, `u = W_up x + b_up` and `h = cotangent
    W_down`: `dg = silu'(g) * u * h`, `du = silu(g) * h`, and `dx`, `dgate`,
    `ddown` and the biases' follow. `down_bias` needs no op of its own.

    Constraints: C1 to C4 are those of `stem.dense_ffn`, for `cotangent` in
    place of its result; C5 each result has the shape of its value; C6 a bias
    has a cotangent and no other bias has.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_Weight:$gate, Stem_Weight:$up,
                       Stem_Weight:$down, Stem_FloatMatrix:$cotangent,
                       Optional<Stem_FloatVector>:$gate_bias,
                       Optional<Stem_FloatVector>:$up_bias);
  let results = (outs Stem_FloatMatrix:$dx, Stem_FloatMatrix:$dgate,
                      Stem_FloatMatrix:$dup, Stem_FloatMatrix:$ddown,
                      Optional<Stem_FloatVector>:$dgate_bias,
                      Optional<Stem_FloatVector>:$dup_bias);
  let assemblyFormat = [{
    $x `gate` $gate `up` $up `down` $down `cotangent` $cotangent
    (`gate_bias` $gate_bias^)? (`up_bias` $up_bias^)?
    attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_GatedFFNVjpOp : Stem_GradientOp<"gated_ffn_vjp"> {
  let summary = "VJP of stem.gated_ffn";
  let description = [{
    As `stem.dense_ffn_vjp`, with `u` given: `dup = silu(g) * h` is the
    cotangent of `up`.

    Constraints: C1 to C4 are those of `stem.gated_ffn`, for `cotangent` in
    place of its result; C5 each result has the shape of its value; C6
    `dgate_bias` comes with `gate_bias`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_Weight:$gate,
                       Stem_FloatMatrix:$up, Stem_Weight:$down,
                       Stem_FloatMatrix:$cotangent,
                       Optional<Stem_FloatVector>:$gate_bias);
  let results = (outs Stem_FloatMatrix:$dx, Stem_FloatMatrix:$dgate,
                      Stem_FloatMatrix:$dup, Stem_FloatMatrix:$ddown,
                      Optional<Stem_FloatVector>:$dgate_bias);
  let assemblyFormat = [{
    $x `gate` $gate `rows` $up `down` $down `cotangent` $cotangent
    (`gate_bias` $gate_bias^)? attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_CrossEntropyVjpOp : Stem_GradientOp<"cross_entropy_vjp"> {
  let summary = "VJP of stem.cross_entropy";
  let description = [{
    With `p = softmax(x[t] head^T)`, the logits' cotangent is `cotangent[t] (p
    - onehot(labels[t]))`, zero where the label is -100; `dx` and `dhead`
    follow. The `T x V` logits never exist whole.

    Constraints: C1 the columns of `x` equal the inputs of `head`; C2 `labels`
    and `cotangent` have `T` elements; C3 each result has the shape of its
    value.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_Weight:$head,
                       Stem_IdVector:$labels, Stem_FloatVector:$cotangent);
  let results = (outs Stem_FloatMatrix:$dx, Stem_FloatMatrix:$dhead);
  let assemblyFormat = [{
    $x `,` $head `,` $labels `,` $cotangent attr-dict `:`
    functional-type(operands, results)
  }];
}

def Stem_DistillationVjpOp : Stem_GradientOp<"distillation_vjp"> {
  let summary = "VJP of stem.distillation";
  let description = [{
    The logits' cotangent is `nll_cotangent[t] (p - onehot(labels[t])) +
    kl_cotangent[t] (p - q)`, zero where the label is -100; `dx` and `dhead`
    follow.
    Constraints: C1 the columns of `x` equal the inputs of `head`; C2 those of
    `teacher` the inputs of `teacher_head`; C3 `teacher` has the rows of `x`,
    and `labels` and the cotangents have `T` elements; C4 both heads have as
    many outputs; C5 each result has the shape of its value.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_Weight:$head,
                       Stem_IdVector:$labels, Stem_FloatMatrix:$teacher,
                       Stem_Weight:$teacher_head,
                       Stem_FloatVector:$nll_cotangent,
                       Stem_FloatVector:$kl_cotangent);
  let results = (outs Stem_FloatMatrix:$dx, Stem_FloatMatrix:$dhead);
  let assemblyFormat = [{
    $x `,` $head `,` $labels `from` $teacher `,` $teacher_head `by`
    $nll_cotangent `,` $kl_cotangent attr-dict `:`
    functional-type(operands, results)
  }];
}

def Stem_EmbeddingVjpOp : Stem_GradientOp<"embedding_vjp"> {
  let summary = "VJP of stem.embedding";
  let description = [{
    `result[v] = sum over t with ids[t] = v of cotangent[t]`, in the order of
    the tokens; 0 for `v = padding_id`. The result is dense, as the embedding's
    optimizer is; the rows of a table have `stem.row_gradient`.

    Constraints: C1 `cotangent` has as many rows as there are ids; C2 the
    result has its columns; C3 the result's number of rows is static: no operand
    says it; C4 `padding_id` is one of its rows.
  }];
  let arguments = (ins Stem_IdVector:$ids, Stem_FloatMatrix:$cotangent,
                       OptionalAttr<I64Attr>:$padding_id);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $ids `,` $cotangent attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_KeepSelectedOp : Stem_PureTokenwiseOp<"keep_selected"> {
  let summary = "Rows of some tokens, zeros for the others";
  let description = [{
    `result[t] = x[t]` where `ids[t]` occurs in `selected` (with `others`:
    where it does not), else 0. It splits the cotangent of `stem.select_up`.

    Constraints: C1 `ids` has as many elements as `x` has rows; C2 the result
    has the shape of `x`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_IdVector:$ids,
                       Stem_IdVector:$selected, UnitAttr:$others);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    (`others` $others^)? $x `ids` $ids `in` $selected attr-dict `:`
    functional-type(operands, results)
  }];
}

def Stem_RowGradientOp : Stem_GradientOp<"row_gradient"> {
  let summary = "VJP of stem.lookup: a row for each token";
  let description = [{
    The pairs `(index[t], cotangent[t])`. Nothing is added up yet, and nothing
    has the size of the table.

    Constraints: C1 `cotangent` has as many rows as `index`; C2 the result has
    its columns and element type.
  }];
  let arguments = (ins Stem_IdVector:$index, Stem_FloatMatrix:$cotangent);
  let results = (outs Stem_RowGradientType:$result);
  let assemblyFormat = [{
    $index `,` $cotangent attr-dict `:` type($index) `,` type($cotangent) `->`
    qualified(type($result))
  }];
}

def Stem_MergeRowGradientsOp : Stem_GradientOp<"merge_row_gradients", [
    SameOperandsAndResultType]> {
  let summary = "The pairs of both, those of the first before";
  let description = [{
    The sum of two row gradients: pairs are kept, and added up by
    `stem.table_gradient`.
  }];
  let arguments = (ins Stem_RowGradientType:$lhs, Stem_RowGradientType:$rhs);
  let results = (outs Stem_RowGradientType:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs attr-dict `:` qualified(type($result))
  }];
  let hasVerifier = 0;
}

def Stem_TableGradientOp : Stem_GradientOp<"table_gradient"> {
  let summary = "The gradient of a table: its ids that occur, a row for each";
  let description = [{
    `pairs` hold row numbers of the matrix that `stem.table_rows` gave, whose
    `index` and `ids` are the operands here: number `index[t]` is row `ids[t]`
    of the table. `unique` has the ids of the pairs, each once and rising, and
    `rows[i]` the sum of the pairs' rows of `unique[i]`, in f32 and in the
    pairs' order.

    Constraints: C1 `index` and `ids` have the same length; C2 `rows` has as
    many rows as `unique` has elements; C3 its columns and element type are
    those of `pairs`.
  }];
  let arguments = (ins Stem_RowGradientType:$pairs, Stem_IdVector:$index,
                       Stem_IdVector:$ids);
  let results = (outs Stem_IdVector:$unique, Stem_FloatMatrix:$rows);
  let assemblyFormat = [{
    $pairs `index` $index `ids` $ids attr-dict `:`
    functional-type(operands, results)
  }];
}

#endif // STEM_DIALECT_STEM_GRADIENT_OPS_TD
