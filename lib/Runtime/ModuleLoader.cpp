//===- ModuleLoader.cpp - Loading compiled modules ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Context.h"
#include "stem/Runtime/Module.h"
#include "stem/Support/Error.h"
#include "stem/Support/Files.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace stem;

namespace {

/// To open a pipe would wait for a writer.
int openModule(const std::string &path, uint64_t &size) {
  try {
    return openRegularFile(path, size);
  } catch (const Error &error) {
    fail("cannot open the compiled module {}", error.what());
  }
}

/// dlopen maps a file by its program headers without comparing them with the
/// file's size: code of a truncated file would fault. Look first.
void checkWhole(const std::string &path) {
  uint64_t size;
  const FileDescriptor file(openModule(path, size));
  Elf64_Ehdr header = {};
  if (::pread(file.get(), &header, sizeof(header), 0) != sizeof(header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    fail("'{}' is not a compiled module: it is no 64-bit shared object", path);
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  const auto bytes = static_cast<ssize_t>(segments.size() * sizeof(Elf64_Phdr));
  bool whole = ::pread(file.get(), segments.data(), static_cast<size_t>(bytes),
                       static_cast<off_t>(std::min<uint64_t>(
                           header.e_phoff, INT64_MAX))) == bytes;
  for (const Elf64_Phdr &segment : segments)
    whole &=
        segment.p_offset <= size && segment.p_filesz <= size - segment.p_offset;
  if (!whole)
    fail("the compiled module '{}' is truncated: it has {} bytes but its "
         "segments reach further; compile it again",
         path, size);
}

} // namespace

Module::Module(const std::string &path, const stem_context *context)
    : file(path) {
  checkWhole(path);
  // A path without a slash would be looked up in the library search path.
  std::string name = path.find('/') == std::string::npos ? "./" + path : path;
  handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    fail("cannot load the compiled module '{}': {}", path, dlerror());
  // A constructor that throws runs no destructor.
  try {
    description = query(context);
  } catch (...) {
    dlclose(handle);
    throw;
  }
}

const stem_module *Module::query(const stem_context *context) const {
  auto function = reinterpret_cast<stem_module_query_function>(
      dlsym(handle, STEM_MODULE_QUERY));
  if (!function)
    fail("'{}' is not a compiled module: it does not export {}", file,
         STEM_MODULE_QUERY);
  const stem_module *module = function(STEM_ABI_VERSION);
  if (!module)
    fail("the compiled module '{}' is of another version of Stem: it does not "
         "speak ABI version {}; compile it again",
         file, STEM_ABI_VERSION);
  if (module->struct_size != sizeof(stem_module) ||
      module->abi_version != STEM_ABI_VERSION)
    fail("the compiled module '{}' has ABI version {} and a description of {} "
         "bytes, but this runtime has version {} and {} bytes; compile it "
         "again",
         file, module->abi_version, module->struct_size, STEM_ABI_VERSION,
         sizeof(stem_module));
  stem_isa have = stem_context_isa(context);
  if (module->isa > have)
    fail("the compiled module '{}' needs {} but this context has {}; compile "
         "it for this machine",
         file, isaName(static_cast<stem_isa>(module->isa)), isaName(have));
  if (module->entry_count < 0 || module->table_count < 0 ||
      (module->entry_count > 0 && !module->entries) ||
      (module->table_count > 0 && !module->tables))
    fail("the compiled module '{}' is damaged: {} entries and {} tables; "
         "compile it again",
         file, module->entry_count, module->table_count);
  return module;
}

int64_t stem::arenaBytes(const stem_entry &entry, int64_t tokens,
                         int64_t outputs, int64_t threads) {
  int64_t sum = entry.fixed_bytes;
  bool isSize = sum >= 0;
  auto add = [&](int64_t count, int64_t bytes) {
    int64_t product = 0;
    isSize = isSize && count >= 0 && bytes >= 0 &&
             !__builtin_mul_overflow(count, bytes, &product) &&
             !__builtin_add_overflow(sum, product, &sum);
  };
  add(tokens, entry.bytes_per_token);
  add(outputs, entry.bytes_per_output);
  add(threads, entry.bytes_per_thread);
  if (!isSize)
    fail("entry '{}' of the compiled module asks for {} bytes and {} for each "
         "of {} tokens, {} for each of {} outputs, {} for each of {} threads, "
         "which is no size; the module is damaged, compile it again",
         entry.name, entry.fixed_bytes, entry.bytes_per_token, tokens,
         entry.bytes_per_output, outputs, entry.bytes_per_thread, threads);
  return sum;
}

Module::~Module() {
  if (handle)
    dlclose(handle);
}

Module::Module(Module &&other) noexcept
    : file(std::move(other.file)), handle(std::exchange(other.handle, nullptr)),
      description(std::exchange(other.description, nullptr)) {}

Module &Module::operator=(Module &&other) noexcept {
  std::swap(file, other.file);
  std::swap(handle, other.handle);
  std::swap(description, other.description);
  return *this;
}

const stem_entry *Module::find(std::string_view name) const {
  for (const stem_entry &entry : entries())
    if (name == entry.name)
      return &entry;
  return nullptr;
}

std::span<const stem_entry> Module::entries() const {
  return {description->entries, static_cast<size_t>(description->entry_count)};
}

std::span<const stem_table_info> Module::tables() const {
  return {description->tables, static_cast<size_t>(description->table_count)};
}
