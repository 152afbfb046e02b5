//===- EngineWeights.h - Weights in the form that compiled code reads -----===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_ENGINEWEIGHTS_H
#define STEM_TOOLS_STEM_RUN_ENGINEWEIGHTS_H

#include "ByteTable.h"
#include "TablePlaces.h"

#include "stem-c/Runtime.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/RowPages.h"

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stem {

/// Bytes of a parameter in its executed form; `key` is for messages.
int64_t parameterBytes(const char *key, const stem_argument &argument);

/// Reads tensor `key` into its executed form at `target`, which holds
/// parameterBytes and is aligned to 64 bytes.
void loadParameter(const TensorSource &source, const std::string &key,
                   const stem_argument &argument, std::byte *target,
                   stem_context *context);

/// What reading weights holds beside them for a while: on each thread the rows
/// of a task and the pages of files that they lie in.
int64_t readingBytes(const ModelConfig &config, int threads);

/// The parameters and tables that a compiled module asks for, in one piece of
/// memory but for tables in files and those of 8-bit rows. A tensor that is
/// read in several forms (packed, packed as stored, plain) is held in each.
class EngineWeights {
public:
  /// Lays out what the entries and tables need; nothing is read yet. An
  /// OwnFile, in `folder`, is for all tables; `source` says which tables have
  /// 8-bit rows, null: none may have.
  EngineWeights(std::span<const stem_entry *const> entries,
                std::span<const stem_table_info> tables,
                const TablePlaces &places = {},
                std::filesystem::path folder = {},
                const TensorSource *source = nullptr);

  int64_t parameterBytes() const { return bytesOfParameters; }
  /// In memory; in files.
  int64_t tableBytes() const;
  int64_t tableBytesInFiles() const;
  int64_t scaleBytes() const; ///< of 8-bit rows, in memory
  int64_t tableCount() const { return static_cast<int64_t>(tables.size()); }
  /// Those of the model's layers, in their order.
  std::vector<PlacedTable> placedTables(const ModelWeights &weights) const;
  /// How many have rows that are read from the model's files or decoded, and
  /// what a step of `tokens` needs for these, where at most `tablesAtOnce` of
  /// them are on their way or in use.
  int64_t stagedTables() const;
  int64_t stagingBytes(int64_t tokens, int64_t tablesAtOnce) const;
  /// What rows of so many ids take, of tables in files.
  int64_t keptBytes(int64_t ids) const;

  /// Reads everything but the parameters of these keys, on the threads of the
  /// context; source pages are released as they are done with.
  void load(const TensorSource &source, stem_context *context,
            const std::set<std::string> &without = {});

  /// Reads parameter `key` from tensor `name` of another checkpoint.
  void loadAs(const std::string &key, const TensorSource &source,
              const std::string &name, stem_context *context);

  /// Puts `values`, row-major as in a checkpoint, in place of every form of
  /// parameter `key`.
  void set(const std::string &key, std::span<const float> values,
           stem_context *context);

  /// The rows of table `index`, in its type; not of the model's files.
  std::byte *tableRows(size_t index) const {
    const Arena &arena = isOwnFile ? ownFile : memory;
    return static_cast<std::byte *>(arena.data()) + tableOffsets[index];
  }
  /// Of an OwnFile, in the order of the tables.
  std::vector<FileRows> rowsInFile() const;

  /// The tensor for a parameter argument of `entry`.
  stem_tensor tensor(const stem_entry &entry,
                     const stem_argument &argument) const;

  /// Opens the tables in their order.
  void openTables(stem_context *context, stem_table_store *store) const;

private:
  struct Slot {
    stem_argument argument;
    int64_t offset;
    stem_packed packed; ///< what a packed argument points to, once loaded
  };

  /// The key in the checkpoint, and its stem_argument_packed.
  using Key = std::pair<std::string, int32_t>;

  static Key keyOf(const stem_entry &entry, const stem_argument &argument) {
    return {entry.texts + argument.key, argument.packed};
  }
  bool isInFile(size_t table) const {
    return placeOf[table] == TablePlacement::File;
  }
  int64_t rowBytes(size_t table) const;
  bool isStaged(size_t table) const;
  stem_table_options plainOptions(size_t index) const;
  void loadTable(size_t index, const TensorSource &source,
                 stem_context *context);
  void loadSlot(Slot &slot, const TensorSource &source, const std::string &name,
                stem_context *context);

  std::map<Key, Slot> slots;
  std::vector<stem_table_info> tables;
  std::vector<TablePlacement> placeOf; ///< of tables
  bool isOwnFile;
  std::filesystem::path folder;
  /// In `memory`, in `ownFile` or in `tableFiles`.
  std::vector<int64_t> tableOffsets;
  std::vector<std::string> tableFiles;
  std::map<size_t, ByteTable> byteTables; ///< by number of the table
  int64_t bytesOfParameters = 0;
  int64_t bytesOfTables = 0; ///< in `memory`
  Arena memory, ownFile;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_ENGINEWEIGHTS_H
