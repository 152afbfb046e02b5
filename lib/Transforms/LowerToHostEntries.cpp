//===- LowerToHostEntries.cpp - Functions that the runtime calls ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An entry function becomes two: the body, with the memrefs it always had, and
// the exported form, which checks what it was given before it calls the body.
//
//===----------------------------------------------------------------------===//

#include "LowerToHost.h"

#include "stem-c/Runtime.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace stem;

//===----------------------------------------------------------------------===//
// Reading the attributes
//===----------------------------------------------------------------------===//

static LogicalResult collectType(func::FuncOp function, unsigned index,
                                 EntryArgument &argument) {
  auto fail = [&](const Twine &message) {
    return function.emitOpError() << "argument " << index << " " << message;
  };
  Type element;
  if (auto packed = dyn_cast<PackedType>(argument.type)) {
    argument.packed = 1;
    argument.sizes = {packed.getRows(), packed.getColumns()};
    element = packed.getElementType();
  } else if (isa<KVCacheType>(argument.type)) {
    argument.kind = STEM_ARG_CACHE;
    argument.dtype = STEM_HANDLE;
    return success();
  } else if (auto buffer = dyn_cast<MemRefType>(argument.type)) {
    if (buffer.getRank() > STEM_MAX_RANK || buffer.getMemorySpace())
      return fail("must be a buffer of rank " + Twine(STEM_MAX_RANK) +
                  " at most in the default memory space");
    SmallVector<int64_t> strides;
    int64_t offset;
    if (failed(buffer.getStridesAndOffset(strides, offset)) ||
        (offset != 0 && !ShapedType::isDynamic(offset)))
      return fail("must have a strided layout without an offset");
    for (int64_t size : buffer.getShape())
      argument.sizes.push_back(ShapedType::isDynamic(size) ? -1 : size);
    element = buffer.getElementType();
  } else {
    auto diagnostic = function.emitOpError();
    return diagnostic << "argument " << index << " has type " << argument.type
                      << ", which the runtime cannot pass: expected a buffer, "
                         "a packed matrix, a table or a cache";
  }
  std::optional<int32_t> dtype = getRuntimeType(element);
  if (!dtype) {
    auto diagnostic = function.emitOpError();
    return diagnostic << "argument " << index << " has elements of type "
                      << element << ", expected f32, bf16, f16, i32 or i8";
  }
  argument.dtype = *dtype;
  return success();
}

static LogicalResult collectArgument(func::FuncOp function, unsigned index,
                                     SymbolTable &symbols,
                                     EntryArgument &argument) {
  argument.type = function.getArgumentTypes()[index];
  if (failed(collectType(function, index, argument)))
    return failure();
  auto name =
      function.getArgAttrOfType<StringAttr>(index, StemDialect::kNameAttr);
  auto param = function.getArgAttrOfType<FlatSymbolRefAttr>(
      index, StemDialect::kParamAttr);
  if (param) {
    auto symbol = symbols.lookup<ParamOp>(param.getValue());
    if (!symbol)
      return function.emitOpError()
             << "argument " << index << " names '" << param.getValue()
             << "', which is not a stem.param";
    argument.kind = STEM_ARG_PARAM;
    argument.key = symbol.getKey().str();
  } else if (argument.packed) {
    return function.emitOpError()
           << "argument " << index
           << " is a packed matrix without 'stem.param', which says what to "
              "pack";
  } else if (function.getArgAttr(index, StemDialect::kOutputAttr)) {
    argument.kind = STEM_ARG_OUTPUT;
  }
  argument.name = name    ? name.str()
                  : param ? param.getValue().str()
                          : ("arg" + Twine(index)).str();
  if (auto rows =
          function.getArgAttrOfType<StringAttr>(index, StemDialect::kRowsAttr))
    if (!argument.sizes.empty() && argument.sizes[0] < 0)
      argument.rows = rows.getValue();
  auto bound =
      function.getArgAttrOfType<IntegerAttr>(index, StemDialect::kIdBoundAttr);
  if (bound) {
    if (argument.dtype != STEM_I32 || argument.sizes.size() != 1)
      return function.emitOpError()
             << "argument " << index << " has '" << StemDialect::kIdBoundAttr
             << "' but is not a vector of i32";
    argument.idBound = bound.getInt();
  }
  return success();
}

static LogicalResult collectEntry(HostEntry &entry, SymbolTable &symbols,
                                  const llvm::StringMap<int64_t> &tables) {
  func::FuncOp function = entry.body;
  entry.name = function.getSymName().str();
  if (function.isExternal() || function.getNumResults() != 0)
    return function.emitOpError("is an entry: it must have a body and write "
                                "its results into arguments");
  auto number = [&](StringRef name) -> int64_t {
    auto attribute = function->getAttrOfType<IntegerAttr>(name);
    return attribute ? attribute.getInt() : 0;
  };
  entry.tile = std::max<int64_t>(number(StemDialect::kTileAttr), 1);
  entry.fixedBytes = number("stem.fixed_bytes");
  entry.tokenBytes = number("stem.bytes_per_token");
  entry.outputBytes = number("stem.bytes_per_output");
  entry.threadBytes = number("stem.bytes_per_thread");
  for (int64_t bytes : {entry.tokenBytes, entry.outputBytes, entry.threadBytes})
    if (bytes < 0 || bytes > std::numeric_limits<int32_t>::max())
      return function.emitOpError()
             << "takes " << bytes
             << " bytes for each token, output or thread; the most is 2 GiB";
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    if (function.getArgAttr(i, "stem.scratch") ||
        function.getArgAttr(i, "stem.arena")) {
      entry.takesMemory = true;
      continue;
    }
    if (isa<TableType>(function.getArgumentTypes()[i])) {
      auto symbol = function.getArgAttrOfType<FlatSymbolRefAttr>(
          i, StemDialect::kTableAttr);
      if (!symbol || !tables.contains(symbol.getValue()))
        return function.emitOpError()
               << "argument " << i
               << " is a table: 'stem.table' must name its stem.table";
      entry.tables[i] = tables.lookup(symbol.getValue());
      continue;
    }
    if (failed(collectArgument(function, i, symbols,
                               entry.arguments.emplace_back())))
      return failure();
  }
  entry.takesStore = !entry.tables.empty();
  if (entry.takesStore) {
    EntryArgument store;
    store.name = "tables";
    store.kind = STEM_ARG_STORE;
    store.dtype = STEM_HANDLE;
    entry.arguments.push_back(store);
  }
  for (auto [bytes, rows] : {std::pair(entry.tokenBytes, "tokens"),
                             std::pair(entry.outputBytes, "outputs")})
    if (bytes && llvm::none_of(entry.arguments, [&](const EntryArgument &a) {
          return a.rows == rows;
        }))
      return function.emitOpError()
             << "takes memory for each of its " << rows
             << ", but no argument has stem.rows = \"" << rows << "\"";
  return success();
}

FailureOr<std::vector<HostEntry>> stem::collectEntries(ModuleOp module) {
  SymbolTable symbols(module);
  llvm::StringMap<int64_t> tables;
  for (auto table : module.getOps<TableOp>())
    tables.try_emplace(table.getSymName(), tables.size());
  std::vector<HostEntry> entries;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function->hasAttr(StemDialect::kEntryAttr))
      continue;
    entries.emplace_back().body = function;
    if (failed(collectEntry(entries.back(), symbols, tables)))
      return failure();
  }
  return entries;
}

//===----------------------------------------------------------------------===//
// The exported form
//===----------------------------------------------------------------------===//

namespace {

/// Writes `stem_status NAME(context, arguments, count, arena, arena_bytes)`.
class EntryWriter {
public:
  EntryWriter(HostEntry &entry, const LLVMTypeConverter &converter)
      : entry(entry), converter(converter), builder(entry.body.getLoc()) {}

  LogicalResult run();

private:
  Value compare(LLVM::ICmpPredicate predicate, Value a, Value b) {
    return LLVM::ICmpOp::create(builder, builder.getLoc(), predicate, a, b);
  }
  Value equal(Value a, int64_t b) {
    bool isWide = a.getType().isInteger(64);
    return compare(LLVM::ICmpPredicate::eq, a,
                   isWide ? builder.i64(b) : builder.i32(b));
  }
  Value both(Value a, Value b) {
    return a ? LLVM::AndOp::create(builder, builder.getLoc(), a, b).getResult()
             : b;
  }
  Value multiply(Value a, int64_t b) {
    return LLVM::MulOp::create(builder, builder.getLoc(), a, builder.i64(b));
  }
  Value add(Value a, Value b) {
    return LLVM::AddOp::create(builder, builder.getLoc(), a, b);
  }
  /// The address of argument `index`, and its fields.
  Value argument(unsigned index) {
    return builder.address(arguments, index * sizeof(stem_tensor));
  }
  Value size(Value tensor, unsigned dim) {
    return builder.load(builder.getI64Type(), tensor,
                        offsetof(stem_tensor, sizes) + 8 * dim);
  }
  Value stride(Value tensor, unsigned dim) {
    return builder.load(builder.getI64Type(), tensor,
                        offsetof(stem_tensor, strides) + 8 * dim);
  }
  Value data(Value tensor) {
    return builder.load(builder.ptr(), tensor, offsetof(stem_tensor, data));
  }

  /// Returns `status` unless `condition` holds.
  void require(Value condition, int32_t status);
  void requireOk(Value status);
  Value findRows(StringRef rows);
  Value checkArgument(const EntryArgument &description, Value tensor);
  Value checkStrides(MemRefType type, Value tensor);
  void checkRows();
  Value checkMemory();
  Value buildBytes(Value start, Value bytes);
  Value buildArgument(const EntryArgument &description, Value tensor);

  HostEntry &entry;
  const LLVMTypeConverter &converter;
  HostBuilder builder;
  Block *leave = nullptr;
  Value context, arguments, count, arena, arenaBytes;
  /// The rows of token and of output arguments; null if there are none.
  Value tokens, outputs;
};

void EntryWriter::require(Value condition, int32_t status) {
  Value code = builder.i32(status);
  Block *next = new Block();
  leave->getParent()->getBlocks().insert(leave->getIterator(), next);
  LLVM::CondBrOp::create(builder, builder.getLoc(), condition, next,
                         ValueRange(), leave, ValueRange(code));
  builder.setInsertionPointToStart(next);
}

void EntryWriter::requireOk(Value status) {
  Value ok = equal(status, STEM_OK);
  Block *next = new Block();
  leave->getParent()->getBlocks().insert(leave->getIterator(), next);
  LLVM::CondBrOp::create(builder, builder.getLoc(), ok, next, ValueRange(),
                         leave, ValueRange(status));
  builder.setInsertionPointToStart(next);
}

Value EntryWriter::findRows(StringRef rows) {
  for (auto [index, description] : llvm::enumerate(entry.arguments))
    if (description.rows == rows)
      return size(argument(index), 0);
  return {};
}

/// Strides are those of the type; a buffer without a layout is dense.
Value EntryWriter::checkStrides(MemRefType type, Value tensor) {
  SmallVector<int64_t> strides;
  int64_t offset;
  (void)type.getStridesAndOffset(strides, offset);
  Value ok, dense = builder.i64(1);
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    Value seen = stride(tensor, dim);
    if (!ShapedType::isDynamic(strides[dim]))
      ok = both(ok, equal(seen, strides[dim]));
    else if (type.getLayout().isIdentity())
      ok = both(ok, compare(LLVM::ICmpPredicate::eq, seen, dense));
    dense = LLVM::MulOp::create(builder, builder.getLoc(), dense,
                                size(tensor, dim));
  }
  return ok;
}

Value EntryWriter::checkArgument(const EntryArgument &description,
                                 Value tensor) {
  Type i32 = builder.getI32Type();
  Value dtype = builder.load(i32, tensor, offsetof(stem_tensor, dtype));
  auto buffer = dyn_cast_or_null<MemRefType>(description.type);
  if (!buffer) {
    Value null = LLVM::ZeroOp::create(builder, builder.getLoc(), builder.ptr());
    Value ok = both(equal(dtype, STEM_HANDLE),
                    compare(LLVM::ICmpPredicate::ne, data(tensor), null));
    return ok;
  }
  Value ok = equal(dtype, description.dtype);
  Value rank = builder.load(i32, tensor, offsetof(stem_tensor, rank));
  ok = both(ok, equal(rank, buffer.getRank()));
  for (auto [dim, wanted] : llvm::enumerate(description.sizes)) {
    Value seen = size(tensor, dim);
    if (wanted >= 0)
      ok = both(ok, equal(seen, wanted));
    else
      ok = both(ok, compare(LLVM::ICmpPredicate::sge, seen, builder.i64(0)));
  }
  for (auto [name, rows] :
       {std::pair("tokens", tokens), std::pair("outputs", outputs)})
    if (description.rows == name)
      ok = both(ok, compare(LLVM::ICmpPredicate::eq, size(tensor, 0), rows));
  if (Value strides = checkStrides(buffer, tensor))
    ok = both(ok, strides);
  return ok;
}

/// Tokens are a positive multiple of the tile; both counts fit 31 bits, so that
/// no sum of bytes overflows.
void EntryWriter::checkRows() {
  tokens = findRows("tokens");
  outputs = findRows("outputs");
  Value most = builder.i64(std::numeric_limits<int32_t>::max());
  if (tokens) {
    Value rest = LLVM::SRemOp::create(builder, builder.getLoc(), tokens,
                                      builder.i64(entry.tile));
    Value ok = equal(rest, 0);
    ok = both(ok, compare(LLVM::ICmpPredicate::sgt, tokens, builder.i64(0)));
    ok = both(ok, compare(LLVM::ICmpPredicate::sle, tokens, most));
    require(ok, STEM_INVALID_ARGUMENT);
  }
  if (outputs) {
    Value ok = compare(LLVM::ICmpPredicate::sge, outputs, builder.i64(0));
    ok = both(ok, compare(LLVM::ICmpPredicate::sle, outputs, most));
    require(ok, STEM_INVALID_ARGUMENT);
  }
}

/// Refuses an arena that is too small or not aligned. Returns the bytes that
/// lie before the scratch of the threads.
Value EntryWriter::checkMemory() {
  Value frame = builder.i64(entry.fixedBytes);
  if (tokens)
    frame = add(frame, multiply(tokens, entry.tokenBytes));
  if (outputs)
    frame = add(frame, multiply(outputs, entry.outputBytes));
  Value threads = builder.call("stem_context_threads", context);
  threads = LLVM::SExtOp::create(builder, builder.getLoc(),
                                 builder.getI64Type(), threads);
  Value needed = add(frame, multiply(threads, entry.threadBytes));
  require(compare(LLVM::ICmpPredicate::sge, arenaBytes, needed),
          STEM_OUT_OF_MEMORY);
  Value address = LLVM::PtrToIntOp::create(builder, builder.getLoc(),
                                           builder.getI64Type(), arena);
  Value rest =
      LLVM::AndOp::create(builder, builder.getLoc(), address, builder.i64(63));
  require(equal(rest, 0), STEM_INVALID_ARGUMENT);
  return frame;
}

/// A memref<?xi8>.
Value EntryWriter::buildBytes(Value start, Value bytes) {
  Location loc = builder.getLoc();
  auto type = MemRefType::get({ShapedType::kDynamic}, builder.getI8Type());
  auto descriptor =
      MemRefDescriptor::poison(builder, loc, converter.convertType(type));
  descriptor.setAllocatedPtr(builder, loc, start);
  descriptor.setAlignedPtr(builder, loc, start);
  descriptor.setConstantOffset(builder, loc, 0);
  descriptor.setSize(builder, loc, 0, bytes);
  descriptor.setConstantStride(builder, loc, 0, 1);
  return builder.cast(type, descriptor);
}

/// A packed matrix is passed on as its data: its shape is in the type.
Value EntryWriter::buildArgument(const EntryArgument &description,
                                 Value tensor) {
  if (auto buffer = dyn_cast_or_null<MemRefType>(description.type))
    return builder.buffer(converter, buffer, tensor);
  Value handle = data(tensor);
  if (!description.type)
    return handle;
  if (!isa<PackedType>(description.type))
    return builder.cast(description.type, handle);
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  Value ok = equal(builder.load(i32, handle, offsetof(stem_packed, dtype)),
                   description.dtype);
  ok = both(ok, equal(builder.load(i64, handle, offsetof(stem_packed, rows)),
                      description.sizes[0]));
  ok = both(ok, equal(builder.load(i64, handle, offsetof(stem_packed, columns)),
                      description.sizes[1]));
  require(ok, STEM_INVALID_ARGUMENT);
  return builder.cast(
      description.type,
      builder.load(builder.ptr(), handle, offsetof(stem_packed, data)));
}

LogicalResult EntryWriter::run() {
  Location loc = builder.getLoc();
  auto module = entry.body->getParentOfType<ModuleOp>();
  SymbolTable symbols(module);
  symbols.remove(entry.body);
  entry.body.setSymName(entry.name + "_body");
  entry.body.setPrivate();
  symbols.insert(entry.body);
  builder.setInsertionPointToEnd(module.getBody());
  Type pointer = builder.ptr(), i64 = builder.getI64Type();
  auto function = LLVM::LLVMFuncOp::create(
      builder, loc, entry.name,
      LLVM::LLVMFunctionType::get(builder.getI32Type(),
                                  {pointer, pointer, i64, pointer, i64}));
  // Its checks grow with the number of weights and run once a step: LLVM's
  // optimiser would spend much of a compilation on them.
  function.setNoInline(true);
  function.setOptimizeNone(true);
  Block *first = function.addEntryBlock(builder);
  context = first->getArgument(0);
  arguments = first->getArgument(1);
  count = first->getArgument(2);
  arena = first->getArgument(3);
  arenaBytes = first->getArgument(4);
  leave = new Block();
  function.getBody().push_back(leave);
  leave->addArgument(builder.getI32Type(), loc);
  builder.setInsertionPointToStart(leave);
  LLVM::ReturnOp::create(builder, loc, leave->getArgument(0));
  builder.setInsertionPointToStart(first);

  require(equal(count, entry.arguments.size()), STEM_INVALID_ARGUMENT);
  checkRows();
  Value ok;
  for (auto [index, description] : llvm::enumerate(entry.arguments))
    ok = both(ok, checkArgument(description, argument(index)));
  if (ok)
    require(ok, STEM_INVALID_ARGUMENT);
  Value frame = entry.takesMemory ? checkMemory() : Value();
  for (auto [index, description] : llvm::enumerate(entry.arguments))
    if (description.idBound) {
      Value tensor = argument(index);
      requireOk(builder.call("stem_check_ids",
                             {context, data(tensor), size(tensor, 0),
                              builder.i64(description.idBound)}));
    }

  SmallVector<Value> operands{context};
  for (auto [index, description] : llvm::enumerate(entry.arguments))
    if (description.type)
      operands.push_back(buildArgument(description, argument(index)));
  if (entry.takesMemory) {
    Value scratch =
        LLVM::GEPOp::create(builder, loc, pointer, builder.getI8Type(), arena,
                            ArrayRef<LLVM::GEPArg>{frame});
    Value bytes = LLVM::SubOp::create(builder, loc, arenaBytes, frame);
    operands.push_back(buildBytes(scratch, bytes));
    operands.push_back(buildBytes(arena, frame));
  }
  if (entry.takesStore)
    operands.push_back(data(argument(entry.arguments.size() - 1)));
  auto call = func::CallOp::create(builder, loc, entry.body, operands);
  LLVM::ReturnOp::create(builder, loc, call.getResult(0));
  return success();
}

} // namespace

LogicalResult stem::buildEntry(HostEntry &entry,
                               const LLVMTypeConverter &converter) {
  return EntryWriter(entry, converter).run();
}
