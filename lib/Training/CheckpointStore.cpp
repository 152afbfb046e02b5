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
#include "stem/Training/CheckpointManifest.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigits = 10;
constexpr const char *kManifest = "manifest.json";
constexpr const char *kRun = CheckpointManifest::runFile;
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

void checkFile(const fs::path &path, const CheckpointManifest::File &wanted) {
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

CheckpointManifest manifestOf(const fs::path &folder, int64_t step,
                              const std::vector<std::string> &names) {
  CheckpointManifest manifest{step, {}};
  for (const std::string &name : names) {
    CheckpointManifest::File file{name, 0, ""};
    file.sha256 = hashFile(folder / name, &file.bytes);
    manifest.files.push_back(std::move(file));
  }
  return manifest;
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
  for (const std::string &name : namesInFolder(folder))
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
  for (const std::string &name : namesInFolder(folder))
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
  const fs::path listing = result.path / kManifest;
  const CheckpointManifest manifest = CheckpointManifest::parse(
      readWholeFile(listing, kTextLimit), listing.string());
  if (manifest.step != step)
    fail("{}: \"step\" is {}, the folder's name says {}", listing.string(),
         manifest.step, step);
  for (const CheckpointManifest::File &entry : manifest.files) {
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
  writeNewFile(temporary.path() / kManifest,
               manifestOf(temporary.path(), step, names).text());
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
    for (const std::string &name : namesInFolder(pathOf(step))) {
      std::error_code ignored;
      const uint64_t size = fs::file_size(pathOf(step) / name, ignored);
      bytes += ignored ? 0 : size;
    }
  return bytes;
}
