//===- Inputs.cpp - Seeded arguments of a function ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Reference/Inputs.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/OptionChecks.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace stem;

namespace {

enum class Role { Ids, Positions, Sequences, Selected };

/// What an i32 vector holds, and the bound on its ids.
struct IdVector {
  std::optional<Role> role;
  int64_t bound;
};

} // namespace

static void lowerBound(IdVector &vector, int64_t size) {
  if (!ShapedType::isDynamic(size))
    vector.bound = std::min(vector.bound, size);
}

static void readUse(OpOperand &use, IdVector &vector, int64_t tokens,
                    int depth);

static void readUses(Value value, IdVector &vector, int64_t tokens, int depth) {
  for (OpOperand &use : value.getUses())
    readUse(use, vector, tokens, depth);
}

/// Learns from one use of an i32 vector; calls are followed.
static void readUse(OpOperand &use, IdVector &vector, int64_t tokens,
                    int depth) {
  Operation *op = use.getOwner();
  Value value = use.get();
  auto rowsOf = [&](Value matrix) {
    int64_t rows = cast<ShapedType>(matrix.getType()).getDimSize(0);
    return ShapedType::isDynamic(rows) ? tokens : rows;
  };
  if (auto attention = dyn_cast<AttentionOp>(op)) {
    vector.role =
        value == attention.getPositions() ? Role::Positions : Role::Sequences;
  } else if (auto vjp = dyn_cast<AttentionVjpOp>(op)) {
    vector.role =
        value == vjp.getPositions() ? Role::Positions : Role::Sequences;
  } else if (auto logSumExp = dyn_cast<AttentionLogSumExpOp>(op)) {
    vector.role =
        value == logSumExp.getPositions() ? Role::Positions : Role::Sequences;
  } else if (auto vjp = dyn_cast<AttendVjpOp>(op)) {
    vector.role =
        value == vjp.getPositions() ? Role::Positions : Role::Sequences;
  } else if (auto attend = dyn_cast<AttendOp>(op)) {
    vector.role =
        value == attend.getPositions() ? Role::Positions : Role::Sequences;
  } else if (auto append = dyn_cast<KVAppendOp>(op)) {
    vector.role =
        value == append.getPositions() ? Role::Positions : Role::Sequences;
  } else if (isa<RotaryAnglesOp>(op)) {
    vector.role = Role::Positions;
  } else if (auto embedding = dyn_cast<EmbeddingOp>(op)) {
    lowerBound(vector, getWeightShape(embedding.getWeight().getType()).outputs);
  } else if (auto lookup = dyn_cast<LookupOp>(op)) {
    lowerBound(vector, rowsOf(lookup.getRows()));
  } else if (auto ffn = dyn_cast<FusedFFNOp>(op)) {
    lowerBound(vector, rowsOf(ffn.getRows()));
  } else if (auto rows = dyn_cast<TableRowsOp>(op)) {
    lowerBound(vector, rows.getTable().getType().getRows());
    readUses(rows.getIndex(), vector, tokens, depth);
  } else if (auto plan = dyn_cast<PlanRowsOp>(op)) {
    readUses(plan.getPlan(), vector, tokens, depth);
  } else if (auto prefetch = dyn_cast<PrefetchOp>(op)) {
    lowerBound(vector, prefetch.getTable().getType().getRows());
    readUses(prefetch.getTicket(), vector, tokens, depth);
  } else if (auto await = dyn_cast<AwaitOp>(op)) {
    readUses(await.getIndex(), vector, tokens, depth);
  } else if (auto select = dyn_cast<SelectUpOp>(op)) {
    if (&use == &select.getSelectedMutable())
      vector.role = Role::Selected;
  } else if (auto keep = dyn_cast<KeepSelectedOp>(op)) {
    if (&use == &keep.getSelectedMutable())
      vector.role = Role::Selected;
  } else if (auto cast = dyn_cast<tensor::CastOp>(op)) {
    readUses(cast, vector, tokens, depth);
  } else if (auto loss = dyn_cast<CrossEntropyOp>(op)) {
    lowerBound(vector, getWeightShape(loss.getHead().getType()).outputs);
  } else if (auto loss = dyn_cast<DistillationOp>(op)) {
    lowerBound(vector, getWeightShape(loss.getHead().getType()).outputs);
  } else if (auto vjp = dyn_cast<DistillationVjpOp>(op)) {
    lowerBound(vector, getWeightShape(vjp.getHead().getType()).outputs);
  } else if (auto vjp = dyn_cast<CrossEntropyVjpOp>(op)) {
    lowerBound(vector, getWeightShape(vjp.getHead().getType()).outputs);
  } else if (auto vjp = dyn_cast<EmbeddingVjpOp>(op)) {
    lowerBound(vector, vjp.getResult().getType().getDimSize(0));
  } else if (auto call = dyn_cast<func::CallOp>(op)) {
    auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
        call, call.getCalleeAttr());
    if (depth > 0 && callee && !callee.isExternal() &&
        use.getOperandNumber() < callee.getNumArguments())
      readUses(callee.getArgument(use.getOperandNumber()), vector, tokens,
               depth - 1);
  }
}

static FailureOr<IdVector> findRole(func::FuncOp function, unsigned number,
                                    const InputOptions &options) {
  IdVector vector{std::nullopt, options.idBound};
  readUses(function.getArgument(number), vector, options.tokens, /*depth=*/8);
  if (auto bound = function.getArgAttrOfType<IntegerAttr>(
          number, StemDialect::kIdBoundAttr))
    vector.bound = bound.getInt();
  if (vector.bound <= 0)
    return emitError(function.getLoc())
           << "argument " << number << " has no valid id: the bound is "
           << vector.bound;
  // The attribute, where there is one, says more than the uses.
  if (auto role =
          function.getArgAttrOfType<StringAttr>(number, StemDialect::kRoleAttr))
    vector.role = role == "ids"         ? Role::Ids
                  : role == "positions" ? Role::Positions
                                        : Role::Sequences;
  return vector;
}

static FailureOr<ReferenceTensor> emptyInput(func::FuncOp function,
                                             unsigned number,
                                             ArrayRef<int64_t> shape,
                                             int64_t tokens) {
  ReferenceTensor result;
  int64_t count = 1;
  for (int64_t size : shape) {
    size = ShapedType::isDynamic(size) ? tokens : size;
    result.shape.push_back(size);
    if (llvm::MulOverflow(count, size, count) || count > (int64_t{1} << 27))
      return emitError(function.getLoc())
             << "argument " << number << " is too large for the interpreter";
  }
  result.values.resize(count);
  return result;
}

/// A vector of positions, sequences, ids or selected ids.
static void fillIds(ReferenceTensor &tensor, const IdVector &vector,
                    const SeededStream &stream, const InputOptions &options) {
  int64_t count = tensor.size();
  int64_t length =
      std::max<int64_t>(1, llvm::divideCeil(count, options.sequences));
  for (int64_t t = 0; t < count; ++t) {
    if (vector.role == Role::Positions)
      tensor.values[t] = static_cast<double>(options.past + t % length);
    else if (vector.role == Role::Sequences)
      tensor.values[t] = static_cast<double>(t / length);
    else if (vector.role == Role::Selected)
      tensor.values[t] = static_cast<double>(stream.risingId(t));
    else
      tensor.values[t] = static_cast<double>(stream.integer(t, vector.bound));
  }
}

/// The value of the parameter or table that the argument is bound to.
static FailureOr<ReferenceValue> readParameter(func::FuncOp function,
                                               unsigned number,
                                               FlatSymbolRefAttr symbol,
                                               const Interpreter &interpreter) {
  Operation *named = SymbolTable::lookupNearestSymbolFrom(function, symbol);
  StringRef key;
  Type type;
  if (auto table = dyn_cast_or_null<TableOp>(named)) {
    key = table.getKey();
    type = table.getTableType();
  } else if (auto param = dyn_cast_or_null<ParamOp>(named)) {
    key = param.getKey();
    type = param.getTensorType();
  } else {
    return emitError(function.getLoc())
           << "argument " << number << " names " << symbol
           << ", which is not a stem.param or stem.table";
  }
  if (failed(emptyInput(function, number, *getTensorShape(type),
                        /*tokens=*/0)))
    return failure();
  ReferenceTensor value = interpreter.getParameter(key, type);
  if (isa<PackedType>(function.getArgumentTypes()[number]) && value.rank() == 2)
    value = transposed(value);
  return ReferenceValue(std::move(value));
}

static FailureOr<ReferenceValue>
makeInput(func::FuncOp function, unsigned number, const InputOptions &options) {
  Type type = function.getArgumentTypes()[number];
  SeededStream stream(options.seed, "argument " + std::to_string(number));
  if (isa<FloatType>(type))
    return ReferenceValue(stream.real(0));
  // Layer numbers, offsets and the handle of the cache.
  if (type.isIntOrIndex() || isa<KVCacheType>(type))
    return ReferenceValue(0.0);
  auto shape = getTensorShape(type);
  if (!shape)
    return emitError(function.getLoc())
           << "the interpreter cannot make an argument of type " << type;
  auto value = emptyInput(function, number, *shape, options.tokens);
  if (failed(value))
    return failure();
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (tensor && tensor.getElementType().isIntOrIndex()) {
    auto vector = findRole(function, number, options);
    if (failed(vector))
      return failure();
    fillIds(*value, *vector, stream, options);
  } else {
    for (int64_t i = 0; i < value->size(); ++i)
      value->values[i] = stream.real(i);
  }
  if (isa<RowGradientType>(type))
    for (int64_t i = 0; i < value->shape[0]; ++i)
      value->at(i, 0) = static_cast<double>(stream.integer(i, options.idBound));
  return ReferenceValue(std::move(*value));
}

FlatSymbolRefAttr stem::getBoundSymbol(func::FuncOp function,
                                       unsigned argument) {
  if (auto param = function.getArgAttrOfType<FlatSymbolRefAttr>(
          argument, StemDialect::kParamAttr))
    return param;
  return function.getArgAttrOfType<FlatSymbolRefAttr>(argument,
                                                      StemDialect::kTableAttr);
}

bool stem::isGivenArgument(func::FuncOp function, unsigned argument) {
  return !getBoundSymbol(function, argument) &&
         !function.getArgAttr(argument, StemDialect::kScratchCacheAttr);
}

// Positions and ids are i32.
LogicalResult stem::checkOptions(MLIRContext *context,
                                 const InputOptions &options,
                                 int64_t maxSteps) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const std::tuple<StringRef, int64_t, OptionRange> numbers[] = {
      {"stem-tokens", options.tokens, {.least = kDefaultTokens, .most = most}},
      {"stem-sequences", options.sequences, {.least = 1, .most = most}},
      {"stem-past", options.past, {.least = 0, .most = most}},
      {"stem-id-bound", options.idBound, {.least = 1, .most = most}},
      {"stem-max-steps", maxSteps, {.least = 1}}};
  for (auto [name, value, range] : numbers)
    if (failed(checkOption(context, name, value, range)))
      return failure();
  return success();
}

/// The tokens that a function gets: compiled code works on whole tiles, so
/// that on others two phases do not mean the same.
static FailureOr<int64_t> chooseTokens(func::FuncOp function,
                                       const InputOptions &options) {
  constexpr int64_t usual = 8;
  auto attribute = function->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr);
  int64_t tile = attribute ? std::max<int64_t>(attribute.getInt(), 1) : 1;
  if (options.tokens == kDefaultTokens)
    return llvm::divideCeil(usual, tile) * tile;
  if (options.tokens % tile != 0)
    return emitError(function.getLoc())
           << "stem-tokens is " << options.tokens << ", but '"
           << function.getName() << "' has '" << StemDialect::kTileAttr
           << "' = " << tile << "; wanted a multiple of that";
  return options.tokens;
}

FailureOr<SmallVector<ReferenceValue>>
stem::makeInputs(func::FuncOp function, const Interpreter &interpreter,
                 const InputOptions &requested,
                 const SmallVector<ReferenceValue> *given) {
  FailureOr<int64_t> tokens = chooseTokens(function, requested);
  if (failed(tokens))
    return failure();
  InputOptions options = requested;
  options.tokens = *tokens;
  SmallVector<ReferenceValue> inputs;
  size_t taken = 0;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    FailureOr<ReferenceValue> input = failure();
    if (FlatSymbolRefAttr symbol = getBoundSymbol(function, i))
      input = readParameter(function, i, symbol, interpreter);
    else if (!isGivenArgument(function, i))
      // A scratch cache: another one than a caller's, which is 0.
      input = ReferenceValue(-1.0 - i);
    else if (!given)
      input = makeInput(function, i, options);
    else if (taken == given->size())
      return emitError(function.getLoc()) << "takes more arguments than before";
    else
      input = (*given)[taken++];
    if (failed(input))
      return failure();
    inputs.push_back(std::move(*input));
  }
  if (given && taken != given->size())
    return emitError(function.getLoc()) << "takes fewer arguments than before";
  return inputs;
}
