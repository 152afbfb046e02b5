//===- ConversionReport.cpp - convert --report ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConversionReport.h"

#include "stem/Report/Markup.h"
#include "stem/Report/Page.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>

using namespace stem;

namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

/// Null where `json` is no object, has no such key or has null there.
const Json *find(const Json *json, const char *key) {
  if (!json || !json->is_object())
    return nullptr;
  const auto entry = json->find(key);
  return entry == json->end() || entry->is_null() ? nullptr : &*entry;
}

double toNumber(const Json *json) {
  return json && json->is_number() ? json->get<double>() : nothing;
}

double number(const Json *json, const char *key) {
  return toNumber(find(json, key));
}

/// The elements of a list; none where there is no list.
std::vector<const Json *> list(const Json *json, const char *key) {
  std::vector<const Json *> result;
  const Json *found = find(json, key);
  if (found && found->is_array())
    for (const Json &element : *found)
      result.push_back(&element);
  return result;
}

/// A value as a cell of a table.
std::string cell(const Json *json) {
  if (!json)
    return "\xe2\x80\x93";
  if (json->is_string())
    return json->get<std::string>();
  // Seeds do not fit a double.
  return json->is_number_float() ? formatNumber(json->get<double>())
                                 : jsonText(*json);
}

std::string cell(const Json *json, const char *key) {
  return cell(find(json, key));
}

std::string cell(double value) {
  return std::isnan(value) ? cell(nullptr) : formatNumber(value);
}

std::string formatShare(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

/// Rows of 8 bits change it little.
std::string formatFinely(double perplexity) {
  return fmt::format("{:.4f}", perplexity);
}

/// As it was asked for.
std::string formatPercent(double share) {
  return formatNumber(100 * share) + " %";
}

/// On a linear axis the smallest would not be seen.
bool needsLogarithm(const std::vector<double> &values) {
  double least = INFINITY, greatest = 0;
  for (const double value : values) {
    if (!std::isfinite(value))
      continue;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  return least > 0 && greatest / least > 100;
}

class ConversionPage {
public:
  explicit ConversionPage(const Json &result);
  std::string html();

private:
  void headline();
  void perplexity();
  void costs();
  void sensitivities();
  void layerErrors();
  void coverage();
  void coverageCharts(const std::vector<const Json *> &buckets);
  void texts();
  void settings();
  void sources();
  void layerChoices();
  void tensors();
  BarChart perplexityChart(const std::vector<const Json *> &entries,
                           const char *dense, const char *converted) const;

  const Json *result;
  const Json *calibration;         ///< null: rows were made without a text
  std::vector<uint64_t> converted; ///< layers
  Page page;
};

ConversionPage::ConversionPage(const Json &result)
    : result(&result), calibration(find(&result, "calibration")),
      page("Conversion of " + cell(&result, "source")) {
  for (const Json *layer : list(&result, "converted"))
    if (layer->is_number_unsigned())
      converted.push_back(layer->get<uint64_t>());
}

void ConversionPage::headline() {
  const std::vector<const Json *> layers =
      list(find(result, "after"), "layers");
  const auto stems =
      std::count_if(layers.begin(), layers.end(), [](const Json *layer) {
        return cell(layer, "kind") == "stem";
      });
  std::string text =
      fmt::format("Tables take the place of the up-projection in {} {}: {}.",
                  converted.size(), converted.size() == 1 ? "layer" : "layers",
                  fmt::join(converted, ", "));
  if (!layers.empty())
    text += fmt::format(" {} of the model's {} layers are STEM.", stems,
                        layers.size());
  page.paragraph(text);
  if (calibration)
    return perplexity();
  page.paragraph(fmt::format(
      "The rows start from {}. Nothing was measured on text. Such rows ruin a "
      "trained model: they are a start for training.",
      cell(result, "init")));
}

void ConversionPage::perplexity() {
  const double dense = number(calibration, "perplexity_dense");
  const double after = number(calibration, "perplexity_converted");
  if (std::isnan(dense) || std::isnan(after))
    return;
  std::string text = fmt::format(
      "Perplexity on {} tokens of the calibration texts that were held back: "
      "{} dense, {} converted, {} times.",
      cell(calibration, "tokens_check"), formatNumber(dense),
      formatNumber(after), formatNumber(after / dense));
  const double share = number(calibration, "coverage");
  if (!std::isnan(share))
    text += fmt::format(" {} of these tokens have a row that was fitted.",
                        formatShare(share));
  page.paragraph(text);
}

/// The columns of the table of costs.
struct CostColumn {
  const char *key;
  const char *name;
  std::string (*format)(double);
};

constexpr CostColumn costColumns[] = {
    {"parameters", "parameters", formatCount},
    {"flops_per_token", "FLOPs per token", formatCount},
    {"bytes", "bytes stored", formatBytes},
    {"bytes_read_per_token", "bytes read per token", formatBytes}};

std::vector<std::string> costRow(const std::string &name, const Json *before,
                                 const Json *after) {
  std::vector<std::string> row = {name};
  for (const CostColumn &column : costColumns) {
    const double from = number(before, column.key);
    const double to = number(after, column.key);
    row.push_back(std::isnan(from) || std::isnan(to)
                      ? cell(nullptr)
                      : column.format(from) + " \xe2\x86\x92 " +
                            column.format(to));
  }
  return row;
}

std::vector<std::string> shareRow(const Json *before, const Json *after) {
  std::vector<std::string> row = {"change of the whole model"};
  for (const CostColumn &column : costColumns) {
    const double ratio = number(after, column.key) / number(before, column.key);
    row.push_back(!std::isfinite(ratio) ? cell(nullptr)
                  : ratio <= 1
                      ? fmt::format("{:.1f} % less", 100 * (1 - ratio))
                      : fmt::format("{:.1f} % more", 100 * (ratio - 1)));
  }
  return row;
}

void ConversionPage::costs() {
  const Json *before = find(result, "before");
  const Json *after = find(result, "after");
  if (!before || !after)
    return;
  page.section("What it costs and saves");
  Table table;
  table.title = "Before \xe2\x86\x92 after";
  table.columns = {""};
  for (const CostColumn &column : costColumns)
    table.columns.push_back(column.name);
  const auto from = list(before, "layers"), to = list(after, "layers");
  for (const uint64_t layer : converted)
    if (layer < from.size() && layer < to.size())
      table.rows.push_back(
          costRow(fmt::format("layer {}", layer), from[layer], to[layer]));
  table.rows.push_back(costRow("model", before, after));
  table.rows.push_back(shareRow(before, after));
  page.add(table);
  page.paragraph("FLOPs are those of the linear layers, a multiplication and "
                 "an addition being two; attention comes on top and is the "
                 "same in both. Bytes read are those of one decoded token, "
                 "which takes one row of a table.");
}

void ConversionPage::sensitivities() {
  page.section("Sensitivity of the layers");
  const std::vector<const Json *> measured = list(calibration, "sensitivities");
  if (measured.empty())
    return page.paragraph("The layers were named, not chosen: what each would "
                          "cost was not measured.");
  page.paragraph("What the conversion of a layer alone adds to the loss, all "
                 "others being dense.");
  BarChart chart;
  chart.title = "Loss that a layer's conversion adds";
  chart.values.label = "nats per token";
  chart.categoryLabel = "layer";
  chart.markedName = "converted";
  chart.series = {{"stays as it is", {}}};
  for (size_t layer = 0; layer < measured.size(); ++layer) {
    chart.categories.push_back(std::to_string(layer));
    chart.series[0].values.push_back(toNumber(measured[layer]));
    chart.marked.push_back(
        std::count(converted.begin(), converted.end(), layer) > 0);
  }
  chart.values.isLogarithmic = needsLogarithm(chart.series[0].values);
  page.add(chart);
}

void ConversionPage::layerErrors() {
  const std::vector<const Json *> layers = list(calibration, "layers");
  if (layers.empty())
    return;
  page.section("Error of the converted layers");
  page.paragraph("Squared error of the FFN's output against what the dense "
                 "layer makes of the same input, as a share of that output: "
                 "with the fitted rows, and with W_down fitted again to what "
                 "they lack. On the part of the text that k and the ridge "
                 "are chosen on.");
  BarChart chart;
  chart.title = "Output error before and after the refit of W_down";
  chart.values.label = "relative squared error";
  chart.categoryLabel = "layer";
  chart.series = {{"before the refit", {}}, {"after the refit", {}}};
  for (const Json *layer : layers) {
    chart.categories.push_back(cell(layer, "layer"));
    chart.series[0].values.push_back(number(layer, "error_before_refit"));
    chart.series[1].values.push_back(number(layer, "error_after_refit"));
  }
  page.add(chart);
}

/// "never", "1", "2 to 3", "64 or more".
std::string bucketName(const Json *bucket) {
  const Json *from = find(bucket, "from"), *to = find(bucket, "to");
  if (!to)
    return cell(from) + " or more";
  if (cell(to) == "0")
    return "never";
  return cell(from) == cell(to) ? cell(from) : cell(from) + " to " + cell(to);
}

BarChart
ConversionPage::perplexityChart(const std::vector<const Json *> &entries,
                                const char *dense,
                                const char *converted) const {
  BarChart chart;
  chart.values.label = "perplexity";
  chart.series = {{"dense", {}}, {"converted", {}}};
  std::vector<double> all;
  for (const Json *entry : entries) {
    chart.series[0].values.push_back(number(entry, dense));
    chart.series[1].values.push_back(number(entry, converted));
    all.push_back(chart.series[0].values.back());
    all.push_back(chart.series[1].values.back());
  }
  chart.values.isLogarithmic = needsLogarithm(all);
  return chart;
}

void ConversionPage::coverage() {
  const std::vector<const Json *> buckets =
      list(calibration, "coverage_by_count");
  if (buckets.empty())
    return;
  page.section("Rows by the frequency of their token");
  page.paragraph("A token's row rests on the positions of the fitted text "
                 "that hold it; the row of a token that is not there is "
                 "predicted from its embedding. Counted on the tokens held "
                 "back.");
  coverageCharts(buckets);
  double all = 0;
  for (const Json *bucket : buckets)
    all += number(bucket, "check_tokens");
  Table table;
  table.columns = {"times in the fitted text",
                   "ids",
                   "tokens held back",
                   "share of them",
                   "perplexity, dense",
                   "perplexity, converted",
                   "ratio"};
  for (const Json *bucket : buckets) {
    const double dense = number(bucket, "perplexity_dense");
    const double after = number(bucket, "perplexity_converted");
    const double share = number(bucket, "check_tokens") / all;
    table.rows.push_back(
        {bucketName(bucket), cell(bucket, "ids"), cell(bucket, "check_tokens"),
         std::isfinite(share) ? formatShare(share) : cell(nullptr), cell(dense),
         cell(after), cell(after / dense)});
  }
  page.add(table);
}

void ConversionPage::coverageCharts(const std::vector<const Json *> &buckets) {
  std::vector<std::string> names;
  BarChart tokens;
  tokens.title = "Tokens held back, by how often the fitted text has them";
  tokens.values.label = "tokens";
  tokens.categoryLabel = "times in the fitted text";
  tokens.series = {{"tokens", {}}};
  for (const Json *bucket : buckets) {
    tokens.categories.push_back(bucketName(bucket));
    tokens.series[0].values.push_back(number(bucket, "check_tokens"));
  }
  page.add(tokens);
  BarChart chart =
      perplexityChart(buckets, "perplexity_dense", "perplexity_converted");
  chart.title = "Perplexity of these tokens";
  chart.categoryLabel = tokens.categoryLabel;
  chart.categories = tokens.categories;
  page.add(chart);
}

void ConversionPage::texts() {
  const std::vector<const Json *> files =
      list(calibration, "perplexity_by_text");
  if (files.empty())
    return;
  page.section("Perplexity per text");
  page.paragraph("On the part of each text that was held back.");
  BarChart chart = perplexityChart(files, "dense", "converted");
  chart.title = "Perplexity per text, dense and converted";
  Table table;
  table.columns = {"text", "tokens", "dense", "converted", "ratio"};
  for (const Json *file : files) {
    const double dense = number(file, "dense");
    const double after = number(file, "converted");
    chart.categories.push_back(cell(file, "file"));
    table.rows.push_back({cell(file, "file"), cell(file, "tokens"), cell(dense),
                          cell(after), cell(after / dense)});
  }
  page.add(chart);
  page.add(table);
}

void ConversionPage::settings() {
  page.section("How it was made");
  Table table;
  table.columns = {"setting", "value"};
  table.textColumns = 2;
  const auto add = [&](const char *name, const Json *json, const char *key,
                       std::string (*format)(double)) {
    const Json *value = find(json, key);
    if (value && value->is_number() && format)
      table.rows.push_back({name, format(value->get<double>())});
    else if (value)
      table.rows.push_back({name, cell(value)});
  };
  add("source", result, "source", nullptr);
  add("result", result, "out", nullptr);
  add("rows from (--init)", result, "init", nullptr);
  add("seed", result, "seed", nullptr);
  add("type of the rows", result, "row_dtype", nullptr);
  const Json *cold = find(result, "cold_rows");
  add("ids whose rows are not of 8 bits", cold, "hot_ids", nullptr);
  add("tokens counted that are of these ids", cold, "covered_share",
      formatShare);
  add("bytes of the tables that 8 bits save", cold, "saved_of_tables",
      formatShare);
  add("bytes of the model that 8 bits save", cold, "saved_of_model",
      formatShare);
  add("perplexity of the text held back with rows of 8 bits", calibration,
      "perplexity_byte_rows", formatFinely);
  add("rows for (--rows)", calibration, "rows", nullptr);
  add("rank of the low-rank term (--mix-rank)", calibration, "mix_rank",
      nullptr);
  add("share of the replaced FLOPs that such terms may take (--flops)",
      calibration, "flops", formatPercent);
  add("ids that keep the up-projection", calibration, "selected_ids", nullptr);
  add("special tokens among them", calibration, "selected_special_ids",
      nullptr);
  add("tokens held back that take it", calibration, "selected_share",
      formatShare);
  add("all ids below this count keep it (--dense-below)", calibration,
      "dense_below", nullptr);
  add("special ones below this count keep it (--dense-special-below)",
      calibration, "dense_special_below", nullptr);
  add("seed of the calibration", calibration, "seed", nullptr);
  add("text that the model wrote", calibration, "self_share", formatShare);
  add("dialogue", calibration, "dialogue_share", formatShare);
  const Json *dropped = find(calibration, "dropped_passages");
  add("passages that occur before, left out", dropped, "count", nullptr);
  add("their share of the files' bytes", dropped, "share", formatShare);
  add("tokens in a window", calibration, "window", nullptr);
  add("tokens to fit", calibration, "tokens_fit", nullptr);
  add("tokens to choose", calibration, "tokens_choose", nullptr);
  add("tokens to check", calibration, "tokens_check", nullptr);
  add("time for the sensitivities", calibration, "sensitivity_seconds",
      formatSeconds);
  add("time for the calibration", calibration, "convert_seconds",
      formatSeconds);
  add("time in all", result, "seconds", formatSeconds);
  add("peak memory", result, "peak_bytes", formatBytes);
  page.add(table);
}

void ConversionPage::sources() {
  Table table;
  table.title = "Calibration texts";
  table.columns = {"text", "SHA-256", "tokens", "taken"};
  table.textColumns = 2;
  for (const Json *text : list(calibration, "texts"))
    table.rows.push_back({cell(text, "file"), cell(text, "sha256"),
                          cell(text, "tokens"), cell(text, "tokens_taken")});
  if (!table.rows.empty())
    page.add(table);
}

/// A column for each figure that a layer has.
void ConversionPage::layerChoices() {
  const std::vector<const Json *> layers = list(calibration, "layers");
  if (layers.empty())
    return;
  constexpr std::pair<const char *, const char *> columns[] = {
      {"layer", "layer"},
      {"shrinkage", "k, weight of the prior"},
      {"ridge", "ridge of W_down"},
      {"rank", "rank"},
      {"seed", "seed"},
      {"error_before_refit", "error before the refit"},
      {"error_after_refit", "error after"}};
  Table table;
  table.title = "Chosen for each layer";
  table.rows.resize(layers.size());
  for (const auto &[key, name] : columns) {
    if (std::none_of(layers.begin(), layers.end(),
                     [&](const Json *layer) { return find(layer, key); }))
      continue;
    table.columns.push_back(name);
    for (size_t i = 0; i < layers.size(); ++i)
      table.rows[i].push_back(cell(layers[i], key));
  }
  page.add(table);
}

void ConversionPage::tensors() {
  std::vector<std::string> names;
  for (const Json *name : list(result, "left_out"))
    names.push_back(cell(name));
  if (!names.empty())
    page.paragraph(fmt::format("Tensors that no part of the model uses, left "
                               "out: {}.",
                               fmt::join(names, ", ")));
  Table table;
  table.title = "Values that are NaN or infinite";
  table.columns = {"tensor", "values"};
  for (const Json *tensor : list(result, "not_finite"))
    table.rows.push_back({cell(tensor, "tensor"), cell(tensor, "values")});
  if (!table.rows.empty())
    page.add(table);
}

std::string ConversionPage::html() {
  headline();
  costs();
  if (calibration) {
    sensitivities();
    layerErrors();
    coverage();
    texts();
  }
  settings();
  sources();
  layerChoices();
  tensors();
  return page.html();
}

} // namespace

std::string stem::conversionReport(const Json &result) {
  return ConversionPage(result).html();
}
