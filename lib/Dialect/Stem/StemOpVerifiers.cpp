//===- StemOpVerifiers.cpp - Constraints of the stem ops -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Each check carries the number that the op's description gives it.

#include "Verify.h"
#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace stem;
using namespace stem::verify;

WeightShape stem::getWeightShape(Type type) {
  if (auto packed = dyn_cast<PackedType>(type))
    return {packed.getRows(), packed.getColumns()};
  auto tensor = cast<RankedTensorType>(type);
  return {tensor.getDimSize(1), tensor.getDimSize(0)};
}

int64_t verify::dim(Value value, unsigned index) {
  return cast<ShapedType>(value.getType()).getDimSize(index);
}

static bool differ(int64_t a, int64_t b) {
  return !ShapedType::isDynamic(a) && !ShapedType::isDynamic(b) && a != b;
}

LogicalResult verify::expectSize(Operation *op, const char *what, int64_t seen,
                                 int64_t wanted, const char *why) {
  if (!differ(seen, wanted))
    return success();
  auto diag = op->emitOpError() << what << " must be " << why << ", ";
  if (ShapedType::isDynamic(wanted))
    return diag << "got " << seen;
  return diag << "which is " << wanted << ", got " << seen;
}

LogicalResult verify::expectShapeOf(Operation *op, const char *what, Value seen,
                                    Value wanted, const char *of) {
  auto a = cast<ShapedType>(seen.getType());
  auto b = cast<ShapedType>(wanted.getType());
  if (succeeded(verifyCompatibleShape(a, b)))
    return success();
  return op->emitOpError() << what << " must have the shape of " << of << " ("
                           << b << "), got " << a;
}

static LogicalResult expectSameShape(Operation *op, Value result, Value wanted,
                                     const char *of) {
  return expectShapeOf(op, "result", result, wanted, of);
}

LogicalResult verify::expectBias(Operation *op, Value bias, int64_t outputs,
                                 const char *what) {
  if (!bias)
    return success();
  return expectSize(op, what, dim(bias, 0), outputs,
                    "as long as its weight has outputs");
}

LogicalResult verify::expectNorm(Operation *op, Value x, Value weight,
                                 const APFloat &eps) {
  int64_t columns = dim(x, 1), group = dim(weight, 0);
  if (ShapedType::isDynamic(columns) || ShapedType::isDynamic(group) ||
      group == 0 || columns % group != 0)
    return op->emitOpError()
           << "length of the weight (" << group
           << ") must divide the columns of x (" << columns << "), both static";
  if (eps.convertToDouble() > 0.0)
    return success();
  return op->emitOpError() << "eps must be positive, got "
                           << eps.convertToDouble();
}

LogicalResult verify::expectPaddingId(Operation *op, std::optional<uint64_t> id,
                                      int64_t rows) {
  if (!id || ShapedType::isDynamic(rows) || *id < static_cast<uint64_t>(rows))
    return success();
  return op->emitOpError() << "padding_id must be one of the " << rows
                           << " rows, got " << static_cast<int64_t>(*id);
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

LogicalResult ParamOp::verify() {
  // C1
  if (!getTensorType().hasStaticShape())
    return emitOpError() << "type must have a static shape, got "
                         << getTensorType();
  // C2
  if (getKey().empty())
    return emitOpError("key must not be empty: it names the checkpoint's "
                       "tensor");
  return success();
}

LogicalResult TableOp::verify() {
  // C1
  if (getKey().empty())
    return emitOpError("key must not be empty: it names the checkpoint's "
                       "tensor");
  return success();
}

LogicalResult
ParamLoadOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  // C1
  auto param =
      symbolTable.lookupNearestSymbolFrom<ParamOp>(*this, getParamAttr());
  if (!param)
    return emitOpError() << "'" << getParam() << "' is not a stem.param";
  // C2, C3: packing turns an [N, K] matrix into packed K x N.
  auto type = param.getTensorType();
  if (getTransposed()) {
    if (type.getRank() != 2)
      return emitOpError() << "cannot be transposed: the parameter is " << type
                           << ", not a matrix";
    type = type.clone({type.getDimSize(1), type.getDimSize(0)});
  }
  if (auto packed = dyn_cast<PackedType>(getType())) {
    if (type.getRank() == 2 && type.getDimSize(0) == packed.getColumns() &&
        type.getDimSize(1) == packed.getRows())
      return success();
  } else if (getType() == type) {
    return success();
  }
  return emitOpError() << "result type " << getType()
                       << " is not that of the parameter"
                       << (getTransposed() ? ", transposed" : "") << ", "
                       << type;
}

LogicalResult
TableLoadOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  // C1
  auto table =
      symbolTable.lookupNearestSymbolFrom<TableOp>(*this, getTableAttr());
  if (!table)
    return emitOpError() << "'" << getTable() << "' is not a stem.table";
  // C2
  if (getType() != table.getTableType())
    return emitOpError() << "result type " << getType()
                         << " is not that of the table, "
                         << table.getTableType();
  return success();
}

//===----------------------------------------------------------------------===//
// Transformer
//===----------------------------------------------------------------------===//

LogicalResult EmbeddingOp::verify() {
  // C1
  if (failed(expectSize(*this, "rows of the result", dim(getResult(), 0),
                        dim(getIds(), 0), "the number of ids")))
    return failure();
  // C2
  WeightShape weight = getWeightShape(getWeight().getType());
  if (failed(expectSize(*this, "columns of the result", dim(getResult(), 1),
                        weight.inputs, "the columns of the weight")))
    return failure();
  // C3
  return expectPaddingId(*this, getPaddingId(), weight.outputs);
}

LogicalResult RMSNormOp::verify() {
  // C1, C2
  if (failed(expectNorm(*this, getX(), getWeight(), getEps())))
    return failure();
  // C3
  return expectSameShape(*this, getResult(), getX(), "x");
}

LogicalResult SiluOp::verify() {
  // C1
  return expectSameShape(*this, getResult(), getX(), "x");
}

LogicalResult LinearOp::verify() {
  WeightShape weight = getWeightShape(getWeight().getType());
  // C1
  if (failed(expectSize(*this, "columns of x", dim(getX(), 1), weight.inputs,
                        "the inputs of the weight")))
    return failure();
  // C2
  if (failed(expectSize(*this, "columns of the result", dim(getResult(), 1),
                        weight.outputs, "the outputs of the weight")) ||
      failed(expectSize(*this, "rows of the result", dim(getResult(), 0),
                        dim(getX(), 0), "the rows of x")))
    return failure();
  // C3
  return expectBias(*this, getBias(), weight.outputs, "length of the bias");
}

LogicalResult RotaryAnglesOp::verify() {
  // C1
  ArrayRef<float> frequencies = getInvFreq();
  if (frequencies.empty())
    return emitOpError("inv_freq must not be empty");
  for (float frequency : frequencies)
    if (!(frequency > 0.0f))
      return emitOpError() << "inv_freq must be positive, got " << frequency;
  // C2
  for (Value result : {getCos(), getSin()})
    if (failed(expectSize(*this, "rows of a result", dim(result, 0),
                          dim(getPositions(), 0), "the number of positions")) ||
        failed(expectSize(*this, "columns of a result", dim(result, 1),
                          frequencies.size(), "the length of inv_freq")))
      return failure();
  return success();
}

LogicalResult RopeOp::verify() {
  // C1
  if (failed(verifyCompatibleShape(getCos().getType(), getSin().getType())))
    return emitOpError() << "cos and sin must have the same shape, got "
                         << getCos().getType() << " and " << getSin().getType();
  if (failed(expectSize(*this, "rows of cos and sin", dim(getCos(), 0),
                        dim(getX(), 0), "the rows of x")))
    return failure();
  // C2
  int64_t columns = dim(getX(), 1), half = dim(getCos(), 1);
  if (ShapedType::isDynamic(columns) || ShapedType::isDynamic(half) ||
      half == 0 || columns % (2 * half) != 0)
    return emitOpError() << "head_dim (twice the columns of cos, " << half
                         << ") must divide the columns of x (" << columns
                         << "), both static";
  // C3
  return expectSameShape(*this, getResult(), getX(), "x");
}

LogicalResult verify::expectHeads(Operation *op, Value q, Value k, Value v,
                                  int64_t headDim) {
  int64_t queryColumns = dim(q, 1), keyColumns = dim(k, 1);
  // C1
  if (headDim <= 0 || ShapedType::isDynamic(queryColumns) ||
      ShapedType::isDynamic(keyColumns) || queryColumns % headDim != 0 ||
      keyColumns % headDim != 0 || queryColumns == 0 || keyColumns == 0)
    return op->emitOpError()
           << "head_dim (" << headDim << ") must divide the columns of q ("
           << queryColumns << ") and of k (" << keyColumns << "), both static";
  // C2
  if (failed(verifyCompatibleShape(k.getType(), v.getType())))
    return op->emitOpError() << "k and v must have the same shape, got "
                             << k.getType() << " and " << v.getType();
  // C3
  if (queryColumns / headDim % (keyColumns / headDim) != 0)
    return op->emitOpError()
           << "the number of query heads (" << queryColumns / headDim
           << ") must be a multiple of the number of key-value heads ("
           << keyColumns / headDim << ")";
  return success();
}

LogicalResult verify::expectLogSumExp(Operation *op, const char *what,
                                      Value seen, Value q, int64_t headDim) {
  std::string rows = std::string("rows of ") + what;
  std::string columns = std::string("columns of ") + what;
  if (failed(expectSize(op, rows.c_str(), dim(seen, 0), dim(q, 0),
                        "the rows of q")))
    return failure();
  return expectSize(op, columns.c_str(), dim(seen, 1), dim(q, 1) / headDim,
                    "the number of query heads");
}

LogicalResult AttentionOp::verify() {
  // C1, C2, C3
  if (failed(expectHeads(*this, getQ(), getK(), getV(), getHeadDim())))
    return failure();
  // C4
  if (bool(getCache()) != bool(getLayer()))
    return emitOpError("cache and layer must come together");
  // C5
  if (failed(expectSameShape(*this, getResult(), getQ(), "q")))
    return failure();
  // C6
  if (int64_t window = getWindow(); window < 0)
    return emitOpError() << "window must not be negative, got " << window;
  // C7
  for (Value operand :
       {Value(getK()), Value(getPositions()), Value(getSequences())})
    if (failed(expectSize(*this, "rows of a token operand", dim(operand, 0),
                          dim(getQ(), 0), "the rows of q")))
      return failure();
  return success();
}

LogicalResult DenseFFNOp::verify() {
  WeightShape gate = getWeightShape(getGate().getType());
  WeightShape up = getWeightShape(getUp().getType());
  WeightShape down = getWeightShape(getDown().getType());
  // C1
  if (gate.inputs != up.inputs || gate.outputs != up.outputs)
    return emitOpError() << "gate and up must have the same shape, got "
                         << getGate().getType() << " and " << getUp().getType();
  if (failed(expectSize(*this, "columns of x", dim(getX(), 1), gate.inputs,
                        "the inputs of gate")))
    return failure();
  // C2
  if (failed(expectSize(*this, "inputs of down", down.inputs, gate.outputs,
                        "the outputs of gate")) ||
      failed(expectSize(*this, "outputs of down", down.outputs, gate.inputs,
                        "the inputs of gate")))
    return failure();
  // C3
  if (failed(expectBias(*this, getGateBias(), gate.outputs,
                        "length of gate_bias")) ||
      failed(expectBias(*this, getUpBias(), up.outputs, "length of up_bias")) ||
      failed(expectBias(*this, getDownBias(), down.outputs,
                        "length of down_bias")))
    return failure();
  // C4
  return expectSameShape(*this, getResult(), getX(), "x");
}

LogicalResult CrossEntropyOp::verify() {
  // C1
  if (failed(expectSize(*this, "columns of x", dim(getX(), 1),
                        getWeightShape(getHead().getType()).inputs,
                        "the inputs of head")))
    return failure();
  // C2
  if (failed(expectSize(*this, "length of labels", dim(getLabels(), 0),
                        dim(getX(), 0), "the rows of x")))
    return failure();
  return expectSize(*this, "length of the result", dim(getResult(), 0),
                    dim(getX(), 0), "the rows of x");
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

LogicalResult TableRowsOp::verify() {
  TableType table = getTable().getType();
  auto rows = cast<ShapedType>(getRows().getType());
  // C1
  if (failed(expectSize(*this, "columns of rows", rows.getDimSize(1),
                        table.getColumns(), "the columns of the table")))
    return failure();
  if (rows.getElementType() != table.getElementType())
    return emitOpError() << "rows must have the element type of the table, "
                         << table.getElementType() << ", got "
                         << rows.getElementType();
  // C2
  return expectSize(*this, "length of index", dim(getIndex(), 0),
                    dim(getIds(), 0), "the number of ids");
}

LogicalResult PrefetchOp::verify() {
  TableType table = getTable().getType();
  TicketType ticket = getTicket().getType();
  // C1
  if (ticket.getColumns() == table.getColumns() &&
      ticket.getElementType() == table.getElementType())
    return success();
  return emitOpError() << "the ticket must have the columns and the element "
                          "type of the table, "
                       << table.getColumns() << " x " << table.getElementType()
                       << ", got " << ticket.getColumns() << " x "
                       << ticket.getElementType();
}

LogicalResult AwaitOp::verify() {
  TicketType ticket = getTicket().getType();
  auto rows = cast<ShapedType>(getRows().getType());
  // C1
  if (failed(expectSize(*this, "columns of rows", rows.getDimSize(1),
                        ticket.getColumns(), "the columns of the ticket")))
    return failure();
  if (rows.getElementType() == ticket.getElementType())
    return success();
  return emitOpError() << "rows must have the element type of the ticket, "
                       << ticket.getElementType() << ", got "
                       << rows.getElementType();
}

PrefetchOp AwaitOp::getPrefetch() {
  return getTicket().getDefiningOp<PrefetchOp>();
}

Value AwaitOp::getIds() {
  PrefetchOp prefetch = getPrefetch();
  auto plan =
      prefetch ? prefetch.getPlan().getDefiningOp<PlanRowsOp>() : PlanRowsOp();
  return plan ? plan.getIds() : Value();
}

LogicalResult LookupOp::verify() {
  // C1
  if (failed(expectSize(*this, "rows of the result", dim(getResult(), 0),
                        dim(getIndex(), 0), "the length of index")))
    return failure();
  // C2
  return expectSize(*this, "columns of the result", dim(getResult(), 1),
                    dim(getRows(), 1), "the columns of rows");
}

/// What the two forms of the STEM FFN share: gate, down and their biases.
template <typename FFNOp>
static LogicalResult verifyGateAndDown(FFNOp op, int64_t rowColumns,
                                       const char *rows) {
  WeightShape gate = getWeightShape(op.getGate().getType());
  WeightShape down = getWeightShape(op.getDown().getType());
  if (failed(expectSize(op, "columns of x", dim(op.getX(), 1), gate.inputs,
                        "the inputs of gate")) ||
      failed(expectSize(op, rows, rowColumns, gate.outputs,
                        "the outputs of gate")) ||
      failed(expectSize(op, "inputs of down", down.inputs, gate.outputs,
                        "the outputs of gate")) ||
      failed(expectSize(op, "outputs of down", down.outputs, gate.inputs,
                        "the inputs of gate")) ||
      failed(expectBias(op, op.getGateBias(), gate.outputs,
                        "length of gate_bias")) ||
      failed(expectBias(op, op.getDownBias(), down.outputs,
                        "length of down_bias")))
    return failure();
  return expectSameShape(op, op.getResult(), op.getX(), "x");
}

LogicalResult GatedFFNOp::verify() {
  // C2
  if (failed(expectSize(*this, "rows of up", dim(getUp(), 0), dim(getX(), 0),
                        "the rows of x")))
    return failure();
  // C1, C2, C3, C4, C5
  return verifyGateAndDown(*this, dim(getUp(), 1), "columns of up");
}

LogicalResult FusedFFNOp::verify() {
  // C3
  if (failed(expectSize(*this, "length of index", dim(getIndex(), 0),
                        dim(getX(), 0), "the rows of x")))
    return failure();
  // C1, C2, C4, C5, C6
  return verifyGateAndDown(*this, dim(getRows(), 1), "columns of rows");
}

LogicalResult MapIdsOp::verify() {
  // C1
  if (failed(expectSize(*this, "length of the result", dim(getResult(), 0),
                        dim(getIds(), 0), "the number of ids")))
    return failure();
  // C2
  if (static_cast<int32_t>(getUnknown()) < 0)
    return emitOpError() << "unknown must not be negative, got "
                         << static_cast<int32_t>(getUnknown());
  // C3
  if (dim(getMap(), 0) == 0)
    return emitOpError("map must not be empty");
  return success();
}

LogicalResult MixOp::verify() {
  WeightShape a = getWeightShape(getA().getType());
  WeightShape b = getWeightShape(getB().getType());
  // C1
  if (failed(expectSize(*this, "inputs of b", b.inputs, dim(getX(), 1),
                        "the columns of x")) ||
      // C2
      failed(expectSize(*this, "inputs of a", a.inputs, b.outputs,
                        "the outputs of b")) ||
      // C3
      failed(expectSize(*this, "outputs of a", a.outputs, dim(getUp(), 1),
                        "the columns of up")) ||
      // C4
      failed(expectSize(*this, "rows of x", dim(getX(), 0), dim(getUp(), 0),
                        "the rows of up")))
    return failure();
  // C5
  return expectSameShape(*this, getResult(), getUp(), "up");
}

LogicalResult SelectUpOp::verify() {
  WeightShape weight = getWeightShape(getWeight().getType());
  // C1
  if (failed(expectSize(*this, "columns of x", dim(getX(), 1), weight.inputs,
                        "the inputs of the weight")) ||
      // C2
      failed(expectSize(*this, "outputs of the weight", weight.outputs,
                        dim(getUp(), 1), "the columns of up")) ||
      // C3
      failed(expectSize(*this, "length of ids", dim(getIds(), 0),
                        dim(getUp(), 0), "the rows of up")) ||
      // C4
      failed(expectSize(*this, "rows of x", dim(getX(), 0), dim(getUp(), 0),
                        "the rows of up")) ||
      // C6
      failed(
          expectBias(*this, getBias(), weight.outputs, "length of the bias")))
    return failure();
  // C5
  return expectSameShape(*this, getResult(), getUp(), "up");
}

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

LogicalResult verify::verifyDestination(Operation *op, Value input,
                                        Value destination, const char *name) {
  bool onTensors = isa<RankedTensorType>(destination.getType());
  if (isa<RankedTensorType>(input.getType()) == onTensors &&
      op->getNumResults() == (onTensors ? 1 : 0) &&
      (!onTensors || op->getResult(0).getType() == destination.getType()))
    return success();
  return op->emitOpError() << "must have one result of the type of " << name
                           << " on tensors and none on buffers";
}

LogicalResult PackedGatherOp::verify() {
  // C1
  if (failed(expectSize(*this, "rows of out", dim(getOut(), 0),
                        dim(getIds(), 0), "the number of ids")) ||
      // C2
      failed(expectSize(*this, "columns of out", dim(getOut(), 1),
                        getB().getType().getRows(), "the rows of b")))
    return failure();
  // C3
  return verifyDestination(*this, getIds(), getOut(), "out");
}

LogicalResult PackedMatmulOp::verify() {
  PackedType b = getB().getType();
  // C1
  if (failed(expectSize(*this, "rows of acc", dim(getAcc(), 0), dim(getA(), 0),
                        "the rows of a")))
    return failure();
  // C2
  Type element = cast<ShapedType>(getA().getType()).getElementType();
  if (element != b.getElementType())
    return emitOpError() << "a and b must have the same element type, got "
                         << element << " and " << b.getElementType();
  // C3
  if (failed(verifyDestination(*this, getA(), getAcc(), "acc")))
    return failure();
  // C4
  int64_t k = dim(getA(), 1), n = dim(getAcc(), 1);
  if ((!ShapedType::isDynamic(k) && k > b.getRows()) ||
      (!ShapedType::isDynamic(n) && n > b.getColumns()))
    return emitOpError() << "block " << k << " x " << n << " does not fit into "
                         << b;
  return success();
}

LogicalResult KVAppendOp::verify() {
  // C1: buffers may lie differently.
  auto k = cast<ShapedType>(getK().getType());
  auto v = cast<ShapedType>(getV().getType());
  if (k.getShape() != v.getShape() ||
      k.getElementType() != v.getElementType() ||
      isa<TensorType>(k) != isa<TensorType>(v))
    return emitOpError() << "k and v must have the same type, got "
                         << getK().getType() << " and " << getV().getType();
  // C2
  if (failed(expectSize(*this, "length of positions", dim(getPositions(), 0),
                        dim(getK(), 0), "the rows of k")))
    return failure();
  return expectSize(*this, "length of sequences", dim(getSequences(), 0),
                    dim(getK(), 0), "the rows of k");
}

LogicalResult AttendOp::verify() {
  int64_t headDim = getHeadDim(), heads = getKvHeads();
  int64_t columns = dim(getQ(), 1);
  // C1
  if (headDim <= 0 || ShapedType::isDynamic(columns) || columns % headDim != 0)
    return emitOpError() << "head_dim (" << headDim
                         << ") must divide the columns of q (" << columns
                         << "), static";
  // C2
  if (heads <= 0 || getQueryHeads() % heads != 0)
    return emitOpError() << "the number of query heads (" << getQueryHeads()
                         << ") must be a multiple of kv_heads (" << heads
                         << ")";
  // C3
  if (failed(expectSameShape(*this, getResult(), getQ(), "q")))
    return failure();
  // C4
  if (int64_t window = getWindow(); window < 0)
    return emitOpError() << "window must not be negative, got " << window;
  // C5
  if (failed(expectSize(*this, "length of positions", dim(getPositions(), 0),
                        dim(getQ(), 0), "the rows of q")) ||
      failed(expectSize(*this, "length of sequences", dim(getSequences(), 0),
                        dim(getQ(), 0), "the rows of q")))
    return failure();
  // C6
  if (!getLogsumexp())
    return success();
  return expectLogSumExp(*this, "logsumexp", getLogsumexp(), getQ(),
                         getHeadDim());
}

LogicalResult KVPageOp::verify() {
  // C1
  PackedType page = getType();
  if ((getValues() ? page.getRows() : page.getColumns()) != kPageTokens)
    return emitOpError() << "a page of " << (getValues() ? "values" : "keys")
                         << " must hold " << kPageTokens << " positions, got "
                         << page;
  return success();
}

LogicalResult
ParallelCallOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  // C1
  auto callee = symbolTable.lookupNearestSymbolFrom<FunctionOpInterface>(
      *this, getCalleeAttr());
  if (!callee)
    return emitOpError() << "'" << getCallee() << "' is not a function";
  ArrayRef<Type> arguments = callee.getArgumentTypes();
  bool matches = callee.getNumResults() == 0 &&
                 arguments.size() == getCaptures().size() + 2 &&
                 arguments[0].isIndex() && arguments[1].isIndex() &&
                 llvm::equal(arguments.drop_front(2), getCaptures().getTypes());
  if (!matches)
    return emitOpError() << "'" << getCallee()
                         << "' must take the task, the thread and the "
                            "captures, and return nothing";
  return success();
}
