//===- RaiseFFNExpr.cpp - Formulas in a normal form -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RaiseFFN.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace stem::raise;

using Kind = Expr::Kind;

const Expr *ExprPool::get(Expr expr) {
  uint64_t bits;
  static_assert(sizeof(bits) == sizeof(expr.constant));
  std::memcpy(&bits, &expr.constant, sizeof(bits));
  std::string key =
      llvm::formatv("{0} {1:x} {2} {3}", static_cast<int>(expr.kind), bits,
                    expr.value.getAsOpaquePointer(), expr.name);
  for (const Expr *operand : expr.operands) {
    key += llvm::formatv(" {0}", operand->id).str();
    expr.hasProduct |= operand->hasProduct;
  }
  const Expr *&slot = known[key];
  if (!slot) {
    expr.id = storage.size();
    slot = &storage.emplace_back(std::move(expr));
  }
  return slot;
}

const Expr *ExprPool::product(Value value) {
  Expr expr(Kind::Product);
  expr.value = value;
  expr.hasProduct = true;
  return get(std::move(expr));
}

const Expr *ExprPool::constant(double number) {
  Expr expr(Kind::Constant);
  expr.constant = number == 0 ? 0 : number;
  return get(std::move(expr));
}

const Expr *ExprPool::bias(Value vector) {
  Expr expr(Kind::Bias);
  expr.value = vector;
  return get(std::move(expr));
}

const Expr *ExprPool::opaque(Value value, std::string name) {
  Expr expr(Kind::Opaque);
  expr.value = value;
  expr.name = std::move(name);
  return get(std::move(expr));
}

const Expr *ExprPool::other(std::string name, ArrayRef<const Expr *> operands) {
  Expr expr(Kind::Other);
  expr.name = std::move(name);
  expr.operands.assign(operands.begin(), operands.end());
  return get(std::move(expr));
}

const Expr *ExprPool::neg(const Expr *a) {
  if (a->is(Kind::Neg))
    return a->operands[0];
  if (a->is(Kind::Constant))
    return constant(-a->constant);
  Expr expr(Kind::Neg);
  expr.operands = {a};
  return get(std::move(expr));
}

const Expr *ExprPool::exp(const Expr *a) {
  Expr expr(Kind::Exp);
  expr.operands = {a};
  return get(std::move(expr));
}

const Expr *ExprPool::sigmoid(const Expr *a) {
  Expr expr(Kind::Sigmoid);
  expr.operands = {a};
  return get(std::move(expr));
}

/// The operands of both in one list, in a fixed order, with the constants
/// combined into the first.
static SmallVector<const Expr *, 4> flatten(Kind kind, const Expr *a,
                                            const Expr *b, double &constant) {
  SmallVector<const Expr *, 4> operands;
  for (const Expr *e : {a, b}) {
    if (e->is(kind))
      operands.append(e->operands.begin(), e->operands.end());
    else
      operands.push_back(e);
  }
  llvm::erase_if(operands, [&](const Expr *e) {
    if (!e->is(Kind::Constant))
      return false;
    constant =
        kind == Kind::Add ? constant + e->constant : constant * e->constant;
    return true;
  });
  llvm::sort(operands,
             [](const Expr *x, const Expr *y) { return x->id < y->id; });
  return operands;
}

const Expr *ExprPool::add(const Expr *a, const Expr *b) {
  double sum = 0;
  SmallVector<const Expr *, 4> operands = flatten(Kind::Add, a, b, sum);
  if (sum != 0 || operands.empty())
    operands.insert(operands.begin(), constant(sum));
  if (operands.size() == 1)
    return operands[0];
  Expr expr(Kind::Add);
  expr.operands = std::move(operands);
  return get(std::move(expr));
}

const Expr *ExprPool::mul(const Expr *a, const Expr *b) {
  if (a->is(Kind::Neg))
    return neg(mul(a->operands[0], b));
  if (b->is(Kind::Neg))
    return neg(mul(a, b->operands[0]));
  double factor = 1;
  SmallVector<const Expr *, 4> operands = flatten(Kind::Mul, a, b, factor);
  if (operands.empty())
    return constant(factor);
  const bool negative = factor < 0;
  factor = negative ? -factor : factor;
  if (factor != 1)
    operands.insert(operands.begin(), constant(factor));
  const Expr *result = operands[0];
  if (operands.size() > 1) {
    Expr expr(Kind::Mul);
    expr.operands = std::move(operands);
    result = get(std::move(expr));
  }
  return negative ? neg(result) : result;
}

const Expr *ExprPool::div(const Expr *a, const Expr *b) {
  if (b->isConstant(1))
    return a;
  // Pattern: a / (1 + exp(-s)) -> a * sigmoid(s)
  if (b->is(Kind::Add) && b->operands.size() == 2 &&
      b->operands[0]->isConstant(1) && b->operands[1]->is(Kind::Exp))
    return mul(a, sigmoid(neg(b->operands[1]->operands[0])));
  return other("a division", {a, b});
}

/// The first node, in order of evaluation, that `wanted` accepts.
static const Expr *find(const Expr *e,
                        llvm::function_ref<bool(const Expr *)> wanted) {
  SmallVector<const Expr *> stack = {e};
  llvm::SmallPtrSet<const Expr *, 16> seen;
  while (!stack.empty()) {
    const Expr *next = stack.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    if (wanted(next))
      return next;
    stack.append(next->operands.begin(), next->operands.end());
  }
  return nullptr;
}

const Expr *stem::raise::findOther(const Expr *e) {
  return find(e, [](const Expr *node) {
    return node->is(Kind::Other) && node->hasProduct;
  });
}

static std::string describeOther(const Expr *e) {
  StringRef name = e->name;
  if (name.contains("tanh") || name.contains("erf"))
    return "the gate goes through " + e->name +
           " (a GELU or the like), not through SiLU";
  if (name.contains("max") || name.contains("clamp") ||
      name.contains("select") || name.contains("cmp"))
    return "the gate goes through " + e->name +
           " (a ReLU or the like), not through SiLU";
  if (name == "a division")
    return "a division is not of the form g / (1 + exp(-g))";
  return "the values between the products go through " + e->name;
}

/// `-1.702` of `-1.702 * a`, and `a`.
static std::pair<double, const Expr *> splitFactor(const Expr *e) {
  double factor = 1;
  if (e->is(Kind::Neg)) {
    factor = -1;
    e = e->operands[0];
  }
  if (e->is(Kind::Mul) && e->operands.size() == 2 &&
      e->operands[0]->is(Kind::Constant))
    return {factor * e->operands[0]->constant, e->operands[1]};
  return {factor, e};
}

std::string stem::raise::describeMismatch(const Expr *e) {
  if (const Expr *other = findOther(e))
    return describeOther(other);
  const Expr *sigmoid =
      find(e, [](const Expr *node) { return node->is(Kind::Sigmoid); });
  if (!sigmoid)
    return "the product of gate and up has no SiLU";
  if (e->is(Kind::Neg) ||
      (e->is(Kind::Mul) && e->operands[0]->is(Kind::Constant)))
    return llvm::formatv("the product of gate and up is scaled by {0}",
                         e->is(Kind::Neg) ? -1.0 : e->operands[0]->constant);
  auto [factor, argument] = splitFactor(sigmoid->operands[0]);
  if (factor != 1)
    return llvm::formatv("the sigmoid reads {0} times the gate, so beta is not "
                         "1",
                         factor);
  if (!e->is(Kind::Mul) || !llvm::is_contained(e->operands, sigmoid))
    return "the values between the products are not a product of SiLU(gate) "
           "and up";
  if (!llvm::is_contained(e->operands, argument))
    return "the sigmoid reads another value than the one it multiplies";
  if (e->operands.size() != 3)
    return llvm::formatv("the product of gate and up has {0} factors, not "
                         "SiLU(gate) and one more",
                         e->operands.size() - 1);
  return "the up side is not a matrix product";
}
