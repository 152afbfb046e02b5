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

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Dialect/Stem/StemVjp.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMAUTODIFFPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

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

bool isFloatTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa<FloatType>(tensor.getElementType());
}

/// Arguments that results are built in are no inputs.
bool isDerivedArgument(func::FuncOp function, unsigned index) {
  return isFloatTensor(function.getArgumentTypes()[index]) &&
         !function.getArgAttr(index, StemDialect::kOutputAttr);
}

class Differentiator {
public:
  Differentiator(ModuleOp module, func::FuncOp root)
      : module(module), symbols(module), root(root) {}

  LogicalResult run() {
    if (failed(findVariedArguments()))
      return failure();
    return deriveRoot();
  }

private:
  using CotangentMap = DenseMap<Value, Value>;
  using ValueSet = DenseSet<Value>;

  LogicalResult findVariedArguments();
  ValueSet variedValues(func::FuncOp function,
                        const llvm::BitVector &arguments);
  bool isSource(Operation *op);

  LogicalResult deriveRoot();
  FailureOr<const Derivative *> derive(func::FuncOp function);
  LogicalResult deriveCalls(Block &block, const ValueSet &varied);
  void capture(Derivative &derivative, Block &forward, Block &backward);

  LogicalResult buildBackward(Block &forward, const ValueSet &varied,
                              OpBuilder &builder, CotangentMap &cotangents);
  LogicalResult buildCallBackward(func::CallOp call, OpBuilder &builder,
                                  CotangentMap &cotangents,
                                  const ValueSet &varied);
  void accumulate(OpBuilder &builder, CotangentMap &cotangents, Value value,
                  Value cotangent);
  LogicalResult returnGradients(func::FuncOp vjp, OpBuilder &builder,
                                CotangentMap &cotangents);

  func::FuncOp calleeOf(func::CallOp call) {
    return symbols.lookup<func::FuncOp>(call.getCallee());
  }
  InFlightDiagnostic noRule(Operation *op);

  ModuleOp module;
  SymbolTable symbols;
  func::FuncOp root;
  /// Which arguments vary at some call.
  llvm::MapVector<Operation *, llvm::BitVector> variedArguments;
  DenseMap<Operation *, std::unique_ptr<Derivative>> derivatives;
  /// Calls of forward functions, and the derivative that they belong to.
  DenseMap<Operation *, const Derivative *> derivedCalls;
};

} // namespace

//===----------------------------------------------------------------------===//
// What depends on a weight
//===----------------------------------------------------------------------===//

/// A load whose result has a gradient.
bool Differentiator::isSource(Operation *op) {
  auto isDerived = [&](StringRef symbol) {
    Operation *state = symbols.lookup(symbol);
    return !state->hasAttr(StemDialect::kFrozenAttr);
  };
  if (auto load = dyn_cast<ParamLoadOp>(op))
    return isFloatTensor(load.getType()) && isDerived(load.getParam());
  if (auto rows = dyn_cast<TableRowsOp>(op))
    if (auto load = rows.getTable().getDefiningOp<TableLoadOp>())
      return isDerived(load.getTable());
  return false;
}

Differentiator::ValueSet
Differentiator::variedValues(func::FuncOp function,
                             const llvm::BitVector &arguments) {
  ValueSet varied;
  for (unsigned index : arguments.set_bits())
    varied.insert(function.getArgument(index));
  for (Operation &op : function.getBody().front()) {
    if (!isSource(&op) && llvm::none_of(op.getOperands(), [&](Value operand) {
          return varied.contains(operand);
        }))
      continue;
    for (Value result : op.getResults())
      if (isFloatTensor(result.getType()))
        varied.insert(result);
  }
  return varied;
}

LogicalResult Differentiator::findVariedArguments() {
  llvm::BitVector ofRoot(root.getNumArguments());
  for (unsigned i = 0; i < root.getNumArguments(); ++i)
    ofRoot[i] = isDerivedArgument(root, i);
  variedArguments[root] = ofRoot;
  SmallVector<func::FuncOp> work = {root};
  while (!work.empty()) {
    func::FuncOp function = work.pop_back_val();
    if (!llvm::hasSingleElement(function.getBody()))
      return function.emitError("has no single block, and stem-autodiff "
                                "derives straight-line functions only");
    ValueSet varied = variedValues(function, variedArguments[function]);
    for (auto call : function.getOps<func::CallOp>()) {
      func::FuncOp callee = calleeOf(call);
      llvm::BitVector seen(callee.getNumArguments());
      for (auto [i, operand] : llvm::enumerate(call.getOperands()))
        seen[i] = varied.contains(operand);
      if (seen.none())
        continue;
      auto [entry, isNew] = variedArguments.try_emplace(callee, seen);
      if (!isNew && !seen.test(entry->second))
        continue;
      entry->second |= seen;
      work.push_back(callee);
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// The backward part of a block
//===----------------------------------------------------------------------===//

InFlightDiagnostic Differentiator::noRule(Operation *op) {
  auto diag = op->emitError() << "a derivative flows through this op, but '"
                              << op->getName() << "' has no VJP rule";
  diag.attachNote(root.getLoc())
      << "asked for by stem-autodiff of '" << root.getName() << "'";
  return diag;
}

void Differentiator::accumulate(OpBuilder &builder, CotangentMap &cotangents,
                                Value value, Value cotangent) {
  auto [entry, isNew] = cotangents.try_emplace(value, cotangent);
  if (isNew)
    return;
  Location loc = value.getLoc();
  entry->second = isa<RowGradientType>(cotangent.getType())
                      ? Value(MergeRowGradientsOp::create(
                            builder, loc, entry->second, cotangent))
                      : Value(arith::AddFOp::create(builder, loc, entry->second,
                                                    cotangent));
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

LogicalResult Differentiator::buildCallBackward(func::CallOp call,
                                                OpBuilder &builder,
                                                CotangentMap &cotangents,
                                                const ValueSet &varied) {
  const Derivative &derivative = *derivedCalls.lookup(call);
  SmallVector<Value> operands;
  for (unsigned index : derivative.captured)
    operands.push_back(call.getOperand(index));
  llvm::append_range(operands,
                     call.getResults().take_back(derivative.residuals));
  for (unsigned index : derivative.cotangents) {
    Value result = call.getResult(index);
    Value cotangent = cotangents.lookup(result);
    operands.push_back(cotangent ? cotangent : createZeros(builder, result));
  }
  auto backward = func::CallOp::create(builder, call.getLoc(),
                                       derivative.backward, operands);
  for (auto [index, adjoint] :
       llvm::zip_equal(derivative.adjoints, backward.getResults()))
    if (Value operand = call.getOperand(index); varied.contains(operand))
      accumulate(builder, cotangents, operand, adjoint);
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
    if (isSource(op) ||
        llvm::none_of(incoming, [](Value v) { return bool(v); }))
      continue;
    if (auto call = dyn_cast<func::CallOp>(op)) {
      if (failed(buildCallBackward(call, builder, cotangents, varied)))
        return failure();
      continue;
    }
    auto rule = dyn_cast<VjpOpInterface>(op);
    if (!rule)
      return noRule(op);
    SmallVector<Value> adjoints(op->getNumOperands());
    if (failed(rule.buildVjp(builder, incoming, adjoints)))
      return failure();
    for (auto [operand, adjoint] : llvm::zip_equal(op->getOperands(), adjoints))
      if (adjoint && varied.contains(operand))
        accumulate(builder, cotangents, operand, adjoint);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Calls with something that varies become calls of the forward functions.
LogicalResult Differentiator::deriveCalls(Block &block,
                                          const ValueSet &varied) {
  for (auto call : llvm::make_early_inc_range(block.getOps<func::CallOp>())) {
    if (llvm::none_of(call.getOperands(),
                      [&](Value v) { return varied.contains(v); }))
      continue;
    FailureOr<const Derivative *> derivative = derive(calleeOf(call));
    if (failed(derivative))
      return failure();
    OpBuilder builder(call);
    auto forward = func::CallOp::create(
        builder, call.getLoc(), (*derivative)->forward, call.getOperands());
    call.replaceAllUsesWith(
        forward.getResults().take_front(call.getNumResults()));
    call.erase();
    derivedCalls[forward] = *derivative;
  }
  return success();
}

/// Turns values of the forward function that the backward one uses into its
/// arguments: arguments stay arguments, results become residuals, and
/// constants are made again.
void Differentiator::capture(Derivative &derivative, Block &forward,
                             Block &backward) {
  llvm::SetVector<Value> used;
  for (Operation &op : backward)
    for (Value operand : op.getOperands())
      if (operand.getParentBlock() == &forward)
        used.insert(operand);
  SmallVector<Value> arguments, residuals;
  for (Value value : used) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      arguments.push_back(value);
      derivative.captured.push_back(argument.getArgNumber());
    } else if (!matchPattern(value, m_Constant())) {
      residuals.push_back(value);
    }
  }
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
  for (Value value : used)
    if (value.getParentBlock() == &forward && !value.use_empty() &&
        matchPattern(value, m_Constant()))
      replace(value, builder.clone(*value.getDefiningOp())->getResult(0));
  forward.getTerminator()->insertOperands(
      forward.getTerminator()->getNumOperands(), residuals);
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

FailureOr<const Derivative *> Differentiator::derive(func::FuncOp function) {
  std::unique_ptr<Derivative> &known = derivatives[function];
  if (known)
    return known.get();
  auto derivative = std::make_unique<Derivative>();
  func::FuncOp forward = cloneAs(function, "_forward", symbols);
  const llvm::BitVector arguments = variedArguments.lookup(function);
  Block &block = forward.getBody().front();
  if (failed(deriveCalls(block, variedValues(forward, arguments))))
    return failure();
  const ValueSet varied = variedValues(forward, arguments);

  auto backward = func::FuncOp::create(
      function.getLoc(), (function.getName() + "_backward").str(),
      FunctionType::get(module.getContext(), {}, {}));
  backward.setPrivate();
  symbols.insert(backward, std::next(forward->getIterator()));
  Block &body = *backward.addEntryBlock();
  OpBuilder builder = OpBuilder::atBlockEnd(&body);
  CotangentMap cotangents;
  Operation *terminator = block.getTerminator();
  for (auto [i, result] : llvm::enumerate(terminator->getOperands())) {
    if (!varied.contains(result))
      continue;
    derivative->cotangents.push_back(i);
    accumulate(
        builder, cotangents, result,
        body.addArgument(getCotangentType(result.getType()), result.getLoc()));
  }
  if (failed(buildBackward(block, varied, builder, cotangents)))
    return failure();
  SmallVector<Value> adjoints;
  for (unsigned index : arguments.set_bits())
    if (Value adjoint = cotangents.lookup(forward.getArgument(index))) {
      derivative->adjoints.push_back(index);
      adjoints.push_back(adjoint);
    }
  func::ReturnOp::create(builder, function.getLoc(), adjoints);
  capture(*derivative, block, body);
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

LogicalResult Differentiator::returnGradients(func::FuncOp vjp,
                                              OpBuilder &builder,
                                              CotangentMap &cotangents) {
  struct Gradient {
    Value value;
    StringRef attribute, symbol;
  };
  SmallVector<Gradient> gradients;
  for (unsigned i : variedArguments[root].set_bits())
    if (Value gradient = cotangents.lookup(vjp.getArgument(i)))
      gradients.push_back({gradient, "", ""});
  llvm::StringMap<Value> ofParams;
  llvm::StringMap<TableGradientOp> ofTables;
  for (Operation &op : llvm::make_early_inc_range(vjp.getBody().front())) {
    Value cotangent =
        op.getNumResults() ? cotangents.lookup(op.getResult(0)) : Value();
    if (!cotangent || !isSource(&op))
      continue;
    if (auto load = dyn_cast<ParamLoadOp>(op)) {
      Value &sum = ofParams[load.getParam()];
      sum = sum ? arith::AddFOp::create(builder, op.getLoc(), sum, cotangent)
                : cotangent;
      continue;
    }
    auto rows = cast<TableRowsOp>(op);
    StringRef table = rows.getTable().getDefiningOp<TableLoadOp>().getTable();
    if (!isa<RowGradientType>(cotangent.getType()))
      return op.emitError() << "the rows of '" << table
                            << "' have a dense gradient: what reads them is no "
                               "stem.lookup";
    TableGradientOp &gradient = ofTables[table];
    if (gradient)
      return op.emitError() << "'" << table
                            << "' is read twice, and stem-autodiff adds up the "
                               "rows of one read only";
    auto type = cast<RowGradientType>(cotangent.getType());
    auto ids = cast<RankedTensorType>(rows.getIds().getType());
    auto unique =
        RankedTensorType::get({ShapedType::kDynamic}, ids.getElementType());
    auto matrix = RankedTensorType::get(
        {ShapedType::kDynamic, type.getColumns()}, type.getElementType());
    gradient =
        TableGradientOp::create(builder, op.getLoc(), unique, matrix, cotangent,
                                rows.getIndex(), rows.getIds());
  }
  for (auto param : module.getOps<ParamOp>())
    if (Value gradient = ofParams.lookup(param.getSymName()))
      gradients.push_back(
          {gradient, StemDialect::kGradientOfAttr, param.getSymName()});
  for (auto table : module.getOps<TableOp>())
    if (TableGradientOp gradient = ofTables.lookup(table.getSymName())) {
      gradients.push_back({gradient.getUnique(),
                           StemDialect::kGradientIdsOfAttr,
                           table.getSymName()});
      gradients.push_back({gradient.getRows(), StemDialect::kGradientOfAttr,
                           table.getSymName()});
    }
  Operation *terminator = vjp.getBody().front().getTerminator();
  unsigned index = terminator->getNumOperands();
  for (const Gradient &gradient : gradients)
    terminator->insertOperands(terminator->getNumOperands(), gradient.value);
  updateType(vjp);
  for (const Gradient &gradient : gradients) {
    if (!gradient.symbol.empty())
      vjp.setResultAttr(
          index, gradient.attribute,
          FlatSymbolRefAttr::get(vjp.getContext(), gradient.symbol));
    ++index;
  }
  return success();
}

LogicalResult Differentiator::deriveRoot() {
  func::FuncOp vjp = cloneAs(root, "_vjp", symbols);
  const llvm::BitVector arguments = variedArguments.lookup(root);
  Block &block = vjp.getBody().front();
  if (failed(deriveCalls(block, variedValues(vjp, arguments))))
    return failure();
  const ValueSet varied = variedValues(vjp, arguments);
  OpBuilder builder(block.getTerminator());
  CotangentMap cotangents;
  SmallVector<Value> results(block.getTerminator()->getOperands());
  for (auto [i, result] : llvm::enumerate(results))
    if (varied.contains(result))
      accumulate(builder, cotangents, result,
                 addCotangentArgument(vjp, i, result));
  if (cotangents.empty())
    return root.emitError("no result depends on a weight that is not frozen, "
                          "nor on an argument: there is nothing to derive");
  if (failed(buildBackward(block, varied, builder, cotangents)))
    return failure();
  return returnGradients(vjp, builder, cotangents);
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
