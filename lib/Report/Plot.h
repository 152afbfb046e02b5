//===- Plot.h - What charts share: frame, axes, legend ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_REPORT_PLOT_H
#define STEM_LIB_REPORT_PLOT_H

#include "stem/Report/Chart.h"
#include "stem/Report/Scale.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// Units of the drawing; a page shows it as wide as it can.
constexpr double drawingWidth = 760;
constexpr double plotHeight = 240;
constexpr double characterWidth = 6.6; ///< on average, in the axes' font

/// The least and the greatest of the values that can be drawn.
class Extent {
public:
  void add(double value);
  bool isEmpty() const { return least > greatest; }
  double low() const { return least; }
  double high() const { return greatest; }

private:
  double least = 1, greatest = 0;
};

/// The values that a chart cannot draw, each with its place.
class Omissions {
public:
  explicit Omissions(const Axis &axis) : axis(axis) {}

  /// Whether the axis can show `value`; `place` is remembered if not.
  bool check(double value, const std::string &place);

  /// Paragraphs that name them, at most so many; empty if there are none.
  std::string notes() const;

private:
  const Axis &axis;
  std::vector<std::string> notFinite, notPositive;
};

/// Where the plot lies in the drawing; y grows downwards.
struct Box {
  double left, top, right, bottom;

  double x(double position) const { return left + position * (right - left); }
  double y(double position) const { return bottom - position * (bottom - top); }
};

/// A length or place in the drawing.
std::string place(double value);

/// Characters of UTF-8 text, and the text cut to so many.
size_t characterCount(std::string_view text);
std::string shortened(const std::string &text, size_t count);

Scale axisScale(const Axis &axis, const Extent &extent);

std::string axisLabel(const Axis &axis);

/// Room for the numbers on the left.
double leftMargin(const Scale &scale);

/// Text of class `kind` at a place; `more` are attributes.
std::string svgText(double x, double y, std::string_view kind,
                    std::string_view text, std::string_view more = "");

std::string svgLine(double x1, double y1, double x2, double y2,
                    std::string_view kind);

/// Horizontal lines with numbers, and the axis's label above them.
std::string valueAxis(const Box &box, const Scale &scale, const Axis &axis);

/// The class of series number `index`, which has a colour in the page's style.
std::string colourClass(size_t index);

/// A list of (drawing of the key, name).
struct LegendEntry {
  std::string key;
  std::string name;
};
std::string legend(const std::vector<LegendEntry> &entries);

struct Figure {
  std::string title;
  std::string legend;  ///< HTML
  double height = 0;   ///< of the drawing
  std::string drawing; ///< SVG
  std::string notes;   ///< HTML
};
std::string renderFigure(const Figure &figure);

/// In place of a figure: the title, and why there is none.
std::string emptyFigure(const std::string &title, const std::string &reason,
                        const std::string &notes);

} // namespace stem

#endif // STEM_LIB_REPORT_PLOT_H
