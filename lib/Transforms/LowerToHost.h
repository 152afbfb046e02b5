//===- LowerToHost.h - Parts of the lowering to the host --------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The lowering first makes calls and entries explicit on `func` and `memref`,
// with casts to the types of the LLVM dialect, then converts everything.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_LOWERTOHOST_H
#define STEM_LIB_TRANSFORMS_LOWERTOHOST_H

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <vector>

namespace stem {

/// Writes LLVM dialect ops at one location.
class HostBuilder : public mlir::OpBuilder {
public:
  HostBuilder(mlir::Operation *before)
      : OpBuilder(before), loc(before->getLoc()) {}
  HostBuilder(mlir::Location loc) : OpBuilder(loc.getContext()), loc(loc) {}

  mlir::Location getLoc() const { return loc; }
  mlir::Type ptr() { return mlir::LLVM::LLVMPointerType::get(getContext()); }
  mlir::Value i32(int64_t value);
  mlir::Value i64(int64_t value);
  /// The value at a byte offset from a pointer.
  mlir::Value load(mlir::Type type, mlir::Value base, int64_t offset);
  mlir::Value address(mlir::Value base, int64_t offset);
  /// A value of one type seen as its counterpart in the other type system.
  mlir::Value cast(mlir::Type type, mlir::Value value);
  /// A stack slot in the entry block of `function`, whatever loop surrounds
  /// the use.
  mlir::Value stackSlot(mlir::Region &function, mlir::Type type);
  /// The buffer that a stem_tensor at address `tensor` describes.
  mlir::Value buffer(const mlir::LLVMTypeConverter &converter,
                     mlir::MemRefType type, mlir::Value tensor);
  /// Calls a function of the runtime, which is declared when first used.
  mlir::Value call(llvm::StringRef name, mlir::ValueRange arguments);

private:
  mlir::Location loc;
};

/// Whether `name` is a runtime function that compiled code calls.
bool isRuntimeFunction(llvm::StringRef name);

/// The stem_dtype of an element type; none for one that has no place there.
std::optional<int32_t> getRuntimeType(mlir::Type type);

/// One argument of an entry, as the module describes it.
struct EntryArgument {
  std::string name;
  std::string key;
  int32_t kind = 0;
  int32_t dtype = 0;
  int32_t packed = 0;
  llvm::SmallVector<int64_t> sizes;
  llvm::SmallVector<int64_t> strides;
  int32_t rows = 0;
  /// stem_argument_ids.
  int32_t ids = 0;
  int64_t idBound = 0;
  /// Of a cache.
  int32_t element = 0;
  /// Of the function; null for the store.
  mlir::Type type;
};

/// A function with `stem.entry`.
struct HostEntry {
  std::string name;
  mlir::func::FuncOp body;
  llvm::SmallVector<EntryArgument> arguments;
  int64_t tile = 1;
  int64_t fixedBytes = 0;
  int64_t tokenBytes = 0;
  int64_t outputBytes = 0;
  int64_t threadBytes = 0;
  bool takesMemory = false;
  bool takesStore = false;
  /// The table of each argument of table type, by argument number.
  llvm::DenseMap<unsigned, int64_t> tables;
};

/// Reads the entries' argument attributes, and reports what is missing.
mlir::FailureOr<std::vector<HostEntry>> collectEntries(mlir::ModuleOp module);

/// Says what the code behind an entry takes `cache`, one of its arguments, to
/// be; an error where its parts disagree.
mlir::LogicalResult describeCache(mlir::func::FuncOp entry,
                                  mlir::BlockArgument cache,
                                  EntryArgument &argument);

/// Gives every function the context as its first argument.
void addContextArguments(mlir::ModuleOp module);

/// Passes buffers to the functions that func.call names by address: of a static
/// one the data, of any other one its descriptor. As descriptors in parts they
/// would be dozens of operands in every call of a layer.
void passBuffersByAddress(mlir::ModuleOp module,
                          const mlir::LLVMTypeConverter &converter);

/// stem.parallel_call -> stem_parallel_for of a function that unpacks the
/// captures.
mlir::LogicalResult
lowerParallelCalls(mlir::ModuleOp module,
                   const mlir::LLVMTypeConverter &converter);

/// Makes the body of an entry return a status: calls the table store, and gives
/// back what the body holds on every way out. For what verifyTables accepts.
mlir::LogicalResult lowerTables(HostEntry &entry,
                                const mlir::LLVMTypeConverter &converter);

/// The global with the stem_entry of each entry.
inline constexpr llvm::StringLiteral kEntryDescriptions = "stem_entries";

/// Adds the exported form of an entry: checks, then a call of the body.
/// `number` is its place in the description of the module.
void buildEntry(HostEntry &entry, unsigned number,
                const mlir::LLVMTypeConverter &converter);

/// Adds the description of the module and stem_module_query.
void buildDescription(mlir::ModuleOp module, llvm::ArrayRef<HostEntry> entries,
                      int32_t isa);

/// Patterns of the ops that become one call each.
void populateStemToHostPatterns(const mlir::LLVMTypeConverter &converter,
                                mlir::RewritePatternSet &patterns);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_LOWERTOHOST_H
