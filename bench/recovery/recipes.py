# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is trained, and how, by name."""

import collections

# Conversions that a run may start from, as options of stem-run convert. None is
# the dense model itself.
STARTS = {
    "dense": None,
    "rows": ["--layers=auto:10"],
    "rank 64": ["--layers=auto:10", "--mix-rank=64"],
    # No table to speak of: one row for all ids, beside the same map.
    "one row, rank 64": ["--layers=auto:10", "--mix-rank=64", "--rows=mean"],
}
CALIBRATION_TOKENS = 50_000

# `options` are those of stem-run train; `steps` of BATCH x LENGTH tokens.
Configuration = collections.namedtuple(
    "Configuration", "name start options steps seeds", defaults=((0,),))

BATCH, LENGTH = 4, 512
SEARCH_STEPS = 30
FINAL_STEPS = 300
MAIN_SEEDS = (0, 1, 2)

# From this one, one thing at a time is changed.
BASE = {"train": "all", "distill-weight": "1", "lr": "1e-4", "table-lr": "10x",
        "row-optimizer": "rowwise", "warmup": "5", "schedule": "cosine",
        "weight-decay": "0", "clip": "1"}
CHANGES = [
    *({"train": part} for part in ("tables", "stem-layers")),
    *({"distill-weight": weight} for weight in ("0", "0.5")),
    *({"lr": rate} for rate in ("3e-5", "3e-4", "1e-3")),
    *({"table-lr": factor} for factor in ("1x", "3x", "30x")),
    *({"row-optimizer": mode} for mode in ("lazy", "exact")),
    {"table-betas": "0,0.95"},
    {"row-dtype": "f32"},
    {"schedule": "wsd"},
]


def flags(options):
    return [f"--{name}={value}" for name, value in options.items()]


def described(change):
    return ", ".join(f"{name} {value}" for name, value in change.items())


def search(start):
    yield Configuration(f"search {start}: base", start, BASE, SEARCH_STEPS)
    for change in CHANGES:
        yield Configuration(f"search {start}: {described(change)}", start,
                            {**BASE, **change}, SEARCH_STEPS)


# What the search took: labels and the teacher in equal parts.
RECIPE = {**BASE, "distill-weight": "0.5", "lr": "2e-4", "table-lr": "3x"}


def final(start):
    return Configuration(f"recovered {start}", start, RECIPE, FINAL_STEPS,
                         MAIN_SEEDS)


CONFIGURATIONS = [
    *search("rows"),
    *(final(start) for start in STARTS),
]
