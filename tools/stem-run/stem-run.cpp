//===- stem-run.cpp - The command line for models -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Exit status: 0, 1 for an error that a message explains, 2 for a command line
// that cannot be read, 128 + n for signal n.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

using namespace stem;

static constexpr const char *footer = R"(
Start with a dense checkpoint: a Hugging Face folder or a GGUF file.

  stem-run inspect  model.gguf
  stem-run import   model.gguf dense
  stem-run convert  dense stem --calibrate=book.txt
  stem-run eval     stem --text=book.txt
  stem-run train    stem --data=book.txt --out=better
  stem-run generate stem --prompt="Once upon a time" -n 64
  stem-run bench    dense stem

stem-run COMMAND --help says what a command takes and what comes next.)";

static int usageError(const std::string &message, const CLI::App *command) {
  const std::string name = command ? " " + command->get_name() : "";
  printStderr("stem-run{}: {}\nTry: stem-run{} --help\n", name,
              visible(message), name);
  return 2;
}

static CLI::App *findCommand(CLI::App &app, const std::string &word) {
  for (CLI::App *command : app.get_subcommands({}))
    if (command->get_name() == word)
      return command;
  return nullptr;
}

static int runCommand(CLI::App &app, std::vector<std::string> arguments) {
  const std::string word = arguments.empty() ? "" : arguments.front();
  CLI::App *command = findCommand(app, word);
  if (!command && !word.empty() && word.front() != '-')
    return usageError(fmt::format("\"{}\" is no command", printable(word)),
                      command);
  try {
    if (command)
      arguments = separateEmptyValues(*command, arguments);
    std::reverse(arguments.begin(), arguments.end()); // as parse takes them
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0)
      return app.exit(error);
    return usageError(error.what(), command);
  } catch (const UsageError &error) {
    return usageError(error.what(), command);
  }
  return 0;
}

static int reportError(std::string_view message) {
  printStderr("error: {}\n", visible(message));
  return 1;
}

/// Runs the command; says what went wrong on standard error.
static int runReported(CLI::App &app, std::vector<std::string> arguments) {
  try {
    const int status = runCommand(app, std::move(arguments));
    finishStdout();
    return status;
  } catch (const Interrupted &interruption) {
    printStderr("{}\n", visible(interruption.what()));
    return 128 + interruption.signal();
  } catch (const std::bad_alloc &) {
    return reportError("out of memory");
  } catch (const std::filesystem::filesystem_error &error) {
    // Its own text begins with the name of a function.
    return reportError(fmt::format("{}: {}", printable(error.path1().string()),
                                   error.code().message()));
  } catch (const std::system_error &error) {
    // What fmt throws when a write to standard output fails.
    return reportError(std::ferror(stdout)
                           ? fmt::format("cannot write to standard output: {}",
                                         error.code().message())
                           : error.what());
  } catch (const std::exception &error) {
    return reportError(error.what());
  }
}

int main(int argc, char **argv) {
  openStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN); // a write says so
  CLI::App app("Runs STEM models: feed-forward layers that look a row up by "
               "token id.",
               "stem-run");
  app.require_subcommand(1);
  app.footer(footer);
  app.get_formatter()->column_width(28);
  addImportCommand(app);
  addConvertCommand(app);
  addEvalCommand(app);
  addGenerateCommand(app);
  addTrainCommand(app);
  addApplyCommand(app);
  addInspectCommand(app);
  addBenchCommand(app);
  try {
    cleanUpOnSignals();
  } catch (const Error &error) {
    return reportError(error.what());
  }
  return runReported(app, {argv + 1, argv + std::max(argc, 1)});
}
