//===- EngineWeightsTest.cpp - Sizes that a module asks for ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EngineWeights.h"
#include "EngineMemory.h"
#include "EngineTestSupport.h"

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t kHuge = int64_t(1) << 62;

/// Of the arguments of every test.
std::string texts;

stem_argument param(const std::string &key,
                    std::initializer_list<int64_t> sizes,
                    int32_t packed = STEM_PLAIN, int32_t dtype = STEM_F32) {
  stem_argument argument = {};
  argument.name = argument.key = static_cast<int64_t>(texts.size());
  texts += key + '\0';
  argument.kind = STEM_ARG_PARAM;
  argument.dtype = dtype;
  argument.packed = packed;
  argument.rank = static_cast<int32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), argument.sizes);
  return argument;
}

EngineWeights layOut(std::vector<stem_argument> arguments,
                     std::vector<stem_table_info> tables = {}) {
  stem_entry entry = {};
  entry.name = "step";
  entry.arguments = arguments.data();
  entry.argument_count = static_cast<int64_t>(arguments.size());
  entry.texts = texts.c_str();
  const stem_entry *entries[] = {&entry};
  return EngineWeights(entries, tables);
}

stem_table_info table(int64_t rows, int64_t columns) {
  return {"t", "t", rows, columns, STEM_BF16, 0};
}

TEST(EngineWeights, SizesAreThoseOfTheParts) {
  const EngineWeights weights = layOut(
      {param("a", {3}), param("b", {5, 8}, STEM_PACKED), param("a", {3})},
      {table(10, 7), table(1, 1)});
  EXPECT_EQ(weights.parameterBytes(), 64 + 5 * STEM_PANEL * 4);
  EXPECT_EQ(weights.tableBytes(), 192 + 64);
}

TEST(EngineWeights, RefusesSizesThatCannotBe) {
  EXPECT_ERROR(layOut({param("a", {-1, 4})}), "damaged", "'a'", "no size",
               "compile it again");
  EXPECT_ERROR(layOut({param("a", {kHuge, 4})}), "'a'", "no size");
  EXPECT_ERROR(layOut({param("a", {kHuge, kHuge, 0})}), "'a'", "no size");
  EXPECT_ERROR(layOut({param("a", {kHuge, 4}, STEM_PACKED)}), "no size");
  EXPECT_ERROR(layOut({param("a", {4}, STEM_PACKED)}), "'a'", "a rank");
  stem_argument wide = param("a", {4});
  wide.rank = STEM_MAX_RANK + 1;
  EXPECT_ERROR(layOut({wide}), "'a'", "a rank");
  wide.rank = -1;
  EXPECT_ERROR(layOut({wide}), "'a'", "a rank");
  EXPECT_ERROR(layOut({param("a", {4}, STEM_PLAIN, STEM_HANDLE)}), "type 5");
  EXPECT_ERROR(layOut({}, {table(-5, 7)}), "'t'", "no size");
  EXPECT_ERROR(layOut({}, {table(kHuge, 4)}), "'t'", "no size");
}

TEST(EngineWeights, RefusesSumsThatCannotBe) {
  const int64_t most = INT64_MAX / 4;
  EXPECT_ERROR(layOut({param("a", {most - 16}), param("b", {most - 16})}),
               "'b'", "does not fit");
  EXPECT_ERROR(layOut({param("a", {most})}), "'a'", "does not fit");
  EXPECT_ERROR(layOut({param("a", {most - 16})}, {table(kHuge / 2, 1)}), "'t'",
               "does not fit");
}

/// What is in the checkpoint does not go beyond what was laid out.
TEST(EngineWeights, RefusesOtherShapesThanTheCheckpoints) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  const ContextPtr context = createContext(1);
  const auto load = [&](EngineWeights weights) {
    weights.load(checkpoint.tensors(), context.get());
  };
  const char *norm = "model.norm.weight";               // 32
  const char *up = "model.layers.0.mlp.up_proj.weight"; // 80 x 32
  load(layOut({param(norm, {32}), param(up, {32, 80}, STEM_PACKED)}));
  EXPECT_ERROR(load(layOut({param(norm, {31})})), norm, "32 elements",
               "takes 31");
  EXPECT_ERROR(load(layOut({param(up, {32, 79}, STEM_PACKED)})), up,
               "2560 elements");
  EXPECT_ERROR(load(layOut({param(up, {80, 32}, STEM_PACKED)})), up,
               "the rows of 80 elements of the packed 80 x 32 matrix");
  load(layOut({param(up, {80, 32}, STEM_PACKED_AS_STORED)}));
  EXPECT_ERROR(load(layOut({param(up, {32, 80}, STEM_PACKED_AS_STORED)})), up,
               "the rows of 80 elements of the packed 32 x 80 matrix");
  stem_table_info wrong = table(95, 80);
  wrong.key = "model.layers.1.mlp.up_table.weight";
  EXPECT_ERROR(load(layOut({}, {wrong})), wrong.key, "takes 7600");
}

/// F16 and I32 are read as they are, so they must be that in the checkpoint.
TEST(EngineWeights, RefusesOtherTypesThanTheCheckpoints) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  const ContextPtr context = createContext(1);
  const auto load = [&](EngineWeights weights) {
    weights.load(checkpoint.tensors(), context.get());
  };
  const char *norm = "model.norm.weight"; // F32
  load(layOut({param(norm, {32}, STEM_PLAIN, STEM_BF16)}));
  for (const auto &[dtype, name] :
       {std::pair(STEM_F16, "F16"), std::pair(STEM_I32, "I32")})
    EXPECT_ERROR(load(layOut({param(norm, {32}, STEM_PLAIN, dtype)})), norm,
                 "type F32", std::string("takes ") + name, "compile it again");
  stem_table_info halves = table(96, 80);
  halves.key = "model.layers.1.mlp.up_table.weight";
  halves.dtype = STEM_F16;
  EXPECT_ERROR(load(layOut({}, {halves})), halves.key, "type F32", "takes F16");
}

/// One parameter in several forms, and the bytes of each.
class Forms {
public:
  explicit Forms(std::vector<stem_argument> given)
      : arguments(std::move(given)) {
    entry.name = "step";
    entry.arguments = arguments.data();
    entry.argument_count = static_cast<int64_t>(arguments.size());
    entry.texts = texts.c_str();
    const stem_entry *entries[] = {&entry};
    weights = std::make_unique<EngineWeights>(
        entries, std::span<const stem_table_info>());
  }

  std::string bytes(size_t argument) const {
    const stem_argument &of = arguments[argument];
    const stem_tensor tensor = weights->tensor(entry, of);
    const void *data = tensor.data;
    if (of.packed) {
      const auto *packed = static_cast<const stem_packed *>(data);
      EXPECT_EQ(packed->dtype, of.dtype);
      EXPECT_EQ(packed->rows, of.sizes[0]);
      EXPECT_EQ(packed->columns, of.sizes[1]);
      data = packed->data;
    }
    return {static_cast<const char *>(data),
            static_cast<size_t>(parameterBytes("form", of))};
  }

  std::vector<stem_argument> arguments;
  stem_entry entry = {};
  std::unique_ptr<EngineWeights> weights;
};

/// In every form what is set has the bytes of what is loaded: plain, packed and
/// packed as stored, in f32 and rounded to bf16.
TEST(EngineWeights, SettingIsLoading) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  const ContextPtr context = createContext(2);
  for (const auto &[key, rows, columns] :
       {std::tuple("model.layers.0.mlp.up_proj.weight", 80, 32),
        std::tuple("model.layers.0.self_attn.k_proj.weight", 16, 32),
        std::tuple("lm_head.weight", 96, 32)})
    for (const int32_t dtype : {STEM_F32, STEM_BF16}) {
      SCOPED_TRACE(std::string(key) + " as type " + std::to_string(dtype));
      const std::vector<stem_argument> arguments = {
          param(key, {rows, columns}, STEM_PLAIN, dtype),
          param(key, {columns, rows}, STEM_PACKED, dtype),
          param(key, {rows, columns}, STEM_PACKED_AS_STORED, dtype)};
      const Forms loaded(arguments), put(arguments);
      loaded.weights->load(checkpoint.tensors(), context.get());
      put.weights->load(checkpoint.tensors(), context.get(), {key});
      std::vector<float> values(static_cast<size_t>(rows) * columns);
      checkpoint.tensors().readF32(key, 0, rows, values.data());
      put.weights->set(key, values, context.get());
      for (size_t form = 0; form < arguments.size(); ++form)
        EXPECT_EQ(put.bytes(form), loaded.bytes(form)) << "form " << form;
      EXPECT_NE(loaded.bytes(1), loaded.bytes(2));
      // Again, over what is there.
      for (float &value : values)
        value = -value;
      put.weights->set(key, values, context.get());
      for (size_t form = 0; form < arguments.size(); ++form)
        EXPECT_NE(put.bytes(form), loaded.bytes(form)) << "form " << form;
    }
}

/// A vector has one form; other keys keep their values.
TEST(EngineWeights, SettingLeavesOthersAlone) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  const ContextPtr context = createContext(1);
  const char *norm = "model.norm.weight";
  const char *other = "model.layers.0.input_layernorm.weight";
  const Forms forms({param(norm, {32}), param(other, {32})});
  forms.weights->load(checkpoint.tensors(), context.get());
  const std::string before = forms.bytes(1);
  const std::vector<float> ones(32, 1.0f);
  forms.weights->set(norm, ones, context.get());
  EXPECT_EQ(forms.bytes(0),
            std::string(reinterpret_cast<const char *>(ones.data()),
                        ones.size() * sizeof(float)));
  EXPECT_EQ(forms.bytes(1), before);
}

TEST(EngineWeights, RefusesToSetOtherTypes) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  const ContextPtr context = createContext(1);
  const Forms forms({param("ids", {4}, STEM_PLAIN, STEM_I32)});
  forms.weights->load(checkpoint.tensors(), context.get(), {"ids"});
  const std::vector<float> values(4);
  EXPECT_ERROR(forms.weights->set("ids", values, context.get()),
               "type 2 cannot be set", "only f32 and bf16 are trained");
}

TEST(MemoryPlan, SumStopsAtTheLargestNumber) {
  MemoryPlan plan;
  plan.weights = 1;
  plan.tables = 2;
  plan.staging = 4;
  plan.kept = 8;
  plan.arena = 16;
  plan.cache = 32;
  plan.logits = 64;
  plan.tablesInFiles = plan.keptIds = 1000; // take no memory
  EXPECT_EQ(plan.total(), 127);
  plan.weights = INT64_MAX;
  EXPECT_EQ(plan.total(), INT64_MAX);
}

TEST(MemoryBound, WhatIsAvailable) {
  const MemoryBound bound(0);
  EXPECT_FALSE(bound.isLimit);
  EXPECT_GT(bound.held, 1 << 20);
  EXPECT_GE(bound.most, bound.held);
  EXPECT_GT(bound.bytes, bound.held);
  bound.require(bound.bytes, "the plan", "take less");
  EXPECT_ERROR(bound.require(INT64_MAX, "a: weights 9.2 EB", "take less"),
               "a: weights 9.2 EB, but ", "are available; take less");
  EXPECT_FALSE(MemoryBound(INT64_MAX).isLimit);
}

/// Of all that the process holds.
TEST(MemoryBound, WhatIsAllowed) {
  const MemoryBound bound(1'000'000);
  EXPECT_TRUE(bound.isLimit);
  EXPECT_EQ(bound.bytes, 1'000'000);
  bound.require(1'000'000, "the plan", "take less");
  EXPECT_ERROR(
      bound.require(1'000'001, "the plan", "take less"),
      "the plan, but --memory allows 1 MB, of which the program holds ",
      "; take less");
}

TEST(MemoryBound, HeapIsTrimmed) {
  // Smaller than what is mapped for itself; the last one keeps the top.
  std::vector<std::unique_ptr<std::vector<char>>> pieces;
  for (int i = 0; i < 1000; ++i)
    pieces.push_back(std::make_unique<std::vector<char>>(100'000, 1));
  const int64_t full = memoryStatus().resident;
  pieces.erase(pieces.begin(), pieces.end() - 1);
  EXPECT_LT(MemoryBound(0).held, full - 90'000'000);
}

} // namespace
