//===- DifferentialPass.cpp - Finds the pass that changes numbers ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Reference/Inputs.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

#include <cmath>
#include <mutex>

namespace stem {
#define GEN_PASS_DEF_STEMDIFFERENTIALPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

using Values = SmallVector<ReferenceValue>;

/// A function that is compared, with what it got and gave at first.
struct Subject {
  std::string name;
  Values inputs;
  Values results;
};

/// Where two results differ most.
struct Difference {
  double size = 0.0;
  std::string place;
};

/// Keeps the first error in place of printing it.
class ErrorCatcher {
public:
  explicit ErrorCatcher(MLIRContext *context)
      : handler(context, [this](Diagnostic &diag) {
          if (message.empty() &&
              diag.getSeverity() == DiagnosticSeverity::Error)
            message = diag.str();
          return success();
        }) {}

  std::string message;

private:
  ScopedDiagnosticHandler handler;
};

/// Runs the subjects after each pass and compares.
class Comparison {
public:
  Comparison(InterpreterOptions limits, InputOptions inputOptions,
             double tolerance)
      : limits(limits), inputOptions(inputOptions), tolerance(tolerance) {}

  /// Runs a function before the first pass.
  LogicalResult addSubject(ModuleOp module, func::FuncOp function);
  void compare(ModuleOp module, StringRef pass);
  /// Says what was compared; fails if a pass changed numbers.
  LogicalResult report(ModuleOp module);
  bool isEmpty() const { return subjects.empty(); }

private:
  FailureOr<Values> run(ModuleOp module, func::FuncOp function,
                        const Values *given, Values *inputs);
  void compareSubject(ModuleOp module, StringRef pass, const Subject &subject);
  void skip(ModuleOp module, StringRef pass, StringRef function,
            const Twine &why);

  InterpreterOptions limits;
  InputOptions inputOptions;
  double tolerance;
  std::vector<Subject> subjects;
  unsigned compared = 0, skipped = 0;
  double largest = 0.0;
  std::string culprit;
};

} // namespace

FailureOr<Values> Comparison::run(ModuleOp module, func::FuncOp function,
                                  const Values *given, Values *inputs) {
  Interpreter interpreter(module, limits);
  interpreter.getCache().seedPast(limits.seed, inputOptions.past);
  auto arguments = makeInputs(function, interpreter, inputOptions, given);
  if (failed(arguments))
    return failure();
  if (inputs)
    for (auto [i, argument] : llvm::enumerate(*arguments))
      if (isGivenArgument(function, i))
        inputs->push_back(argument);
  return interpreter.run(function, *arguments);
}

LogicalResult Comparison::addSubject(ModuleOp module, func::FuncOp function) {
  if (function.getNumResults() == 0)
    return success();
  Subject subject{function.getName().str(), {}, {}};
  auto results = run(module, function, nullptr, &subject.inputs);
  if (failed(results))
    return failure();
  subject.results = std::move(*results);
  subjects.push_back(std::move(subject));
  return success();
}

/// NaN equals NaN alone.
static double differ(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(a) && std::isnan(b) ? 0.0 : INFINITY;
  if (a == b)
    return 0.0;
  return std::fabs(a - b) / std::fmax(1.0, std::fabs(a));
}

static std::string describe(size_t result, std::optional<size_t> element,
                            double before, double after) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "result " << result;
  if (element)
    os << ", element " << *element;
  os << llvm::format(": %.9g before, %.9g after", before, after);
  return text;
}

/// The largest difference; infinite where the shapes differ.
static Difference findDifference(const Values &before, const Values &after) {
  Difference worst;
  auto consider = [&](size_t result, std::optional<size_t> element, double a,
                      double b) {
    double size = differ(a, b);
    if (size > worst.size)
      worst = {size, describe(result, element, a, b)};
  };
  for (size_t i = 0; i < before.size(); ++i) {
    const ReferenceTensor *a = before[i].tensor.get();
    const ReferenceTensor *b = after[i].tensor.get();
    if (!a != !b || (a && a->size() != b->size()))
      return {INFINITY, "result " + std::to_string(i) + " has another size"};
    if (!a)
      consider(i, std::nullopt, before[i].number, after[i].number);
    else
      for (int64_t j = 0; j < a->size(); ++j)
        consider(i, j, a->values[j], b->values[j]);
  }
  return worst;
}

void Comparison::skip(ModuleOp module, StringRef pass, StringRef function,
                      const Twine &why) {
  ++skipped;
  emitRemark(module.getLoc())
      << "not compared after '" << pass << "': @" << function << ": " << why;
}

void Comparison::compareSubject(ModuleOp module, StringRef pass,
                                const Subject &subject) {
  auto function = module.lookupSymbol<func::FuncOp>(subject.name);
  if (!function)
    return skip(module, pass, subject.name, "the function is gone");
  if (function.getNumResults() != subject.results.size())
    return skip(module, pass, subject.name,
                "the function does not return what it did");
  FailureOr<Values> results = failure();
  std::string error;
  {
    ErrorCatcher catcher(module.getContext());
    results = run(module, function, &subject.inputs, nullptr);
    error = catcher.message;
  }
  if (failed(results))
    return skip(module, pass, subject.name, error);
  ++compared;
  Difference difference = findDifference(subject.results, *results);
  largest = std::fmax(largest, difference.size);
  if (difference.size <= tolerance)
    return;
  culprit = pass.str();
  emitError(module.getLoc()) << "'" << pass << "' changes the numbers of @"
                             << subject.name << ": " << difference.place;
}

void Comparison::compare(ModuleOp module, StringRef pass) {
  for (const Subject &subject : subjects)
    if (culprit.empty())
      compareSubject(module, pass, subject);
}

LogicalResult Comparison::report(ModuleOp module) {
  if (!culprit.empty())
    return failure();
  std::string text;
  llvm::raw_string_ostream os(text);
  os << compared << " comparisons agree, largest difference "
     << llvm::format("%.2g", largest);
  if (skipped)
    os << "; " << skipped << " were beyond the interpreter";
  if (compared == 0)
    return emitError(module.getLoc()) << "nothing was compared: " << text;
  emitRemark(module.getLoc()) << text;
  return success();
}

namespace {

/// Compares after each pass on the module itself. Passes on functions run
/// inside an adaptor, in any order and on any thread: it counts as one pass,
/// under the names of those in it.
struct CompareAfterPass : PassInstrumentation {
  explicit CompareAfterPass(Comparison &comparison) : comparison(comparison) {}

  void runAfterPass(Pass *pass, Operation *op) override {
    StringRef name =
        pass->getArgument().empty() ? pass->getName() : pass->getArgument();
    auto module = dyn_cast<ModuleOp>(op);
    if (!module || module->getParentOp()) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!llvm::is_contained(nested, name))
        nested.push_back(name.str());
      return;
    }
    std::string joined = llvm::join(nested, ",");
    comparison.compare(module, joined.empty() ? name : StringRef(joined));
    nested.clear();
  }

  Comparison &comparison;
  std::mutex mutex;
  std::vector<std::string> nested;
};

struct DifferentialPass
    : public stem::impl::StemDifferentialPassBase<DifferentialPass> {
  using StemDifferentialPassBase::StemDifferentialPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    if (!(tolerance >= 0.0))
      return emitError(UnknownLoc::get(context))
             << "stem-tolerance is " << tolerance.getValue()
             << "; wanted a number of at least 0";
    return checkOptions(context, inputOptions(), maxSteps);
  }

  InputOptions inputOptions() const {
    return {seed, tokens, sequences, past, idBound};
  }

  LogicalResult parse(OpPassManager &passes, raw_ostream &errors) const {
    StringRef text = StringRef(pipeline).trim();
    if (text.consume_front("builtin.module(") && !text.consume_back(")")) {
      errors << "missing ')'";
      return failure();
    }
    return parsePassPipeline(text, passes, errors);
  }

  // What the inner passes make has to be loaded before the outer ones run.
  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager passes(ModuleOp::getOperationName());
    if (succeeded(parse(passes, llvm::nulls())))
      passes.getDependentDialects(registry);
  }

  LogicalResult addSubjects(ModuleOp module, Comparison &comparison) {
    if (!function.empty()) {
      auto target = module.lookupSymbol<func::FuncOp>(function);
      if (!target)
        return emitError(module.getLoc())
               << "there is no function '" << function << "'";
      return comparison.addSubject(module, target);
    }
    for (auto target : module.getOps<func::FuncOp>())
      if (target.isPublic() && !target.isExternal() &&
          failed(comparison.addSubject(module, target)))
        return failure();
    return success();
  }

  LogicalResult runComparison(ModuleOp module) {
    PassManager passes(module->getName());
    std::string errors;
    llvm::raw_string_ostream os(errors);
    if (failed(parse(passes, os)) || passes.empty())
      return emitError(module.getLoc())
             << "stem-pipeline is not a pipeline of passes: "
             << (errors.empty() ? "it is empty" : errors);
    InterpreterOptions limits;
    limits.seed = seed;
    limits.maxSteps = maxSteps;
    Comparison comparison(limits, inputOptions(), tolerance);
    if (failed(addSubjects(module, comparison)))
      return failure();
    if (comparison.isEmpty())
      return emitError(module.getLoc(),
                       "no public function returns anything to compare");
    passes.addInstrumentation(std::make_unique<CompareAfterPass>(comparison));
    LogicalResult ran = passes.run(module);
    LogicalResult agreed = comparison.report(module);
    return success(succeeded(ran) && succeeded(agreed));
  }

  void runOnOperation() override {
    markAllAnalysesPreserved();
    OwningOpRef<ModuleOp> copy = getOperation().clone();
    if (failed(runComparison(*copy)))
      signalPassFailure();
  }
};

} // namespace
