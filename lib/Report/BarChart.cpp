//===- BarChart.cpp - Groups of bars --------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plot.h"

#include "stem/Report/Markup.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

using namespace stem;

namespace {

constexpr size_t longestLabel = 24;
constexpr double lineHeight = 16;

void checkLengths(const BarChart &chart) {
  const size_t count = chart.categories.size();
  for (const BarChart::Series &series : chart.series)
    if (series.values.size() != count)
      fail("chart '{}', series '{}': {} values for {} categories", chart.title,
           series.name, series.values.size(), count);
  if (!chart.marked.empty() &&
      (chart.marked.size() != count || chart.series.size() != 1))
    fail("chart '{}': {} marks for {} categories and {} series; marks need "
         "one series and a mark for each category",
         chart.title, chart.marked.size(), count, chart.series.size());
}

/// How the names of the categories are written: side by side, else slanted;
/// every `stride`th.
struct CategoryLabels {
  CategoryLabels(const BarChart &chart, double slot);

  double width; ///< of the longest
  size_t stride;
  bool areSlanted;

  double height() const { return areSlanted ? 14 + 0.64 * width : lineHeight; }
};

CategoryLabels::CategoryLabels(const BarChart &chart, double slot) {
  size_t longest = 0;
  for (const std::string &category : chart.categories)
    longest = std::max(longest, characterCount(category));
  longest = std::min(longest, longestLabel);
  width = characterWidth * static_cast<double>(longest);
  const bool areShort = longest <= 5;
  areSlanted = !areShort && width + 8 > slot;
  const double needed = areSlanted ? lineHeight : width + 8;
  stride = std::max<size_t>(1, static_cast<size_t>(std::ceil(needed / slot)));
}

class BarDrawing {
public:
  explicit BarDrawing(const BarChart &chart);
  std::string render();

private:
  static constexpr double top = 34;

  void measure();
  double slot() const;
  Box makeBox() const;
  bool isMarked(size_t category) const;
  std::string bar(size_t category, size_t series) const;
  std::string mark(double x, double y) const;
  std::string categoryAxis() const;
  std::string keys() const;

  const BarChart &chart;
  Omissions omissions;
  Extent extent;
  std::vector<std::vector<bool>> isDrawn; ///< by series, by category
  std::optional<Scale> scale;
  Box box = {};
};

BarDrawing::BarDrawing(const BarChart &chart)
    : chart(chart), omissions(chart.values) {}

void BarDrawing::measure() {
  for (const BarChart::Series &series : chart.series) {
    std::vector<bool> &drawn = isDrawn.emplace_back();
    for (size_t i = 0; i < chart.categories.size(); ++i) {
      const std::string name =
          chart.series.size() == 1
              ? chart.categories[i]
              : fmt::format("{}, {}", chart.categories[i], series.name);
      drawn.push_back(omissions.check(series.values[i], name));
      if (drawn.back())
        extent.add(series.values[i]);
    }
  }
}

double BarDrawing::slot() const {
  return (box.right - box.left) / static_cast<double>(chart.categories.size());
}

/// Slanted names reach to the left of their category.
Box BarDrawing::makeBox() const {
  Box result = {leftMargin(*scale), top, drawingWidth - 8, top + plotHeight};
  const double width = (result.right - result.left) /
                       static_cast<double>(chart.categories.size());
  const CategoryLabels labels(chart, width);
  if (labels.areSlanted)
    result.left = std::max(result.left, 0.77 * labels.width + 4 - width / 2);
  return result;
}

bool BarDrawing::isMarked(size_t category) const {
  return !chart.marked.empty() && chart.marked[category];
}

/// Not by its colour alone.
std::string BarDrawing::mark(double x, double y) const {
  return fmt::format(
      "<path class=\"mark s1\" d=\"M{} {}l4 -5l-4 -5l-4 5z\"/>\n", place(x),
      place(y));
}

std::string BarDrawing::bar(size_t category, size_t series) const {
  const double count = static_cast<double>(chart.series.size());
  const double width = 0.8 * slot() / count;
  const double left = box.left +
                      slot() * (static_cast<double>(category) + 0.1) +
                      width * static_cast<double>(series);
  const double value = chart.series[series].values[category];
  const double end = box.y(scale->position(value));
  const double zero =
      chart.values.isLogarithmic ? box.bottom : box.y(scale->position(0));
  std::string name = chart.categories[category];
  if (chart.series.size() > 1)
    name += ", " + chart.series[series].name;
  if (isMarked(category))
    name += ", " + chart.markedName;
  std::string drawing = fmt::format(
      "<rect class=\"bar {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">"
      "<title>{}: {}</title></rect>\n",
      colourClass(isMarked(category) ? 1 : series), place(left),
      place(std::min(end, zero)), place(width), place(std::abs(end - zero)),
      escapeMarkup(name), formatNumber(value));
  double above = std::min(end, zero) - 4;
  if (isMarked(category)) {
    drawing += mark(left + width / 2, above);
    above -= 12;
  }
  // On paper there is nothing to point at.
  if (width >= 36)
    drawing +=
        svgText(left + width / 2, above, "value middle", formatNumber(value));
  return drawing;
}

std::string BarDrawing::categoryAxis() const {
  const CategoryLabels labels(chart, slot());
  std::string drawing;
  for (size_t i = 0; i < chart.categories.size(); i += labels.stride) {
    const double x = box.left + slot() * (static_cast<double>(i) + 0.5);
    const double y = box.bottom + lineHeight;
    const std::string text = shortened(chart.categories[i], longestLabel);
    const char *weight = isMarked(i) ? " strong" : "";
    if (labels.areSlanted)
      drawing += svgText(
          x, y, fmt::format("tick end{}", weight), text,
          fmt::format(" transform=\"rotate(-40 {} {})\"", place(x), place(y)));
    else
      drawing += svgText(x, y, fmt::format("tick middle{}", weight), text);
  }
  return drawing + svgText((box.left + box.right) / 2,
                           box.bottom + labels.height() + 18, "label middle",
                           chart.categoryLabel);
}

std::string BarDrawing::keys() const {
  const auto key = [](size_t colour) {
    return fmt::format("<rect class=\"bar {}\" x=\"4\" y=\"1\" width=\"12\" "
                       "height=\"10\"/>",
                       colourClass(colour));
  };
  if (!chart.marked.empty())
    return legend({{key(0), chart.series[0].name},
                   {key(1) + mark(23, 11), chart.markedName}});
  if (chart.series.size() == 1)
    return "";
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < chart.series.size(); ++i)
    entries.push_back({key(i), chart.series[i].name});
  return legend(entries);
}

std::string BarDrawing::render() {
  checkLengths(chart);
  measure();
  if (extent.isEmpty())
    return emptyFigure(chart.title, "no values to draw", omissions.notes());
  // A bar's length is its value; on a logarithmic axis the shortest is seen.
  extent.add(chart.values.isLogarithmic
                 ? std::max(extent.low() / 2,
                            std::numeric_limits<double>::denorm_min())
                 : 0);
  scale = axisScale(chart.values, extent);
  box = makeBox();
  Figure figure;
  figure.title = chart.title;
  figure.legend = keys();
  figure.drawing = valueAxis(box, *scale, chart.values);
  for (size_t category = 0; category < chart.categories.size(); ++category)
    for (size_t series = 0; series < chart.series.size(); ++series)
      if (isDrawn[series][category])
        figure.drawing += bar(category, series);
  const double zero =
      chart.values.isLogarithmic ? box.bottom : box.y(scale->position(0));
  figure.drawing += svgLine(box.left, zero, box.right, zero, "axis");
  figure.drawing += categoryAxis();
  figure.height = box.bottom + CategoryLabels(chart, slot()).height() +
                  (chart.categoryLabel.empty() ? 8 : 26);
  figure.notes = omissions.notes();
  return renderFigure(figure);
}

} // namespace

std::string stem::renderChart(const BarChart &chart) {
  return BarDrawing(chart).render();
}
