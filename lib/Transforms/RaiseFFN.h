//===- RaiseFFN.h - What stem-raise-ffn reads IR into -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pass does not match IR patterns. It reads the elementwise ops between
// matrix products, whatever dialect they are in and however they are split,
// into one expression per element, and matches that.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_RAISEFFN_H
#define STEM_LIB_TRANSFORMS_RAISEFFN_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/BuiltinTypes.h"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stem::raise {

/// Longest chain of ops that is followed; IR in unreachable code may be cyclic.
inline constexpr unsigned kMaxChain = 64;

/// What a dimension of a weight is for its product.
enum class WeightDim { Input, Output, Unit };

/// A weight behind the transposes, broadcasts and unit dimensions that lie
/// between it and its product.
struct Weight {
  mlir::Value base;
  llvm::SmallVector<WeightDim> dims;
  /// The ops between, with intermediate results.
  llvm::SmallVector<mlir::Operation *> chain;

  mlir::RankedTensorType getType() const {
    return llvm::cast<mlir::RankedTensorType>(base.getType());
  }
  /// Whether the output dimension comes first, as in `[out, in]`.
  bool isOutIn() const;
};

/// result[t, n] = init[t, n] + sum_k lhs[t, k] * weight[k, n]
struct Product {
  mlir::Operation *op;
  mlir::Value lhs;
  /// As the product reads it, and behind a widening cast.
  Weight weight, narrowWeight;
  int64_t inputs, outputs;
  mlir::Type sumType;
  /// Null for an op that starts from zero by definition.
  mlir::Value init;
  /// Why it cannot be the product of an FFN; empty when it can.
  std::string problem;
};

/// Nothing when `op` is no product of rows with one weight: another op, or a
/// product whose right operand differs over a batch.
std::optional<Product> analyzeProduct(mlir::Operation *op);

/// The weight as a matrix `[out, in]`.
mlir::Value materializeWeight(mlir::OpBuilder &builder, mlir::Location loc,
                              const Weight &weight);

/// The operand of an op that only changes the shape and keeps the row-major
/// order of elements: reshapes, casts to a more or less static shape.
mlir::Value getReshapeSource(mlir::Operation *op);

/// The operand of an op that converts every element to a wider float type.
mlir::Value getWideningSource(mlir::Operation *op);

/// The tensor of rows behind reshapes that keep the last dimension, and with
/// `throughCasts` behind widening casts.
mlir::Value peelRows(mlir::Value rows, bool throughCasts);

/// One element of a tensor as a formula. Equal formulas are the same object.
struct Expr {
  enum class Kind {
    Product,  ///< an element of a matrix product, without its init
    Constant, ///< the same number for every element
    Bias,     ///< a vector along the last dimension
    Opaque,   ///< a value that is not looked into
    Neg,
    Exp,
    Sigmoid,
    Add,  ///< of two or more operands
    Mul,  ///< of two or more operands, a constant first
    Other ///< any op named `name`
  };
  Kind kind;
  unsigned id = 0;
  double constant = 0;
  mlir::Value value;
  std::string name;
  llvm::SmallVector<const Expr *, 4> operands;
  bool hasProduct = false;

  explicit Expr(Kind kind) : kind(kind) {}

  bool is(Kind other) const { return kind == other; }
  bool isConstant(double number) const {
    return kind == Kind::Constant && constant == number;
  }
};

/// Makes formulas in a normal form: sums and products flat and sorted,
/// negations outside products, 1 / (1 + exp(-a)) as the sigmoid of a.
class ExprPool {
public:
  const Expr *product(mlir::Value value);
  const Expr *constant(double number);
  const Expr *bias(mlir::Value vector);
  const Expr *opaque(mlir::Value value, std::string name);
  const Expr *neg(const Expr *a);
  const Expr *exp(const Expr *a);
  const Expr *sigmoid(const Expr *a);
  const Expr *add(const Expr *a, const Expr *b);
  const Expr *mul(const Expr *a, const Expr *b);
  const Expr *div(const Expr *a, const Expr *b);
  const Expr *other(std::string name, llvm::ArrayRef<const Expr *> operands);

private:
  const Expr *get(Expr expr);

  std::deque<Expr> storage;
  std::map<std::string, const Expr *> known;
};

/// Reads values into formulas and remembers which ops it went through.
class ExprBuilder {
public:
  const Expr *build(mlir::Value value);

  /// The product that a formula of kind Product stands for.
  const Product &getProduct(const Expr *product) const {
    return products.at(product->value.getDefiningOp());
  }

  /// Ops on tensors whose result depends on a product: what a match replaces.
  llvm::ArrayRef<mlir::Operation *> dependentOps() const { return dependents; }
  /// The float types in which those ops compute, products' sums included.
  llvm::ArrayRef<mlir::Type> computeTypes() const { return types; }

private:
  const Expr *buildOp(mlir::Operation *op, mlir::Value value);
  const Expr *buildLinalg(mlir::linalg::LinalgOp op, mlir::Value value);
  const Expr *buildLinalgOperand(mlir::linalg::LinalgOp op,
                                 mlir::OpOperand &operand);
  const Expr *buildBody(mlir::Value scalar,
                        llvm::DenseMap<mlir::Value, const Expr *> &bodyValues);
  const Expr *buildTosa(mlir::Operation *op);
  const Expr *buildTosaOperand(mlir::Operation *op, mlir::Value operand);
  const Expr *buildScalarOp(mlir::Operation *op,
                            llvm::ArrayRef<const Expr *> operands);
  /// `e`, an element of `value`, in a tensor that repeats it along the leading
  /// dimensions.
  const Expr *asBias(const Expr *e, mlir::Value value);
  const Expr *asUnitRowBias(const Expr *e, mlir::Value value);
  void noteType(const Expr *e, mlir::Type type);

  ExprPool pool;
  llvm::DenseMap<mlir::Value, const Expr *> memo;
  std::map<mlir::Operation *, Product> products;
  llvm::SmallVector<mlir::Operation *> dependents;
  llvm::SmallVector<mlir::Type> types;
  unsigned budget = 512;
};

/// A node of kind Other in `e` that depends on a product, or null.
const Expr *findOther(const Expr *e);

/// Why `e` is not silu(gate) * up, in words.
std::string describeMismatch(const Expr *e);

} // namespace stem::raise

#endif // STEM_LIB_TRANSFORMS_RAISEFFN_H
