//===- ModuleTest.cpp - Loading good and bad modules ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Module.h"
#include "TestSupport.h"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace stem;
using namespace stem::test;

namespace {

std::string modulePath(const std::string &variant) {
  return std::string(STEM_TEST_MODULES) + "/libStemTestModule" + variant +
         ".so";
}

std::string loadError(const std::string &path, stem_isa isa = STEM_ISA_NATIVE) {
  ContextPtr context = createContext(1, isa);
  return errorOf([&] { Module module(path, context.get()); });
}

/// A file in the temporary folder, removed at the end.
struct TemporaryFile {
  explicit TemporaryFile(const std::string &bytes)
      : path(std::filesystem::temp_directory_path() /
             ("stem-module-" + std::to_string(getpid()) + ".so")) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string path;
};

TEST(Module, FindsEntriesAndResolvesTheRuntime) {
  ContextPtr context = createContext(1);
  Module module(modulePath("Good"), context.get());
  ASSERT_EQ(module.entries().size(), 1u);
  ASSERT_EQ(module.tables().size(), 1u);
  EXPECT_STREQ(module.tables()[0].name, "table2");
  EXPECT_EQ(module.find("another"), nullptr);
  const stem_entry *entry = module.find("check");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->token_tile, 64);
  int32_t ids[] = {3, 12};
  stem_tensor tensor = {ids, STEM_I32, 1, {2}, {1}};
  EXPECT_EQ(entry->function(context.get(), &tensor, 1, nullptr, 0),
            STEM_OUT_OF_RANGE);
  EXPECT_STREQ(stem_context_message(context.get()),
               "check: 'ids' has 12 at position 1, which is out of range: "
               "expected 0 to 9");
  Module moved = std::move(module);
  EXPECT_NE(moved.find("check"), nullptr);
  Module other(modulePath("Good"), context.get());
  other = std::move(moved);
  EXPECT_EQ(other.path(), modulePath("Good"));
}

TEST(Module, ArenaBytesAreChecked) {
  auto bytes = [](int64_t fixed, int64_t token, int64_t output,
                  int64_t thread) {
    stem_entry entry = {};
    entry.name = "step";
    entry.fixed_bytes = fixed;
    entry.bytes_per_token = token;
    entry.bytes_per_output = output;
    entry.bytes_per_thread = thread;
    return arenaBytes(entry, /*tokens=*/64, /*outputs=*/2, /*threads=*/3);
  };
  EXPECT_EQ(bytes(1000, 10, 5, 7), 1000 + 640 + 10 + 21);
  EXPECT_EQ(bytes(INT64_MAX, 0, 0, 0), INT64_MAX);
  auto error = [&](int64_t fixed, int64_t token, int64_t output,
                   int64_t thread) {
    return errorOf([&] { bytes(fixed, token, output, thread); });
  };
  expectContains(error(-1, 0, 0, 0), "entry 'step' of the compiled module asks "
                                     "for -1 bytes and 0 for each of 64 "
                                     "tokens");
  expectContains(error(0, -64, 0, 0), "which is no size");
  expectContains(error(0, 0, -1, 0), "-1 for each of 2 outputs");
  expectContains(error(0, 0, 0, -1), "-1 for each of 3 threads");
  expectContains(error(INT64_MAX, 1, 0, 0), "is damaged, compile it again");
  expectContains(error(0, INT64_MAX / 2, 0, 0), "is damaged");
}

TEST(Module, SaysWhatIsWrong) {
  expectContains(loadError("/nowhere/module.so"),
                 "cannot open the compiled module /nowhere/module.so: cannot "
                 "open: No such file or directory");
  expectContains(loadError(modulePath("OtherAbi")),
                 "is of another version of Stem: it does not speak ABI "
                 "version 3; compile it again");
  expectContains(loadError(modulePath("OtherSize")),
                 "has ABI version 3 and a description of 8 bytes");
  expectContains(loadError(modulePath("OtherIsa"), STEM_ISA_AVX2),
                 "needs avx512bf16 but this context has avx2; compile it for "
                 "this machine");
  expectContains(loadError(modulePath("Damaged")),
                 "is damaged: -1 entries and 1 tables");
  expectContains(loadError(modulePath("NoQuery")),
                 "it does not export stem_module_query");
}

TEST(Module, RefusesTornFiles) {
  std::ifstream file(modulePath("Good"), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  ASSERT_GT(bytes.size(), 4096u);
  for (size_t size : {size_t(0), size_t(10), size_t(63)})
    expectContains(loadError(TemporaryFile(bytes.substr(0, size)).path),
                   "it is no 64-bit shared object");
  for (size_t size : {size_t(64), size_t(100), size_t(800)})
    expectContains(loadError(TemporaryFile(bytes.substr(0, size)).path),
                   "is truncated: it has " + std::to_string(size) +
                       " bytes but its segments reach further");
  expectContains(loadError(TemporaryFile(std::string(5000, 'x')).path),
                 "it is no 64-bit shared object");
  // Whole by its headers, but nothing that the loader can use.
  std::string broken = bytes;
  broken.replace(16 + 2, 2, std::string("\x03\x00", 2)); // another machine
  expectContains(loadError(TemporaryFile(broken).path),
                 "cannot load the compiled module");
}

TEST(Module, APipeIsRefusedAtOnce) {
  const TemporaryFile pipe("");
  std::filesystem::remove(pipe.path);
  ASSERT_EQ(::mkfifo(pipe.path.c_str(), 0600), 0);
  expectContains(loadError(pipe.path), "cannot open the compiled module " +
                                           pipe.path + ": not a regular file");
}

} // namespace
