//===- StemTransformerOps.td - Transformer blocks ----------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_TRANSFORMER_OPS_TD
#define STEM_DIALECT_STEM_TRANSFORMER_OPS_TD

def Stem_EmbeddingOp : Stem_PureTokenwiseOp<"embedding", [Stem_Differentiable]> {
  let summary = "Rows of a matrix by id";
  let description = [{
    `result[t] = weight[ids[t]]`, converted to the result's element type. An
    id outside the matrix is refused when a step starts, before any op runs.
    The weight is `[V, D]`, or packed `D x V` where a tied head reads the same
    matrix.

    The row `padding_id` has no gradient: it is a padding token's, which stays as
    it is (PyTorch's `padding_idx`).

    Constraints: C1 the result has as many rows as there are ids; C2 the
    result has the columns of the weight; C3 `padding_id` is a row of the
    weight.

    ```mlir
    %x = stem.embedding %ids, %w : tensor<?xi32>, tensor<49152x576xbf16> -> tensor<?x576xf32>
    ```
  }];
  let arguments = (ins Stem_IdVector:$ids,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$weight,
                       OptionalAttr<I64Attr>:$padding_id);
  let results = (outs Stem_FloatMatrix:$result);
  let builders = [OpBuilder<
    (ins "::mlir::Type":$result, "::mlir::Value":$ids, "::mlir::Value":$weight),
    [{ build($_builder, $_state, result, ids, weight, ::mlir::IntegerAttr()); }]>];
  let assemblyFormat = [{
    $ids `,` $weight attr-dict `:` type($ids) `,` type($weight) `->` type($result)
  }];
}

def Stem_RMSNormOp : Stem_PureTokenwiseOp<"rms_norm", [Stem_Differentiable]> {
  let summary = "Root-mean-square normalisation, of whole rows or per head";
  let description = [{
    Each row of `x` is cut into groups as long as `weight`; in each group
    `y = x / sqrt(mean(x^2) + eps) * weight` (Zhang and Sennrich 2019). With
    `weight` as long as a row there is one group; with `E` elements this is
    the per-head norm of queries and keys.

    Constraints: C1 the length of `weight` divides the columns of `x`; C2
    `eps` is positive; C3 the result has the shape of `x`.

    ```mlir
    %n = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<?x576xf32>, tensor<576xf32> -> tensor<?x576xbf16>
    ```
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_FloatVector:$weight,
                       F64Attr:$eps);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `,` $weight attr-dict `:` type($x) `,` type($weight) `->` type($result)
  }];
}

def Stem_SiluOp : Stem_PureTokenwiseOp<"silu", [Stem_Differentiable]> {
  let summary = "x * sigmoid(x), element by element";
  let description = [{
    `y = x / (1 + exp(-x))` (Elfwing et al. 2017). The FFN ops hold it already;
    this op is for functions that give out the gate itself.

    Constraints: C1 the result has the shape of `x`.

    ```mlir
    %y = stem.silu %x : tensor<?x1536xf32> -> tensor<?x1536xf32>
    ```
  }];
  let arguments = (ins Stem_FloatMatrix:$x);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = "$x attr-dict `:` type($x) `->` type($result)";
}

def Stem_LinearOp : Stem_PureTokenwiseOp<"linear", [Stem_Differentiable]> {
  let summary = "y = x W^T + b";
  let description = [{
    `x` is `[T, K]`, `weight` is `[N, K]` or packed `K x N`, `bias` is `[N]`.
    Sums are taken in f32 (in f64 for f64 operands).

    Constraints: C1 the columns of `x` equal the input size of `weight`; C2
    the result is `[T, N]`; C3 `bias` has `N` elements.

    ```mlir
    %y = stem.linear %x, %w : tensor<?x576xbf16>, tensor<1536x576xbf16> -> tensor<?x1536xf32>
    ```
  }];
  let arguments = (ins Stem_FloatMatrix:$x,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$weight,
                       Optional<Stem_FloatVector>:$bias);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `,` $weight (`bias` $bias^)? attr-dict `:`
    type($x) `,` type($weight) (`,` type($bias)^)? `->` type($result)
  }];
}

def Stem_RotaryAnglesOp : Stem_PureTokenwiseOp<"rotary_angles"> {
  let summary = "Cosines and sines of rotary position embedding";
  let description = [{
    `cos[t, j] = scaling * cos(positions[t] * inv_freq[j])`, `sin` likewise.
    The scaling kinds of checkpoints (linear, llama3, yarn, ...) differ in
    `inv_freq` and `scaling` alone, so they are data here.

    Constraints: C1 `inv_freq` is not empty and positive; C2 both results are
    `[T, E/2]` with `E/2` the length of `inv_freq`.
  }];
  let arguments = (ins Stem_IdVector:$positions,
                       DenseF32ArrayAttr:$inv_freq,
                       DefaultValuedAttr<F64Attr, "1.0">:$scaling);
  let results = (outs Stem_FloatMatrix:$cos, Stem_FloatMatrix:$sin);
  let assemblyFormat = [{
    $positions attr-dict `:` type($positions) `->` type($cos) `,` type($sin)
  }];
}

def Stem_RopeOp : Stem_PureTokenwiseOp<"rope", [Stem_DifferentiableWithData]> {
  let summary = "Rotary position embedding of queries or keys";
  let description = [{
    Each row of `x` is cut into heads of `E` columns; in each head the pair
    `(x[j], x[j + E/2])` is rotated by angle `j` of the token (Su et al. 2021,
    in the half-split layout of Hugging Face checkpoints).

    Constraints: C1 `cos` and `sin` have the same shape `[T, E/2]`; C2 `E`
    divides the columns of `x`; C3 the result has the shape of `x`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_FloatMatrix:$cos,
                       Stem_FloatMatrix:$sin);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `,` $cos `,` $sin attr-dict `:`
    type($x) `,` type($cos) `,` type($sin) `->` type($result)
  }];
}

def Stem_AttentionOp : Stem_Op<"attention", [
    AttrSizedOperandSegments, Stem_Differentiable,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<Stem_CostOpInterface>]> {
  let summary = "Causal grouped-query attention";
  let description = [{
    `q` is `[T, H*E]`, `k` and `v` are `[T, G*E]`; query head `h` reads
    key-value head `h / (H/G)`. Token `t` sees the tokens of its sequence at
    positions `p` with `p <= positions[t]` and, with a window `w > 0`,
    `p > positions[t] - w`. Scores are scaled by `scale`, softmax is f32.

    With a cache, `k` and `v` are first written into it at `layer`, and a
    token sees every cached position of its sequence; without, only the tokens
    of this call.

    Constraints: C1 `head_dim` divides the columns of `q` and of `k`; C2 `k`
    and `v` have the same shape; C3 the number of query heads is a multiple of
    the number of key-value heads; C4 `cache` and `layer` come together; C5
    the result has the shape of `q`; C6 `window` is not negative (0: none);
    C7 all token operands have the same number of rows.
  }];
  let arguments = (ins Stem_FloatMatrix:$q, Stem_FloatMatrix:$k,
                       Stem_FloatMatrix:$v, Stem_IdVector:$positions,
                       Stem_IdVector:$sequences,
                       Optional<Stem_KVCacheType>:$cache,
                       Optional<Index>:$layer,
                       I64Attr:$head_dim, F64Attr:$scale,
                       DefaultValuedAttr<I64Attr, "0">:$window);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $q `,` $k `,` $v `at` $positions `of` $sequences
    (`cache` $cache^ `[` $layer `]`)? attr-dict `:`
    type($q) `,` type($k) `,` type($v) `,` type($positions) `,`
    type($sequences) `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getQueryHeads() { return getQ().getType().getDimSize(1) / getHeadDim(); }
    int64_t getKeyValueHeads() { return getK().getType().getDimSize(1) / getHeadDim(); }
  }];
}

def Stem_DenseFFNOp : Stem_PureTokenwiseOp<"dense_ffn", [
    AttrSizedOperandSegments, Stem_Differentiable]> {
  let summary = "Gated FFN with an up-projection (SwiGLU)";
  let description = [{
    `y = W_down (SiLU(W_gate x + b_gate) * (W_up x + b_up)) + b_down`, with
    `gate` and `up` `[F, D]` and `down` `[D, F]`.

    Constraints: C1 `gate` and `up` have the same shape, with the columns of
    `x`; C2 `down` is their transpose's shape; C3 a bias has the outputs of
    its weight; C4 the result has the shape of `x`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$gate,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$up,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$down,
                       Optional<Stem_FloatVector>:$gate_bias,
                       Optional<Stem_FloatVector>:$up_bias,
                       Optional<Stem_FloatVector>:$down_bias);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `gate` $gate `up` $up `down` $down
    (`gate_bias` $gate_bias^)? (`up_bias` $up_bias^)? (`down_bias` $down_bias^)?
    attr-dict `:` functional-type(operands, $result)
  }];
}

def Stem_CrossEntropyOp : Stem_PureTokenwiseOp<"cross_entropy", [Stem_Differentiable]> {
  let summary = "Negative log-likelihood of labels under a linear head";
  let description = [{
    `nll[t] = logsumexp_v(x[t] . head[v]) - x[t] . head[labels[t]]` in f32,
    and 0 where the label is -100. The `T x V` logits never exist whole.

    Constraints: C1 the columns of `x` equal the inputs of `head`; C2 `labels`
    and the result have `T` elements.
  }];
  let arguments = (ins Stem_FloatMatrix:$x,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$head,
                       Stem_IdVector:$labels);
  let results = (outs Stem_FloatVector:$result);
  let assemblyFormat = [{
    $x `,` $head `,` $labels attr-dict `:`
    type($x) `,` type($head) `,` type($labels) `->` type($result)
  }];
}

def Stem_DistillationOp
    : Stem_PureTokenwiseOp<"distillation", [Stem_DifferentiableWithData]> {
  let summary = "Losses of a linear head against labels and a teacher";
  let description = [{
    `nll` of `stem.cross_entropy`, and the divergence from the teacher's
    distribution `kl[t] = sum_v q[v] (log q[v] - log p[v])` with `p =
    softmax(x[t] head^T)` and `q = softmax(teacher[t] teacher_head^T)`, both in
    f32. Both are 0 where the label is -100. The teacher is data: it has no
    derivative. None of the `T x V` logits exist whole.

    Constraints: C1 the columns of `x` equal the inputs of `head`; C2 those of
    `teacher` the inputs of `teacher_head`; C3 `teacher` has the rows of `x`,
    and `labels`, `nll` and `kl` have `T` elements; C4 both heads have as many
    outputs.
  }];
  let arguments = (ins Stem_FloatMatrix:$x,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$head,
                       Stem_IdVector:$labels, Stem_FloatMatrix:$teacher,
                       AnyTypeOf<[Stem_FloatMatrix, Stem_PackedType]>:$teacher_head);
  let results = (outs Stem_FloatVector:$nll, Stem_FloatVector:$kl);
  let assemblyFormat = [{
    $x `,` $head `,` $labels `from` $teacher `,` $teacher_head attr-dict `:`
    functional-type(operands, results)
  }];
}

#endif // STEM_DIALECT_STEM_TRANSFORMER_OPS_TD
