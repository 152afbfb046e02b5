//===- Guard.cpp - Bad input gives a message, not a crash -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// MLIR's parsers recurse and some of its readers abort. What can be seen before
// is refused with its reason; the rest ends in one message all the same.

#include "Guard.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

using namespace llvm;

// IR that people and exporters write is a few dozen levels deep.
static constexpr size_t kMaxNesting = 1000;
// Of what comes through a pipe, which may never end.
static constexpr size_t kMaxPiped = size_t{1} << 30;
// Enough for kMaxNesting levels in parsers, verifiers and printers.
static constexpr rlim_t kStackBytes = rlim_t{64} << 20;

static const char *toolName = "stem";
/// Composed before a crash, when nothing may be allocated.
static std::string crashMessage;

static void composeCrashMessage(StringRef input) {
  crashMessage = (Twine(toolName) + ": " + input +
                  ": the input is malformed or hits a bug of the compiler, "
                  "which crashed on it\n")
                     .str();
}

void stem::endWithCrashMessage() {
  ssize_t written =
      ::write(STDERR_FILENO, crashMessage.data(), crashMessage.size());
  (void)written;
  ::_exit(EXIT_FAILURE);
}

static void reportCrash(void *) { stem::endWithCrashMessage(); }

static void reportFatalError(void *, const char *reason, bool) {
  errs() << StringRef(crashMessage).rtrim() << ": " << reason << "\n";
  // The pass manager is about to write the module that a pass crashes on.
  if (CrashRecoveryContext::GetCurrent())
    return;
  sys::RunInterruptHandlers();
  ::_exit(EXIT_FAILURE);
}

void stem::guardAgainstCrashes(const char *tool) {
  toolName = tool;
  composeCrashMessage("standard input");
  // The first of the handlers: no stack trace follows.
  sys::AddSignalHandler(reportCrash, nullptr);
  install_fatal_error_handler(reportFatalError);
  install_bad_alloc_error_handler(reportFatalError);
  // Holds for the main thread, whose stack grows as it is used.
  rlimit limit;
  if (::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kStackBytes) {
    limit.rlim_cur = std::min(kStackBytes, limit.rlim_max);
    ::setrlimit(RLIMIT_STACK, &limit);
  }
}

static std::nullptr_t refuse(StringRef path, const Twine &why) {
  errs() << toolName << ": " << path << ": " << why << "\n";
  return nullptr;
}

static bool isBytecode(StringRef text) { return text.starts_with("ML\xefR"); }

/// Past the string that begins at `start`. It ends on its line.
static size_t skipString(StringRef text, size_t start) {
  size_t i = start + 1;
  while (i < text.size() && text[i] != '"' && text[i] != '\n')
    i += text[i] == '\\' ? 2 : 1;
  return i + 1;
}

/// The line on which brackets, outside of strings and comments, are nested
/// deeper than kMaxNesting; 0 if there is none.
static size_t findDeepLine(StringRef text) {
  std::string open;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    StringRef two = text.substr(i, 2);
    if (c == '"') {
      i = skipString(text, i) - 1;
    } else if (two == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (two == "->" || two == "<=" || two == ">=") {
      ++i;
    } else if (StringRef("([{<").contains(c)) {
      open.push_back(c);
      if (open.size() > kMaxNesting)
        return text.take_front(i).count('\n') + 1;
    } else if (c == '>') {
      if (!open.empty() && open.back() == '<')
        open.pop_back();
    } else if (c == ')' || c == ']' || c == '}') {
      // What is left open inside is no bracket.
      size_t partner = open.rfind(c == ')' ? '(' : c == ']' ? '[' : '{');
      if (partner != std::string::npos)
        open.resize(partner);
    }
  }
  return 0;
}

static std::unique_ptr<MemoryBuffer> readPipe() {
  SmallVector<char, 0> bytes;
  constexpr size_t piece = size_t{1} << 20;
  sys::fs::file_t input = sys::fs::getStdinHandle();
  while (true) {
    size_t size = bytes.size();
    bytes.resize_for_overwrite(size + piece);
    Expected<size_t> got =
        sys::fs::readNativeFile(input, MutableArrayRef(bytes).drop_front(size));
    if (!got)
      return refuse("standard input", toString(got.takeError()));
    bytes.truncate(size + *got);
    if (*got == 0)
      return MemoryBuffer::getMemBufferCopy(
          StringRef(bytes.data(), bytes.size()), "<stdin>");
    StringRef text(bytes.data(), bytes.size());
    if (bytes.size() > kMaxPiped)
      return refuse("standard input",
                    "has more than " + Twine(kMaxPiped) +
                        " bytes; give a file of that size by its name");
    if (!isBytecode(text) && text.drop_front(size).contains('\0'))
      return refuse("standard input", "is neither text nor bytecode of MLIR");
  }
}

static std::unique_ptr<MemoryBuffer> readFile(StringRef path) {
  sys::fs::file_status status;
  if (std::error_code code = sys::fs::status(path, status))
    return refuse(path, "cannot open input file: " + code.message());
  if (!sys::fs::is_regular_file(status))
    return refuse(path, "is not a regular file; pipe to the file name '-' what "
                        "does not come from one");
  // Volatile is not mapped: a file may shrink while it is read.
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/true,
                                      /*IsVolatile=*/true);
  if (!buffer)
    return refuse(path,
                  "cannot open input file: " + buffer.getError().message());
  return std::move(*buffer);
}

std::unique_ptr<MemoryBuffer> stem::readInput(StringRef path) {
  std::unique_ptr<MemoryBuffer> input =
      path == "-" ? readPipe() : readFile(path);
  if (!input)
    return nullptr;
  composeCrashMessage(path == "-" ? "standard input" : path);
  StringRef text = input->getBuffer();
  if (isBytecode(text))
    return input;
  if (size_t line = findDeepLine(text))
    return refuse(path, "line " + Twine(line) +
                            ": brackets are nested deeper "
                            "than " +
                            Twine(kMaxNesting) + " levels");
  return input;
}
