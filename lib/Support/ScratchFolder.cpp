//===- ScratchFolder.cpp - Files and folders of unfinished work -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/ScratchFolder.h"

#include "stem/Support/Error.h"
#include "stem/Support/Files.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace stem;
namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(const fs::path &parent, const std::string &prefix)
    : folder([&] {
        removeStale(parent, prefix);
        std::string pattern = (parent / (prefix + "XXXXXX")).string();
        if (!::mkdtemp(pattern.data()))
          fail("cannot create a folder in {}: {}", parent.string(),
               std::strerror(errno));
        return fs::path(pattern);
      }) {}

std::unique_ptr<ScratchFolder>
ScratchFolder::tryMake(const fs::path &parent, const std::string &prefix) {
  try {
    return std::make_unique<ScratchFolder>(parent, prefix);
  } catch (const Error &) {
    return nullptr;
  }
}

fs::path stem::temporaryFolder() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error)
    fail("there is no folder for temporary files: {}; set TMPDIR to one",
         error.message());
  return folder;
}

static bool isUnfinishedName(const std::string &name,
                             const std::string &prefix) {
  return name.size() == prefix.size() + 6 && name.starts_with(prefix) &&
         std::all_of(name.end() - 6, name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0; });
}

/// Whether nothing was written since `time` to a file, or to a folder and what
/// it holds. What cannot be found out counts as written.
static bool isUntouchedSince(const fs::path &path, fs::file_time_type time) {
  std::error_code error;
  if (fs::last_write_time(path, error) >= time || error)
    return false;
  if (!fs::is_directory(path, error))
    return !error;
  for (fs::recursive_directory_iterator it(path, error), end; it != end;
       it.increment(error)) {
    if (error)
      return false;
    // Its time would be that of what it leads to.
    if (it->is_symlink(error))
      continue;
    if (error || it->last_write_time(error) >= time || error)
      return false;
  }
  return !error;
}

static void removeIfStale(const fs::path &path) {
  const FileDescriptor lock(::open(
      path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat status;
  if (lock.get() < 0 || ::fstat(lock.get(), &status) != 0 ||
      !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) ||
      status.st_uid != ::geteuid())
    return;
  // Not every file system locks.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return;
  const auto dayAgo = fs::file_time_type::clock::now() - std::chrono::hours(24);
  std::error_code ignored;
  if (isUntouchedSince(path, dayAgo))
    fs::remove_all(path, ignored);
}

void stem::removeStale(const fs::path &parent, const std::string &prefix) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end;
       it.increment(error))
    if (isUnfinishedName(it->path().filename().string(), prefix))
      removeIfStale(it->path());
}

std::string stem::temporaryPrefix(const fs::path &path) {
  return fmt::format(".{}.tmp-", path.filename().string());
}

/// As mkstemp and mkdtemp take them; these would make what they create
/// unreadable for others, whatever the umask says.
static std::string randomSuffix() {
  static constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::random_device random;
  std::uniform_int_distribution<size_t> index(0, letters.size() - 1);
  std::string suffix(6, ' ');
  for (char &letter : suffix)
    letter = letters[index(random)];
  return suffix;
}

/// Calls `create` with new names beside `path` until it does not give -1;
/// that, and the name.
template <typename Create>
static std::pair<int, fs::path>
createBeside(const fs::path &path, const char *what, const Create &create) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
  const std::string prefix = temporaryPrefix(path);
  removeStale(parent, prefix);
  for (int attempt = 0; attempt < 100; ++attempt) {
    fs::path name = parent / (prefix + randomSuffix());
    const int result = create(name.c_str());
    if (result >= 0)
      return {result, std::move(name)};
    if (errno != EEXIST)
      break;
  }
  fail("{}: cannot create a {} beside it: {}", path.string(), what,
       std::strerror(errno));
}

int stem::createTemporary(const fs::path &path, fs::path &temporary) {
  const auto [descriptor, name] =
      createBeside(path, "file", [](const char *name) {
        return ::open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
      });
  temporary = name;
  return descriptor;
}

fs::path stem::createTemporaryFolder(const fs::path &path) {
  return createBeside(path, "folder",
                      [](const char *name) { return ::mkdir(name, 0777); })
      .second;
}
