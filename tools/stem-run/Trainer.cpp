//===- Trainer.cpp - Optimizers around a training step --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Trainer.h"

#include "Progress.h"
#include "stem/Runtime/Context.h"
#include "stem/Support/Error.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace stem;

struct Trainer::Dense {
  Arena memory;
  std::span<float> values;
  std::unique_ptr<AdamW> optimizer;
  std::vector<float> sum; ///< over micro-batches, where there are several
};

struct Trainer::Rows {
  std::string key;
  RowTable table;
  RowOptimizerOptions options;
  std::unique_ptr<RowOptimizer> optimizer;
  std::unique_ptr<RowGradients> sum;
};

/// Rows in files, which a message can name when a device fails.
struct Trainer::FilePages {
  FilePages(stem_context *context, std::vector<FileRows> parts)
      : parts(parts), pages(context, std::move(parts)) {
    for (const FileRows &part : this->parts)
      nameMapping(part.data, static_cast<size_t>(part.rows * part.rowBytes),
                  "the file that holds " + part.name);
    pages.leave();
  }
  FilePages(const FilePages &) = delete;
  FilePages &operator=(const FilePages &) = delete;
  ~FilePages() {
    for (const FileRows &part : parts)
      forgetMapping(part.data);
  }

  const std::vector<FileRows> parts;
  RowPages pages;
};

std::optional<StepOptimizer>
stem::stepOptimizer(const TrainerOptions &options) {
  if (options.accumulate > 1 || options.clip > 0)
    return std::nullopt;
  return StepOptimizer{.beta1 = options.dense.beta1,
                       .beta2 = options.dense.beta2,
                       .epsilon = options.dense.epsilon};
}

TrainerMemory stem::trainerMemory(const TrainingStep &step,
                                  const TrainerOptions &options,
                                  int64_t tokens) {
  constexpr auto bytes = static_cast<int64_t>(sizeof(float));
  const bool sums = options.accumulate > 1;
  TrainerMemory memory;
  for (const TrainingStep::Parameter &parameter : step.parameters()) {
    const int64_t elements = parameter.elements();
    memory.masters += bytes * elements;
    memory.moments += 2 * bytes * elements;
    memory.gradients += sums ? bytes * elements : 0;
  }
  for (const TrainingStep::Table &table : step.tables()) {
    const int64_t inFiles =
        options.rowFolder.empty()
            ? 0
            : RowOptimizer::momentBytesPerRow(options.rows, table.columns);
    memory.rowState +=
        table.rows *
        (RowOptimizer::stateBytesPerRow(options.rows, table.columns) - inFiles);
    memory.rowStateInFiles += table.rows * inFiles;
    const int64_t touched = std::min(table.rows, tokens * options.accumulate);
    memory.gradients += sums ? bytes * touched * table.columns : 0;
    if (options.rows.mode == RowMode::Exact)
      memory.rowsAside += std::min(table.rows, tokens) * table.columns *
                          static_cast<int64_t>(dtypeBlockBytes(table.dtype));
  }
  return memory;
}

Trainer::Trainer(const Checkpoint &checkpoint, TrainingStep &step,
                 const TrainerOptions &options)
    : step(step), options(options) {
  for (const TrainingStep::Parameter &parameter : step.parameters()) {
    auto own = std::make_unique<Dense>();
    const auto elements = static_cast<size_t>(parameter.elements());
    own->memory = Arena(static_cast<int64_t>(elements * sizeof(float)),
                        "the weights in f32");
    own->values = {static_cast<float *>(own->memory.data()), elements};
    const TensorInfo &tensor = checkpoint.tensors().get(parameter.key);
    checkpoint.tensors().readF32(parameter.key, 0, tensor.rows(),
                                 own->values.data());
    checkpoint.tensors().release(parameter.key);
    AdamWOptions adamw = options.dense;
    adamw.decay = decayOfRank(adamw.decay, parameter.shape.size());
    own->optimizer = std::make_unique<AdamW>(step.context(), parameter.key,
                                             own->values, adamw);
    if (options.accumulate > 1)
      own->sum.resize(elements);
    step.setParameter(dense.size(), own->values);
    dense.push_back(std::move(own));
  }
  for (const TrainingStep::Table &table : step.tables()) {
    auto own = std::make_unique<Rows>();
    own->key = table.key;
    own->table = step.table(tables.size());
    own->options = options.rows;
    own->options.stream = static_cast<uint32_t>(tables.size());
    own->optimizer = std::make_unique<RowOptimizer>(
        step.context(), table.key, own->table, own->options, options.rowFolder);
    if (options.accumulate > 1)
      own->sum = std::make_unique<RowGradients>(step.context(), table.key,
                                                table.columns);
    tables.push_back(std::move(own));
  }
  if (step.updatesParameters())
    bindStates();
  std::vector<FileRows> inFiles = step.tablesInFile();
  for (const auto &table : tables)
    for (FileRows &moments : table->optimizer->rowsInFiles())
      inFiles.push_back(std::move(moments));
  if (!inFiles.empty())
    files = std::make_unique<FilePages>(step.context(), std::move(inFiles));
}

Trainer::~Trainer() = default;

/// The step updates what the optimizers hold.
void Trainer::bindStates() {
  if (!stepOptimizer(options))
    fail("a step that updates parameters takes one batch, not {}, and no norm "
         "to clip to, not {}",
         options.accumulate, options.clip);
  for (size_t i = 0; i < dense.size(); ++i)
    step.bindState(i, {dense[i]->values.data(),
                       dense[i]->optimizer->firstMoments(),
                       dense[i]->optimizer->secondMoments()});
}

/// The scalars of matrices, whose decay is that of the options.
void Trainer::prepareUpdate(double learningRate) {
  AdamWScalars scalars = {};
  for (const auto &parameter : dense) {
    const AdamWScalars own = parameter->optimizer->nextStep(learningRate);
    scalars = {own.rate, own.root, std::max(own.decay, scalars.decay)};
  }
  step.setScalars(scalars);
}

/// Each once, rising.
static std::vector<int32_t> idsOf(std::span<const Batch> batches) {
  std::vector<int32_t> ids;
  for (const Batch &batch : batches)
    ids.insert(ids.end(), batch.ids.begin(), batch.ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// Adds the losses to `result`; gradients are the step's own of a single batch,
/// else in the sums.
void Trainer::accumulate(std::span<const Batch> batches, float scale,
                         StepResult &result) {
  const bool sums = options.accumulate > 1;
  if (sums) {
    const std::vector<int32_t> rows = step.rowsOf(idsOf(batches));
    for (const auto &table : tables)
      table->sum->begin(rows);
    for (const auto &parameter : dense)
      std::fill(parameter->sum.begin(), parameter->sum.end(), 0.0f);
  }
  for (const Batch &batch : batches) {
    result.nll += step.run(batch, scale);
    result.divergence += step.divergence();
    if (!sums)
      continue;
    for (size_t i = 0; i < dense.size(); ++i)
      addGradient(step.context(), step.gradient(i), dense[i]->sum);
    for (size_t i = 0; i < tables.size(); ++i) {
      const TrainingStep::Rows rows = step.tableGradient(i);
      tables[i]->sum->add(rows.ids, rows.rows.data());
    }
  }
}

std::vector<NamedGradient> Trainer::namedGradients() const {
  std::vector<NamedGradient> gradients;
  const bool sums = options.accumulate > 1;
  for (size_t i = 0; i < dense.size(); ++i)
    gradients.push_back(
        {"the gradient of " + step.parameters()[i].key,
         sums ? std::span<const float>(dense[i]->sum) : step.gradient(i)});
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::string name = "the gradient of " + tables[i]->key;
    if (sums)
      gradients.push_back({name, tables[i]->sum->rows(), tables[i]->sum->ids(),
                           step.trainedRows()});
    else
      gradients.push_back({name, step.tableGradient(i).rows,
                           step.tableGradient(i).ids, step.trainedRows()});
  }
  return gradients;
}

static bool isFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

/// Rows are decoded a part at a time.
static bool isFinite(const RowTable &table) {
  const auto count = static_cast<uint64_t>(table.rows * table.columns);
  const auto *bytes = static_cast<const std::byte *>(table.data);
  std::vector<float> part(std::min<uint64_t>(count, 1 << 16));
  for (uint64_t at = 0; at < count; at += part.size()) {
    const uint64_t size = std::min<uint64_t>(part.size(), count - at);
    decodeToF32(table.dtype, bytes + at * dtypeBlockBytes(table.dtype), size,
                part.data());
    if (!isFinite(std::span(part).first(size)))
      return false;
  }
  return true;
}

std::string Trainer::firstBadWeight() const {
  for (size_t i = 0; i < dense.size(); ++i)
    if (!isFinite(dense[i]->values))
      return step.parameters()[i].key;
  for (const auto &table : tables)
    if (!isFinite(table->table))
      return table->key;
  return "";
}

double Trainer::normOfGradients() const {
  const GradientNorm norm = globalNorm(step.context(), namedGradients());
  if (!norm.fault.empty())
    failNotFinite(norm.fault);
  return norm.norm;
}

/// Of the step's own sums.
double Trainer::normOfUpdate() const {
  const std::span<const float> norms = step.gradientNorms();
  double total = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    if (!std::isfinite(norms[i]))
      failNotFinite(
          fmt::format("the gradient of {} has values that are NaN or infinite",
                      i < dense.size() ? step.parameters()[i].key
                                       : tables[i - dense.size()]->key));
    total += double(norms[i]) * norms[i];
  }
  return std::sqrt(total);
}

/// What is behind a bad gradient is a bad weight, if there is one.
void Trainer::failNotFinite(const std::string &fault) const {
  const std::string weight = firstBadWeight();
  fail("{}; lower --lr, give --warmup, or --clip=1",
       weight.empty() ? fault
                      : weight + " holds values that are NaN or infinite");
}

void Trainer::requireFinite() const {
  const std::string weight = firstBadWeight();
  if (!weight.empty())
    failNotFinite("");
  for (const CheckpointFile &file : state())
    for (const TensorView &tensor : file.tensors)
      if (tensor.dtype == DType::F32 &&
          !isFinite(RowTable{const_cast<std::byte *>(tensor.data.data()),
                             DType::F32, 1,
                             int64_t(tensor.data.size() / sizeof(float))}))
        failNotFinite(tensor.name + " of the optimizer has overflowed");
}

void Trainer::settle() const {
  if (files)
    files->pages.settle();
}

namespace {

/// Seconds from one end to the next.
class Lap {
public:
  double end() {
    const double now = watch.seconds(), lap = now - last;
    last = now;
    return lap;
  }

private:
  Stopwatch watch;
  double last = 0;
};

} // namespace

namespace {

/// Rows in files that are in memory as long as this exists.
class BroughtRows {
public:
  BroughtRows(RowPages *pages, std::vector<int32_t> ids)
      : pages(pages), wanted(std::move(ids)) {
    const Stopwatch watch;
    if (pages)
      pages->bring(wanted);
    waited = watch.seconds();
  }
  BroughtRows(const BroughtRows &) = delete;
  BroughtRows &operator=(const BroughtRows &) = delete;
  ~BroughtRows() {
    if (pages)
      pages->leave();
  }

  std::span<const int32_t> ids() const { return wanted; }
  double seconds() const { return waited; }

private:
  RowPages *pages;
  std::vector<int32_t> wanted;
  double waited;
};

} // namespace

void Trainer::announce(std::span<const Batch> batches) {
  if (files)
    announced = idsOf(batches);
}

StepResult Trainer::update(std::span<const Batch> batches, double learningRate,
                           double tableLearningRate) {
  StepResult result;
  for (const Batch &batch : batches)
    result.labels += batch.labelCount;
  if (result.labels == 0)
    return result;
  const BroughtRows brought(files ? &files->pages : nullptr, idsOf(batches));
  const std::vector<int32_t> ids = step.rowsOf(brought.ids());
  result.seconds.files = brought.seconds();
  if (files && !announced.empty())
    files->pages.readAhead(std::exchange(announced, {}));
  Lap lap;
  for (const auto &table : tables)
    table->optimizer->catchUp(ids);
  result.seconds.rows = lap.end();
  result.teacherWeight = step.teacherWeight();
  if (step.updatesParameters())
    prepareUpdate(learningRate);
  accumulate(batches, static_cast<float>(1.0 / double(result.labels)), result);
  result.seconds.compute = lap.end();
  result.norm = step.updatesParameters() ? normOfUpdate() : normOfGradients();
  if (!std::isfinite(result.loss()))
    failNotFinite(fmt::format("the loss is {}", result.loss()));
  const double scale =
      options.clip > 0 ? clipScale(result.norm, options.clip) : 1;
  lap.end(); // of the norm
  applyDense(learningRate, scale);
  result.seconds.dense = lap.end();
  applyRows(tableLearningRate, scale);
  result.seconds.rows += lap.end();
  result.rowsTouched = static_cast<int64_t>(ids.size() * tables.size());
  return result;
}

void Trainer::applyDense(double learningRate, double scale) {
  const bool sums = options.accumulate > 1;
  for (size_t i = 0; i < dense.size(); ++i) {
    if (step.updatesParameters())
      dense[i]->optimizer->finishStep();
    else
      dense[i]->optimizer->update(sums ? std::span<const float>(dense[i]->sum)
                                       : step.gradient(i),
                                  learningRate, scale);
    step.setParameter(i, dense[i]->values);
  }
}

void Trainer::applyRows(double learningRate, double scale) {
  const bool sums = options.accumulate > 1;
  for (size_t i = 0; i < tables.size(); ++i) {
    const TrainingStep::Rows rows =
        sums ? TrainingStep::Rows{tables[i]->sum->ids(), tables[i]->sum->rows()}
             : step.tableGradient(i);
    tables[i]->optimizer->update(rows.ids, rows.rows.data(), learningRate,
                                 scale);
  }
}

namespace {

/// Rows that are caught up as long as this exists, and then as they were: to
/// catch up is to round, so that a run with another --eval-every would have
/// other bits.
class CaughtUpRows {
public:
  CaughtUpRows(const RowTable &table, const RowOptimizer &optimizer,
               std::span<const int32_t> ids)
      : table(table), ids(ids), rowBytes(static_cast<size_t>(table.columns) *
                                         dtypeBlockBytes(table.dtype)),
        before(ids.size() * rowBytes), fresh(rowBytes) {
    for (size_t i = 0; i < ids.size(); ++i) {
      std::memcpy(&before[i * rowBytes], place(i), rowBytes);
      optimizer.exportRows(ids[i], 1, fresh.data());
      std::memcpy(place(i), fresh.data(), rowBytes);
    }
  }
  CaughtUpRows(const CaughtUpRows &) = delete;
  CaughtUpRows &operator=(const CaughtUpRows &) = delete;
  ~CaughtUpRows() {
    for (size_t i = 0; i < ids.size(); ++i)
      std::memcpy(place(i), &before[i * rowBytes], rowBytes);
  }

private:
  std::byte *place(size_t i) const {
    return static_cast<std::byte *>(table.data) +
           static_cast<size_t>(ids[i]) * rowBytes;
  }

  RowTable table;
  std::span<const int32_t> ids;
  size_t rowBytes;
  std::vector<std::byte> before, fresh;
};

} // namespace

double Trainer::evaluate(const Batch &batch) {
  const BroughtRows brought(files ? &files->pages : nullptr,
                            idsOf({&batch, 1}));
  const std::vector<int32_t> ids = step.rowsOf(brought.ids());
  std::vector<std::unique_ptr<CaughtUpRows>> rows; // read the ids to the end
  if (options.rows.mode == RowMode::Exact)
    for (const auto &table : tables)
      rows.push_back(
          std::make_unique<CaughtUpRows>(table->table, *table->optimizer, ids));
  return step.evaluate(batch);
}

std::vector<CheckpointFile> Trainer::state() const {
  std::vector<CheckpointFile> files;
  CheckpointFile weights{"dense.safetensors", {}};
  for (const auto &parameter : dense)
    for (TensorView &tensor : parameter->optimizer->state())
      weights.tensors.push_back(std::move(tensor));
  if (!weights.tensors.empty())
    files.push_back(std::move(weights));
  for (size_t i = 0; i < tables.size(); ++i)
    files.push_back({fmt::format("table-{:03}.safetensors", i),
                     tables[i]->optimizer->state()});
  return files;
}

void Trainer::restore(std::span<const TensorView> tensors) {
  for (size_t i = 0; i < dense.size(); ++i) {
    dense[i]->optimizer->restore(tensors);
    step.setParameter(i, dense[i]->values);
  }
  for (const auto &table : tables)
    table->optimizer->restore(tensors);
}

bool Trainer::isTrained(const std::string &key) const {
  return std::ranges::find(step.parameters(), key,
                           &TrainingStep::Parameter::key) !=
             step.parameters().end() ||
         std::ranges::find(step.tables(), key, &TrainingStep::Table::key) !=
             step.tables().end();
}

std::span<const float> Trainer::values(const std::string &key) const {
  for (size_t i = 0; i < dense.size(); ++i)
    if (step.parameters()[i].key == key)
      return dense[i]->values;
  return {};
}

void Trainer::readRows(const std::string &key, int64_t first, int64_t count,
                       std::span<float> out) const {
  for (const auto &own : tables) {
    if (own->key != key)
      continue;
    const auto elements = static_cast<uint64_t>(count * own->table.columns);
    std::vector<std::byte> rows(elements * dtypeBlockBytes(own->table.dtype));
    own->optimizer->exportRows(first, count, rows.data());
    return decodeToF32(own->table.dtype, rows.data(), elements, out.data());
  }
  fail("{}: no table that is trained", key);
}
