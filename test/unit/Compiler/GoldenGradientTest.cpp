//===- GoldenGradientTest.cpp - Gradients of whole models -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// stem-autodiff of a model's loss, and the step that stem-training-pipeline
// makes of it, run by the interpreter in double precision, against gradients
// that PyTorch computed (test/data/golden/README.md).
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Graph/ModelGraph.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Model/Safetensors.h"
#include "stem/Reference/Interpreter.h"
#include "stem/Transforms/Passes.h"
#include "stem/Transforms/Pipelines.h"

#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

#include <cstring>

using namespace mlir;
using namespace stem;

namespace {

template <typename T>
ReferenceTensor readAs(const SafetensorsFile &file, const std::string &name) {
  const TensorView &entry = file.get(name);
  std::vector<T> values(entry.data.size() / sizeof(T));
  std::memcpy(values.data(), entry.data.data(), entry.data.size());
  ReferenceTensor tensor;
  for (uint64_t size : entry.shape)
    tensor.shape.push_back(static_cast<int64_t>(size));
  tensor.values.assign(values.begin(), values.end());
  return tensor;
}

ReferenceTensor flat(ReferenceTensor tensor) {
  tensor.shape = {tensor.size()};
  return tensor;
}

double largest(ArrayRef<double> values) {
  double most = 0;
  for (double value : values)
    most = std::max(most, std::abs(value));
  return most;
}

/// The rows of a table's gradient in their places among zeros.
ReferenceTensor spread(const ReferenceTensor &ids, const ReferenceTensor &rows,
                       int64_t count) {
  ReferenceTensor dense{{count, rows.shape[1]}, {}};
  dense.values.resize(count * rows.shape[1]);
  for (int64_t i = 0; i < ids.size(); ++i)
    for (int64_t j = 0; j < rows.shape[1]; ++j)
      dense.at(static_cast<int64_t>(ids.values[i]), j) = rows.at(i, j);
  return dense;
}

class GoldenGradientTest : public testing::TestWithParam<const char *> {
protected:
  GoldenGradientTest()
      : folder(std::filesystem::path(STEM_TEST_DATA) / "golden" / GetParam()),
        checkpoint(Checkpoint::open(folder)),
        golden(SafetensorsFile::open(folder / "golden.safetensors")) {}

  void SetUp() override {
    GraphOptions options;
    options.entries = GraphEntries::Training;
    module = buildModelGraph(context, checkpoint.config(), checkpoint.weights(),
                             checkpoint.tensors(), options);
  }

  /// Derives the loss and reads the weights.
  void derive(function_ref<void(PassManager &)> addPasses) {
    PassManager passes(&context);
    addPasses(passes);
    ASSERT_TRUE(succeeded(passes.run(*module)));
    function = module->lookupSymbol<func::FuncOp>("loss_vjp");
    ASSERT_TRUE(function);
    interpreter = std::make_unique<Interpreter>(*module);
    const auto weights = SafetensorsFile::open(folder / "model.safetensors");
    for (const TensorView &tensor : weights.tensors())
      interpreter->setParameter(tensor.name,
                                readAs<float>(weights, tensor.name));
  }

  /// ids, positions, sequences and labels of the batch as flat tokens, the
  /// place of the losses, and the cotangent of a mean over the labels.
  SmallVector<ReferenceValue> arguments() {
    ReferenceTensor ids = readAs<int64_t>(golden, "input_ids");
    ReferenceTensor labels = readAs<int64_t>(golden, "labels");
    const int64_t columns = ids.shape[1];
    ReferenceTensor positions = ids, sequences = ids, mean = ids;
    double counted = 0;
    for (double label : labels.values)
      counted += label != -100;
    for (int64_t i = 0; i < ids.size(); ++i) {
      positions.values[i] = static_cast<double>(i % columns);
      sequences.values[i] = static_cast<double>(i / columns);
      mean.values[i] = 1 / counted;
    }
    return {flat(ids),    flat(positions), flat(sequences),
            flat(labels), flat(mean),      flat(mean)};
  }

  void expectLoss(const ReferenceTensor &losses, const ReferenceTensor &mean);
  void expectGradients(ArrayRef<ReferenceValue> results,
                       const ReferenceTensor *rowIds);

  std::filesystem::path folder;
  Checkpoint checkpoint;
  SafetensorsFile golden;
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp function;
  std::unique_ptr<Interpreter> interpreter;
};

void GoldenGradientTest::expectLoss(const ReferenceTensor &losses,
                                    const ReferenceTensor &mean) {
  double loss = 0;
  for (int64_t i = 0; i < losses.size(); ++i)
    loss += losses.values[i] * mean.values[i];
  double wanted = 0;
  std::memcpy(&wanted, golden.get("loss").data.data(), sizeof(double));
  EXPECT_NEAR(loss, wanted, 2e-6);
}

/// A table's rows stand behind their ids, or are those of `rowIds`.
void GoldenGradientTest::expectGradients(ArrayRef<ReferenceValue> results,
                                         const ReferenceTensor *rowIds) {
  std::set<std::string> seen;
  for (unsigned i = 0; i < results.size(); ++i) {
    auto symbol = function.getResultAttrOfType<FlatSymbolRefAttr>(
        i, StemDialect::kGradientOfAttr);
    if (!symbol)
      continue;
    const std::string name = "grad." + symbol.getValue().str();
    SCOPED_TRACE(name);
    seen.insert(name);
    const ReferenceTensor wanted = readAs<float>(golden, name);
    ReferenceTensor gradient = *results[i].tensor;
    if (function.getResultAttr(i - 1, StemDialect::kGradientIdsOfAttr))
      gradient = spread(*results[i - 1].tensor, gradient, wanted.shape[0]);
    else if (isa_and_present<TableOp>(module->lookupSymbol(symbol)))
      gradient = spread(*rowIds, gradient, wanted.shape[0]);
    ASSERT_EQ(gradient.shape, wanted.shape);
    const double scale = largest(wanted.values);
    for (int64_t j = 0; j < wanted.size(); ++j)
      ASSERT_NEAR(gradient.values[j], wanted.values[j], 1e-5 * scale) << j;
  }
  for (const TensorView &tensor : golden.tensors())
    if (tensor.name.starts_with("grad.")) {
      EXPECT_TRUE(seen.contains(tensor.name)) << tensor.name;
    }
}

TEST_P(GoldenGradientTest, LossAndEveryGradient) {
  derive([](PassManager &passes) { passes.addPass(createStemAutodiffPass()); });
  const SmallVector<ReferenceValue> inputs = arguments();
  auto results = interpreter->run(function, inputs);
  ASSERT_TRUE(succeeded(results));
  expectLoss(*results->front().tensor, *inputs.back().tensor);
  expectGradients(*results, /*rowIds=*/nullptr);
}

/// In pieces, with rows that the caller numbers and weights in both directions.
TEST_P(GoldenGradientTest, TheTrainingPipelineChangesNothing) {
  derive([](PassManager &passes) {
    buildTrainingPipeline(passes, TrainingPipelineOptions());
  });
  SmallVector<ReferenceValue> inputs = arguments();
  const ReferenceTensor mean = *inputs.back().tensor;
  ReferenceTensor rowIds = *inputs.front().tensor;
  const std::vector<double> ids = rowIds.values;
  std::sort(rowIds.values.begin(), rowIds.values.end());
  rowIds.values.erase(std::unique(rowIds.values.begin(), rowIds.values.end()),
                      rowIds.values.end());
  rowIds.shape = {static_cast<int64_t>(rowIds.values.size())};
  const bool hasTables = !module->getOps<TableOp>().empty();
  ASSERT_EQ(function.getNumArguments(), inputs.size() + hasTables);
  if (hasTables) {
    ReferenceTensor index{{static_cast<int64_t>(ids.size())}, {}};
    for (double id : ids)
      index.values.push_back(static_cast<double>(
          std::lower_bound(rowIds.values.begin(), rowIds.values.end(), id) -
          rowIds.values.begin()));
    inputs.push_back(index);
  }
  auto results = interpreter->run(function, inputs);
  ASSERT_TRUE(succeeded(results));
  expectLoss(*results->front().tensor, mean);
  expectGradients(*results, &rowIds);
  function.walk([](Operation *op) {
    EXPECT_FALSE(
        (isa<LinearInputVjpOp, TableGradientOp, CrossEntropyVjpOp>(op)))
        << op->getName().getStringRef().str();
  });
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenGradientTest,
    testing::Values("llama3_rope_tied_headdim", "llama_gqa", "mistral_sliding",
                    "qwen2_qkv_bias", "qwen3_qk_norm", "stem_llama"),
    [](const auto &info) { return std::string(info.param); });

} // namespace
