//===- DistillationTest.cpp - A step that follows a teacher ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The golden STEM model with teachers of other widths, against the interpreter.
//
//===----------------------------------------------------------------------===//

#include "CompiledStep.h"
#include "EngineTestSupport.h"
#include "InterpretedStep.h"

#include <map>
#include <nlohmann/json.hpp>

using namespace stem;
using namespace stem::test;

namespace {

/// Of the largest value of a gradient. In bf16 weights, activations, the
/// teacher's states and what products multiply have 8 bits, and the interpreter
/// rounds weights alone.
constexpr double kBound = 1e-5, kBF16Bound = 0.06;

/// A dense model of two layers whose weights have no pattern.
class WideTeacher {
public:
  explicit WideTeacher(bool isTied, size_t vocab = kVocab) {
    const size_t d = 48, f = 72, keys = 16;
    add("model.embed_tokens.weight", {vocab, d});
    add("model.norm.weight", {d});
    if (!isTied)
      add("lm_head.weight", {vocab, d});
    for (int i = 0; i < 2; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      add(layer + "input_layernorm.weight", {d});
      add(layer + "post_attention_layernorm.weight", {d});
      add(layer + "self_attn.q_proj.weight", {d, d});
      add(layer + "self_attn.k_proj.weight", {keys, d});
      add(layer + "self_attn.v_proj.weight", {keys, d});
      add(layer + "self_attn.o_proj.weight", {d, d});
      add(layer + "mlp.gate_proj.weight", {f, d});
      add(layer + "mlp.up_proj.weight", {f, d});
      add(layer + "mlp.down_proj.weight", {d, f});
    }
    const nlohmann::json config = {{"model_type", "llama"},
                                   {"architectures", {"LlamaForCausalLM"}},
                                   {"hidden_act", "silu"},
                                   {"hidden_size", d},
                                   {"intermediate_size", f},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 3},
                                   {"num_key_value_heads", 1},
                                   {"max_position_embeddings", 256},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_theta", 10000.0},
                                   {"tie_word_embeddings", isTied},
                                   {"torch_dtype", "float32"},
                                   {"vocab_size", vocab}};
    writeText(folder.path() / "config.json", config.dump());
    writeText(folder.path() / "model.safetensors",
              safetensors(header.dump(), data));
  }

  std::filesystem::path path() const { return folder.path(); }

private:
  void add(const std::string &name, const std::vector<size_t> &shape) {
    size_t count = 1;
    for (const size_t size : shape)
      count *= size;
    const size_t first = data.size();
    for (; count > 0; --count) {
      state = state * 1664525 + 1013904223;
      data += raw(0.6f * (static_cast<float>(state >> 8) / (1 << 24) - 0.5f));
    }
    header[name] = {{"dtype", "F32"},
                    {"shape", shape},
                    {"data_offsets", {first, data.size()}}};
  }

  TemporaryFolder folder;
  nlohmann::json header;
  std::string data;
  uint32_t state = 11;
};

/// Rows of `length` tokens; the last of each, and every fifth, has no label.
Batch makeBatch(int64_t rows, int64_t length) {
  Batch batch;
  batch.rows = rows;
  batch.length = length;
  batch.ids = someIds(static_cast<size_t>(rows * length), 5);
  for (int64_t i = 0; i < rows * length; ++i) {
    const bool hasLabel = i % length + 1 < length && i % 5 != 2;
    batch.positions.push_back(static_cast<int32_t>(i % length));
    batch.sequences.push_back(static_cast<int32_t>(i / length));
    batch.labels.push_back(hasLabel ? batch.ids[i + 1] : kNoLabel);
    batch.labelCount += hasLabel;
  }
  return batch;
}

struct Result {
  double nll, divergence;
  std::map<std::string, std::vector<float>> gradients;
};

class DistillationTest : public testing::Test {
protected:
  TrainingStepOptions options(const Checkpoint *teacher, double weight) const {
    TrainingStepOptions options;
    options.engine.dtype = type;
    options.engine.threads = 2;
    options.teacher = teacher;
    options.teacherWeight = weight;
    options.tokens = batch.places();
    options.rows = batch.rows;
    return options;
  }

  void load(TrainingStep &step) const {
    step.load();
    for (size_t i = 0; i < step.parameters().size(); ++i) {
      const TrainingStep::Parameter &parameter = step.parameters()[i];
      const TensorSource &tensors = student.tensors();
      std::vector<float> values(static_cast<size_t>(parameter.elements()));
      tensors.readF32(parameter.key, 0, tensors.get(parameter.key).rows(),
                      values.data());
      step.setParameter(i, values);
    }
  }

  Result run(TrainingStep &step) const {
    load(step);
    Result result;
    result.nll = step.run(batch, 1.0f / static_cast<float>(batch.labelCount));
    result.divergence = step.divergence();
    for (size_t i = 0; i < step.parameters().size(); ++i) {
      const auto gradient = step.gradient(i);
      result.gradients[step.parameters()[i].key] = {gradient.begin(),
                                                    gradient.end()};
    }
    for (size_t i = 0; i < step.tables().size(); ++i) {
      const auto rows = step.tableGradient(i).rows;
      result.gradients[step.tables()[i].key] = {rows.begin(), rows.end()};
    }
    EXPECT_NEAR(step.evaluate(batch), result.nll, std::abs(result.nll) * 1e-5);
    EXPECT_NEAR(step.divergence(), result.divergence,
                std::abs(result.nll) * 1e-5);
    return result;
  }

  Result compiled(const Checkpoint *teacher, double weight) const {
    CompiledStep step(student, options(teacher, weight));
    return run(step);
  }
  Result interpreted(const Checkpoint *teacher, double weight) const {
    return run(*makeInterpretedStep(student, options(teacher, weight)));
  }

  static float largest(const std::vector<float> &values) {
    float most = 0;
    for (const float value : values)
      most = std::max(most, std::abs(value));
    return most;
  }

  static void expectNear(const Result &seen, const Result &wanted,
                         double bound) {
    EXPECT_NEAR(seen.nll, wanted.nll, std::abs(wanted.nll) * bound);
    EXPECT_NEAR(seen.divergence, wanted.divergence,
                std::abs(wanted.divergence) * bound);
    ASSERT_EQ(seen.gradients.size(), wanted.gradients.size());
    for (const auto &[key, gradient] : wanted.gradients) {
      SCOPED_TRACE(key);
      EXPECT_GT(largest(gradient), 0) << "a test of zeros says nothing";
      EXPECT_LE(largestDifference(seen.gradients.at(key), gradient) /
                    largest(gradient),
                bound);
    }
  }

  Checkpoint student = Checkpoint::open(goldenFolder("stem_llama"));
  Batch batch = makeBatch(2, 70);
  DType type = DType::F32;
};

TEST_F(DistillationTest, DivergenceAloneInF32) {
  const WideTeacher folder(/*isTied=*/false);
  const Checkpoint teacher = Checkpoint::open(folder.path());
  const Result wanted = interpreted(&teacher, 1);
  EXPECT_GT(wanted.divergence, 1);
  expectNear(compiled(&teacher, 1), wanted, kBound);
}

TEST_F(DistillationTest, BothLossesOfATiedTeacherInF32) {
  const WideTeacher folder(/*isTied=*/true);
  const Checkpoint teacher = Checkpoint::open(folder.path());
  expectNear(compiled(&teacher, 0.25), interpreted(&teacher, 0.25), kBound);
}

TEST_F(DistillationTest, BothLossesInBF16) {
  type = DType::BF16;
  const WideTeacher folder(/*isTied=*/false);
  const Checkpoint teacher = Checkpoint::open(folder.path());
  expectNear(compiled(&teacher, 0.5), interpreted(&teacher, 0.5), kBF16Bound);
}

TEST_F(DistillationTest, AWeightOfZeroIsTheStepWithoutATeacher) {
  const Checkpoint teacher = Checkpoint::open(goldenFolder("llama_gqa"));
  const Result seen = compiled(&teacher, 0), wanted = compiled(nullptr, 0);
  EXPECT_GT(seen.divergence, 0);
  EXPECT_EQ(wanted.divergence, 0);
  EXPECT_EQ(seen.nll, wanted.nll);
  for (const auto &[key, gradient] : wanted.gradients)
    EXPECT_EQ(largestDifference(seen.gradients.at(key), gradient), 0) << key;
}

TEST_F(DistillationTest, AStudentThatIsItsTeacher) {
  const Result seen = compiled(&student, 1), labels = compiled(nullptr, 0);
  EXPECT_NEAR(seen.divergence, 0, labels.nll * 1e-6);
  for (const auto &[key, gradient] : labels.gradients)
    EXPECT_LE(largest(seen.gradients.at(key)), 1e-5 * largest(gradient)) << key;
}

TEST_F(DistillationTest, WithoutLabelsNothingIsCompared) {
  std::ranges::fill(batch.labels, kNoLabel);
  batch.labelCount = 0;
  const Checkpoint teacher = Checkpoint::open(goldenFolder("llama_gqa"));
  CompiledStep step(student, options(&teacher, 0.5));
  load(step);
  EXPECT_EQ(step.evaluate(batch), 0);
  EXPECT_EQ(step.divergence(), 0);
}

TEST_F(DistillationTest, PlansTheTeachersMemory) {
  const WideTeacher folder(/*isTied=*/false);
  const Checkpoint teacher = Checkpoint::open(folder.path());
  const CompiledStep with(student, options(&teacher, 1));
  const CompiledStep without(student, options(nullptr, 1));
  const BatchBound bound = boundOfRows(2, 9, with.tokenTile());
  EXPECT_EQ(without.memory(bound).teacher, 0);
  EXPECT_GT(with.memory(bound).teacher, 2 * 4 * 48 * 72);
  EXPECT_GE(with.memory(bound).weights - without.memory(bound).weights,
            4 * 48 * 96);
}

TEST_F(DistillationTest, AnotherVocabularyIsRefused) {
  const WideTeacher folder(/*isTied=*/true, 100);
  const Checkpoint teacher = Checkpoint::open(folder.path());
  try {
    CompiledStep step(student, options(&teacher, 1));
    FAIL() << "it was taken";
  } catch (const Error &error) {
    const std::string what = error.what();
    for (const char *part : {"vocabulary has 100 tokens", "has 96",
                             "give a teacher with the same vocabulary"})
      EXPECT_NE(what.find(part), std::string::npos) << what;
  }
}

} // namespace
