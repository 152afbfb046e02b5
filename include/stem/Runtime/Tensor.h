//===- Tensor.h - Arguments of compiled entries -----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_TENSOR_H
#define STEM_RUNTIME_TENSOR_H

#include "stem-c/Runtime.h"

#include <initializer_list>
#include <span>

namespace stem {

/// Bytes of one element; 0 for a type that holds no numbers.
inline int64_t elementBytes(int32_t dtype) {
  switch (dtype) {
  case STEM_F32:
  case STEM_I32:
    return 4;
  case STEM_BF16:
  case STEM_F16:
    return 2;
  case STEM_I8:
    return 1;
  default:
    return 0;
  }
}

/// Elements in row-major order, one after the other; `rank` is at most
/// STEM_MAX_RANK.
inline stem_tensor denseTensor(void *data, int32_t dtype, const int64_t *sizes,
                               int32_t rank) {
  stem_tensor tensor = {};
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.rank = rank;
  int64_t stride = 1;
  for (int32_t i = rank - 1; i >= 0; --i) {
    tensor.sizes[i] = sizes[i];
    tensor.strides[i] = stride;
    stride *= sizes[i];
  }
  return tensor;
}

inline stem_tensor denseTensor(void *data, int32_t dtype,
                               std::initializer_list<int64_t> sizes) {
  return denseTensor(data, dtype, sizes.begin(),
                     static_cast<int32_t>(sizes.size()));
}

/// The elements of a vector. Those of a const one are for an entry to read.
inline stem_tensor vectorTensor(std::span<const int32_t> values) {
  return denseTensor(const_cast<int32_t *>(values.data()), STEM_I32,
                     {static_cast<int64_t>(values.size())});
}
inline stem_tensor vectorTensor(std::span<const float> values) {
  return denseTensor(const_cast<float *>(values.data()), STEM_F32,
                     {static_cast<int64_t>(values.size())});
}

/// A cache, a table store or a packed matrix.
inline stem_tensor handleTensor(void *object) {
  stem_tensor tensor = {};
  tensor.data = object;
  tensor.dtype = STEM_HANDLE;
  return tensor;
}

} // namespace stem

#endif // STEM_RUNTIME_TENSOR_H
