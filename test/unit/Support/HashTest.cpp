//===- HashTest.cpp - SHA-256 ---------------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Hash.h"

#include "TestFiles.h"

using namespace stem;
using namespace stem::test;

namespace {

std::vector<bool> waysToHash() {
  return Sha256::hasInstructions() ? std::vector{false, true}
                                   : std::vector{false};
}

// The examples of FIPS 180-4 and of NIST's test vectors; the last is what
// sha256sum says.
TEST(Hash, knownTexts) {
  const std::pair<std::string, const char *> known[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc",
       "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1000000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
      {std::string(1125, 'a'),
       "d0083d3b373c50ae3fbb004720609deaba416f626063f2ccebf0b49e9dbe5220"}};
  for (const auto &[text, wanted] : known)
    for (const bool useInstructions : waysToHash()) {
      Sha256 hash(useInstructions);
      hash.update(text);
      EXPECT_EQ(hash.finish(), wanted) << text.size() << useInstructions;
    }
}

std::string someText(size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i)
    text += static_cast<char>(i * i * 31 + i / 7);
  return text;
}

TEST(Hash, instructionsAgreeWithPlainCode) {
  if (!Sha256::hasInstructions())
    GTEST_SKIP() << "this CPU has no SHA instructions";
  for (size_t size = 0; size < 300; ++size) {
    const std::string text = someText(size);
    Sha256 plain(false), instructions(true);
    plain.update(text);
    instructions.update(text);
    EXPECT_EQ(plain.finish(), instructions.finish()) << size;
  }
}

TEST(Hash, piecesMakeNoDifference) {
  const std::string text = someText(500);
  for (const bool useInstructions : waysToHash())
    for (size_t piece = 1; piece < 200; ++piece) {
      Sha256 hash(useInstructions);
      for (size_t at = 0; at < text.size(); at += piece)
        hash.update(std::string_view(text).substr(at, piece));
      EXPECT_EQ(hash.finish(), hashText(text)) << piece;
    }
}

TEST(Hash, files) {
  const TemporaryFolder folder;
  for (const size_t size : {0, 1, 1 << 20, (1 << 20) + 1, 3000000}) {
    writeText(folder / "file", someText(size));
    uint64_t counted = 0;
    EXPECT_EQ(hashFile(folder / "file", &counted), hashText(someText(size)));
    EXPECT_EQ(counted, size);
  }
  EXPECT_ERROR(hashFile(folder / "none"), "none", "cannot open");
}

} // namespace
