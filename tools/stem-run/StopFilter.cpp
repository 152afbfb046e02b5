//===- StopFilter.cpp - Ends a stream of text at a stop string ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StopFilter.h"

#include <algorithm>
#include <utility>

using namespace stem;

std::string StopFilter::push(const std::string &text) {
  if (hasFound)
    return "";
  held += text;
  size_t end = std::string::npos;
  for (const std::string &stop : stops)
    end = std::min(end, held.find(stop));
  if (end != std::string::npos) {
    hasFound = true;
    held.resize(end);
    return std::exchange(held, "");
  }
  size_t keep = 0;
  for (const std::string &stop : stops)
    for (size_t n = std::min(stop.size() - 1, held.size()); n > keep; --n)
      if (held.compare(held.size() - n, n, stop, 0, n) == 0)
        keep = n;
  std::string certain = held.substr(0, held.size() - keep);
  held.erase(0, certain.size());
  return certain;
}

std::string StopFilter::flush() { return std::exchange(held, ""); }
