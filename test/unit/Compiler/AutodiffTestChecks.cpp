//===- AutodiffTestChecks.cpp - Gradients against differences -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AutodiffTest.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <cmath>

using namespace stem;

namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;

ReferenceTensor makeVector(std::vector<double> values) {
  return {{static_cast<int64_t>(values.size())}, std::move(values)};
}

/// Values in [-1, 1) that depend on the name.
ReferenceTensor makeRandom(ArrayRef<int64_t> shape, StringRef name) {
  ReferenceTensor result{Shape(shape), {}};
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  SeededStream stream(/*seed=*/7, name);
  for (int64_t i = 0; i < count; ++i)
    result.values.push_back(
        std::ldexp(static_cast<double>(stream.bits(i)), -63) - 1.0);
  return result;
}

} // namespace

void AutodiffTest::load(const std::string &text) {
  module = parseSourceString<ModuleOp>(text, &context);
  ASSERT_TRUE(module);
  PassManager manager(&context);
  StemAutodiffPassOptions options;
  options.function = "f";
  manager.addPass(createStemAutodiffPass(options));
  ASSERT_TRUE(succeeded(manager.run(*module)));
  function = module->lookupSymbol<func::FuncOp>("f");
  vjp = module->lookupSymbol<func::FuncOp>("f_vjp");
  ASSERT_TRUE(vjp);
  interpreter = std::make_unique<Interpreter>(*module);
  for (auto param : module->getOps<ParamOp>())
    if (isa<FloatType>(param.getTensorType().getElementType()))
      setState(param.getKey(), param.getTensorType());
  for (auto table : module->getOps<TableOp>())
    setState(table.getKey(), table.getTableType());
}

void AutodiffTest::setState(StringRef key, Type type) {
  state[key.str()] = makeRandom(*getTensorShape(type), key);
  interpreter->setParameter(key, state[key.str()]);
}

void AutodiffTest::check(const std::string &text, int64_t tokens,
                         ArrayRef<std::vector<double>> ids) {
  ASSERT_NO_FATAL_FAILURE(load(text));
  makeArguments(tokens, ids);
  ASSERT_NO_FATAL_FAILURE(runBackward());
  compareArguments();
  compareState();
  compareStep();
}

void AutodiffTest::makeArguments(int64_t tokens,
                                 ArrayRef<std::vector<double>> ids) {
  arguments.clear();
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (tensor && tensor.getElementType().isInteger(32)) {
      arguments.push_back(makeVector(ids.front()));
      ids = ids.drop_front();
      continue;
    }
    if (type.isIntOrIndexOrFloat()) {
      arguments.push_back(ReferenceValue(0.75));
      continue;
    }
    Shape shape = *getTensorShape(type);
    for (int64_t &size : shape)
      size = ShapedType::isDynamic(size) ? tokens : size;
    arguments.push_back(makeRandom(shape, "argument " + std::to_string(i)));
  }
}

/// Runs both functions, compares the results and sorts the gradients.
void AutodiffTest::runBackward() {
  auto results = interpreter->run(function, arguments);
  ASSERT_TRUE(succeeded(results));
  ASSERT_EQ(vjp.getNumArguments(), arguments.size() + results->size())
      << "a test's results all have a cotangent";
  cotangents.clear();
  for (auto [i, result] : llvm::enumerate(*results)) {
    std::string name = "cotangent " + std::to_string(i);
    cotangents.push_back(
        result.tensor ? ReferenceValue(makeRandom(result.tensor->shape, name))
                      : ReferenceValue(0.625));
  }
  SmallVector<ReferenceValue> operands(arguments);
  llvm::append_range(operands, cotangents);
  auto derived = interpreter->run(vjp, operands);
  ASSERT_TRUE(succeeded(derived));
  for (auto [i, result] : llvm::enumerate(*results)) {
    const ReferenceValue &again = (*derived)[i];
    EXPECT_EQ(again.number, result.number);
    if (result.tensor)
      EXPECT_EQ(again.tensor->values, result.tensor->values);
  }
  for (unsigned i = results->size(); i < derived->size(); ++i) {
    const ReferenceTensor &gradient = *(*derived)[i].tensor;
    if (auto argument = vjp.getResultAttrOfType<IntegerAttr>(
            i, StemDialect::kGradientOfArgumentAttr))
      ofArgument[argument.getInt()] = gradient;
    else if (auto symbol = vjp.getResultAttrOfType<FlatSymbolRefAttr>(
                 i, StemDialect::kGradientOfAttr))
      ofSymbol[symbol.getValue().str()] = gradient;
    else if (auto symbol = vjp.getResultAttrOfType<FlatSymbolRefAttr>(
                 i, StemDialect::kGradientIdsOfAttr))
      idsOf[symbol.getValue().str()] = gradient;
    else
      FAIL() << "result " << i << " does not say whose gradient it is";
  }
}

/// @f_vjp in pieces, after each pass: the same up to the order of sums.
void AutodiffTest::compareStep() {
  SmallVector<ReferenceValue> operands(arguments);
  llvm::append_range(operands, cotangents);
  auto wanted = interpreter->run(vjp, operands);
  ASSERT_TRUE(succeeded(wanted));
  OwningOpRef<ModuleOp> step = module->clone();
  for (bool transposes : {false, true}) {
    SCOPED_TRACE(transposes ? "stem-transpose-weights"
                            : "stem-decompose-gradients");
    PassManager manager(&context);
    if (transposes)
      manager.addPass(createStemTransposeWeightsPass());
    else
      manager.addNestedPass<func::FuncOp>(createStemDecomposeGradientsPass());
    ASSERT_TRUE(succeeded(manager.run(*step)));
    Interpreter other(*step);
    for (const auto &[key, value] : state)
      other.setParameter(key, value);
    auto seen = other.run(step->lookupSymbol<func::FuncOp>("f_vjp"), operands);
    ASSERT_TRUE(succeeded(seen));
    ASSERT_EQ(seen->size(), wanted->size());
    for (auto [i, pair] : llvm::enumerate(llvm::zip_equal(*seen, *wanted))) {
      const auto &[result, before] = pair;
      EXPECT_NEAR(result.number, before.number, 1e-12);
      if (!before.tensor)
        continue;
      ASSERT_EQ(result.tensor->shape, before.tensor->shape) << "result " << i;
      for (int64_t j = 0; j < before.tensor->size(); ++j)
        ASSERT_NEAR(result.tensor->values[j], before.tensor->values[j],
                    1e-12 * std::max(1.0, std::fabs(before.tensor->values[j])))
            << "result " << i << ", element " << j;
    }
  }
}

/// sum(cotangent * result) of @f.
double AutodiffTest::objective() {
  auto results = interpreter->run(function, arguments);
  EXPECT_TRUE(succeeded(results));
  double sum = 0.0;
  for (auto [result, cotangent] : llvm::zip_equal(*results, cotangents)) {
    if (!result.tensor) {
      sum += result.number * cotangent.number;
      continue;
    }
    for (auto [a, b] :
         llvm::zip_equal(result.tensor->values, cotangent.tensor->values))
      sum += a * b;
  }
  return sum;
}

/// Central differences of the objective; `set` puts a value in its place.
ReferenceTensor
AutodiffTest::differences(const ReferenceTensor &at,
                          function_ref<void(ReferenceTensor)> set) {
  ReferenceTensor result = at;
  for (int64_t i = 0; i < at.size(); ++i) {
    auto moved = [&](double step) {
      ReferenceTensor value = at;
      value.values[i] += step;
      set(std::move(value));
      return objective();
    };
    result.values[i] = (moved(kStep) - moved(-kStep)) / (2.0 * kStep);
  }
  set(at);
  return result;
}

/// `gradient` is null where there is none.
void AutodiffTest::compare(const std::string &what,
                           const ReferenceTensor *gradient,
                           const ReferenceTensor &wanted, bool frozen) {
  SCOPED_TRACE(what);
  double largest = 0.0;
  for (double value : wanted.values)
    largest = std::max(largest, std::fabs(value));
  if (!gradient) {
    EXPECT_TRUE(largest == 0.0 || frozen) << "the gradient is missing";
    return;
  }
  EXPECT_FALSE(frozen) << "it is frozen";
  EXPECT_GT(largest, 1e-3) << "a test of zeros says nothing";
  ASSERT_EQ(gradient->shape, wanted.shape);
  for (int64_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(gradient->values[i], wanted.values[i],
                kTolerance * std::max(1.0, std::fabs(wanted.values[i])))
        << "element " << i;
}

/// Pairs of a row's number and a row as a matrix of `count` rows.
ReferenceTensor AutodiffTest::scatter(const ReferenceTensor &ids,
                                      const ReferenceTensor &rows,
                                      int64_t count) {
  int64_t columns = rows.shape[1];
  ReferenceTensor matrix{{count, columns},
                         std::vector<double>(count * columns)};
  for (int64_t i = 0; i < ids.size(); ++i)
    for (int64_t j = 0; j < columns; ++j)
      matrix.at(static_cast<int64_t>(ids.values[i]), j) += rows.at(i, j);
  return matrix;
}

void AutodiffTest::compareArguments() {
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    bool isPacked = isa<PackedType>(type);
    if (!isPacked && (!tensor || !isa<FloatType>(tensor.getElementType())))
      continue;
    const ReferenceTensor at = *arguments[i].tensor;
    ReferenceTensor wanted = differences(at, [&, i = i](ReferenceTensor value) {
      arguments[i] = ReferenceValue(std::move(value));
    });
    // The gradient of a packed weight is not packed.
    if (isPacked)
      wanted = transposed(wanted);
    auto found = ofArgument.find(i);
    const ReferenceTensor *gradient =
        found == ofArgument.end() ? nullptr : &found->second;
    ReferenceTensor matrix;
    if (gradient && gradient->shape[1] == at.shape[1] + 1 && !isPacked) {
      // The pairs of a row gradient.
      ReferenceTensor numbers = makeVector({}), rows = makeVector({});
      for (int64_t t = 0; t < gradient->shape[0]; ++t) {
        numbers.values.push_back(gradient->at(t, 0));
        for (int64_t j = 0; j < at.shape[1]; ++j)
          rows.values.push_back(gradient->at(t, 1 + j));
      }
      rows.shape = {gradient->shape[0], at.shape[1]};
      matrix = scatter(numbers, rows, at.shape[0]);
      gradient = &matrix;
    }
    compare("argument " + std::to_string(i), gradient, wanted,
            /*frozen=*/false);
  }
}

void AutodiffTest::compareState() {
  auto differencesOf = [&](const std::string &key) {
    return differences(state[key], [&](ReferenceTensor value) {
      interpreter->setParameter(key, std::move(value));
    });
  };
  auto find = [&](StringRef symbol) -> const ReferenceTensor * {
    auto found = ofSymbol.find(symbol.str());
    return found == ofSymbol.end() ? nullptr : &found->second;
  };
  for (auto param : module->getOps<ParamOp>())
    if (state.count(param.getKey().str()))
      compare("param " + param.getSymName().str(), find(param.getSymName()),
              differencesOf(param.getKey().str()),
              param->hasAttr(StemDialect::kFrozenAttr));
  for (auto table : module->getOps<TableOp>()) {
    const ReferenceTensor *rows = find(table.getSymName());
    ReferenceTensor matrix;
    if (rows) {
      const ReferenceTensor &ids = idsOf[table.getSymName().str()];
      ASSERT_EQ(ids.size(), rows->shape[0]);
      for (int64_t i = 1; i < ids.size(); ++i)
        EXPECT_LT(ids.values[i - 1], ids.values[i]) << "ids must rise";
      matrix = scatter(ids, *rows, table.getTableType().getRows());
      rows = &matrix;
    }
    compare("table " + table.getSymName().str(), rows,
            differencesOf(table.getKey().str()),
            table->hasAttr(StemDialect::kFrozenAttr));
  }
}
