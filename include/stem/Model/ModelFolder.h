//===- ModelFolder.h - Writing a Hugging Face folder ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_MODELFOLDER_H
#define STEM_MODEL_MODELFOLDER_H

#include "stem/Model/Safetensors.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace stem {

struct FolderOptions {
  /// Replace `out` when it is a folder that Stem made, and nothing else is in
  /// it.
  bool force = false;
  /// A file of model tensors is closed before it grows beyond this.
  uint64_t shardBytes = 5'000'000'000;
  /// What is read. It may be `out` itself but must not lie within, where it
  /// would go with the old folder; empty for none.
  std::filesystem::path source = {};
};

/// Writes a folder as a stream. It is built beside its destination under a
/// temporary name and renamed when complete, so that the destination is absent
/// (or the old one) until then. A killed process leaves the temporary folder,
/// `.NAME.tmp-XXXXXX`; the next writer of the same folder removes it when it is
/// a day old.
///
/// A folder that Stem made has a file `stem_provenance.json`: a JSON object
/// with "made_by": "stem", "format": 1, "files": the names that Stem wrote, and
/// what the caller adds. With `force`, such a folder is replaced if it holds
/// these files alone.
///
/// Order of calls: declare everything (addTensor, linkShard, addText, addFile),
/// then bytesNeeded() may be asked, start(), write() for the tensors in the
/// order of their declaration, finish().
class ModelFolderWriter {
public:
  static constexpr std::string_view markerName = "stem_provenance.json";

  /// Throws when `out` exists and may not be replaced, or its parent is missing
  /// or read-only. Nothing is created yet.
  ModelFolderWriter(std::filesystem::path out, FolderOptions options = {});
  ModelFolderWriter(const ModelFolderWriter &) = delete;
  ModelFolderWriter &operator=(const ModelFolderWriter &) = delete;
  /// Removes the temporary folder unless finish() has succeeded.
  ~ModelFolderWriter();

  /// A tensor of the model's own shards.
  void addTensor(TensorDeclaration tensor);

  /// A tensor in a file of its own group: `file` is
  /// "stem-table-001.safetensors" and its like; tensors of one file are
  /// declared one after the other.
  void addTensor(TensorDeclaration tensor, const std::string &file);

  /// An existing file taken over untouched, as a hard link where the file
  /// system allows, else as a copy; the index will list `tensors` for it. With
  /// a link there, no file gets the name model.safetensors, which readers take
  /// before the index.
  void linkShard(const std::filesystem::path &source,
                 const std::vector<std::string> &tensors);

  /// A small file with this content (config.json, tokenizer.json); finish()
  /// writes the last content given.
  void addText(const std::string &fileName, std::string content);

  /// A small file copied from elsewhere.
  void addFile(const std::filesystem::path &source,
               const std::string &fileName);

  /// The files that go with the tensors, those that `folder` has:
  /// generation_config.json, the tokenizer's files and the chat template.
  void addCompanions(const std::filesystem::path &folder);

  /// What the caller adds to stem_provenance.json, a JSON object as text; it is
  /// written by finish().
  void setProvenance(const std::string &json);

  /// Bytes that will be written (links are free; exact after start()), and
  /// bytes that the destination can take.
  uint64_t bytesNeeded() const;
  uint64_t bytesAvailable() const;

  /// Throws when the destination cannot take so many bytes.
  void requireSpace(uint64_t needed) const;

  /// Checks the disk space, creates the temporary folder, copies small files
  /// and links.
  void start();

  /// The next bytes of the declared tensors.
  void write(std::span<const std::byte> bytes);

  /// Writes the texts, among them the index (when there is more than one file),
  /// syncs and renames.
  void finish();

private:
  struct Group {
    std::string file;
    std::vector<TensorDeclaration> tensors;
    uint64_t bytes = 0;
    bool isShard = false;
  };
  struct Link {
    std::filesystem::path source;
    std::string file;
    std::vector<std::string> tensors;
    uint64_t bytes = 0;
    bool isFree = false;
  };

  void nameShards();
  void openNextGroup();
  std::string indexText() const;
  std::set<std::string> fileNames() const;
  std::string provenanceText() const;
  void checkReplaceable(std::string_view when) const;
  bool needsIndex() const;

  std::filesystem::path out;
  std::unique_ptr<UnfinishedPath> temporary;
  FolderOptions options;
  std::vector<Group> groups;
  std::vector<Link> links;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::filesystem::path> files;
  std::string provenance;
  bool started = false;
  size_t nextGroup = 0;
  uint64_t groupRemaining = 0;
  std::unique_ptr<SafetensorsWriter> writer;
};

/// Why Stem does not replace what is at `path`, in words; empty when it is an
/// empty folder, or one that Stem made and that holds nothing else.
std::string whyNotReplaceable(const std::filesystem::path &path);

/// Bytes free for this user on the file system of `path` (or of its nearest
/// existing parent).
uint64_t freeDiskBytes(const std::filesystem::path &path);

} // namespace stem

#endif // STEM_MODEL_MODELFOLDER_H
