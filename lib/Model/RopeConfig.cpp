//===- RopeConfig.cpp - Rotary position embedding and its scalings --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConfigReader.h"
#include "FileIO.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <numbers>

using namespace stem;
using nlohmann::ordered_json;

namespace {

/// YaRN: the pair index at which a context of `positions` holds `rotations`
/// turns.
double yarnPair(double rotations, double headDim, double theta,
                double positions) {
  return headDim * std::log(positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

double yarnScale(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

/// Slow pairs are interpolated, fast ones kept, those between blended by the
/// number of turns they make in the original context.
double llama3Frequency(const RopeConfig &rope, double frequency) {
  const double turns = static_cast<double>(rope.originalMaxPositions) *
                       frequency / (2 * std::numbers::pi);
  if (turns < rope.lowFrequencyFactor)
    return frequency / rope.factor;
  if (turns > rope.highFrequencyFactor)
    return frequency;
  const double keep = (turns - rope.lowFrequencyFactor) /
                      (rope.highFrequencyFactor - rope.lowFrequencyFactor);
  return (1 - keep) * frequency / rope.factor + keep * frequency;
}

/// The object that describes the scaling: keys other than these are refused.
constexpr std::string_view ropeKeys[] = {
    "type",
    "rope_type",
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "original_max_position_embeddings",
    "mscale",
    "mscale_all_dim",
    "attention_factor",
    "truncate",
    "partial_rotary_factor",
};

const ordered_json *findRopeObject(ConfigReader &reader, std::string &key) {
  const ordered_json *modern = reader.find("rope_parameters");
  const ordered_json *old = reader.find("rope_scaling");
  if (modern && old && *modern != *old)
    fail("{}: rope_parameters and rope_scaling differ; keep one",
         reader.file());
  key = modern ? "rope_parameters" : "rope_scaling";
  const ordered_json *object = modern ? modern : old;
  if (object && !object->is_object())
    reader.wrongValue(key, *object, "an object");
  if (!object)
    return nullptr;
  for (const auto &[name, value] : object->items()) {
    if (value.is_object())
      fail("{}: {}.{}: rotary parameters that differ by kind of layer are not "
           "supported",
           reader.file(), key, printable(name));
    const bool isKnown = std::find(std::begin(ropeKeys), std::end(ropeKeys),
                                   name) != std::end(ropeKeys);
    if (!isKnown && !value.is_null())
      fail("{}: {}.{}: {} is not supported", reader.file(), key,
           printable(name), describeJson(value));
  }
  return object;
}

RopeKind readKind(ConfigReader &scaling) {
  const auto modern = scaling.text("rope_type");
  const auto old = scaling.text("type");
  if (modern && old && *modern != *old)
    fail("{}: rope_type is \"{}\" but type is \"{}\"", scaling.file(),
         printable(*modern), printable(*old));
  if (!modern && !old)
    for (const std::string key :
         {"factor", "low_freq_factor", "high_freq_factor", "beta_fast",
          "beta_slow", "attention_factor", "mscale", "mscale_all_dim"})
      if (scaling.find(key))
        fail("{}: \"{}\" is there but \"rope_type\" is missing; default, "
             "linear, llama3 and yarn are supported",
             scaling.file(), key);
  const std::string kind = modern ? *modern : old ? *old : "default";
  if (kind == "default")
    return RopeKind::Default;
  if (kind == "linear")
    return RopeKind::Linear;
  if (kind == "llama3")
    return RopeKind::Llama3;
  if (kind == "yarn")
    return RopeKind::Yarn;
  fail(
      "{}: rope_type \"{}\" is not supported; default, linear, llama3 and yarn "
      "are",
      scaling.file(), printable(kind));
}

double positive(ConfigReader &scaling, const std::string &key,
                std::optional<double> absent = std::nullopt) {
  const auto value = scaling.number(key);
  if (!value && !absent)
    fail("{}: \"{}\" is missing", scaling.file(), key);
  const double result = value.value_or(absent.value_or(0));
  if (!(result > 0))
    fail("{}: \"{}\" is {}; a positive number was expected", scaling.file(),
         key, result);
  return result;
}

void readYarn(ConfigReader &scaling, RopeConfig &rope, uint64_t maxPositions) {
  rope.originalMaxPositions =
      scaling.count("original_max_position_embeddings", UINT32_MAX)
          .value_or(maxPositions);
  if (rope.originalMaxPositions == 0)
    fail("{}: yarn needs original_max_position_embeddings", scaling.file());
  const double stretch = static_cast<double>(maxPositions) /
                         static_cast<double>(rope.originalMaxPositions);
  rope.factor = positive(scaling, "factor", stretch);
  rope.betaFast = positive(scaling, "beta_fast", 32);
  rope.betaSlow = positive(scaling, "beta_slow", 1);
  rope.truncate = scaling.boolean("truncate").value_or(true);
  const double mscale = scaling.number("mscale").value_or(0);
  const double mscaleAll = scaling.number("mscale_all_dim").value_or(0);
  const double implied =
      mscale != 0 && mscaleAll != 0
          ? yarnScale(rope.factor, mscale) / yarnScale(rope.factor, mscaleAll)
          : yarnScale(rope.factor, 1);
  rope.attentionScaling = positive(scaling, "attention_factor", implied);
}

} // namespace

std::vector<float> RopeConfig::inverseFrequencies(uint64_t headDim) const {
  const double dim = static_cast<double>(headDim);
  double low = 0, high = 0;
  if (kind == RopeKind::Yarn) {
    const double positions = static_cast<double>(originalMaxPositions);
    low = yarnPair(betaFast, dim, theta, positions);
    high = yarnPair(betaSlow, dim, theta, positions);
    if (truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high)
      high += 0.001; // as the reference does against a division by zero
  }
  std::vector<float> result;
  result.reserve(headDim / 2);
  for (uint64_t i = 0; i < headDim / 2; ++i) {
    const double pair = static_cast<double>(i);
    double frequency = std::pow(theta, -2 * pair / dim);
    if (kind == RopeKind::Linear)
      frequency /= factor;
    else if (kind == RopeKind::Llama3)
      frequency = llama3Frequency(*this, frequency);
    else if (kind == RopeKind::Yarn) {
      const double interpolate =
          std::clamp((pair - low) / (high - low), 0.0, 1.0);
      frequency =
          frequency / factor * interpolate + frequency * (1 - interpolate);
    }
    result.push_back(static_cast<float>(frequency));
  }
  return result;
}

RopeConfig stem::readRope(ConfigReader &reader, const ModelConfig &config) {
  RopeConfig rope;
  std::string key;
  static const ordered_json noScaling = ordered_json::object();
  const ordered_json *object = findRopeObject(reader, key);
  ConfigReader scaling(object ? *object : noScaling,
                       reader.file() + ": " + key);
  const double familyTheta =
      config.family == ModelFamily::SmolLM3 ? 2000000.0 : 10000.0;
  rope.theta = positive(reader, "rope_theta", familyTheta);
  const double inObject = positive(scaling, "rope_theta", rope.theta);
  if (reader.find("rope_theta") && inObject != rope.theta)
    fail("{}: rope_theta is {} but {}.rope_theta is {}; keep one",
         reader.file(), rope.theta, key, inObject);
  rope.theta = inObject;
  if (rope.theta <= 1)
    fail("{}: rope_theta is {}; more than 1 was expected", reader.file(),
         rope.theta);
  if (scaling.number("partial_rotary_factor").value_or(1) != 1)
    fail("{}: partial_rotary_factor other than 1 is not supported",
         scaling.file());
  rope.kind = readKind(scaling);
  if (rope.kind == RopeKind::Linear)
    rope.factor = positive(scaling, "factor");
  if (rope.kind == RopeKind::Llama3) {
    rope.factor = positive(scaling, "factor");
    rope.lowFrequencyFactor = positive(scaling, "low_freq_factor");
    rope.highFrequencyFactor = positive(scaling, "high_freq_factor");
    rope.originalMaxPositions =
        scaling.requiredCount("original_max_position_embeddings", UINT32_MAX);
    if (rope.highFrequencyFactor <= rope.lowFrequencyFactor)
      fail("{}: high_freq_factor {} must exceed low_freq_factor {}",
           scaling.file(), rope.highFrequencyFactor, rope.lowFrequencyFactor);
  }
  if (rope.kind == RopeKind::Yarn)
    readYarn(scaling, rope, config.maxPositions);
  return rope;
}
