//===- ChartTest.cpp - Bars and lines as SVG ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Report/Chart.h"

#include "PageCheck.h"
#include "stem/Support/Error.h"

#include <cmath>
#include <limits>
#include <regex>

using namespace stem;
using namespace stem::test;

namespace {

constexpr double huge = std::numeric_limits<double>::max();
constexpr double tiny = std::numeric_limits<double>::denorm_min();

BarChart bars(std::vector<double> values, bool isLogarithmic = false) {
  BarChart chart;
  chart.title = "Bars";
  chart.values = {"nats", isLogarithmic};
  chart.categoryLabel = "layer";
  for (size_t i = 0; i < values.size(); ++i)
    chart.categories.push_back(std::to_string(i));
  chart.series = {{"cost", std::move(values)}};
  return chart;
}

LineChart lines(std::vector<std::vector<LineChart::Point>> curves) {
  LineChart chart;
  chart.title = "Lines";
  chart.x.label = "step";
  chart.y.label = "loss";
  for (size_t i = 0; i < curves.size(); ++i)
    chart.series.push_back({"curve " + std::to_string(i), curves[i]});
  return chart;
}

template <typename Chart> std::string checked(const Chart &chart) {
  const std::string figure = renderChart(chart);
  checkPage(figure);
  // The same data, the same bytes.
  EXPECT_EQ(renderChart(chart), figure);
  return figure;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// The numbers of one attribute, in order.
std::vector<double> attributes(const std::string &svg, const std::string &tag,
                               const std::string &name) {
  std::vector<double> result;
  const std::regex pattern("<" + tag + " [^>]*\\b" + name + "=\"([^\"]*)\"");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), pattern);
       it != std::sregex_iterator(); ++it)
    result.push_back(std::stod((*it)[1]));
  return result;
}

template <typename Chart>
void expectError(const Chart &chart, const char *message) {
  try {
    renderChart(chart);
    FAIL() << message;
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(), message);
  }
}

TEST(BarChart, barsAreAsLongAsTheirValues) {
  const std::string figure = checked(bars({1, 2, 4, -2}));
  const std::vector<double> heights = attributes(figure, "rect", "height");
  ASSERT_EQ(heights.size(), 4u);
  EXPECT_NEAR(heights[1], 2 * heights[0], 0.02);
  EXPECT_NEAR(heights[2], 4 * heights[0], 0.04);
  EXPECT_NEAR(heights[3], heights[1], 0.02);
  // From one line: upwards, and the last downwards.
  const std::vector<double> tops = attributes(figure, "rect", "y");
  EXPECT_NEAR(tops[0] + heights[0], tops[2] + heights[2], 0.02);
  EXPECT_NEAR(tops[3], tops[0] + heights[0], 0.02);
  EXPECT_TRUE(contains(figure, "<title>2: 4</title>"));
  // One series needs no legend.
  EXPECT_FALSE(contains(figure, "legend"));
}

TEST(BarChart, groupsSeries) {
  BarChart chart = bars({1, 2});
  chart.series = {{"dense", {14.3, 20}}, {"converted", {22.4, NAN}}};
  const std::string figure = checked(chart);
  // Two keys and three bars.
  EXPECT_EQ(occurrences(figure, "<rect class=\"bar s0\""), 3u);
  EXPECT_EQ(occurrences(figure, "<rect class=\"bar s1\""), 2u);
  EXPECT_TRUE(contains(figure, "<title>0, converted: 22.4</title>"));
  EXPECT_TRUE(contains(figure, "</svg> converted</li>"));
  EXPECT_TRUE(contains(figure, "no finite value: 1, converted.</p>"));
}

TEST(BarChart, marksCategoriesNotByColourAlone) {
  BarChart chart = bars({1, 2, 3});
  chart.marked = {false, true, false};
  chart.markedName = "converted";
  const std::string figure = checked(chart);
  EXPECT_TRUE(contains(figure, "<title>1, converted: 2</title>"));
  EXPECT_TRUE(contains(figure, "<title>2: 3</title>"));
  // In the legend and on the bar.
  EXPECT_EQ(occurrences(figure, "<path class=\"mark s1\""), 2u);
  EXPECT_EQ(occurrences(figure, "tick middle strong"), 1u);
}

TEST(BarChart, namesWhatItCannotDraw) {
  const std::string figure = checked(bars({1, NAN, INFINITY, -INFINITY}));
  EXPECT_EQ(attributes(figure, "rect", "height").size(), 1u);
  EXPECT_TRUE(contains(figure, "Left out, no finite value: 1; 2; 3.</p>"));
  const std::string logarithmic = checked(bars({1, 0, -5, 100}, true));
  EXPECT_EQ(attributes(logarithmic, "rect", "height").size(), 2u);
  EXPECT_TRUE(contains(
      logarithmic, "Left out, not above 0 on a logarithmic axis: 1; 2.</p>"));
}

TEST(BarChart, longListsOfOmissionsAreCut) {
  EXPECT_TRUE(contains(checked(bars(std::vector<double>(100, NAN))),
                       "; 11; and 88 more.</p>"));
}

TEST(BarChart, nothingToDrawIsASentence) {
  for (const std::vector<double> &values :
       {std::vector<double>{}, std::vector<double>{NAN, NAN}}) {
    const std::string figure = checked(bars(values));
    EXPECT_FALSE(contains(figure, "<svg"));
    EXPECT_TRUE(contains(figure, "Bars: no values to draw.</p>"));
  }
}

TEST(BarChart, holdsForAnyValues) {
  for (const bool isLogarithmic : {false, true})
    for (const std::vector<double> &values : {std::vector<double>{7},
                                              {0},
                                              {-3},
                                              {huge, -huge},
                                              {tiny},
                                              {tiny, huge},
                                              {1e15, 1e15 + 1},
                                              {10, 100}})
      checked(bars(values, isLogarithmic));
}

/// The shortest bar on a logarithmic axis has a length.
TEST(BarChart, logarithmicBarsAreSeen) {
  const std::string figure = checked(bars({10, 100}, true));
  EXPECT_TRUE(contains(figure, ">nats, logarithmic</text>"));
  for (const double height : attributes(figure, "rect", "height"))
    EXPECT_GT(height, 10);
}

TEST(BarChart, manyOrLongNamesDoNotOverlap) {
  const std::string many = checked(bars(std::vector<double>(200, 1)));
  EXPECT_LT(occurrences(many, "tick middle"), 40u);
  EXPECT_EQ(attributes(many, "rect", "height").size(), 200u);
  BarChart chart = bars({1, 2, 3, 4, 5});
  chart.categories = {"/texts/of/the/first/register/faq.txt", "b.txt", "c.txt",
                      "d", "e"};
  const std::string slanted = checked(chart);
  EXPECT_EQ(occurrences(slanted, "rotate(-40"), 5u);
  // Cut in the drawing, whole in what one points at.
  EXPECT_TRUE(contains(slanted, ">\xe2\x80\xa6/"
                                "first/register/faq.txt</text>"));
  EXPECT_TRUE(contains(slanted, "<title>/texts/of/the/first"));
}

TEST(BarChart, refusesListsOfDifferentLengths) {
  BarChart chart = bars({1, 2});
  chart.series[0].values.pop_back();
  expectError(chart, "chart 'Bars', series 'cost': 1 values for 2 categories");
  chart = bars({1, 2});
  chart.marked = {true};
  expectError(chart, "chart 'Bars': 1 marks for 2 categories and 1 series; "
                     "marks need one series and a mark for each category");
}

TEST(LineChart, drawsSeriesAndTheirPoints) {
  const std::string figure =
      checked(lines({{{0, 3}, {10, 2}, {20, 1}}, {{0, 2}, {20, 2}}}));
  EXPECT_TRUE(contains(figure, "<title>curve 0: 2 at 10</title>"));
  EXPECT_TRUE(contains(figure, "</svg> curve 1</li>"));
  // Series differ in more than colour.
  EXPECT_EQ(occurrences(figure, "line s0 d0"), 2u);
  EXPECT_EQ(occurrences(figure, "line s1 d1"), 2u);
  // Five points and two keys.
  EXPECT_EQ(occurrences(figure, "class=\"mark"), 7u);
}

TEST(LineChart, gapsBreakTheLineAndAreNamed) {
  const std::string figure = checked(
      lines({{{1, 1}, {2, 2}, {3, NAN}, {4, 2}, {5, INFINITY}, {NAN, 1}}}));
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      figure, found, std::regex("class=\"line s0 d0\" d=\"([^\"]*)\"")));
  EXPECT_EQ(occurrences(found[1], "M"), 2u);
  EXPECT_EQ(occurrences(found[1], "L"), 1u);
  EXPECT_TRUE(contains(figure, "curve 0 at 3; curve 0 at 5.</p>"));
  EXPECT_TRUE(contains(figure, "curve 0, point 6.</p>"));
}

TEST(LineChart, nothingToDrawIsASentence) {
  for (const LineChart &chart :
       {lines({}), lines({{}}), lines({{{1, NAN}}, {}})}) {
    const std::string figure = checked(chart);
    EXPECT_FALSE(contains(figure, "<svg"));
    EXPECT_TRUE(contains(figure, "Lines: no values to draw.</p>"));
  }
}

TEST(LineChart, holdsForAnyValues) {
  for (const bool isLogarithmic : {false, true})
    for (const std::vector<LineChart::Point> &points :
         {std::vector<LineChart::Point>{{1, 1}},
          {{0, 0}},
          {{-huge, huge}, {huge, -huge}},
          {{tiny, tiny}, {huge, huge}},
          {{1, 5}, {1, 5}}}) {
      LineChart chart = lines({points});
      chart.x.isLogarithmic = chart.y.isLogarithmic = isLogarithmic;
      checked(chart);
    }
}

TEST(LineChart, logarithmicAxisSpacesDecadesEvenly) {
  LineChart chart = lines({{{1, 1}, {10, 10}, {100, 100}}});
  chart.x.isLogarithmic = chart.y.isLogarithmic = true;
  const std::string figure = checked(chart);
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      figure, found,
      std::regex("d=\"M([0-9.]+) ([0-9.]+)L([0-9.]+) ([0-9.]+)L([0-9.]+) "
                 "([0-9.]+)\"")));
  const auto number = [&](size_t i) { return std::stod(found[i]); };
  EXPECT_NEAR(number(3) - number(1), number(5) - number(3), 0.02);
  EXPECT_NEAR(number(2) - number(4), number(4) - number(6), 0.02);
}

std::vector<LineChart::Point> longCurve() {
  std::vector<LineChart::Point> points;
  for (int i = 1; i < 100000; ++i)
    points.push_back({double(i), 2 + 0.1 * std::sin(i)});
  return points;
}

/// The corners of the first series.
std::vector<LineChart::Point> drawnPoints(const std::string &figure) {
  const std::string start = "class=\"line s0 d0\" d=\"";
  const size_t from = figure.find(start) + start.size();
  std::string path = figure.substr(from, figure.find('"', from) - from);
  std::vector<LineChart::Point> points;
  for (size_t at = 0; (at = path.find_first_of("ML", at)) != std::string::npos;
       ++at)
    points.push_back({std::stod(path.substr(at + 1)),
                      std::stod(path.substr(path.find(' ', at)))});
  return points;
}

/// A long run stays a small page, and its spikes stay in it.
TEST(LineChart, thinsLongCurves) {
  std::vector<LineChart::Point> points = longCurve();
  points[54321].y = 9;
  const std::string figure = checked(lines({points}));
  EXPECT_LT(figure.size(), 40000u);
  EXPECT_TRUE(contains(figure, "Curves of more than 1200 points"));
  EXPECT_EQ(occurrences(figure, "class=\"mark"), 0u);
  const std::vector<LineChart::Point> drawn = drawnPoints(figure);
  EXPECT_GE(drawn.size(), 1200u);
  EXPECT_LE(drawn.size(), 1202u);
  EXPECT_EQ(std::count_if(drawn.begin(), drawn.end(),
                          [](const auto &point) { return point.y < 100; }),
            1);
  EXPECT_FALSE(contains(checked(lines({{{1, 1}}})), "Curves of more"));
}

/// On a logarithmic axis the first points lie far apart: all are drawn.
TEST(LineChart, thinsByPlaceOnTheAxis) {
  LineChart chart = lines({longCurve()});
  chart.x.isLogarithmic = true;
  const std::vector<LineChart::Point> drawn = drawnPoints(checked(chart));
  EXPECT_LT(drawn.size(), 1202u);
  const double decade = (drawn.back().x - drawn.front().x) / 5;
  EXPECT_EQ(std::count_if(drawn.begin(), drawn.end(),
                          [&](const auto &point) {
                            return point.x < drawn.front().x + 0.99 * decade;
                          }),
            9);
}

} // namespace
