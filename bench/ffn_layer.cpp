//===- ffn_layer.cpp - One FFN layer, compiled, against its products ------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A dense and a STEM FFN layer of 4096 tokens, d 2048, d_ff 8192, bf16, each
// compiled by the host pipeline; and the same matrix products alone, tile by
// tile on the same threads. Prints JSON lines:
//   build/bench/bin/ffn_layer [tokens d d_ff]
// share_of_products: of the rate of the layer's matrix products alone;
// stem_speedup: how many times as fast the STEM layer is as the dense one (the
// FLOP ratio is 1.5). select_P: the same layer where P percent of the tokens
// keep the up-projection. Medians of interleaved pairs with 95 % intervals.
//
//===----------------------------------------------------------------------===//

#include "Pairs.h"

#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Machine.h"
#include "stem/Runtime/Module.h"
#include "stem/Runtime/Pack.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Runtime/Tensor.h"
#include "stem/Support/Error.h"
#include "stem/Target/HostCompiler.h"

#include "mlir/Parser/Parser.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

using namespace stem;

namespace {

constexpr int64_t kTile = 64;
constexpr int64_t kTrainingTile = 128; // Of the step of a training.
constexpr int64_t kDepth = 2048;       // Tokens of one sum of a gradient.
constexpr int64_t kTableRows = 32000;

struct Sizes {
  int64_t tokens, d, f;
};

/// What makes the up-projection's values.
struct Up {
  bool isDense = false;
  /// Forward and backward, with the gradients of all weights and rows.
  bool isTrained = false;
  /// Percent of the tokens that multiply, where a table has the others.
  std::optional<int64_t> selected = {};
};

int32_t idOf(int64_t token) {
  return static_cast<int32_t>(token * 7919 % kTableRows);
}

/// The ids of so many percent of the tokens, and those that no token has: the
/// list is long whatever the share.
std::vector<int32_t> selectedIds(const Sizes &sizes, int64_t percent) {
  std::vector<bool> leftOut(kTableRows);
  for (int64_t token = 0; token < sizes.tokens; ++token)
    leftOut[idOf(token)] = idOf(token) % 100 >= percent;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < kTableRows; ++id)
    if (!leftOut[id])
      ids.push_back(id);
  return ids;
}

std::string paramsText(const Sizes &s, const Up &up) {
  std::string text =
      fmt::format("stem.param @gate = \"gate\" : tensor<{1}x{0}xbf16>\n"
                  "stem.param @down = \"down\" : tensor<{0}x{1}xbf16>\n"
                  "stem.param @norm = \"norm\" : tensor<{0}xf32>\n",
                  s.d, s.f);
  if (!up.isDense)
    text += fmt::format("stem.table @rows = \"rows\" : "
                        "!stem.table<{}x{}xbf16>\n",
                        kTableRows, s.f);
  if (up.isDense || up.selected)
    text += fmt::format("stem.param @up = \"up\" : tensor<{1}x{0}xbf16>\n", s.d,
                        s.f);
  if (up.selected)
    text += fmt::format("stem.param @selected = \"selected\" : "
                        "tensor<{}xi32>\n",
                        selectedIds(s, *up.selected).size());
  return text;
}

/// %y of the FFN, from %n.
std::string ffnText(const Sizes &s, const Up &up) {
  if (up.isDense)
    return fmt::format(
        "%up = stem.param_load @up : tensor<{1}x{0}xbf16>\n"
        "%y = stem.dense_ffn %n gate %gate up %up down %down : "
        "(tensor<?x{0}xbf16>, tensor<{1}x{0}xbf16>, tensor<{1}x{0}xbf16>, "
        "tensor<{0}x{1}xbf16>) -> tensor<?x{0}xf32>\n",
        s.d, s.f);
  const char *rows = up.selected ? "f32" : "bf16";
  std::string text = fmt::format(
      "%t = stem.table_load @rows : !stem.table<{2}x{0}xbf16>\n"
      "%rows, %index = stem.table_rows %t, %ids : !stem.table<{2}x{0}xbf16>, "
      "tensor<?xi32> -> tensor<?x{0}xbf16>, tensor<?xi32>\n"
      "%u{3} = stem.lookup %rows, %index : tensor<?x{0}xbf16>, tensor<?xi32> "
      "-> tensor<?x{0}x{1}>\n",
      s.f, rows, kTableRows, up.selected ? "0" : "");
  if (up.selected)
    text += fmt::format(
        "%up = stem.param_load @up : tensor<{0}x{1}xbf16>\n"
        "%s = stem.param_load @selected : tensor<{2}xi32>\n"
        "%u = stem.select_up %u0, %n weight %up ids %ids in %s : "
        "(tensor<?x{0}xf32>, tensor<?x{1}xbf16>, tensor<{0}x{1}xbf16>, "
        "tensor<?xi32>, tensor<{2}xi32>) -> tensor<?x{0}xf32>\n",
        s.f, s.d, selectedIds(s, *up.selected).size());
  return text +
         fmt::format("%y = stem.gated_ffn %n gate %gate rows %u down %down : "
                     "(tensor<?x{2}xbf16>, tensor<{0}x{2}xbf16>, "
                     "tensor<?x{0}x{1}>, tensor<{2}x{0}xbf16>) -> "
                     "tensor<?x{2}xf32>\n",
                     s.f, rows, s.d);
}

std::string layerText(const Sizes &s, const Up &up) {
  return paramsText(s, up) +
         fmt::format(
             "func.func @layer(%ids: tensor<?xi32> {{stem.name = \"ids\", "
             "stem.rows = \"tokens\", stem.id_bound = {2} : i64}}, "
             "%x: tensor<?x{0}xf32> {{stem.name = \"x\", "
             "stem.rows = \"tokens\"}}, %out: tensor<?x{0}xf32> "
             "{{stem.name = \"out\", stem.rows = \"tokens\", stem.output}}) -> "
             "tensor<?x{0}xf32> attributes {{stem.entry, stem.tile = {3} : "
             "i64}} {{\n"
             "%gate = stem.param_load @gate : tensor<{1}x{0}xbf16>\n"
             "%down = stem.param_load @down : tensor<{0}x{1}xbf16>\n"
             "%norm = stem.param_load @norm : tensor<{0}xf32>\n"
             "%n = stem.rms_norm %x, %norm {{eps = 1.0e-5 : f64}} : "
             "tensor<?x{0}xf32>, tensor<{0}xf32> -> tensor<?x{0}xbf16>\n"
             "{4}return %y : tensor<?x{0}xf32>\n}}\n",
             s.d, s.f, kTableRows, kTile, ffnText(s, up));
}

/// The layer as a function that is derived.
std::string trainedText(const Sizes &s, const Up &up) {
  const std::string matrix = fmt::format("tensor<{}x{}xbf16>", s.f, s.d);
  const std::string passed =
      up.isDense ? matrix
                 : fmt::format("tensor<?x{}xbf16>, tensor<?xi32>", s.f);
  const std::string signature =
      fmt::format("(tensor<?x{0}xf32>, tensor<{0}xf32>, {2}, "
                  "tensor<{0}x{1}xbf16>, {3}) -> tensor<?x{0}xf32>",
                  s.d, s.f, matrix, passed);
  std::string text = paramsText(s, up);
  text += fmt::format(
      "func.func private @ffn(%x: tensor<?x{0}xf32>, %norm: tensor<{0}xf32>, "
      "%gate: {2}, %down: tensor<{0}x{1}xbf16>, {3}) -> tensor<?x{0}xf32> {{\n"
      "%n = stem.rms_norm %x, %norm {{eps = 1.0e-5 : f64}} : "
      "tensor<?x{0}xf32>, tensor<{0}xf32> -> tensor<?x{0}xbf16>\n",
      s.d, s.f, matrix,
      up.isDense ? "%up: " + matrix
                 : fmt::format(
                       "%rows: tensor<?x{}xbf16>, %index: tensor<?xi32>", s.f));
  if (up.isDense)
    text += fmt::format("%y = stem.dense_ffn %n gate %gate up %up down %down : "
                        "(tensor<?x{0}xbf16>, {2}, {2}, "
                        "tensor<{0}x{1}xbf16>) -> tensor<?x{0}xf32>\n",
                        s.d, s.f, matrix);
  else
    text += fmt::format(
        "%u = stem.lookup %rows, %index : {3} -> tensor<?x{1}xbf16>\n"
        "%y = stem.gated_ffn %n gate %gate rows %u down %down : "
        "(tensor<?x{0}xbf16>, {2}, tensor<?x{1}xbf16>, tensor<{0}x{1}xbf16>) "
        "-> tensor<?x{0}xf32>\n",
        s.d, s.f, matrix, passed);
  text += fmt::format(
      "return %y : tensor<?x{0}xf32>\n}}\n"
      "func.func @layer(%ids: tensor<?xi32> {{stem.name = \"ids\", "
      "stem.rows = \"tokens\", stem.id_bound = {2} : i64}}, "
      "%x: tensor<?x{0}xf32> {{stem.name = \"x\", stem.rows = \"tokens\"}}, "
      "%out: tensor<?x{0}xf32> {{stem.name = \"out\", "
      "stem.rows = \"tokens\", stem.output}}) -> tensor<?x{0}xf32> "
      "attributes {{stem.entry, stem.tile = {3} : i64}} {{\n"
      "%gate = stem.param_load @gate : {4}\n"
      "%down = stem.param_load @down : tensor<{0}x{1}xbf16>\n"
      "%norm = stem.param_load @norm : tensor<{0}xf32>\n",
      s.d, s.f, kTableRows, kTrainingTile, matrix);
  if (up.isDense)
    text += fmt::format("%up = stem.param_load @up : {}\n", matrix);
  else
    text += fmt::format(
        "%t = stem.table_load @rows : !stem.table<{1}x{0}xbf16>\n"
        "%rows, %index = stem.table_rows %t, %ids : !stem.table<{1}x{0}xbf16>, "
        "tensor<?xi32> -> tensor<?x{0}xbf16>, tensor<?xi32>\n",
        s.f, kTableRows);
  return text + fmt::format("%y = call @ffn(%x, %norm, %gate, %down, {1}) : "
                            "{2}\nreturn %y : tensor<?x{0}xf32>\n}}\n",
                            s.d, up.isDense ? "%up" : "%rows, %index",
                            signature);
}

struct Packed {
  Packed(int64_t k, int64_t n)
      : memory(bench::filled(packedBytes(STEM_BF16, k, n))),
        handle{memory.data(), STEM_BF16, 0, k, n} {}
  Arena memory;
  stem_packed handle;
};

/// One compiled layer and all that it reads and writes.
class Layer {
public:
  Layer(stem_context *context, const Sizes &sizes, const Up &kind)
      : context(context), sizes(sizes), ids(sizes.tokens),
        rowIndex(sizes.tokens),
        selected(selectedIds(sizes, kind.selected.value_or(0))),
        table(bench::filled(kTableRows * sizes.f * 2)) {
    for (int64_t i = 0; i < sizes.tokens; ++i) {
      ids[i] = idOf(i);
      rowIndex[i] = static_cast<int32_t>(i);
    }
    throwIfFailed(context, stem_table_store_create(context, nullptr, &store));
    if (!kind.isDense) {
      stem_table_options options = {};
      options.struct_size = sizeof(options);
      options.rows = kTableRows;
      options.columns = sizes.f;
      options.dtype = STEM_BF16;
      options.resident = table.data();
      options.name = "rows";
      throwIfFailed(context, stem_table_open(context, store, &options));
    }
    compile(kind);
  }
  ~Layer() { stem_table_store_destroy(store); }

  void run() {
    throwIfFailed(context,
                  entry->function(context, arguments.data(),
                                  static_cast<int64_t>(arguments.size()),
                                  arena.data(), arena.size()));
  }

private:
  void compile(const Up &kind) {
    mlir::DialectRegistry registry;
    registerHostCompiler(registry);
    mlir::MLIRContext mlirContext(registry);
    auto ir = mlir::parseSourceString<mlir::ModuleOp>(
        kind.isTrained ? trainedText(sizes, kind) : layerText(sizes, kind),
        &mlirContext);
    if (!ir)
      fail("the layer's IR does not parse");
    HostCompileOptions options;
    if (kind.isTrained)
      options.trained.emplace().name = "layer";
    options.target = hostTarget(stem_context_isa(context));
    options.useCache = false;
    HostCompileResult result = compileForHost(*ir, options);
    module = std::make_unique<Module>(result.path.string(), context);
    entry = module->find(kind.isTrained ? "layer_vjp" : "layer");
    for (int64_t i = 0; i < entry->argument_count; ++i)
      arguments.push_back(bind(entry->arguments[i]));
    arena = Arena(arenaBytes(*entry, sizes.tokens, /*outputs=*/sizes.tokens,
                             stem_context_threads(context)),
                  "the arena");
  }

  stem_tensor bind(const stem_argument &argument) {
    std::string_view name = entry->texts + argument.name;
    std::string_view key = entry->texts + argument.key;
    if (argument.kind == STEM_ARG_STORE)
      return handleTensor(store);
    if (argument.packed) {
      weights.push_back(
          std::make_unique<Packed>(argument.sizes[0], argument.sizes[1]));
      return handleTensor(&weights.back()->handle);
    }
    if (key == "selected")
      return denseTensor(selected.data(), STEM_I32,
                         {static_cast<int64_t>(selected.size())});
    if (name == "ids")
      return denseTensor(ids.data(), STEM_I32, {sizes.tokens});
    if (name == "row_index")
      return denseTensor(rowIndex.data(), STEM_I32, {sizes.tokens});
    // Of f32: tokens, gradients, the norm's weight.
    std::vector<int64_t> shape(argument.sizes, argument.sizes + argument.rank);
    int64_t elements = 1;
    for (int64_t &size : shape) {
      size = size < 0 ? sizes.tokens : size;
      elements *= size;
    }
    matrices.push_back(bench::filled(elements * 4));
    return denseTensor(matrices.back().data(), STEM_F32, shape.data(),
                       argument.rank);
  }

  stem_context *context;
  Sizes sizes;
  std::vector<std::unique_ptr<Packed>> weights;
  std::vector<Arena> matrices;
  Arena arena;
  std::vector<int32_t> ids, rowIndex, selected;
  Arena table;
  stem_table_store *store = nullptr;
  std::unique_ptr<Module> module;
  const stem_entry *entry = nullptr;
  std::vector<stem_tensor> arguments;
};

/// The products of a layer alone, on tiles of the same size.
class Products {
public:
  Products(stem_context *context, const Sizes &sizes, int inputs)
      : context(context), sizes(sizes), inputs(inputs), gate(sizes.d, sizes.f),
        down(sizes.f, sizes.d), a(bench::filled(sizes.tokens * sizes.d * 2)),
        scratch(bench::filled(stem_context_threads(context) * tileBytes())) {}

  void run() {
    parallelFor(context, sizes.tokens / kTile,
                [&](int64_t task, int64_t thread) { tile(task, thread); });
  }

private:
  int64_t tileBytes() const {
    return kTile * (sizes.f * 4 + sizes.f * 2 + sizes.d * 4);
  }

  void tile(int64_t task, int64_t thread) {
    char *start = static_cast<char *>(scratch.data()) + thread * tileBytes();
    auto *hidden = reinterpret_cast<float *>(start);
    char *product = start + kTile * sizes.f * 4;
    auto *sum = reinterpret_cast<float *>(product + kTile * sizes.f * 2);
    const char *x =
        static_cast<const char *>(a.data()) + task * kTile * sizes.d * 2;
    for (int i = 0; i < inputs; ++i)
      stem_packed_matmul(context, x, sizes.d, gate.memory.data(), STEM_BF16,
                         sizes.d, sizes.f, 0, 0, hidden, sizes.f, kTile,
                         sizes.d, sizes.f, 0);
    stem_packed_matmul(context, product, sizes.f, down.memory.data(), STEM_BF16,
                       sizes.f, sizes.d, 0, 0, sum, sizes.d, kTile, sizes.f,
                       sizes.d, 0);
  }

  stem_context *context;
  Sizes sizes;
  int inputs;
  Packed gate, down;
  Arena a, scratch;
};

/// The products of a layer's forward and backward alone: those of tokens on
/// tiles, those of gradients over chunks of tokens. None is computed twice.
class StepProducts {
public:
  StepProducts(stem_context *context, const Sizes &sizes, int inputs)
      : context(context), sizes(sizes), inputs(inputs), wide(sizes.d, sizes.f),
        narrow(sizes.f, sizes.d), tokensOfD(kDepth, sizes.d),
        tokensOfF(kDepth, sizes.f),
        gradient(bench::filled(sizes.d * sizes.f * 4)),
        scratch(bench::filled(stem_context_threads(context) * threadBytes())) {}

  void run() {
    parallelFor(context, sizes.tokens / kTrainingTile,
                [&](int64_t, int64_t thread) { forward(thread); });
    parallelFor(context, sizes.tokens / kTrainingTile,
                [&](int64_t, int64_t thread) { backward(thread); });
    for (int64_t first = 0; first < sizes.tokens; first += kDepth) {
      for (int i = 0; i < inputs; ++i)
        sum(sizes.f, tokensOfD, first);
      sum(sizes.d, tokensOfF, first);
    }
  }

  double operations() const {
    return 2.0 * 3 * (inputs + 1) * double(sizes.tokens * sizes.d * sizes.f);
  }

private:
  int64_t inputBytes() const {
    return std::max(kTrainingTile * stride(std::max(sizes.d, sizes.f)),
                    kSumRows * stride(kDepth)) *
           2;
  }
  int64_t threadBytes() const {
    return inputBytes() + kTrainingTile * std::max(sizes.d, sizes.f) * 4;
  }
  char *input(int64_t thread) const {
    return static_cast<char *>(scratch.data()) + thread * threadBytes();
  }

  void multiply(const Packed &weight, int64_t thread) {
    auto *out = reinterpret_cast<float *>(input(thread) + inputBytes());
    const int64_t k = weight.handle.rows, n = weight.handle.columns;
    stem_packed_matmul(context, input(thread), stride(k), weight.memory.data(),
                       STEM_BF16, k, n, 0, 0, out, n, kTrainingTile, k, n, 0);
  }
  void forward(int64_t thread) {
    for (int i = 0; i < inputs; ++i)
      multiply(wide, thread);
    multiply(narrow, thread);
  }
  void backward(int64_t thread) {
    multiply(wide, thread);
    for (int i = 0; i < inputs; ++i)
      multiply(narrow, thread);
  }

  /// The rows of a gradient for one chunk.
  void sum(int64_t rows, const Packed &panels, int64_t first) {
    const int64_t n = panels.handle.columns;
    const int64_t depth = std::min(kDepth, sizes.tokens - first);
    parallelFor(context, rows / kSumRows, [&](int64_t task, int64_t thread) {
      stem_packed_matmul(context, input(thread), stride(kDepth),
                         panels.memory.data(), STEM_BF16, kDepth, n, 0, 0,
                         static_cast<float *>(gradient.data()) +
                             task * kSumRows * n,
                         n, kSumRows, depth, n, first > 0);
    });
  }

  static constexpr int64_t kSumRows = 128;
  /// Rows are a line apart from a multiple of half a page, as in compiled code.
  static constexpr int64_t stride(int64_t columns) {
    return columns % 1024 ? columns : columns + 32;
  }

  stem_context *context;
  Sizes sizes;
  int inputs;
  Packed wide, narrow, tokensOfD, tokensOfF;
  Arena gradient, scratch;
};

/// The least that a step moves: weights once each way, tokens and rows once
/// for forward and backward each, gradients once.
double leastBytes(const Sizes &s, bool isDense) {
  const double matrices = isDense ? 3 : 2;
  const double weight = double(s.d * s.f), tokens = double(s.tokens * s.d);
  double bytes = matrices * weight * (2 + 2 + 4) + tokens * 4 * (2 + 3);
  if (!isDense)
    bytes += double(s.tokens * s.f) * (2 + 2 + 4);
  return bytes;
}

void print(const char *what, const bench::Ratio &ratio) {
  fmt::print("{{\"bench\": \"ffn_layer\", \"what\": \"{}\", "
             "\"ratio\": {:.3f}, \"low\": {:.3f}, \"high\": {:.3f}, "
             "\"seconds\": {:.5f}, \"peer_seconds\": {:.5f}}}\n",
             what, ratio.median, ratio.low, ratio.high, ratio.secondsA,
             ratio.secondsB);
}

/// Forward and backward against their products alone and the roofline.
void compareStep(stem_context *context, const Sizes &sizes, bool isDense,
                 int pairs) {
  const std::string name = isDense ? "dense_step" : "stem_step";
  Layer layer(context, sizes, Up{.isDense = isDense, .isTrained = true});
  StepProducts products(context, sizes, isDense ? 2 : 1);
  const bench::Ratio ratio =
      bench::compare([&] { layer.run(); }, [&] { products.run(); }, pairs);
  print((name + "_share_of_products").c_str(), ratio);
  const double bandwidth = measureReadBandwidth(context);
  const double bytes = leastBytes(sizes, isDense);
  const double bound = std::max(ratio.secondsB, bytes / bandwidth);
  fmt::print("{{\"bench\": \"ffn_layer\", \"what\": \"{}_bound\", "
             "\"share\": {:.3f}, \"read_bandwidth\": {:.4g}, "
             "\"least_bytes\": {:.4g}, \"roofline_seconds\": {:.5f}, "
             "\"products_flops_per_second\": {:.4g}, "
             "\"step_flops_per_second\": {:.4g}, "
             "\"large_product_flops_per_second\": {:.4g}}}\n",
             name, bound / ratio.secondsA, bandwidth, bytes, bytes / bandwidth,
             products.operations() / ratio.secondsB,
             products.operations() / ratio.secondsA,
             measureProductRate(context, STEM_BF16));
}

} // namespace

/// More than usual: the bounds of the ratios are within a few percent.
constexpr int kPairs = 61;

static void compareForward(stem_context *context, const Sizes &sizes) {
  Layer stem(context, sizes, Up{}), dense(context, sizes, Up{.isDense = true});
  Products two(context, sizes, 1), three(context, sizes, 2);
  print("stem_share_of_products",
        bench::compare([&] { stem.run(); }, [&] { two.run(); }, kPairs));
  print("dense_share_of_products",
        bench::compare([&] { dense.run(); }, [&] { three.run(); }, kPairs));
  print("stem_speedup",
        bench::compare([&] { stem.run(); }, [&] { dense.run(); }, kPairs));
  for (int64_t percent : {0, 10, 100}) {
    Layer hybrid(context, sizes, Up{.selected = percent});
    std::string name = fmt::format("select_{}_speedup", percent);
    print((name + "_to_stem").c_str(),
          bench::compare([&] { hybrid.run(); }, [&] { stem.run(); }, kPairs));
    print((name + "_to_dense").c_str(),
          bench::compare([&] { hybrid.run(); }, [&] { dense.run(); }, kPairs));
  }
}

/// ffn_layer [forward|step [PAIRS]] [TOKENS D D_FF]
int main(int argc, char **argv) {
  Sizes sizes = {4096, 2048, 8192};
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() >= 3) {
    sizes = {std::atoll(words.end()[-3].c_str()),
             std::atoll(words.end()[-2].c_str()),
             std::atoll(words.end()[-1].c_str())};
    words.resize(words.size() - 3);
  }
  const std::string part = words.empty() ? "" : words[0];
  const int pairs = words.size() > 1 ? std::atoi(words[1].c_str()) : 15;
  try {
    ContextPtr context = createContext();
    if (part != "step")
      compareForward(context.get(), sizes);
    if (part != "forward") {
      compareStep(context.get(), sizes, /*isDense=*/false, pairs);
      compareStep(context.get(), sizes, /*isDense=*/true, pairs);
    }
  } catch (const Error &error) {
    fmt::print(stderr, "ffn_layer: {}\n", error.what());
    return 1;
  }
  return 0;
}
