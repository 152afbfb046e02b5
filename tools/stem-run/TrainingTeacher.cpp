//===- TrainingTeacher.cpp - The model that a run distils from ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainingTeacher.h"

#include "EngineMemory.h"

#include "stem/Data/TextShard.h"
#include "stem/Support/Error.h"

#include <span>

using namespace stem;

namespace {

/// Empty for a model without a tokenizer.
std::string tokenizerHash(const Checkpoint &checkpoint) {
  if (!checkpoint.gguf() &&
      !std::filesystem::exists(checkpoint.path() / "tokenizer.json"))
    return {};
  return tokenizerSha256(checkpoint);
}

EngineOptions withType(EngineOptions options, DType type) {
  options.dtype = type;
  if (!options.dumpDirectory.empty())
    options.dumpDirectory /= "teacher";
  return options;
}

} // namespace

void stem::requireTeacher(const Checkpoint &student,
                          const Checkpoint &teacher) {
  if (student.config().vocabSize != teacher.config().vocabSize)
    fail("--distill={}: the teacher's vocabulary has {} tokens, that of {} has "
         "{}; distillation compares the two distributions token by token: give "
         "a teacher with the same vocabulary",
         teacher.path().string(), teacher.config().vocabSize,
         student.path().string(), student.config().vocabSize);
  const std::string own = tokenizerHash(student),
                    other = tokenizerHash(teacher);
  if (!own.empty() && !other.empty() && own != other)
    fail("--distill={}: the teacher's tokenizer is another one than that of {} "
         "(SHA-256 {}… and {}…): the same id would be another token; give a "
         "teacher with the same tokenizer",
         teacher.path().string(), student.path().string(), other.substr(0, 12),
         own.substr(0, 12));
}

TrainingTeacher::TrainingTeacher(const Checkpoint &checkpoint,
                                 EngineOptions engine, DType type, int64_t tile)
    : checkpoint(checkpoint),
      runner(checkpoint, withType(std::move(engine), type)) {
  runner.compile([&](mlir::MLIRContext &context, const GraphOptions &options) {
    GraphOptions graph = options;
    graph.entries = GraphEntries::Hidden;
    graph.tokenTile = tile;
    return buildModelGraph(context, checkpoint.config(), checkpoint.weights(),
                           checkpoint.tensors(), graph);
  });
  entry = &runner.entry("hidden");
  weights = std::make_unique<EngineWeights>(std::span(&entry, 1),
                                            runner.module->tables());
}

GraphTeacher TrainingTeacher::graph(const Checkpoint &checkpoint) {
  return {static_cast<int64_t>(checkpoint.config().hiddenSize),
          "teacher/" + checkpoint.weights().head};
}

int64_t TrainingTeacher::weightBytes() const {
  return weights->parameterBytes() + weights->tableBytes();
}

int64_t TrainingTeacher::stateBytes(int64_t count) const {
  const int64_t element =
      runner.report.dtype == DType::BF16 ? sizeof(uint16_t) : sizeof(float);
  return count * static_cast<int64_t>(checkpoint.config().hiddenSize) * element;
}

int64_t TrainingTeacher::activationBytes(const BatchBound &bound) const {
  return sumOfBytes({stateBytes(bound.tokens),
                     arenaBytes(*entry, bound.tokens, 0, runner.report.threads),
                     ScratchCaches::bytes(*entry, bound)});
}

void TrainingTeacher::load() {
  stem_context *context = runner.context.get();
  weights->load(checkpoint.tensors(), context);
  stem_table_store *made = nullptr;
  throwIfFailed(context, stem_table_store_create(context, nullptr, &made));
  store.reset(made);
  weights->openTables(context, made);
}

stem_tensor TrainingTeacher::run(TiledBatch &batch) {
  stem_context *context = runner.context.get();
  scratch.prepare(context, *entry, batch);
  const int64_t count = batch.tokens();
  if (stateBytes(count) > states.size())
    states = Arena(stateBytes(count), "the teacher's states");
  const stem_tensor result = denseTensor(
      states.data(), runner.report.dtype == DType::BF16 ? STEM_BF16 : STEM_F32,
      {count, static_cast<int64_t>(checkpoint.config().hiddenSize)});
  runner.call(*entry, count, 0, [&](const stem_argument &argument) {
    const std::string name = entry->texts + argument.name;
    if (argument.kind == STEM_ARG_PARAM)
      return weights->tensor(*entry, argument);
    if (argument.kind == STEM_ARG_OUTPUT)
      return result;
    if (argument.kind == STEM_ARG_CACHE)
      return handleTensor(scratch.find(name));
    if (argument.kind == STEM_ARG_STORE)
      return handleTensor(store.get());
    if (const auto tokens = batch.input(name))
      return *tokens;
    fail("{}: the teacher's step takes '{}', which nothing gives", runner.name,
         name);
  });
  return result;
}
