//===- LowerToHostEntries.cpp - Functions that the runtime calls ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An entry function becomes two: the exported form, which has its arguments
// checked by the runtime, and the body, which reads them from the same array.
// A weight is read where it is used: a deep model has many, and as parameters
// of the body they would all be passed and kept.
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
  bool isTransposed =
      function.getArgAttr(index, StemDialect::kTransposedAttr) != nullptr;
  if (isTransposed && !isa<PackedType>(argument.type))
    return fail("has '" + StemDialect::kTransposedAttr +
                "' but is not packed, and weights are transposed where they "
                "are packed alone");
  if (auto packed = dyn_cast<PackedType>(argument.type)) {
    argument.packed = isTransposed ? STEM_PACKED_AS_STORED : STEM_PACKED;
    argument.sizes = {packed.getRows(), packed.getColumns()};
    element = packed.getElementType();
  } else if (isa<KVCacheType>(argument.type)) {
    argument.kind = STEM_ARG_CACHE;
    argument.dtype = STEM_HANDLE;
    return describeCache(function, function.getArgument(index), argument);
  } else if (auto buffer = dyn_cast<MemRefType>(argument.type)) {
    if (buffer.getRank() > STEM_MAX_RANK || buffer.getMemorySpace())
      return fail("must be a buffer of rank " + Twine(STEM_MAX_RANK) +
                  " at most in the default memory space");
    SmallVector<int64_t> strides;
    int64_t offset;
    if (failed(buffer.getStridesAndOffset(strides, offset)) ||
        (offset != 0 && !ShapedType::isDynamic(offset)))
      return fail("must have a strided layout without an offset");
    if (llvm::is_contained(strides, 0))
      return fail("must not have a stride of 0");
    for (int64_t size : buffer.getShape())
      argument.sizes.push_back(ShapedType::isDynamic(size) ? -1 : size);
    for (int64_t stride : strides)
      argument.strides.push_back(buffer.getLayout().isIdentity() ? 0
                                 : ShapedType::isDynamic(stride) ? -1
                                                                 : stride);
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

/// Where the elements of an i32 vector lie.
static LogicalResult collectIds(func::FuncOp function, unsigned index,
                                EntryArgument &argument) {
  StringRef found;
  for (auto [name, ids] :
       {std::pair(StemDialect::kIdBoundAttr, STEM_IDS_BOUNDED),
        std::pair(StemDialect::kLabelBoundAttr, STEM_IDS_LABELS),
        std::pair(StemDialect::kRowIndexAttr, STEM_IDS_TOKENS),
        std::pair(StemDialect::kOutputIndexAttr, STEM_IDS_OUTPUTS)}) {
    Attribute attribute = function.getArgAttr(index, name);
    if (!attribute)
      continue;
    if (!found.empty())
      return function.emitOpError() << "argument " << index << " has both '"
                                    << found << "' and '" << name << "'";
    if (argument.dtype != STEM_I32 || argument.sizes.size() != 1)
      return function.emitOpError() << "argument " << index << " has '" << name
                                    << "' but is not a vector of i32";
    found = name;
    argument.ids = ids;
    if (auto bound = dyn_cast<IntegerAttr>(attribute))
      argument.idBound = bound.getInt();
  }
  return success();
}

/// The key of the parameter whose optimizer state is updated in the argument.
static LogicalResult collectState(func::FuncOp function, unsigned index,
                                  SymbolTable &symbols,
                                  EntryArgument &argument) {
  auto of = function.getArgAttrOfType<FlatSymbolRefAttr>(
      index, StemDialect::kStateOfAttr);
  if (!of)
    return success();
  auto param = symbols.lookup<ParamOp>(of.getValue());
  if (!param)
    return function.emitOpError()
           << "argument " << index << " holds optimizer state of '"
           << of.getValue() << "', which is not a stem.param";
  argument.kind = STEM_ARG_STATE;
  argument.key = param.getKey().str();
  return success();
}

/// The key of the weight whose gradient is built in the argument.
static LogicalResult collectGradient(func::FuncOp function, unsigned index,
                                     SymbolTable &symbols,
                                     EntryArgument &argument) {
  auto of = function.getArgAttrOfType<FlatSymbolRefAttr>(
      index, StemDialect::kGradientOfAttr);
  if (!of)
    return success();
  Operation *symbol = symbols.lookup(of.getValue());
  if (auto param = dyn_cast_or_null<ParamOp>(symbol))
    argument.key = param.getKey().str();
  else if (auto table = dyn_cast_or_null<TableOp>(symbol))
    argument.key = table.getKey().str();
  else
    return function.emitOpError()
           << "argument " << index << " holds the gradient of '"
           << of.getValue()
           << "', which is neither a stem.param nor a stem.table";
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
    if (failed(collectGradient(function, index, symbols, argument)) ||
        failed(collectState(function, index, symbols, argument)))
      return failure();
  }
  argument.name = name    ? name.str()
                  : param ? param.getValue().str()
                          : ("arg" + Twine(index)).str();
  if (auto rows =
          function.getArgAttrOfType<StringAttr>(index, StemDialect::kRowsAttr))
    if (!argument.sizes.empty() && argument.sizes[0] < 0)
      argument.rows = rows.getValue() == "tokens"    ? STEM_ROWS_TOKENS
                      : rows.getValue() == "outputs" ? STEM_ROWS_OUTPUTS
                                                     : STEM_ROWS_OTHER;
  return collectIds(function, index, argument);
}

/// What depends on the tokens or outputs of a step needs an argument that has
/// as many rows.
static LogicalResult checkRows(const HostEntry &entry) {
  func::FuncOp function = entry.body;
  auto counts = [&](int32_t rows) {
    return llvm::any_of(entry.arguments, [&](const EntryArgument &argument) {
      return argument.rows == rows;
    });
  };
  for (auto [bytes, rows, name] :
       {std::tuple(entry.tokenBytes, STEM_ROWS_TOKENS, "tokens"),
        std::tuple(entry.outputBytes, STEM_ROWS_OUTPUTS, "outputs")})
    if (bytes && !counts(rows))
      return function.emitOpError()
             << "takes memory for each of its " << name
             << ", but no argument has stem.rows = \"" << name << "\"";
  for (auto [ids, rows, attribute, name] :
       {std::tuple(STEM_IDS_TOKENS, STEM_ROWS_TOKENS,
                   StemDialect::kRowIndexAttr, "tokens"),
        std::tuple(STEM_IDS_OUTPUTS, STEM_ROWS_OUTPUTS,
                   StemDialect::kOutputIndexAttr, "outputs")})
    for (const EntryArgument &argument : entry.arguments)
      if (argument.ids == ids && !counts(rows))
        return function.emitOpError()
               << "argument '" << argument.name << "' has '" << attribute
               << "', but no argument has stem.rows = \"" << name << "\"";
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
  entry.fixedBytes = number(StemDialect::kFixedBytesAttr);
  entry.tokenBytes = number(StemDialect::kTokenBytesAttr);
  entry.outputBytes = number(StemDialect::kOutputBytesAttr);
  entry.threadBytes = number(StemDialect::kThreadBytesAttr);
  // As stem-plan-memory: no frame comes near this.
  if (entry.fixedBytes > int64_t(1) << 48)
    return function.emitOpError()
           << "takes " << entry.fixedBytes
           << " bytes whatever its step; the most is 2^48";
  for (int64_t bytes : {entry.tokenBytes, entry.outputBytes, entry.threadBytes})
    if (bytes < 0 || bytes > std::numeric_limits<int32_t>::max())
      return function.emitOpError()
             << "takes " << bytes
             << " bytes for each token, output or thread; the most is 2 GiB";
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    if (function.getArgAttr(i, StemDialect::kScratchAttr) ||
        function.getArgAttr(i, StemDialect::kArenaAttr)) {
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
  return checkRows(entry);
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

class EntryWriter {
public:
  EntryWriter(HostEntry &entry, unsigned number,
              const LLVMTypeConverter &converter)
      : entry(entry), number(number), converter(converter),
        builder(entry.body.getLoc()) {}

  void run();

private:
  Value read(const EntryArgument &description, Value tensor);
  void readWhereUsed(BlockArgument value, const EntryArgument &description,
                     int64_t offset);
  void readArguments();
  Value buildBytes(Value start, Value bytes);
  LLVM::LLVMFuncOp declare();
  Value callBody(Block *first, Value frame);

  HostEntry &entry;
  /// In the description of the module.
  unsigned number;
  const LLVMTypeConverter &converter;
  HostBuilder builder;
};

/// The value of one argument, from its stem_tensor. A packed matrix is its
/// data: its shape is in the type.
Value EntryWriter::read(const EntryArgument &description, Value tensor) {
  if (auto buffer = dyn_cast<MemRefType>(description.type))
    return builder.buffer(converter, buffer, tensor);
  Value handle =
      builder.load(builder.ptr(), tensor, offsetof(stem_tensor, data));
  if (isa<PackedType>(description.type))
    handle = builder.load(builder.ptr(), handle, offsetof(stem_packed, data));
  return builder.cast(description.type, handle);
}

void EntryWriter::readWhereUsed(BlockArgument value,
                                const EntryArgument &description,
                                int64_t offset) {
  Region &region = entry.body.getBody();
  Value arguments = region.getArgument(1);
  llvm::DenseMap<Operation *, Value> values;
  for (OpOperand &use : llvm::make_early_inc_range(value.getUses())) {
    Operation *user = region.findAncestorOpInRegion(*use.getOwner());
    Value &read = values[user];
    if (!read) {
      builder.setInsertionPoint(user);
      read = this->read(description, builder.address(arguments, offset));
    }
    use.set(read);
  }
}

/// The body of an entry takes the context, the array of arguments, and what
/// is not described there: its memory and the store.
void EntryWriter::readArguments() {
  func::FuncOp body = entry.body;
  (void)body.insertArgument(1, builder.ptr(), {}, body.getLoc());
  llvm::BitVector replaced(body.getNumArguments());
  unsigned index = 2;
  for (auto [position, description] : llvm::enumerate(entry.arguments)) {
    if (!description.type)
      continue;
    BlockArgument value = body.getArgument(index);
    int64_t offset = position * sizeof(stem_tensor);
    if (description.kind == STEM_ARG_PARAM) {
      readWhereUsed(value, description, offset);
    } else {
      builder.setInsertionPointToStart(&body.getBody().front());
      value.replaceAllUsesWith(
          read(description, builder.address(body.getArgument(1), offset)));
    }
    replaced.set(index++);
  }
  (void)body.eraseArguments(replaced);
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

/// Gives the name of the entry to the function that the runtime calls.
LLVM::LLVMFuncOp EntryWriter::declare() {
  auto module = entry.body->getParentOfType<ModuleOp>();
  SymbolTable symbols(module);
  symbols.remove(entry.body);
  entry.body.setSymName(entry.name + "_body");
  entry.body.setPrivate();
  symbols.insert(entry.body);
  builder.setInsertionPointToEnd(module.getBody());
  Type pointer = builder.ptr(), i64 = builder.getI64Type();
  return LLVM::LLVMFuncOp::create(
      builder, builder.getLoc(), entry.name,
      LLVM::LLVMFunctionType::get(builder.getI32Type(),
                                  {pointer, pointer, i64, pointer, i64}));
}

/// `frame` is what lies in the arena before the scratch of the threads.
Value EntryWriter::callBody(Block *first, Value frame) {
  Location loc = builder.getLoc();
  Value arguments = first->getArgument(1), arena = first->getArgument(3);
  SmallVector<Value> operands{first->getArgument(0), arguments};
  if (entry.takesMemory) {
    Value scratch =
        LLVM::GEPOp::create(builder, loc, builder.ptr(), builder.getI8Type(),
                            arena, ArrayRef<LLVM::GEPArg>{frame});
    Value rest =
        LLVM::SubOp::create(builder, loc, first->getArgument(4), frame);
    operands.push_back(buildBytes(scratch, rest));
    operands.push_back(buildBytes(arena, frame));
  }
  if (entry.takesStore)
    operands.push_back(
        builder.load(builder.ptr(), arguments,
                     (entry.arguments.size() - 1) * sizeof(stem_tensor) +
                         offsetof(stem_tensor, data)));
  return func::CallOp::create(builder, loc, entry.body, operands).getResult(0);
}

/// Writes `stem_status NAME(context, arguments, count, arena, arena_bytes)`.
void EntryWriter::run() {
  Location loc = builder.getLoc();
  readArguments();
  LLVM::LLVMFuncOp function = declare();
  Block *first = function.addEntryBlock(builder);
  Block *accepted = builder.createBlock(&function.getBody());
  Block *leave = builder.createBlock(&function.getBody());
  leave->addArgument(builder.getI32Type(), loc);
  LLVM::ReturnOp::create(builder, loc, leave->getArgument(0));

  builder.setInsertionPointToStart(first);
  Value entries = LLVM::AddressOfOp::create(builder, loc, builder.ptr(),
                                            kEntryDescriptions);
  Value slot = builder.stackSlot(function.getBody(), builder.getI64Type());
  Value status =
      builder.call("stem_check_entry",
                   {first->getArgument(0),
                    builder.address(entries, number * sizeof(stem_entry)),
                    first->getArgument(1), first->getArgument(2),
                    first->getArgument(3), first->getArgument(4), slot});
  Value ok = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq, status,
                                  builder.i32(STEM_OK));
  LLVM::CondBrOp::create(builder, loc, ok, accepted, ValueRange(), leave,
                         ValueRange(status));
  builder.setInsertionPointToStart(accepted);
  Value frame = builder.load(builder.getI64Type(), slot, 0);
  LLVM::BrOp::create(builder, loc, ValueRange(callBody(first, frame)), leave);
}

} // namespace

void stem::buildEntry(HostEntry &entry, unsigned number,
                      const LLVMTypeConverter &converter) {
  EntryWriter(entry, number, converter).run();
}
