//===- Interpreter.cpp - Runs IR in double precision ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Reference/Interpreter.h"

#include "Machine.h"
#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace stem;
using namespace stem::reference;

// A call chain in a model is two or three functions long.
static constexpr int64_t kMaxDepth = 64;

//===----------------------------------------------------------------------===//
// Interpreter
//===----------------------------------------------------------------------===//

std::optional<SmallVector<int64_t>> stem::getTensorShape(Type type) {
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    return llvm::to_vector(tensor.getShape());
  if (auto packed = dyn_cast<PackedType>(type))
    return SmallVector<int64_t>{packed.getRows(), packed.getColumns()};
  if (auto table = dyn_cast<TableType>(type))
    return SmallVector<int64_t>{table.getRows(), table.getColumns()};
  if (auto gradient = dyn_cast<RowGradientType>(type)) {
    constexpr int64_t most = std::numeric_limits<int64_t>::max() - 1;
    return SmallVector<int64_t>{ShapedType::kDynamic,
                                std::min(gradient.getColumns(), most) + 1};
  }
  return std::nullopt;
}

ReferenceTensor Interpreter::getParameter(StringRef key, Type type) const {
  auto given = parameters.find(key.str());
  if (given != parameters.end())
    return given->second;
  ReferenceTensor result;
  SmallVector<int64_t> shape = *getTensorShape(type);
  result.shape.assign(shape.begin(), shape.end());
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  result.values.resize(count);
  // Scaled by a power of two, so that a product with many inputs stays small
  // and the values stay exact in every storage type.
  double scale = 1.0;
  if (shape.size() == 2)
    scale =
        std::exp2(-std::floor(0.5 * std::log2(std::max<int64_t>(1, shape[1]))));
  SeededStream stream(options.seed, key);
  auto tensor = dyn_cast<RankedTensorType>(type);
  bool isIds = tensor && tensor.getElementType().isIntOrIndex();
  for (int64_t i = 0; i < count; ++i)
    result.values[i] = isIds ? stream.risingId(i) : scale * stream.real(i);
  return result;
}

FailureOr<SmallVector<ReferenceValue>>
Interpreter::run(func::FuncOp function, ArrayRef<ReferenceValue> arguments) {
  Machine machine(module, *this, cache, options);
  return machine.call(function, arguments, function);
}

//===----------------------------------------------------------------------===//
// Machine
//===----------------------------------------------------------------------===//

FailureOr<Machine::Values> Machine::call(func::FuncOp function,
                                         ArrayRef<ReferenceValue> arguments,
                                         Operation *site) {
  if (function.isExternal())
    return site->emitError() << "the interpreter cannot call '"
                             << function.getName() << "': it has no body";
  if (!llvm::hasSingleElement(function.getBody()))
    return emitError(function.getLoc(),
                     "the interpreter runs functions of one block only");
  if (arguments.size() != function.getNumArguments())
    return site->emitError() << "the interpreter was given " << arguments.size()
                             << " arguments for '" << function.getName()
                             << "', which takes " << function.getNumArguments();
  if (depth == kMaxDepth)
    return site->emitError() << "calls are nested deeper than " << kMaxDepth;
  ++depth;
  llvm::DenseMap<Value, ReferenceValue> callerFrame;
  std::swap(frame, callerFrame);
  FailureOr<Values> results = runBlock(function.getBody().front(), arguments);
  std::swap(frame, callerFrame);
  --depth;
  return results;
}

FailureOr<Machine::Values>
Machine::runBlock(Block &block, ArrayRef<ReferenceValue> arguments) {
  for (auto [argument, value] :
       llvm::zip_equal(block.getArguments(), arguments))
    if (failed(set(block.getParentOp(), argument, value)))
      return failure();
  for (Operation &op : block.without_terminator())
    if (failed(evaluate(&op)))
      return failure();
  Values results;
  for (Value operand : block.getTerminator()->getOperands())
    results.push_back(get(operand));
  return results;
}

LogicalResult Machine::evaluate(Operation *op) {
  if (failed(spend(op, 1)))
    return failure();
  for (auto *family : {evaluateScalarOp, evaluateTransformerOp, evaluateTableOp,
                       evaluateGradientOp, evaluateStepOp, evaluateOptimizerOp,
                       evaluateScheduleOp, evaluateTensorOp, evaluateLinalgOp,
                       evaluateControlFlowOp, evaluateTosaOp})
    if (Evaluated result = family(*this, op))
      return *result;
  return op->emitError() << "the interpreter does not know the op '"
                         << op->getName() << "'";
}

const ReferenceValue &Machine::get(Value value) const {
  return frame.find(value)->second;
}

int64_t Machine::integer(Value value) const { return toInteger(number(value)); }

int64_t Machine::integer(OpFoldResult value) const {
  if (auto attribute = dyn_cast<Attribute>(value))
    return cast<IntegerAttr>(attribute).getInt();
  return integer(cast<Value>(value));
}

SmallVector<int64_t> Machine::integers(ArrayRef<OpFoldResult> values) const {
  return llvm::map_to_vector(
      values, [&](OpFoldResult value) { return integer(value); });
}

LogicalResult Machine::set(Operation *op, Value value,
                           ReferenceValue newValue) {
  Type type = value.getType();
  if (type.isIntOrIndexOrFloat() || isa<KVCacheType>(type)) {
    if (newValue.tensor)
      return op->emitError() << "the interpreter got a tensor for " << type;
    frame[value] = std::move(newValue);
    return success();
  }
  auto shape = getTensorShape(type);
  bool isShapeVector = !shape && newValue.tensor &&
                       newValue.tensor->rank() == 1 && !isa<ShapedType>(type);
  if (!shape && !isShapeVector)
    return op->emitError() << "the interpreter has no values of type " << type;
  bool conforms =
      isShapeVector ||
      (newValue.tensor && newValue.tensor->shape.size() == shape->size());
  if (conforms && shape)
    for (auto [seen, wanted] : llvm::zip_equal(newValue.tensor->shape, *shape))
      conforms &= ShapedType::isDynamic(wanted) || seen == wanted;
  if (!conforms) {
    auto diag = op->emitError() << "the interpreter got ";
    if (!newValue.tensor)
      return diag << "a number for " << type;
    diag << "a tensor of shape [";
    llvm::interleaveComma(newValue.tensor->shape, diag);
    return diag << "] for " << type;
  }
  frame[value] = std::move(newValue);
  return success();
}

FailureOr<ReferenceTensor>
Machine::allocate(Operation *op, ArrayRef<int64_t> shape, double fill) const {
  int64_t count = 1;
  bool fits = true;
  for (int64_t size : shape) {
    if (size < 0)
      return op->emitError() << "a tensor cannot have the size " << size;
    fits &=
        !llvm::MulOverflow(count, size, count) && count <= options.maxElements;
  }
  if (!fits && !llvm::is_contained(shape, 0)) {
    auto diag = op->emitError() << "the interpreter refuses a tensor of ";
    llvm::interleave(shape, diag, " x ");
    return diag << " elements, its limit is " << options.maxElements;
  }
  ReferenceTensor result;
  result.shape.assign(shape.begin(), shape.end());
  result.values.assign(llvm::is_contained(shape, 0) ? 0 : count, fill);
  return result;
}

LogicalResult Machine::spend(Operation *op, int64_t count) {
  if (count > options.maxSteps - steps)
    return op->emitError() << "the interpreter stops after " << options.maxSteps
                           << " steps; use a smaller program or raise "
                              "stem-max-steps";
  steps += count;
  return success();
}

const ScalarFunction *Machine::scalarFunction(Operation *op) {
  auto [entry, isNew] = functions.try_emplace(op);
  if (isNew) {
    entry->second = makeScalarFunction(op);
    if (!entry->second)
      entry->second = makeTosaFunction(op);
  }
  return entry->second ? &*entry->second : nullptr;
}

//===----------------------------------------------------------------------===//
// Helpers
//===----------------------------------------------------------------------===//

int64_t reference::toInteger(double value) {
  if (std::isnan(value))
    return 0;
  if (value >= 0x1p63)
    return std::numeric_limits<int64_t>::max();
  if (value <= -0x1p63)
    return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

LogicalResult reference::expectSize(Operation *op, const char *what,
                                    int64_t seen, int64_t wanted) {
  if (seen == wanted)
    return success();
  return op->emitError() << what << " is " << seen << ", expected " << wanted;
}

LogicalResult
reference::forEachIndex(ArrayRef<int64_t> shape,
                        function_ref<LogicalResult(ArrayRef<int64_t>)> visit) {
  for (int64_t size : shape)
    if (size <= 0)
      return success();
  SmallVector<int64_t> index(shape.size(), 0);
  while (true) {
    if (failed(visit(index)))
      return failure();
    int64_t axis = static_cast<int64_t>(shape.size()) - 1;
    while (axis >= 0 && ++index[axis] == shape[axis])
      index[axis--] = 0;
    if (axis < 0)
      return success();
  }
}

std::optional<int64_t> reference::linearIndex(ArrayRef<int64_t> shape,
                                              ArrayRef<int64_t> index) {
  int64_t result = 0;
  for (auto [size, i] : llvm::zip_equal(shape, index)) {
    if (i < 0 || i >= size)
      return std::nullopt;
    result = result * size + i;
  }
  return result;
}

std::optional<int64_t> reference::evaluateAffine(AffineExpr expr,
                                                 ArrayRef<int64_t> dims,
                                                 ArrayRef<int64_t> symbols) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return symbols[symbol.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  auto lhs = evaluateAffine(binary.getLHS(), dims, symbols);
  auto rhs = evaluateAffine(binary.getRHS(), dims, symbols);
  if (!lhs || !rhs)
    return std::nullopt;
  int64_t result;
  if (expr.getKind() == AffineExprKind::Add)
    return llvm::AddOverflow(*lhs, *rhs, result) ? std::nullopt
                                                 : std::optional(result);
  if (expr.getKind() == AffineExprKind::Mul)
    return llvm::MulOverflow(*lhs, *rhs, result) ? std::nullopt
                                                 : std::optional(result);
  if (*rhs < 1)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::FloorDiv)
    return llvm::divideFloorSigned(*lhs, *rhs);
  if (expr.getKind() == AffineExprKind::CeilDiv)
    return llvm::divideCeilSigned(*lhs, *rhs);
  return llvm::mod(*lhs, *rhs);
}

/// A constant held as a resource of the file, as elements.
static DenseElementsAttr readResource(DenseResourceElementsAttr attribute) {
  AsmResourceBlob *blob = attribute.getRawHandle().getBlob();
  if (!blob)
    return {};
  ShapedType type = attribute.getType();
  bool isSplat = false;
  if (!DenseElementsAttr::isValidRawBuffer(type, blob->getData(), isSplat))
    return {};
  return DenseElementsAttr::getFromRawBuffer(type, blob->getData());
}

FailureOr<ReferenceTensor> reference::readElements(const Machine &machine,
                                                   Operation *op,
                                                   Attribute attribute) {
  auto elements = dyn_cast<DenseElementsAttr>(attribute);
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(attribute))
    elements = readResource(resource);
  if (!elements) {
    auto typed = dyn_cast<TypedAttr>(attribute);
    return op->emitError()
           << "the interpreter cannot read this constant of type "
           << (typed ? typed.getType() : Type(NoneType::get(op->getContext())))
           << ": wanted dense elements, or a resource of the file with as many "
              "bytes as the type has";
  }
  FailureOr<ReferenceTensor> result =
      machine.allocate(op, elements.getType().getShape());
  if (failed(result))
    return failure();
  Type type = elements.getElementType();
  if (isa<FloatType>(type)) {
    for (auto [to, from] :
         llvm::zip_equal(result->values, elements.getValues<APFloat>()))
      to = from.convertToDouble();
  } else if (type.isIntOrIndex()) {
    bool isBool = type.isInteger(1);
    for (auto [to, from] :
         llvm::zip_equal(result->values, elements.getValues<APInt>()))
      to = isBool ? static_cast<double>(from.getBoolValue())
                  : from.roundToDouble(/*isSigned=*/true);
  } else {
    return op->emitError() << "the interpreter has no values of type " << type;
  }
  return result;
}
