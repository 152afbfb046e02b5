//===- TablePlacesTest.cpp - Tables of some layers lie elsewhere ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TablePlaces.h"

#include "StemVariant.h"

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t kTable = 96 * 80 * 4; ///< bytes, in the golden model

TEST(TablePlaces, AreParsed) {
  const auto places = parseLayerPlaces({"2,5=file", "0=resident"});
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[1].layer, 5u);
  EXPECT_EQ(places[1].place, TablePlacement::File);
  EXPECT_EQ(places[1].given, "--table-place=2,5=file");
  EXPECT_EQ(places[2].place, TablePlacement::Resident);
  EXPECT_EQ(parseLayerPlaces({"1=host"})[0].place, TablePlacement::Resident);
  EXPECT_TRUE(parseLayerPlaces({}).empty());
}

TEST(TablePlaces, RefusesWhatIsNone) {
  for (const char *text : {"", "2", "2=", "2=disk", "=", "file", "2=file "})
    EXPECT_ERROR(parseLayerPlaces({text}),
                 fmt::format("--table-place={}: ", text),
                 "give LAYERS=PLACE, like 2,5=file",
                 "a place is resident, host or file");
  EXPECT_ERROR(parseLayerPlaces({"=file"}), "--table-place==file",
               "names no layer", "like 2,5=file");
  EXPECT_ERROR(parseLayerPlaces({"a,2=file"}), "\"a\" is not an integer");
  EXPECT_ERROR(parseLayerPlaces({"-1=file"}), "-1 is no layer",
               "counted from 0");
  EXPECT_ERROR(parseLayerPlaces({"2,3,2=file"}), "layer 2 is named twice");
  EXPECT_ERROR(parseLayerPlaces({"2=file", "3,2=resident"}),
               "--table-place=3,2=resident: layer 2 is named twice");
}

TEST(TablePlaces, AreThoseOfTheModel) {
  const Checkpoint model = Checkpoint::open(goldenFolder("stem_llama"));
  const auto at = [&](const std::string &text) {
    return TablePlaces(TablePlacement::Resident, parseLayerPlaces({text}),
                       model);
  };
  const std::string key = model.weights().layers[1].upTable;
  EXPECT_EQ(at("1=file").of(key), TablePlacement::File);
  EXPECT_EQ(at("2=file").of(key), TablePlacement::Resident);
  EXPECT_ERROR(at("3=file"), "--table-place=3=file: ", "has no layer 3",
               "its layers are 0 to 2");
  EXPECT_ERROR(at("1,0=file"), "--table-place=1,0=file: layer 0 of ",
               "has no table; its STEM layers are 1-2");
  // A dense model is one that another is compared with.
  const Checkpoint dense = Checkpoint::open(goldenFolder("llama_gqa"));
  const auto ofDense = [&](const std::string &text) {
    return TablePlaces(TablePlacement::Resident, parseLayerPlaces({text}),
                       dense);
  };
  EXPECT_TRUE(ofDense("1=file").others.empty());
  EXPECT_ERROR(ofDense("3=file"), "has no layer 3");
}

/// Every way to place two tables gives the same bits, and says so.
TEST(TablePlaces, EngineRunsWithEach) {
  const std::vector<int32_t> ids = someIds(150);
  EngineOptions options;
  const auto prefilled = [&](std::string *plan) {
    options.onPlan = [=](const std::string &text) {
      if (plan)
        *plan = text;
    };
    const auto engine = makeEngine(goldenFolder("stem_llama"), options);
    std::vector<float> logits = prefillAlone(*engine, ids);
    const std::vector<float> decoded =
        decodeRows(*engine, std::span(ids).first(20));
    logits.insert(logits.end(), decoded.begin(), decoded.end());
    return std::pair(logits, engine->report());
  };
  const std::vector<float> wanted = prefilled(nullptr).first;
  for (const TablePlacement all :
       {TablePlacement::Resident, TablePlacement::File})
    for (const char *text : {"1=file", "2=file", "1=resident", "2=resident"})
      for (const int64_t distance : {0, 1, 2}) {
        SCOPED_TRACE(fmt::format("{} {} {}", text, distance,
                                 all == TablePlacement::File));
        options.tables = all;
        options.layerPlaces = parseLayerPlaces({text});
        options.prefetchDistance = distance;
        options.cacheIds = 7;
        std::string plan;
        const auto [logits, report] = prefilled(&plan);
        EXPECT_TRUE(sameBits(logits, wanted));
        const bool named = std::string_view(text).ends_with("file");
        int64_t inFiles = 0;
        for (const PlacedTable &table : report.tables) {
          const bool isNamed = text[0] - '0' == int(table.layer);
          EXPECT_EQ(table.isInFile,
                    isNamed ? named : all == TablePlacement::File);
          EXPECT_EQ(table.bytes, kTable);
          inFiles += table.isInFile;
        }
        EXPECT_EQ(report.plan.tablesInFiles, inFiles * kTable);
        EXPECT_EQ(report.plan.tables, (2 - inFiles) * kTable);
        EXPECT_EQ(report.plan.stagedTables, std::min(inFiles, distance + 1));
        EXPECT_EQ(report.plan.kept, 7 * inFiles * 80 * 4);
        EXPECT_EQ(arePlacedApart(report.tables), inFiles == 1);
        if (inFiles == 1)
          EXPECT_TRUE(hasAll(
              plan,
              {fmt::format("tables of layers {} in memory (30.7 KB), of layers "
                           "{} in files (30.7 KB), their rows of a step",
                           layersOf(report.tables, false),
                           layersOf(report.tables, true))}));
      }
}

TEST(TablePlaces, FewerInMemoryIsWhatToDoWithoutMemory) {
  EngineOptions options;
  options.memory = 1'000'000;
  options.tables = TablePlacement::File;
  options.layerPlaces = parseLayerPlaces({"1=resident"});
  EXPECT_ERROR(makeEngine(goldenFolder("stem_llama"), options),
               "--table-place for fewer layers leaves more tables in the "
               "model's files, --staging-rows=64");
  options.tables = TablePlacement::Resident;
  EXPECT_ERROR(makeEngine(goldenFolder("stem_llama"), options),
               "--tables=file leaves the tables in the model's files");
}

} // namespace
