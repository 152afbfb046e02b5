//===- SafetensorsTest.cpp - Reading and writing safetensors --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Safetensors.h"

#include "../../../lib/Model/FileIO.h"
#include "TestFiles.h"

#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

using namespace stem;
using namespace stem::test;

namespace {

const std::string twoByTwo =
    R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";

SafetensorsFile parse(const std::string &file) {
  return SafetensorsFile::parse(bytesOf(file), "x.safetensors");
}

std::string entry(const std::string &name, const std::string &dtype,
                  const std::string &shape, uint64_t begin, uint64_t end) {
  return fmt::format(
      R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype,
      shape, begin, end);
}

// Case A1.
TEST(Safetensors, readsMatrixAndScalar) {
  const std::string file = safetensors(twoByTwo, std::string(16, '\0'));
  ASSERT_EQ(file.substr(0, 8), std::string("\x3c\0\0\0\0\0\0\0", 8));
  const SafetensorsFile matrix = parse(file);
  ASSERT_EQ(matrix.tensors().size(), 1u);
  EXPECT_EQ(matrix.get("test").dtype, DType::I32);
  EXPECT_EQ(matrix.get("test").shape, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(matrix.get("test").data.size(), 16u);
  EXPECT_EQ(static_cast<const void *>(matrix.get("test").data.data()),
            file.data() + 68);

  const std::string scalar =
      safetensors(R"({"test":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})",
                  std::string(4, '\0'));
  EXPECT_TRUE(parse(scalar).get("test").shape.empty());
}

// Case A3.
TEST(Safetensors, refusesBadLengths) {
  EXPECT_ERROR(parse(""), "x.safetensors", "header too small", "empty");
  EXPECT_ERROR(parse("abc"), "header too small", "3 bytes");
  EXPECT_ERROR(parse(raw<uint64_t>(0x3c)), "60", "exceeds the file of 8 bytes");
  std::string huge = safetensors(twoByTwo, std::string(16, '\0'));
  huge.replace(4, 4, "\xff\xff\xff\xff");
  EXPECT_ERROR(parse(huge), "too large", "84 bytes");
  std::string longer = safetensors(twoByTwo, std::string(16, '\0'));
  longer.replace(0, 8, raw<uint64_t>(1000));
  EXPECT_ERROR(parse(longer), "1000", "84 bytes");
  EXPECT_ERROR(parse(raw(UINT64_MAX) + twoByTwo), "exceeds the file");
}

// Case A11.
TEST(Safetensors, refusesHeaderOverTheLimitWithAdvice) {
  std::string header = "{}";
  header.resize(100'000'001, ' ');
  EXPECT_ERROR(parse(safetensors(header)), "100000001", "100000000", "shards");
}

// Case A4.
TEST(Safetensors, refusesHeadersThatAreNoObject) {
  EXPECT_ERROR(parse(safetensors("\xff")), "not valid JSON in UTF-8");
  EXPECT_ERROR(parse(safetensors("{")), "not valid JSON");
  EXPECT_ERROR(parse(safetensors("{\"\xff\":1}")), "not valid JSON in UTF-8");
  EXPECT_ERROR(parse(safetensors("[]")), "must be a JSON object", "an array");
  EXPECT_ERROR(parse(safetensors("null")), "must be a JSON object", "null");
  EXPECT_ERROR(parse(safetensors("\"x\"")), "must be a JSON object");
  EXPECT_ERROR(parse(safetensors("1")), "must be a JSON object");
  EXPECT_ERROR(parse(safetensors("{\"a\":1}")), "a number", "\"a\"");
  EXPECT_ERROR(parse(safetensors("{\"a\":[]}")), "an array", "\"a\"");
  EXPECT_ERROR(parse(safetensors("{\"a\":{}}")), "\"a\"", "needs dtype");
  EXPECT_ERROR(parse(safetensors("{} x")), "not valid JSON");
}

TEST(Safetensors, refusesBadFields) {
  const auto with = [](const std::string &fields) {
    return safetensors("{\"t\":{" + fields + "}}", "1234");
  };
  EXPECT_ERROR(parse(with(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])")),
               "\"t\"", "unknown dtype \"F33\"");
  EXPECT_ERROR(
      parse(with(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])")),
      "\"t\"", "a negative number", "shape");
  EXPECT_ERROR(
      parse(with(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])")),
      "not an integer", "shape");
  EXPECT_ERROR(
      parse(with(
          R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4])")),
      "integer below 2^64");
  EXPECT_ERROR(
      parse(with(
          R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])")),
      "overflows");
  EXPECT_ERROR(parse(with(R"("dtype":"F32","shape":[1],"data_offsets":[0])")),
               "two data_offsets");
  EXPECT_ERROR(parse(with(R"("dtype":"F32","dtype":"F32")")), "twice");
  EXPECT_ERROR(parse(with(R"("kind":"F32")")), "unknown field \"kind\"");
  EXPECT_ERROR(parse(safetensors("{" + entry("a", "U8", "[2]", 0, 2) + "," +
                                     entry("a", "U8", "[2]", 2, 4) + "}",
                                 "1234")),
               "\"a\"", "twice");
}

// Cases A6 and A16.
TEST(Safetensors, takesZeroElementsAndPackedTypes) {
  const std::string empty =
      safetensors("{" + entry("e", "F32", "[2,0]", 0, 0) + "}");
  EXPECT_TRUE(parse(empty).get("e").data.empty());
  EXPECT_ERROR(parse(safetensors("{" + entry("e", "F32", "[1]", 0, 0) + "}")),
               "\"e\"", "4 bytes", "[0, 0]");
  EXPECT_EQ(parse(safetensors("{" + entry("f", "F4", "[1,2]", 0, 1) + "}", "x"))
                .get("f")
                .data.size(),
            1u);
  EXPECT_ERROR(
      parse(safetensors("{" + entry("f", "F4", "[1,3]", 0, 2) + "}", "xx")),
      "\"f\"", "whole bytes");
  EXPECT_ERROR(
      parse(safetensors("{" + entry("f", "F4", "[1,2]", 0, 2) + "}", "xx")),
      "\"f\"", "1 bytes");
}

// Case A7.
TEST(Safetensors, refusesSizeThatDisagreesWithShape) {
  EXPECT_ERROR(
      parse(safetensors("{" + entry("w", "I32", "[2,2]", 0, 4) + "}", "1234")),
      "\"w\"", "I32 [2, 2]", "16 bytes", "[0, 4]");
  EXPECT_ERROR(
      parse(safetensors("{" + entry("w", "I8", "[4]", 8, 4) + "}", "1234")),
      "\"w\"", "[8, 4]");
}

TEST(Safetensors, refusesHolesAndLooseEnds) {
  const std::string a = entry("a", "U8", "[2]", 0, 2);
  EXPECT_ERROR(
      parse(safetensors("{" + a + "," + entry("b", "U8", "[1]", 3, 4) + "}",
                        "1234")),
      "\"b\"", "byte 3", "ends at byte 2");
  EXPECT_ERROR(
      parse(safetensors("{" + entry("b", "U8", "[1]", 1, 2) + "}", "12")),
      "\"b\"", "ends at byte 0");
  EXPECT_ERROR(parse(safetensors("{" + a + "}", "123")), "1 bytes follow");
  EXPECT_ERROR(parse(safetensors("{" + a + "}", "1")), "truncated",
               "2 bytes of data", "download");
  EXPECT_ERROR(parse(safetensors("{}", "1")), "1 bytes follow");
  EXPECT_TRUE(parse(safetensors("{}")).tensors().empty());
}

// Case A9.
TEST(Safetensors, refusesOverlap) {
  std::string header = "{";
  for (int i = 0; i < 10; ++i)
    header += (i ? "," : "") +
              entry(fmt::format("weight_{}", i), "F32", "[2,2]", 0, 16);
  EXPECT_ERROR(parse(safetensors(header + "}", std::string(16, '\0'))),
               "inside tensor \"weight_", "tied weights once");
}

#if !defined(__has_feature) || !__has_feature(address_sanitizer)
// Cases A3 (c) and A9 at scale: bounded memory, or the child is killed.
TEST(Safetensors, refusesAbuseInBoundedMemory) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i)
    header += (i ? "," : "") +
              entry(fmt::format("w{}", i), "F32", "[200,200]", 0, 160000);
  const std::string file = safetensors(header + "}", std::string(160000, '\0'));
  const auto child = [&] {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t limit = pages * 4096 + (64u << 20);
    const rlimit bound{limit, limit};
    setrlimit(RLIMIT_AS, &bound);
    std::string large = safetensors(twoByTwo, std::string(16, '\0'));
    large.replace(4, 4, "\xff\xff\xff\xff");
    const bool isRefused =
        hasAll(errorOf([&] { parse(file); }), {"inside tensor"}) &&
        hasAll(errorOf([&] { parse(large); }), {"too large"});
    std::_Exit(isRefused ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}
#endif

// Case A12.
TEST(Safetensors, namesWhatIsNoSafetensorsFile) {
  EXPECT_ERROR(parse("version https://git-lfs.github.com/spec/v1\noid sha256:"),
               "Git LFS pointer", "git lfs pull");
  EXPECT_ERROR(parse("PK\x03\x04________"), "zip archive");
  EXPECT_ERROR(parse("\x80\x02}q\x01________"), "pickle");
  EXPECT_ERROR(parse("<!DOCTYPE html><html>"), "HTML page");
  EXPECT_ERROR(parse("<html><body>404"), "HTML page");
  EXPECT_ERROR(parse("GGUF\x03___________"), "GGUF");
  EXPECT_ERROR(parse("\xff\xd8\xff\xe0______"), "JPEG");
}

// A header of 640 bytes begins like a pickle.
TEST(Safetensors, headerLengthMayLookLikeAnotherFormat) {
  std::string header = "{" + entry("a", "U8", "[1]", 0, 1) + "}";
  header.resize(0x280, ' ');
  EXPECT_EQ(parse(safetensors(header, "x")).tensors().size(), 1u);
}

TEST(Safetensors, escapesNamesInMessages) {
  const std::string header =
      R"({"a\u001b[31m":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})";
  EXPECT_ERROR(parse(safetensors(header, "1")), "a\\x1b[31m");
}

TEST(Safetensors, keepsMetadata) {
  const SafetensorsFile file =
      parse(safetensors(R"({"__metadata__":{"format":"pt","k":"v"}})"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_ERROR(parse(safetensors(R"({"__metadata__":{"k":1}})")), "a number");
}

TEST(Safetensors, missingTensorIsNamed) {
  EXPECT_ERROR(parse(safetensors("{}")).get("nope"), "x.safetensors", "nope");
  EXPECT_ERROR(SafetensorsFile::open("/nonexistent/a.safetensors"),
               "/nonexistent/a.safetensors", "cannot open");
}

TEST(Safetensors, releasedPagesAreReadAgain) {
  const SafetensorsFile file = SafetensorsFile::open(
      STEM_TEST_DATA "/golden/llama_gqa/model.safetensors");
  const TensorView &view = file.get("model.embed_tokens.weight");
  const std::vector<std::byte> before(view.data.begin(), view.data.end());
  file.release(view.data);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), view.data.begin()));
}

const std::vector<TensorDeclaration> pair = {{"b", DType::F32, {2}},
                                             {"a \"q\"", DType::U8, {3, 1}}};

TEST(SafetensorsWriter, streamsInPieces) {
  const TemporaryFolder folder;
  const auto path = folder / "m.safetensors";
  SafetensorsWriter writer(path, pair);
  EXPECT_EQ(writer.fileBytes(), SafetensorsWriter::plannedBytes(pair));
  const std::string data = raw(1.0f) + raw(2.0f) + "xyz";
  for (const char c : data)
    writer.write(bytesOf(std::string(1, c)));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.finish();
  EXPECT_EQ(std::filesystem::file_size(path), writer.fileBytes());
  EXPECT_EQ(folder.entryCount(), 1u);
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.get("b").shape, (std::vector<uint64_t>{2}));
  EXPECT_EQ(std::memcmp(file.get("b").data.data(), data.data(), 8), 0);
  EXPECT_EQ(std::memcmp(file.get("a \"q\"").data.data(), "xyz", 3), 0);
}

TEST(SafetensorsWriter, leavesNothingWhenAbandoned) {
  const TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "m.safetensors", pair);
    writer.write(bytesOf(std::string(4, 'x')));
  }
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(SafetensorsWriter, refusesWrongAmounts) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "m.safetensors", pair);
  writer.write(bytesOf(std::string(8, 'x')));
  EXPECT_ERROR(writer.finish(), "m.safetensors", "a \"q\"", "8 of 11 bytes");
  EXPECT_ERROR(writer.write(bytesOf(std::string(4, 'x'))), "11 bytes",
               "more than that");
}

TEST(SafetensorsWriter, refusesBadDeclarations) {
  const TemporaryFolder folder;
  const auto path = folder / "m.safetensors";
  const auto write = [&](std::vector<TensorDeclaration> tensors) {
    SafetensorsWriter writer(path, std::move(tensors));
  };
  EXPECT_ERROR(write({{"a", DType::U8, {1}}, {"a", DType::U8, {1}}}), "\"a\"");
  EXPECT_ERROR(write({{"__metadata__", DType::U8, {1}}}), "__metadata__");
  EXPECT_ERROR(write({{"q", DType::Q4_0, {32}}}), "\"q\"", "Q4_0");
  EXPECT_ERROR(write({{"big", DType::F32, {UINT64_MAX, 2}}}), "\"big\"");
  EXPECT_ERROR(write({{"\xff", DType::U8, {1}}}), "UTF-8");
  EXPECT_EQ(folder.entryCount(), 0u);
  const std::filesystem::path missing = folder.path() / "no" / "m.safetensors";
  EXPECT_ERROR(SafetensorsWriter(missing, pair), "m.safetensors",
               "cannot create");
}

// Case A17.
TEST(SafetensorsWriter, savesOverTheMappedSource) {
  const TemporaryFolder folder;
  const auto path = folder / "m.safetensors";
  const std::vector<TensorDeclaration> tensors = {{"t", DType::I32, {3}}};
  SafetensorsWriter first(path, tensors);
  first.write(bytesOf(std::vector<int32_t>{1, 2, 3}));
  first.finish();
  const std::string before = readText(path);
  const SafetensorsFile source = SafetensorsFile::open(path);
  SafetensorsWriter second(path, tensors);
  second.write(source.get("t").data);
  second.finish();
  EXPECT_EQ(readText(path), before);
}

// Case A17: killed in the middle, the old file stands.
TEST(SafetensorsWriter, killedWriterLeavesTheOldFile) {
  const TemporaryFolder folder;
  const auto path = folder / "m.safetensors";
  writeText(path, "old");
  const pid_t child = fork();
  if (child == 0) {
    SafetensorsWriter writer(path, pair);
    writer.write(bytesOf(std::string(6, 'x')));
    ::kill(::getpid(), SIGKILL);
  }
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(readText(path), "old");
}

TEST(SafetensorsWriter, saysThatTheDiskIsFull) {
  const int full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  EXPECT_ERROR(writeAll(full, bytesOf(std::string(10, 'x')), "/disk/file"),
               "/disk/file", "disk is full", "free space");
  ::close(full);
}

} // namespace
