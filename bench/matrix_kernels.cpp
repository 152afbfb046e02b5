//===- matrix_kernels.cpp - Our matrix kernels against oneDNN -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// One thread, packed weights on both sides, a JSON line for each shape:
//   OMP_NUM_THREADS=1 build/bench/bin/matrix_kernels
// `ratio` is how many times as fast our kernel is, the median of 15 pairs.
//
//===----------------------------------------------------------------------===//

#include "Pairs.h"

#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Pack.h"

#include <dnnl.hpp>
#include <fmt/format.h>

using namespace stem;

namespace {

struct Shape {
  int64_t m, k, n;
};

/// A product of oneDNN with weights in the layout that it prefers.
class OneDnnProduct {
public:
  OneDnnProduct(Shape shape, bool isF32)
      : engine(dnnl::engine::kind::cpu, 0), stream(engine),
        source(bench::filled(shape.m * shape.k * 4)),
        target(bench::filled(shape.m * shape.n * 4)) {
    using dnnl::memory;
    auto type = isF32 ? memory::data_type::f32 : memory::data_type::bf16;
    memory::desc a({shape.m, shape.k}, type, memory::format_tag::ab);
    memory::desc b({shape.k, shape.n}, type, memory::format_tag::any);
    memory::desc c({shape.m, shape.n}, memory::data_type::f32,
                   memory::format_tag::ab);
    dnnl::matmul::primitive_desc description({a, b, c}, engine);
    product = dnnl::matmul(description);
    memory weights(description.weights_desc(), engine);
    std::memset(weights.get_data_handle(), 0x3c,
                description.weights_desc().get_size());
    arguments = {{DNNL_ARG_SRC, memory(a, engine, source.data())},
                 {DNNL_ARG_WEIGHTS, weights},
                 {DNNL_ARG_DST, memory(c, engine, target.data())}};
  }

  void run() {
    product.execute(stream, arguments);
    stream.wait();
  }

private:
  dnnl::engine engine;
  dnnl::stream stream;
  Arena source, target;
  dnnl::matmul product;
  std::unordered_map<int, dnnl::memory> arguments;
};

void compareShape(stem_context *context, Shape shape, stem_dtype dtype) {
  bool isF32 = dtype == STEM_F32;
  Arena a = bench::filled(shape.m * shape.k * 4);
  Arena b = bench::filled(packedBytes(dtype, shape.k, shape.n));
  Arena c = bench::filled(shape.m * shape.n * 4);
  OneDnnProduct peer(shape, isF32);
  double flops = 2.0 * shape.m * shape.k * shape.n;
  int repeats = std::max(1, static_cast<int>(2e8 / flops));
  auto result = bench::compare(
      [&] {
        for (int i = 0; i < repeats; ++i)
          stem_packed_matmul(context, a.data(), shape.k, b.data(), dtype,
                             shape.k, shape.n, 0, 0,
                             static_cast<float *>(c.data()), shape.n, shape.m,
                             shape.k, shape.n, 0);
      },
      [&] {
        for (int i = 0; i < repeats; ++i)
          peer.run();
      });
  fmt::print("{{\"bench\": \"matrix_kernels\", \"dtype\": \"{}\", \"m\": {}, "
             "\"k\": {}, \"n\": {}, \"gflops\": {:.1f}, "
             "\"onednn_gflops\": {:.1f}, \"ratio\": {:.3f}, "
             "\"ratio_low\": {:.3f}, \"ratio_high\": {:.3f}}}\n",
             isF32 ? "f32" : "bf16", shape.m, shape.k, shape.n,
             flops * repeats / result.secondsA / 1e9,
             flops * repeats / result.secondsB / 1e9, result.median, result.low,
             result.high);
}

} // namespace

int main() {
  ContextPtr context = createContext(1);
  for (stem_dtype dtype : {STEM_BF16, STEM_F32})
    for (Shape shape :
         {Shape{64, 576, 1536}, Shape{64, 1536, 576}, Shape{64, 64, 64},
          Shape{256, 2048, 8192}, Shape{1, 576, 1536}, Shape{1, 2048, 8192}})
      compareShape(context.get(), shape, dtype);
  return 0;
}
