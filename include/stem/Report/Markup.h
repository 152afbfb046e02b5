//===- Markup.h - Text and numbers in a page --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_REPORT_MARKUP_H
#define STEM_REPORT_MARKUP_H

#include <string>
#include <string_view>

namespace stem {

/// `text` as the content of an element or an attribute, of HTML or XML. Bytes
/// that are no UTF-8 and characters that XML does not have become U+FFFD.
std::string escapeMarkup(std::string_view text);

/// Four significant digits, whole numbers below a million in full; "NaN",
/// "infinity" or "-infinity".
std::string formatNumber(double value);

} // namespace stem

#endif // STEM_REPORT_MARKUP_H
