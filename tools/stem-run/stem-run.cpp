//===- stem-run.cpp - The command line for models -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Exit status: 0, 1 for an error that a message explains, 2 for a command line
// that cannot be read.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"

#include <cstdio>
#include <exception>
#include <new>

using namespace stem;

static constexpr const char *footer = R"(
Start with a dense checkpoint: a Hugging Face folder or a GGUF file.

  stem-run inspect  model.gguf
  stem-run import   model.gguf dense
  stem-run convert  dense stem --layers=1/3 --init=row-mean
  stem-run eval     stem --text=book.txt
  stem-run generate stem --prompt="Once upon a time" -n 64
  stem-run bench    dense stem

stem-run COMMAND --help says what a command takes and what comes next.)";

static int usageError(const std::string &message, const CLI::App &app) {
  std::string command;
  for (const CLI::App *used : app.get_subcommands())
    command = " " + used->get_name();
  fmt::print(stderr, "stem-run{}: {}\nTry: stem-run{} --help\n", command,
             message, command);
  return 2;
}

/// A first word that is no command; empty for none.
static std::string unknownCommand(const CLI::App &app, int argc, char **argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty() || word.front() == '-')
    return "";
  for (const CLI::App *command : app.get_subcommands({}))
    if (command->get_name() == word)
      return "";
  return word;
}

static int runCommand(CLI::App &app, int argc, char **argv) {
  if (const std::string word = unknownCommand(app, argc, argv); !word.empty())
    return usageError(fmt::format("\"{}\" is no command", word), app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0)
      return app.exit(error);
    return usageError(error.what(), app);
  } catch (const UsageError &error) {
    return usageError(error.what(), app);
  }
  return 0;
}

int main(int argc, char **argv) {
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
  addInspectCommand(app);
  addBenchCommand(app);
  try {
    return runCommand(app, argc, argv);
  } catch (const std::bad_alloc &) {
    fmt::print(stderr, "error: out of memory\n");
  } catch (const std::exception &error) {
    fmt::print(stderr, "error: {}\n", error.what());
  }
  return 1;
}
