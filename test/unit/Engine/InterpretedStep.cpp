//===- InterpretedStep.cpp - A training step by the interpreter -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference: the ops' own definitions in double precision, one after the
// other. For small models.
//
//===----------------------------------------------------------------------===//

#include "InterpretedStep.h"

#include "TrainingTeacher.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Graph/ModelGraph.h"
#include "stem/Reference/Interpreter.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Support/Error.h"
#include "stem/Transforms/Passes.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Pass/PassManager.h"

#include <cstring>

using namespace stem;

namespace {

constexpr double kBytesOfValue = sizeof(double);

ReferenceTensor vectorOf(std::span<const int32_t> values) {
  ReferenceTensor tensor{{static_cast<int64_t>(values.size())}, {}};
  tensor.values.assign(values.begin(), values.end());
  return tensor;
}

ReferenceTensor filled(int64_t count, double value) {
  ReferenceTensor tensor{{count}, {}};
  tensor.values.assign(static_cast<size_t>(count), value);
  return tensor;
}

std::vector<int64_t> shapeOf(const TensorInfo &tensor) {
  return {tensor.shape.begin(), tensor.shape.end()};
}

int64_t bytesOf(DType type, int64_t elements) {
  return static_cast<int64_t>(
      dtypeBytes(type, static_cast<uint64_t>(elements)).value());
}

double sumOf(const ReferenceValue &losses) {
  double sum = 0;
  for (const double loss : losses.tensor->values)
    sum += loss;
  return sum;
}

class InterpretedStep : public TrainingStep {
public:
  InterpretedStep(const Checkpoint &checkpoint,
                  const TrainingStepOptions &options);

  const std::vector<Parameter> &parameters() const override {
    return parameterList;
  }
  const std::vector<Table> &tables() const override { return tableList; }
  const EngineReport &report() const override { return engineReport; }
  StepMemory memory(const BatchBound &bound) const override;
  int64_t tokenTile() const override { return 1; }
  stem_context *context() const override { return runtime.get(); }
  void load() override;
  void setParameter(size_t parameter, std::span<const float> values) override;
  RowTable table(size_t table) override;
  double run(const Batch &batch, float scale) override;
  double evaluate(const Batch &batch) override;
  double teacherWeight() const override { return teacher ? weight : 0; }
  double divergence() const override { return divergenceSum; }
  std::span<const float> gradient(size_t parameter) const override {
    return gradients[parameter];
  }
  Rows tableGradient(size_t table) const override {
    return {rowIds[table], rowGradients[table]};
  }

private:
  using Values = llvm::SmallVector<ReferenceValue>;

  void buildModule(const TrainingStepOptions &options);
  void buildTeacher();
  void listTrained(const std::set<std::string> &keys,
                   const TrainingStepOptions &options);
  ReferenceTensor read(const Checkpoint &from, const std::string &name) const;
  ReferenceTensor readRounded(const Checkpoint &from,
                              const std::string &name) const;
  double rounded(float value) const;
  void passTables();
  ReferenceValue teacherStates(const Batch &batch);
  Values call(const char *function, const Batch &batch, double scale);
  void keepGradients(const Values &results);
  template <typename T>
  const std::vector<T> &listed(const std::vector<T> &values) const;

  const Checkpoint &checkpoint;
  ContextPtr runtime;
  EngineReport engineReport;
  mlir::MLIRContext mlirContext;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<Interpreter> interpreter;
  const Checkpoint *teacher;
  double weight;
  mlir::OwningOpRef<mlir::ModuleOp> teacherModule;
  std::unique_ptr<Interpreter> teacherInterpreter;
  double divergenceSum = 0;
  int64_t tokens;
  std::vector<Parameter> parameterList;
  std::vector<Table> tableList;
  std::vector<Arena> liveRows;
  std::vector<std::vector<float>> gradients, rowGradients;
  std::vector<std::vector<int32_t>> rowIds;
};

InterpretedStep::InterpretedStep(const Checkpoint &checkpoint,
                                 const TrainingStepOptions &options)
    : checkpoint(checkpoint),
      runtime(createContext(options.engine.threads, options.engine.maxIsa)),
      mlirContext(mlir::MLIRContext::Threading::DISABLED),
      teacher(options.teacher), weight(options.teacherWeight),
      tokens(options.tokens) {
  const stem_isa isa = stem_context_isa(runtime.get());
  const ComputeType type =
      chooseComputeType(checkpoint.config(), options.engine.dtype, isa);
  engineReport.dtype = type.dtype;
  engineReport.dtypeNote = type.note;
  engineReport.threads = stem_context_threads(runtime.get());
  engineReport.isa = isaName(isa);
  buildModule(options);
  if (teacher)
    buildTeacher();
}

void InterpretedStep::buildTeacher() {
  GraphOptions graph;
  graph.entries = GraphEntries::Hidden;
  graph.compute = engineReport.dtype;
  teacherModule =
      buildModelGraph(mlirContext, teacher->config(), teacher->weights(),
                      teacher->tensors(), graph);
}

void InterpretedStep::buildModule(const TrainingStepOptions &options) {
  GraphOptions graph;
  graph.entries = GraphEntries::Training;
  graph.compute = engineReport.dtype;
  if (teacher)
    graph.teacher = TrainingTeacher::graph(*teacher);
  module = buildModelGraph(mlirContext, checkpoint.config(),
                           checkpoint.weights(), checkpoint.tensors(), graph);
  const std::set<std::string> keys = trainedKeys(checkpoint, options.train);
  for (mlir::Operation &op : *module->getBody()) {
    const auto symbol = op.getAttrOfType<mlir::StringAttr>(
        mlir::SymbolTable::getSymbolAttrName());
    if (mlir::isa<ParamOp, TableOp>(op) && !keys.count(symbol.str()))
      op.setAttr(StemDialect::kFrozenAttr, mlir::UnitAttr::get(&mlirContext));
  }
  mlir::PassManager passes(&mlirContext);
  passes.addPass(createStemAutodiffPass());
  if (mlir::failed(passes.run(*module)))
    fail("{}: the gradients of the model cannot be made",
         checkpoint.path().string());
  listTrained(keys, options);
}

void InterpretedStep::listTrained(const std::set<std::string> &keys,
                                  const TrainingStepOptions &options) {
  std::set<std::string> tableKeys;
  for (const LayerWeights &layer : checkpoint.weights().layers)
    tableKeys.insert(layer.upTable);
  for (const std::string &name : checkpoint.weights().names()) {
    if (!keys.count(name))
      continue;
    const TensorInfo &tensor = checkpoint.tensors().get(name);
    const std::vector<int64_t> shape = shapeOf(tensor);
    if (tableKeys.count(name))
      tableList.push_back({name, shape.at(0), shape.at(1),
                           liveRowType(tensor, options.rowType)});
    else
      parameterList.push_back({name, shape});
  }
}

StepMemory InterpretedStep::memory(const BatchBound &) const {
  StepMemory memory;
  double weights = 0;
  for (const std::string &name : checkpoint.weights().names())
    weights += kBytesOfValue *
               static_cast<double>(checkpoint.tensors().get(name).elements());
  memory.weights = static_cast<int64_t>(weights);
  for (const Table &table : tableList) {
    memory.tables += bytesOf(table.dtype, table.rows * table.columns);
    memory.gradients += tokens * table.columns * int64_t(sizeof(float));
  }
  for (const Parameter &parameter : parameterList)
    memory.gradients += parameter.elements() * int64_t(sizeof(float));
  return memory;
}

ReferenceTensor InterpretedStep::read(const Checkpoint &from,
                                      const std::string &name) const {
  const TensorInfo &tensor = from.tensors().get(name);
  std::vector<float> values(tensor.elements());
  from.tensors().readF32(tensor.name, 0, tensor.rows(), values.data());
  ReferenceTensor result;
  for (const int64_t size : shapeOf(tensor))
    result.shape.push_back(size);
  result.values.assign(values.begin(), values.end());
  return result;
}

/// As compiled code holds it: norms and biases stay f32.
ReferenceTensor InterpretedStep::readRounded(const Checkpoint &from,
                                             const std::string &name) const {
  ReferenceTensor tensor = read(from, name);
  if (tensor.shape.size() > 1)
    for (double &value : tensor.values)
      value = rounded(static_cast<float>(value));
  return tensor;
}

void InterpretedStep::load() {
  interpreter = std::make_unique<Interpreter>(
      *module, InterpreterOptions{.maxSteps = INT64_MAX / 2});
  for (const std::string &name : checkpoint.weights().names())
    interpreter->setParameter(name, read(checkpoint, name));
  if (teacher) {
    teacherInterpreter = std::make_unique<Interpreter>(
        *teacherModule, InterpreterOptions{.maxSteps = INT64_MAX / 2});
    for (const std::string &name : teacher->weights().names())
      teacherInterpreter->setParameter(name, readRounded(*teacher, name));
    interpreter->setParameter(TrainingTeacher::graph(*teacher).headKey,
                              readRounded(*teacher, teacher->weights().head));
  }
  for (const Table &table : tableList) {
    Arena &rows =
        liveRows.emplace_back(bytesOf(table.dtype, table.rows * table.columns),
                              "the rows of a table");
    const auto count = static_cast<uint64_t>(table.rows);
    if (table.dtype == DType::F32)
      checkpoint.tensors().readF32(table.key, 0, count,
                                   static_cast<float *>(rows.data()));
    else
      checkpoint.tensors().readBF16(table.key, 0, count,
                                    static_cast<uint16_t *>(rows.data()));
  }
}

double InterpretedStep::rounded(float value) const {
  return engineReport.dtype == DType::BF16 ? bf16ToF32(f32ToBF16(value))
                                           : value;
}

void InterpretedStep::setParameter(size_t parameter,
                                   std::span<const float> values) {
  const Parameter &wanted = parameterList[parameter];
  ReferenceTensor tensor;
  tensor.shape.append(wanted.shape.begin(), wanted.shape.end());
  // Norms and biases stay f32.
  const bool isMatrix = wanted.shape.size() > 1;
  for (const float value : values)
    tensor.values.push_back(isMatrix ? rounded(value) : value);
  interpreter->setParameter(wanted.key, std::move(tensor));
}

RowTable InterpretedStep::table(size_t table) {
  const Table &known = tableList[table];
  return {liveRows[table].data(), known.dtype, known.rows, known.columns};
}

void InterpretedStep::passTables() {
  for (size_t i = 0; i < tableList.size(); ++i) {
    const Table &table = tableList[i];
    std::vector<float> values(static_cast<size_t>(table.rows * table.columns));
    decodeToF32(table.dtype, static_cast<const std::byte *>(liveRows[i].data()),
                values.size(), values.data());
    ReferenceTensor tensor{{table.rows, table.columns}, {}};
    tensor.values.assign(values.begin(), values.end());
    interpreter->setParameter(table.key, std::move(tensor));
  }
}

ReferenceValue InterpretedStep::teacherStates(const Batch &batch) {
  auto function = teacherModule->lookupSymbol<mlir::func::FuncOp>("hidden");
  const auto width = static_cast<int64_t>(teacher->config().hiddenSize);
  ReferenceTensor states = filled(batch.places() * width, 0);
  states.shape = {batch.places(), width};
  auto results = teacherInterpreter->run(
      function, Values{vectorOf(batch.ids), vectorOf(batch.positions),
                       vectorOf(batch.sequences), std::move(states)});
  if (mlir::failed(results))
    fail("the interpreter could not run the teacher");
  return results->front();
}

InterpretedStep::Values
InterpretedStep::call(const char *name, const Batch &batch, double scale) {
  passTables();
  auto function = module->lookupSymbol<mlir::func::FuncOp>(name);
  if (!function)
    fail("the graph has no function '{}'", name);
  const int64_t count = batch.places();
  Values arguments = {vectorOf(batch.ids), vectorOf(batch.positions),
                      vectorOf(batch.sequences), vectorOf(batch.labels)};
  if (teacher)
    arguments.push_back(teacherStates(batch));
  for (int output = 0; output < (teacher ? 2 : 1); ++output)
    arguments.push_back(filled(count, 0));
  if (function.getNumArguments() > arguments.size()) {
    // The cotangents of the losses.
    arguments.push_back(filled(count, scale * (1 - teacherWeight())));
    if (teacher)
      arguments.push_back(filled(count, scale * weight));
  }
  auto results = interpreter->run(function, arguments);
  if (mlir::failed(results))
    fail("the interpreter could not run '{}'", name);
  if (teacher)
    divergenceSum = sumOf((*results)[1]);
  return std::move(*results);
}

double InterpretedStep::run(const Batch &batch, float scale) {
  const Values results = call("loss_vjp", batch, scale);
  keepGradients(results);
  return sumOf(results.front());
}

double InterpretedStep::evaluate(const Batch &batch) {
  return sumOf(call("loss", batch, 0).front());
}

void InterpretedStep::keepGradients(const Values &results) {
  auto function = module->lookupSymbol<mlir::func::FuncOp>("loss_vjp");
  std::map<std::string, unsigned> places, idPlaces;
  for (unsigned i = 0; i < results.size(); ++i) {
    const auto of = [&](llvm::StringRef attribute) {
      return function.getResultAttrOfType<mlir::FlatSymbolRefAttr>(i,
                                                                   attribute);
    };
    if (const auto symbol = of(StemDialect::kGradientOfAttr))
      places[symbol.getValue().str()] = i;
    if (const auto symbol = of(StemDialect::kGradientIdsOfAttr))
      idPlaces[symbol.getValue().str()] = i;
  }
  const auto valuesOf = [&](const std::map<std::string, unsigned> &where,
                            const std::string &key) -> const auto & {
    const auto place = where.find(key);
    if (place == where.end())
      fail("{}: the loss has no gradient of it", key);
    return results[place->second].tensor->values;
  };
  const auto floats = [](const std::vector<double> &values) {
    return std::vector<float>(values.begin(), values.end());
  };
  gradients.clear();
  rowGradients.clear();
  rowIds.clear();
  for (const Parameter &parameter : parameterList)
    gradients.push_back(floats(valuesOf(places, parameter.key)));
  for (const Table &table : tableList) {
    const std::vector<double> &ids = valuesOf(idPlaces, table.key);
    rowIds.emplace_back(ids.begin(), ids.end());
    rowGradients.push_back(floats(valuesOf(places, table.key)));
  }
}

} // namespace

std::unique_ptr<TrainingStep>
stem::makeInterpretedStep(const Checkpoint &checkpoint,
                          const TrainingStepOptions &options) {
  return std::make_unique<InterpretedStep>(checkpoint, options);
}
