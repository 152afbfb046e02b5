//===- RandomWeights.cpp - A model that begins from a config --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RandomWeights.h"

#include "Json.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Runtime/Philox.h"
#include "stem/Support/Error.h"
#include "stem/Support/Hash.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

using namespace stem;
namespace fs = std::filesystem;

namespace {

/// Part of the fingerprint: another way to draw is another model.
constexpr int kVersion = 1;

/// What one task draws, and what lies in memory at a time: 64 KiB and 4 MiB of
/// f32.
constexpr uint64_t kTaskElements = 1 << 14;
constexpr uint64_t kBlockElements = 1 << 20;

/// Wichura's algorithm AS 241 (PPND7), for p in (0, 1).
double inverseNormal(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q *
           (((5.9109374720e1 * r + 1.5929113202e2) * r + 5.0434271938e1) * r +
            3.3871327179) /
           (((6.7187563600e1 * r + 7.8757757664e1) * r + 1.7895169469e1) * r +
            1);
  }
  double r = std::sqrt(-std::log(q < 0 ? p : 1 - p)), x;
  if (r <= 5) {
    r -= 1.6;
    x = (((1.7023821103e-1 * r + 1.3067284816) * r + 2.7568153900) * r +
         1.4234372777) /
        ((1.2021132975e-1 * r + 7.3700164250e-1) * r + 1);
  } else {
    r -= 5;
    x = (((1.7337203997e-2 * r + 4.2868294337e-1) * r + 3.0812263860) * r +
         6.6579051150) /
        ((1.2258202635e-2 * r + 2.4197894225e-1) * r + 1);
  }
  return q < 0 ? -x : x;
}

/// How a tensor is drawn.
struct Drawn {
  float constant = 0;
  double deviation = 0; ///< 0: all are the constant
  uint64_t stream = 0;
};

uint64_t streamOf(const std::string &name) {
  const std::string hash = hashText(name);
  uint64_t stream = 0;
  std::from_chars(hash.data(), hash.data() + 16, stream, 16);
  return stream;
}

Drawn drawnOf(const ExpectedTensor &tensor, double range) {
  if (tensor.name.ends_with(".bias"))
    return {};
  if (tensor.shape.size() == 1)
    return {1, 0, 0};
  if (tensor.name.ends_with(".mlp.up_table.weight"))
    range = std::sqrt(2.0 / double(tensor.shape[0] + tensor.shape[1]));
  return {0, range, streamOf(tensor.name)};
}

class RandomTensors : public TensorSource {
public:
  RandomTensors(const ModelConfig &config, DType type, DType rowType,
                double range, const fs::path &file, uint64_t seed, int threads)
      : seed(seed), context(createContext(threads)) {
    origin = file.string();
    std::vector<ExpectedTensor> tensors = expectedTensors(config);
    std::ranges::sort(tensors, {}, &ExpectedTensor::name);
    for (ExpectedTensor &tensor : tensors) {
      drawn.push_back(drawnOf(tensor, range));
      const bool isTable = tensor.name.ends_with(".mlp.up_table.weight");
      infos.push_back({std::move(tensor.name), isTable ? rowType : type,
                       std::move(tensor.shape), 0, file});
      infos.back().bytes = bytesOf(infos.back());
    }
  }

protected:
  void visitRuns(size_t tensor, uint64_t first, uint64_t count,
                 const RunVisitor &visit) const override {
    const TensorInfo &info = infos[tensor];
    const uint64_t columns = info.rowElements();
    const uint64_t step =
        std::clamp<uint64_t>(kBlockElements / columns, 1, count);
    const uint64_t size = dtypeBlockBytes(info.dtype);
    std::vector<std::byte> block(step * columns * size);
    for (uint64_t row = first; row < first + count; row += step) {
      const uint64_t rows = std::min(step, first + count - row);
      const uint64_t elements = rows * columns, begin = row * columns;
      const auto tasks =
          static_cast<int64_t>((elements + kTaskElements - 1) / kTaskElements);
      parallelFor(context.get(), tasks, [&](int64_t task) {
        const uint64_t at = static_cast<uint64_t>(task) * kTaskElements;
        const uint64_t some = std::min(kTaskElements, elements - at);
        std::array<float, kTaskElements> values;
        draw(drawn[tensor], begin + at, std::span(values).first(some));
        encodeFromF32(info.dtype, values.data(), some, &block[at * size]);
      });
      visit(std::span(block).first(elements * size), rows);
    }
  }

  std::span<const std::byte> stored(size_t) const override { return {}; }
  void releaseBytes(size_t, std::span<const std::byte>) const override {}

private:
  static uint64_t bytesOf(const TensorInfo &info) {
    uint64_t elements = 1;
    for (const uint64_t size : info.shape)
      if (__builtin_mul_overflow(elements, size, &elements))
        elements = UINT64_MAX;
    const auto bytes = dtypeBytes(info.dtype, elements);
    if (!bytes || *bytes > INT64_MAX)
      fail("{}: tensor \"{}\" {} is too large for {}", info.file.string(),
           info.name, formatShape(info.shape), dtypeName(info.dtype));
    return *bytes;
  }

  /// Elements [first, first + values.size()) of a tensor, four of one counter.
  void draw(const Drawn &how, uint64_t first, std::span<float> values) const {
    if (how.deviation == 0) {
      std::ranges::fill(values, how.constant);
      return;
    }
    std::array<float, 4> four = {};
    for (uint64_t i = 0; i < values.size(); ++i) {
      const uint64_t index = first + i;
      if (i == 0 || index % 4 == 0)
        four =
            normalsOf(philox({uint32_t(index / 4), uint32_t(index / 4 >> 32),
                              uint32_t(how.stream), uint32_t(how.stream >> 32)},
                             {uint32_t(seed), uint32_t(seed >> 32)}));
      values[i] = static_cast<float>(how.deviation * four[index % 4]);
    }
  }

  uint64_t seed;
  ContextPtr context;
  std::vector<Drawn> drawn; ///< in the order of infos
};

/// Of config.json; that of a nested text model comes first.
double initializerRange(const ModelConfig &config, const std::string &name) {
  constexpr const char *key = "initializer_range";
  Json json = Json::parse(config.sourceText);
  if (json.contains("text_config") && json["text_config"].is_object() &&
      json["text_config"].contains(key))
    json = json["text_config"];
  const Json value = json.value(key, Json());
  if (value.is_null())
    return 0.02;
  if (!value.is_number() || !(value > 0) || !(value <= 1))
    fail("{}: \"{}\" is {}; a number above 0 and at most 1 was expected, the "
         "deviation of the weights that are drawn",
         name, key, value.dump());
  return value.get<double>();
}

DType typeOf(const ModelConfig &config, const std::string &name) {
  const DType type = config.dtype.value_or(DType::F32);
  if (type != DType::F32 && type != DType::BF16 && type != DType::F16)
    fail("{}: dtype \"{}\": a model that begins here has float32, bfloat16 or "
         "float16",
         name, dtypeConfigName(type));
  return type;
}

DType rowTypeOf(const ModelConfig &config, const std::string &name) {
  if (!config.stem)
    return DType::F32;
  if (config.stem->rowDType == "uint8")
    fail("{}: stem.row_dtype is \"uint8\"; rows are made 8-bit from trained "
         "ones, so give float32, bfloat16 or float16",
         name);
  if (config.stem->select)
    fail("{}: stem.select is true; which ids keep the matrix is chosen when a "
         "model is converted, so begin without it",
         name);
  return *dtypeFromConfigName(config.stem->rowDType);
}

/// What a folder of ours says, so that the new one says it too.
void completeText(ModelConfig &config, DType type) {
  if (!config.dtype)
    config.sourceText = configWithDType(config.sourceText, type);
  config.dtype = type;
  if (config.stem)
    config.sourceText = configWithStem(config.sourceText, *config.stem);
}

} // namespace

std::array<float, 4> stem::normalsOf(const std::array<uint32_t, 4> &words) {
  std::array<float, 4> normals;
  for (size_t i = 0; i < 4; ++i)
    normals[i] =
        static_cast<float>(inverseNormal((double(words[i]) + 0.5) * 0x1p-32));
  return normals;
}

Checkpoint stem::openRandomModel(const fs::path &file, uint64_t seed,
                                 int threads) {
  const std::string name = file.string();
  return Checkpoint::fromConfig(
      file, [&](ModelConfig &config) -> std::unique_ptr<TensorSource> {
        const DType type = typeOf(config, name);
        const DType rowType = rowTypeOf(config, name);
        const double range = initializerRange(config, name);
        completeText(config, type);
        return std::make_unique<RandomTensors>(config, type, rowType, range,
                                               file, seed, threads);
      });
}

std::string stem::randomModelFingerprint(const Checkpoint &checkpoint,
                                         uint64_t seed) {
  return hashText(fmt::format("random weights {} of seed {}\n{}", kVersion,
                              seed, checkpoint.config().sourceText));
}
