//===- ConversionReportTest.cpp - convert --report ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConversionReport.h"

#include "../Report/PageCheck.h"

using namespace stem;
using namespace stem::test;

namespace {

/// Layers 1 and 2 of three, as `convert --json` prints them.
const char *const calibrated = R"json({
  "schema": "stem.convert/1", "source": "models/<dense>", "out": "stem",
  "converted": [1, 2], "init": "calibrated", "row_dtype": "bfloat16",
  "left_out": ["rotary.inv_freq"],
  "not_finite": [{"tensor": "model.layers.1.bad", "values": 3}],
  "before": {"parameters": 1000, "flops_per_token": 2000, "bytes": 4000,
    "bytes_read_per_token": 4000, "layers": [
      {"layer": 0, "kind": "dense", "parameters": 300},
      {"layer": 1, "kind": "dense", "parameters": 301, "flops_per_token": 600,
       "bytes": 602, "bytes_read_per_token": 602},
      {"layer": 2, "kind": "dense", "parameters": 302, "flops_per_token": 604,
       "bytes": 604, "bytes_read_per_token": 604}]},
  "after": {"parameters": 5000, "flops_per_token": 1500, "bytes": 9000,
    "bytes_read_per_token": 3000, "layers": [
      {"layer": 0, "kind": "dense", "parameters": 300},
      {"layer": 1, "kind": "stem", "parameters": 2300, "flops_per_token": 350,
       "bytes": 4600, "bytes_read_per_token": 400},
      {"layer": 2, "kind": "stem", "parameters": 2301, "flops_per_token": 351,
       "bytes": 4602, "bytes_read_per_token": 402}]},
  "seconds": 125.5, "peak_bytes": 1500000000,
  "calibration": {
    "texts": [{"file": "faq.txt", "sha256": "ab12", "tokens": 70001,
               "tokens_taken": 25088}],
    "window": 512, "mix_rank": 64, "rows": "ids", "flops": 0.1528,
    "self_share": 0.25, "dialogue_share": 0.101, "seed": 7,
    "dropped_passages": {"count": 12, "share": 0.034}, "tokens_fit": 43904, "tokens_choose": 3136,
    "tokens_check": 3130, "coverage": 0.973,
    "layers": [
      {"layer": 1, "shrinkage": 4, "ridge": 0.01, "rank": 64,
       "seed": 18446744073709551615,
       "error_before_refit": 0.31, "error_after_refit": 0.22},
      {"layer": 2, "shrinkage": 16, "ridge": 0.1,
       "error_before_refit": 0.41, "error_after_refit": null}],
    "perplexity_dense": 14.25, "perplexity_converted": 22.8,
    "sensitivities": [null, 0.05, 0.02],
    "coverage_by_count": [
      {"from": 0, "to": 0, "ids": 40000, "check_tokens": 30,
       "perplexity_dense": 500.5, "perplexity_converted": 9000.25},
      {"from": 1, "to": 1, "ids": 2000, "check_tokens": 70,
       "perplexity_dense": 90, "perplexity_converted": 180},
      {"from": 2, "to": 3, "ids": 900, "check_tokens": 100,
       "perplexity_dense": 50, "perplexity_converted": null},
      {"from": 4, "to": null, "ids": 700, "check_tokens": 800,
       "perplexity_dense": 9, "perplexity_converted": 12}],
    "perplexity_by_text": [
      {"file": "faq.txt", "tokens": 1500, "dense": 11.5, "converted": 16.1},
      {"file": "pydoc.txt", "tokens": 1630, "dense": 18.0, "converted": 31.5}],
    "convert_seconds": 90, "sensitivity_seconds": 30}})json";

std::string checked(const Json &result) {
  const std::string page = conversionReport(result);
  checkPage(page);
  EXPECT_EQ(conversionReport(result), page);
  return page;
}

void expectParts(const std::string &page,
                 const std::vector<std::string> &parts) {
  for (const std::string &part : parts)
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

std::string cells(const std::vector<std::string> &values,
                  size_t textColumns = 1) {
  std::string row;
  for (size_t i = 0; i < values.size(); ++i)
    row += std::string("<td class=\"") + (i < textColumns ? "text" : "number") +
           "\">" + values[i] + "</td>";
  return "<tr>" + row + "</tr>";
}

TEST(ConversionReport, saysWhatWasConvertedAndWhatItCosts) {
  const std::string page = checked(Json::parse(calibrated));
  const std::string held =
      "on 3130 tokens of the calibration texts that were held back: 14.25 "
      "dense, 22.8 converted, 1.6 times. 97.3 % of";
  expectParts(page, {"<h1>Conversion of models/&lt;dense&gt;</h1>",
                     "in 2 layers: 1, 2.",
                     "2 of the model&#39;s 3 layers are STEM.", held,
                     cells({"layer 1", "301 → 2.3 K", "600 → 350",
                            "602 B → 4.6 KB", "602 B → 400 B"}),
                     cells({"model", "1 K → 5 K", "2 K → 1.5 K", "4 KB → 9 KB",
                            "4 KB → 3 KB"}),
                     cells({"change of the whole model", "400.0 % more",
                            "25.0 % less", "125.0 % more", "25.0 % less"})});
  EXPECT_EQ(page.find("layer 0<"), std::string::npos);
}

TEST(ConversionReport, saysWhatRowsOf8BitsSave) {
  Json result = Json::parse(calibrated);
  EXPECT_EQ(checked(result).find("8 bits"), std::string::npos);
  result["cold_rows"] = {{"hot_ids", 21},
                         {"covered_share", 0.912},
                         {"saved_of_tables", 0.4},
                         {"saved_of_model", 0.25}};
  result["calibration"]["perplexity_byte_rows"] = 22.80123;
  expectParts(checked(result),
              {cells({"ids whose rows are not of 8 bits", "21"}, 2),
               cells({"tokens counted that are of these ids", "91.2 %"}, 2),
               cells({"bytes of the tables that 8 bits save", "40.0 %"}, 2),
               cells({"bytes of the model that 8 bits save", "25.0 %"}, 2),
               cells({"perplexity of the text held back with rows of 8 bits",
                      "22.8012"},
                     2)});
}

TEST(ConversionReport, drawsLayers) {
  const std::string page = checked(Json::parse(calibrated));
  expectParts(page, {"<title>1, converted: 0.05</title>",
                     "<title>2, converted: 0.02</title>",
                     "Left out, no finite value: 0.</p>",
                     "<title>1, before the refit: 0.31</title>",
                     "<title>1, after the refit: 0.22</title>",
                     "<title>2, before the refit: 0.41</title>",
                     "Left out, no finite value: 2, after the refit.</p>"});
}

TEST(ConversionReport, drawsCoverageAndTexts) {
  const std::string page = checked(Json::parse(calibrated));
  expectParts(
      page,
      {cells({"never", "40000", "30", "3.0 %", "500.5", "9000", "17.98"}),
       cells({"1", "2000", "70", "7.0 %", "90", "180", "2"}),
       cells({"2 to 3", "900", "100", "10.0 %", "50", "–", "–"}),
       cells({"4 or more", "700", "800", "80.0 %", "9", "12", "1.333"}),
       "<title>4 or more: 800</title>", "<title>never, dense: 500.5</title>",
       "no finite value: 2 to 3, converted.</p>",
       cells({"pydoc.txt", "1630", "18", "31.5", "1.75"}),
       "<title>faq.txt, converted: 16.1</title>"});
}

TEST(ConversionReport, saysHowItWasMade) {
  const std::string page = checked(Json::parse(calibrated));
  expectParts(
      page,
      {cells({"faq.txt", "ab12", "70001", "25088"}, 2),
       cells({"1", "4", "0.01", "64", "18446744073709551615", "0.31", "0.22"}),
       cells({"2", "16", "0.1", "–", "–", "0.41", "–"}),
       cells({"rank of the low-rank term (--mix-rank)", "64"}, 2),
       cells({"rows for (--rows)", "ids"}, 2),
       cells({"share of the replaced FLOPs that such terms may take (--flops)",
              "15.28 %"},
             2),
       cells({"seed of the calibration", "7"}, 2),
       cells({"text that the model wrote", "25.0 %"}, 2),
       cells({"dialogue", "10.1 %"}, 2),
       cells({"passages that occur before, left out", "12"}, 2),
       cells({"their share of the files&#39; bytes", "3.4 %"}, 2),
       cells({"tokens to fit", "43904"}, 2),
       cells({"time in all", "2.09 min"}, 2),
       cells({"peak memory", "1.5 GB"}, 2), "left out: rotary.inv_freq.",
       cells({"model.layers.1.bad", "3"})});
}

TEST(ConversionReport, otherRowsHaveNoCalibration) {
  Json result = Json::parse(calibrated);
  result.erase("calibration");
  result["init"] = "xavier";
  result["seed"] = 5;
  const std::string page = checked(result);
  expectParts(page, {cells({"seed", "5"}, 2), "The rows start from xavier.",
                     "ruin a trained model", "What it costs and saves"});
  for (const char *part : {"<svg", "Sensitivity", "Perplexity", "SHA-256"})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
}

TEST(ConversionReport, namedLayersHaveNoSensitivities) {
  Json result = Json::parse(calibrated);
  result["calibration"].erase("sensitivities");
  expectParts(checked(result), {"The layers were named, not chosen"});
}

/// Any part may be missing or of another type.
TEST(ConversionReport, holdsForAnyResult) {
  const Json whole = Json::parse(calibrated);
  const Json others[] = {Json(),
                         Json(7),
                         Json("text"),
                         Json::array({1, "a", nullptr}),
                         Json({{"layers", "x"}}),
                         Json(-1.5)};
  for (const Json &other : others) {
    checked(other);
    for (const char *base : {"", "/before", "/after", "/calibration"})
      for (const auto &[key, value] :
           whole.at(Json::json_pointer(base)).items()) {
        Json result = whole;
        result.at(Json::json_pointer(base))[key] = other;
        checked(result);
      }
  }
}

} // namespace
