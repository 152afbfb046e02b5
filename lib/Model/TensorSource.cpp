//===- TensorSource.cpp - Named tensors of a model ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/TensorSource.h"

#include "FileIO.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cstring>

using namespace stem;

uint64_t TensorInfo::rowElements() const {
  uint64_t product = 1;
  for (size_t i = shape.size() < 2 ? 0 : 1; i < shape.size(); ++i)
    product *= shape[i];
  return product;
}

std::string stem::formatShape(std::span<const uint64_t> shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    result += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return result + "]";
}

TensorSource::~TensorSource() = default;

std::vector<std::string> TensorSource::names() const {
  std::vector<std::string> result;
  result.reserve(infos.size());
  for (const TensorInfo &info : infos)
    result.push_back(info.name);
  return result;
}

const TensorInfo *TensorSource::find(std::string_view name) const {
  const auto found = std::lower_bound(
      infos.begin(), infos.end(), name,
      [](const TensorInfo &info, std::string_view n) { return info.name < n; });
  return found != infos.end() && found->name == name ? &*found : nullptr;
}

std::string TensorSource::fileWithout(std::string_view tensor) const {
  const auto entry = filesWithout.find(tensor);
  return entry == filesWithout.end() ? "" : entry->second;
}

const TensorInfo &TensorSource::get(std::string_view name) const {
  if (const TensorInfo *info = find(name))
    return *info;
  fail("{}: there is no tensor \"{}\"", origin, printable(name));
}

void TensorSource::checkRange(const TensorInfo &info, uint64_t first,
                              uint64_t count) const {
  if (first > info.rows() || count > info.rows() - first)
    fail("{}: tensor \"{}\": rows [{}, {} + {}) were asked for, it has {}",
         origin, printable(info.name), first, first, count, info.rows());
}

/// Rows that lie one after the other in the file are one run.
void TensorSource::visitRuns(size_t tensor, uint64_t first, uint64_t count,
                             const RunVisitor &visit) const {
  const auto data = stored(tensor);
  const uint64_t rowBytes = data.size() / infos[tensor].rows();
  for (uint64_t row = first; row < first + count;) {
    const uint64_t start = storedRow(tensor, row);
    uint64_t run = 1;
    if (!isReordered(tensor))
      run = first + count - row;
    else
      while (row + run < first + count &&
             storedRow(tensor, row + run) == start + run)
        ++run;
    visit(data.subspan(start * rowBytes, run * rowBytes), run);
    row += run;
  }
}

/// What readers see: rows of an overlay come one by one.
void TensorSource::forEachRun(std::string_view name, uint64_t first,
                              uint64_t count, const RunVisitor &visit) const {
  const TensorInfo &info = get(name);
  checkRange(info, first, count);
  const auto tensor = static_cast<size_t>(&info - infos.data());
  const auto visitStored = [&](uint64_t begin, uint64_t end) {
    if (begin < end)
      visitRuns(tensor, begin, end - begin, visit);
  };
  const uint64_t end = first + count;
  const auto overlay = overlays.find(tensor);
  if (overlay == overlays.end())
    return visitStored(first, end);
  const auto &[places, rows] = overlay->second;
  const uint64_t rowBytes = info.bytes / info.rows();
  for (auto place = places.lower_bound(first);
       place != places.end() && place->first < end; ++place) {
    visitStored(first, place->first);
    visit(std::span(rows).subspan(place->second, rowBytes), 1);
    first = place->first + 1;
  }
  visitStored(first, end);
}

void TensorSource::overlayRows(std::string_view name,
                               std::span<const int32_t> rows,
                               std::span<const std::byte> data) {
  const TensorInfo &info = get(name);
  const uint64_t rowBytes = info.bytes / std::max<uint64_t>(info.rows(), 1);
  if (data.size() / std::max<uint64_t>(rowBytes, 1) != rows.size() ||
      data.size() != rows.size() * rowBytes)
    fail("{}: tensor \"{}\": {} bytes came for {} rows of {} bytes", origin,
         printable(name), data.size(), rows.size(), rowBytes);
  for (const int32_t row : rows)
    if (row < 0 || static_cast<uint64_t>(row) >= info.rows())
      fail("{}: tensor \"{}\": row {} is to be replaced, it has {} rows",
           origin, printable(name), row, info.rows());
  Overlay &overlay = overlays[static_cast<size_t>(&info - infos.data())];
  for (const int32_t row : rows) {
    const auto [place, isNew] = overlay.places.try_emplace(
        static_cast<uint64_t>(row), overlay.rows.size());
    if (isNew)
      overlay.rows.resize(overlay.rows.size() + rowBytes);
    std::ranges::copy(data.first(rowBytes),
                      overlay.rows.begin() +
                          static_cast<ptrdiff_t>(place->second));
    data = data.subspan(rowBytes);
  }
}

void TensorSource::readF32(std::string_view name, uint64_t first,
                           uint64_t count, float *out) const {
  const TensorInfo &info = get(name);
  const uint64_t rowElements = info.rowElements();
  forEachRun(name, first, count,
             [&](std::span<const std::byte> data, uint64_t rows) {
               decodeToF32(info.dtype, data.data(), rows * rowElements, out);
               out += rows * rowElements;
             });
}

void TensorSource::readBF16(std::string_view name, uint64_t first,
                            uint64_t count, uint16_t *out) const {
  const TensorInfo &info = get(name);
  constexpr uint64_t piece = 4096; // a multiple of every block size
  float decoded[piece];
  forEachRun(name, first, count,
             [&](std::span<const std::byte> data, uint64_t rows) {
               if (info.dtype == DType::BF16) {
                 if (!data.empty())
                   std::memcpy(out, data.data(), data.size());
                 out += data.size() / 2;
                 return;
               }
               uint64_t left = rows * info.rowElements();
               while (left) {
                 const uint64_t n = std::min(left, piece);
                 decodeToF32(info.dtype, data.data(), n, decoded);
                 for (uint64_t i = 0; i < n; ++i)
                   *out++ = f32ToBF16(decoded[i]);
                 left -= n;
                 data = data.subspan(n / dtypeBlockElements(info.dtype) *
                                     dtypeBlockBytes(info.dtype));
               }
             });
}

void TensorSource::readRaw(std::string_view name, uint64_t first,
                           uint64_t count, std::byte *out) const {
  forEachRun(name, first, count,
             [&](std::span<const std::byte> data, uint64_t) {
               if (!data.empty())
                 std::memcpy(out, data.data(), data.size());
               out += data.size();
             });
}

std::span<const std::byte> TensorSource::bytes(std::string_view name) const {
  const size_t tensor = static_cast<size_t>(&get(name) - infos.data());
  const bool isElsewhere = isReordered(tensor) || overlays.contains(tensor);
  return isElsewhere ? std::span<const std::byte>() : stored(tensor);
}

std::optional<uint64_t>
TensorSource::offsetInFile(std::string_view name) const {
  if (bytes(name).empty())
    return std::nullopt;
  return storedOffset(static_cast<size_t>(&get(name) - infos.data()));
}

void TensorSource::release(std::string_view name, uint64_t first,
                           uint64_t count) const {
  const TensorInfo &info = get(name);
  checkRange(info, first, count);
  const size_t tensor = static_cast<size_t>(&info - infos.data());
  if (count == 0 || stored(tensor).empty())
    return;
  visitRuns(tensor, first, count,
            [&](std::span<const std::byte> data, uint64_t) {
              releaseBytes(tensor, data);
            });
}

void TensorSource::release(std::string_view name) const {
  const size_t tensor = static_cast<size_t>(&get(name) - infos.data());
  releaseBytes(tensor, stored(tensor));
}
