//===- Autodiff.cpp - Gradients by reverse mode ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rule may use the operands and results of its op, which lie in the forward
// function. They are left there while the backward function is filled, and
// become its arguments afterwards: that is how residuals are found.
//
//===----------------------------------------------------------------------===//

#include "AutodiffActivity.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Dialect/Stem/StemVjp.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMAUTODIFFPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

// A call chain in a model is two or three functions long.
static constexpr unsigned kMaxDepth = 64;
// Residuals of a layer are some ten.
static constexpr size_t kMaxResiduals = 65536;

namespace {

/// The two functions of a callee.
struct Derivative {
  func::FuncOp forward, backward;
  /// Operands of backward, in this order: arguments of the callee,
  SmallVector<unsigned> captured;
  /// residuals, which forward returns behind its results,
  unsigned residuals = 0;
  /// and cotangents of these results.
  SmallVector<unsigned> cotangents;
  /// The arguments whose cotangents backward returns.
  SmallVector<unsigned> adjoints;
};

class Differentiator {
public:
  Differentiator(ModuleOp module, func::FuncOp root)
      : module(module), symbols(module), root(root), activity(root, symbols) {}

  LogicalResult run() {
    if (failed(activity.analyze()))
      return failure();
    return deriveRoot();
  }

private:
  using CotangentMap = DenseMap<Value, Value>;
  using ValueSet = Activity::ValueSet;

  // The backward part of a block.
  LogicalResult buildBackward(Block &forward, const ValueSet &varied,
                              OpBuilder &builder, CotangentMap &cotangents);
  LogicalResult buildRule(Operation *op, ArrayRef<Value> incoming,
                          const ValueSet &varied, OpBuilder &builder,
                          CotangentMap &cotangents);
  LogicalResult buildCallBackward(func::CallOp call, const ValueSet &varied,
                                  OpBuilder &builder, CotangentMap &cotangents);
  LogicalResult accumulate(OpBuilder &builder, CotangentMap &cotangents,
                           Value value, Value cotangent);

  // Functions.
  LogicalResult verifyStraightLine(func::FuncOp function);
  FailureOr<const Derivative *> derive(func::FuncOp function,
                                       func::CallOp call);
  LogicalResult capture(Derivative &derivative, func::FuncOp forward,
                        Block &backward);
  LogicalResult deriveRoot();

  // Gradients.
  struct Gradient {
    Value value;
    NamedAttribute attribute;
  };
  LogicalResult collectGradients(func::FuncOp vjp, OpBuilder &builder,
                                 const CotangentMap &cotangents,
                                 SmallVectorImpl<Gradient> &gradients);
  LogicalResult returnGradients(func::FuncOp vjp, OpBuilder &builder,
                                const CotangentMap &cotangents);

  /// Adds who asked.
  void noteRoot(InFlightDiagnostic &diag) {
    diag.attachNote(root.getLoc())
        << "asked for by stem-autodiff of '" << root.getName() << "'";
  }

  ModuleOp module;
  SymbolTable symbols;
  func::FuncOp root;
  Activity activity;
  /// Null while a function is being derived.
  DenseMap<Operation *, std::unique_ptr<Derivative>> derivatives;
  unsigned depth = 0;
};

} // namespace

//===----------------------------------------------------------------------===//
// The backward part of a block
//===----------------------------------------------------------------------===//

/// Adds to what flows back into a value.
LogicalResult Differentiator::accumulate(OpBuilder &builder,
                                         CotangentMap &cotangents, Value value,
                                         Value cotangent) {
  Location loc = value.getLoc();
  if (!isa<RowGradientType>(cotangent.getType())) {
    Type wanted = getCotangentType(value.getType());
    cotangent = convertCotangent(builder, loc, cotangent, wanted);
    if (cotangent.getType() != wanted)
      cotangent = tensor::CastOp::create(builder, loc, wanted, cotangent);
  }
  auto [entry, isNew] = cotangents.try_emplace(value, cotangent);
  if (isNew)
    return success();
  Value &sum = entry->second;
  if (sum.getType() != cotangent.getType())
    return emitError(loc, "stem.lookup reads this, and so does an op whose "
                          "gradient is no row for each token: the two do not "
                          "add up");
  sum = isa<RowGradientType>(cotangent.getType())
            ? MergeRowGradientsOp::create(builder, loc, sum, cotangent)
                  .getResult()
            : arith::AddFOp::create(builder, loc, sum, cotangent).getResult();
  return success();
}

/// Of the shape of `value`, in the type of its cotangent.
static Value createZeros(OpBuilder &builder, Value value) {
  Location loc = value.getLoc();
  auto type = cast<RankedTensorType>(getCotangentType(value.getType()));
  SmallVector<Value> sizes;
  for (auto [dim, size] : llvm::enumerate(type.getShape()))
    if (ShapedType::isDynamic(size))
      sizes.push_back(tensor::DimOp::create(builder, loc, value, dim));
  Value empty = tensor::EmptyOp::create(builder, loc, type, sizes);
  Value zero = arith::ConstantOp::create(
      builder, loc, builder.getFloatAttr(type.getElementType(), 0.0));
  return linalg::FillOp::create(builder, loc, zero, empty).getResult(0);
}

/// The call becomes one of the forward function, and one of the backward
/// function is built.
LogicalResult Differentiator::buildCallBackward(func::CallOp call,
                                                const ValueSet &varied,
                                                OpBuilder &builder,
                                                CotangentMap &cotangents) {
  FailureOr<const Derivative *> found = derive(activity.calleeOf(call), call);
  if (failed(found))
    return failure();
  const Derivative &derivative = **found;
  OpBuilder before(call);
  auto forward = func::CallOp::create(before, call.getLoc(), derivative.forward,
                                      call.getOperands());
  SmallVector<Value> operands;
  for (unsigned index : derivative.captured)
    operands.push_back(call.getOperand(index));
  llvm::append_range(operands,
                     forward.getResults().take_back(derivative.residuals));
  for (unsigned index : derivative.cotangents) {
    Value cotangent = cotangents.lookup(call.getResult(index));
    operands.push_back(
        cotangent ? cotangent : createZeros(builder, forward.getResult(index)));
  }
  for (Value result : call.getResults())
    cotangents.erase(result);
  call.replaceAllUsesWith(
      forward.getResults().take_front(call.getNumResults()));
  call.erase();
  if (derivative.adjoints.empty())
    return success();
  auto backward = func::CallOp::create(builder, forward.getLoc(),
                                       derivative.backward, operands);
  for (auto [index, adjoint] :
       llvm::zip_equal(derivative.adjoints, backward.getResults()))
    if (Value operand = forward.getOperand(index); varied.contains(operand))
      if (failed(accumulate(builder, cotangents, operand, adjoint)))
        return failure();
  return success();
}

LogicalResult Differentiator::buildRule(Operation *op, ArrayRef<Value> incoming,
                                        const ValueSet &varied,
                                        OpBuilder &builder,
                                        CotangentMap &cotangents) {
  auto rule = dyn_cast<VjpOpInterface>(op);
  if (!rule) {
    auto diag = op->emitError() << "a derivative flows through this op, but '"
                                << op->getName() << "' has no VJP rule";
    noteRoot(diag);
    return diag;
  }
  SmallVector<Value> adjoints(op->getNumOperands());
  if (failed(rule.buildVjp(builder, incoming, adjoints)))
    return failure();
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    if (!varied.contains(operand))
      continue;
    if (!adjoints[i]) {
      auto diag = op->emitError()
                  << "operand " << i
                  << " depends on a weight or an argument, but the rule of '"
                  << op->getName() << "' takes it as data";
      noteRoot(diag);
      return diag;
    }
    if (failed(accumulate(builder, cotangents, operand, adjoints[i])))
      return failure();
  }
  return success();
}

LogicalResult Differentiator::buildBackward(Block &forward,
                                            const ValueSet &varied,
                                            OpBuilder &builder,
                                            CotangentMap &cotangents) {
  // The builder may stand in the same block: what it adds has no derivative.
  SmallVector<Operation *> ops;
  for (Operation &op : forward.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    SmallVector<Value> incoming;
    for (Value result : op->getResults())
      incoming.push_back(cotangents.lookup(result));
    if (activity.isSource(op) ||
        llvm::none_of(incoming, [](Value v) { return bool(v); }))
      continue;
    for (Value cotangent : incoming)
      if (cotangent && isa<RowGradientType>(cotangent.getType()))
        return op->emitError("stem.lookup reads what this op gives, and only "
                             "rows of stem.table_rows and arguments have the "
                             "gradient of that");
    auto call = dyn_cast<func::CallOp>(op);
    if (failed(call ? buildCallBackward(call, varied, builder, cotangents)
                    : buildRule(op, incoming, varied, builder, cotangents)))
      return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

LogicalResult Differentiator::verifyStraightLine(func::FuncOp function) {
  if (llvm::hasSingleElement(function.getBody()) &&
      isa<func::ReturnOp>(function.getBody().front().getTerminator()))
    return success();
  auto diag = function.emitError()
              << "'" << function.getName()
              << "' is not one block that ends with func.return, and "
                 "stem-autodiff derives straight-line functions only";
  if (function != root)
    noteRoot(diag);
  return diag;
}

/// Erases ops of the block that nothing needs, but those of `kept`.
static void eraseDead(Block &block, const DenseSet<Operation *> &kept) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (!kept.contains(&op) && isOpTriviallyDead(&op))
      op.erase();
}

/// Turns values of the forward function that the backward one uses into its
/// arguments: arguments stay arguments, results become residuals, and
/// constants are made again.
LogicalResult Differentiator::capture(Derivative &derivative,
                                      func::FuncOp forwardFunction,
                                      Block &backward) {
  Block &forward = forwardFunction.getBody().front();
  llvm::SetVector<Value> used;
  for (Operation &op : backward)
    for (Value operand : op.getOperands())
      if (operand.getParentBlock() == &forward)
        used.insert(operand);
  SmallVector<Value> arguments, residuals, constants;
  for (Value value : used) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      arguments.push_back(value);
      derivative.captured.push_back(argument.getArgNumber());
    } else if (matchPattern(value, m_Constant())) {
      constants.push_back(value);
    } else {
      residuals.push_back(value);
    }
  }
  if (residuals.size() > kMaxResiduals)
    return root.emitError()
           << "the derivative of '" << forwardFunction.getName() << "' keeps "
           << residuals.size() << " values of its forward, and the limit is "
           << kMaxResiduals;
  derivative.residuals = residuals.size();
  auto replace = [&](Value value, Value with) {
    value.replaceUsesWithIf(with, [&](OpOperand &use) {
      return use.getOwner()->getBlock() == &backward;
    });
  };
  unsigned position = 0;
  for (Value value : llvm::concat<Value>(arguments, residuals))
    replace(value, backward.insertArgument(position++, value.getType(),
                                           value.getLoc()));
  auto builder = OpBuilder::atBlockBegin(&backward);
  for (Value value : constants)
    replace(value, builder.clone(*value.getDefiningOp())->getResult(0));
  forward.getTerminator()->insertOperands(
      forward.getTerminator()->getNumOperands(), residuals);
  return success();
}

/// Sets a function's type from its block and its terminator.
static void updateType(func::FuncOp function) {
  Block &block = function.getBody().front();
  function.setType(FunctionType::get(function.getContext(),
                                     block.getArgumentTypes(),
                                     block.getTerminator()->getOperandTypes()));
}

static func::FuncOp cloneAs(func::FuncOp function, StringRef suffix,
                            SymbolTable &symbols) {
  func::FuncOp clone = function.clone();
  clone.setName((function.getName() + suffix).str());
  symbols.insert(clone, std::next(function->getIterator()));
  return clone;
}

FailureOr<const Derivative *> Differentiator::derive(func::FuncOp function,
                                                     func::CallOp call) {
  auto [known, isNew] = derivatives.try_emplace(function, nullptr);
  if (!isNew && known->second)
    return known->second.get();
  if (function.isExternal() || !isNew || depth == kMaxDepth) {
    auto diag = call.emitError()
                << "a derivative flows through this call, but ";
    if (function.isExternal())
      diag << "'" << function.getName() << "' has no body";
    else if (!isNew)
      diag << "'" << function.getName()
           << "' calls itself, directly or through other functions";
    else
      diag << "calls are nested deeper than " << kMaxDepth;
    noteRoot(diag);
    return diag;
  }
  if (failed(verifyStraightLine(function)))
    return failure();

  auto derivative = std::make_unique<Derivative>();
  func::FuncOp forward = cloneAs(function, "_forward", symbols);
  forward.setPrivate();
  Block &block = forward.getBody().front();
  const llvm::BitVector arguments = activity.variedArguments(function);
  const ValueSet varied = activity.variedValues(forward, arguments);
  auto backward = func::FuncOp::create(
      function.getLoc(), (function.getName() + "_backward").str(),
      FunctionType::get(module.getContext(), {}, {}));
  backward.setPrivate();
  symbols.insert(backward, std::next(forward->getIterator()));
  Block &body = *backward.addEntryBlock();
  OpBuilder builder = OpBuilder::atBlockEnd(&body);
  CotangentMap cotangents;
  for (auto [i, result] :
       llvm::enumerate(block.getTerminator()->getOperands())) {
    if (!varied.contains(result) || !hasCotangent(result.getType()))
      continue;
    derivative->cotangents.push_back(i);
    Value cotangent =
        body.addArgument(getCotangentType(result.getType()), result.getLoc());
    if (failed(accumulate(builder, cotangents, result, cotangent)))
      return failure();
  }
  ++depth;
  if (failed(buildBackward(block, varied, builder, cotangents)))
    return failure();
  --depth;
  SmallVector<Value> adjoints;
  for (unsigned index : arguments.set_bits())
    if (Value adjoint = cotangents.lookup(forward.getArgument(index))) {
      derivative->adjoints.push_back(index);
      adjoints.push_back(adjoint);
    }
  func::ReturnOp::create(builder, function.getLoc(), adjoints);
  eraseDead(body, {});
  if (failed(capture(*derivative, forward, body)))
    return failure();
  updateType(forward);
  updateType(backward);
  derivative->forward = forward;
  derivative->backward = backward;
  derivatives[function] = std::move(derivative);
  return derivatives[function].get();
}

//===----------------------------------------------------------------------===//
// The function that is asked for
//===----------------------------------------------------------------------===//

/// Adds the argument that is the cotangent of result `index`.
static Value addCotangentArgument(func::FuncOp vjp, unsigned index,
                                  Value result) {
  OpBuilder builder(vjp.getContext());
  SmallVector<NamedAttribute> attributes;
  // Of an entry whose results are built in arguments, in their order.
  unsigned outputs = 0;
  for (unsigned i = 0; i < vjp.getNumArguments(); ++i) {
    if (!vjp.getArgAttr(i, StemDialect::kOutputAttr) || outputs++ != index)
      continue;
    if (auto name = vjp.getArgAttrOfType<StringAttr>(i, StemDialect::kNameAttr))
      attributes.push_back(builder.getNamedAttr(
          StemDialect::kNameAttr,
          builder.getStringAttr(name.getValue() + "_cotangent")));
    if (Attribute rows = vjp.getArgAttr(i, StemDialect::kRowsAttr))
      attributes.push_back(builder.getNamedAttr(StemDialect::kRowsAttr, rows));
  }
  unsigned position = vjp.getNumArguments();
  (void)vjp.insertArgument(position, getCotangentType(result.getType()),
                           builder.getDictionaryAttr(attributes),
                           result.getLoc());
  return vjp.getArgument(position);
}

/// Adds up the pairs of a table's rows by id.
static TableGradientOp createTableGradient(OpBuilder &builder, TableRowsOp rows,
                                           Value pairs) {
  auto type = cast<RowGradientType>(pairs.getType());
  auto ids = cast<RankedTensorType>(rows.getIds().getType());
  auto unique =
      RankedTensorType::get({ShapedType::kDynamic}, ids.getElementType());
  auto matrix = RankedTensorType::get({ShapedType::kDynamic, type.getColumns()},
                                      type.getElementType());
  return TableGradientOp::create(builder, rows.getLoc(), unique, matrix, pairs,
                                 rows.getIndex(), rows.getIds());
}

/// Of arguments, then of parameters, then of tables.
LogicalResult
Differentiator::collectGradients(func::FuncOp vjp, OpBuilder &builder,
                                 const CotangentMap &cotangents,
                                 SmallVectorImpl<Gradient> &gradients) {
  const llvm::BitVector arguments = activity.variedArguments(root);
  for (unsigned i : arguments.set_bits())
    if (Value gradient = cotangents.lookup(vjp.getArgument(i)))
      gradients.push_back(
          {gradient, builder.getNamedAttr(StemDialect::kGradientOfArgumentAttr,
                                          builder.getI64IntegerAttr(i))});
  llvm::StringMap<Value> ofParams;
  llvm::StringMap<TableGradientOp> ofTables;
  for (Operation &op : llvm::make_early_inc_range(vjp.getBody().front())) {
    Value cotangent =
        op.getNumResults() ? cotangents.lookup(op.getResult(0)) : Value();
    if (!cotangent || !activity.isSource(&op))
      continue;
    bool isSparse = isa<RowGradientType>(cotangent.getType());
    if (auto load = dyn_cast<ParamLoadOp>(op)) {
      if (isSparse)
        return op.emitError() << "stem.lookup reads '" << load.getParam()
                              << "', whose gradient is dense: read it with "
                                 "stem.embedding, or make it a stem.table";
      Value &sum = ofParams[load.getParam()];
      sum = sum ? arith::AddFOp::create(builder, op.getLoc(), sum, cotangent)
                : cotangent;
      continue;
    }
    auto rows = cast<TableRowsOp>(op);
    StringRef table = rows.getTable().getDefiningOp<TableLoadOp>().getTable();
    if (!isSparse)
      return op.emitError() << "the rows of '" << table
                            << "' have a dense gradient: what reads them is no "
                               "stem.lookup";
    TableGradientOp &gradient = ofTables[table];
    if (gradient)
      return op.emitError() << "'" << table
                            << "' is read twice, and stem-autodiff adds up the "
                               "rows of one read only";
    gradient = createTableGradient(builder, rows, cotangent);
  }
  auto add = [&](Value value, StringRef attribute, StringRef symbol) {
    gradients.push_back({value, builder.getNamedAttr(
                                    attribute, FlatSymbolRefAttr::get(
                                                   vjp.getContext(), symbol))});
  };
  for (auto param : module.getOps<ParamOp>())
    if (Value gradient = ofParams.lookup(param.getSymName()))
      add(gradient, StemDialect::kGradientOfAttr, param.getSymName());
  for (auto table : module.getOps<TableOp>())
    if (TableGradientOp gradient = ofTables.lookup(table.getSymName())) {
      add(gradient.getUnique(), StemDialect::kGradientIdsOfAttr,
          table.getSymName());
      add(gradient.getRows(), StemDialect::kGradientOfAttr, table.getSymName());
    }
  return success();
}

LogicalResult Differentiator::returnGradients(func::FuncOp vjp,
                                              OpBuilder &builder,
                                              const CotangentMap &cotangents) {
  SmallVector<Gradient> gradients;
  if (failed(collectGradients(vjp, builder, cotangents, gradients)))
    return failure();
  Operation *terminator = vjp.getBody().front().getTerminator();
  unsigned index = terminator->getNumOperands();
  for (const Gradient &gradient : gradients)
    terminator->insertOperands(terminator->getNumOperands(), gradient.value);
  updateType(vjp);
  for (const Gradient &gradient : gradients)
    vjp.setResultAttr(index++, gradient.attribute.getName(),
                      gradient.attribute.getValue());
  return success();
}

LogicalResult Differentiator::deriveRoot() {
  if (failed(verifyStraightLine(root)))
    return failure();
  std::string name = (root.getName() + "_vjp").str();
  if (symbols.lookup(name))
    return root.emitError() << "the module has a '" << name
                            << "' already, which is the name of the function "
                               "that stem-autodiff makes";
  func::FuncOp vjp = cloneAs(root, "_vjp", symbols);
  Block &block = vjp.getBody().front();
  const ValueSet varied =
      activity.variedValues(vjp, activity.variedArguments(root));
  DenseSet<Operation *> original;
  for (Operation &op : block)
    original.insert(&op);
  OpBuilder builder(block.getTerminator());
  CotangentMap cotangents;
  SmallVector<Value> results(block.getTerminator()->getOperands());
  for (auto [i, result] : llvm::enumerate(results)) {
    if (!varied.contains(result))
      continue;
    if (!hasCotangent(result.getType()))
      return root.emitError()
             << "result " << i << " depends on a weight or an argument, but "
             << result.getType() << " has no derivative";
    if (failed(accumulate(builder, cotangents, result,
                          addCotangentArgument(vjp, i, result))))
      return failure();
  }
  if (cotangents.empty())
    return root.emitError("no result depends on a weight that is not frozen, "
                          "nor on an argument: there is nothing to derive");
  if (failed(buildBackward(block, varied, builder, cotangents)) ||
      failed(returnGradients(vjp, builder, cotangents)))
    return failure();
  eraseDead(block, original);
  return success();
}

namespace {

struct AutodiffPass : public stem::impl::StemAutodiffPassBase<AutodiffPass> {
  using Base::Base;

  void getDependentDialects(DialectRegistry &registry) const override {
    Base::getDependentDialects(registry);
    registerVjpModels(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto root = module.lookupSymbol<func::FuncOp>(function);
    if (!root || root.isExternal()) {
      module.emitError() << "stem-function is '" << function
                         << "', and the module has no function of that name "
                            "with a body";
      return signalPassFailure();
    }
    if (failed(Differentiator(module, root).run()))
      signalPassFailure();
  }
};

} // namespace
