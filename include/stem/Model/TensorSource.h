//===- TensorSource.h - Named tensors of a model ----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint's tensors under their Hugging Face names, whatever the files
// are.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_TENSORSOURCE_H
#define STEM_MODEL_TENSORSOURCE_H

#include "stem/Model/DType.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

struct TensorInfo {
  std::string name;
  DType dtype;
  std::vector<uint64_t> shape;
  /// As stored, so that a block type counts its blocks.
  uint64_t bytes;
  /// Where it lies, for messages and for linking.
  std::filesystem::path file;

  /// A tensor is read by rows: a matrix [R, C] has R rows of C elements, a
  /// tensor of one dimension or none is one row.
  uint64_t rows() const { return shape.size() < 2 ? 1 : shape[0]; }
  uint64_t rowElements() const;
  uint64_t elements() const { return rows() * rowElements(); }
};

/// "[96, 32]"
std::string formatShape(std::span<const uint64_t> shape);

class TensorSource {
public:
  virtual ~TensorSource();

  /// Sorted by name.
  const std::vector<TensorInfo> &tensors() const { return infos; }
  std::vector<std::string> names() const;
  const TensorInfo *find(std::string_view name) const;
  /// Like find; an Error that names the tensor when there is none.
  const TensorInfo &get(std::string_view name) const;

  /// Folder or file, for messages.
  const std::string &description() const { return origin; }

  /// Tensors that lie in the files although the index leaves them out, and what
  /// else a user should hear about.
  const std::vector<TensorInfo> &unlisted() const { return unlistedInfos; }
  const std::vector<std::string> &warnings() const { return warningList; }
  /// The file that the index names for a tensor that is not in it; empty for
  /// others.
  std::string fileWithout(std::string_view tensor) const;

  /// Rows [first, first + count) decoded to f32; `out` has count × rowElements
  /// places. Memory use does not depend on the tensor's size.
  void readF32(std::string_view name, uint64_t first, uint64_t count,
               float *out) const;
  /// The same, rounded to bf16 (exact where the tensor is bf16).
  void readBF16(std::string_view name, uint64_t first, uint64_t count,
                uint16_t *out) const;
  /// The same, as stored (rows in this view's order).
  void readRaw(std::string_view name, uint64_t first, uint64_t count,
               std::byte *out) const;

  /// The tensor's bytes in memory when they lie there in this view's order and
  /// without an overlay, else empty.
  std::span<const std::byte> bytes(std::string_view name) const;

  /// Where the tensor's first row begins in its file (TensorInfo::file), when
  /// its rows lie there one after the other in this view's order and without an
  /// overlay.
  std::optional<uint64_t> offsetInFile(std::string_view name) const;

  /// Every reader sees `data` in the place of these rows from now on, the last
  /// of several; what is stored stays. `data` holds the rows one after the
  /// other, in the tensor's type.
  void overlayRows(std::string_view name, std::span<const int32_t> rows,
                   std::span<const std::byte> data);
  bool hasOverlays() const { return !overlays.empty(); }

  /// Lets the system drop the pages behind these rows.
  void release(std::string_view name, uint64_t first, uint64_t count) const;
  void release(std::string_view name) const;

protected:
  /// Told the stored bytes of one row or of several.
  using RunVisitor =
      std::function<void(std::span<const std::byte> data, uint64_t rows)>;

  /// Calls `visit` for rows [first, first + count), in their order. A source
  /// whose tensors are computed overrides it; stored() is empty then.
  virtual void visitRuns(size_t tensor, uint64_t first, uint64_t count,
                         const RunVisitor &visit) const;

  /// The stored bytes of one tensor, as in the file.
  virtual std::span<const std::byte> stored(size_t tensor) const = 0;
  /// Where stored() begins in the file, if it comes from one.
  virtual std::optional<uint64_t> storedOffset(size_t /*tensor*/) const {
    return std::nullopt;
  }
  /// The stored row that holds this view's row.
  virtual uint64_t storedRow(size_t /*tensor*/, uint64_t row) const {
    return row;
  }
  virtual bool isReordered(size_t /*tensor*/) const { return false; }
  virtual void releaseBytes(size_t tensor,
                            std::span<const std::byte> data) const = 0;

  std::vector<TensorInfo> infos;
  std::vector<TensorInfo> unlistedInfos;
  std::vector<std::string> warningList;
  std::map<std::string, std::string, std::less<>> filesWithout;
  std::string origin;

private:
  struct Overlay {
    std::map<uint64_t, size_t> places; ///< of a row in `rows`, in bytes
    std::vector<std::byte> rows;
  };

  void checkRange(const TensorInfo &info, uint64_t first, uint64_t count) const;
  void forEachRun(std::string_view name, uint64_t first, uint64_t count,
                  const RunVisitor &visit) const;

  std::map<size_t, Overlay> overlays; ///< by tensor
};

/// How a Hugging Face folder is opened.
struct OpenOptions {
  /// Take the tensors that the *.safetensors files hold, whatever the index
  /// says.
  bool ignoreIndex = false;
};

/// A folder's safetensors: model.safetensors, or the files that
/// model.safetensors.index.json names. Links are followed inside the folder and
/// into the blobs of the hub cache that the folder is a snapshot of, and
/// nowhere else.
std::unique_ptr<TensorSource>
openSafetensorsFolder(const std::filesystem::path &folder,
                      const OpenOptions &options = {});

/// The parsed weight_map of an index: tensor name and file name, sorted by
/// tensor. `name` stands for the file in messages.
struct IndexEntry {
  std::string tensor;
  std::string file;
};
std::vector<IndexEntry> parseSafetensorsIndex(std::string_view text,
                                              const std::string &name);

/// Throws unless `path` is a regular file whose links, if any, end inside its
/// folder or in the blobs of the hub cache around it.
void checkModelFile(const std::filesystem::path &path);

/// Reads a whole small file (JSON, text) after checkModelFile; refuses more
/// than `limit` bytes.
std::string readModelText(const std::filesystem::path &path,
                          uint64_t limit = 256u << 20);

} // namespace stem

#endif // STEM_MODEL_TENSORSOURCE_H
