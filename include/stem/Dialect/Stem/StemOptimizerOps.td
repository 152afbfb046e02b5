//===- StemOptimizerOps.td - Updates in the step -----------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stem-insert-optimizer puts behind the gradients of dense parameters.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_OPTIMIZER_OPS_TD
#define STEM_DIALECT_STEM_OPTIMIZER_OPS_TD

def Stem_F32Tensor : RankedTensorOf<[F32], [HasAnyRankOfPred<[1, 2]>]>;
def Stem_Sums : 1DTensorOf<[F64]>;

class Stem_F32VectorOf<int length>
    : Type<And<[Stem_F32Vector.predicate,
                CPred<"::llvm::cast<::mlir::ShapedType>($_self).getDimSize(0) == "
                      # length>]>,
           "vector of " # length # " f32", "::mlir::RankedTensorType">,
      BuildableType<"::mlir::RankedTensorType::get({" # length
                    # "}, $_builder.getF32Type())">;
def Stem_StepScale : Stem_F32VectorOf<1>;
def Stem_StepScalars : Stem_F32VectorOf<3>;

def Stem_SumSquaresOp : Stem_GradientOp<"sum_squares", [
    AllTypesMatch<["sums", "result"]>]> {
  let summary = "The sum of squares of a gradient, in its place among others";
  let description = [{
    `sums` with `sums[place]` = the sum of `x^2` over all elements, in f64 and
    in an order that the sizes of `x` alone decide.

    Constraints: C1 `place` is one of the elements of `sums`, whose number is
    static.
  }];
  let arguments = (ins Stem_F32Tensor:$x, Stem_Sums:$sums, I64Attr:$place);
  let results = (outs Stem_Sums:$result);
  let assemblyFormat = [{
    $x `into` $sums `[` $place `]` attr-dict `:` type($x) `,` type($sums)
  }];
}

def Stem_GradientScaleOp : Stem_GradientOp<"gradient_scale"> {
  let summary = "What gradients are multiplied by, from their sums of squares";
  let description = [{
    1, or NaN where the sum of `sums` is no finite number: then `stem.adamw`
    changes nothing.

    Constraints: C1 the number of `sums` is static.
  }];
  let arguments = (ins Stem_Sums:$sums);
  let results = (outs Stem_StepScale:$result);
  let assemblyFormat = [{
    $sums attr-dict `:` type($sums)
  }];
}

def Stem_AdamWOp : Stem_GradientOp<"adamw", [
    AllTypesMatch<["gradient", "weight", "first", "second", "new_weight",
                   "new_first", "new_second"]>]> {
  let summary = "One step of AdamW on a parameter";
  let description = [{
    AdamW (Loshchilov and Hutter, 2019: Decoupled Weight Decay Regularization)
    on the weight in f32, the first and the second moment. `step` has what
    changes from step to step, computed in f64 by the caller: `rate = lr / (1 -
    beta1^t)`, `root = 1 / sqrt(1 - beta2^t)` and `lr decay`. With `g = gradient
    scale`:

        first'  = first + (1 - beta1) (g - first)
        second' = second + (1 - beta2) (g^2 - second)
        weight' = weight - (lr decay weight + rate first' / (root sqrt(second') + epsilon))

    without the decay unless it `decays`. In f32, in the order of the runtime's
    AdamW (lib/Training), its fused multiply-adds included, so that compiled
    code has its bits. A number below the normal range of f32 counts as 0
    wherever one is read or made; only a result that rounding lifts to the least
    normal number may differ from a processor's own flush to zero. Where `scale`
    is NaN all three stay as they are.

    Constraints: C1 all shapes are static; C2 the betas are 0 or more and less
    than 1; C3 `epsilon` is 1e-12 to 1.
  }];
  let arguments = (ins Stem_F32Tensor:$gradient, Stem_F32Tensor:$weight,
                       Stem_F32Tensor:$first, Stem_F32Tensor:$second,
                       Stem_StepScalars:$step, Stem_StepScale:$scale,
                       F64Attr:$beta1, F64Attr:$beta2, F64Attr:$epsilon,
                       UnitAttr:$decays);
  let results = (outs Stem_F32Tensor:$new_weight, Stem_F32Tensor:$new_first,
                      Stem_F32Tensor:$new_second);
  let assemblyFormat = [{
    $gradient `into` $weight `,` $first `,` $second `step` $step `scale` $scale
    attr-dict `:` type($gradient)
  }];
}

#endif // STEM_DIALECT_STEM_OPTIMIZER_OPS_TD
