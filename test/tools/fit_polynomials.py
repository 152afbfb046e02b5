#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the polynomial coefficients of lib/Transforms/ExpandMath.cpp.

Each is the interpolant of a power series at the Chebyshev points of the
interval of the reduced argument, computed with 60 digits.
"""

from decimal import Decimal, getcontext
from math import cos, pi

getcontext().prec = 60
LN2 = Decimal(2).ln()
TERMS = 120


def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


def horner(coefficients, x):
    total = Decimal(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def fit(series, degree, low, high):
    """Monomial coefficients, lowest first."""
    count = degree + 1
    low, high = Decimal(low), Decimal(high)
    xs = [(low + high) / 2 + (high - low) / 2 *
          Decimal(cos(pi * (2 * k + 1) / (2 * count))) for k in range(count)]
    table = [horner(series, x) for x in xs]
    for level in range(1, count):
        for k in range(count - 1, level - 1, -1):
            table[k] = (table[k] - table[k - 1]) / (xs[k] - xs[k - level])
    result = [Decimal(0)]
    for k in range(count - 1, -1, -1):
        shifted = [Decimal(0)] + result
        scaled = [c * -xs[k] for c in result] + [Decimal(0)]
        result = [a + b for a, b in zip(shifted, scaled)]
        result[0] += table[k]
    return result[:count]


def tanh_series():
    """(tanh(x) - x) / x^3 in powers of x^2, from tanh' = 1 - tanh^2."""
    t = [Decimal(1)]
    for n in range(1, TERMS):
        t.append(-sum(t[i] * t[n - 1 - i] for i in range(n)) / (2 * n + 1))
    return t[1:]


EXP = [Decimal(1) / factorial(n + 2) for n in range(TERMS)]
EXP2 = [LN2 ** (n + 1) / factorial(n + 1) for n in range(TERMS)]
LOG = [Decimal((-1) ** n) / (n + 3) for n in range(TERMS)]
SIN = [Decimal((-1) ** (n + 1)) / factorial(2 * n + 3) for n in range(40)]
COS = [Decimal((-1) ** n) / factorial(2 * n + 4) for n in range(40)]

QUARTER_PI_SQUARED = "0.617"
FITS = [
    ("exp: (e^r - 1 - r) / r^2", EXP, 4, "-0.347", "0.347"),
    ("exp2: (2^r - 1) / r", EXP2, 6, "-0.5", "0.5"),
    ("log: (log(1 + f) - f + f^2/2) / f^3", LOG, 8, "-0.2929", "0.4143"),
    ("sin f32: (sin(r) - r) / r^3", SIN, 3, "0", QUARTER_PI_SQUARED),
    ("cos f32: (cos(r) - 1 + r^2/2) / r^4", COS, 2, "0", QUARTER_PI_SQUARED),
    ("sin f64", SIN, 6, "0", QUARTER_PI_SQUARED),
    ("cos f64", COS, 6, "0", QUARTER_PI_SQUARED),
    ("tanh: (tanh(x) - x) / x^3", tanh_series(), 5, "0", "0.391"),
]

if __name__ == "__main__":
    for name, series, degree, low, high in FITS:
        print(name)
        print("    " + ", ".join(f"{float(c)!r}" for c in
                                 fit(series, degree, low, high)))
