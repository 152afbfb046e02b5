#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the functions of expand-math-values.mlir with libm.

usage: check_math.py SOURCE LIBRARY
"""

import math
import platform
import random
import sys

from compiled import MemRef, bf16_of, call, compile_mlir, float_of

PASSES = ["-stem-vectorize", "-stem-expand-math"]
SMALLEST_NORMAL = 2.0 ** -126
LARGEST = float_of(0x7F7FFFFF)
INFINITY = float("inf")
NAN = float("nan")

# All over the f32 numbers, with both signs, both infinities and some NaNs.
ALL_BITS = list(range(0, 2 ** 32, 86_243)) + [0x7F800000, 0xFF800000,
                                              0x80000000]
# Where a result overflows, underflows or a reduction changes its integer.
EDGES = [88.72283, 88.722847, 88.3762, -87.33654, -87.336555, -103.97, 127.5,
         127.99999, 128.0, -126.0, -126.00001, -149.0, 0.625, 0.62499994,
         0.70710677, 0.70710681, 1.41421354, 1.0, 0.99999994, 1e-45, 1e-40,
         1e7, -1e7, math.pi, math.pi / 2, math.pi / 4, 0.34657359, 0.5, 1.5]


def reference(function, x):
    if x != x:
        return NAN
    try:
        return function(x)
    except OverflowError:
        return INFINITY
    except ValueError:
        return NAN


def log(x):
    return math.log(x) if x != 0 else -INFINITY


def rsqrt(x):
    if x == 0:
        return math.copysign(INFINITY, x)
    return 0.0 if x == INFINITY else 1 / math.sqrt(x)


def ulps(got, want):
    exponent = max(math.frexp(want)[1], -125)
    return abs(got - want) / math.ldexp(1.0, exponent - 24)


def same(got, want):
    return got == want or (got != got and want != want)


def run(library, name, code, xs):
    """Results in vectors; those of the scalar loop must be the same."""
    result = MemRef(code, [0] * len(xs))
    call(library, name, MemRef(code, xs), result)
    for begin in range(0, min(len(xs), 3000), 15):
        part = xs[begin:begin + 15]
        scalar = MemRef(code, [0] * len(part))
        call(library, name, MemRef(code, part), scalar)
        for x, a, b in zip(part, result.data[begin:], scalar.data):
            check(same(a, b), name, x, f"{b} as a scalar, {a} in a vector")
    return result.data


def check(condition, name, x, message):
    if not condition:
        sys.exit(f"{name}({x!r}): {message}")


def check_ulps(library, name, function, bound, flushes=False):
    xs = list(MemRef("f", EDGES).data) + [float_of(b) for b in ALL_BITS]
    xs = xs[:len(xs) // 16 * 16]
    for x, got in zip(xs, run(library, name, "f", xs)):
        want = reference(function, x)
        if want != want:
            check(got != got, name, x, f"is {got}, should be NaN")
        elif abs(want) > LARGEST * (1 + 2.0 ** -25):
            check(got == want or (got == INFINITY and want > 0), name, x,
                  f"is {got}, should be {want}")
        elif flushes and want < SMALLEST_NORMAL:
            check(0 <= got <= SMALLEST_NORMAL, name, x,
                  f"is {got}, should be 0")
            if want < SMALLEST_NORMAL * (1 - 1e-5):
                check(got == 0, name, x, f"is {got}, should be 0")
        else:
            check(ulps(got, want) <= bound, name, x,
                  f"is {got}, should be {want}: {ulps(got, want)} ulp")


def check_absolute(library, name, function, bound, code):
    random.seed(7)
    xs = [random.uniform(-limit, limit)
          for limit in (1e-3, 1, 10, 1e4, 1e7, 1e7, 1e12) for _ in range(4096)]
    xs += [0.0, 1e-30, 3e14, -3e14] + [NAN, INFINITY, -INFINITY, 2.0]
    xs = list(MemRef(code, xs * 2).data)
    for x, got in zip(xs, run(library, name, code, xs)):
        if abs(x) > 2.0 ** 48 or x != x:
            check(got != got, name, x, f"is {got}, should be NaN")
            continue
        want = function(x)
        check(abs(got - want) <= bound, name, x, f"is {got}, should be {want}")


def check_bf16(library):
    xs = [float_of(b) for b in ALL_BITS + [0x3F808000, 0x3F818000, 0x3F808001,
                                           0x7F7FFFFF, 0x00008000, 0x7F800001]]
    vectors = xs[:len(xs) // 16 * 16]
    for part in (vectors, xs[-15:]):
        result = MemRef("H", [0] * len(part))
        call(library, "to_bf16", MemRef("f", part), result)
        for x, got in zip(part, result.data):
            check(got == bf16_of(x), "to_bf16", x,
                  f"is {got:#06x}, should be {bf16_of(x):#06x}")


def check_targets(source, library_path, native):
    """The oldest x86-64, where fma is a call, computes the same bits."""
    if platform.machine() != "x86_64":
        return
    old = compile_mlir(source, library_path + ".old.so", PASSES, "x86-64")
    xs = [float_of(b) for b in ALL_BITS[:-1:3]]
    for name in ("exp", "exp2", "log", "tanh", "rsqrt", "sin", "cos"):
        results = run(native, name + "_f32", "f", xs)
        for x, a, b in zip(xs, results, run(old, name + "_f32", "f", xs)):
            check(same(a, b), name, x, f"is {b} on x86-64, {a} on this host")


def main(source, library_path):
    library = compile_mlir(source, library_path, PASSES)
    check_ulps(library, "exp_f32", math.exp, 1.1, flushes=True)
    check_ulps(library, "exp2_f32", lambda x: 2.0 ** x, 0.8, flushes=True)
    check_ulps(library, "log_f32", log, 0.9)
    check_ulps(library, "tanh_f32", math.tanh, 1.4)
    check_ulps(library, "rsqrt_f32", rsqrt, 1.5)
    check_absolute(library, "sin_f32", math.sin, 9.5e-8, "f")
    check_absolute(library, "cos_f32", math.cos, 9.5e-8, "f")
    # libm itself is off by up to half of the last place of 1.
    check_absolute(library, "sin_f64", math.sin, 2.3e-16, "d")
    check_absolute(library, "cos_f64", math.cos, 2.3e-16, "d")
    check_bf16(library)
    check_targets(source, library_path, library)


if __name__ == "__main__":
    main(*sys.argv[1:])
