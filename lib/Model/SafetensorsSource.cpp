//===- SafetensorsSource.cpp - The tensors of a Hugging Face folder -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FileIO.h"
#include "JsonText.h"
#include "stem/Model/Safetensors.h"
#include "stem/Model/TensorSource.h"
#include "stem/Support/Error.h"
#include "stem/Support/Files.h"

#include <algorithm>
#include <set>

using namespace stem;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view singleName = "model.safetensors";
constexpr std::string_view indexName = "model.safetensors.index.json";

/// Tensors of several files under one roof.
class SafetensorsSource : public TensorSource {
public:
  explicit SafetensorsSource(std::string description) {
    origin = std::move(description);
  }

  /// Takes the tensors of a file that `isWanted` accepts.
  template <typename Predicate>
  void addFile(const fs::path &path, Predicate isWanted) {
    const size_t file = files.size();
    files.push_back(SafetensorsFile::open(path));
    for (const TensorView &view : files.back().tensors()) {
      TensorInfo info{view.name, view.dtype, view.shape, view.data.size(),
                      path};
      if (isWanted(view.name))
        found.push_back({std::move(info), file, view.data});
      else
        unlistedInfos.push_back(std::move(info));
    }
  }

  /// A model that needs it refuses.
  void addAbsent(const IndexEntry &entry, const std::string &index) {
    filesWithout[entry.tensor] = entry.file;
    warn(fmt::format("{} says that tensor \"{}\" is in {}, but that file does "
                     "not have it; the model does not need it",
                     index, printable(entry.tensor), printable(entry.file)));
  }

  void warn(std::string text) { warningList.push_back(std::move(text)); }

  /// Sorts what addFile found; a name in two files is an Error.
  void finish() {
    std::sort(found.begin(), found.end(), [](const Found &a, const Found &b) {
      return a.info.name < b.info.name;
    });
    for (const Found &tensor : found) {
      if (!infos.empty() && infos.back().name == tensor.info.name)
        fail("{}: tensor \"{}\" is in {} and in {}", origin,
             printable(tensor.info.name), infos.back().file.filename().string(),
             tensor.info.file.filename().string());
      infos.push_back(tensor.info);
    }
  }

private:
  struct Found {
    TensorInfo info;
    size_t file;
    std::span<const std::byte> data;
  };

  std::span<const std::byte> stored(size_t tensor) const override {
    return found[tensor].data;
  }
  std::optional<uint64_t> storedOffset(size_t tensor) const override {
    return files[found[tensor].file].offsetOf(found[tensor].data);
  }
  void releaseBytes(size_t tensor,
                    std::span<const std::byte> data) const override {
    files[found[tensor].file].release(data);
  }

  std::vector<SafetensorsFile> files;
  std::vector<Found> found; // in the order of infos once finished
};

/// A shard is a file name: no folders, nothing that the system reads otherwise.
void checkShardName(const std::string &file, const std::string &index) {
  const bool isPlain =
      !file.empty() && file != "." && file != ".." &&
      file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!isPlain)
    fail("{}: shard name \"{}\" is not a plain file name; shards lie beside "
         "the index",
         index, printable(file));
  if (!file.ends_with(".safetensors"))
    fail("{}: shard name \"{}\" does not end in .safetensors", index,
         printable(file));
}

std::vector<fs::path> safetensorsFilesOf(const fs::path &folder) {
  std::vector<fs::path> result;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    if (it->path().extension() == ".safetensors")
      result.push_back(it->path());
  if (error)
    fail("{}: cannot be listed: {}", folder.string(), error.message());
  std::sort(result.begin(), result.end());
  return result;
}

/// True when the files on disk hold every tensor of the index.
bool isCoveredByFiles(const std::vector<IndexEntry> &entries,
                      const fs::path &folder) {
  std::set<std::string> present;
  try {
    for (const fs::path &path : safetensorsFilesOf(folder)) {
      const SafetensorsFile file = SafetensorsFile::open(path);
      for (const TensorView &view : file.tensors())
        present.insert(view.name);
    }
  } catch (const Error &) {
    return false;
  }
  return std::all_of(
      entries.begin(), entries.end(),
      [&](const IndexEntry &entry) { return present.count(entry.tensor); });
}

void refuseMissingShards(const std::vector<IndexEntry> &entries,
                         const std::set<std::string> &shards,
                         const fs::path &folder) {
  std::string missing;
  size_t count = 0;
  for (const std::string &shard : shards) {
    std::error_code ignored;
    if (fs::exists(folder / shard, ignored))
      continue;
    if (count++ < 10)
      missing += fmt::format("{}{}", count > 1 ? ", " : "", shard);
  }
  if (count == 0)
    return;
  if (count > 10)
    missing += fmt::format(" and {} more", count - 10);
  fail("{}: {} of {} shards that {} names are missing: {}; {}", folder.string(),
       count, shards.size(), indexName, printable(missing),
       isCoveredByFiles(entries, folder)
           ? "the other .safetensors files hold every tensor, so the index is "
             "out of date: stem-run import --ignore-index makes a folder "
             "without it"
           : "download them");
}

void addIndexed(SafetensorsSource &source, const fs::path &folder) {
  const fs::path indexPath = folder / indexName;
  const auto entries =
      parseSafetensorsIndex(readModelText(indexPath), indexPath.string());
  std::set<std::string> shards;
  for (const IndexEntry &entry : entries)
    shards.insert(entry.file);
  refuseMissingShards(entries, shards, folder);

  std::map<std::string_view, std::string_view> fileOf;
  for (const IndexEntry &entry : entries)
    fileOf.emplace(entry.tensor, entry.file);
  std::set<std::string, std::less<>> present;
  for (const std::string &shard : shards) {
    checkModelFile(folder / shard);
    source.addFile(folder / shard, [&](const std::string &tensor) {
      const auto listed = fileOf.find(tensor);
      const bool isHere = listed != fileOf.end() && listed->second == shard;
      if (isHere)
        present.insert(tensor);
      return isHere;
    });
  }
  for (const IndexEntry &entry : entries)
    if (!present.count(entry.tensor))
      source.addAbsent(entry, indexPath.string());
}

} // namespace

std::vector<IndexEntry> stem::parseSafetensorsIndex(std::string_view text,
                                                    const std::string &name) {
  const auto json = parseLargeJsonObject(text, name);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object())
    fail("{}: there is no object \"weight_map\"", name);
  std::vector<IndexEntry> result;
  result.reserve(map->size());
  for (const auto &[tensor, file] : map->items()) {
    if (!file.is_string())
      fail("{}: weight_map[\"{}\"] is {}, a file name was expected", name,
           printable(tensor), describeJson(file));
    result.push_back({tensor, file.get<std::string>()});
    checkShardName(result.back().file, name);
  }
  std::sort(result.begin(), result.end(),
            [](const IndexEntry &a, const IndexEntry &b) {
              return a.tensor < b.tensor;
            });
  return result;
}

std::unique_ptr<TensorSource>
stem::openSafetensorsFolder(const fs::path &folder,
                            const OpenOptions &options) {
  auto source = std::make_unique<SafetensorsSource>(folder.string());
  const auto all = [](const std::string &) { return true; };
  const bool hasSingle = pathExists(folder / singleName);
  const bool hasIndex = pathExists(folder / indexName);
  const auto files = safetensorsFilesOf(folder);
  if (options.ignoreIndex && !files.empty()) {
    for (const fs::path &path : files) {
      checkModelFile(path);
      source->addFile(path, all);
    }
  } else if (hasSingle) {
    checkModelFile(folder / singleName);
    source->addFile(folder / singleName, all);
    if (hasIndex)
      source->warn(fmt::format("{} is read and {} is not, as transformers does",
                               singleName, indexName));
  } else if (hasIndex) {
    addIndexed(*source, folder);
  } else {
    fail("{}: neither {} nor {} is here{}", folder.string(), singleName,
         indexName,
         files.empty() ? "; download the model's safetensors files"
                       : ", but other .safetensors files are: stem-run import "
                         "--ignore-index makes a folder of them");
  }
  source->finish();
  return source;
}

void stem::checkModelFile(const fs::path &path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error)
    fail("{}: {}", path.string(),
         error != std::errc::no_such_file_or_directory ? error.message()
         : fs::is_symlink(fs::symlink_status(path, error))
             ? "a link to a file that is not there; download it again"
             : "the file is not there");
  if (!fs::is_regular_file(target, error))
    fail("{}: not a regular file", path.string());
  const fs::path folder =
      fs::canonical(path.has_parent_path() ? path.parent_path() : ".");
  if (target.parent_path() == folder)
    return;
  // hub cache: models--x/snapshots/REVISION/NAME -> models--x/blobs/HASH
  if (folder.parent_path().filename() == "snapshots" &&
      target.parent_path() == folder.parent_path().parent_path() / "blobs")
    return;
  fail("{}: a link to {}, outside its folder (and not in a hub cache's blobs); "
       "put the file itself there",
       path.string(), target.string());
}

std::string stem::readModelText(const fs::path &path, uint64_t limit) {
  checkModelFile(path);
  const MappedFile file(path);
  if (file.bytes().size() > limit)
    fail("{}: {} bytes, more than the {} that such a file may have",
         path.string(), file.bytes().size(), limit);
  return std::string(reinterpret_cast<const char *>(file.bytes().data()),
                     file.bytes().size());
}
