//===- EntryCheckTest.cpp - What compiled entries accept ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"

#include <functional>
#include <memory>
#include <regex>

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t kTokens = 128, kOutputs = 3, kWidth = 4, kThreads = 2;

struct CacheDeleter {
  void operator()(stem_kv_cache *cache) const { stem_kv_destroy(cache); }
};
using CachePtr = std::unique_ptr<stem_kv_cache, CacheDeleter>;

CachePtr makeCache(int64_t layers, int64_t heads, int64_t headDim,
                   int32_t dtype) {
  stem_kv_options options = {};
  options.struct_size = sizeof(options);
  options.layers = layers;
  options.heads = heads;
  options.head_dim = headDim;
  options.max_positions = options.max_sequences = 1;
  options.dtype = dtype;
  stem_kv_cache *cache = nullptr;
  EXPECT_EQ(stem_kv_create(nullptr, &options, &cache), STEM_OK);
  return CachePtr(cache);
}

StorePtr makeStore(const std::vector<stem_table_info> &tables) {
  static const float rows[64] = {};
  stem_table_store *store = nullptr;
  EXPECT_EQ(stem_table_store_create(nullptr, nullptr, &store), STEM_OK);
  for (const stem_table_info &table : tables) {
    stem_table_options options = {};
    options.struct_size = sizeof(options);
    options.rows = table.rows;
    options.columns = table.columns;
    options.dtype = table.dtype;
    options.resident = rows;
    options.name = table.name;
    EXPECT_EQ(stem_table_open(nullptr, store, &options), STEM_OK);
  }
  return StorePtr(store);
}

/// An entry with an argument of every kind, and arguments that fit it.
struct Step {
  Step() {
    entry.name = "prefill";
    entry.arguments = described;
    entry.argument_count = std::size(described);
    entry.texts = "ids\0\0x\0w\0l.w\0b\0l.b\0p\0y\0cache\0tables\0labels\0"
                  "output_rows";
    entry.token_tile = 64;
    entry.fixed_bytes = 256;
    entry.bytes_per_token = 16;
    entry.bytes_per_output = 8;
    entry.bytes_per_thread = 64;
    entry.tables = tables.data();
    entry.table_count = static_cast<int64_t>(tables.size());
  }

  void give(CachePtr other) {
    cache = std::move(other);
    arguments[Cache].data = cache.get();
  }
  void give(StorePtr other) {
    store = std::move(other);
    arguments[Store].data = store.get();
  }

  std::string message() {
    int64_t frame = -1;
    status = stem_check_entry(context.get(), &entry, arguments.data(),
                              static_cast<int64_t>(arguments.size()), arena,
                              arenaBytes, &frame);
    frameBytes = frame;
    return status ? stem_context_message(context.get()) : "";
  }

  enum { Ids, X, Weight, Bias, Page, Y, Cache, Store, Labels, OutputRows };
  static constexpr stem_argument described[] = {
      {0, 4, STEM_ARG_INPUT, STEM_I32, 0, 1, {-1}, {}, 10, 1, 1, 0, 0},
      {5, 4, STEM_ARG_INPUT, STEM_F32, 0, 2, {-1, kWidth}, {}, 0, 1, 0, 0, 0},
      {7, 9, STEM_ARG_PARAM, STEM_BF16, 1, 2, {8, 6}, {}, 0, 0, 0, 0, 0},
      {13, 15, STEM_ARG_PARAM, STEM_F32, 0, 1, {kWidth}, {}, 0, 0, 0, 0, 0},
      {19, 4, STEM_ARG_INPUT, STEM_I8, 0, 2, {-1, 2}, {-1, 1}, 0, 0, 0, 0, 0},
      {21, 4, STEM_ARG_OUTPUT, STEM_F32, 0, 2, {-1, kWidth}, {}, 0, 2, 0, 0, 0},
      {23,
       4,
       STEM_ARG_CACHE,
       STEM_HANDLE,
       0,
       3,
       {2, 16, 8},
       {},
       0,
       0,
       0,
       STEM_F32,
       0},
      {29, 4, STEM_ARG_STORE, STEM_HANDLE, 0, 0, {}, {}, 0, 0, 0, 0, 0},
      {36, 4, STEM_ARG_INPUT, STEM_I32, 0, 1, {-1}, {}, 10, 1, 2, 0, 0},
      {43, 4, STEM_ARG_INPUT, STEM_I32, 0, 1, {-1}, {}, 0, 2, 3, 0, 0}};

  std::vector<stem_table_info> tables = {{"t0", "", 10, 4, STEM_F32, 0},
                                         {"t1", "", 10, 6, STEM_BF16, 0}};
  CachePtr cache = makeCache(2, 2, 8, STEM_F32);
  StorePtr store = makeStore(tables);
  ContextPtr context = createContext(kThreads);
  stem_entry entry = {};
  std::vector<int32_t> ids = std::vector<int32_t>(kTokens, 3);
  std::vector<int32_t> labels = std::vector<int32_t>(kTokens, STEM_NO_LABEL);
  std::vector<int32_t> outputRows = {0, kTokens - 1, 5};
  std::vector<float> floats = std::vector<float>(kTokens * kWidth);
  stem_packed packed = {floats.data(), STEM_BF16, 0, 8, 6};
  std::vector<stem_tensor> arguments = {
      {ids.data(), STEM_I32, 1, {kTokens}, {1}},
      {floats.data(), STEM_F32, 2, {kTokens, kWidth}, {kWidth, 1}},
      {&packed, STEM_HANDLE, 0, {}, {}},
      {floats.data(), STEM_F32, 1, {kWidth}, {1}},
      {floats.data(), STEM_I8, 2, {5, 2}, {9, 1}},
      {floats.data(), STEM_F32, 2, {kOutputs, kWidth}, {kWidth, 1}},
      {cache.get(), STEM_HANDLE, 0, {}, {}},
      {store.get(), STEM_HANDLE, 0, {}, {}},
      {labels.data(), STEM_I32, 1, {kTokens}, {1}},
      {outputRows.data(), STEM_I32, 1, {kOutputs}, {1}}};
  alignas(64) std::byte memory[128];
  std::byte *arena = memory;
  int64_t arenaBytes = 256 + kTokens * 16 + kOutputs * 8 + kThreads * 64;
  int64_t frameBytes = -1;
  stem_status status = STEM_OK;
};

TEST(EntryCheck, AcceptsWhatTheEntryDescribes) {
  Step step;
  EXPECT_EQ(step.message(), "");
  EXPECT_EQ(step.frameBytes, 256 + kTokens * 16 + kOutputs * 8);
  step.arguments[Step::Y].sizes[0] = 0;
  step.arguments[Step::Y].data = nullptr;
  step.arguments[Step::OutputRows].sizes[0] = 0;
  step.arguments[Step::OutputRows].data = nullptr;
  EXPECT_EQ(step.message(), "") << "no outputs need no memory";
  step.give(makeCache(5, 2, 8, STEM_F32));
  EXPECT_EQ(step.message(), "") << "layers that the entry does not use";
}

struct Fault {
  std::function<void(Step &)> make;
  stem_status status;
  std::string message;
};

std::ostream &operator<<(std::ostream &stream, const Fault &fault) {
  return stream << fault.message;
}

class EntryCheckFault : public testing::TestWithParam<Fault> {};

TEST_P(EntryCheckFault, IsNamed) {
  Step step;
  GetParam().make(step);
  std::string message = std::regex_replace(
      step.message(), std::regex("0x[0-9a-f]{4,}"), "ADDRESS");
  EXPECT_EQ(message, GetParam().message);
  EXPECT_EQ(step.status, GetParam().status);
}

Fault invalid(std::function<void(Step &)> make, std::string message) {
  return {std::move(make), STEM_INVALID_ARGUMENT, std::move(message)};
}

const Fault faults[] = {
    invalid([](Step &s) { s.arguments[Step::X].dtype = STEM_BF16; },
            "prefill: argument 'x' is bf16 [128, 4], expected f32 [?, 4]"),
    invalid([](Step &s) { s.arguments[Step::X].sizes[1] = 5; },
            "prefill: argument 'x' is f32 [128, 5], expected f32 [?, 4]"),
    invalid([](Step &s) { s.arguments[Step::X].sizes[0] = -1; },
            "prefill: argument 'x' is f32 [?, 4], expected f32 [?, 4]"),
    invalid([](Step &s) { s.arguments[Step::Y].rank = 1; },
            "prefill: argument 'y' is f32 [3], expected f32 [?, 4]"),
    invalid([](Step &s) { s.arguments[Step::Y].rank = 1000; },
            "prefill: argument 'y' is f32 [3, 4, 0, 0], expected f32 [?, 4]"),
    invalid([](Step &s) { s.arguments[Step::X].data = nullptr; },
            "prefill: argument 'x' has no data"),
    invalid([](Step &s) { s.arguments[Step::X].strides[0] = 8; },
            "prefill: argument 'x' has stride 8 in dimension 0, expected 4"),
    invalid([](Step &s) { s.arguments[Step::Page].strides[1] = 2; },
            "prefill: argument 'p' has stride 2 in dimension 1, expected 1"),
    invalid([](Step &s) { s.arguments[Step::Page].sizes[0] = INT64_MAX; },
            "prefill: argument 'p' is too large: i8 [9223372036854775807, 2]"),
    invalid([](Step &s) { s.arguments[Step::X].sizes[0] = 64; },
            "prefill: argument 'x' has 64 rows, but other arguments have 128"),
    invalid([](Step &s) { s.arguments[Step::Ids].sizes[0] = 0; },
            "prefill: argument 'ids' has 0 rows, expected a positive multiple "
            "of 64"),
    invalid([](Step &s) { s.arguments[Step::Ids].sizes[0] = 65; },
            "prefill: argument 'ids' has 65 rows, expected a positive "
            "multiple of 64"),
    invalid([](Step &s) { s.arguments[Step::Y].sizes[0] = int64_t(1) << 31; },
            "prefill: argument 'y' has 2147483648 rows; the most is "
            "2147483647"),
    invalid([](Step &s) { s.packed.columns = 7; },
            "prefill: argument 'w' is a packed bf16 matrix of 8 x 7 at "
            "address ADDRESS, expected bf16 of 8 x 6"),
    invalid([](Step &s) { s.arguments[Step::Cache].data = nullptr; },
            "prefill: argument 'cache' is handle at address 0x0, expected a "
            "handle"),
    invalid([](Step &s) { s.arguments[Step::Cache].dtype = 77; },
            "prefill: argument 'cache' is unknown type at address ADDRESS, "
            "expected a handle"),
    invalid([](Step &s) { s.arguments.pop_back(); },
            "prefill got 9 arguments at address ADDRESS, expected 10"),
    invalid([](Step &s) { s.give(makeCache(1, 2, 8, STEM_F32)); },
            "prefill: argument 'cache' is a cache of 1 layers of f32 with rows "
            "of 16 in heads of 8, expected at least 2 layers of f32 with rows "
            "of 16 in heads of 8"),
    invalid([](Step &s) { s.give(makeCache(2, 4, 8, STEM_F32)); },
            "prefill: argument 'cache' is a cache of 2 layers of f32 with rows "
            "of 32 in heads of 8, expected at least 2 layers of f32 with rows "
            "of 16 in heads of 8"),
    invalid([](Step &s) { s.give(makeCache(2, 4, 4, STEM_F32)); },
            "prefill: argument 'cache' is a cache of 2 layers of f32 with rows "
            "of 16 in heads of 4, expected at least 2 layers of f32 with rows "
            "of 16 in heads of 8"),
    invalid([](Step &s) { s.give(makeCache(2, 2, 8, STEM_BF16)); },
            "prefill: argument 'cache' is a cache of 2 layers of bf16 with "
            "rows of 16 in heads of 8, expected at least 2 layers of f32 with "
            "rows of 16 in heads of 8"),
    invalid([](Step &s) { s.give(makeStore({s.tables[0]})); },
            "prefill: argument 'tables' is a store of 1 tables, expected 2"),
    invalid(
        [](Step &s) {
          s.give(makeStore(
              {{"a", "", 10, 4, STEM_F32, 0}, {"b", "", 10, 5, STEM_BF16, 0}}));
        },
        "prefill: argument 'tables' has as table 1 'b', bf16 [10, 5], expected "
        "'t1', bf16 [10, 6]"),
    invalid(
        [](Step &s) {
          s.give(makeStore({{"a", "", 9, 4, STEM_F32, 0}, s.tables[1]}));
        },
        "prefill: argument 'tables' has as table 0 'a', f32 [9, 4], expected "
        "'t0', f32 [10, 4]"),
    invalid(
        [](Step &s) {
          s.give(makeStore({{"a", "", 10, 4, STEM_F16, 0}, s.tables[1]}));
        },
        "prefill: argument 'tables' has as table 0 'a', f16 [10, 4], expected "
        "'t0', f32 [10, 4]"),
    invalid([](Step &s) { s.arena += 8; },
            "prefill: the arena at ADDRESS is not aligned to 64 bytes"),
    {[](Step &s) { --s.arenaBytes; }, STEM_OUT_OF_MEMORY,
     "prefill: the arena has 2455 bytes, but this step takes 2456"},
    {[](Step &s) { s.ids[7] = 10; }, STEM_OUT_OF_RANGE,
     "prefill: 'ids' has 10 at position 7, which is out of range: expected 0 "
     "to 9"},
    {[](Step &s) { s.ids[127] = -1; }, STEM_OUT_OF_RANGE,
     "prefill: 'ids' has -1 at position 127, which is out of range: expected "
     "0 to 9"},
    {[](Step &s) { s.labels[2] = 10; }, STEM_OUT_OF_RANGE,
     "prefill: 'labels' has 10 at position 2, which is out of range: expected "
     "0 to 9 or -100"},
    {[](Step &s) { s.labels[2] = -99; }, STEM_OUT_OF_RANGE,
     "prefill: 'labels' has -99 at position 2, which is out of range: expected "
     "0 to 9 or -100"},
    {[](Step &s) { s.outputRows[1] = kTokens; }, STEM_OUT_OF_RANGE,
     "prefill: 'output_rows' has 128 at position 1, which is out of range: "
     "expected 0 to 127"},
    {[](Step &s) { s.outputRows[2] = STEM_NO_LABEL; }, STEM_OUT_OF_RANGE,
     "prefill: 'output_rows' has -100 at position 2, which is out of range: "
     "expected 0 to 127"},
    {[](Step &s) { s.entry.fixed_bytes = INT64_MAX; }, STEM_INTERNAL,
     "stem_check_entry: entry 'prefill' of the compiled module asks for "
     "9223372036854775807 bytes and 16 for each of 128 tokens, 8 for each of 3 "
     "outputs, 64 for each of 2 threads, which is no size; the module is "
     "damaged, compile it again"},
};

INSTANTIATE_TEST_SUITE_P(All, EntryCheckFault, testing::ValuesIn(faults));

TEST(EntryCheck, TakesAnyCacheWhereTheCodeUsesNone) {
  Step step;
  stem_argument described[std::size(Step::described)];
  std::copy(std::begin(Step::described), std::end(Step::described), described);
  step.entry.arguments = described;
  stem_argument &cache = described[Step::Cache];
  cache.sizes[0] = 0;
  cache.sizes[1] = cache.sizes[2] = cache.element = -1;
  step.give(makeCache(1, 3, 5, STEM_BF16));
  EXPECT_EQ(step.message(), "");
  cache.sizes[0] = 2;
  EXPECT_EQ(step.message(),
            "prefill: argument 'cache' is a cache of 1 layers of bf16 with "
            "rows of 15 in heads of 5, expected at least 2 layers of any type "
            "with rows of ? in heads of ?");
}

/// A description that tests change.
struct OtherStep : Step {
  OtherStep() {
    std::copy(std::begin(Step::described), std::end(Step::described), own);
    entry.arguments = own;
  }
  stem_argument own[std::size(Step::described)];
};

TEST(EntryCheck, NumbersOfOutputsAreBelowTheirRows) {
  OtherStep step;
  step.own[Step::Labels].ids = STEM_IDS_OUTPUTS;
  step.own[Step::Labels].id_bound = 0;
  for (size_t i = 0; i < step.labels.size(); ++i)
    step.labels[i] = static_cast<int32_t>(i % kOutputs);
  EXPECT_EQ(step.message(), "");
  step.labels[5] = kOutputs;
  EXPECT_EQ(step.message(),
            "prefill: 'labels' has 3 at position 5, which is out of range: "
            "expected 0 to 2");
  EXPECT_EQ(step.status, STEM_OUT_OF_RANGE);
  step.labels[5] = STEM_NO_LABEL;
  EXPECT_EQ(step.message(),
            "prefill: 'labels' has -100 at position 5, which is out of range: "
            "expected 0 to 2");
}

/// Of a square matrix both directions have the same sizes: the caller packs
/// what the entry describes.
TEST(EntryCheck, APackedMatrixAsStored) {
  OtherStep step;
  step.own[Step::Weight].packed = STEM_PACKED_AS_STORED;
  EXPECT_EQ(step.message(), "");
  std::swap(step.packed.rows, step.packed.columns);
  EXPECT_EQ(std::regex_replace(step.message(), std::regex("0x[0-9a-f]{4,}"),
                               "ADDRESS"),
            "prefill: argument 'w' is a packed bf16 matrix of 6 x 8 at "
            "address ADDRESS, expected bf16 of 8 x 6");
}

TEST(EntryCheck, NeedsAContext) {
  Step step;
  int64_t frame;
  EXPECT_EQ(stem_check_entry(nullptr, &step.entry, step.arguments.data(), 10,
                             nullptr, 0, &frame),
            STEM_INVALID_ARGUMENT);
}

} // namespace
