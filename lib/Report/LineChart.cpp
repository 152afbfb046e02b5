//===- LineChart.cpp - Lines through points -------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plot.h"

#include "stem/Report/Markup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

using namespace stem;

namespace {

using Point = LineChart::Point;

/// Beyond this a series is drawn by extremes: more would lie on one pixel.
constexpr size_t mostPoints = 1200;
/// Stretches of the horizontal axis, each with a least and a greatest value.
constexpr double stretches = 600;
/// Beyond this points have no marks of their own.
constexpr size_t mostMarks = 100;

/// Points without a gap between them.
using Run = std::vector<Point>;

struct Curve {
  std::string name;
  std::vector<Run> runs;
  size_t points = 0;
};

/// The least and the greatest of the points in each stretch of the axis, in
/// their order.
Run extremes(const Run &run, const Scale &scale) {
  const auto stretch = [&](const Point &point) {
    return std::floor(scale.position(point.x) * stretches);
  };
  const auto below = [](const Point &a, const Point &b) { return a.y < b.y; };
  Run kept;
  for (auto begin = run.begin(); begin != run.end();) {
    const auto end = std::find_if(begin, run.end(), [&](const Point &point) {
      return stretch(point) != stretch(*begin);
    });
    const auto [least, greatest] = std::minmax_element(begin, end, below);
    kept.push_back(*std::min(least, greatest));
    if (least != greatest)
      kept.push_back(*std::max(least, greatest));
    begin = end;
  }
  return kept;
}

/// Series are told apart by colour, dashes and marks.
std::string markPath(size_t series, double x, double y) {
  static constexpr std::array<const char *, 4> shapes = {
      "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", "m-3 -3h6v6h-6z", "m0 -4l4 7h-8z",
      "m0 -4.5l4 4.5l-4 4.5l-4 -4.5z"};
  return fmt::format("M{} {}{}", place(x), place(y), shapes[series % 4]);
}

std::string lineClasses(size_t series) {
  return fmt::format("line {} d{}", colourClass(series), series % 4);
}

class LineDrawing {
public:
  explicit LineDrawing(const LineChart &chart)
      : chart(chart), omissionsX(chart.x), omissionsY(chart.y) {}
  std::string render();

private:
  Curve measure(const LineChart::Series &series);
  std::string draw(size_t index) const;
  std::string mark(size_t index, const Point &point) const;
  std::string horizontalAxis() const;
  std::string keys() const;
  std::string thinningNote() const;

  double x(const Point &point) const {
    return box.x(scaleX->position(point.x));
  }
  double y(const Point &point) const {
    return box.y(scaleY->position(point.y));
  }

  const LineChart &chart;
  Omissions omissionsX, omissionsY;
  Extent extentX, extentY;
  std::vector<Curve> curves;
  std::optional<Scale> scaleX, scaleY;
  Box box = {};
};

Curve LineDrawing::measure(const LineChart::Series &series) {
  Curve curve = {series.name, {}, 0};
  bool isGap = true;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const Point &point = series.points[i];
    const bool isDrawn =
        omissionsX.check(point.x,
                         fmt::format("{}, point {}", series.name, i + 1)) &&
        omissionsY.check(point.y, fmt::format("{} at {}", series.name,
                                              formatNumber(point.x)));
    if (isDrawn) {
      if (isGap)
        curve.runs.emplace_back();
      curve.runs.back().push_back(point);
      ++curve.points;
      extentX.add(point.x);
      extentY.add(point.y);
    }
    isGap = !isDrawn;
  }
  return curve;
}

std::string LineDrawing::mark(size_t index, const Point &point) const {
  return fmt::format("<path class=\"mark {}\" d=\"{}\"><title>{}: {} at {}"
                     "</title></path>\n",
                     colourClass(index), markPath(index, x(point), y(point)),
                     escapeMarkup(curves[index].name), formatNumber(point.y),
                     formatNumber(point.x));
}

std::string LineDrawing::draw(size_t index) const {
  const Curve &curve = curves[index];
  std::string path, marks;
  for (const Run &run : curve.runs) {
    for (size_t i = 0; i < run.size(); ++i)
      path += fmt::format("{}{} {}", i == 0 ? "M" : "L", place(x(run[i])),
                          place(y(run[i])));
    // A point between two gaps has no line.
    if (curve.points <= mostMarks || run.size() == 1)
      for (const Point &point : run)
        marks += mark(index, point);
  }
  return fmt::format("<path class=\"{}\" d=\"{}\"><title>{}</title></path>\n",
                     lineClasses(index), path, escapeMarkup(curve.name)) +
         marks;
}

std::string LineDrawing::horizontalAxis() const {
  std::string drawing =
      svgLine(box.left, box.bottom, box.right, box.bottom, "axis");
  for (const Tick &tick : scaleX->ticks()) {
    const double x = box.x(scaleX->position(tick.value()));
    drawing += svgLine(x, box.bottom, x, box.bottom + 4, "axis") +
               svgText(x, box.bottom + 17, "tick middle", tick.text());
  }
  return drawing + svgText((box.left + box.right) / 2, box.bottom + 36,
                           "label middle", axisLabel(chart.x));
}

std::string LineDrawing::keys() const {
  if (curves.size() < 2)
    return "";
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < curves.size(); ++i)
    entries.push_back(
        {fmt::format("<path class=\"{}\" d=\"M0 6L28 6\"/><path class=\"mark "
                     "{}\" d=\"{}\"/>",
                     lineClasses(i), colourClass(i), markPath(i, 14, 6)),
         curves[i].name});
  return legend(entries);
}

std::string LineDrawing::thinningNote() const {
  const bool isThinned =
      std::any_of(curves.begin(), curves.end(),
                  [](const Curve &curve) { return curve.points > mostPoints; });
  return isThinned ? fmt::format("<p class=\"note\">Curves of more than {} "
                                 "points are drawn by the least and the "
                                 "greatest value of each stretch.</p>\n",
                                 mostPoints)
                   : "";
}

std::string LineDrawing::render() {
  for (const LineChart::Series &series : chart.series)
    curves.push_back(measure(series));
  const std::string notes = omissionsX.notes() + omissionsY.notes();
  if (extentY.isEmpty())
    return emptyFigure(chart.title, "no values to draw", notes);
  scaleX = axisScale(chart.x, extentX);
  scaleY = axisScale(chart.y, extentY);
  for (Curve &curve : curves)
    if (curve.points > mostPoints)
      for (Run &run : curve.runs)
        run = extremes(run, *scaleX);
  constexpr double top = 30;
  box = {leftMargin(*scaleY), top, drawingWidth - 28, top + plotHeight};
  Figure figure;
  figure.title = chart.title;
  figure.legend = keys();
  figure.height = box.bottom + 44;
  figure.drawing = valueAxis(box, *scaleY, chart.y) + horizontalAxis();
  for (size_t i = 0; i < curves.size(); ++i)
    if (curves[i].points > 0)
      figure.drawing += draw(i);
  figure.notes = notes + thinningNote();
  return renderFigure(figure);
}

} // namespace

std::string stem::renderChart(const LineChart &chart) {
  return LineDrawing(chart).render();
}
