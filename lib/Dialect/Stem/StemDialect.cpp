//===- StemDialect.cpp - The stem dialect ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace stem;

#include "stem/Dialect/Stem/StemDialect.cpp.inc"
#include "stem/Dialect/Stem/StemInterfaces.cpp.inc"

namespace {

struct BytecodeVersion : DialectVersion {
  explicit BytecodeVersion(int64_t value) : value(value) {}
  int64_t value;
};

/// Writes the dialect's version into bytecode and refuses a newer one.
struct StemBytecodeInterface : BytecodeDialectInterface {
  explicit StemBytecodeInterface(Dialect *dialect)
      : BytecodeDialectInterface(dialect) {}

  void writeVersion(DialectBytecodeWriter &writer) const override {
    writer.writeVarInt(StemDialect::kBytecodeVersion);
  }

  std::unique_ptr<DialectVersion>
  readVersion(DialectBytecodeReader &reader) const override {
    uint64_t version;
    if (failed(reader.readVarInt(version)))
      return nullptr;
    if (version > StemDialect::kBytecodeVersion) {
      reader.emitError() << "bytecode holds version " << version
                         << " of the stem dialect, but this build reads up to "
                         << StemDialect::kBytecodeVersion
                         << "; use a newer build of Stem";
      return nullptr;
    }
    return std::make_unique<BytecodeVersion>(version);
  }
};

} // namespace

LogicalResult ParamLoadOp::readProperties(DialectBytecodeReader &reader,
                                          OperationState &state) {
  auto &properties = state.getOrAddProperties<Properties>();
  if (failed(reader.readAttribute(properties.param)))
    return failure();
  auto version = reader.getDialectVersion<StemDialect>();
  if (failed(version))
    return failure();
  if (static_cast<const BytecodeVersion *>(*version)->value < 2)
    return success();
  return reader.readOptionalAttribute(properties.transposed);
}

void ParamLoadOp::writeProperties(DialectBytecodeWriter &writer) {
  writer.writeAttribute(getProperties().param);
  writer.writeOptionalAttribute(getProperties().transposed);
}

void StemDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "stem/Dialect/Stem/StemOps.cpp.inc"
      >();
  registerTypes();
  addInterfaces<StemBytecodeInterface>();
}

//===----------------------------------------------------------------------===//
// Attributes on ops and arguments of other dialects
//===----------------------------------------------------------------------===//

namespace {

enum class Place { Function, Param, Table, Argument, Result };

struct AttributeRule {
  StringRef name;
  Place place;
  const char *wanted;
  bool (*holds)(Attribute);
};

template <typename Kind> bool isKind(Attribute attribute) {
  return isa<Kind>(attribute);
}
template <int64_t smallest> bool isI64(Attribute attribute) {
  auto integer = dyn_cast<IntegerAttr>(attribute);
  return integer && integer.getType().isSignlessInteger(64) &&
         integer.getInt() >= smallest;
}
bool isRole(Attribute attribute) {
  auto role = dyn_cast<StringAttr>(attribute);
  return role &&
         llvm::is_contained({"ids", "positions", "sequences"}, role.getValue());
}

constexpr char kUnit[] = "a unit attribute";
constexpr char kString[] = "a string";
constexpr char kSymbol[] = "a symbol";
constexpr char kBound[] = "a positive i64";
constexpr char kBytes[] = "an i64 that is not negative";

const AttributeRule kRules[] = {
    {StemDialect::kEntryAttr, Place::Function, kUnit, isKind<UnitAttr>},
    {StemDialect::kTileAttr, Place::Function,
     "a positive i64, the tokens of one tile", isI64<1>},
    {StemDialect::kFixedBytesAttr, Place::Function, kBytes, isI64<0>},
    {StemDialect::kTokenBytesAttr, Place::Function, kBytes, isI64<0>},
    {StemDialect::kOutputBytesAttr, Place::Function, kBytes, isI64<0>},
    {StemDialect::kThreadBytesAttr, Place::Function, kBytes, isI64<0>},
    {StemDialect::kFromAttr, Place::Table, kString, isKind<StringAttr>},
    {StemDialect::kInitAttr, Place::Table, kString, isKind<StringAttr>},
    {StemDialect::kFrozenAttr, Place::Param, kUnit, isKind<UnitAttr>},
    {StemDialect::kFrozenAttr, Place::Table, kUnit, isKind<UnitAttr>},
    {StemDialect::kGradientOfAttr, Place::Result, kSymbol,
     isKind<FlatSymbolRefAttr>},
    {StemDialect::kGradientIdsOfAttr, Place::Result, kSymbol,
     isKind<FlatSymbolRefAttr>},
    {StemDialect::kGradientOfArgumentAttr, Place::Result, kBytes, isI64<0>},
    {StemDialect::kNameAttr, Place::Argument, kString, isKind<StringAttr>},
    {StemDialect::kRowsAttr, Place::Argument, kString, isKind<StringAttr>},
    {StemDialect::kOutputAttr, Place::Argument, kUnit, isKind<UnitAttr>},
    {StemDialect::kParamAttr, Place::Argument, kSymbol,
     isKind<FlatSymbolRefAttr>},
    {StemDialect::kTableAttr, Place::Argument, kSymbol,
     isKind<FlatSymbolRefAttr>},
    {StemDialect::kIdBoundAttr, Place::Argument, kBound, isI64<1>},
    {StemDialect::kLabelBoundAttr, Place::Argument, kBound, isI64<1>},
    {StemDialect::kRowIndexAttr, Place::Argument, kUnit, isKind<UnitAttr>},
    {StemDialect::kOutputIndexAttr, Place::Argument, kUnit, isKind<UnitAttr>},
    {StemDialect::kTransposedAttr, Place::Argument, kUnit, isKind<UnitAttr>},
    {StemDialect::kGradientOfAttr, Place::Argument, kSymbol,
     isKind<FlatSymbolRefAttr>},
    {StemDialect::kStateOfAttr, Place::Argument, kSymbol,
     isKind<FlatSymbolRefAttr>},
    {StemDialect::kRoleAttr, Place::Argument,
     "\"ids\", \"positions\" or \"sequences\"", isRole},
    {StemDialect::kScratchAttr, Place::Argument, kUnit, isKind<UnitAttr>},
    {StemDialect::kArenaAttr, Place::Argument, kUnit, isKind<UnitAttr>},
    {StemDialect::kScratchCacheAttr, Place::Argument, kUnit, isKind<UnitAttr>},
};

LogicalResult verifyAttribute(Operation *op, std::optional<Place> place,
                              NamedAttribute attribute) {
  StringRef name = attribute.getName().getValue();
  const AttributeRule *rule =
      llvm::find_if(kRules, [&](const AttributeRule &rule) {
        return rule.name == name && rule.place == place;
      });
  // A1
  if (rule == std::end(kRules))
    return op->emitOpError() << "attribute '" << name << "' means nothing "
                             << (place == Place::Argument ? "on an argument"
                                 : place == Place::Result ? "on a result"
                                                          : "on this op")
                             << " to the stem dialect";
  // A2
  if (!rule->holds(attribute.getValue()))
    return op->emitOpError()
           << "attribute '" << name << "' must be " << rule->wanted << ", got "
           << attribute.getValue();
  return success();
}

} // namespace

LogicalResult StemDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  std::optional<Place> place;
  if (isa<FunctionOpInterface>(op))
    place = Place::Function;
  else if (isa<ParamOp>(op))
    place = Place::Param;
  else if (isa<TableOp>(op))
    place = Place::Table;
  return verifyAttribute(op, place, attribute);
}

LogicalResult StemDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned,
                                                    NamedAttribute attribute) {
  return verifyAttribute(op, Place::Argument, attribute);
}

LogicalResult
StemDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned,
                                         NamedAttribute attribute) {
  return verifyAttribute(op, Place::Result, attribute);
}
