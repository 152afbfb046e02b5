//===- Context.cpp - Context, threads and instruction set -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Context.h"
#include "ContextImpl.h"
#include "MatrixKernels.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cpuid.h>
#include <fstream>
#include <sched.h>
#include <set>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

using namespace stem;

namespace {

constexpr int32_t maxThreads = 1024;

/// The CPUs this process may run on; empty when the kernel does not say.
std::vector<int> allowedCpus() {
  std::vector<int> cpus;
  // A machine may have more CPUs than a cpu_set_t holds: grow until it fits.
  for (int capacity = CPU_SETSIZE; capacity <= (1 << 20); capacity *= 2) {
    cpu_set_t *set = CPU_ALLOC(capacity);
    if (!set)
      return cpus;
    size_t bytes = CPU_ALLOC_SIZE(capacity);
    bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < capacity; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set))
        cpus.push_back(cpu);
    CPU_FREE(set);
    if (known)
      return cpus;
  }
  return cpus;
}

/// CPUs' worth of time that the control group grants, rounded up; 0: no limit.
int cpuQuota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  int64_t period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0)
    return 0;
  int64_t microseconds = std::strtoll(quota.c_str(), nullptr, 10);
  if (microseconds <= 0)
    return 0;
  return static_cast<int>(
      std::min<int64_t>((microseconds + period - 1) / period, maxThreads));
}

/// Whether the CPU has AMX with bf16 and the operating system lets this process
/// use it: Linux keeps no room for the tiles until it is asked.
bool mayUseAmx() {
  constexpr unsigned bf16 = 1U << 22, tile = 1U << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
      (d & (bf16 | tile)) != (bf16 | tile))
    return false;
  constexpr int askPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
  constexpr int tileData = 18;          // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, askPermission, tileData) == 0;
}

} // namespace

std::string_view stem::isaName(stem_isa isa) {
  switch (isa) {
  case STEM_ISA_AVX2:
    return "avx2";
  case STEM_ISA_AVX512:
    return "avx512";
  case STEM_ISA_AVX512_BF16:
    return "avx512bf16";
  case STEM_ISA_AMX:
    return "amx";
  case STEM_ISA_NATIVE:
    break;
  }
  return "native";
}

// The levels x86-64-v3 and -v4 are what compiled modules are built for: they
// hold AVX2 with FMA, and AVX-512 F, BW, CD, DQ and VL. The builtin also asks
// whether the operating system saves the registers.
stem_isa stem::detectIsa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("x86-64-v3"))
    return STEM_ISA_NATIVE;
  if (!__builtin_cpu_supports("x86-64-v4"))
    return STEM_ISA_AVX2;
  if (!__builtin_cpu_supports("avx512bf16"))
    return STEM_ISA_AVX512;
  return mayUseAmx() ? STEM_ISA_AMX : STEM_ISA_AVX512_BF16;
}

int stem::physicalCores() {
  std::set<std::string> cores;
  for (int cpu : allowedCpus()) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/"
                                   "thread_siblings_list",
                                   cpu));
    std::string siblings;
    if (!std::getline(file, siblings))
      siblings = fmt::format("cpu {}", cpu);
    cores.insert(siblings);
  }
  int count = std::clamp<int>(static_cast<int>(cores.size()), 1, maxThreads);
  int quota = cpuQuota();
  return quota ? std::min(count, quota) : count;
}

ContextPtr stem::createContext(int threads, stem_isa maxIsa) {
  if (threads < 0 || threads > maxThreads)
    fail("{} threads asked for, but a context has 1 to {} (0: one for each "
         "physical core)",
         threads, maxThreads);
  stem_context_options options = {sizeof(options), threads, maxIsa};
  stem_context *context = nullptr;
  stem_status status = stem_context_create(&options, &context);
  if (status == STEM_INCOMPATIBLE)
    fail("this CPU lacks AVX2 or FMA (the level x86-64-v3), which Stem needs");
  if (status != STEM_OK)
    fail("cannot create a runtime context: status {}", status);
  return ContextPtr(context);
}

void stem::throwIfFailed(const stem_context *context, stem_status status) {
  if (status == STEM_OK)
    return;
  const char *message = stem_context_message(context);
  if (*message)
    fail("{}", message);
  fail("a runtime call failed with status {}", status);
}

stem_status stem_context_create(const stem_context_options *options,
                                stem_context **out_context) {
  return guarded(nullptr, "stem_context_create", [&]() -> stem_status {
    if (!out_context)
      return STEM_INVALID_ARGUMENT;
    *out_context = nullptr;
    stem_context_options wanted = {sizeof(wanted), 0, STEM_ISA_NATIVE};
    if (options && options->struct_size != sizeof(wanted))
      return STEM_INCOMPATIBLE;
    if (options)
      wanted = *options;
    if (wanted.threads < 0 || wanted.threads > maxThreads ||
        wanted.max_isa < STEM_ISA_NATIVE || wanted.max_isa > STEM_ISA_AMX)
      return STEM_INVALID_ARGUMENT;
    stem_isa isa = detectIsa();
    if (isa == STEM_ISA_NATIVE)
      return STEM_INCOMPATIBLE;
    auto context = std::make_unique<stem_context>();
    if (wanted.max_isa != STEM_ISA_NATIVE)
      isa = std::min(isa, static_cast<stem_isa>(wanted.max_isa));
    context->isa = isa;
    context->kernels = &matrixKernelsFor(isa);
    context->threads = wanted.threads ? wanted.threads : physicalCores();
    *out_context = context.release();
    return STEM_OK;
  });
}

void stem_context_destroy(stem_context *context) { delete context; }

const char *stem_context_message(const stem_context *context) {
  return context ? context->message : "";
}

int32_t stem_context_threads(const stem_context *context) {
  return context ? context->threads : 0;
}

stem_isa stem_context_isa(const stem_context *context) {
  return context ? context->isa : STEM_ISA_NATIVE;
}
