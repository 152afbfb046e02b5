//===- TextDocumentsTest.cpp - Documents of text files --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/TextDocuments.h"

#include "stem/Support/Error.h"

#include <gtest/gtest.h>

using namespace stem;

namespace {

using Texts = std::vector<std::string>;

std::string errorOf(const std::string &content) {
  try {
    splitDocuments("a.jsonl", content);
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

void expectError(const std::string &content, const std::string &message) {
  EXPECT_NE(errorOf(content).find(message), std::string::npos)
      << errorOf(content);
}

TEST(TextDocuments, aPlainFileIsOne) {
  EXPECT_EQ(splitDocuments("a.txt", "{\"text\": \"a\"}\nb\n"),
            Texts{"{\"text\": \"a\"}\nb\n"});
  EXPECT_EQ(documentPlace("a.txt", "{\"text\": \"a\"}\nb\n", 0), "a.txt");
}

TEST(TextDocuments, aLineIsOne) {
  const Texts wanted = {"a\nb", "ü", ""};
  EXPECT_EQ(splitDocuments("a.jsonl",
                           "{\"id\": 1, \"text\": \"a\\nb\"}\r\n"
                           "{\"text\": \"\\u00fc\"}\n{\"text\": \"\"}"),
            wanted);
  EXPECT_EQ(linePlace("a.jsonl", 2), "a.jsonl:3");
}

TEST(TextDocuments, blankLinesAreNone) {
  const std::string content = "\n{\"text\": \"a\"}\n \t\r\n\n{\"text\": "
                              "\"b\"}\n{\"text\": \"c\"}\n\n  ";
  const Texts wanted = {"a", "b", "c"};
  EXPECT_EQ(splitDocuments("a.jsonl", content), wanted);
  EXPECT_EQ(documentPlace("a.jsonl", content, 0), "a.jsonl:2");
  EXPECT_EQ(documentPlace("a.jsonl", content, 1), "a.jsonl:5");
  EXPECT_EQ(documentPlace("a.jsonl", content, 2), "a.jsonl:6");
}

TEST(TextDocuments, theEndingMayBeInAnyCase) {
  for (const char *name : {"a.jsonl", "a.JSONL", "a.JsonL", ".jsonl"})
    EXPECT_TRUE(isJsonLines(name)) << name;
  for (const char *name : {"a.json", "jsonl", "a.jsonl.txt", "a.jsonk", ""})
    EXPECT_FALSE(isJsonLines(name)) << name;
  EXPECT_EQ(splitDocuments("a.JSONL", "{\"text\": \"a\"}\n"), Texts{"a"});
}

TEST(TextDocuments, badLines) {
  const std::string good = "{\"text\": \"a\"}\n";
  expectError(good + "{\"text\": \"a\"\n", "a.jsonl:2: is no JSON in UTF-8");
  expectError(good + "\n" + good + "x\n", "a.jsonl:4: is no JSON in UTF-8");
  expectError("\n \n", "a.jsonl: holds no document");
  expectError("{\"text\": \"\xff\"}\n", "a.jsonl:1: is no JSON in UTF-8");
  expectError("{\"text\": \"\\ud800\"}\n", "a.jsonl:1: is no JSON in UTF-8");
  expectError("{\"text\": \"a\", \"n\": 1e999}\n", "a.jsonl:1: has a number");
  expectError("[\"a\"]\n", "a.jsonl:1: holds no object; every line holds one");
  expectError("{\"Text\": \"a\"}\n", "its object has no string \"text\"");
  expectError("{\"text\": 3}\n", "its object has no string \"text\"");
  expectError("", "a.jsonl: holds no document; every line holds one object");
  expectError(std::string(100000, '['), "a.jsonl:1: is no JSON");
}

} // namespace
