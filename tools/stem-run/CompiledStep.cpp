//===- CompiledStep.cpp - A training step in compiled code ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CompiledStep.h"

#include "EngineMemory.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Runtime/KVCache.h"
#include "stem/Support/Error.h"

#include "mlir/IR/SymbolTable.h"

#include <algorithm>

using namespace stem;

namespace {

/// Of a parameter that a step updates: the weight in f32 and two moments.
constexpr size_t kStates = 3;

/// Gradients begin at cache lines.
constexpr int64_t kFloatsOfLine = 16;

/// What is not trained is a constant to stem-autodiff.
void freezeOthers(mlir::ModuleOp module, const std::set<std::string> &trained) {
  for (mlir::Operation &op : *module.getBody()) {
    const auto symbol = op.getAttrOfType<mlir::StringAttr>(
        mlir::SymbolTable::getSymbolAttrName());
    if (mlir::isa<ParamOp, TableOp>(op) && !trained.contains(symbol.str()))
      op.setAttr(StemDialect::kFrozenAttr,
                 mlir::UnitAttr::get(module.getContext()));
  }
}

/// Of the largest batch, in tiles, each of its rows one sequence.
int64_t tokensInTiles(const TrainingStepOptions &options) {
  const int64_t rows = std::max<int64_t>(options.rows, 1);
  return boundOfRows(rows, (options.tokens + rows - 1) / rows, kTrainingTile)
      .tokens;
}

double sumOf(std::span<const float> values) {
  double sum = 0;
  for (const float value : values)
    sum += value;
  return sum;
}

} // namespace

std::string stem::budgetWarning(int64_t budget, int64_t tokens, int64_t bytes) {
  return fmt::format(
      "--recompute-budget={0}: {2} bytes of a batch of {1} tokens, in tiles, "
      "are kept for the backward pass, with all computed again that can be; "
      "give --recompute-budget={2}, or a smaller batch",
      budget, tokens, bytes);
}

CompiledStep::CompiledStep(const Checkpoint &checkpoint,
                           const TrainingStepOptions &options)
    : checkpoint(checkpoint), runner(checkpoint, options.engine),
      chosen(options.trainedRows), teacherModel(options.teacher),
      weightOfTeacher(options.teacher ? options.teacherWeight : 0) {
  if (teacherModel)
    requireTeacher(checkpoint, *teacherModel);
  compile(options);
  lossEntry = &runner.entry("loss");
  stepEntry = &runner.entry("loss_vjp");
  tokens = tokensInTiles(options);
  const stem_entry *entries[] = {lossEntry, stepEntry};
  weights = std::make_unique<EngineWeights>(entries, runner.module->tables(),
                                            options.tableFolder.empty()
                                                ? TablePlacement::Resident
                                                : TablePlacement::OwnFile,
                                            options.tableFolder);
  listGradients();
  if (!teacherModel)
    return;
  teacher = std::make_unique<TrainingTeacher>(*teacherModel, options.engine,
                                              runner.report.dtype,
                                              stepEntry->token_tile);
  runner.report.compileSeconds += teacher->compileSeconds();
}

void CompiledStep::compile(const TrainingStepOptions &options) {
  const std::set<std::string> trained = trainedKeys(checkpoint, options.train);
  const int64_t budget = options.residualBudget,
                budgetTokens = options.residualTokens > 0
                                   ? options.residualTokens
                                   : tokensInTiles(options);
  runner.compile(
      [&](mlir::MLIRContext &context, const GraphOptions &graphOptions) {
        GraphOptions graph = graphOptions;
        graph.entries = GraphEntries::Training;
        graph.tokenTile = kTrainingTile;
        graph.tableType = [&](const TensorInfo &table) {
          return liveRowType(table, options.rowType);
        };
        if (teacherModel)
          graph.teacher = TrainingTeacher::graph(*teacherModel);
        auto module =
            buildModelGraph(context, checkpoint.config(), checkpoint.weights(),
                            checkpoint.tensors(), graph);
        freezeOthers(*module, trained);
        return module;
      },
      TrainedFunction{"loss", options.optimizer, budget, budgetTokens,
                      [=](int64_t bytes) {
                        return budgetWarning(budget, budgetTokens, bytes);
                      }});
}

/// Outputs with a key are gradients, states those of parameters that the step
/// updates, in the order of the weights.
void CompiledStep::listGradients() {
  const auto tableInfos = runner.module->tables();
  for (int64_t i = 0; i < stepEntry->argument_count; ++i) {
    const stem_argument &argument = stepEntry->arguments[i];
    const std::string key = stepEntry->texts + argument.key;
    if (argument.kind == STEM_ARG_STATE && states.size() % kStates == 0) {
      parameterList.push_back(
          {key, {argument.sizes, argument.sizes + argument.rank}});
      gradientOffsets.push_back(-1);
    }
    if (argument.kind == STEM_ARG_STATE)
      states.push_back(nullptr);
    if (argument.kind != STEM_ARG_OUTPUT || key.empty())
      continue;
    const auto info = std::ranges::find_if(
        tableInfos, [&](const stem_table_info &t) { return key == t.key; });
    if (info == tableInfos.end()) {
      Parameter parameter = {key,
                             {argument.sizes, argument.sizes + argument.rank}};
      gradientOffsets.push_back(gradientFloats);
      gradientFloats += parameter.elements();
      parameterList.push_back(std::move(parameter));
    } else {
      const int64_t rows =
          chosen.empty() ? info->rows : static_cast<int64_t>(chosen.size());
      tableList.push_back(
          {key, rows, info->columns,
           info->dtype == STEM_BF16 ? DType::BF16 : DType::F32});
      tableNumbers.push_back(info - tableInfos.begin());
      rowOffsets.push_back(gradientFloats);
      gradientFloats += mostGradientRows(info->rows) * info->columns;
    }
    gradientFloats += -gradientFloats & (kFloatsOfLine - 1);
  }
  if (updatesParameters())
    norms.resize(parameterList.size() + tableList.size());
}

int64_t CompiledStep::mostGradientRows(int64_t rows) const {
  const int64_t most = std::min(rows, tokens);
  return chosen.empty()
             ? most
             : std::min(most, static_cast<int64_t>(chosen.size()) + 1);
}

static int64_t rowBytes(const TrainingStep::Table &table) {
  return table.columns * static_cast<int64_t>(dtypeBlockBytes(table.dtype));
}

StepMemory CompiledStep::memory(const BatchBound &bound) const {
  StepMemory memory;
  memory.weights = weights->parameterBytes();
  memory.tables = weights->tableBytes();
  memory.tablesInFile = weights->tableBytesInFiles();
  if (!chosen.empty())
    for (const Table &table : tableList)
      memory.tables += table.rows * rowBytes(table);
  memory.gradients = gradientFloats * int64_t(sizeof(float));
  const int64_t threads = runner.report.threads;
  memory.activations = sumOfBytes(
      {std::max(arenaBytes(*lossEntry, bound.tokens, 0, threads),
                arenaBytes(*stepEntry, bound.tokens, bound.tokens, threads)),
       ScratchCaches::bytes(*stepEntry, bound)});
  if (teacher)
    memory.teacher =
        sumOfBytes({teacher->weightBytes(), teacher->activationBytes(bound)});
  return memory;
}

void CompiledStep::load() {
  std::set<std::string> others;
  for (const Parameter &parameter : parameterList)
    others.insert(parameter.key);
  std::string teacherHead;
  if (teacher)
    teacherHead = TrainingTeacher::graph(*teacherModel).headKey;
  others.insert(teacherHead);
  weights->load(checkpoint.tensors(), context(), others);
  if (teacher) {
    weights->loadAs(teacherHead, teacherModel->tensors(),
                    teacherModel->weights().head, context());
    teacher->load();
  }
  gradients = Arena(gradientFloats * int64_t(sizeof(float)), "the gradients");
  stem_table_store *made = nullptr;
  throwIfFailed(context(), stem_table_store_create(context(), nullptr, &made));
  store.reset(made);
  weights->openTables(context(), made);
  if (!chosen.empty())
    takeChosenRows();
}

void CompiledStep::takeChosenRows() {
  for (size_t i = 0; i < tableList.size(); ++i) {
    const int64_t bytes = rowBytes(tableList[i]);
    const std::byte *all = weights->tableRows(tableNumbers[i]);
    Arena rows(tableList[i].rows * bytes, "the rows that are trained");
    auto *out = static_cast<std::byte *>(rows.data());
    for (const int32_t id : chosen) {
      std::copy_n(all + id * bytes, bytes, out);
      out += bytes;
    }
    chosenRows.push_back(std::move(rows));
  }
}

/// Those that the batch reads.
void CompiledStep::putChosenRows() {
  for (size_t i = 0; i < tableList.size(); ++i) {
    const int64_t bytes = rowBytes(tableList[i]);
    const auto *rows = static_cast<const std::byte *>(chosenRows[i].data());
    std::byte *all = weights->tableRows(tableNumbers[i]);
    for (const int32_t row : rowIds)
      std::copy_n(rows + row * bytes, bytes,
                  all + chosen[static_cast<size_t>(row)] * bytes);
  }
}

/// -1: the row is not trained.
int32_t CompiledStep::rowOf(int32_t id) const {
  if (chosen.empty())
    return id;
  const auto place = std::ranges::lower_bound(chosen, id);
  return place != chosen.end() && *place == id
             ? static_cast<int32_t>(place - chosen.begin())
             : -1;
}

std::vector<int32_t> CompiledStep::rowsOf(std::span<const int32_t> ids) const {
  std::vector<int32_t> rows;
  for (const int32_t id : ids)
    if (const int32_t row = rowOf(id); row >= 0)
      rows.push_back(row);
  return rows;
}

void CompiledStep::setParameter(size_t parameter,
                                std::span<const float> values) {
  weights->set(parameterList[parameter].key, values, context());
}

void CompiledStep::bindState(size_t parameter, const ParameterState &state) {
  float **own = &states.at(parameter * kStates);
  own[0] = state.weight;
  own[1] = state.first;
  own[2] = state.second;
}

void CompiledStep::setScalars(const AdamWScalars &values) {
  scalars = {values.rate, values.root, values.decay};
}

RowTable CompiledStep::table(size_t table) {
  const Table &info = tableList[table];
  void *rows = chosen.empty() ? weights->tableRows(tableNumbers[table])
                              : chosenRows[table].data();
  return {rows, info.dtype, info.rows, info.columns};
}

std::span<const float> CompiledStep::gradient(size_t parameter) const {
  return {static_cast<const float *>(gradients.data()) +
              gradientOffsets[parameter],
          static_cast<size_t>(parameterList[parameter].elements())};
}

TrainingStep::Rows CompiledStep::tableGradient(size_t table) const {
  const size_t floats = rowIds.size() * tableList[table].columns;
  return {rowIds,
          {static_cast<const float *>(gradients.data()) + rowOffsets[table],
           floats}};
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

/// The rows that the batch reads and that are trained, each once and rising,
/// and each token's place among them.
void CompiledStep::findRows(const TiledBatch &batch) {
  std::vector<int32_t> ids = batch.ids;
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  rowIds = rowsOf(ids);
  const bool hasOthers = rowIds.size() < ids.size();
  gradientRows = static_cast<int64_t>(rowIds.size()) + hasOthers;
  rowIndex.clear();
  for (const int32_t id : batch.ids) {
    const int32_t row = rowOf(id);
    const auto place =
        row < 0 ? rowIds.end() : std::ranges::lower_bound(rowIds, row);
    rowIndex.push_back(static_cast<int32_t>(place - rowIds.begin()));
  }
}

stem_tensor CompiledStep::input(const stem_argument &argument,
                                const std::string &name,
                                const TiledBatch &batch) {
  if (argument.kind == STEM_ARG_CACHE)
    return handleTensor(scratch.find(name));
  if (argument.kind == STEM_ARG_STORE)
    return handleTensor(store.get());
  if (const auto tokens = batch.input(name))
    return *tokens;
  if (name == "row_index")
    return vectorTensor(rowIndex);
  if (name == "nll_cotangent")
    return vectorTensor(cotangents);
  if (name == "kl_cotangent")
    return vectorTensor(divergenceCotangents);
  if (name == "teacher")
    return teacherStates;
  if (name == "optimizer_step")
    return vectorTensor(scalars);
  fail("{}: the compiled step takes '{}', which nothing gives", runner.name,
       name);
}

stem_tensor CompiledStep::report(const std::string &name) {
  if (name == "nll")
    return vectorTensor(losses);
  if (name == "kl")
    return vectorTensor(divergences);
  if (name == "gradient_norms")
    return vectorTensor(norms);
  fail("{}: the compiled step gives '{}', which nothing takes", runner.name,
       name);
}

stem_tensor CompiledStep::output(const stem_entry &entry,
                                 const stem_argument &argument) {
  const std::string key = entry.texts + argument.key;
  if (key.empty())
    return report(entry.texts + argument.name);
  float *all = static_cast<float *>(gradients.data());
  for (size_t i = 0; i < parameterList.size(); ++i)
    if (parameterList[i].key == key)
      return denseTensor(all + gradientOffsets[i], STEM_F32, argument.sizes,
                         argument.rank);
  for (size_t i = 0; i < tableList.size(); ++i)
    if (tableList[i].key == key)
      return denseTensor(all + rowOffsets[i], STEM_F32,
                         {gradientRows, tableList[i].columns});
  fail("{}: the compiled step gives a gradient of '{}', which is not trained",
       runner.name, key);
}

void CompiledStep::setCotangents(const TiledBatch &batch, float scale) {
  const auto ofTeacher = static_cast<float>(scale * weightOfTeacher);
  const auto ofLabels = static_cast<float>(scale * (1 - weightOfTeacher));
  cotangents.clear();
  divergenceCotangents.clear();
  for (const int32_t label : batch.labels) {
    cotangents.push_back(label == kNoLabel ? 0.0f : ofLabels);
    divergenceCotangents.push_back(label == kNoLabel ? 0.0f : ofTeacher);
  }
}

double CompiledStep::call(const stem_entry &entry, const Batch &batch,
                          float scale) {
  TiledBatch tiled = tileBatch(batch, entry.token_tile);
  scratch.prepare(context(), *stepEntry, tiled);
  findRows(tiled);
  if (!chosen.empty())
    putChosenRows();
  losses.assign(tiled.ids.size(), 0.0f);
  divergences.assign(teacher ? tiled.ids.size() : 0, 0.0f);
  setCotangents(tiled, scale);
  if (teacher)
    teacherStates = teacher->run(tiled);
  size_t state = 0;
  runner.call(entry, tiled.tokens(), gradientRows,
              [&](const stem_argument &argument) {
                if (argument.kind == STEM_ARG_STATE)
                  return denseTensor(states[state++], STEM_F32, argument.sizes,
                                     argument.rank);
                if (argument.kind == STEM_ARG_PARAM)
                  return weights->tensor(entry, argument);
                if (argument.kind == STEM_ARG_OUTPUT)
                  return output(entry, argument);
                return input(argument, entry.texts + argument.name, tiled);
              });
  divergenceSum = sumOf(divergences);
  return sumOf(losses);
}

double CompiledStep::run(const Batch &batch, float scale) {
  if (batch.places() > tokens)
    fail("{}: a batch of {} places is larger than the {} that the step was "
         "made for",
         runner.name, batch.places(), tokens);
  return call(*stepEntry, batch, scale);
}

double CompiledStep::evaluate(const Batch &batch) {
  // The gradients' rows are those of the last run.
  const auto ids = std::move(rowIds);
  const double sum = call(*lossEntry, batch, 0.0f);
  rowIds = std::move(ids);
  return sum;
}

std::unique_ptr<TrainingStep>
stem::makeTrainingStep(const Checkpoint &checkpoint,
                       const TrainingStepOptions &options) {
  return std::make_unique<CompiledStep>(checkpoint, options);
}
