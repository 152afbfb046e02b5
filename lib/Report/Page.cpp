//===- Page.cpp - One self-contained HTML page ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Report/Page.h"

#include "Style.h"

#include "stem/Report/Markup.h"
#include "stem/Support/Error.h"

#include <fmt/format.h>

using namespace stem;

namespace {

/// Browsers hold the page to it: nothing from elsewhere, no script.
constexpr const char *policy = "default-src 'none'; style-src 'unsafe-inline'";

std::string tableRow(const std::vector<std::string> &cells, const char *element,
                     size_t textColumns) {
  std::string row = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i)
    row += fmt::format("<{0} class=\"{1}\">{2}</{0}>", element,
                       i < textColumns ? "text" : "number",
                       escapeMarkup(cells[i]));
  return row + "</tr>\n";
}

} // namespace

Page::Page(std::string_view title) : title(escapeMarkup(title)) {}

void Page::section(std::string_view heading) {
  if (isInSection)
    body += "</section>\n";
  body += fmt::format("<section>\n<h2>{}</h2>\n", escapeMarkup(heading));
  isInSection = true;
}

void Page::paragraph(std::string_view text) {
  body += fmt::format("<p>{}</p>\n", escapeMarkup(text));
}

void Page::add(const Table &table) {
  if (table.rows.empty()) {
    body += fmt::format("<p class=\"empty\">{}</p>\n",
                        table.title.empty()
                            ? "No rows."
                            : escapeMarkup(table.title) + ": no rows.");
    return;
  }
  body += "<div class=\"scroll\"><table>\n";
  if (!table.title.empty())
    body += fmt::format("<caption>{}</caption>\n", escapeMarkup(table.title));
  body += "<thead>" + tableRow(table.columns, "th", table.textColumns) +
          "</thead>\n<tbody>\n";
  for (const std::vector<std::string> &row : table.rows) {
    if (row.size() != table.columns.size())
      fail("table '{}': a row of {} cells under {} columns", table.title,
           row.size(), table.columns.size());
    body += tableRow(row, "td", table.textColumns);
  }
  body += "</tbody>\n</table></div>\n";
}

void Page::add(const BarChart &chart) { body += renderChart(chart); }

void Page::add(const LineChart &chart) { body += renderChart(chart); }

std::string Page::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n"
      "<h1>{}</h1>\n{}{}</main>\n</body>\n</html>\n",
      policy, title, pageStyle, title, body, isInSection ? "</section>\n" : "");
}
