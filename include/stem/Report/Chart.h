//===- Chart.h - Charts of a report -----------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A chart is data; Page::add() draws it as SVG. What has no finite value, and
// on a logarithmic axis what is not above zero, is left out of the drawing and
// named below it.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_REPORT_CHART_H
#define STEM_REPORT_CHART_H

#include <string>
#include <vector>

namespace stem {

struct Axis {
  std::string label;
  bool isLogarithmic = false;
};

/// One group of bars per category, in a group one bar per series.
struct BarChart {
  struct Series {
    std::string name;
    std::vector<double> values; ///< one per category; NaN where there is none
  };

  std::string title;
  Axis values;
  std::string categoryLabel;
  std::vector<std::string> categories;
  std::vector<Series> series;

  /// Categories to tell apart from the others, in a chart of one series: one
  /// flag per category, or none at all.
  std::vector<bool> marked;
  std::string markedName; ///< in the legend
};

/// Lines through points in the order given. A point without a finite y is a
/// gap.
struct LineChart {
  struct Point {
    double x = 0;
    double y = 0;
  };
  struct Series {
    std::string name;
    std::vector<Point> points;
  };

  std::string title;
  Axis x;
  Axis y;
  std::vector<Series> series;
};

/// A figure in HTML that is XML too; a sentence where there is nothing to draw.
/// An Error when the lengths in a chart do not agree.
std::string renderChart(const BarChart &chart);
std::string renderChart(const LineChart &chart);

} // namespace stem

#endif // STEM_REPORT_CHART_H
