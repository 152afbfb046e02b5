//===- CheckpointStore.cpp - Checkpoints of a training run ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/CheckpointStore.h"

#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"
#include "stem/Support/ScratchFolder.h"
#include "stem/Support/UnfinishedPath.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>

using namespace stem;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigits = 10;
constexpr const char *kManifest = "manifest.json";
constexpr const char *kRun = "run.json";
constexpr const char *kFormat = "stem-training-checkpoint";
constexpr int kVersion = 1;
constexpr uint64_t kTextLimit = 64 << 20;

/// The step that a folder's name says.
std::optional<int64_t> stepOf(const std::string &name) {
  if (name.size() != kPrefix.size() + kDigits || !name.starts_with(kPrefix))
    return std::nullopt;
  int64_t step = -1;
  const char *end = name.data() + name.size();
  const auto [rest, code] =
      std::from_chars(name.data() + kPrefix.size(), end, step);
  return code == std::errc() && rest == end && step >= 0 ? std::optional(step)
                                                         : std::nullopt;
}

std::vector<std::string> namesIn(const fs::path &folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    names.push_back(it->path().filename().string());
  if (error)
    fail("{}: cannot be listed: {}", folder.string(), error.message());
  return names;
}

/// A name beside the manifest, not a way out of the folder.
bool isPlainName(const std::string &name) {
  return !name.empty() && name.front() != '.' &&
         name.find('/') == std::string::npos;
}

struct FileEntry {
  std::string name;
  uint64_t bytes;
  std::string sha256;
};

/// The files that a manifest lists.
std::vector<FileEntry> parseManifest(const fs::path &path, int64_t step) {
  const std::string text = readWholeFile(path, kTextLimit);
  const ordered_json json =
      ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto refuse = [&](std::string_view what) {
    fail("{}: {}", path.string(), what);
  };
  if (!json.is_object())
    refuse("is no JSON object");
  if (json.value("format", ordered_json()) != kFormat)
    refuse(fmt::format("\"format\" is not \"{}\"", kFormat));
  if (json.value("version", ordered_json()) != kVersion)
    refuse(fmt::format("\"version\" is not {}, which this program reads",
                       kVersion));
  if (json.value("step", ordered_json()) != step)
    refuse(fmt::format("\"step\" is not {}, as the folder's name says", step));
  const ordered_json files = json.value("files", ordered_json());
  std::vector<FileEntry> entries;
  bool isGood = files.is_array();
  for (size_t i = 0; isGood && i < files.size(); ++i) {
    const ordered_json &file = files[i];
    isGood = file.is_object() && file.contains("name") &&
             file["name"].is_string() && file.contains("bytes") &&
             file["bytes"].is_number_unsigned() && file.contains("sha256") &&
             file["sha256"].is_string();
    if (!isGood)
      break;
    entries.push_back({file["name"], file["bytes"], file["sha256"]});
    isGood = isPlainName(entries.back().name);
  }
  if (!isGood)
    refuse("\"files\" is not a list of files with name, bytes and sha256");
  if (std::ranges::find(entries, kRun, &FileEntry::name) == entries.end())
    refuse(fmt::format("\"files\" does not list {}", kRun));
  return entries;
}

void checkFile(const fs::path &path, const FileEntry &wanted) {
  uint64_t bytes = 0;
  const std::string sha256 = hashFile(path, &bytes);
  if (bytes != wanted.bytes)
    fail("{}: has {} bytes, the manifest says {}", path.string(), bytes,
         wanted.bytes);
  if (sha256 != wanted.sha256)
    fail("{}: has SHA-256 {}, the manifest says {}", path.string(), sha256,
         printable(wanted.sha256));
}

std::vector<TensorDeclaration> declarations(const CheckpointFile &file) {
  std::vector<TensorDeclaration> result;
  for (const TensorView &tensor : file.tensors)
    result.push_back({tensor.name, tensor.dtype, tensor.shape});
  return result;
}

void writeTensors(const fs::path &path, const CheckpointFile &file) {
  SafetensorsWriter writer(path, declarations(file));
  for (const TensorView &tensor : file.tensors)
    writer.write(tensor.data);
  writer.finish();
}

void writeManifest(const fs::path &folder, int64_t step,
                   const std::vector<std::string> &names) {
  ordered_json files = ordered_json::array();
  for (const std::string &name : names) {
    uint64_t bytes = 0;
    const std::string sha256 = hashFile(folder / name, &bytes);
    files.push_back({{"name", name}, {"bytes", bytes}, {"sha256", sha256}});
  }
  const ordered_json manifest = {{"format", kFormat},
                                 {"version", kVersion},
                                 {"step", step},
                                 {"files", files}};
  writeNewFile(folder / kManifest, manifest.dump(2) + "\n");
}

void renamePath(const fs::path &from, const fs::path &to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail("{}: cannot rename {} to it: {}", to.string(), from.string(),
         std::strerror(errno));
}

} // namespace

std::vector<TensorView> LoadedCheckpoint::tensors() const {
  std::vector<TensorView> result;
  for (const SafetensorsFile &file : files)
    result.insert(result.end(), file.tensors().begin(), file.tensors().end());
  return result;
}

CheckpointStore::CheckpointStore(fs::path path, int64_t keep)
    : folder(std::move(path)),
      lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      keep(keep) {
  if (lock.get() < 0)
    fail("{}: cannot be opened: {}", folder.string(), std::strerror(errno));
  // Not every file system locks.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail("{}: another process trains into this folder; wait for it, or choose "
         "another",
         folder.string());
  for (const std::string &name : namesIn(folder))
    if (name.starts_with('.') && name.find(".tmp-") != std::string::npos) {
      std::error_code ignored;
      fs::remove_all(folder / name, ignored);
    }
}

fs::path CheckpointStore::pathOf(int64_t step) const {
  return folder / fmt::format("{}{:0{}}", kPrefix, step, kDigits);
}

/// Rising.
std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> result;
  for (const std::string &name : namesIn(folder))
    if (const auto step = stepOf(name))
      result.push_back(*step);
  std::sort(result.begin(), result.end());
  return result;
}

bool CheckpointStore::isEmpty() const { return steps().empty(); }

LoadedCheckpoint CheckpointStore::load(int64_t step) const {
  LoadedCheckpoint result;
  result.path = pathOf(step);
  result.step = step;
  for (const FileEntry &entry : parseManifest(result.path / kManifest, step)) {
    const fs::path path = result.path / entry.name;
    checkFile(path, entry);
    if (entry.name == kRun)
      result.run = readWholeFile(path, kTextLimit);
    else
      result.files.push_back(SafetensorsFile::open(path));
  }
  return result;
}

std::optional<LoadedCheckpoint> CheckpointStore::newest(
    const std::function<void(const std::string &)> &onDamaged) const {
  std::vector<int64_t> known = steps();
  for (auto step = known.rbegin(); step != known.rend(); ++step)
    try {
      return load(*step);
    } catch (const Error &error) {
      onDamaged(error.what());
    }
  return std::nullopt;
}

/// Out of the way under one rename: it is whole or it is not there.
void CheckpointStore::remove(int64_t step) const {
  const fs::path path = pathOf(step);
  const UnfinishedPath temporary([&] { return createTemporaryFolder(path); });
  renamePath(path, temporary.path());
}

void CheckpointStore::prune(int64_t saved) const {
  std::vector<int64_t> known = steps();
  std::erase_if(known, [&](int64_t step) {
    if (step <= saved)
      return false;
    remove(step);
    return true;
  });
  for (size_t i = 0; i + static_cast<size_t>(keep) < known.size(); ++i)
    remove(known[i]);
}

void CheckpointStore::save(int64_t step,
                           const std::vector<CheckpointFile> &files,
                           const std::string &run) {
  const fs::path path = pathOf(step);
  UnfinishedPath temporary([&] { return createTemporaryFolder(path); });
  std::vector<std::string> names = {kRun};
  writeNewFile(temporary.path() / kRun, run);
  for (const CheckpointFile &file : files) {
    writeTensors(temporary.path() / file.name, file);
    names.push_back(file.name);
  }
  writeManifest(temporary.path(), step, names);
  syncPath(temporary.path());
  if (pathExists(path))
    remove(step); // a damaged one of this step
  uninterrupted([&] {
    renamePath(temporary.path(), path);
    temporary.keep();
  });
  syncPath(folder);
  prune(step);
}

uint64_t
CheckpointStore::plannedBytes(const std::vector<CheckpointFile> &files) {
  constexpr uint64_t texts = 64 << 10;
  uint64_t bytes = texts;
  for (const CheckpointFile &file : files)
    bytes += SafetensorsWriter::plannedBytes(declarations(file));
  return bytes;
}

uint64_t CheckpointStore::presentBytes() const {
  uint64_t bytes = 0;
  for (const int64_t step : steps())
    for (const std::string &name : namesIn(pathOf(step))) {
      std::error_code ignored;
      const uint64_t size = fs::file_size(pathOf(step) / name, ignored);
      bytes += ignored ? 0 : size;
    }
  return bytes;
}
