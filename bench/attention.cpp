//===- attention.cpp - Attention of a step, compiled, against products ----===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Attention without a cache and its VJP on one sequence of 2048 tokens, 8
// heads of 64, bf16, compiled by the host pipeline; and 64 x 64 x 64 products
// alone, on the same threads. Prints JSON lines:
//   build/bench/bin/attention [tokens query_heads key_heads]
// share_of_products: of the rate of as many products as attention needs (2 for
// each page that a tile of queries sees and head, 5 for the VJP);
// share_of_executed: of as many as the compiled code calls. Medians of
// interleaved pairs with 95 % intervals.
//
//===----------------------------------------------------------------------===//

#include "Pairs.h"

#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Module.h"
#include "stem/Runtime/Pack.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Runtime/Tensor.h"
#include "stem/Support/Error.h"
#include "stem/Target/HostCompiler.h"

#include "mlir/Parser/Parser.h"

#include <cstdlib>
#include <memory>

using namespace stem;

namespace {

constexpr int64_t kTile = 64;
constexpr int64_t kHeadDim = 64;

struct Sizes {
  int64_t tokens, queryHeads, keyHeads;
};

std::string moduleText(const Sizes &sizes) {
  return fmt::format(
      R"(
func.func @forward(%q: tensor<?x{0}xbf16> {{stem.name = "q", stem.rows = "tokens"}}, %k: tensor<?x{1}xbf16> {{stem.name = "k", stem.rows = "tokens"}}, %v: tensor<?x{1}xbf16> {{stem.name = "v", stem.rows = "tokens"}}, %p: tensor<?xi32> {{stem.name = "positions", stem.rows = "tokens"}}, %s: tensor<?xi32> {{stem.name = "sequences", stem.rows = "tokens"}}, %out: tensor<?x{0}xbf16> {{stem.name = "out", stem.rows = "tokens", stem.output}}) -> tensor<?x{0}xbf16> attributes {{stem.entry, stem.tile = 64 : i64}} {{
  %0 = stem.attention %q, %k, %v at %p of %s {{head_dim = {2} : i64, scale = 0.125 : f64}} : tensor<?x{0}xbf16>, tensor<?x{1}xbf16>, tensor<?x{1}xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x{0}xbf16>
  return %0 : tensor<?x{0}xbf16>
}}
func.func @backward(%q: tensor<?x{0}xbf16> {{stem.name = "q", stem.rows = "tokens"}}, %k: tensor<?x{1}xbf16> {{stem.name = "k", stem.rows = "tokens"}}, %v: tensor<?x{1}xbf16> {{stem.name = "v", stem.rows = "tokens"}}, %g: tensor<?x{0}xf32> {{stem.name = "cotangent", stem.rows = "tokens"}}, %o: tensor<?x{0}xbf16> {{stem.name = "result", stem.rows = "tokens"}}, %l: tensor<?x{3}xf32> {{stem.name = "logarithms", stem.rows = "tokens"}}, %p: tensor<?xi32> {{stem.name = "positions", stem.rows = "tokens"}}, %s: tensor<?xi32> {{stem.name = "sequences", stem.rows = "tokens"}}, %dq: tensor<?x{0}xf32> {{stem.name = "dq", stem.rows = "tokens", stem.output}}, %dk: tensor<?x{1}xf32> {{stem.name = "dk", stem.rows = "tokens", stem.output}}, %dv: tensor<?x{1}xf32> {{stem.name = "dv", stem.rows = "tokens", stem.output}}) -> (tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>) attributes {{stem.entry, stem.tile = 64 : i64}} {{
  %0:3 = stem.attention_vjp %q, %k, %v, %g forward %o, %l at %p of %s {{head_dim = {2} : i64, scale = 0.125 : f64}} : (tensor<?x{0}xbf16>, tensor<?x{1}xbf16>, tensor<?x{1}xbf16>, tensor<?x{0}xf32>, tensor<?x{0}xbf16>, tensor<?x{3}xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>)
  return %0#0, %0#1, %0#2 : tensor<?x{0}xf32>, tensor<?x{1}xf32>, tensor<?x{1}xf32>
}}
)",
      sizes.queryHeads * kHeadDim, sizes.keyHeads * kHeadDim, kHeadDim,
      sizes.queryHeads);
}

struct CacheDeleter {
  void operator()(stem_kv_cache *cache) const { stem_kv_destroy(cache); }
};
using CachePtr = std::unique_ptr<stem_kv_cache, CacheDeleter>;

/// One compiled entry and all that it reads and writes.
class Attention {
public:
  Attention(stem_context *context, const Module &module, const char *name,
            const Sizes &sizes)
      : context(context), entry(module.find(name)), sizes(sizes) {
    for (int64_t i = 0; i < entry->argument_count; ++i)
      arguments.push_back(bind(entry->arguments[i]));
    arena = Arena(arenaBytes(*entry, sizes.tokens, /*outputs=*/0,
                             stem_context_threads(context)),
                  "the arena");
  }

  void run() {
    throwIfFailed(context,
                  entry->function(context, arguments.data(),
                                  static_cast<int64_t>(arguments.size()),
                                  arena.data(), arena.size()));
  }

private:
  stem_tensor bind(const stem_argument &argument) {
    if (argument.kind == STEM_ARG_CACHE)
      return handleTensor(makeCache(argument));
    if (argument.rank == 2) {
      int64_t bytes =
          sizes.tokens * argument.sizes[1] * elementBytes(argument.dtype);
      memory.push_back(bench::filled(bytes));
      return denseTensor(memory.back().data(), argument.dtype,
                         {sizes.tokens, argument.sizes[1]});
    }
    memory.push_back(bench::filled(sizes.tokens * sizeof(int32_t)));
    auto *ids = static_cast<int32_t *>(memory.back().data());
    bool isPositions = std::string_view(entry->texts + argument.name) ==
                       std::string_view("positions");
    for (int32_t i = 0; i < sizes.tokens; ++i)
      ids[i] = isPositions ? i : 0;
    return denseTensor(ids, STEM_I32, {sizes.tokens});
  }

  stem_kv_cache *makeCache(const stem_argument &argument) {
    stem_kv_options options = {};
    options.struct_size = sizeof(options);
    options.layers = argument.sizes[0];
    options.heads = argument.sizes[1] / argument.sizes[2];
    options.head_dim = argument.sizes[2];
    options.max_positions = sizes.tokens;
    options.max_sequences = 1;
    options.dtype = argument.element;
    stem_kv_cache *cache = nullptr;
    throwIfFailed(context, stem_kv_create(context, &options, &cache));
    caches.emplace_back(cache);
    throwIfFailed(context, stem_kv_reserve(context, cache, 0, sizes.tokens));
    return cache;
  }

  stem_context *context;
  const stem_entry *entry;
  Sizes sizes;
  std::vector<Arena> memory;
  std::vector<CachePtr> caches;
  std::vector<stem_tensor> arguments;
  Arena arena;
};

/// Products alone: `count` for each page that a tile of queries sees and head,
/// each with a page of its own, as attention's are.
class Products {
public:
  Products(stem_context *context, const Sizes &sizes, int count)
      : context(context), sizes(sizes), count(count),
        pages(bench::filled(sizes.tokens / kTile * sizes.queryHeads * count *
                            pageBytes())),
        rows(bench::filled(sizes.tokens * sizes.queryHeads * kHeadDim * 2)),
        scratch(bench::filled(stem_context_threads(context) * kTile * kHeadDim *
                              4)) {}

  void run() {
    int64_t tiles = sizes.tokens / kTile;
    parallelFor(context, tiles * sizes.queryHeads,
                [&](int64_t task, int64_t thread) {
                  tile(tiles - 1 - task % tiles, task / tiles, thread);
                });
  }

private:
  static int64_t pageBytes() { return packedBytes(STEM_BF16, kHeadDim, kTile); }

  void tile(int64_t number, int64_t head, int64_t thread) {
    int64_t columns = sizes.queryHeads * kHeadDim;
    const char *a = static_cast<const char *>(rows.data()) +
                    (number * kTile * columns + head * kHeadDim) * 2;
    auto *c = static_cast<float *>(scratch.data()) + thread * kTile * kHeadDim;
    const char *b = static_cast<const char *>(pages.data()) +
                    head * (sizes.tokens / kTile) * count * pageBytes();
    for (int64_t i = 0; i < (number + 1) * count; ++i)
      stem_packed_matmul(context, a, columns, b + i * pageBytes(), STEM_BF16,
                         kHeadDim, kTile, 0, 0, c, kTile, kTile, kHeadDim,
                         kTile, 0);
  }

  stem_context *context;
  Sizes sizes;
  int count;
  Arena pages, rows, scratch;
};

void print(const std::string &what, const bench::Ratio &ratio) {
  fmt::print("{{\"bench\": \"attention\", \"what\": \"{}\", "
             "\"ratio\": {:.3f}, \"low\": {:.3f}, \"high\": {:.3f}, "
             "\"seconds\": {:.5f}, \"peer_seconds\": {:.5f}}}\n",
             what, ratio.median, ratio.low, ratio.high, ratio.secondsA,
             ratio.secondsB);
}

void measure(stem_context *context, const Module &module, const char *name,
             const Sizes &sizes, int needed, int executed) {
  Attention attention(context, module, name, sizes);
  for (auto [what, count] : {std::pair("share_of_products", needed),
                             std::pair("share_of_executed", executed)}) {
    Products products(context, sizes, count);
    print(fmt::format("{}_{}", name, what),
          bench::compare([&] { attention.run(); }, [&] { products.run(); }));
  }
}

} // namespace

int main(int argc, char **argv) {
  Sizes sizes = {2048, 8, 8};
  if (argc == 4)
    sizes = {std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3])};
  try {
    ContextPtr context = createContext();
    mlir::DialectRegistry registry;
    registerHostCompiler(registry);
    mlir::MLIRContext mlirContext(registry);
    auto ir = mlir::parseSourceString<mlir::ModuleOp>(moduleText(sizes),
                                                      &mlirContext);
    if (!ir)
      fail("the entries' IR does not parse");
    HostCompileOptions options;
    options.target = hostTarget(stem_context_isa(context.get()));
    options.useCache = false;
    HostCompileResult result = compileForHost(*ir, options);
    Module module(result.path.string(), context.get());
    measure(context.get(), module, "forward", sizes, 2, 2);
    measure(context.get(), module, "backward", sizes, 5, 7);
  } catch (const Error &error) {
    fmt::print(stderr, "attention: {}\n", error.what());
    return 1;
  }
  return 0;
}
