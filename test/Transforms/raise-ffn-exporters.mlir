// What two exporters write, as they write it.
// RUN: stem-opt %S/Inputs/jax_swiglu.linalg.mlir --stem-raise-ffn | FileCheck %s --check-prefixes=CHECK,JAX
// RUN: stem-opt %S/Inputs/torch_swiglu.linalg-on-tensors.mlir --stem-raise-ffn | FileCheck %s --check-prefixes=CHECK,TORCH
// RUN: stem-opt %S/Inputs/torch_swiglu.tosa.mlir --stem-raise-ffn | FileCheck %s --check-prefixes=CHECK,TORCH

// Numbers before and after.
// RUN: stem-opt %S/Inputs/jax_swiglu.linalg.mlir --stem-differential=stem-pipeline=stem-raise-ffn 2>&1 | FileCheck %s --check-prefix=NUMBERS
// RUN: stem-opt %S/Inputs/torch_swiglu.linalg-on-tensors.mlir --stem-differential=stem-pipeline=stem-raise-ffn 2>&1 | FileCheck %s --check-prefix=NUMBERS
// RUN: stem-opt %S/Inputs/torch_swiglu.tosa.mlir --stem-differential=stem-pipeline=stem-raise-ffn 2>&1 | FileCheck %s --check-prefix=NUMBERS

// Weights first, then the FFN on parameters.
// RUN: stem-opt %S/Inputs/torch_swiglu.linalg-on-tensors.mlir --stem-externalize-constants=stem-file=%t.safetensors --stem-raise-ffn | FileCheck %s --check-prefix=PARAM
// RUN: stem-opt %S/Inputs/torch_swiglu.tosa.mlir --stem-externalize-constants=stem-file=%t.safetensors --stem-differential=stem-pipeline=stem-raise-ffn 2>&1 | FileCheck %s --check-prefix=NUMBERS
// PARAM: %[[D:.*]] = stem.param_load @torch_swiglu.0
// PARAM: %[[U:.*]] = stem.param_load @torch_swiglu.1
// PARAM: %[[G:.*]] = stem.param_load @torch_swiglu.2
// PARAM: stem.dense_ffn %{{.*}} gate %[[G]] up %[[U]] down %[[D]]

// CHECK-LABEL: func.func
// TORCH: tensor.collapse_shape
// JAX-COUNT-3: linalg.transpose
// CHECK: stem.dense_ffn
// TORCH-NEXT: tensor.expand_shape
// CHECK-NEXT: return
// NUMBERS: 1 comparisons agree
