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
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"
#include "stem/Support/ScratchFolder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
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

/// Whether anything is at `path`, a link that leads nowhere too.
bool linkExists(const fs::path &path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::none)
    fail("{}: {}", printable(path.string()), error.message());
  return fs::exists(status);
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

/// What stem_provenance.json says that Stem wrote.
std::set<std::string> filesOfProvenance(const fs::path &marker) {
  const auto json = parseJsonObject(readModelText(marker), marker.string());
  const auto maker = json.find("made_by");
  if (maker == json.end() || *maker != "stem")
    fail("{}: does not say that Stem made the folder", marker.string());
  std::set<std::string> result = {marker.filename().string()};
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array())
    fail("{}: has no list \"files\"", marker.string());
  for (const auto &file : *files)
    if (file.is_string())
      result.insert(file.get<std::string>());
  return result;
}

/// "a, b and 7 more"
std::string describeNames(const std::vector<std::string> &names) {
  constexpr size_t limit = 5;
  std::string result;
  for (size_t i = 0; i < std::min(names.size(), limit); ++i)
    result += (i ? ", " : "") + printable(names[i]);
  if (names.size() > limit)
    result += fmt::format(" and {} more", names.size() - limit);
  return result;
}

} // namespace

std::string stem::whyNotReplaceable(const fs::path &path) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error)))
    return "was not made by Stem (it is no folder)";
  try {
    std::vector<std::string> names = namesInFolder(path);
    if (names.empty())
      return "";
    const fs::path marker = path / ModelFolderWriter::markerName;
    if (!std::binary_search(names.begin(), names.end(),
                            ModelFolderWriter::markerName))
      return fmt::format("was not made by Stem (no {})",
                         ModelFolderWriter::markerName);
    const std::set<std::string> ours = filesOfProvenance(marker);
    std::erase_if(names, [&](const std::string &name) {
      return ours.count(name) &&
             !fs::is_directory(fs::symlink_status(path / name, error));
    });
    return names.empty()
               ? ""
               : "holds what Stem did not write: " + describeNames(names);
  } catch (const Error &problem) {
    return fmt::format("may not be Stem's: {}", problem.what());
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
  const fs::path parent = parentOf(out);
  if (linkExists(out)) {
    checkReplaceable("exists already");
    if (!options.source.empty() && liesWithin(options.source, out) &&
        !liesWithin(out, options.source))
      fail("{}: lies in {}, which --force would replace; choose another "
           "destination",
           options.source.string(), out.string());
  }
  if (!isFolder(parent)) {
    if (pathExists(parent))
      fail("{}: {} is a file, not a folder; choose another place", out.string(),
           parent.string());
    fail("{}: the folder {} is not there; make it first", out.string(),
         parent.string());
  }
  if (!options.source.empty() && liesWithin(out, options.source) &&
      !liesWithin(options.source, out))
    fail("{}: lies in the model {}, which must stay as it is; choose another "
         "place",
         out.string(), options.source.string());
  if (::access(parent.c_str(), W_OK | X_OK) != 0)
    fail("{}: cannot write in {}: {}", out.string(), parent.string(),
         std::strerror(errno));
}

ModelFolderWriter::~ModelFolderWriter() {
  writer.reset(); // its file lies in the temporary folder
}

void ModelFolderWriter::checkReplaceable(std::string_view when) const {
  const std::string reason = whyNotReplaceable(out);
  if (!options.force)
    fail("{}: {}; choose another name{}", out.string(), when,
         reason.empty() ? ", or --force to replace it" : "");
  if (!reason.empty())
    fail("{}: {} and {}; --force does not replace it, remove it yourself",
         out.string(), when, reason);
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
    if (!linkExists(folder / name))
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

std::set<std::string> ModelFolderWriter::fileNames() const {
  std::set<std::string> names = {std::string(markerName)};
  for (const auto &[name, text] : texts)
    names.insert(name);
  for (const auto &[name, source] : files)
    names.insert(name);
  for (const Group &group : groups)
    names.insert(group.file);
  for (const Link &link : links)
    names.insert(link.file);
  return names;
}

std::string ModelFolderWriter::provenanceText() const {
  ordered_json json = {
      {"made_by", "stem"}, {"format", 1}, {"files", fileNames()}};
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

void ModelFolderWriter::requireSpace(uint64_t needed) const {
  const uint64_t available = bytesAvailable();
  if (needed > available)
    fail(
        "{}: {} are needed, {} are free on this file system; free {} or choose "
        "another destination",
        out.string(), formatBytes(static_cast<double>(needed)),
        formatBytes(static_cast<double>(available)),
        formatBytes(static_cast<double>(needed - available)));
}

void ModelFolderWriter::start() {
  requireSpace(bytesNeeded());
  nameShards();
  temporary = std::make_unique<UnfinishedPath>(
      [&] { return createTemporaryFolder(out); });
  const fs::path &folder = temporary->path();
  started = true;
  if (needsIndex())
    texts[std::string(indexName)] = indexText();
  for (const auto &[name, source] : files)
    copyNewFile(source, folder / name);
  for (Link &link : links) {
    link.isFree = linkFile(link.source, folder / link.file);
    if (!link.isFree)
      copyNewFile(link.source, folder / link.file);
  }
}

void ModelFolderWriter::openNextGroup() {
  const Group &group = groups[nextGroup++];
  writer = std::make_unique<SafetensorsWriter>(temporary->path() / group.file,
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
  for (const auto &[name, text] : texts)
    writeNewFile(temporary->path() / name, text);
  writeNewFile(temporary->path() / markerName, provenanceText());
  syncPath(temporary->path());
  uninterrupted([&] {
    // The destination may have come into being since the constructor looked.
    if (linkExists(out)) {
      checkReplaceable("came into being while this ran");
      exchangePaths(temporary->path(), out);
    } else {
      renamePath(temporary->path(), out);
      temporary->keep();
    }
  });
  temporary.reset(); // after an exchange it is the old folder
  syncPath(parentOf(out));
}
