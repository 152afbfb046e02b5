//===- BatchTest.cpp - Batches of given ids -------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/Batch.h"

#include "../Model/TestFiles.h"

#include <algorithm>

using namespace stem;
using namespace stem::test;

namespace {

using Ids = std::vector<int32_t>;

class BatchTest : public testing::Test {
protected:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<uint64_t> shape;
    std::vector<int64_t> values;
  };

  void write(const std::vector<Tensor> &tensors) const {
    std::vector<TensorDeclaration> declarations;
    std::string data;
    for (const Tensor &tensor : tensors) {
      declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
      for (const int64_t value : tensor.values)
        data += tensor.dtype == DType::I32 ? raw(static_cast<int32_t>(value))
                                           : raw(value);
    }
    SafetensorsWriter writer(path, declarations);
    writer.write(bytesOf(data));
    writer.finish();
  }

  Batch read(uint64_t vocabulary = 10, uint64_t maxPositions = 0) const {
    return readBatchIds(path, {vocabulary, maxPositions});
  }

  TemporaryFolder folder;
  std::filesystem::path path = folder / "batch.safetensors";
};

TEST_F(BatchTest, givesRows) {
  for (const DType ids : {DType::I32, DType::I64})
    for (const DType labels : {DType::I32, DType::I64}) {
      write({{"logits", DType::I64, {1}, {77}},
             {"labels", labels, {2, 3}, {9, -100, 0, -100, 1, -100}},
             {"input_ids", ids, {2, 3}, {0, 9, 5, 4, 3, 2}}});
      const Batch batch = read(10, 3);
      EXPECT_EQ(batch.rows, 2);
      EXPECT_EQ(batch.length, 3);
      EXPECT_EQ(batch.places(), 6);
      EXPECT_EQ(batch.ids, (Ids{0, 9, 5, 4, 3, 2}));
      EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 0, 1, 2}));
      EXPECT_EQ(batch.sequences, (Ids{0, 0, 0, 1, 1, 1}));
      EXPECT_EQ(batch.labels, (Ids{9, -100, 0, -100, 1, -100}));
      EXPECT_EQ(batch.labelCount, 3);
      EXPECT_FALSE(batch.ignoresAll());
    }
}

// The batch of the reference values, among other tensors.
TEST_F(BatchTest, readsReferenceValues) {
  const Batch batch = readBatchIds(std::string(STEM_TEST_DATA) +
                                       "/golden/llama_gqa/golden.safetensors",
                                   {96, 64});
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 19);
  EXPECT_GT(batch.labelCount, 0);
  EXPECT_LT(batch.labelCount, 38);
  // Shifted already.
  for (size_t i = 0; i < 38; ++i)
    if (i % 19 != 18 && batch.labels[i] != -100)
      EXPECT_EQ(batch.labels[i], batch.ids[i + 1]) << i;
}

TEST_F(BatchTest, ignoringAllIsNoError) {
  write({{"input_ids", DType::I64, {1, 2}, {0, 1}},
         {"labels", DType::I64, {1, 2}, {-100, -100}}});
  EXPECT_TRUE(read().ignoresAll());
}

TEST_F(BatchTest, refusesValuesOutOfRange) {
  for (const DType type : {DType::I32, DType::I64})
    for (const int64_t value : {10, -1, -100, 2147483647}) {
      write({{"input_ids", type, {2, 3}, {0, 1, 2, 3, 4, value}},
             {"labels", type, {2, 3}, {0, 1, 2, 3, 4, 5}}});
      EXPECT_ERROR(
          read(), "batch.safetensors",
          fmt::format("id {} in row 1, column 2 is out of range", value),
          "ids 0 to 9");
    }
  for (const DType type : {DType::I32, DType::I64})
    for (const int64_t value : {10, -1, -99, -101}) {
      write({{"input_ids", type, {2, 3}, {0, 1, 2, 3, 4, 5}},
             {"labels", type, {2, 3}, {0, value, 2, 3, 4, 5}}});
      EXPECT_ERROR(
          read(), "batch.safetensors",
          fmt::format("label {} in row 0, column 1 is out of range", value),
          "ids 0 to 9, and -100 is no label");
    }
  // As 32 bits these would be 0 and -100.
  write({{"input_ids", DType::I64, {1, 1}, {int64_t{1} << 32}},
         {"labels", DType::I64, {1, 1}, {0}}});
  EXPECT_ERROR(read(), "id 4294967296 in row 0, column 0");
  write({{"input_ids", DType::I64, {1, 1}, {0}},
         {"labels", DType::I64, {1, 1}, {(int64_t{1} << 32) - 100}}});
  EXPECT_ERROR(read(), "label 4294967196 in row 0, column 0");
}

TEST_F(BatchTest, refusesOtherTensors) {
  write({{"input_ids", DType::I64, {1, 1}, {1}}});
  EXPECT_ERROR(read(), "batch.safetensors: there is no tensor \"labels\"",
               "both [rows, length] of I32 or I64");
  write({{"labels", DType::I64, {1, 1}, {1}}});
  EXPECT_ERROR(read(), "there is no tensor \"input_ids\"");
  write({{"input_ids", DType::F64, {1, 1}, {1}},
         {"labels", DType::I64, {1, 1}, {1}}});
  EXPECT_ERROR(read(), "tensor \"input_ids\" is of type F64",
               "I32 or I64 was expected");
  write({{"input_ids", DType::I64, {1, 1}, {1}},
         {"labels", DType::U64, {1, 1}, {1}}});
  EXPECT_ERROR(read(), "tensor \"labels\" is of type U64");
  const std::vector<std::vector<uint64_t>> shapes = {
      {}, {1}, {1, 1, 1}, {0, 1}, {1, 0}};
  for (const std::vector<uint64_t> &shape : shapes) {
    const bool isEmpty = std::ranges::count(shape, 0u) > 0;
    const std::vector<int64_t> values(isEmpty ? 0 : 1, 1);
    write({{"input_ids", DType::I64, shape, values},
           {"labels", DType::I64, shape, values}});
    EXPECT_ERROR(read(), "tensor \"input_ids\" has shape",
                 "[rows, length] was expected, none of them 0");
  }
  write({{"input_ids", DType::I64, {2, 3}, {1, 1, 1, 1, 1, 1}},
         {"labels", DType::I64, {3, 2}, {1, 1, 1, 1, 1, 1}}});
  EXPECT_ERROR(read(), "\"input_ids\" has shape [2, 3], \"labels\" has [3, 2]",
               "one label for each id");
}

TEST_F(BatchTest, refusesMoreThanTheModelsPositions) {
  write({{"input_ids", DType::I64, {1, 3}, {0, 1, 2}},
         {"labels", DType::I64, {1, 3}, {1, 2, 3}}});
  EXPECT_EQ(read(10, 3).length, 3);
  EXPECT_ERROR(read(10, 2),
               "batch.safetensors: sequences of length 3: the model has 2 "
               "positions (max_position_embeddings)",
               "give shorter ones");
  EXPECT_ERROR(checkSequenceLength(0, 2), "a sequence has at least one token");
}

TEST_F(BatchTest, refusesOtherFiles) {
  EXPECT_ERROR(read(), "batch.safetensors", "cannot open");
  writeText(path, "");
  EXPECT_ERROR(read(), "batch.safetensors", "the file is empty");
  write({{"input_ids", DType::I64, {1, 3}, {0, 1, 2}},
         {"labels", DType::I64, {1, 3}, {1, 2, 3}}});
  const std::string whole = readText(path);
  writeText(path, whole.substr(0, whole.size() - 1));
  EXPECT_ERROR(read(), "batch.safetensors: truncated");
}

} // namespace
