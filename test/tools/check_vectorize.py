#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the functions of vectorize-values.mlir with plain Python.

usage: check_vectorize.py SOURCE LIBRARY
"""

import math
import random
import sys

from compiled import MemRef, bits_of, call, compile_mlir, float_of

random.seed(11)


def f32(x):
    return float_of(bits_of(x))


def matrix(rows, columns):
    values = [random.uniform(-4, 4) for _ in range(rows * columns)]
    return MemRef("f", values, [rows, columns])


def zeros(*shape):
    return MemRef("f", [0] * math.prod(shape), list(shape))


def expect(name, got, want, tolerance=0.0):
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        if not abs(a - b) <= tolerance * max(1.0, abs(b)):
            sys.exit(f"{name}: element {index} is {a}, should be {b}")


def tree(values, combine):
    """Upper half onto lower half, as the pass orders a reduction."""
    while len(values) > 1:
        half = len(values) // 2
        values = [combine(values[k], values[half + k]) for k in range(half)]
    return values[0]


def reduce_row(row, old, step, combine, neutral):
    partial = [neutral] * 16
    whole = len(row) // 16 * 16
    for k in range(whole):
        partial[k % 16] = step(partial[k % 16], row[k])
    result = combine(old, tree(partial, combine))
    for x in row[whole:]:
        result = step(result, x)
    return result


def check_elementwise(lib, rows, columns):
    g, table = matrix(rows, columns), matrix(5, columns)
    ids = MemRef("i", [random.randrange(5) for _ in range(rows)])
    y = zeros(rows, columns)
    call(lib, "gated_rows", g, table, ids, y)
    expect("gated_rows", y.data,
           [x / (1 + math.exp(-x)) *
            table.data[ids.data[k // columns] * columns + k % columns]
            for k, x in enumerate(g.data)], 1e-6)

    call(lib, "mask", g, y)
    expect("mask", y.data,
           [x if k % columns <= k // columns else k % columns
            for k, x in enumerate(g.data)])

    y = zeros(columns, rows)
    call(lib, "transpose", g, y)
    expect("transpose", y.data,
           [g.data[i * columns + j] for j in range(columns)
            for i in range(rows)])

    y = zeros(columns)
    call(lib, "branch", MemRef("f", g.data[:columns]), y)
    expect("branch", y.data,
           [k if x < 0 else x for k, x in enumerate(g.data[:columns])])

    x = MemRef("f", [random.uniform(-4, 4) for _ in range(2 * columns)])
    call(lib, "shifted", x, y)
    expect("shifted", y.data, [f32(x.data[k] - x.data[k + columns])
                               for k in range(columns)])


def check_reductions(lib, rows, columns):
    x = matrix(rows, columns)
    total = MemRef("f", [0.5] * rows)
    largest = MemRef("f", [-3.5] * rows)
    call(lib, "squares_and_max", x, total, largest)
    split = [x.data[i * columns:(i + 1) * columns] for i in range(rows)]
    expect("squares", total.data,
           [reduce_row(row, 0.5, lambda s, a: f32(a * a + s),
                       lambda a, b: f32(a + b), 0.0) for row in split])
    expect("max", largest.data, [max(-3.5, *row) for row in split])

    # A NaN anywhere in a row is its maximum.
    for position in range(columns):
        x.data[position] = math.nan
        call(lib, "squares_and_max", x, total, largest)
        if largest.data[0] == largest.data[0]:
            sys.exit(f"max: a NaN at {position} was lost")
        x.data[position] = 0.0
        largest.data[0] = -3.5

    split = [x.data[i * columns:(i + 1) * columns] for i in range(rows)]
    sums = zeros(columns)
    call(lib, "column_sums", x, sums)
    want = [0.0] * columns
    for row in split:
        want = [f32(s + a) for s, a in zip(want, row)]
    expect("column_sums", sums.data, want)

    b, c = matrix(columns, 21), zeros(rows, 21)
    call(lib, "matmul", x, b, c)
    expect("matmul", c.data,
           [sum(row[k] * b.data[k * 21 + j] for k in range(columns))
            for row in split for j in range(21)], 1e-4)


def check_copies(lib, rows, columns):
    # Padded rows to a transposed buffer, then to padded rows.
    stride = columns + 3
    source = MemRef("f", [random.random() for _ in range(rows * stride + 2)],
                    [rows, columns], [stride, 1], 2)
    want = [[source.data[2 + i * stride + j] for j in range(columns)]
            for i in range(rows)]
    turned = MemRef("f", [0] * (rows * columns), [rows, columns], [1, rows])
    call(lib, "copy_strided", source, turned)
    expect("copy to columns", turned.data,
           [want[i][j] for j in range(columns) for i in range(rows)])
    padded = MemRef("f", [-1] * (rows * stride), [rows, columns], [stride, 1])
    call(lib, "copy_strided", source, padded)
    expect("copy to rows", padded.data,
           [x for row in want for x in row + [-1] * 3])

    halves = MemRef("H", [random.randrange(1 << 16)
                          for _ in range(rows * columns)], [rows, columns])
    copied = MemRef("H", [0] * (rows * columns), [rows, columns])
    call(lib, "copy_bf16", halves, copied)
    expect("copy_bf16", copied.data, halves.data)

    filled = MemRef("i", [0] * (rows * columns), [rows, columns])
    call(lib, "fill", filled)
    expect("fill", filled.data, [7] * (rows * columns))


def main(source, library_path):
    lib = compile_mlir(source, library_path,
                       ["-stem-vectorize", "-stem-expand-math"])
    for rows, columns in ((3, 64), (2, 16), (4, 53), (1, 7), (33, 17), (5, 1)):
        check_elementwise(lib, rows, columns)
        check_reductions(lib, rows, columns)
        check_copies(lib, rows, columns)
    # An id far out of bounds, in a row without columns.
    call(lib, "empty_rows", MemRef("i", [1 << 30] * 4), MemRef("f", [1]),
         zeros(4, 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
