//===- TilingUtils.h - Slices, destinations and generics ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_TILINGUTILS_H
#define STEM_LIB_TRANSFORMS_TILINGUTILS_H

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace stem {

using SliceRange = std::pair<mlir::OpFoldResult, mlir::OpFoldResult>;

/// Reports what keeps a tokenwise op on tensors from being lowered: a dynamic
/// size other than the number of tokens (or of the rows that it gathers from),
/// no elements, or a number of tokens that is static in one place and dynamic
/// in another.
mlir::LogicalResult verifyTokenShapes(TokenwiseOpInterface op);

/// `source[offset : offset + size]` in every dimension, stride 1.
mlir::Value extractSlice(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value source, llvm::ArrayRef<SliceRange> ranges);

/// `dest` with `source` written at those ranges.
mlir::Value insertSlice(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value source, mlir::Value dest,
                        llvm::ArrayRef<SliceRange> ranges);

/// The same inside the terminator of an scf.forall.
void parallelInsertSlice(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value source, mlir::Value dest,
                         llvm::ArrayRef<SliceRange> ranges);

/// The whole of dimension `index`.
SliceRange fullRange(mlir::OpBuilder &builder, mlir::Location loc,
                     mlir::Value source, unsigned index);

/// An uninitialised tensor with the sizes of `like` and another element type.
mlir::Value emptyLike(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value like, mlir::Type elementType);

/// An uninitialised tensor of the given sizes.
mlir::Value emptyTensor(mlir::OpBuilder &builder, mlir::Location loc,
                        llvm::ArrayRef<mlir::OpFoldResult> sizes,
                        mlir::Type elementType);

/// The columns of a row in memory, `columns` at least: a line more where rows
/// would be a multiple of half a page apart. Those meet in a few sets of the
/// first-level cache, and a matrix kernel reads many of them at a time.
int64_t spreadColumns(int64_t columns, mlir::Type elementType);

/// Where the value that `function` returns should be built: the argument
/// marked `stem.output`, or null. Several outputs match results in order.
mlir::Value outputArgument(mlir::func::FuncOp function, unsigned result);

/// How many arguments are marked `stem.output`.
unsigned countOutputs(mlir::func::FuncOp function);

/// The index of the result of `function` that is `value`, or none.
std::optional<unsigned> returnedIndex(mlir::Value value);

/// Converts a float between widths (bf16 and f32); same width: itself.
mlir::Value convertFloat(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value value, mlir::Type type);

/// One operand of a generic and the loop dimensions that index it.
struct Access {
  mlir::Value value;
  llvm::SmallVector<unsigned> dims;
};

using GenericBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
    mlir::OpBuilder &, mlir::Location, mlir::ValueRange)>;

/// A linalg.generic over `loops` parallel loops, the last of them a reduction
/// when `reduceLast`. The body sees inputs and outputs in order.
mlir::ValueRange buildGeneric(mlir::OpBuilder &builder, mlir::Location loc,
                              unsigned loops, bool reduceLast,
                              llvm::ArrayRef<Access> inputs,
                              llvm::ArrayRef<Access> outputs, GenericBody body);

/// `source` with every element converted to `elementType`, built in `dest`
/// when given. `source` itself when it has that type already.
mlir::Value convertTensor(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value source, mlir::Type elementType,
                          mlir::Value dest = {});

/// x as `[T, columns / group, group]`.
mlir::Value splitColumns(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value x, int64_t group);

/// The inverse of splitColumns.
mlir::Value joinColumns(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value x, mlir::Type type);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_TILINGUTILS_H
