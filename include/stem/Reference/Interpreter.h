//===- Interpreter.h - Runs IR in double precision --------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference for every pass: executes functions on tensors one op at a
// time, written to be read. All floating-point values are doubles and are
// never rounded to the type that the IR gives them, so two programs that
// differ in storage types alone give the same numbers. Integers wrap to their
// width and are exact up to 2^53.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_REFERENCE_INTERPRETER_H
#define STEM_REFERENCE_INTERPRETER_H

#include "stem/Reference/ReferenceValue.h"
#include "stem/Transforms/Defaults.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace stem {

struct InterpreterOptions {
  /// Seeds the parameters that were not given a value.
  uint64_t seed = 0;
  /// Executed ops and multiply-adds before the interpreter gives up.
  int64_t maxSteps = kDefaultMaxSteps;
  /// Elements of the largest tensor it makes.
  int64_t maxElements = int64_t{1} << 27;
};

/// The shape of the tensor that holds a value of this type, or nothing for a
/// number. The pairs of a row gradient are rows, the row's number first.
std::optional<llvm::SmallVector<int64_t>> getTensorShape(mlir::Type type);

class Interpreter {
public:
  Interpreter(mlir::ModuleOp module, InterpreterOptions options = {})
      : module(module), options(options) {}

  /// Gives the parameter or table with this checkpoint key a value.
  void setParameter(llvm::StringRef key, ReferenceTensor value) {
    parameters[key.str()] = std::move(value);
  }
  /// The value with this checkpoint key: given, or seeded by the key. `type` is
  /// a parameter's or a table's; integers rise, as selected ids must.
  ReferenceTensor getParameter(llvm::StringRef key, mlir::Type type) const;

  ReferenceCache &getCache() { return cache; }

  /// Runs `function`. Reports what goes wrong as an error on the op where it
  /// does.
  mlir::FailureOr<llvm::SmallVector<ReferenceValue>>
  run(mlir::func::FuncOp function, llvm::ArrayRef<ReferenceValue> arguments);

private:
  mlir::ModuleOp module;
  InterpreterOptions options;
  std::map<std::string, ReferenceTensor> parameters;
  ReferenceCache cache;
};

} // namespace stem

#endif // STEM_REFERENCE_INTERPRETER_H
