//===- AttentionTest.cpp - Attention of a step among its own tokens -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// stem.attention without a cache, its logarithms and stem.attention_vjp,
// compiled for the host, against the interpreter's double precision.
//
//===----------------------------------------------------------------------===//

#include "stem/Reference/Interpreter.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Module.h"
#include "stem/Runtime/Tensor.h"
#include "stem/Target/HostCompiler.h"

#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <map>

using namespace stem;

namespace {

constexpr int64_t kTile = 64;

struct Shape {
  const char *name;
  int64_t queryHeads, keyHeads, headDim, window;
};

struct Case {
  Shape shape;
  bool isF32;
  stem_isa isa;
};

std::string moduleText(const Shape &shape, bool isF32) {
  return fmt::format(
      R"(
func.func private @layer(%q: tensor<?x{0}x{2}>, %k: tensor<?x{1}x{2}>, %v: tensor<?x{1}x{2}>, %p: tensor<?xi32>, %s: tensor<?xi32>, %out: tensor<?x{0}x{2}> {{stem.output}}) -> tensor<?x{0}x{2}> {{
  %0 = stem.attention %q, %k, %v at %p of %s {{head_dim = {3} : i64, scale = 0.4 : f64, window = {4} : i64}} : tensor<?x{0}x{2}>, tensor<?x{1}x{2}>, tensor<?x{1}x{2}>, tensor<?xi32>, tensor<?xi32> -> tensor<?x{0}x{2}>
  return %0 : tensor<?x{0}x{2}>
}}
func.func @forward(%q: tensor<?x{0}x{2}> {{stem.name = "q", stem.rows = "tokens"}}, %k: tensor<?x{1}x{2}> {{stem.name = "k", stem.rows = "tokens"}}, %v: tensor<?x{1}x{2}> {{stem.name = "v", stem.rows = "tokens"}}, %p: tensor<?xi32> {{stem.name = "positions", stem.rows = "tokens"}}, %s: tensor<?xi32> {{stem.name = "sequences", stem.rows = "tokens"}}, %out: tensor<?x{0}x{2}> {{stem.name = "out", stem.rows = "tokens", stem.output}}) -> tensor<?x{0}x{2}> attributes {{stem.entry, stem.tile = 64 : i64}} {{
  %0 = func.call @layer(%q, %k, %v, %p, %s, %out) : (tensor<?x{0}x{2}>, tensor<?x{1}x{2}>, tensor<?x{1}x{2}>, tensor<?xi32>, tensor<?xi32>, tensor<?x{0}x{2}>) -> tensor<?x{0}x{2}>
  return %0 : tensor<?x{0}x{2}>
}}
func.func @backward(%q: tensor<?x{0}x{2}> {{stem.name = "q", stem.rows = "tokens"}}, %k: tensor<?x{1}x{2}> {{stem.name = "k", stem.rows = "tokens"}}, %v: tensor<?x{1}x{2}> {{stem.name = "v", stem.rows = "tokens"}}, %g: tensor<?x{0}xf32> {{stem.name = "cotangent", stem.rows = "tokens"}}, %p: tensor<?xi32> {{stem.name = "positions", stem.rows = "tokens"}}, %s: tensor<?xi32> {{stem.name = "sequences", stem.rows = "tokens"}}, %dq: tensor<?x{0}xf32> {{stem.name = "dq", stem.rows = "tokens", stem.output}}, %dk: tensor<?x{1}xf32> {{stem.name = "dk", stem.rows = "tokens", stem.output}}, %dv: tensor<?x{1}xf32> {{stem.name = "dv", stem.rows = "tokens", stem.output}}) -> (tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>) attributes {{stem.entry, stem.tile = 64 : i64}} {{
  %0:3 = stem.attention_vjp %q, %k, %v, %g at %p of %s {{head_dim = {3} : i64, scale = 0.4 : f64, window = {4} : i64}} : (tensor<?x{0}x{2}>, tensor<?x{1}x{2}>, tensor<?x{1}x{2}>, tensor<?x{0}xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>)
  return %0#0, %0#1, %0#2 : tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>
}}
func.func @both(%q: tensor<?x{0}x{2}> {{stem.name = "q", stem.rows = "tokens"}}, %k: tensor<?x{1}x{2}> {{stem.name = "k", stem.rows = "tokens"}}, %v: tensor<?x{1}x{2}> {{stem.name = "v", stem.rows = "tokens"}}, %g: tensor<?x{0}xf32> {{stem.name = "cotangent", stem.rows = "tokens"}}, %p: tensor<?xi32> {{stem.name = "positions", stem.rows = "tokens"}}, %s: tensor<?xi32> {{stem.name = "sequences", stem.rows = "tokens"}}, %logarithms: tensor<?x{5}xf32> {{stem.name = "logarithms", stem.rows = "tokens", stem.output}}, %dq: tensor<?x{0}xf32> {{stem.name = "dq", stem.rows = "tokens", stem.output}}, %dk: tensor<?x{1}xf32> {{stem.name = "dk", stem.rows = "tokens", stem.output}}, %dv: tensor<?x{1}xf32> {{stem.name = "dv", stem.rows = "tokens", stem.output}}) -> (tensor<?x{5}xf32>, tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>) attributes {{stem.entry, stem.tile = 64 : i64}} {{
  %o = stem.attention %q, %k, %v at %p of %s {{head_dim = {3} : i64, scale = 0.4 : f64, window = {4} : i64}} : tensor<?x{0}x{2}>, tensor<?x{1}x{2}>, tensor<?x{1}x{2}>, tensor<?xi32>, tensor<?xi32> -> tensor<?x{0}x{2}>
  %l = stem.attention_logsumexp %q, %k at %p of %s {{head_dim = {3} : i64, scale = 0.4 : f64, window = {4} : i64}} : (tensor<?x{0}x{2}>, tensor<?x{1}x{2}>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x{5}xf32>
  %0:3 = stem.attention_vjp %q, %k, %v, %g forward %o, %l at %p of %s {{head_dim = {3} : i64, scale = 0.4 : f64, window = {4} : i64}} : (tensor<?x{0}x{2}>, tensor<?x{1}x{2}>, tensor<?x{1}x{2}>, tensor<?x{0}xf32>, tensor<?x{0}x{2}>, tensor<?x{5}xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>)
  return %l, %0#0, %0#1, %0#2 : tensor<?x{5}xf32>, tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>
}}
)",
      shape.queryHeads * shape.headDim, shape.keyHeads * shape.headDim,
      isF32 ? "f32" : "bf16", shape.headDim, shape.window, shape.queryHeads);
}

/// Tokens of sequences in whole tiles.
struct Batch {
  std::vector<int32_t> positions, sequences;
  std::map<int32_t, int64_t> lengths;

  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
  /// A length of 0: a tile of padding alone.
  void add(int32_t sequence, int64_t length) {
    for (int64_t i = 0; i < std::max<int64_t>(length, 1) || i % kTile; ++i) {
      positions.push_back(i < length ? static_cast<int32_t>(i) : 0);
      sequences.push_back(i < length ? sequence : -1);
    }
    if (length)
      lengths[sequence] = length;
  }
};

uint16_t toBf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}
float fromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

/// The inputs of the tokens, row by row: what a token gets depends on its
/// sequence and position alone. Multiples of 1/64: exact in bf16.
ReferenceTensor makeInput(const Batch &batch, const std::string &name,
                          int64_t columns) {
  ReferenceTensor tensor{{batch.tokens(), columns}, {}};
  SeededStream stream(7, name);
  for (int64_t t = 0; t < batch.tokens(); ++t)
    for (int64_t j = 0; j < columns; ++j)
      tensor.values.push_back(stream.real(
          ((batch.sequences[t] + 1) * 100000 + batch.positions[t]) * columns +
          j));
  return tensor;
}

using Tensors = std::map<std::string, ReferenceTensor>;

/// Both entries, compiled, with their caches.
class CompiledAttention {
public:
  CompiledAttention(const Case &test, int threads)
      : isF32(test.isF32), context(createContext(threads, test.isa)) {
    mlir::DialectRegistry registry;
    registerHostCompiler(registry);
    mlir::MLIRContext mlirContext(registry);
    auto ir = mlir::parseSourceString<mlir::ModuleOp>(
        moduleText(test.shape, isF32), &mlirContext);
    HostCompileOptions options;
    options.target = hostTarget(stem_context_isa(context.get()));
    options.useCache = false;
    compiled = compileForHost(*ir, options);
    module = std::make_unique<Module>(compiled.path.string(), context.get());
  }
  ~CompiledAttention() {
    for (auto &[name, cache] : caches)
      stem_kv_destroy(cache);
  }

  Tensors run(const char *name, const Batch &batch, const Tensors &inputs) {
    const stem_entry *entry = module->find(name);
    std::vector<stem_tensor> arguments;
    std::map<std::string, std::vector<char>> memory;
    for (int64_t i = 0; i < entry->argument_count; ++i) {
      const stem_argument &argument = entry->arguments[i];
      const std::string key = entry->texts + argument.name;
      if (argument.kind == STEM_ARG_CACHE)
        arguments.push_back(handleTensor(prepare(argument, key, batch)));
      else
        arguments.push_back(
            bind(argument, memory[key], value(key, batch, inputs), batch));
    }
    Arena arena(arenaBytes(*entry, batch.tokens(), 0,
                           stem_context_threads(context.get())),
                "the arena");
    throwIfFailed(context.get(),
                  entry->function(context.get(), arguments.data(),
                                  static_cast<int64_t>(arguments.size()),
                                  arena.data(), arena.size()));
    Tensors results;
    for (int64_t i = 0; i < entry->argument_count; ++i)
      if (entry->arguments[i].kind == STEM_ARG_OUTPUT) {
        const std::string key = entry->texts + entry->arguments[i].name;
        results[key] = read(entry->arguments[i], memory[key], batch);
      }
    return results;
  }

private:
  static ReferenceTensor value(const std::string &key, const Batch &batch,
                               const Tensors &inputs) {
    if (auto found = inputs.find(key); found != inputs.end())
      return found->second;
    ReferenceTensor ids{{batch.tokens()}, {}};
    if (key == "positions")
      ids.values.assign(batch.positions.begin(), batch.positions.end());
    if (key == "sequences")
      ids.values.assign(batch.sequences.begin(), batch.sequences.end());
    return ids;
  }

  /// Outputs hold NaN until they are written.
  static stem_tensor bind(const stem_argument &argument,
                          std::vector<char> &memory,
                          const ReferenceTensor &value, const Batch &batch) {
    int64_t sizes[2] = {batch.tokens(), argument.sizes[1]};
    int64_t count = argument.rank == 2 ? sizes[0] * sizes[1] : sizes[0];
    memory.assign(count * elementBytes(argument.dtype), '\xff');
    for (size_t i = 0; i < value.values.size(); ++i)
      if (argument.dtype == STEM_I32)
        reinterpret_cast<int32_t *>(memory.data())[i] =
            static_cast<int32_t>(value.values[i]);
      else if (argument.dtype == STEM_F32)
        reinterpret_cast<float *>(memory.data())[i] =
            static_cast<float>(value.values[i]);
      else
        reinterpret_cast<uint16_t *>(memory.data())[i] =
            toBf16(static_cast<float>(value.values[i]));
    return denseTensor(memory.data(), argument.dtype, sizes, argument.rank);
  }

  static ReferenceTensor read(const stem_argument &argument,
                              const std::vector<char> &memory,
                              const Batch &batch) {
    ReferenceTensor result{{batch.tokens(), argument.sizes[1]}, {}};
    for (int64_t i = 0; i < batch.tokens() * argument.sizes[1]; ++i)
      result.values.push_back(
          argument.dtype == STEM_F32
              ? reinterpret_cast<const float *>(memory.data())[i]
              : fromBf16(reinterpret_cast<const uint16_t *>(memory.data())[i]));
    return result;
  }

  /// A cache as the entry describes it, with room for this step alone.
  stem_kv_cache *prepare(const stem_argument &argument, const std::string &name,
                         const Batch &batch) {
    stem_kv_cache *&cache = caches[name];
    if (!cache) {
      stem_kv_options options = {};
      options.struct_size = sizeof(options);
      options.layers = name == "scratch" ? 2 : argument.sizes[0];
      options.heads = argument.sizes[1] / argument.sizes[2];
      options.head_dim = argument.sizes[2];
      options.max_positions = 1024;
      options.max_sequences = 16;
      options.dtype = argument.element;
      throwIfFailed(context.get(),
                    stem_kv_create(context.get(), &options, &cache));
    }
    for (int32_t sequence = 0; sequence < 16; ++sequence)
      throwIfFailed(context.get(),
                    stem_kv_truncate(context.get(), cache, sequence, 0));
    for (auto [sequence, length] : batch.lengths)
      throwIfFailed(context.get(),
                    stem_kv_reserve(context.get(), cache, sequence, length));
    return cache;
  }

  bool isF32;
  ContextPtr context;
  HostCompileResult compiled;
  std::unique_ptr<Module> module;
  std::map<std::string, stem_kv_cache *> caches;
};

/// What the interpreter makes of the module before any pass.
class ReferenceAttention {
public:
  explicit ReferenceAttention(const Case &test) : mlirContext(registry()) {
    ir = mlir::parseSourceString<mlir::ModuleOp>(
        moduleText(test.shape, test.isF32), &mlirContext);
  }

  Tensors run(const char *name, const Batch &batch, const Tensors &inputs) {
    Interpreter interpreter(*ir);
    auto function = ir->lookupSymbol<mlir::func::FuncOp>(name);
    llvm::SmallVector<ReferenceValue> arguments;
    std::vector<std::string> outputs;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto key =
          function.getArgAttrOfType<mlir::StringAttr>(i, "stem.name").str();
      ReferenceTensor ids{{batch.tokens()}, {}};
      if (key == "positions")
        ids.values.assign(batch.positions.begin(), batch.positions.end());
      if (key == "sequences")
        ids.values.assign(batch.sequences.begin(), batch.sequences.end());
      if (auto found = inputs.find(key); found != inputs.end()) {
        arguments.push_back(found->second);
      } else if (!ids.values.empty()) {
        arguments.push_back(ids);
      } else {
        outputs.push_back(key);
        auto type =
            llvm::cast<mlir::RankedTensorType>(function.getArgumentTypes()[i]);
        ReferenceTensor zeros{{batch.tokens(), type.getDimSize(1)}, {}};
        zeros.values.resize(batch.tokens() * type.getDimSize(1));
        arguments.push_back(zeros);
      }
    }
    auto results = interpreter.run(function, arguments);
    Tensors named;
    if (succeeded(results))
      for (size_t i = 0; i < outputs.size(); ++i)
        named[outputs[i]] = *(*results)[i].tensor;
    return named;
  }

private:
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registerHostCompiler(registry);
    return registry;
  }

  mlir::MLIRContext mlirContext;
  mlir::OwningOpRef<mlir::ModuleOp> ir;
};

class AttentionTest : public testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    if (GetParam().isa > detectIsa())
      GTEST_SKIP() << "this machine does not run " << isaName(GetParam().isa);
  }

  Tensors makeInputs(const Batch &batch) const {
    const Shape &shape = GetParam().shape;
    int64_t queries = shape.queryHeads * shape.headDim,
            keys = shape.keyHeads * shape.headDim;
    return {{"q", makeInput(batch, "q", queries)},
            {"k", makeInput(batch, "k", keys)},
            {"v", makeInput(batch, "v", keys)},
            {"cotangent", makeInput(batch, "cotangent", queries)}};
  }

  /// Of the largest value: f32 sums round at 2^-24 each; in bf16 the
  /// probabilities and what flows back through them have 8 bits.
  double bound() const { return GetParam().isF32 ? 1e-5 : 0.01; }

  /// What the forward gives for padding means nothing.
  static bool isForward(const std::string &name) {
    return name == "out" || name == "logarithms";
  }

  void expectNear(const Tensors &seen, const Tensors &wanted,
                  const Batch &batch) const {
    ASSERT_EQ(seen.size(), wanted.size());
    for (const auto &[name, tensor] : wanted) {
      const ReferenceTensor &result = seen.at(name);
      ASSERT_EQ(result.shape, tensor.shape) << name;
      double largest = 0, worst = 0;
      for (double value : tensor.values)
        largest = std::max(largest, std::abs(value));
      int64_t columns = tensor.shape[1];
      for (int64_t i = 0; i < tensor.size(); ++i) {
        if (batch.sequences[i / columns] < 0 && isForward(name))
          continue;
        double difference = std::abs(result.values[i] - tensor.values[i]);
        worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
      }
      EXPECT_LE(worst, bound() * largest) << name;
      RecordProperty(name, fmt::format("{:.3g}", worst / largest));
    }
  }
};

Batch oddBatch() {
  Batch batch;
  for (auto [sequence, length] :
       {std::pair(3, 130), {0, 1}, {7, 64}, {-1, 0}, {2, 257}, {5, 63}})
    batch.add(sequence, length);
  return batch;
}

TEST_P(AttentionTest, IsNearTheInterpreter) {
  const Batch batch = oddBatch();
  const Tensors inputs = makeInputs(batch);
  CompiledAttention compiled(GetParam(), 2);
  ReferenceAttention reference(GetParam());
  for (const char *entry : {"forward", "backward", "both"}) {
    SCOPED_TRACE(entry);
    expectNear(compiled.run(entry, batch, inputs),
               reference.run(entry, batch, inputs), batch);
  }
}

using AttentionBitsTest = AttentionTest;

/// The values of the tokens of one sequence.
std::vector<double> rowsOf(const ReferenceTensor &tensor, const Batch &batch,
                           int32_t sequence) {
  std::vector<double> values;
  for (int64_t t = 0; t < batch.tokens(); ++t)
    if (batch.sequences[t] == sequence)
      for (int64_t j = 0; j < tensor.shape[1]; ++j)
        values.push_back(tensor.at(t, j));
  return values;
}

TEST_P(AttentionBitsTest, DependOnNeitherThreadsNorOtherSequences) {
  const Batch batch = oddBatch();
  const Tensors inputs = makeInputs(batch);
  CompiledAttention one(GetParam(), 1), three(GetParam(), 3);
  for (const char *entry : {"forward", "backward", "both"}) {
    const Tensors first = one.run(entry, batch, inputs),
                  second = three.run(entry, batch, inputs);
    for (const auto &[name, tensor] : first)
      EXPECT_EQ(tensor.values, second.at(name).values) << name;
    // The caches have held more of these sequences, and others, before.
    for (auto [sequence, length] : batch.lengths) {
      Batch alone;
      alone.add(sequence, length);
      const Tensors again = three.run(entry, alone, makeInputs(alone));
      for (const auto &[name, tensor] : first)
        EXPECT_EQ(rowsOf(tensor, batch, sequence),
                  rowsOf(again.at(name), alone, sequence))
            << name << " of sequence " << sequence;
    }
  }
}

constexpr Shape kMultiHead = {"MultiHead", 3, 3, 16, 0};
constexpr Shape kGrouped = {"Grouped", 6, 2, 64, 0};
constexpr Shape kWindow = {"Window", 4, 2, 32, 70};
constexpr Shape kNarrow = {"NarrowWindow", 2, 1, 96, 5};

std::string caseName(const testing::TestParamInfo<Case> &info) {
  return std::string(info.param.shape.name) +
         (info.param.isF32 ? "_f32_" : "_bf16_") +
         std::string(isaName(info.param.isa));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    testing::Values(Case{kMultiHead, true, STEM_ISA_AVX2},
                    Case{kGrouped, true, STEM_ISA_AVX2},
                    Case{kGrouped, true, STEM_ISA_AVX512},
                    Case{kWindow, true, STEM_ISA_AVX512},
                    Case{kNarrow, true, STEM_ISA_AVX2},
                    Case{kMultiHead, false, STEM_ISA_AVX512_BF16},
                    Case{kGrouped, false, STEM_ISA_AVX2},
                    Case{kGrouped, false, STEM_ISA_AVX512},
                    Case{kGrouped, false, STEM_ISA_AVX512_BF16},
                    Case{kGrouped, false, STEM_ISA_AMX},
                    Case{kWindow, false, STEM_ISA_AMX},
                    Case{kNarrow, false, STEM_ISA_AMX}),
    caseName);

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionBitsTest,
                         testing::Values(Case{kGrouped, true, STEM_ISA_NATIVE},
                                         Case{kWindow, false, STEM_ISA_NATIVE}),
                         caseName);

} // namespace
