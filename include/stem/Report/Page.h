//===- Page.h - One self-contained HTML page --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_REPORT_PAGE_H
#define STEM_REPORT_PAGE_H

#include "stem/Report/Chart.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

struct Table {
  std::string title; ///< may be empty
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows; ///< a cell for each column
  size_t textColumns = 1; ///< the first ones; the others are numbers
};

/// A page of sections with paragraphs, tables and charts, in the order of the
/// calls. It refers to nothing outside itself, runs no script, and the same
/// calls give the same bytes. All text is escaped.
class Page {
public:
  explicit Page(std::string_view title);

  void section(std::string_view heading);
  void paragraph(std::string_view text);

  /// An Error when a row has not a cell for each column.
  void add(const Table &table);
  void add(const BarChart &chart);
  void add(const LineChart &chart);

  std::string html() const;

private:
  std::string title; ///< escaped
  std::string body;
  bool isInSection = false;
};

} // namespace stem

#endif // STEM_REPORT_PAGE_H
