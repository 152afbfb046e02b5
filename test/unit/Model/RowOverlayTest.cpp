//===- RowOverlayTest.cpp - rows.safetensors and what it is attached to ---===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/RowOverlay.h"

#include "TestFiles.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Model/Safetensors.h"

#include <functional>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

const fs::path golden = STEM_TEST_DATA "/golden/stem_llama";
constexpr uint64_t kColumns = 80;
const std::string kHash(64, 'a');

std::string tableName(uint64_t layer) {
  return layerTensorName(layer, "mlp.up_table.weight");
}

/// Of layers 1 and 2, with rows of `value`, `value` + 1, … in all columns.
RowOverlay makeOverlay(const Checkpoint &model, std::vector<int32_t> ids,
                       float value) {
  RowOverlay overlay;
  overlay.name = "made";
  overlay.ids = std::move(ids);
  for (const uint64_t layer : {1, 2}) {
    std::vector<float> rows;
    for (size_t i = 0; i < overlay.ids.size(); ++i)
      rows.insert(rows.end(), kColumns, value + static_cast<float>(i));
    const auto bytes = bytesOf(rows);
    overlay.tables.push_back(
        {layer, DType::F32, kColumns, {bytes.begin(), bytes.end()}});
  }
  overlay.base = rowBaseOf(model, overlay.ids, overlay.layers());
  return overlay;
}

std::vector<float> readRow(const Checkpoint &model, uint64_t layer,
                           uint64_t id) {
  std::vector<float> row(kColumns);
  model.tensors().readF32(tableName(layer), id, 1, row.data());
  return row;
}

std::vector<float> constant(float value) {
  return std::vector<float>(kColumns, value);
}

/// An overlay file, as its header says it.
struct FileText {
  std::string format = "stem-rows", version = "1", dense = kHash, rows = kHash;
  std::string idType = "I32", idShape = "[2]", ids = raw(3) + raw(7);
  std::string table = "model.layers.1.mlp.up_table.rows", type = "F32",
              shape = "[2,1]", data = raw(1.f) + raw(2.f);

  std::string text() const {
    const auto entry = [](const std::string &name, const std::string &dtype,
                          const std::string &dims, size_t begin, size_t size) {
      return fmt::format(R"("{}":{{"dtype":"{}","shape":{},)"
                         R"("data_offsets":[{},{}]}})",
                         name, dtype, dims, begin, begin + size);
    };
    std::string header =
        fmt::format(R"({{"__metadata__":{{"format":"{}","version":"{}",)"
                    R"("dense_sha256":"{}","rows_sha256":"{}"}})",
                    format, version, dense, rows);
    if (!ids.empty())
      header += "," + entry("ids", idType, idShape, 0, ids.size());
    if (!data.empty())
      header += "," + entry(table, type, shape, ids.size(), data.size());
    return safetensors(header + "}", ids + data);
  }
};

std::string refusal(const std::function<void(FileText &)> &spoil) {
  FileText file;
  spoil(file);
  const std::string text = file.text();
  return errorOf([&] { RowOverlay::parse(bytesOf(text), "spoiled"); });
}

TEST(RowOverlay, goesThroughAFile) {
  const TemporaryFolder folder;
  const Checkpoint model = Checkpoint::open(golden);
  RowOverlay overlay = makeOverlay(model, {3, 90}, 5);
  overlay.provenance = R"({"command":"test"})";
  overlay.write(folder / "rows.safetensors");
  EXPECT_EQ(fs::file_size(folder / "rows.safetensors"), overlay.fileBytes());
  const RowOverlay read = RowOverlay::read(folder / "rows.safetensors");
  EXPECT_EQ(read.ids, overlay.ids);
  EXPECT_EQ(read.layers(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(read.bytes(), 2 * 2 * kColumns * sizeof(float));
  EXPECT_EQ(read.provenance, overlay.provenance);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(read.tables[i].rows, overlay.tables[i].rows);
  read.requireBase(model);
}

TEST(RowOverlay, readersSeeItsRows) {
  Checkpoint model = Checkpoint::open(golden);
  const std::vector<float> before = readRow(model, 1, 4);
  model.attach(makeOverlay(model, {3, 5, 95}, 7));
  for (const uint64_t layer : {1, 2}) {
    EXPECT_EQ(readRow(model, layer, 3), constant(7));
    EXPECT_EQ(readRow(model, layer, 5), constant(8));
    EXPECT_EQ(readRow(model, layer, 95), constant(9));
  }
  EXPECT_EQ(readRow(model, 1, 4), before);
  // A range across rows of both, as f32, bf16 and bytes.
  std::vector<float> range(4 * kColumns);
  model.tensors().readF32(tableName(1), 3, 4, range.data());
  EXPECT_EQ(range[0], 7);
  EXPECT_EQ(range[kColumns], before[0]);
  EXPECT_EQ(range[2 * kColumns], 8);
  std::vector<uint16_t> narrow(4 * kColumns);
  model.tensors().readBF16(tableName(1), 3, 4, narrow.data());
  EXPECT_EQ(narrow[2 * kColumns], f32ToBF16(8));
  std::vector<float> bytes(range.size());
  model.tensors().readRaw(tableName(1), 3, 4,
                          reinterpret_cast<std::byte *>(bytes.data()));
  EXPECT_EQ(bytes, range);
  EXPECT_TRUE(model.tensors().bytes(tableName(1)).empty());
  model.tensors().release(tableName(1), 3, 4);
  model.tensors().release(tableName(1));
  EXPECT_EQ(readRow(model, 1, 3), constant(7));
}

TEST(RowOverlay, theLastOfSeveralWins) {
  Checkpoint model = Checkpoint::open(golden);
  const RowOverlay first = makeOverlay(model, {3, 4}, 7);
  const RowOverlay second = makeOverlay(model, {2, 4}, 20);
  model.attach(first);
  model.attach(second);
  EXPECT_EQ(readRow(model, 2, 2), constant(20));
  EXPECT_EQ(readRow(model, 2, 3), constant(7));
  EXPECT_EQ(readRow(model, 2, 4), constant(21));
  EXPECT_ERROR(rowBaseOf(model, first.ids, first.layers()),
               "an overlay is attached");
}

TEST(RowOverlay, refusesMalformedFiles) {
  EXPECT_EQ(refusal([](FileText &) {}), "(no error)");
  const auto refused = [](const std::function<void(FileText &)> &spoil,
                          std::initializer_list<std::string> parts) {
    EXPECT_TRUE(hasAll(refusal(spoil), parts));
  };
  refused([](FileText &f) { f.format = "pt"; },
          {"spoiled: is no row overlay", "--train=rows:FILE"});
  refused([](FileText &f) { f.version = "2"; },
          {"has version \"2\"", "reads version 1"});
  refused([](FileText &f) { f.dense = "abc"; },
          {"\"dense_sha256\" in the metadata is \"abc\""});
  refused([](FileText &f) { f.rows = std::string(64, 'G'); },
          {"\"rows_sha256\"", "a SHA-256 in hex was expected"});
  refused([](FileText &f) { f.ids = ""; }, {"there is no tensor \"ids\""});
  refused([](FileText &f) { f.idType = "F32"; },
          {"\"ids\" has type F32", "I32 or I64"});
  refused([](FileText &f) { f.idShape = "[1,2]"; },
          {"\"ids\" has shape [1, 2]"});
  refused([](FileText &f) { f.ids = raw(7) + raw(3); },
          {"has 3 at position 1 after 7", "ids rise"});
  refused([](FileText &f) { f.ids = raw(3) + raw(3); },
          {"has 3 at position 1 after 3", "once"});
  refused([](FileText &f) { f.ids = raw(-1) + raw(3); },
          {"has -1 at position 0", "no token id"});
  refused(
      [](FileText &f) {
        f.idType = "I64";
        f.ids = raw(int64_t{3}) + raw(int64_t{1} << 40);
      },
      {"has 1099511627776 at position 1", "no token id"});
  refused([](FileText &f) { f.data = ""; }, {"rows of no layer"});
  for (const char *name :
       {"model.layers.1.mlp.up_table.weight", "rows",
        "model.layers.01.mlp.up_table.rows",
        "model.layers.-1.mlp.up_table.rows",
        "model.layers.99999999999999999999.mlp.up_table.rows"})
    refused([&](FileText &f) { f.table = name; },
            {fmt::format("tensor \"{}\" is none of a row overlay", name)});
  refused([](FileText &f) { f.shape = "[1,2]"; },
          {"has shape [1, 2]", "each of the 2 ids"});
  refused([](FileText &f) { f.shape = "[2]"; }, {"has shape [2]"});
  refused([](FileText &f) { f.type = "I32"; },
          {"has type I32", "none of rows"});
  const std::string whole = FileText().text();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(errorOf([&] {
                RowOverlay::parse(bytesOf(whole).first(size), "truncated");
              }),
              "(no error)")
        << size;
}

TEST(RowOverlay, refusesWhatDoesNotFitTheModel) {
  const Checkpoint model = Checkpoint::open(golden);
  const Checkpoint dense = Checkpoint::open(STEM_TEST_DATA "/golden/llama_gqa");
  const RowOverlay good = makeOverlay(model, {3, 7}, 1);
  EXPECT_ERROR(good.requireTables(dense), "made: ", "llama_gqa has no table",
               "stem-run convert");
  RowOverlay bad = good;
  bad.ids = {3, 96};
  EXPECT_ERROR(bad.requireTables(model), "id 96 is outside the vocabulary",
               "0 to 95");
  bad = good;
  bad.tables[0].layer = 0;
  EXPECT_ERROR(bad.requireTables(model), "rows of layer 0", "no STEM layer");
  bad = good;
  bad.tables[1].layer = 3;
  EXPECT_ERROR(bad.requireTables(model), "rows of layer 3", "no STEM layer");
  bad = good;
  bad.tables[1].columns = 79;
  EXPECT_ERROR(bad.requireTables(model), "rows of layer 2 have 79 columns",
               "has 80");
  bad = good;
  bad.tables[0].dtype = DType::BF16;
  EXPECT_ERROR(bad.requireTables(model), "rows of layer 1 have type BF16",
               "has F32", "type of the table");
}

/// The golden model with one byte of a tensor flipped.
Checkpoint openWithFlip(const TemporaryFolder &folder,
                        const std::string &tensor, size_t byte) {
  std::string text = readText(golden / "model.safetensors");
  const SafetensorsFile file =
      SafetensorsFile::open(golden / "model.safetensors");
  const std::span<const std::byte> data = file.get(tensor).data;
  const std::string bytes(reinterpret_cast<const char *>(data.data()),
                          data.size());
  const size_t at = text.find(bytes);
  text[at + byte] = static_cast<char>(text[at + byte] ^ 1);
  writeText(folder / "model.safetensors", text);
  fs::copy_file(golden / "config.json", folder / "config.json",
                fs::copy_options::overwrite_existing);
  return Checkpoint::open(folder.path());
}

TEST(RowOverlay, refusesAnotherModel) {
  const TemporaryFolder folder;
  const RowOverlay overlay = makeOverlay(Checkpoint::open(golden), {3, 7}, 1);
  constexpr size_t rowBytes = kColumns * sizeof(float);
  // Weights beside the tables; a row that is replaced; one that is not.
  EXPECT_ERROR(
      overlay.requireBase(openWithFlip(folder, "model.norm.weight", 0)),
      "was made for another model", "weights", "dense_sha256");
  EXPECT_ERROR(
      overlay.requireBase(openWithFlip(folder, tableName(2), 7 * rowBytes)),
      "was made for another model", "stem-run apply", "rows_sha256");
  overlay.requireBase(openWithFlip(folder, tableName(2), 8 * rowBytes));
}

TEST(RowOverlay, replacesRowsOfTheRightSizeAlone) {
  const auto source = openSafetensorsFolder(golden);
  const std::vector<int32_t> rows = {3, 96};
  const std::vector<std::byte> data(2 * kColumns * sizeof(float));
  EXPECT_ERROR(source->overlayRows(tableName(1), rows, data),
               "row 96 is to be replaced, it has 96 rows");
  EXPECT_ERROR(source->overlayRows(tableName(1), rows,
                                   std::span(data).first(data.size() - 1)),
               "639 bytes came for 2 rows of 320 bytes");
}

} // namespace
