//===- LowerToHostCalls.cpp - Calls of the runtime ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowerToHost.h"

#include "stem-c/Runtime.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace stem;

static_assert(PackedType::kPanelColumns == STEM_PANEL &&
                  KVPageOp::kPageTokens == STEM_KV_PAGE,
              "compiled code and the runtime differ in the size of a panel or "
              "a page");

//===----------------------------------------------------------------------===//
// Signatures
//===----------------------------------------------------------------------===//

/// What compiled code calls, as include/stem-c/Runtime.h declares it. The
/// first letter is the result: p pointer, i int32_t, l int64_t, v void.
static constexpr std::pair<llvm::StringLiteral, llvm::StringLiteral>
    kRuntimeFunctions[] = {
        {"stem_check_entry", "ippplplp"},
        {"stem_parallel_for", "vplpp"},
        {"stem_packed_matmul", "vpplpillllplllli"},
        {"stem_packed_gather", "vpillplpl"},
        {"stem_pack_tokens", "vplillp"},
        {"stem_transpose_tokens", "vplillpl"},
        {"stem_kv_append", "vplplplppl"},
        {"stem_kv_page", "pplilli"},
        {"stem_table_make_plan", "ippplp"},
        {"stem_table_release_plan", "vpp"},
        {"stem_table_prefetch", "ipplpp"},
        {"stem_table_await", "ipplpp"},
        {"stem_table_release", "vpl"},
};

static StringRef getSignature(StringRef name) {
  for (auto [function, signature] : kRuntimeFunctions)
    if (function == name)
      return signature;
  return {};
}

bool stem::isRuntimeFunction(StringRef name) {
  return !getSignature(name).empty();
}

std::optional<int32_t> stem::getRuntimeType(Type type) {
  if (type.isF32())
    return STEM_F32;
  if (type.isBF16())
    return STEM_BF16;
  if (type.isF16())
    return STEM_F16;
  if (type.isSignlessInteger(32))
    return STEM_I32;
  if (type.isSignlessInteger(8))
    return STEM_I8;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// HostBuilder
//===----------------------------------------------------------------------===//

Value HostBuilder::i32(int64_t value) {
  return LLVM::ConstantOp::create(*this, loc, getI32Type(), value);
}

Value HostBuilder::i64(int64_t value) {
  return LLVM::ConstantOp::create(*this, loc, getI64Type(), value);
}

Value HostBuilder::address(Value base, int64_t offset) {
  if (offset == 0)
    return base;
  return LLVM::GEPOp::create(*this, loc, ptr(), getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{int32_t(offset)});
}

Value HostBuilder::load(Type type, Value base, int64_t offset) {
  return LLVM::LoadOp::create(*this, loc, type, address(base, offset));
}

Value HostBuilder::cast(Type type, Value value) {
  if (value.getType() == type)
    return value;
  return UnrealizedConversionCastOp::create(*this, loc, type, value)
      .getResult(0);
}

Value HostBuilder::stackSlot(Region &function, Type type) {
  InsertionGuard guard(*this);
  setInsertionPointToStart(&function.front());
  return LLVM::AllocaOp::create(*this, loc, ptr(), type, i64(1));
}

Value HostBuilder::buffer(const LLVMTypeConverter &converter, MemRefType type,
                          Value tensor) {
  Value data = load(ptr(), tensor, offsetof(stem_tensor, data));
  if (type.hasStaticShape() && type.getLayout().isIdentity())
    return cast(type, MemRefDescriptor::fromStaticShape(*this, loc, converter,
                                                        type, data));
  auto descriptor =
      MemRefDescriptor::poison(*this, loc, converter.convertType(type));
  descriptor.setAllocatedPtr(*this, loc, data);
  descriptor.setAlignedPtr(*this, loc, data);
  descriptor.setConstantOffset(*this, loc, 0);
  for (unsigned dim = 0; dim < type.getRank(); ++dim) {
    int64_t size = offsetof(stem_tensor, sizes) + 8 * dim;
    int64_t stride = offsetof(stem_tensor, strides) + 8 * dim;
    descriptor.setSize(*this, loc, dim, load(getI64Type(), tensor, size));
    descriptor.setStride(*this, loc, dim, load(getI64Type(), tensor, stride));
  }
  return cast(type, descriptor);
}

Value HostBuilder::call(StringRef name, ValueRange arguments) {
  auto module = getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!function) {
    auto typeOf = [&](char letter) -> Type {
      switch (letter) {
      case 'p':
        return ptr();
      case 'i':
        return getI32Type();
      case 'l':
        return getI64Type();
      default:
        return LLVM::LLVMVoidType::get(getContext());
      }
    };
    StringRef signature = getSignature(name);
    SmallVector<Type> parameters;
    for (char letter : signature.drop_front())
      parameters.push_back(typeOf(letter));
    InsertionGuard guard(*this);
    setInsertionPointToStart(module.getBody());
    function = LLVM::LLVMFuncOp::create(
        *this, loc, name,
        LLVM::LLVMFunctionType::get(typeOf(signature.front()), parameters));
  }
  auto call = LLVM::CallOp::create(*this, loc, function, arguments);
  return call.getNumResults() ? call.getResult() : Value();
}

//===----------------------------------------------------------------------===//
// Context and parallel calls
//===----------------------------------------------------------------------===//

void stem::addContextArguments(ModuleOp module) {
  Type pointer = LLVM::LLVMPointerType::get(module.getContext());
  for (auto function : module.getOps<func::FuncOp>())
    (void)function.insertArgument(0, pointer, {}, function.getLoc());
  module.walk([&](func::CallOp call) {
    auto function = call->getParentOfType<func::FuncOp>();
    call.getOperandsMutable().assign(llvm::to_vector(
        llvm::concat<Value>(SmallVector<Value>{function.getArgument(0)},
                            SmallVector<Value>(call.getOperands()))));
  });
}

static bool isDense(MemRefType type) {
  return type.hasStaticShape() && type.getLayout().isIdentity();
}

/// Takes the buffers of a function by address.
static void takeBuffersByAddress(func::FuncOp function,
                                 const LLVMTypeConverter &converter) {
  Location loc = function.getLoc();
  Block &block = function.getBody().front();
  HostBuilder builder(loc);
  builder.setInsertionPointToStart(&block);
  for (unsigned i = 0; i < block.getNumArguments(); ++i) {
    auto type = dyn_cast<MemRefType>(block.getArgument(i).getType());
    if (!type)
      continue;
    Value address = block.insertArgument(i + 1, builder.ptr(), loc);
    Value descriptor;
    if (isDense(type))
      descriptor = MemRefDescriptor::fromStaticShape(builder, loc, converter,
                                                     type, address);
    else
      descriptor = LLVM::LoadOp::create(builder, loc,
                                        converter.convertType(type), address);
    block.getArgument(i).replaceAllUsesWith(builder.cast(type, descriptor));
    block.eraseArgument(i);
  }
  function.setFunctionType(
      FunctionType::get(function.getContext(), block.getArgumentTypes(),
                        function.getFunctionType().getResults()));
}

/// The address that stands for a buffer in a call. `slots` holds descriptors
/// that are on the stack already.
static Value addressOf(Value buffer, func::CallOp call,
                       const LLVMTypeConverter &converter,
                       llvm::DenseMap<Value, Value> &slots) {
  auto type = cast<MemRefType>(buffer.getType());
  Type converted = converter.convertType(type);
  HostBuilder builder(call);
  if (isDense(type))
    return MemRefDescriptor(builder.cast(converted, buffer))
        .alignedPtr(builder, call.getLoc());
  Value &slot = slots[buffer];
  if (!slot) {
    Region &function = call->getParentOfType<func::FuncOp>().getBody();
    slot = builder.stackSlot(function, converted);
    builder.setInsertionPointAfterValue(buffer);
    if (buffer.getParentBlock() == slot.getParentBlock() &&
        isa<BlockArgument>(buffer))
      builder.setInsertionPointAfterValue(slot);
    LLVM::StoreOp::create(builder, call.getLoc(),
                          builder.cast(converted, buffer), slot);
  }
  return slot;
}

void stem::passBuffersByAddress(ModuleOp module,
                                const LLVMTypeConverter &converter) {
  SymbolTable symbols(module);
  llvm::SetVector<func::FuncOp> callees;
  llvm::DenseMap<Value, Value> slots;
  module.walk([&](func::CallOp call) {
    callees.insert(symbols.lookup<func::FuncOp>(call.getCallee()));
    for (OpOperand &operand : call->getOpOperands())
      if (isa<MemRefType>(operand.get().getType()))
        operand.set(addressOf(operand.get(), call, converter, slots));
  });
  for (func::FuncOp function : callees)
    takeBuffersByAddress(function, converter);
}

/// The function that the threads call: it unpacks the context and the captures
/// from `captures`, of type `record`, and calls the outlined body.
static LLVM::LLVMFuncOp buildTask(ParallelCallOp op,
                                  LLVM::LLVMStructType record, StringRef name) {
  HostBuilder builder(op.getLoc());
  auto parent = op->getParentOfType<func::FuncOp>();
  builder.setInsertionPointAfter(parent);
  Type i64 = builder.getI64Type();
  auto task = LLVM::LLVMFuncOp::create(
      builder, op.getLoc(), name,
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(op.getContext()),
                                  {builder.ptr(), i64, i64}));
  Block *block = task.addEntryBlock(builder);
  builder.setInsertionPointToStart(block);
  Value fields =
      LLVM::LoadOp::create(builder, op.getLoc(), record, block->getArgument(0));
  SmallVector<Value> arguments;
  auto field = [&](int64_t index) -> Value {
    return LLVM::ExtractValueOp::create(builder, op.getLoc(), fields, index);
  };
  arguments.push_back(field(0));
  for (unsigned i : {1, 2})
    arguments.push_back(
        builder.cast(builder.getIndexType(), block->getArgument(i)));
  for (auto [index, type] : llvm::enumerate(op.getCaptures().getTypes()))
    arguments.push_back(builder.cast(type, field(index + 1)));
  func::CallOp::create(builder, op.getLoc(), op.getCallee(), TypeRange(),
                       arguments);
  LLVM::ReturnOp::create(builder, op.getLoc(), ValueRange());
  return task;
}

LogicalResult stem::lowerParallelCalls(ModuleOp module,
                                       const LLVMTypeConverter &converter) {
  SmallVector<ParallelCallOp> calls;
  module.walk([&](ParallelCallOp op) { calls.push_back(op); });
  SymbolTable symbols(module);
  llvm::StringMap<LLVM::LLVMFuncOp> taskOfBody;
  for (ParallelCallOp op : calls) {
    HostBuilder builder(op);
    auto function = op->getParentOfType<func::FuncOp>();
    SmallVector<Type> types{builder.ptr()};
    SmallVector<Value> values{function.getArgument(0)};
    for (Value capture : op.getCaptures()) {
      Type type = converter.convertType(capture.getType());
      if (!type)
        return op.emitOpError() << "cannot pass a capture of type "
                                << capture.getType() << " to a thread";
      types.push_back(type);
      values.push_back(builder.cast(type, capture));
    }
    auto record = LLVM::LLVMStructType::getLiteral(op.getContext(), types);
    Value fields =
        LLVM::PoisonOp::create(builder, op.getLoc(), record).getResult();
    for (auto [index, value] : llvm::enumerate(values))
      fields = LLVM::InsertValueOp::create(builder, op.getLoc(), fields, value,
                                           index);
    Value slot = builder.stackSlot(function.getBody(), record);
    LLVM::StoreOp::create(builder, op.getLoc(), fields, slot);

    LLVM::LLVMFuncOp &task = taskOfBody[op.getCallee()];
    if (!task) {
      task = buildTask(op, record, (op.getCallee() + "_task").str());
      symbols.insert(task);
    }
    Value address = LLVM::AddressOfOp::create(builder, op.getLoc(), task);
    Value tasks = builder.cast(builder.getI64Type(), op.getTasks());
    builder.call("stem_parallel_for",
                 {function.getArgument(0), tasks, address, slot});
    op.erase();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Kernels and the cache
//===----------------------------------------------------------------------===//

namespace {

/// A matrix or vector operand as a kernel takes it.
struct Rows {
  Value data;
  Value count;
  Value stride;
};

struct RuntimeCall {
  StringRef callee;
  SmallVector<Value> arguments;
};

/// An op that becomes one call, whose result, if any, takes its place.
template <typename SourceOp>
struct ToRuntimeCall : ConvertOpToLLVMPattern<SourceOp> {
  using ConvertOpToLLVMPattern<SourceOp>::ConvertOpToLLVMPattern;
  using OpAdaptor = typename SourceOp::Adaptor;

  LogicalResult
  matchAndRewrite(SourceOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    HostBuilder builder(op);
    builder.setListener(rewriter.getListener());
    RuntimeCall call = describe(op, adaptor, builder);
    if (Value result = builder.call(call.callee, call.arguments))
      rewriter.replaceOp(op, result);
    else
      rewriter.eraseOp(op);
    return success();
  }

  virtual RuntimeCall describe(SourceOp op, OpAdaptor adaptor,
                               HostBuilder &builder) const = 0;

  Rows getRows(HostBuilder &builder, Value operand, Value converted) const {
    Location loc = builder.getLoc();
    MemRefDescriptor descriptor(converted);
    auto type = cast<MemRefType>(operand.getType());
    return {descriptor.bufferPtr(builder, loc, *this->getTypeConverter(), type),
            descriptor.size(builder, loc, 0),
            descriptor.stride(builder, loc, 0)};
  }
};

// Pattern: packed_matmul a, b[k0, n0] into acc -> stem_packed_matmul
struct ConvertPackedMatmul : ToRuntimeCall<PackedMatmulOp> {
  using ToRuntimeCall::ToRuntimeCall;
  RuntimeCall describe(PackedMatmulOp op, OpAdaptor adaptor,
                       HostBuilder &builder) const override {
    Location loc = op.getLoc();
    Rows a = getRows(builder, op.getA(), adaptor.getA());
    Rows acc = getRows(builder, op.getAcc(), adaptor.getAcc());
    Value k = MemRefDescriptor(adaptor.getA()).size(builder, loc, 1);
    Value n = MemRefDescriptor(adaptor.getAcc()).size(builder, loc, 1);
    PackedType b = op.getB().getType();
    // The context is the first argument of every function.
    Value context = op->getParentOfType<FunctionOpInterface>().getArgument(0);
    return {"stem_packed_matmul",
            {context, a.data, a.stride, adaptor.getB(),
             builder.i32(*getRuntimeType(b.getElementType())),
             builder.i64(b.getRows()), builder.i64(b.getColumns()),
             adaptor.getKOffset(), adaptor.getNOffset(), acc.data, acc.stride,
             acc.count, k, n, builder.i32(op.getAccumulate())}};
  }
};

// Pattern: packed_gather ids, b into out -> stem_packed_gather
struct ConvertPackedGather : ToRuntimeCall<PackedGatherOp> {
  using ToRuntimeCall::ToRuntimeCall;
  RuntimeCall describe(PackedGatherOp op, OpAdaptor adaptor,
                       HostBuilder &builder) const override {
    Rows ids = getRows(builder, op.getIds(), adaptor.getIds());
    Rows out = getRows(builder, op.getOut(), adaptor.getOut());
    PackedType b = op.getB().getType();
    return {"stem_packed_gather",
            {adaptor.getB(), builder.i32(*getRuntimeType(b.getElementType())),
             builder.i64(b.getRows()), builder.i64(b.getColumns()), ids.data,
             ids.count, out.data, out.stride}};
  }
};

// Pattern: pack_tokens x into panel -> stem_pack_tokens
struct ConvertPackTokens : ToRuntimeCall<PackTokensOp> {
  using ToRuntimeCall::ToRuntimeCall;
  RuntimeCall describe(PackTokensOp op, OpAdaptor adaptor,
                       HostBuilder &builder) const override {
    Rows x = getRows(builder, op.getX(), adaptor.getX());
    Rows panel = getRows(builder, op.getPanel(), adaptor.getPanel());
    Value columns =
        MemRefDescriptor(adaptor.getX()).size(builder, op.getLoc(), 1);
    Type element = cast<MemRefType>(op.getX().getType()).getElementType();
    return {"stem_pack_tokens",
            {x.data, x.stride, builder.i32(*getRuntimeType(element)), x.count,
             columns, panel.data}};
  }
};

// Pattern: transpose_tokens x into out -> stem_transpose_tokens
struct ConvertTransposeTokens : ToRuntimeCall<TransposeTokensOp> {
  using ToRuntimeCall::ToRuntimeCall;
  RuntimeCall describe(TransposeTokensOp op, OpAdaptor adaptor,
                       HostBuilder &builder) const override {
    Rows x = getRows(builder, op.getX(), adaptor.getX());
    Rows out = getRows(builder, op.getOut(), adaptor.getOut());
    Value columns =
        MemRefDescriptor(adaptor.getX()).size(builder, op.getLoc(), 1);
    Type element = cast<MemRefType>(op.getX().getType()).getElementType();
    return {"stem_transpose_tokens",
            {x.data, x.stride, builder.i32(*getRuntimeType(element)), x.count,
             columns, out.data, out.stride}};
  }
};

// Pattern: panel_matmul a, b into acc -> stem_packed_matmul
struct ConvertPanelMatmul : ToRuntimeCall<PanelMatmulOp> {
  using ToRuntimeCall::ToRuntimeCall;
  RuntimeCall describe(PanelMatmulOp op, OpAdaptor adaptor,
                       HostBuilder &builder) const override {
    Location loc = op.getLoc();
    Rows a = getRows(builder, op.getA(), adaptor.getA());
    Rows b = getRows(builder, op.getB(), adaptor.getB());
    Rows acc = getRows(builder, op.getAcc(), adaptor.getAcc());
    Value k = MemRefDescriptor(adaptor.getA()).size(builder, loc, 1);
    Value n = MemRefDescriptor(adaptor.getAcc()).size(builder, loc, 1);
    Type element = cast<MemRefType>(op.getA().getType()).getElementType();
    Value columns =
        LLVM::MulOp::create(builder, loc, b.count, builder.i64(STEM_PANEL));
    Value accumulate = LLVM::ZExtOp::create(builder, loc, builder.getI32Type(),
                                            adaptor.getAccumulate());
    Value context = op->getParentOfType<FunctionOpInterface>().getArgument(0);
    return {"stem_packed_matmul",
            {context, a.data, a.stride, b.data,
             builder.i32(*getRuntimeType(element)), builder.i64(op.getDepth()),
             columns, builder.i64(0), builder.i64(0), acc.data, acc.stride,
             acc.count, k, n, accumulate}};
  }
};

// Pattern: kv_append k, v at positions of sequences -> stem_kv_append
struct ConvertKVAppend : ToRuntimeCall<KVAppendOp> {
  using ToRuntimeCall::ToRuntimeCall;
  RuntimeCall describe(KVAppendOp op, OpAdaptor adaptor,
                       HostBuilder &builder) const override {
    Rows k = getRows(builder, op.getK(), adaptor.getK());
    Rows v = getRows(builder, op.getV(), adaptor.getV());
    Rows positions =
        getRows(builder, op.getPositions(), adaptor.getPositions());
    Rows sequences =
        getRows(builder, op.getSequences(), adaptor.getSequences());
    return {"stem_kv_append",
            {adaptor.getCache(), adaptor.getLayer(), k.data, k.stride, v.data,
             v.stride, positions.data, sequences.data, k.count}};
  }
};

// Pattern: kv_page cache[layer, sequence, page, head] -> stem_kv_page
struct ConvertKVPage : ToRuntimeCall<KVPageOp> {
  using ToRuntimeCall::ToRuntimeCall;
  RuntimeCall describe(KVPageOp op, OpAdaptor adaptor,
                       HostBuilder &builder) const override {
    return {"stem_kv_page",
            {adaptor.getCache(), adaptor.getLayer(), adaptor.getSequence(),
             adaptor.getPage(), adaptor.getHead(),
             builder.i32(op.getValues())}};
  }
};

} // namespace

void stem::populateStemToHostPatterns(const LLVMTypeConverter &converter,
                                      RewritePatternSet &patterns) {
  patterns.add<ConvertPackedMatmul, ConvertPackedGather, ConvertPackTokens,
               ConvertTransposeTokens, ConvertPanelMatmul, ConvertKVAppend,
               ConvertKVPage>(converter);
}
