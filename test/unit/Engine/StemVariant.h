//===- StemVariant.h - Golden models with more weights ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_ENGINE_STEMVARIANT_H
#define STEM_TEST_UNIT_ENGINE_STEMVARIANT_H

#include "EngineTestSupport.h"

#include <nlohmann/json.hpp>

namespace stem::test {

/// The golden STEM model, whose layers 1 and 2 have tables, with more of it or
/// less.
class StemVariant {
public:
  using Json = nlohmann::ordered_json;
  static constexpr size_t kWidth = 32, kFFN = 80, kKeys = 16;

  StemVariant() {
    const std::string file = readText(golden / "model.safetensors");
    uint64_t size;
    std::memcpy(&size, file.data(), sizeof(size));
    header = Json::parse(file.substr(sizeof(size), size));
    data = file.substr(sizeof(size) + size);
    config = Json::parse(readText(golden / "config.json"));
  }

  void add(const std::string &name, const std::string &type,
           const std::vector<size_t> &shape, const std::string &bytes) {
    header["model.layers." + name] = {
        {"dtype", type},
        {"shape", shape},
        {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  void addMix(size_t layer, size_t rank) {
    const std::string mix = std::to_string(layer) + ".mlp.up_mix.";
    add(mix + "a.weight", "F32", {kFFN, rank},
        noise(kFFN * rank, static_cast<uint32_t>(10 + layer)));
    add(mix + "b.weight", "F32", {rank, kWidth},
        noise(rank * kWidth, static_cast<uint32_t>(20 + layer)));
  }
  template <typename T>
  void addSelected(size_t layer, const char *type, const std::vector<T> &ids) {
    const std::string mlp = std::to_string(layer) + ".mlp.";
    std::string bytes;
    for (T id : ids)
      bytes += raw(id);
    add(mlp + "up_select.ids", type, {ids.size()}, bytes);
    add(mlp + "up_proj.weight", "F32", {kFFN, kWidth},
        noise(kFFN * kWidth, static_cast<uint32_t>(30 + layer)));
  }
  void addBias(const std::string &name, size_t size, uint32_t seed) {
    add(name + ".bias", "F32", {size}, noise(size, seed));
  }
  /// Of all projections; `withUp` where the layer has an up-projection.
  void addBiases(size_t layer, bool withUp) {
    const std::string prefix = std::to_string(layer) + ".";
    const auto seed = static_cast<uint32_t>(100 + 10 * layer);
    addBias(prefix + "self_attn.q_proj", kWidth, seed);
    addBias(prefix + "self_attn.k_proj", kKeys, seed + 1);
    addBias(prefix + "self_attn.v_proj", kKeys, seed + 2);
    addBias(prefix + "self_attn.o_proj", kWidth, seed + 3);
    addBias(prefix + "mlp.gate_proj", kFFN, seed + 4);
    addBias(prefix + "mlp.down_proj", kWidth, seed + 5);
    if (withUp)
      addBias(prefix + "mlp.up_proj", kFFN, seed + 6);
    config["attention_bias"] = config["mlp_bias"] = true;
  }
  /// The head is the embedding.
  void tie() {
    remove("lm_head.weight");
    config["tie_word_embeddings"] = true;
  }
  /// FFNs of another width.
  void widen(size_t ffn) {
    for (size_t layer = 0; layer < 3; ++layer) {
      const std::string mlp = std::to_string(layer) + ".mlp.";
      const auto seed = static_cast<uint32_t>(200 + 10 * layer);
      const auto replace = [&](const std::string &name,
                               const std::vector<size_t> &shape, uint32_t by) {
        remove("model.layers." + mlp + name + ".weight");
        add(mlp + name + ".weight", "F32", shape,
            noise(shape[0] * shape[1], seed + by));
      };
      replace("gate_proj", {ffn, kWidth}, 0);
      replace("down_proj", {kWidth, ffn}, 1);
      if (layer == 0)
        replace("up_proj", {ffn, kWidth}, 2);
      else
        replace("up_table", {96, ffn}, 2);
    }
    config["intermediate_size"] = ffn;
  }

  std::filesystem::path write() const {
    writeText(folder.path() / "config.json", config.dump());
    writeText(folder.path() / "model.safetensors",
              safetensors(header.dump(), data));
    return folder.path();
  }

  Json config;

private:
  void remove(const std::string &name) {
    const auto offsets = header[name]["data_offsets"];
    const size_t begin = offsets[0], size = offsets[1].get<size_t>() - begin;
    header.erase(name);
    data.erase(begin, size);
    for (auto &[other, tensor] : header.items())
      if (tensor.contains("data_offsets"))
        for (Json &offset : tensor["data_offsets"])
          if (offset.get<size_t>() > begin)
            offset = offset.get<size_t>() - size;
  }

  /// Values without a pattern between -0.5 and 0.5.
  static std::string noise(size_t count, uint32_t seed) {
    std::string bytes;
    for (uint32_t state = seed; count > 0; --count) {
      state = state * 1664525 + 1013904223;
      bytes += raw(static_cast<float>(state >> 8) / (1 << 24) - 0.5f);
    }
    return bytes;
  }

  const std::filesystem::path golden = goldenFolder("stem_llama");
  TemporaryFolder folder;
  Json header;
  std::string data;
};

} // namespace stem::test

#endif // STEM_TEST_UNIT_ENGINE_STEMVARIANT_H
