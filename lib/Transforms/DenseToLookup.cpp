//===- DenseToLookup.cpp - Tables in place of up-projections --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Support/Error.h"
#include "stem/Support/LayerSelection.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMDENSETOLOOKUPPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// A function of one decoder layer, and where its arguments lie.
struct LayerFunction {
  func::FuncOp function;
  unsigned layer; // its number
  bool isDense;   // else STEM already
  /// The up-projection, if it is an argument that the FFN alone reads.
  std::optional<unsigned> up;
  std::optional<unsigned> upBias;
};

/// One call of a layer function in an entry.
struct LayerCall {
  func::CallOp call;
  uint64_t number;
};

/// The number of an argument that has one reader.
std::optional<unsigned> ownArgument(func::FuncOp function, Value value) {
  auto argument = dyn_cast_or_null<BlockArgument>(value);
  if (!argument || argument.getOwner()->getParentOp() != function ||
      !argument.hasOneUse())
    return std::nullopt;
  return argument.getArgNumber();
}

std::optional<unsigned> argumentIndex(Value value) {
  auto argument = dyn_cast_or_null<BlockArgument>(value);
  if (!argument)
    return std::nullopt;
  return argument.getArgNumber();
}

/// "….mlp.up_proj.weight" -> "….mlp.up_table.weight".
std::string tableKey(StringRef upKey) {
  StringRef suffix = "up_proj.weight";
  if (upKey.ends_with(suffix))
    return (upKey.drop_back(suffix.size()) + "up_table.weight").str();
  return (upKey + ".table").str();
}

struct DenseToLookupPass
    : public stem::impl::StemDenseToLookupPassBase<DenseToLookupPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!llvm::is_contained({"calibrated", "embedding", "row-mean", "xavier"},
                            StringRef(init))) {
      module.emitError()
          << "stem-init is '" << init
          << "'; wanted calibrated, embedding, row-mean or xavier";
      return signalPassFailure();
    }
    SymbolTable table(module);
    symbols = &table;
    findLayerFunctions(module);
    for (auto entry : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (entry->hasAttr(StemDialect::kEntryAttr) &&
          failed(convertEntry(entry)))
        return signalPassFailure();
    removeUnused(module);
  }

  void findLayerFunctions(ModuleOp module) {
    for (auto function : module.getOps<func::FuncOp>()) {
      SmallVector<DenseFFNOp> dense;
      SmallVector<Value> numbers;
      function.walk([&](Operation *op) {
        if (auto ffn = dyn_cast<DenseFFNOp>(op))
          dense.push_back(ffn);
        if (auto attention = dyn_cast<AttentionOp>(op))
          numbers.push_back(attention.getLayer());
      });
      if (numbers.size() != 1 || dense.size() > 1 ||
          function->hasAttr(StemDialect::kEntryAttr))
        continue;
      std::optional<unsigned> number = argumentIndex(numbers.front());
      if (!number)
        continue;
      LayerFunction layer = {function, *number, !dense.empty(), std::nullopt,
                             std::nullopt};
      if (layer.isDense) {
        layer.up = ownArgument(function, dense.front().getUp());
        layer.upBias = ownArgument(function, dense.front().getUpBias());
      }
      layerFunctions[function] = layer;
    }
  }

  LogicalResult convertEntry(func::FuncOp entry) {
    SmallVector<LayerCall> calls;
    WalkResult walk = entry.walk([&](func::CallOp call) {
      auto it = layerFunctions.find(symbols->lookup(call.getCallee()));
      if (it == layerFunctions.end())
        return WalkResult::advance();
      APInt number;
      if (!matchPattern(call.getOperand(it->second.layer),
                        m_ConstantInt(&number))) {
        call.emitOpError("has no constant layer number, so that its layer "
                         "cannot be chosen");
        return WalkResult::interrupt();
      }
      calls.push_back({call, number.getZExtValue()});
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return failure();
    std::vector<uint64_t> chosen;
    try {
      chosen = parseLayerSelection(layers, calls.size());
    } catch (const Error &error) {
      return entry.emitOpError() << error.what();
    }
    for (LayerCall &call : calls)
      if (llvm::is_contained(chosen, call.number) &&
          failed(convert(entry, call)))
        return failure();
    return success();
  }

  LogicalResult convert(func::FuncOp entry, LayerCall &layerCall) {
    func::CallOp call = layerCall.call;
    // The call may have been retargeted when its function was first met.
    LayerFunction &layer =
        layerFunctions.find(symbols->lookup(call.getCallee()))->second;
    if (!layer.isDense)
      return success();
    if (!layer.up)
      return call.emitOpError()
             << "layer " << layerCall.number
             << ": its up-projection is not an argument of '"
             << call.getCallee() << "' that the FFN alone reads";
    auto up = call.getOperand(*layer.up).getDefiningOp<ParamLoadOp>();
    if (!up)
      return call.emitOpError() << "layer " << layerCall.number
                                << ": its up-projection is not a parameter";
    auto weight = dyn_cast<RankedTensorType>(up.getType());
    if (!weight)
      return call.emitOpError()
             << "layer " << layerCall.number
             << ": its up-projection is packed already; stem-dense-to-lookup "
                "runs before stem-pack-weights";
    BlockArgument ids;
    int64_t rows = 0;
    for (BlockArgument argument : entry.getArguments())
      if (auto bound = entry.getArgAttrOfType<IntegerAttr>(
              argument.getArgNumber(), StemDialect::kIdBoundAttr)) {
        ids = argument;
        rows = bound.getInt();
      }
    if (!ids)
      return entry.emitOpError()
             << "has no argument with the attribute '"
             << StemDialect::kIdBoundAttr << "', whose ids could choose rows";
    TableOp table =
        tableFor(up, TableType::get(&getContext(), rows, weight.getDimSize(0),
                                    weight.getElementType()));
    replaceCall(call, layer, table, ids);
    return success();
  }

  TableOp tableFor(ParamLoadOp up, TableType type) {
    auto param = symbols->lookup<ParamOp>(up.getParam());
    std::string key = tableKey(param.getKey());
    if (auto known = symbols->lookup<TableOp>(key))
      return known;
    OpBuilder builder(param);
    auto table = TableOp::create(builder, param.getLoc(), key, key, type);
    table->setAttr(StemDialect::kInitAttr, builder.getStringAttr(init));
    table->setAttr(StemDialect::kFromAttr, param.getKeyAttr());
    symbols->insert(table, Block::iterator(param));
    return table;
  }

  void replaceCall(func::CallOp call, const LayerFunction &layer, TableOp table,
                   Value ids) {
    OpBuilder builder(call);
    Location loc = call.getLoc();
    TableType type = table.getTableType();
    Value handle = TableLoadOp::create(builder, loc, type, table.getSymName());
    auto rowsType = RankedTensorType::get(
        {ShapedType::kDynamic, type.getColumns()}, type.getElementType());
    auto rows =
        TableRowsOp::create(builder, loc, rowsType, ids.getType(), handle, ids);
    SmallVector<Value> operands;
    for (auto [index, operand] : llvm::enumerate(call.getOperands()))
      if (index != *layer.up && index != layer.upBias)
        operands.push_back(operand);
    operands.append({rows.getRows(), rows.getIndex()});
    func::FuncOp variant = variantOf(layer, rowsType);
    auto replacement = func::CallOp::create(builder, loc, variant, operands);
    call.replaceAllUsesWith(replacement);
    call.erase();
  }

  /// The layer's function with rows and index in place of the up-projection.
  func::FuncOp variantOf(const LayerFunction &layer, RankedTensorType rows) {
    func::FuncOp &variant = variants[{layer.function, Type(rows)}];
    if (variant)
      return variant;
    func::FuncOp original = layer.function;
    variant = original.clone();
    variant.setName((original.getName() + "_stem").str());
    symbols->insert(variant, std::next(Block::iterator(original)));
    OpBuilder builder(variant.getBody());
    unsigned count = variant.getNumArguments();
    auto ids =
        RankedTensorType::get({ShapedType::kDynamic}, builder.getI32Type());
    // Neither can fail: the function has a body and plain arguments.
    (void)variant.insertArgument(count, rows, {}, original.getLoc());
    (void)variant.insertArgument(count + 1, ids, {}, original.getLoc());
    DenseFFNOp ffn;
    variant.walk([&](DenseFFNOp op) { ffn = op; });
    builder.setInsertionPoint(ffn);
    auto lookupType = RankedTensorType::get(
        {ffn.getX().getType().getDimSize(0), rows.getDimSize(1)},
        rows.getElementType());
    Value up = LookupOp::create(builder, ffn.getLoc(), lookupType,
                                variant.getArgument(count),
                                variant.getArgument(count + 1));
    auto gated = GatedFFNOp::create(
        builder, ffn.getLoc(), ffn.getType(), ffn.getX(), ffn.getGate(), up,
        ffn.getDown(), ffn.getGateBias(), ffn.getDownBias());
    ffn.replaceAllUsesWith(gated.getResult());
    ffn.erase();
    llvm::BitVector unused(variant.getNumArguments());
    unused.set(*layer.up);
    if (layer.upBias)
      unused.set(*layer.upBias);
    (void)variant.eraseArguments(unused);
    return variant;
  }

  void removeUnused(ModuleOp module) {
    module.walk([](ParamLoadOp load) {
      if (load->use_empty())
        load.erase();
    });
    for (auto &[function, layer] : layerFunctions)
      if (layer.function.isPrivate() &&
          SymbolTable::symbolKnownUseEmpty(layer.function, module))
        symbols->erase(layer.function);
    for (auto param : llvm::make_early_inc_range(module.getOps<ParamOp>()))
      if (SymbolTable::symbolKnownUseEmpty(param, module))
        symbols->erase(param);
  }

  SymbolTable *symbols = nullptr;
  llvm::MapVector<Operation *, LayerFunction> layerFunctions;
  llvm::MapVector<std::pair<Operation *, Type>, func::FuncOp> variants;
};

} // namespace
