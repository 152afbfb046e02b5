//===- StemTypes.cpp - Types of the stem dialect ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stem;

#define GET_TYPEDEF_CLASSES
#include "stem/Dialect/Stem/StemTypes.cpp.inc"

void StemDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "stem/Dialect/Stem/StemTypes.cpp.inc"
      >();
}

/// Parses `<A x B x type>`.
template <typename T> static Type parseSized(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<int64_t> sizes;
  Type element;
  if (parser.parseLess() ||
      parser.parseDimensionList(sizes, /*allowDynamic=*/false) ||
      parser.parseType(element) || parser.parseGreater())
    return {};
  if (sizes.size() != 2) {
    parser.emitError(loc, "expected two sizes and an element type, got ")
        << sizes.size() << " sizes";
    return {};
  }
  return parser.getChecked<T>(loc, parser.getContext(), sizes[0], sizes[1],
                              element);
}

template <typename T> static void printSized(T type, AsmPrinter &printer) {
  printer << '<' << type.getRows() << 'x' << type.getColumns() << 'x'
          << type.getElementType() << '>';
}

static LogicalResult verifySizes(function_ref<InFlightDiagnostic()> emitError,
                                 StringRef what, int64_t rows,
                                 int64_t columns) {
  if (rows > 0 && columns > 0)
    return success();
  return emitError() << "sizes of a " << what << " must be positive, got "
                     << rows << " x " << columns;
}

Type TableType::parse(AsmParser &parser) {
  return parseSized<TableType>(parser);
}
void TableType::print(AsmPrinter &printer) const { printSized(*this, printer); }

LogicalResult TableType::verify(function_ref<InFlightDiagnostic()> emitError,
                                int64_t rows, int64_t columns, Type element) {
  // C1
  if (failed(verifySizes(emitError, "table", rows, columns)))
    return failure();
  // C2
  if (!element.isF32() && !element.isBF16() && !element.isF16())
    return emitError() << "element type of a table must be f32, bf16 or f16, "
                          "got "
                       << element;
  return success();
}

Type PackedType::parse(AsmParser &parser) {
  return parseSized<PackedType>(parser);
}
void PackedType::print(AsmPrinter &printer) const {
  printSized(*this, printer);
}

LogicalResult PackedType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t rows, int64_t columns, Type element) {
  // C1
  if (failed(verifySizes(emitError, "packed matrix", rows, columns)))
    return failure();
  // C2
  if (!element.isF32() && !element.isBF16())
    return emitError() << "element type of a packed matrix must be f32 or "
                          "bf16, got "
                       << element;
  return success();
}

/// Parses `<A x type>`.
template <typename T> static Type parseColumns(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<int64_t> sizes;
  Type element;
  if (parser.parseLess() ||
      parser.parseDimensionList(sizes, /*allowDynamic=*/false) ||
      parser.parseType(element) || parser.parseGreater())
    return {};
  if (sizes.size() != 1) {
    parser.emitError(loc, "expected one size and an element type, got ")
        << sizes.size() << " sizes";
    return {};
  }
  return parser.getChecked<T>(loc, parser.getContext(), sizes[0], element);
}

template <typename T> static void printColumns(T type, AsmPrinter &printer) {
  printer << '<' << type.getColumns() << 'x' << type.getElementType() << '>';
}

Type RowGradientType::parse(AsmParser &parser) {
  return parseColumns<RowGradientType>(parser);
}
void RowGradientType::print(AsmPrinter &printer) const {
  printColumns(*this, printer);
}

LogicalResult
RowGradientType::verify(function_ref<InFlightDiagnostic()> emitError,
                        int64_t columns, Type element) {
  // C1
  if (columns <= 0)
    return emitError() << "columns of a row gradient must be positive, got "
                       << columns;
  // C2
  if (!element.isF32() && !element.isF64())
    return emitError() << "element type of a row gradient must be f32 or f64, "
                          "got "
                       << element;
  return success();
}

Type TicketType::parse(AsmParser &parser) {
  return parseColumns<TicketType>(parser);
}
void TicketType::print(AsmPrinter &printer) const {
  printColumns(*this, printer);
}

LogicalResult TicketType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t columns, Type element) {
  // C1
  if (columns <= 0)
    return emitError() << "columns of a ticket must be positive, got "
                       << columns;
  // C2
  if (!element.isF32() && !element.isBF16() && !element.isF16())
    return emitError() << "element type of a ticket must be f32, bf16 or f16, "
                          "got "
                       << element;
  return success();
}
