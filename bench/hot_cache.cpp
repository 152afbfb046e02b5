//===- hot_cache.cpp - The hot cache against the best possible ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Hit rates of the cache of hot rows on token ids, a JSON line for each trace
// and size; no times:
//   build/bench/bin/hot_cache SHARD VOCABULARY
// SHARD is what `stem-run train --shard` writes. Traces are its tokens one
// after the other (decode), the different ones of each 2,048 (a step of prefill
// or of training), and the same of ids by Zipf's law. `best` knows the future
// (Belady, which may leave an id out); `lru` drops what was not used for
// longest. All begin empty.

#include "HotCache.h"
#include "ZipfBatches.h"
#include "stem/Data/TokenShard.h"
#include "stem/Support/Error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <list>
#include <queue>
#include <unordered_map>
#include <vector>

using namespace stem;

namespace {

using Trace = std::vector<int32_t>;

constexpr int64_t kStepTokens = 2048;

Trace differentOfSteps(const Trace &ids) {
  Trace result;
  std::vector<size_t> last(
      ids.empty() ? 0 : *std::max_element(ids.begin(), ids.end()) + 1,
      std::numeric_limits<size_t>::max());
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t step = i / kStepTokens;
    if (last[ids[i]] != step)
      result.push_back(ids[i]);
    last[ids[i]] = step;
  }
  return result;
}

double share(int64_t hits, const Trace &trace) {
  return double(hits) / double(trace.size());
}

double hotCache(const Trace &trace, int64_t capacity, int64_t ids) {
  HotCache cache(capacity, ids);
  int64_t hits = 0;
  for (int32_t id : trace)
    hits += !cache.use(id).isNew;
  return share(hits, trace);
}

double leastRecentlyUsed(const Trace &trace, size_t capacity) {
  std::list<int32_t> order;
  std::unordered_map<int32_t, std::list<int32_t>::iterator> places;
  int64_t hits = 0;
  for (int32_t id : trace) {
    const auto found = places.find(id);
    if (found != places.end()) {
      ++hits;
      order.erase(found->second);
    } else if (order.size() == capacity) {
      places.erase(order.front());
      order.pop_front();
    }
    order.push_back(id);
    places[id] = std::prev(order.end());
  }
  return share(hits, trace);
}

/// What is used again last, or never, leaves or does not come in.
double best(const Trace &trace, size_t capacity) {
  constexpr size_t never = std::numeric_limits<size_t>::max();
  std::vector<size_t> next(trace.size());
  std::unordered_map<int32_t, size_t> seen;
  for (size_t i = trace.size(); i-- > 0;) {
    const auto found = seen.find(trace[i]);
    next[i] = found == seen.end() ? never : found->second;
    seen[trace[i]] = i;
  }
  std::unordered_map<int32_t, size_t> held; // to the next use
  std::priority_queue<std::pair<size_t, int32_t>> latest;
  int64_t hits = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    hits += held.erase(trace[i]);
    if (next[i] == never)
      continue;
    held[trace[i]] = next[i];
    latest.push({next[i], trace[i]});
    while (held.size() > capacity) {
      const auto [use, id] = latest.top();
      latest.pop();
      const auto found = held.find(id);
      if (found != held.end() && found->second == use)
        held.erase(found);
    }
  }
  return share(hits, trace);
}

void print(const char *name, const Trace &trace, int64_t vocabulary) {
  for (const double part : {0.01, 0.05, 0.1}) {
    const int64_t capacity = int64_t(part * double(vocabulary));
    const double bound = best(trace, capacity);
    const double ours = hotCache(trace, capacity, vocabulary);
    fmt::print("{{\"bench\": \"hot_cache\", \"trace\": \"{}\", \"uses\": {}, "
               "\"ids\": {}, \"share\": {}, \"hit_rate\": {:.4f}, \"lru\": "
               "{:.4f}, \"best\": {:.4f}, \"of_best\": {:.3f}}}\n",
               name, trace.size(), capacity, part, ours,
               leastRecentlyUsed(trace, capacity), bound, ours / bound);
  }
}

void run(const char *path, int64_t vocabulary) {
  const TokenShard shard = TokenShard::open(path);
  Trace text(shard.tokenCount());
  shard.read(0, text);
  for (int32_t id : text)
    if (id >= vocabulary)
      fail("{}: id {} is beyond a vocabulary of {}", path, id, vocabulary);
  print("text, tokens", text, vocabulary);
  print("text, steps", differentOfSteps(text), vocabulary);
  Trace zipf;
  ZipfBatches batches(vocabulary, /*seed=*/0);
  while (zipf.size() < text.size()) {
    const auto ids = batches.next(1, kStepTokens).ids;
    zipf.insert(zipf.end(), ids.begin(), ids.end());
  }
  print("Zipf, tokens", zipf, vocabulary);
  print("Zipf, steps", differentOfSteps(zipf), vocabulary);
}

} // namespace

int main(int count, char **values) {
  const int64_t vocabulary = count == 3 ? std::atoll(values[2]) : 0;
  if (vocabulary < 100 || vocabulary > std::numeric_limits<int32_t>::max()) {
    fmt::print(stderr, "usage: hot_cache SHARD VOCABULARY\n");
    return 2;
  }
  try {
    run(values[1], vocabulary);
  } catch (const Error &error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
