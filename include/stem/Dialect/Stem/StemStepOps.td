//===- StemStepOps.td - Gradients taken apart --------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stem-decompose-gradients makes of the gradient ops: pieces that work on
// tiles of tokens, and sums over all tokens.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_STEP_OPS_TD
#define STEM_DIALECT_STEM_STEP_OPS_TD

def Stem_RMSNormInputVjpOp : Stem_PureTokenwiseOp<"rms_norm_input_vjp"> {
  let summary = "Cotangent of the input of stem.rms_norm";
  let description = [{
    `dx` of `stem.rms_norm_vjp`.

    Constraints: C1 the length of `weight` divides the columns of `x`; C2
    `eps` is positive; C3 `cotangent` and the result have the shape of `x`.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_FloatVector:$weight,
                       Stem_FloatMatrix:$cotangent, F64Attr:$eps);
  let results = (outs Stem_FloatMatrix:$result);
  let assemblyFormat = [{
    $x `,` $weight `,` $cotangent attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_GateVjpOp : Stem_PureTokenwiseOp<"gate_vjp"> {
  let summary = "VJP of silu(gate) * up, and the product itself";
  let description = [{
    `dgate = silu'(gate) up cotangent`, `dup = silu(gate) cotangent`, `product
    = silu(gate) up`, which the gradient of the down-projection needs.

    Constraints: C1 all operands and results have the same shape.
  }];
  let arguments = (ins Stem_FloatMatrix:$gate, Stem_FloatMatrix:$up,
                       Stem_FloatMatrix:$cotangent);
  let results = (outs Stem_FloatMatrix:$dgate, Stem_FloatMatrix:$dup,
                      Stem_FloatMatrix:$product);
  let assemblyFormat = [{
    $gate `,` $up `,` $cotangent attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_SumRowsOp : Stem_GradientOp<"sum_rows"> {
  let summary = "Rows added up by number";
  let description = [{
    `result[n] = sum over t with index[t] = n of x[t]` (plus `initial[n]`), in
    f32 and in the order of the tokens; rows of `padding_id` are left out.

    Constraints: C1 `x` has as many rows as `index` has elements; C2 the result
    has its columns; C3 `initial` has the type of the result; C4 `padding_id` is
    one of the result's rows.
  }];
  let arguments = (ins Stem_IdVector:$index, Stem_F32Matrix:$x,
                       Optional<Stem_F32Matrix>:$initial,
                       OptionalAttr<I64Attr>:$padding_id);
  let results = (outs Stem_F32Matrix:$result);
  let assemblyFormat = [{
    $x `by` $index (`onto` $initial^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

def Stem_CrossEntropyStepOp : Stem_GradientOp<"cross_entropy_step"> {
  let summary = "Loss and gradients of the head in one pass over the logits";
  let description = [{
    `nll` of `stem.cross_entropy`, `dx` and `dhead` of its VJP. The logits of a
    chunk of tokens are there once, and become their own cotangent in place.
    `transposed` is the head as `[D, V]`, for the product that gives `dx`;
    stem-transpose-weights adds it.

    Constraints: C1 the columns of `x` equal the inputs of `head`; C2 `labels`,
    `cotangent` and `nll` have `T` elements; C3 `dx` and `dhead` have the shape
    of their values; C4 `transposed` has the outputs of `head` as inputs, and
    its inputs as outputs.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_Weight:$head,
                       Stem_IdVector:$labels, Stem_FloatVector:$cotangent,
                       Optional<Stem_Weight>:$transposed);
  let results = (outs Stem_FloatVector:$nll, Stem_FloatMatrix:$dx,
                      Stem_FloatMatrix:$dhead);
  let assemblyFormat = [{
    $x `,` $head `,` $labels `,` $cotangent (`transposed` $transposed^)?
    attr-dict `:` functional-type(operands, results)
  }];
}

def Stem_DistillationStepOp : Stem_GradientOp<"distillation_step"> {
  let summary = "Losses against labels and a teacher, and the head's gradients";
  let description = [{
    `nll` and `kl` of `stem.distillation`, `dx` and `dhead` of its VJP, as
    `stem.cross_entropy_step` has them. The teacher's logits are there for a
    tile of tokens at a time.

    Constraints: C1 the columns of `x` equal the inputs of `head`; C2 those of
    `teacher` the inputs of `teacher_head`; C3 `teacher` has the rows of `x`,
    and `labels`, the cotangents, `nll` and `kl` have `T` elements; C4 both
    heads have as many outputs; C5 `dx` and `dhead` have the shape of their
    values; C6 `transposed` has the outputs of `head` as inputs, and its inputs
    as outputs.
  }];
  let arguments = (ins Stem_FloatMatrix:$x, Stem_Weight:$head,
                       Stem_IdVector:$labels, Stem_FloatMatrix:$teacher,
                       Stem_Weight:$teacher_head,
                       Stem_FloatVector:$nll_cotangent,
                       Stem_FloatVector:$kl_cotangent,
                       Optional<Stem_Weight>:$transposed);
  let results = (outs Stem_FloatVector:$nll, Stem_FloatVector:$kl,
                      Stem_FloatMatrix:$dx, Stem_FloatMatrix:$dhead);
  let assemblyFormat = [{
    $x `,` $head `,` $labels `from` $teacher `,` $teacher_head `by`
    $nll_cotangent `,` $kl_cotangent (`transposed` $transposed^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

#endif // STEM_DIALECT_STEM_STEP_OPS_TD
