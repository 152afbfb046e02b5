//===- Module.h - Loading compiled modules ----------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_MODULE_H
#define STEM_RUNTIME_MODULE_H

#include "stem-c/Runtime.h"

#include <span>
#include <string>
#include <string_view>

namespace stem {

/// Bytes of the arena of a step. An Error when the entry's numbers, which come
/// from a file, give no size.
STEM_EXPORT int64_t arenaBytes(const stem_entry &entry, int64_t tokens,
                               int64_t outputs, int64_t threads);

/// A compiled module: a shared object that exports stem_module_query. Its code
/// is unloaded with it. The module resolves the runtime's C interface in the
/// process, so the program must be linked with libStemRuntime.
class STEM_EXPORT Module {
public:
  /// Loads `path` and checks that it is whole, of this ABI version, and for an
  /// instruction set that the context has. Throws an Error that names the file.
  Module(const std::string &path, const stem_context *context);
  ~Module();
  Module(Module &&other) noexcept;
  Module &operator=(Module &&other) noexcept;

  /// The entry of that name, or null.
  const stem_entry *find(std::string_view name) const;

  std::span<const stem_entry> entries() const;
  std::span<const stem_table_info> tables() const;
  const std::string &path() const { return file; }

private:
  const stem_module *query(const stem_context *context) const;

  std::string file;
  void *handle = nullptr;
  const stem_module *description = nullptr;
};

} // namespace stem

#endif // STEM_RUNTIME_MODULE_H
