//===- TrainingReport.cpp - The page about a training run -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainingReport.h"

#include "stem/Report/Markup.h"
#include "stem/Report/Page.h"
#include "stem/Support/Format.h"

#include <fmt/format.h>

using namespace stem;

namespace {

/// Points of a curve: more do not show.
constexpr size_t kPoints = 1000;

using Points = std::vector<LineChart::Point>;

/// Means of neighbours where there are too many.
Points thinned(const Points &points) {
  if (points.size() <= kPoints)
    return points;
  Points result;
  for (size_t i = 0; i < kPoints; ++i) {
    const size_t first = i * points.size() / kPoints,
                 last = (i + 1) * points.size() / kPoints;
    LineChart::Point mean;
    for (size_t j = first; j < last; ++j) {
      mean.x += points[j].x / static_cast<double>(last - first);
      mean.y += points[j].y / static_cast<double>(last - first);
    }
    result.push_back(mean);
  }
  return result;
}

class TrainingPage {
public:
  TrainingPage(const Json &result, const TrainingMetrics &metrics)
      : result(result), page("Training") {
    metrics.read([&](const Json &line) { lines.push_back(line); });
  }

  std::string html();

private:
  Points points(const char *key) const;
  void curve(const char *key, const std::string &title,
             const std::string &label);
  void headline();
  void curves();
  void memory();
  void settings();
  std::string text(const char *key) const;

  const Json &result;
  std::vector<Json> lines;
  Page page;
};

std::string TrainingPage::text(const char *key) const {
  const Json value = result.value(key, Json());
  if (value.is_string())
    return value.get<std::string>();
  return value.is_number_float() ? formatNumber(value.get<double>())
                                 : jsonText(value);
}

Points TrainingPage::points(const char *key) const {
  Points result;
  for (const Json &line : lines)
    if (const auto value = line.find(key);
        value != line.end() && value->is_number() && !line.contains("skipped"))
      result.push_back({line["step"].get<double>(), value->get<double>()});
  return thinned(result);
}

void TrainingPage::curve(const char *key, const std::string &title,
                         const std::string &label) {
  const Points values = points(key);
  if (values.empty())
    return;
  LineChart chart;
  chart.title = title;
  chart.x.label = "step";
  chart.y.label = label;
  chart.series = {{label, values}};
  page.add(chart);
}

void TrainingPage::headline() {
  page.paragraph(fmt::format("{} was trained for {} steps on {} tokens; the "
                             "result is {}.",
                             text("model"), text("steps"), text("tokens"),
                             text("out")));
  Table table;
  table.columns = {"", "value"};
  table.rows.push_back({"loss of the last step", text("loss")});
  if (result.contains("final_loss"))
    table.rows.push_back({"loss after the last step", text("final_loss")});
  if (result.contains("validation_perplexity"))
    table.rows.push_back(
        {"validation perplexity", text("validation_perplexity")});
  if (result.contains("kl"))
    table.rows.push_back(
        {"divergence from the teacher in the last step", text("kl")});
  table.rows.push_back({"tokens per second", text("tokens_per_second")});
  table.rows.push_back(
      {"time", formatSeconds(result["seconds"].get<double>())});
  table.rows.push_back(
      {"peak memory", formatBytes(result["peak_bytes"].get<double>())});
  table.rows.push_back({"steps without a label", text("skipped_steps")});
  page.add(table);
}

void TrainingPage::curves() {
  page.section("Curves");
  curve("loss", "Loss of each step", "loss");
  curve("kl", "Divergence from the teacher", "kl");
  curve("validation_perplexity", "Validation perplexity", "perplexity");
  curve("validation_kl", "Divergence from the teacher in validation", "kl");
  curve("tokens_per_second", "Throughput", "tokens per second");
  curve("rows_touched", "Rows touched in a step, all tables", "rows");
  curve("gradient_norm", "Norm of the gradient", "norm");
  curve("lr", "Learning rate", "learning rate");
}

void TrainingPage::memory() {
  page.section("Memory and work of a step, as planned");
  Table table;
  table.columns = {"", "value"};
  const Json &plan = result["plan"];
  for (const auto &[name, bytes] : plan["memory"].items())
    table.rows.push_back({name, formatBytes(bytes.get<double>())});
  table.rows.push_back(
      {"FLOPs of linear layers",
       formatCount(plan["linear_flops_per_step"].get<double>())});
  table.rows.push_back(
      {"FLOPs of attention",
       formatCount(plan["attention_flops_per_step"].get<double>())});
  page.add(table);
}

void TrainingPage::settings() {
  page.section("How it was made");
  Table table;
  table.columns = {"setting", "value"};
  table.textColumns = 2;
  for (const char *key : {"dtype", "isa", "threads"})
    table.rows.push_back({key, text(key)});
  if (result.value("recompute_budget", Json()).is_number())
    table.rows.push_back(
        {"--recompute-budget", text("recompute_budget") + " bytes"});
  for (const auto &[name, value] : result["options"].items())
    table.rows.push_back(
        {name, value.is_string() ? value.get<std::string>() : jsonText(value)});
  page.add(table);
}

std::string TrainingPage::html() {
  headline();
  curves();
  memory();
  settings();
  return page.html();
}

} // namespace

std::string stem::trainingReport(const Json &result,
                                 const TrainingMetrics &metrics) {
  return TrainingPage(result, metrics).html();
}
