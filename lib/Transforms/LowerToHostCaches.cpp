//===- LowerToHostCaches.cpp - What an entry takes its cache to be --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cache has no shape in its type, but the code has one for it: rows of
// heads * head_dim elements are appended, pages of head_dim are read. The
// runtime compares it with the cache that it is given.
//
//===----------------------------------------------------------------------===//

#include "LowerToHost.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace stem;

namespace {

/// Follows a cache from an entry through calls.
class CacheUses {
public:
  explicit CacheUses(func::FuncOp entry) : entry(entry) {}

  LogicalResult follow(BlockArgument cache);
  void describe(EntryArgument &argument) const;

private:
  LogicalResult follow(OpOperand &use);
  void followInto(OpOperand &use, StringRef callee, unsigned shift);
  LogicalResult readAppend(KVAppendOp op);
  LogicalResult readPage(KVPageOp op);
  template <typename T>
  LogicalResult agree(Operation *op, std::optional<T> &known, T seen,
                      StringRef what);
  int64_t countLayers() const;

  struct Call {
    Operation *op;
    /// Operand i is the callee's argument i + shift.
    unsigned shift;
  };

  func::FuncOp entry;
  SmallVector<Value> open;
  llvm::DenseSet<Value> followed;
  /// By the entry block of the callee.
  llvm::DenseMap<Block *, SmallVector<Call>> calls;
  SmallVector<Value> layerNumbers;
  std::optional<int64_t> rowElements, headDim;
  std::optional<Type> element;
};

template <typename T>
LogicalResult CacheUses::agree(Operation *op, std::optional<T> &known, T seen,
                               StringRef what) {
  if (known && *known != seen)
    return op->emitOpError()
           << "takes the cache of entry '" << entry.getSymName() << "' to have "
           << what << " " << seen << ", but another op takes it to have "
           << *known;
  known = seen;
  return success();
}

LogicalResult CacheUses::readAppend(KVAppendOp op) {
  layerNumbers.push_back(op.getLayer());
  auto rows = cast<ShapedType>(op.getK().getType());
  if (failed(agree(op, element, rows.getElementType(), "elements of type")))
    return failure();
  int64_t columns = rows.getDimSize(1);
  if (ShapedType::isDynamic(columns))
    return success();
  return agree(op, rowElements, columns, "rows of size");
}

LogicalResult CacheUses::readPage(KVPageOp op) {
  layerNumbers.push_back(op.getLayer());
  PackedType page = op.getResult().getType();
  if (failed(agree(op, element, page.getElementType(), "elements of type")))
    return failure();
  return agree(op, headDim, op.getValues() ? page.getColumns() : page.getRows(),
               "heads of size");
}

void CacheUses::followInto(OpOperand &use, StringRef callee, unsigned shift) {
  Operation *op = use.getOwner();
  auto function =
      op->getParentOfType<ModuleOp>().lookupSymbol<func::FuncOp>(callee);
  calls[&function.getBody().front()].push_back({op, shift});
  Value argument = function.getArgument(use.getOperandNumber() + shift);
  if (followed.insert(argument).second)
    open.push_back(argument);
}

LogicalResult CacheUses::follow(OpOperand &use) {
  Operation *op = use.getOwner();
  if (auto append = dyn_cast<KVAppendOp>(op))
    return readAppend(append);
  if (auto page = dyn_cast<KVPageOp>(op))
    return readPage(page);
  if (auto call = dyn_cast<func::CallOp>(op))
    followInto(use, call.getCallee(), 0);
  // Operand 0 is the number of tasks, arguments 0 and 1 the task and thread.
  else if (auto call = dyn_cast<ParallelCallOp>(op))
    followInto(use, call.getCallee(), 1);
  else
    return op->emitOpError("takes a cache: only calls and the ops of the "
                           "cache do, so that its shape is known");
  return success();
}

LogicalResult CacheUses::follow(BlockArgument cache) {
  followed.insert(cache);
  open.push_back(cache);
  while (!open.empty())
    for (OpOperand &use : open.pop_back_val().getUses())
      if (failed(follow(use)))
        return failure();
  return success();
}

/// One more than the largest layer number that is a constant, in the op or in
/// a call around it.
int64_t CacheUses::countLayers() const {
  int64_t layers = 0;
  SmallVector<Value> numbers = layerNumbers;
  llvm::DenseSet<Value> seen;
  while (!numbers.empty()) {
    Value number = numbers.pop_back_val();
    if (!seen.insert(number).second)
      continue;
    if (std::optional<int64_t> constant = getConstantIntValue(number)) {
      layers = std::max(layers, std::min<int64_t>(*constant, INT32_MAX) + 1);
      continue;
    }
    auto argument = dyn_cast<BlockArgument>(number);
    if (!argument)
      continue;
    for (auto [op, shift] : calls.lookup(argument.getOwner()))
      // Neither the task nor the thread is a layer.
      if (argument.getArgNumber() >= 2 * shift)
        numbers.push_back(op->getOperand(argument.getArgNumber() - shift));
  }
  return layers;
}

void CacheUses::describe(EntryArgument &argument) const {
  argument.sizes = {countLayers(), rowElements.value_or(-1),
                    headDim.value_or(-1)};
  argument.strides.assign(argument.sizes.size(), 0);
  // The ops of the cache take f32 and bf16 alone.
  argument.element = element ? *getRuntimeType(*element) : -1;
}

} // namespace

LogicalResult stem::describeCache(func::FuncOp entry, BlockArgument cache,
                                  EntryArgument &argument) {
  CacheUses uses(entry);
  if (failed(uses.follow(cache)))
    return failure();
  uses.describe(argument);
  return success();
}
