//===- BuildIdentity.cpp - What makes compiled code -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BuildIdentity.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"

#include <cstring>
#include <fmt/ranges.h>
#include <link.h>
#include <set>

using namespace stem;

/// Other libraries do not change code, and what is loaded besides (modules,
/// preloaded tools) would only spoil the key.
static bool makesCode(llvm::StringRef path) {
  llvm::StringRef name = llvm::sys::path::filename(path);
  return name.starts_with("libLLVM") || name.starts_with("libMLIR") ||
         name.starts_with("libStem");
}

/// The build id among the notes of a loaded object, which the linker makes of
/// what it links; empty for none.
static std::string buildId(const dl_phdr_info &info) {
  for (const ElfW(Phdr) &segment :
       llvm::ArrayRef(info.dlpi_phdr, info.dlpi_phnum)) {
    if (segment.p_type != PT_NOTE)
      continue;
    llvm::StringRef rest(
        reinterpret_cast<const char *>(info.dlpi_addr + segment.p_vaddr),
        segment.p_memsz);
    ElfW(Nhdr) note;
    while (rest.size() >= sizeof(note)) {
      std::memcpy(&note, rest.data(), sizeof(note));
      rest = rest.drop_front(sizeof(note));
      // Name and content end on multiples of four.
      const size_t nameBytes = llvm::alignTo(note.n_namesz, 4);
      const size_t contentBytes = llvm::alignTo(note.n_descsz, 4);
      if (rest.size() < nameBytes + contentBytes)
        break;
      if (note.n_type == NT_GNU_BUILD_ID && rest.starts_with("GNU"))
        return llvm::toHex(rest.substr(nameBytes, note.n_descsz));
      rest = rest.drop_front(nameBytes + contentBytes);
    }
  }
  return "";
}

static std::string describe(const dl_phdr_info &info, const std::string &path) {
  // Packages may have all the same times, and a changed library its old size.
  const std::string id = buildId(info);
  if (!id.empty())
    return fmt::format("{} {}", llvm::sys::path::filename(path).str(), id);
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(path, status))
    return path;
  auto time = status.getLastModificationTime().time_since_epoch().count();
  return fmt::format("{} {} {}", path, status.getSize(), time);
}

static std::string describeObjects() {
  std::set<std::string> lines;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *found) {
        static int anchor;
        auto &lines = *static_cast<std::set<std::string> *>(found);
        if (lines.empty()) // the program comes first, without a name
          lines.insert(describe(
              *info, llvm::sys::fs::getMainExecutable(nullptr, &anchor)));
        else if (makesCode(info->dlpi_name))
          lines.insert(describe(*info, info->dlpi_name));
        return 0;
      },
      &lines);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

const std::string &stem::buildIdentity() {
  static const std::string identity = describeObjects();
  return identity;
}
