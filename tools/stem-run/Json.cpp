//===- Json.cpp - The results of the commands as JSON ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Json.h"

#include "stem/Support/Error.h"

#include <cmath>
#include <cstdio>

using namespace stem;

Json stem::resultObject(const std::string &command) {
  return {{"schema", fmt::format("stem.{}/1", command)}};
}

std::string stem::jsonText(const Json &json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

/// Objects and lists of them are indented; a list of numbers is one line.
static void writeJson(const Json &json, size_t indent, std::string &out) {
  const bool isOpen =
      !json.empty() &&
      (json.is_object() || (json.is_array() && json.front().is_structured() &&
                            !json.front().empty()));
  if (!isOpen) {
    out += jsonText(json);
    return;
  }
  out += json.is_object() ? "{" : "[";
  const char *separator = "\n";
  for (const auto &item : json.items()) {
    out += separator + std::string(indent + 2, ' ');
    if (json.is_object())
      out += jsonText(item.key()) + ": ";
    writeJson(item.value(), indent + 2, out);
    separator = ",\n";
  }
  out += "\n" + std::string(indent, ' ') + (json.is_object() ? "}" : "]");
}

void stem::printJson(const Json &json) {
  std::string text;
  writeJson(json, 0, text);
  text += "\n";
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0)
    fail("cannot write to standard output");
}

static Json planJson(const MemoryPlan &plan) {
  return {{"weights", plan.weights},
          {"tables", plan.tables},
          {"tables_in_files", plan.tablesInFiles},
          {"staging", plan.staging},
          {"staged_rows", plan.stagedRows},
          {"kept", plan.kept},
          {"counts", plan.counts},
          {"arena", plan.arena},
          {"cache", plan.cache},
          {"logits", plan.logits},
          {"total", plan.total()}};
}

static Json tablesJson(const std::vector<PlacedTable> &tables) {
  Json json = Json::array();
  for (const PlacedTable &table : tables)
    json.push_back({{"layer", table.layer},
                    {"place", table.isInFile ? "file" : "resident"},
                    {"bytes", table.bytes}});
  return json;
}

static Json lookupsJson(const stem_table_statistics &lookups) {
  return {{"ids", lookups.lookups},
          {"different_ids", lookups.unique_rows},
          {"bytes_in_memory", lookups.bytes_resident},
          {"bytes_in_files", lookups.bytes_in_files},
          {"rows_read", lookups.rows_read},
          {"rows_cached", lookups.rows_cached},
          {"evictions", lookups.evictions},
          {"bytes_read", lookups.bytes_moved},
          {"stalls", lookups.stalls},
          {"stall_seconds", 1e-9 * double(lookups.stall_nanoseconds)}};
}

Json stem::engineJson(const Engine &engine) {
  const EngineReport &report = engine.report();
  return {{"dtype", dtypeConfigName(report.dtype)},
          {"isa", report.isa},
          {"threads", report.threads},
          {"compile_seconds", report.compileSeconds},
          {"compile_cached", report.cacheHit},
          {"load_seconds", report.loadSeconds},
          {"prefetch_distance", report.prefetchDistance
                                    ? Json(*report.prefetchDistance)
                                    : Json(nullptr)},
          {"steps", engine.steps()},
          {"staging_cuts", engine.stagingCuts()},
          {"plan", planJson(report.plan)},
          {"tables", tablesJson(report.tables)},
          {"lookups", lookupsJson(engine.tableStatistics())}};
}

Json stem::finiteOrNull(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
