//===- Plot.cpp - What charts share: frame, axes, legend ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plot.h"

#include "stem/Report/Markup.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace stem;

void Extent::add(double value) {
  if (isEmpty())
    least = greatest = value;
  least = std::min(least, value);
  greatest = std::max(greatest, value);
}

bool Omissions::check(double value, const std::string &place) {
  if (!std::isfinite(value)) {
    notFinite.push_back(place);
    return false;
  }
  if (axis.isLogarithmic && value <= 0) {
    notPositive.push_back(place);
    return false;
  }
  return true;
}

static std::string omissionNote(const char *what,
                                const std::vector<std::string> &places) {
  constexpr size_t limit = 12;
  if (places.empty())
    return "";
  const auto end = places.begin() +
                   static_cast<std::ptrdiff_t>(std::min(places.size(), limit));
  std::string list = fmt::format("{}", fmt::join(places.begin(), end, "; "));
  if (places.size() > limit)
    list += fmt::format("; and {} more", places.size() - limit);
  return fmt::format("<p class=\"note\">{}: {}.</p>\n", what,
                     escapeMarkup(list));
}

std::string Omissions::notes() const {
  return omissionNote("Left out, no finite value", notFinite) +
         omissionNote("Left out, not above 0 on a logarithmic axis",
                      notPositive);
}

std::string stem::place(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.')
    text.pop_back();
  return text == "-0" ? "0" : text;
}

static bool beginsCharacter(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

size_t stem::characterCount(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), beginsCharacter));
}

std::string stem::shortened(const std::string &text, size_t count) {
  if (characterCount(text) <= count)
    return text;
  // The end tells files of one folder apart.
  size_t from = text.size();
  for (size_t kept = 0; kept + 1 < count;)
    kept += beginsCharacter(text[--from]);
  return "\xe2\x80\xa6" + text.substr(from);
}

Scale stem::axisScale(const Axis &axis, const Extent &extent) {
  return axis.isLogarithmic ? Scale::logarithmic(extent.low(), extent.high())
                            : Scale::linear(extent.low(), extent.high());
}

std::string stem::axisLabel(const Axis &axis) {
  return axis.isLogarithmic ? axis.label + ", logarithmic" : axis.label;
}

double stem::leftMargin(const Scale &scale) {
  size_t longest = 0;
  for (const Tick &tick : scale.ticks())
    longest = std::max(longest, tick.text().size());
  return 14 + characterWidth * static_cast<double>(longest);
}

std::string stem::svgText(double x, double y, std::string_view kind,
                          std::string_view text, std::string_view more) {
  return fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\"{}>{}</text>\n", kind,
                     place(x), place(y), more, escapeMarkup(text));
}

std::string stem::svgLine(double x1, double y1, double x2, double y2,
                          std::string_view kind) {
  return fmt::format(
      "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", kind,
      place(x1), place(y1), place(x2), place(y2));
}

std::string stem::valueAxis(const Box &box, const Scale &scale,
                            const Axis &axis) {
  std::string drawing = svgText(0, 12, "label", axisLabel(axis));
  for (const Tick &tick : scale.ticks()) {
    const double y = box.y(scale.position(tick.value()));
    drawing += svgLine(box.left, y, box.right, y, "grid") +
               svgText(box.left - 8, y + 4, "tick end", tick.text());
  }
  return drawing;
}

std::string stem::colourClass(size_t index) {
  return fmt::format("s{}", index % 6);
}

std::string stem::legend(const std::vector<LegendEntry> &entries) {
  std::string items;
  for (const LegendEntry &entry : entries)
    items += fmt::format("<li><svg class=\"key\" viewBox=\"0 0 28 12\" "
                         "aria-hidden=\"true\">{}</svg> {}</li>\n",
                         entry.key, escapeMarkup(entry.name));
  return "<ul class=\"legend\">\n" + items + "</ul>\n";
}

std::string stem::renderFigure(const Figure &figure) {
  const std::string title = escapeMarkup(figure.title);
  return fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n{}<div class=\"drawing\">"
      "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\">\n{}</svg>"
      "</div>\n{}</figure>\n",
      title, figure.legend, title, place(drawingWidth), place(figure.height),
      figure.drawing, figure.notes);
}

std::string stem::emptyFigure(const std::string &title,
                              const std::string &reason,
                              const std::string &notes) {
  return fmt::format("<p class=\"empty\">{}: {}.</p>\n{}", escapeMarkup(title),
                     escapeMarkup(reason), notes);
}
