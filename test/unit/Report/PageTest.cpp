//===- PageTest.cpp - Pages: text, tables, what they are made of ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Report/Page.h"
#include "stem/Report/Markup.h"

#include "PageCheck.h"
#include "stem/Support/Error.h"

#include <cmath>

using namespace stem;
using namespace stem::test;

namespace {

TEST(Markup, escapesWhatIsMarkup) {
  EXPECT_EQ(escapeMarkup("a<b> & \"c\" 'd'"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(escapeMarkup("Zürich 東京 😀\tx\ny"), "Zürich 東京 😀\tx\ny");
}

/// Lone and cut bytes, overlong forms, surrogates, controls, U+FFFE.
TEST(Markup, replacesWhatIsNoText) {
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(escapeMarkup("a\xff"
                         "b"),
            "a" + mark + "b");
  EXPECT_EQ(escapeMarkup("\xe6\x9d"), mark + mark);
  EXPECT_EQ(escapeMarkup("\xc0\xaf"), mark + mark);
  EXPECT_EQ(escapeMarkup("\xe0\x80\xaf"), mark + mark + mark);
  EXPECT_EQ(escapeMarkup("\xed\xa0\x80"), mark + mark + mark);
  EXPECT_EQ(escapeMarkup("\xf4\x90\x80\x80"), mark + mark + mark + mark);
  EXPECT_EQ(escapeMarkup("\xef\xbf\xbe"), mark + mark + mark);
  EXPECT_EQ(escapeMarkup(std::string("\0\x1b\r", 3)), mark + mark + mark);
  // A cut character does not swallow the markup after it.
  EXPECT_EQ(escapeMarkup("\xe6<"), mark + "&lt;");
}

TEST(Markup, writesNumbersForPeople) {
  EXPECT_EQ(formatNumber(0), "0");
  EXPECT_EQ(formatNumber(-0.0), "0");
  EXPECT_EQ(formatNumber(14.3456), "14.35");
  EXPECT_EQ(formatNumber(-0.00123), "-0.00123");
  EXPECT_EQ(formatNumber(61234), "61234");
  EXPECT_EQ(formatNumber(134515008), "1.345e+08");
  EXPECT_EQ(formatNumber(0.00001234), "1.234e-05");
  EXPECT_EQ(formatNumber(NAN), "NaN");
  EXPECT_EQ(formatNumber(-NAN), "NaN");
  EXPECT_EQ(formatNumber(INFINITY), "infinity");
  EXPECT_EQ(formatNumber(-INFINITY), "-infinity");
}

TEST(Page, holdsItsPartsInOrder) {
  Page page("Title");
  page.paragraph("before");
  page.section("One");
  page.paragraph("first");
  page.section("Two");
  page.add(Table{"Numbers", {"name", "value"}, {{"a", "1"}, {"b", "2"}}});
  const std::string html = page.html();
  checkPage(html);
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>\n"));
  size_t at = 0;
  for (const char *part :
       {"<title>Title</title>", "<h1>Title</h1>", "<p>before</p>",
        "<h2>One</h2>", "<p>first</p>", "</section>", "<h2>Two</h2>",
        "<caption>Numbers</caption>", "<th class=\"number\">value</th>",
        "<td class=\"text\">a</td><td class=\"number\">1</td>", "</section>"}) {
    at = html.find(part, at);
    ASSERT_NE(at, std::string::npos) << part;
  }
}

TEST(Page, emptyPageIsWellFormed) {
  const std::string html = Page("").html();
  checkPage(html);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(html.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(html.find("@media print"), std::string::npos);
}

TEST(Page, escapesAllText) {
  const std::string evil = "</style><script>\"&'\xff";
  Page page(evil);
  page.section(evil);
  page.paragraph(evil);
  page.add(Table{evil, {evil, evil}, {{evil, evil}}, 2});
  page.add(Table{evil, {evil}, {}, 1});
  page.add(BarChart{evil,
                    {evil, false},
                    evil,
                    {evil, evil},
                    {{evil, {1, NAN}}},
                    {true, false},
                    evil});
  page.add(BarChart{evil, {evil, false}, evil, {evil}, {}, {}, ""});
  page.add(LineChart{evil,
                     {evil, false},
                     {evil, false},
                     {{evil, {{1, 2}, {2, NAN}}}, {evil, {{1, 3}}}}});
  const std::string html = page.html();
  checkPage(html);
  EXPECT_EQ(occurrences(html, "</style>"), 1u);
  EXPECT_EQ(html.find('\xff'), std::string::npos);
}

TEST(Page, tableWithoutRowsIsASentence) {
  Page page("p");
  page.add(Table{"Texts", {"file"}, {}});
  page.add(Table{"", {"file"}, {}});
  EXPECT_EQ(page.html().find("<table"), std::string::npos);
  EXPECT_NE(page.html().find("<p class=\"empty\">Texts: no rows.</p>"),
            std::string::npos);
  EXPECT_NE(page.html().find("<p class=\"empty\">No rows.</p>"),
            std::string::npos);
}

TEST(Page, refusesRowsOfAnotherLength) {
  Page page("p");
  try {
    page.add(Table{"Texts", {"file", "tokens"}, {{"a"}}});
    FAIL();
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(),
                 "table 'Texts': a row of 1 cells under 2 columns");
  }
}

} // namespace
