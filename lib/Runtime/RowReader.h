//===- RowReader.h - Reads that run beside the computation ------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_ROWREADER_H
#define STEM_LIB_RUNTIME_ROWREADER_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace stem {

struct RowRead {
  int file; ///< descriptor
  int64_t offset, bytes;
  void *to;
};

/// Reads from files on threads of its own. They sleep in the kernel for most
/// of the time, so there may be more of them than cores.
class RowReader {
public:
  struct Failure {
    size_t read; ///< its place in the batch
    int error;   ///< errno; 0: the file ends within the read
  };

  /// The reads of one ticket.
  class Batch {
  public:
    explicit Batch(std::vector<RowRead> reads);

  private:
    friend class RowReader;
    bool takeOne();
    void fail(Failure seen);

    const std::vector<RowRead> reads;
    std::atomic<size_t> next = 0; ///< to be taken
    std::mutex mutex;
    std::condition_variable finished;
    size_t done = 0;
    std::optional<Failure> failure; ///< the first in the order of the reads
  };

  /// Throws an Error where the system gives no more threads. Without any, the
  /// callers of wait read.
  explicit RowReader(int threads);
  /// Reads that have been started end first.
  ~RowReader();
  RowReader(const RowReader &) = delete;
  RowReader &operator=(const RowReader &) = delete;

  size_t waiting(); ///< batches that no thread has found empty

  /// What the reads write to is the batch's until it was waited for.
  std::shared_ptr<Batch> start(std::vector<RowRead> reads);

  struct Outcome {
    bool stalled; ///< something was left to read
    std::optional<Failure> failure;
  };
  /// The caller reads what no thread has taken yet. May be called again.
  static Outcome wait(Batch &batch);

private:
  void run();
  void end();

  std::mutex mutex;
  std::condition_variable wanted;
  std::deque<std::shared_ptr<Batch>> queue;
  bool isEnding = false;
  std::vector<std::thread> threads;
};

} // namespace stem

#endif // STEM_LIB_RUNTIME_ROWREADER_H
