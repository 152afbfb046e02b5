//===- ModelWeightsTest.cpp - Every tensor used or named ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ModelWeights.h"

#include "TestFiles.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Model/Safetensors.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

using namespace stem;
using namespace stem::test;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

/// A copy of a reference model that tests change before they open it.
class Model {
public:
  explicit Model(const std::string &name) {
    const fs::path from = fs::path(STEM_TEST_DATA) / "golden" / name;
    config = ordered_json::parse(readText(from / "config.json"));
    const auto file = SafetensorsFile::open(from / "model.safetensors");
    for (const TensorView &view : file.tensors())
      tensors[view.name] = {
          {view.name, view.dtype, view.shape},
          std::string(reinterpret_cast<const char *>(view.data.data()),
                      view.data.size())};
  }

  void add(const std::string &name, DType dtype, std::vector<uint64_t> shape) {
    const uint64_t bytes = *dtypeBytes(dtype, *elementCount(shape));
    tensors[name] = {{name, dtype, std::move(shape)}, std::string(bytes, '\0')};
  }
  template <typename T>
  void addIds(const std::string &name, const std::vector<T> &ids) {
    add(name, sizeof(T) == 4 ? DType::I32 : DType::I64, {ids.size()});
    if (!ids.empty())
      std::memcpy(tensors[name].second.data(), ids.data(),
                  ids.size() * sizeof(T));
  }
  void addFloats(const std::string &name, const std::vector<float> &values) {
    add(name, DType::F32, {values.size()});
    std::memcpy(tensors[name].second.data(), values.data(),
                values.size() * sizeof(float));
  }
  void copy(const std::string &from, const std::string &to) {
    tensors[to] = tensors.at(from);
    tensors[to].first.name = to;
  }

  Checkpoint open() const {
    writeText(folder / "config.json", config.dump());
    std::vector<TensorDeclaration> declarations;
    for (const auto &[name, tensor] : tensors)
      declarations.push_back(tensor.first);
    SafetensorsWriter writer(folder / "model.safetensors", declarations);
    for (const auto &[name, tensor] : tensors)
      writer.write(bytesOf(tensor.second));
    writer.finish();
    return Checkpoint::open(folder.path());
  }

  ordered_json config;
  std::map<std::string, std::pair<TensorDeclaration, std::string>> tensors;

private:
  TemporaryFolder folder;
};

std::string layer(uint64_t n, const std::string &suffix) {
  return layerTensorName(n, suffix);
}

TEST(ModelWeights, referenceModelsUseEveryTensor) {
  for (const char *name :
       {"llama_gqa", "llama3_rope_tied_headdim", "qwen2_qkv_bias",
        "qwen3_qk_norm", "mistral_sliding", "stem_llama"}) {
    const auto model =
        Checkpoint::open(fs::path(STEM_TEST_DATA) / "golden" / name);
    const auto names = model.weights().names();
    const auto all = model.tensors().names();
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()),
              std::set<std::string>(all.begin(), all.end()));
    EXPECT_EQ(names.size(), all.size());
    EXPECT_TRUE(model.weights().ignored.empty());
    EXPECT_TRUE(model.warnings().empty());
    EXPECT_EQ(model.gguf(), nullptr);
    EXPECT_EQ(model.endTokens(), std::vector<int64_t>{2});
  }
}

TEST(ModelWeights, rolesOfAStemModel) {
  const auto model = Checkpoint::open(STEM_TEST_DATA "/golden/stem_llama");
  const auto &layers = model.weights().layers;
  EXPECT_EQ(layers[0].upProj, layer(0, "mlp.up_proj.weight"));
  EXPECT_EQ(layers[0].upTable, "");
  EXPECT_EQ(layers[1].upProj, "");
  EXPECT_EQ(layers[1].upTable, layer(1, "mlp.up_table.weight"));
  EXPECT_EQ(model.weights().head, "lm_head.weight");
}

TEST(ModelWeights, missingTensorIsNamed) {
  Model model("llama_gqa");
  model.tensors.erase(layer(1, "self_attn.k_proj.weight"));
  EXPECT_ERROR(model.open(), layer(1, "self_attn.k_proj.weight"), "[16, 32]",
               "missing");
}

TEST(ModelWeights, unusedTensorIsNamed) {
  Model model("llama_gqa");
  model.add("model.layers.0.mlp.extra.weight", DType::F32, {2});
  EXPECT_ERROR(model.open(), "1 tensors", "model.layers.0.mlp.extra.weight");
  model.tensors.erase("model.layers.0.mlp.extra.weight");
  model.add(layer(3, "mlp.up_proj.weight"), DType::F32, {80, 32});
  EXPECT_ERROR(model.open(), layer(3, "mlp.up_proj.weight"), "3 layers");
}

TEST(ModelWeights, wrongShapeOrTypeIsNamed) {
  Model model("llama_gqa");
  const std::string name = layer(2, "mlp.down_proj.weight");
  model.add(name, DType::F32, {80, 32});
  EXPECT_ERROR(model.open(), name, "[80, 32]", "[32, 80]");
  model.add(name, DType::I8, {32, 80});
  EXPECT_ERROR(model.open(), name, "I8", "BF16");
  model.add(name, DType::F8E4M3, {32, 80});
  EXPECT_ERROR(model.open(), name, "F8_E4M3");
  model.add(name, DType::F16, {32, 80});
  EXPECT_EQ(model.open().tensors().get(name).dtype, DType::F16);
}

TEST(ModelWeights, rotaryTablesAreIgnored) {
  Model model("llama_gqa");
  const std::string name = layer(0, "self_attn.rotary_emb.inv_freq");
  model.add(name, DType::F32, {4});
  EXPECT_EQ(model.open().weights().ignored, std::vector<std::string>{name});
}

// Cases C2 and C3.
TEST(ModelWeights, headTiedOrNot) {
  Model tied("llama3_rope_tied_headdim");
  const Checkpoint plain = tied.open();
  EXPECT_TRUE(plain.weights().isHeadTied);
  EXPECT_EQ(plain.weights().head, "model.embed_tokens.weight");

  tied.copy("model.embed_tokens.weight", "lm_head.weight");
  const Checkpoint repeated = tied.open();
  EXPECT_EQ(repeated.weights().ignored,
            std::vector<std::string>{"lm_head.weight"});
  EXPECT_TRUE(repeated.weights().isHeadTied);

  tied.tensors["lm_head.weight"].second[17] ^= 1;
  EXPECT_ERROR(tied.open(), "lm_head.weight", "differs",
               "\"tie_word_embeddings\": false");

  Model untied("llama_gqa");
  untied.tensors.erase("lm_head.weight");
  EXPECT_ERROR(untied.open(), "lm_head.weight", "missing",
               "\"tie_word_embeddings\": true");
}

// Case C6.
TEST(ModelWeights, biasesAreInEveryLayerOrInNone) {
  Model model("llama_gqa");
  model.add(layer(1, "self_attn.o_proj.bias"), DType::F32, {32});
  EXPECT_ERROR(model.open(), layer(1, "self_attn.o_proj.bias"),
               "layer 0 has none like it");
}

TEST(ModelWeights, biasesComeFromTheTensors) {
  Model model("llama_gqa");
  for (uint64_t n = 0; n < 3; ++n) {
    model.add(layer(n, "self_attn.q_proj.bias"), DType::F32, {32});
    model.add(layer(n, "self_attn.o_proj.bias"), DType::F32, {32});
    model.add(layer(n, "mlp.up_proj.bias"), DType::F32, {80});
  }
  const Checkpoint opened = model.open();
  const LayerWeights &weights = opened.weights().layers[1];
  EXPECT_EQ(weights.queryBias, layer(1, "self_attn.q_proj.bias"));
  EXPECT_EQ(weights.outputBias, layer(1, "self_attn.o_proj.bias"));
  EXPECT_EQ(weights.upBias, layer(1, "mlp.up_proj.bias"));
  EXPECT_EQ(weights.keyBias, "");

  model.config["attention_bias"] = true;
  EXPECT_ERROR(model.open(), layer(0, "self_attn.k_proj.bias"), "missing");
  model.config["attention_bias"] = false;
  model.config["mlp_bias"] = true;
  EXPECT_ERROR(model.open(), layer(0, "mlp.gate_proj.bias"), "missing");

  Model qwen2("qwen2_qkv_bias");
  qwen2.tensors.erase(layer(2, "self_attn.v_proj.bias"));
  EXPECT_ERROR(qwen2.open(), layer(2, "self_attn.v_proj.bias"), "missing");
}

TEST(ModelWeights, stemLayerHasNoUpBias) {
  Model model("stem_llama");
  model.add(layer(1, "mlp.up_proj.bias"), DType::F32, {80});
  EXPECT_ERROR(model.open(), layer(1, "mlp.up_proj.bias"));
}

TEST(ModelWeights, olmo2Norms) {
  Model model("llama_gqa");
  model.config["model_type"] = "olmo2";
  for (uint64_t n = 0; n < 3; ++n) {
    model.tensors.erase(layer(n, "input_layernorm.weight"));
    model.add(layer(n, "self_attn.q_norm.weight"), DType::F32, {32});
    model.add(layer(n, "self_attn.k_norm.weight"), DType::F32, {16});
    model.add(layer(n, "post_feedforward_layernorm.weight"), DType::F32, {32});
  }
  const Checkpoint opened = model.open();
  EXPECT_EQ(opened.weights().layers[0].inputNorm, "");
  EXPECT_EQ(opened.weights().layers[0].postFeedForwardNorm,
            layer(0, "post_feedforward_layernorm.weight"));
}

TEST(ModelWeights, eightBitRowsNeedScaleAndMinimum) {
  Model model("stem_llama");
  model.config["stem"]["row_dtype"] = "uint8";
  EXPECT_ERROR(model.open(), layer(1, "mlp.up_table.weight"), "F32", "uint8");
  for (const uint64_t n : {1, 2})
    model.add(layer(n, "mlp.up_table.weight"), DType::U8, {96, 80});
  EXPECT_ERROR(model.open(), layer(1, "mlp.up_table.scale"), "missing");
  for (const uint64_t n : {1, 2}) {
    model.add(layer(n, "mlp.up_table.scale"), DType::F32, {96});
    model.add(layer(n, "mlp.up_table.minimum"), DType::F32, {96});
  }
  const Checkpoint opened = model.open();
  const LayerWeights &weights = opened.weights().layers[2];
  EXPECT_EQ(weights.upTableMinimum, layer(2, "mlp.up_table.minimum"));
  EXPECT_EQ(weights.upTableHotIds, "");
  EXPECT_EQ(ModelWeights::byteRowNames(weights).size(), 2u);
}

/// The golden model with rows of 8 bits, all zero.
class ByteRowModel : public Model {
public:
  ByteRowModel() : Model("stem_llama") {
    config["stem"]["row_dtype"] = "uint8";
    for (const uint64_t n : {1, 2}) {
      add(layer(n, "mlp.up_table.weight"), DType::U8, {96, 80});
      add(layer(n, "mlp.up_table.scale"), DType::F32, {96});
      add(layer(n, "mlp.up_table.minimum"), DType::F32, {96});
    }
  }
};

TEST(ModelWeights, eightBitRowsMayBeKept) {
  ByteRowModel model;
  const std::string ids = layer(2, "mlp.up_table.hot_ids");
  const std::string rows = layer(2, "mlp.up_table.hot_rows");
  model.addIds<int32_t>(ids, {0, 3, 95});
  EXPECT_ERROR(model.open(), rows, "[3, 80]", "missing");
  model.add(rows, DType::BF16, {2, 80});
  const auto refuses = [&](std::initializer_list<std::string> parts) {
    const std::string error = errorOf([&] { model.open(); });
    EXPECT_TRUE(hasAll(error, parts));
    EXPECT_EQ(error.find("config.json"), std::string::npos) << error;
  };
  refuses({rows, "has shape [2, 80]; [3, 80] was expected: a row of "
                 "intermediate_size for each id of \"" +
                     ids + "\" in "});
  model.add(rows, DType::BF16, {3, 79});
  refuses({rows, "has shape [3, 79]; [3, 80] was expected"});
  model.add(ids, DType::I32, {3, 1});
  refuses({ids, "has shape [3, 1]; a list of ids, [n], was expected"});
  model.add(ids, DType::I32, {});
  refuses({ids, "has shape []; a list of ids, [n], was expected"});
  model.addIds<int32_t>(ids, {0, 3, 95});
  model.add(rows, DType::U8, {3, 80});
  EXPECT_ERROR(model.open(), rows, "U8", "F32, F16 or BF16 was expected");
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    model.add(rows, type, {3, 80});
    const Checkpoint opened = model.open();
    EXPECT_EQ(opened.weights().layers[1].upTableHotRows, "");
    EXPECT_EQ(opened.weights().layers[2].upTableHotIds, ids);
    EXPECT_EQ(opened.weights().layers[2].upTableHotRows, rows);
    EXPECT_EQ(ModelWeights::byteRowNames(opened.weights().layers[2]).size(),
              4u);
  }
  model.addIds<int64_t>(ids, {0, 3, 4});
  EXPECT_EQ(model.open().weights().layers[2].upTableHotIds, ids);
  model.addIds<int32_t>(ids, {0, 4, 3});
  EXPECT_ERROR(model.open(), ids, "id 3 after 4 at 2", "ids must rise");
  model.addIds<int32_t>(ids, {0, 3, 3});
  EXPECT_ERROR(model.open(), ids, "id 3 after 3 at 2", "ids must rise");
  model.addIds<int32_t>(ids, {0, 3, 96});
  EXPECT_ERROR(model.open(), ids, "id 96 at 2", "vocabulary ends at 95");
  model.addIds<int32_t>(ids, {-1, 3, 9});
  EXPECT_ERROR(model.open(), ids, "id -1 at 0");
  model.add(ids, DType::F32, {3});
  EXPECT_ERROR(model.open(), ids, "F32", "I32 or I64");
  model.tensors.erase(ids);
  EXPECT_ERROR(model.open(), ids, "[n] is missing");
}

TEST(ModelWeights, eightBitRowsHaveFiniteScales) {
  const std::string scale = layer(1, "mlp.up_table.scale");
  const std::string minimum = layer(2, "mlp.up_table.minimum");
  for (const float bad : {-1.0F, INFINITY, NAN}) {
    ByteRowModel model;
    std::vector<float> values(96);
    values[7] = bad;
    model.addFloats(scale, values);
    EXPECT_ERROR(model.open(), scale, "for id 7", "from 0 on", "damaged");
    if (bad == -1)
      continue;
    ByteRowModel other;
    other.addFloats(minimum, values);
    EXPECT_ERROR(other.open(), minimum, "for id 7", "a finite number was");
  }
  ByteRowModel large;
  std::vector<float> values(96);
  values[7] = 3e38F;
  large.addFloats(scale, values);
  EXPECT_ERROR(large.open(), scale, "3e+38 for id 7", "beyond f32", "damaged");
  ByteRowModel model;
  model.add(scale, DType::BF16, {96});
  EXPECT_ERROR(model.open(), scale, "BF16", "F32 was expected");
  model.add(scale, DType::F32, {95});
  EXPECT_ERROR(model.open(), scale, "[95]", "[96]");
}

TEST(ModelWeights, hybridsNeedTheirTensors) {
  Model model("stem_llama");
  model.config["stem"]["rank"] = 4;
  model.config["stem"]["select"] = true;
  EXPECT_ERROR(model.open(), layer(1, "mlp.up_mix.a.weight"), "[80, 4]");
  for (const uint64_t n : {1, 2}) {
    model.add(layer(n, "mlp.up_mix.a.weight"), DType::F32, {80, 4});
    model.add(layer(n, "mlp.up_mix.b.weight"), DType::F32, {4, 32});
    model.add(layer(n, "mlp.up_proj.weight"), DType::F32, {80, 32});
    model.addIds<int64_t>(layer(n, "mlp.up_select.ids"), {0, 3, 4, 50, 95});
  }
  const Checkpoint opened = model.open();
  const LayerWeights &weights = opened.weights().layers[1];
  EXPECT_EQ(weights.upSelectIds, layer(1, "mlp.up_select.ids"));
  EXPECT_EQ(weights.upProj, layer(1, "mlp.up_proj.weight"));
  model.tensors.erase(layer(1, "mlp.up_select.ids"));
  EXPECT_ERROR(model.open(), layer(1, "mlp.up_select.ids"), "missing");
}

TEST(ModelWeights, eachLayerHasFactorsOfItsRank) {
  Model model("stem_llama");
  const auto add = [&](uint64_t n, uint64_t rank) {
    model.add(layer(n, "mlp.up_mix.a.weight"), DType::F32, {80, rank});
    model.add(layer(n, "mlp.up_mix.b.weight"), DType::F32, {rank, 32});
  };
  model.config["stem"]["rank"] = {0, 4};
  EXPECT_ERROR(model.open(), layer(2, "mlp.up_mix.a.weight"), "[80, 4]",
               "missing");
  add(2, 4);
  const Checkpoint opened = model.open();
  EXPECT_EQ(opened.weights().layers[1].upMixA, "");
  EXPECT_EQ(opened.weights().layers[2].upMixA, layer(2, "mlp.up_mix.a.weight"));
  EXPECT_EQ(opened.weights().layers[2].upMixB, layer(2, "mlp.up_mix.b.weight"));
  // A layer of rank 0 has no factors.
  add(1, 4);
  EXPECT_ERROR(model.open(), layer(1, "mlp.up_mix.a.weight"), "no place");
  model.config["stem"]["rank"] = {16, 4};
  EXPECT_ERROR(model.open(), layer(1, "mlp.up_mix.a.weight"), "[80, 4]",
               "[80, 16]");
  add(1, 16);
  EXPECT_EQ(model.open().weights().layers[1].upMixB,
            layer(1, "mlp.up_mix.b.weight"));
}

TEST(ModelWeights, selectedIdsRise) {
  Model model("stem_llama");
  model.config["stem"]["select"] = true;
  const std::string ids = layer(1, "mlp.up_select.ids");
  for (const uint64_t n : {1, 2}) {
    model.add(layer(n, "mlp.up_proj.weight"), DType::F32, {80, 32});
    model.addIds<int32_t>(layer(n, "mlp.up_select.ids"), {});
  }
  EXPECT_EQ(model.open().tensors().get(ids).elements(), 0u);
  for (const auto type : {DType::F32, DType::U8}) {
    model.add(ids, type, {5});
    EXPECT_ERROR(model.open(), "model.safetensors", ids,
                 std::string(dtypeName(type)), "I32 or I64");
  }
  model.add(ids, DType::I64, {97});
  EXPECT_ERROR(model.open(), "model.safetensors", ids, "97 ids", "96");
  model.add(ids, DType::I64, {2, 2});
  EXPECT_ERROR(model.open(), "model.safetensors", ids, "[2, 2]");
  const auto refuse = [&](auto values, const char *seen, const char *wanted) {
    model.addIds(ids, values);
    EXPECT_ERROR(model.open(), "model.safetensors", ids, seen, wanted);
  };
  refuse(std::vector<int32_t>{4, 3}, "id 3 after 4 at 1", "must rise");
  refuse(std::vector<int64_t>{4, 9, 9}, "id 9 after 9 at 2", "must rise");
  refuse(std::vector<int32_t>{-1, 9}, "id -1 at 0", "ends at 95");
  refuse(std::vector<int32_t>{9, 96}, "id 96 at 1", "ends at 95");
  refuse(std::vector<int64_t>{9, int64_t(1) << 32}, "id 4294967296 at 1",
         "ends at 95");
}

// Case B1 through the model: the index promises what the shard lacks.
TEST(ModelWeights, missingTensorNamesItsShard) {
  const TemporaryFolder folder;
  const fs::path from = fs::path(STEM_TEST_DATA) / "golden" / "llama_gqa";
  fs::copy(from / "config.json", folder / "config.json");
  fs::copy(from / "model.safetensors", folder / "m-1.safetensors");
  ordered_json map;
  const auto shard = SafetensorsFile::open(folder / "m-1.safetensors");
  for (const TensorView &view : shard.tensors())
    map[view.name] = "m-1.safetensors";
  map["mtp.fc.weight"] = "m-1.safetensors";
  const auto writeIndex = [&] {
    writeText(folder / "model.safetensors.index.json",
              ordered_json({{"weight_map", map}}).dump());
  };
  writeIndex();
  // The model does not need it.
  const auto warnings = Checkpoint::open(folder.path()).warnings();
  EXPECT_TRUE(std::ranges::any_of(warnings, [](const std::string &warning) {
    return hasAll(warning, {"mtp.fc.weight", "m-1.safetensors",
                            "the model does not need it"});
  }));
  // In the shard, but not in the index.
  map.erase("mtp.fc.weight");
  map.erase("model.norm.weight");
  writeIndex();
  EXPECT_ERROR(Checkpoint::open(folder.path()), "model.norm.weight", "missing");
  map["model.norm.weight"] = "m-1.safetensors";
  map["lm_head.weight"] = "m-2.safetensors";
  SafetensorsWriter(folder / "m-2.safetensors", {}).finish();
  writeIndex();
  EXPECT_ERROR(Checkpoint::open(folder.path()), "lm_head.weight",
               "m-2.safetensors", "does not have", "--ignore-index");
}

TEST(Checkpoint, saysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_ERROR(Checkpoint::open(folder / "none"), "none", "no such file");
  EXPECT_ERROR(Checkpoint::open(folder.path()), "config.json");
  writeText(folder / "m.safetensors", "x");
  EXPECT_ERROR(Checkpoint::open(folder / "m.safetensors"), "give the folder");
  writeText(folder / "m.txt", "hello");
  EXPECT_ERROR(Checkpoint::open(folder / "m.txt"), "not a GGUF file");
}

TEST(Checkpoint, gathersEndTokens) {
  const TemporaryFolder folder;
  fs::copy(fs::path(STEM_TEST_DATA) / "golden" / "llama_gqa", folder.path(),
           fs::copy_options::recursive);
  writeText(folder / "generation_config.json", R"({"eos_token_id":[5,2]})");
  EXPECT_EQ(Checkpoint::open(folder.path()).endTokens(),
            (std::vector<int64_t>{5, 2}));
}

} // namespace
