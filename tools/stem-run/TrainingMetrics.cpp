//===- TrainingMetrics.cpp - What a run measured, line by line ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainingMetrics.h"

#include "stem/Support/Error.h"
#include "stem/Support/Files.h"
#include "stem/Support/ShallowJson.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

using namespace stem;
namespace fs = std::filesystem;

static void forEachLine(const fs::path &path,
                        const std::function<void(const Json &)> &onLine) {
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    // The last one of a run that was killed may be cut.
    const auto json = parseShallowObject(line);
    if (json && json->contains("step") && (*json)["step"].is_number_integer())
      onLine(*json);
  }
}

TrainingMetrics::TrainingMetrics(fs::path location, int64_t step)
    : path(std::move(location)) {
  std::string kept;
  if (step > 0)
    forEachLine(path, [&](const Json &line) {
      if (line["step"].get<int64_t>() <= step)
        kept += jsonText(line) + "\n";
    });
  replaceFile(path, kept);
  file.reset(std::fopen(path.c_str(), "ae"));
  if (!file)
    fail("{}: cannot be opened: {}", path.string(), std::strerror(errno));
}

void TrainingMetrics::add(const Json &line) {
  const std::string text = jsonText(line) + "\n";
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0)
    fail("{}: cannot write: {}", path.string(), std::strerror(errno));
}

void TrainingMetrics::read(
    const std::function<void(const Json &)> &onLine) const {
  forEachLine(path, onLine);
}
