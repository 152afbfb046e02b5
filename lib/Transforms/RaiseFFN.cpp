//===- RaiseFFN.cpp - Recognise SwiGLU in linalg and TOSA -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RaiseFFN.h"
#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/Support/FormatVariadic.h"

namespace stem {
#define GEN_PASS_DEF_STEMRAISEFFNPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;
using namespace stem::raise;

using Kind = Expr::Kind;

namespace {

/// A product with the bias that is added to it.
struct Linear {
  const Expr *product = nullptr;
  Value bias;
};

/// What one stem.dense_ffn is made of.
struct FFN {
  Linear gate, up, down;
  Value x;
  Weight gateWeight, upWeight, downWeight;
  /// The value that the FFN's result replaces.
  Value end;
};

/// Symbols to the ops that load them, over the whole module.
using ParamLoads = llvm::DenseMap<Attribute, SmallVector<Operation *>>;

/// Matches the FFN whose down-projection is one product.
class Matcher {
public:
  Matcher(Product down, const ParamLoads &loads)
      : down(std::move(down)), loads(loads) {}

  /// Whether the values before the down-projection look like a gated or
  /// activated product, so that a failed match is worth a remark.
  bool isCandidate();

  /// On failure `reason` says why.
  FailureOr<FFN> match();

  std::string reason;

private:
  LogicalResult matchGatedProduct();
  FailureOr<Linear> matchLinear(const Expr *e, StringRef role);
  LogicalResult checkShapes();
  LogicalResult matchOperands();
  LogicalResult checkTypes(Type operandType);
  LogicalResult checkUsers();
  LogicalResult checkWeightUsers(const Weight &weight, StringRef role);
  void matchDownBias();
  bool isInside(Operation *user, unsigned depth = 0) const;

  LogicalResult refuse(const Twine &why) {
    reason = why.str();
    return failure();
  }
  const Product &product(const Linear &linear) const {
    return builder.getProduct(linear.product);
  }

  Product down;
  const ParamLoads &loads;
  ExprBuilder builder;
  const Expr *hidden = nullptr;
  FFN ffn;
  llvm::SmallPtrSet<Operation *, 32> inside;
};

} // namespace

static std::string typeText(Type type) { return llvm::formatv("{0}", type); }

//===----------------------------------------------------------------------===//
// The formula
//===----------------------------------------------------------------------===//

bool Matcher::isCandidate() {
  hidden = builder.build(down.lhs);
  SmallVector<const Expr *> stack = {hidden};
  llvm::SmallPtrSet<const Expr *, 16> seen;
  while (!stack.empty()) {
    const Expr *e = stack.pop_back_val();
    if (!e->hasProduct || !seen.insert(e).second)
      continue;
    if (e->is(Kind::Exp) || e->is(Kind::Sigmoid) ||
        (e->is(Kind::Other) && e->name != "a division") ||
        (e->is(Kind::Mul) && llvm::count_if(e->operands, [](const Expr *o) {
                               return o->hasProduct;
                             }) > 1))
      return true;
    stack.append(e->operands.begin(), e->operands.end());
  }
  return false;
}

FailureOr<Linear> Matcher::matchLinear(const Expr *e, StringRef role) {
  if (e->is(Kind::Product))
    return Linear{e, {}};
  if (e->is(Kind::Add) && e->operands.size() == 2) {
    const Expr *a = e->operands[0], *b = e->operands[1];
    if (b->is(Kind::Product))
      std::swap(a, b);
    if (a->is(Kind::Product) && b->is(Kind::Bias))
      return Linear{a, b->value};
  }
  if (const Expr *other = findOther(e))
    return refuse("the " + role + " side goes through " + other->name);
  return refuse("the " + role +
                (e->hasProduct
                     ? " side is not one matrix product plus at most one bias "
                       "(a sum that starts from a tensor must start from zero "
                       "or a bias)"
                     : " side is not a matrix product"));
}

LogicalResult Matcher::matchGatedProduct() {
  // silu(gate) * up is a product of three: gate, sigmoid(gate), up.
  const Expr *gate = nullptr, *up = nullptr;
  if (hidden->is(Kind::Mul) && hidden->operands.size() == 3)
    for (const Expr *sigmoid : hidden->operands) {
      if (gate || !sigmoid->is(Kind::Sigmoid))
        continue;
      SmallVector<const Expr *, 2> others;
      for (const Expr *operand : hidden->operands)
        if (operand != sigmoid)
          others.push_back(operand);
      if (others.size() != 2)
        continue;
      const bool first = others[0] == sigmoid->operands[0];
      if (first || others[1] == sigmoid->operands[0]) {
        gate = others[first ? 0 : 1];
        up = others[first ? 1 : 0];
      }
    }
  if (!gate || (gate->hasProduct && !up->hasProduct && !up->is(Kind::Bias) &&
                !up->is(Kind::Opaque)))
    return refuse(describeMismatch(hidden));
  FailureOr<Linear> gateLinear = matchLinear(gate, "gate");
  if (failed(gateLinear))
    return failure();
  FailureOr<Linear> upLinear = matchLinear(up, "up");
  if (failed(upLinear))
    return failure();
  ffn.gate = *gateLinear;
  ffn.up = *upLinear;
  return success();
}

//===----------------------------------------------------------------------===//
// Shapes and types
//===----------------------------------------------------------------------===//

/// The vector behind a bias, `[F]` or unit dimensions before it.
static bool isVectorOf(Value bias, int64_t size) {
  auto type = dyn_cast<RankedTensorType>(bias.getType());
  return type && type.hasStaticShape() && !type.getEncoding() &&
         type.getRank() > 0 && type.getNumElements() == size &&
         type.getShape().back() == size &&
         isa<Float32Type, Float64Type, BFloat16Type, Float16Type>(
             type.getElementType());
}

LogicalResult Matcher::checkShapes() {
  const Product &gate = product(ffn.gate), &up = product(ffn.up);
  for (const Product *p : {&gate, &up, static_cast<const Product *>(&down)})
    if (!p->problem.empty())
      return refuse(p->problem);
  if (gate.inputs != up.inputs || gate.outputs != up.outputs ||
      down.inputs != gate.outputs || down.outputs != gate.inputs)
    return refuse(llvm::formatv(
        "the shapes of the weights do not agree: gate {0} x {1}, up {2} x {3}, "
        "down {4} x {5}",
        gate.inputs, gate.outputs, up.inputs, up.outputs, down.inputs,
        down.outputs));
  if ((ffn.gate.bias && !isVectorOf(ffn.gate.bias, gate.outputs)) ||
      (ffn.up.bias && !isVectorOf(ffn.up.bias, up.outputs)))
    return refuse("a bias does not have one float for each output of its "
                  "weight");
  return success();
}

LogicalResult Matcher::checkTypes(Type type) {
  if (!isa<Float32Type, Float64Type, BFloat16Type, Float16Type>(type))
    return refuse("the products read " + typeText(type) +
                  ", wanted f32, f64, bf16 or f16");
  const Type sumType =
      type.isF64() ? type : Float32Type::get(type.getContext());
  for (const Product *p : {&product(ffn.gate), &product(ffn.up),
                           static_cast<const Product *>(&down)})
    if (p->sumType != sumType)
      return refuse("a product of " + typeText(type) + " sums in " +
                    typeText(p->sumType) + ", stem.dense_ffn in " +
                    typeText(sumType));
  for (Type computed : builder.computeTypes())
    if (computed != type &&
        computed.getIntOrFloatBitWidth() <= type.getIntOrFloatBitWidth())
      return refuse("a value between products of " + typeText(type) +
                    " is rounded to " + typeText(computed));
  return success();
}

LogicalResult Matcher::matchOperands() {
  const Product &gate = product(ffn.gate), &up = product(ffn.up);
  if (peelRows(gate.lhs, /*throughCasts=*/true) !=
      peelRows(up.lhs, /*throughCasts=*/true))
    return refuse("gate and up read different inputs");
  // bf16 that is widened before each product is the same as a product of bf16
  // with sums in f32.
  auto collect = [&](bool narrow) {
    auto weight = [&](const Product &p) {
      return narrow ? p.narrowWeight : p.weight;
    };
    ffn.x = peelRows(gate.lhs, narrow);
    ffn.gateWeight = weight(gate);
    ffn.upWeight = weight(up);
    ffn.downWeight = weight(down);
    SmallVector<Type> types = {
        getElementTypeOrSelf(ffn.x.getType()),
        getElementTypeOrSelf(peelRows(up.lhs, narrow).getType()),
        getElementTypeOrSelf(peelRows(down.lhs, narrow).getType()),
        ffn.gateWeight.getType().getElementType(),
        ffn.upWeight.getType().getElementType(),
        ffn.downWeight.getType().getElementType()};
    return llvm::all_equal(types);
  };
  for (bool narrow : {true, false}) {
    reason = "the activations and weights of the products do not have one type";
    if (collect(narrow) &&
        succeeded(checkTypes(getElementTypeOrSelf(ffn.x.getType()))))
      break;
    if (!narrow)
      return failure();
  }
  for (const Weight *w : {&ffn.gateWeight, &ffn.upWeight, &ffn.downWeight})
    if (w->getType().getEncoding())
      return refuse("a weight has an encoding");
  auto xType = dyn_cast<RankedTensorType>(ffn.x.getType());
  if (!xType || xType.getRank() < 2 || xType.getEncoding() ||
      xType.getShape().back() != gate.inputs)
    return refuse("the input is not a plain tensor with one row per token");
  return success();
}

//===----------------------------------------------------------------------===//
// Users
//===----------------------------------------------------------------------===//

bool Matcher::isInside(Operation *user, unsigned depth) const {
  if (inside.contains(user))
    return true;
  // The sizes of dynamic tensors (tensor.dim for a tensor.empty) go with the
  // ops that need them.
  if (depth > 8 || user->getNumRegions() != 0 ||
      user->hasTrait<OpTrait::IsTerminator>() || !isMemoryEffectFree(user))
    return false;
  return llvm::all_of(user->getUsers(), [&](Operation *next) {
    return isInside(next, depth + 1);
  });
}

LogicalResult Matcher::checkWeightUsers(const Weight &weight, StringRef role) {
  SmallVector<Value> values = {weight.base};
  for (Operation *op : weight.chain)
    values.push_back(op->getResult(0));
  for (Value value : values)
    for (Operation *user : value.getUsers())
      if (!isInside(user))
        return refuse("the " + role + " weight has another user");
  if (auto load = weight.base.getDefiningOp<ParamLoadOp>())
    for (Operation *other : loads.lookup(load.getParamAttr()))
      if (other != load && !isInside(other))
        return refuse("the " + role + " weight, parameter @" + load.getParam() +
                      ", has another user");
  return success();
}

LogicalResult Matcher::checkUsers() {
  inside.insert(builder.dependentOps().begin(), builder.dependentOps().end());
  inside.insert(down.op);
  for (Operation *op : builder.dependentOps())
    for (Operation *user : op->getUsers())
      if (!isInside(user))
        return refuse("the result of " + op->getName().getStringRef() +
                      ", a value between the products, has another user (" +
                      user->getName().getStringRef() + ")");
  const std::pair<const Weight *, StringRef> weights[] = {
      {&ffn.gateWeight, "gate"},
      {&ffn.upWeight, "up"},
      {&ffn.downWeight, "down"}};
  for (auto [weight, role] : weights)
    inside.insert(weight->chain.begin(), weight->chain.end());
  for (auto [weight, role] : weights)
    if (failed(checkWeightUsers(*weight, role)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// What follows the down-projection
//===----------------------------------------------------------------------===//

static int64_t countDynamic(RankedTensorType type) {
  return llvm::count_if(type.getShape(), ShapedType::isDynamic);
}

/// Whether `value` can be made from rows `[T, D]` with sizes that are known:
/// one dynamic dimension follows from T, more are those of the destination.
static bool isRowsShape(Value value, int64_t columns) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && !type.getEncoding() && type.getRank() >= 2 &&
         type.getShape().back() == columns &&
         !llvm::is_contained(type.getShape().drop_back(), 0) &&
         (countDynamic(type) <= 1 ||
          isa<linalg::LinalgOp>(value.getDefiningOp()));
}

void Matcher::matchDownBias() {
  Value value = down.op->getResult(0);
  const Expr *e = builder.build(value);
  Type type = getElementTypeOrSelf(ffn.x.getType());
  for (unsigned step = 0; step < kMaxChain && value.hasOneUse(); ++step) {
    Operation *user = *value.user_begin();
    if (user->getNumResults() != 1 || user->getBlock() != down.op->getBlock())
      return;
    Value next = user->getResult(0);
    auto nextType = dyn_cast<RankedTensorType>(next.getType());
    if (!isRowsShape(next, down.outputs) || analyzeProduct(user))
      return;
    const Type nextElement = nextType.getElementType();
    if (nextElement != type &&
        nextElement.getIntOrFloatBitWidth() <= type.getIntOrFloatBitWidth())
      return;
    const Expr *nextExpr = builder.build(next);
    if (nextExpr == e) {
      // A reshape goes with the FFN; a cast only when a bias follows.
      value = next;
      if (nextElement == getElementTypeOrSelf(ffn.end.getType()))
        ffn.end = next;
      continue;
    }
    std::string ignored = std::move(reason);
    FailureOr<Linear> linear = matchLinear(nextExpr, "down");
    reason = std::move(ignored);
    if (ffn.down.bias || failed(linear) ||
        linear->product->value != ffn.down.product->value || !linear->bias ||
        !isVectorOf(linear->bias, down.outputs))
      return;
    ffn.down = *linear;
    ffn.end = value = next;
    e = nextExpr;
  }
}

FailureOr<FFN> Matcher::match() {
  if (failed(matchGatedProduct()) || failed(checkShapes()) ||
      failed(matchOperands()) || failed(checkUsers()))
    return failure();
  ffn.end = down.op->getResult(0);
  FailureOr<Linear> downLinear = matchLinear(builder.build(ffn.end), "down");
  if (failed(downLinear))
    return failure();
  ffn.down = *downLinear;
  if (ffn.down.bias && !isVectorOf(ffn.down.bias, down.outputs))
    return LogicalResult(refuse("the bias of the down-projection does not have "
                                "one float for each output"));
  if (!isRowsShape(ffn.end, down.outputs))
    return LogicalResult(
        refuse("the result has more than one dimension that is not static"));
  matchDownBias();
  return ffn;
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

/// All dimensions but the last in one group.
static SmallVector<ReassociationIndices> rowGroups(int64_t rank) {
  SmallVector<ReassociationIndices> groups(2);
  for (int64_t i = 0; i + 1 < rank; ++i)
    groups[0].push_back(i);
  groups[1].push_back(rank - 1);
  return groups;
}

static Value collapseTo(OpBuilder &builder, Location loc, Value value,
                        int64_t rank) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() == rank)
    return value;
  SmallVector<ReassociationIndices> groups =
      rank == 2 ? rowGroups(type.getRank())
                : SmallVector<ReassociationIndices>{llvm::to_vector<2>(
                      llvm::seq<int64_t>(0, type.getRank()))};
  return tensor::CollapseShapeOp::create(builder, loc, value, groups);
}

/// The sizes of `end`, at most one of them dynamic and then from the number of
/// `rows`.
static SmallVector<OpFoldResult> getSizes(OpBuilder &builder, Location loc,
                                          Value rows, Value end) {
  auto type = cast<RankedTensorType>(end.getType());
  if (countDynamic(type) > 1) {
    auto op = end.getDefiningOp<linalg::LinalgOp>();
    return tensor::getMixedSizes(builder, loc, op.getDpsInits().front());
  }
  int64_t known = 1;
  for (int64_t size : type.getShape().drop_back())
    known *= ShapedType::isDynamic(size) ? 1 : size;
  SmallVector<OpFoldResult> sizes;
  for (int64_t size : type.getShape()) {
    if (!ShapedType::isDynamic(size)) {
      sizes.push_back(builder.getIndexAttr(size));
      continue;
    }
    Value tokens = tensor::DimOp::create(builder, loc, rows, 0);
    if (known != 1)
      tokens = arith::DivUIOp::create(
          builder, loc, tokens,
          arith::ConstantIndexOp::create(builder, loc, known));
    sizes.push_back(tokens);
  }
  return sizes;
}

/// `rows`, `[T, D]`, as a tensor of the type of `end`.
static Value expandRows(OpBuilder &builder, Location loc, Value rows,
                        Value end) {
  auto target = cast<RankedTensorType>(end.getType());
  auto castTo = [&](int64_t tokens) {
    auto type = RankedTensorType::get({tokens, target.getShape().back()},
                                      target.getElementType());
    if (rows.getType() != type)
      rows = tensor::CastOp::create(builder, loc, type, rows);
  };
  if (target.getRank() == 2) {
    castTo(target.getDimSize(0));
    return rows;
  }
  // A group of dimensions is dynamic on both sides of a reshape or on neither.
  castTo(target.hasStaticShape()
             ? target.getNumElements() / target.getShape().back()
             : ShapedType::kDynamic);
  return tensor::ExpandShapeOp::create(builder, loc, target, rows,
                                       rowGroups(target.getRank()),
                                       getSizes(builder, loc, rows, end));
}

static void rewrite(const FFN &ffn) {
  Operation *last = ffn.end.getDefiningOp();
  OpBuilder builder(last);
  Location loc = last->getLoc();
  Value x = collapseTo(builder, loc, ffn.x, 2);
  auto weight = [&](const Weight &w) {
    return materializeWeight(builder, loc, w);
  };
  auto bias = [&](const Linear &linear) {
    return linear.bias ? collapseTo(builder, loc, linear.bias, 1) : Value();
  };
  auto endType = cast<RankedTensorType>(ffn.end.getType());
  auto resultType = RankedTensorType::get(
      cast<RankedTensorType>(x.getType()).getShape(), endType.getElementType());
  Value gate = weight(ffn.gateWeight), up = weight(ffn.upWeight),
        down = weight(ffn.downWeight);
  Value gateBias = bias(ffn.gate), upBias = bias(ffn.up),
        downBias = bias(ffn.down);
  Value rows = DenseFFNOp::create(builder, loc, resultType, x, gate, up, down,
                                  gateBias, upBias, downBias);
  Value end = ffn.end;
  end.replaceAllUsesWith(expandRows(builder, loc, rows, end));
}

/// Erases `roots` and what only they used, as far as it has no effect.
static void eraseDead(SmallVector<Operation *> roots) {
  llvm::SetVector<Operation *> work(roots.begin(), roots.end());
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!isOpTriviallyDead(op))
      continue;
    for (Value operand : op->getOperands())
      if (Operation *source = operand.getDefiningOp())
        work.insert(source);
    op->erase();
  }
}

namespace {

struct RaiseFFNPass : public stem::impl::StemRaiseFFNPassBase<RaiseFFNPass> {
  void runOnOperation() override {
    ParamLoads loads;
    SmallVector<Operation *> products;
    getOperation()->walk([&](Operation *op) {
      if (auto load = dyn_cast<ParamLoadOp>(op))
        loads[load.getParamAttr()].push_back(load);
      else if (analyzeProduct(op))
        products.push_back(op);
    });
    SmallVector<Operation *> replaced;
    for (Operation *op : products)
      raise(op, loads, replaced);
    eraseDead(std::move(replaced));
  }

private:
  void raise(Operation *op, const ParamLoads &loads,
             SmallVector<Operation *> &replaced) {
    Matcher matcher(*analyzeProduct(op), loads);
    if (!matcher.isCandidate())
      return;
    auto function = op->getParentOfType<FunctionOpInterface>();
    auto options = remark::RemarkOpts::name("dense-ffn")
                       .category("stem-raise-ffn")
                       .function(function ? function.getName() : StringRef());
    FailureOr<FFN> ffn = matcher.match();
    if (failed(ffn)) {
      remark::missed(op->getLoc(), options)
          << remark::reason("{0}", matcher.reason);
      return;
    }
    Operation *last = ffn->end.getDefiningOp();
    remark::passed(op->getLoc(), options)
        << "a SwiGLU FFN became stem.dense_ffn";
    rewrite(*ffn);
    replaced.push_back(last);
  }
};

} // namespace
