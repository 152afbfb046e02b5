# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Median and interval of pairs, as bench/Pairs.h takes them."""


def median(values):
    return sorted(values)[len(values) // 2]


def interval(values):
    """95 % at least, from order statistics: that as few values lie below the
    true median as above it is binomial. None of fewer than six values."""
    values, count = sorted(values), len(values)
    probability, below, place = 0.5 ** count, 0.0, 0
    while place < count // 2:
        below += probability
        if below > 0.025:
            break
        probability *= (count - place) / (place + 1)
        place += 1
    return [values[place - 1], values[count - place]] if place > 0 else None
