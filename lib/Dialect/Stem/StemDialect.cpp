//===- StemDialect.cpp - The stem dialect ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Bytecode/BytecodeImplementation.h"

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

void StemDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "stem/Dialect/Stem/StemOps.cpp.inc"
      >();
  registerTypes();
  addInterfaces<StemBytecodeInterface>();
}
