//===- LowerToHostDescription.cpp - What a module says of itself ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowerToHost.h"

#include "stem-c/Runtime.h"

using namespace mlir;
using namespace stem;

// The structs below have these members, in this order and without padding
// that C would not have.
static_assert(sizeof(stem_argument) == 120 && sizeof(stem_table_info) == 40 &&
                  sizeof(stem_entry) == 96 && sizeof(stem_module) == 48,
              "a description of include/stem-c/Runtime.h has changed");

namespace {

/// A constant under construction: writes the initializers of globals.
class DescriptionWriter {
public:
  DescriptionWriter(ModuleOp module, ArrayRef<HostEntry> entries, int32_t isa)
      : module(module), entries(entries), isa(isa), builder(module.getLoc()) {
    builder.setInsertionPointToEnd(module.getBody());
  }

  void run();

private:
  Type i32() { return builder.getI32Type(); }
  Type i64() { return builder.getI64Type(); }
  Type structOf(ArrayRef<Type> types) {
    return LLVM::LLVMStructType::getLiteral(builder.getContext(), types);
  }
  Value aggregate(Type type, ArrayRef<Value> fields);
  LLVM::GlobalOp global(StringRef name, Type type,
                        llvm::function_ref<Value()> initializer);
  LLVM::GlobalOp text(StringRef value);
  LLVM::GlobalOp bytes(StringRef name, StringRef value);
  int64_t argumentText(StringRef value);
  Value address(LLVM::GlobalOp global) {
    return LLVM::AddressOfOp::create(builder, builder.getLoc(), global);
  }
  LLVM::GlobalOp arrayOf(StringRef name, Type element, unsigned size,
                         llvm::function_ref<Value(unsigned)> initializer);
  LLVM::GlobalOp describeArguments(const HostEntry &entry);
  LLVM::GlobalOp describeEntries(LLVM::GlobalOp tables, int64_t tableCount);
  LLVM::GlobalOp describeTables(int64_t &count);
  void buildQuery(LLVM::GlobalOp description);

  ModuleOp module;
  ArrayRef<HostEntry> entries;
  int32_t isa;
  HostBuilder builder;
  llvm::StringMap<LLVM::GlobalOp> texts;
  llvm::StringMap<int64_t> argumentTexts;
  std::string argumentTextBytes;
};

Value DescriptionWriter::aggregate(Type type, ArrayRef<Value> fields) {
  Value value = LLVM::UndefOp::create(builder, builder.getLoc(), type);
  for (auto [index, field] : llvm::enumerate(fields))
    value = LLVM::InsertValueOp::create(builder, builder.getLoc(), value, field,
                                        index);
  return value;
}

LLVM::GlobalOp
DescriptionWriter::global(StringRef name, Type type,
                          llvm::function_ref<Value()> initializer) {
  auto global =
      LLVM::GlobalOp::create(builder, builder.getLoc(), type,
                             /*isConstant=*/true, LLVM::Linkage::Internal, name,
                             Attribute(), /*alignment=*/8);
  OpBuilder::InsertionGuard guard(builder);
  builder.createBlock(&global.getInitializerRegion());
  Value value = initializer();
  LLVM::ReturnOp::create(builder, builder.getLoc(), value);
  return global;
}

/// A string with its end, once for each value.
LLVM::GlobalOp DescriptionWriter::text(StringRef value) {
  LLVM::GlobalOp &global = texts[value];
  if (!global)
    global =
        bytes(("stem_text_" + Twine(texts.size())).str(), value.str() + '\0');
  return global;
}

LLVM::GlobalOp DescriptionWriter::bytes(StringRef name, StringRef value) {
  auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), value.size());
  return LLVM::GlobalOp::create(builder, builder.getLoc(), type,
                                /*isConstant=*/true, LLVM::Linkage::Internal,
                                name, builder.getStringAttr(value));
}

LLVM::GlobalOp
DescriptionWriter::arrayOf(StringRef name, Type element, unsigned size,
                           llvm::function_ref<Value(unsigned)> initializer) {
  Type type = LLVM::LLVMArrayType::get(element, size);
  return global(name, type, [&] {
    SmallVector<Value> elements;
    for (unsigned i = 0; i < size; ++i)
      elements.push_back(initializer(i));
    return aggregate(type, elements);
  });
}

/// The offset of a name or key in the texts of the arguments.
int64_t DescriptionWriter::argumentText(StringRef value) {
  auto [position, isNew] =
      argumentTexts.try_emplace(value, argumentTextBytes.size());
  if (isNew)
    argumentTextBytes.append(value.begin(), value.end()).push_back('\0');
  return position->second;
}

/// stem_argument[], as words: a deep model has thousands of arguments, and
/// building them from values field by field takes longer than all else.
LLVM::GlobalOp DescriptionWriter::describeArguments(const HostEntry &entry) {
  std::vector<stem_argument> arguments;
  for (const EntryArgument &argument : entry.arguments) {
    stem_argument &field = arguments.emplace_back();
    field.name = argumentText(argument.name);
    field.key = argumentText(argument.key);
    field.kind = argument.kind;
    field.dtype = argument.dtype;
    field.packed = argument.packed;
    field.rank = argument.sizes.size();
    llvm::copy(argument.sizes, field.sizes);
    llvm::copy(argument.strides, field.strides);
    field.id_bound = argument.idBound;
    field.rows = argument.rows;
    field.ids = argument.ids;
    field.element = argument.element;
  }
  ArrayRef<int64_t> words(reinterpret_cast<const int64_t *>(arguments.data()),
                          arguments.size() * sizeof(stem_argument) / 8);
  return LLVM::GlobalOp::create(
      builder, builder.getLoc(), LLVM::LLVMArrayType::get(i64(), words.size()),
      /*isConstant=*/true, LLVM::Linkage::Internal,
      "stem_arguments_" + entry.name, builder.getI64TensorAttr(words),
      /*alignment=*/8);
}

/// stem_entry[]
LLVM::GlobalOp DescriptionWriter::describeEntries(LLVM::GlobalOp tables,
                                                  int64_t tableCount) {
  Type type = structOf({builder.ptr(), builder.ptr(), builder.ptr(), i64(),
                        builder.ptr(), i64(), i64(), i64(), i64(), i64(),
                        builder.ptr(), i64()});
  SmallVector<LLVM::GlobalOp> names, arguments;
  for (const HostEntry &entry : entries) {
    names.push_back(text(entry.name));
    arguments.push_back(describeArguments(entry));
  }
  LLVM::GlobalOp texts = bytes("stem_argument_texts", argumentTextBytes);
  return arrayOf(kEntryDescriptions, type, entries.size(), [&](unsigned i) {
    const HostEntry &entry = entries[i];
    Value function = LLVM::AddressOfOp::create(builder, builder.getLoc(),
                                               builder.ptr(), entry.name);
    return aggregate(
        type, {address(names[i]), function, address(arguments[i]),
               builder.i64(entry.arguments.size()), address(texts),
               builder.i64(entry.tile), builder.i64(entry.fixedBytes),
               builder.i64(entry.tokenBytes), builder.i64(entry.outputBytes),
               builder.i64(entry.threadBytes), address(tables),
               builder.i64(tableCount)});
  });
}

/// stem_table_info[]
LLVM::GlobalOp DescriptionWriter::describeTables(int64_t &count) {
  SmallVector<TableOp> tables(module.getOps<TableOp>());
  count = tables.size();
  Type type =
      structOf({builder.ptr(), builder.ptr(), i64(), i64(), i32(), i32()});
  SmallVector<std::pair<LLVM::GlobalOp, LLVM::GlobalOp>> names;
  for (TableOp table : tables)
    names.emplace_back(text(table.getSymName()), text(table.getKey()));
  return arrayOf("stem_tables", type, tables.size(), [&](unsigned i) {
    TableType table = tables[i].getTableType();
    return aggregate(
        type,
        {address(names[i].first), address(names[i].second),
         builder.i64(table.getRows()), builder.i64(table.getColumns()),
         builder.i32(*getRuntimeType(table.getElementType())), builder.i32(0)});
  });
}

void DescriptionWriter::buildQuery(LLVM::GlobalOp description) {
  Location loc = builder.getLoc();
  auto query = LLVM::LLVMFuncOp::create(
      builder, loc, STEM_MODULE_QUERY,
      LLVM::LLVMFunctionType::get(builder.ptr(), {i32()}));
  OpBuilder::InsertionGuard guard(builder);
  Block *block = query.addEntryBlock(builder);
  builder.setInsertionPointToStart(block);
  Value known = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq,
                                     block->getArgument(0),
                                     builder.i32(STEM_ABI_VERSION));
  Value null = LLVM::ZeroOp::create(builder, loc, builder.ptr());
  Value result =
      LLVM::SelectOp::create(builder, loc, known, address(description), null);
  LLVM::ReturnOp::create(builder, loc, result);
}

void DescriptionWriter::run() {
  int64_t tableCount;
  LLVM::GlobalOp allTables = describeTables(tableCount);
  LLVM::GlobalOp allEntries = describeEntries(allTables, tableCount);
  Type type = structOf(
      {i64(), i32(), i32(), builder.ptr(), i64(), builder.ptr(), i64()});
  buildQuery(global("stem_description", type, [&] {
    return aggregate(type, {builder.i64(sizeof(stem_module)),
                            builder.i32(STEM_ABI_VERSION), builder.i32(isa),
                            address(allEntries), builder.i64(entries.size()),
                            address(allTables), builder.i64(tableCount)});
  }));
}

} // namespace

void stem::buildDescription(ModuleOp module, ArrayRef<HostEntry> entries,
                            int32_t isa) {
  DescriptionWriter(module, entries, isa).run();
}
