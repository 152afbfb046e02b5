//===- ModelFolder.cpp - Writing a Hugging Face folder --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ModelFolder.h"

#include "FileIO.h"
#include "JsonText.h"
#include "stem/Model/TensorSource.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/ScratchFolder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

using namespace stem;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view indexName = "model.safetensors.index.json";

fs::path parentOf(const fs::path &path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// "a/b/" and "a/b" are the same folder.
fs::path withoutTrailingSlash(const fs::path &path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

uint64_t deviceOf(const fs::path &path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0)
    fail("{}: {}", path.string(), std::strerror(errno));
  return status.st_dev;
}

void checkPlainName(const std::string &name) {
  if (name.empty() || name.front() == '.' ||
      name.find('/') != std::string::npos)
    fail("\"{}\" is not a plain file name", printable(name));
}

/// The file itself, not a link to it, so that the new folder does not depend on
/// a hub cache's layout.
bool linkFile(const fs::path &source, const fs::path &target) {
  return ::link(fs::canonical(source).c_str(), target.c_str()) == 0;
}

/// Puts `fresh` in the place of `old`; afterwards `fresh` is the old folder.
void exchange(const fs::path &fresh, const fs::path &old) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(),
                  RENAME_EXCHANGE) == 0)
    return;
  // Not every file system exchanges; then there is a moment without either.
  const fs::path aside = fresh.string() + "-old";
  fs::rename(old, aside);
  fs::rename(fresh, old);
  fs::rename(aside, fresh);
}

} // namespace

bool stem::isStemFolder(const fs::path &folder) {
  std::error_code ignored;
  const fs::path marker = folder / ModelFolderWriter::markerName;
  if (!fs::is_regular_file(fs::symlink_status(marker, ignored)))
    return false;
  try {
    const auto json = parseJsonObject(readModelText(marker), marker.string());
    return json.value("made_by", "") == "stem";
  } catch (const std::exception &) {
    return false;
  }
}

uint64_t stem::freeDiskBytes(const fs::path &path) {
  std::error_code ignored;
  fs::path existing = fs::absolute(path);
  while (!fs::exists(existing, ignored) && existing.has_relative_path())
    existing = existing.parent_path();
  struct statvfs status;
  if (::statvfs(existing.c_str(), &status) != 0)
    fail("{}: cannot ask for free space: {}", existing.string(),
         std::strerror(errno));
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

ModelFolderWriter::ModelFolderWriter(fs::path outPath, FolderOptions options)
    : out(withoutTrailingSlash(outPath)), options(options) {
  if (out.filename().empty() || out.filename() == "." || out.filename() == "..")
    fail("{}: give the new folder a name", outPath.string());
  if (fs::exists(fs::symlink_status(out))) {
    const bool isFolder = fs::is_directory(fs::symlink_status(out));
    if (!options.force)
      fail("{}: exists already; choose another name{}", out.string(),
           isFolder && isStemFolder(out) ? ", or --force to replace it" : "");
    if (!isFolder || !(isStemFolder(out) || fs::is_empty(out)))
      fail("{}: exists and was not made by Stem (no {}); --force does not "
           "replace it, remove it yourself",
           out.string(), markerName);
  }
  const fs::path parent = parentOf(out);
  if (!fs::is_directory(parent))
    fail("{}: the folder {} is not there; make it first", out.string(),
         parent.string());
  if (::access(parent.c_str(), W_OK | X_OK) != 0)
    fail("{}: cannot write in {}: {}", out.string(), parent.string(),
         std::strerror(errno));
}

ModelFolderWriter::~ModelFolderWriter() {
  writer.reset();
  std::error_code ignored;
  if (!temporary.empty() && !finished)
    fs::remove_all(temporary, ignored);
}

void ModelFolderWriter::addTensor(TensorDeclaration tensor) {
  const uint64_t bytes = SafetensorsWriter::plannedBytes({tensor}, {});
  const bool isNew = groups.empty() || !groups.back().isShard ||
                     groups.back().bytes + bytes > options.shardBytes;
  if (isNew)
    groups.push_back({"", {}, 0, /*isShard=*/true});
  groups.back().bytes += bytes;
  groups.back().tensors.push_back(std::move(tensor));
}

void ModelFolderWriter::addTensor(TensorDeclaration tensor,
                                  const std::string &file) {
  checkPlainName(file);
  if (groups.empty() || groups.back().file != file) {
    for (const Group &group : groups)
      if (group.file == file)
        fail("the tensors of {} must be declared one after the other", file);
    groups.push_back({file, {}, 0, /*isShard=*/false});
  }
  groups.back().tensors.push_back(std::move(tensor));
}

void ModelFolderWriter::linkShard(const fs::path &source,
                                  const std::vector<std::string> &tensors) {
  const bool isFree = deviceOf(source) == deviceOf(parentOf(out));
  links.push_back({source, "", tensors, fs::file_size(source), isFree});
}

void ModelFolderWriter::addText(const std::string &fileName,
                                std::string content) {
  checkPlainName(fileName);
  files.erase(fileName);
  texts[fileName] = std::move(content);
}

void ModelFolderWriter::addFile(const fs::path &source,
                                const std::string &fileName) {
  checkPlainName(fileName);
  texts.erase(fileName);
  files[fileName] = source;
}

void ModelFolderWriter::addCompanions(const fs::path &folder) {
  for (const char *name :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "tokenizer.model", "chat_template.jinja",
        "chat_template.json"}) {
    if (!fs::exists(fs::symlink_status(folder / name)))
      continue;
    checkModelFile(folder / name);
    addFile(folder / name, name);
  }
}

void ModelFolderWriter::setProvenance(const std::string &json) {
  provenance = json;
}

bool ModelFolderWriter::needsIndex() const {
  return !links.empty() || groups.size() != 1 || !groups[0].isShard;
}

/// Linked shards first, then our own, in one numbering. A single file of ours
/// has the name that readers look for first.
void ModelFolderWriter::nameShards() {
  size_t count = links.size();
  for (const Group &group : groups)
    count += group.isShard;
  size_t next = 1;
  const auto shardName = [&] {
    return needsIndex()
               ? fmt::format("model-{:05}-of-{:05}.safetensors", next++, count)
               : std::string("model.safetensors");
  };
  for (Link &link : links)
    link.file = shardName();
  for (Group &group : groups)
    if (group.isShard)
      group.file = shardName();
}

std::string ModelFolderWriter::indexText() const {
  // std::map sorts the names, as other writers do.
  std::map<std::string, std::string> weightMap;
  uint64_t total = 0;
  const auto add = [&](const std::string &tensor, const std::string &file) {
    if (!weightMap.emplace(tensor, file).second)
      fail("tensor \"{}\" is declared twice", printable(tensor));
  };
  for (const Group &group : groups)
    for (const TensorDeclaration &tensor : group.tensors) {
      add(tensor.name, group.file);
      total += dtypeBytes(tensor.dtype, *elementCount(tensor.shape)).value();
    }
  for (const Link &link : links) {
    const SafetensorsFile file = SafetensorsFile::open(link.source);
    for (const std::string &tensor : link.tensors) {
      add(tensor, link.file);
      total += file.get(tensor).data.size();
    }
  }
  ordered_json index = {{"metadata", {{"total_size", total}}},
                        {"weight_map", weightMap}};
  return index.dump(2) + "\n";
}

std::string ModelFolderWriter::provenanceText() const {
  ordered_json json = {{"made_by", "stem"}, {"format", 1}};
  if (provenance.empty())
    return json.dump(2) + "\n";
  const ordered_json added = parseJsonObject(provenance, "provenance");
  for (const auto &[key, value] : added.items())
    if (!json.contains(key))
      json[key] = value;
  return json.dump(2) + "\n";
}

uint64_t ModelFolderWriter::bytesNeeded() const {
  uint64_t bytes = provenanceText().size();
  for (const Group &group : groups)
    bytes += SafetensorsWriter::plannedBytes(group.tensors);
  for (const Link &link : links)
    bytes += link.isFree ? 0 : link.bytes;
  for (const auto &[name, text] : texts)
    bytes += text.size();
  for (const auto &[name, source] : files)
    bytes += fs::file_size(source);
  return bytes;
}

uint64_t ModelFolderWriter::bytesAvailable() const {
  return freeDiskBytes(parentOf(out));
}

void ModelFolderWriter::start() {
  const uint64_t needed = bytesNeeded(), available = bytesAvailable();
  if (needed > available)
    fail(
        "{}: {} are needed, {} are free on this file system; free {} or choose "
        "another destination",
        out.string(), formatBytes(static_cast<double>(needed)),
        formatBytes(static_cast<double>(available)),
        formatBytes(static_cast<double>(needed - available)));
  nameShards();
  removeStale(parentOf(out), temporaryPrefix(out));
  std::string pattern =
      (parentOf(out) / (temporaryPrefix(out) + "XXXXXX")).string();
  if (!::mkdtemp(pattern.data()))
    fail("{}: cannot create a folder beside it: {}", out.string(),
         std::strerror(errno));
  temporary = pattern;
  fs::permissions(temporary, fs::perms(0755));
  started = true;
  if (needsIndex())
    texts[std::string(indexName)] = indexText();
  texts[std::string(markerName)] = provenanceText();
  for (const auto &[name, text] : texts)
    writeNewFile(temporary / name, text);
  for (const auto &[name, source] : files)
    copyNewFile(source, temporary / name);
  for (const Link &link : links)
    if (!linkFile(link.source, temporary / link.file))
      copyNewFile(link.source, temporary / link.file);
}

void ModelFolderWriter::openNextGroup() {
  const Group &group = groups[nextGroup++];
  writer = std::make_unique<SafetensorsWriter>(temporary / group.file,
                                               group.tensors);
  groupRemaining = 0;
  for (const TensorDeclaration &tensor : group.tensors)
    groupRemaining +=
        dtypeBytes(tensor.dtype, *elementCount(tensor.shape)).value();
}

void ModelFolderWriter::write(std::span<const std::byte> bytes) {
  if (!started)
    fail("{}: tensor data came before start()", out.string());
  while (!bytes.empty()) {
    if (!writer) {
      if (nextGroup == groups.size())
        fail("{}: more tensor data came than was declared", out.string());
      openNextGroup();
    }
    const auto part =
        bytes.first(std::min<uint64_t>(bytes.size(), groupRemaining));
    writer->write(part);
    bytes = bytes.subspan(part.size());
    groupRemaining -= part.size();
    if (groupRemaining == 0) {
      writer->finish();
      writer.reset();
    }
  }
}

void ModelFolderWriter::finish() {
  if (!started)
    fail("{}: finish() came before start()", out.string());
  if (writer)
    writer->finish(); // says which tensor is incomplete
  writer.reset();
  while (nextGroup < groups.size()) {
    openNextGroup();
    writer->finish();
    writer.reset();
  }
  syncPath(temporary);
  // The destination may have come into being since the constructor looked.
  if (fs::exists(fs::symlink_status(out))) {
    if (!options.force || !(isStemFolder(out) || fs::is_empty(out)))
      fail("{}: came into being while this ran; nothing was replaced",
           out.string());
    exchange(temporary, out);
    finished = true;
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  } else {
    fs::rename(temporary, out);
    finished = true;
  }
  syncPath(parentOf(out));
}
