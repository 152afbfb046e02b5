//===- RowReader.cpp - Reads that run beside the computation --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowReader.h"

#include "stem/Support/Error.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <unistd.h>

using namespace stem;

/// errno of what went wrong; 0 with `isShort` where the file ends too early.
static int readAll(const RowRead &read, bool &isShort) {
  char *to = static_cast<char *>(read.to);
  for (int64_t done = 0; done < read.bytes;) {
    const ssize_t got =
        pread(read.file, to + done, static_cast<size_t>(read.bytes - done),
              read.offset + done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return errno;
    if (got == 0) {
      isShort = true;
      return 0;
    }
    done += got;
  }
  return 0;
}

RowReader::Batch::Batch(std::vector<RowRead> reads) : reads(std::move(reads)) {}

void RowReader::Batch::fail(Failure seen) {
  if (!failure || seen.read < failure->read)
    failure = seen;
}

/// Does one read that nobody has taken; false where there is none.
bool RowReader::Batch::takeOne() {
  const size_t read = next.fetch_add(1);
  if (read >= reads.size())
    return false;
  bool isShort = false;
  const int error = readAll(reads[read], isShort);
  const std::lock_guard<std::mutex> lock(mutex);
  if (error != 0 || isShort)
    fail({read, error});
  if (++done == reads.size())
    finished.notify_all();
  return true;
}

RowReader::RowReader(int count) {
  try {
    for (int i = 0; i < count; ++i)
      threads.emplace_back([this] { run(); });
  } catch (const std::system_error &error) {
    const size_t started = threads.size();
    end();
    fail("thread {} of {} that read rows cannot be started: {}", started + 1,
         count, error.code().message());
  }
}

RowReader::~RowReader() { end(); }

void RowReader::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    isEnding = true;
  }
  wanted.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void RowReader::run() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    wanted.wait(lock, [this] { return isEnding || !queue.empty(); });
    if (queue.empty())
      return;
    const std::shared_ptr<Batch> batch = queue.front();
    lock.unlock();
    while (batch->takeOne()) {
    }
    lock.lock();
    // The first thread that finds a batch empty takes it off.
    std::erase(queue, batch);
  }
}

std::shared_ptr<RowReader::Batch> RowReader::start(std::vector<RowRead> reads) {
  const size_t count = reads.size();
  auto batch = std::make_shared<Batch>(std::move(reads));
  if (count == 0 || threads.empty())
    return batch;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    queue.push_back(batch);
  }
  if (count < threads.size())
    wanted.notify_one();
  else
    wanted.notify_all();
  return batch;
}

size_t RowReader::waiting() {
  const std::lock_guard<std::mutex> lock(mutex);
  return queue.size();
}

RowReader::Outcome RowReader::wait(Batch &batch) {
  bool stalled = false;
  while (batch.takeOne())
    stalled = true;
  std::unique_lock<std::mutex> lock(batch.mutex);
  stalled |= batch.done < batch.reads.size();
  batch.finished.wait(lock, [&] { return batch.done == batch.reads.size(); });
  return {stalled, batch.failure};
}
