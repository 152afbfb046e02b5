# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The conversions that are compared, by name."""

import collections

# Options of stem-run convert beside the texts; calibrated ones are repeated for
# every seed (--calibrate-seed). A configuration with `layers_of` converts the
# layers that the result of that name and seed has. With `is_dense` they are
# options of compressed_dense, which makes a dense model of fewer FLOPs. One that
# runs with MAIN_SEEDS, and the dense model, also read the judge documents.
Configuration = collections.namedtuple(
    "Configuration", "name options seeds layers_of is_dense",
    defaults=((0,), None, False))

MAIN_SEEDS = (0, 1, 2)


def is_judged(configuration):
    return configuration.options is None or configuration.seeds == MAIN_SEEDS


TOKENS = 50_000
MORE_TOKENS = 200_000


def calibrated(name, *options, seeds=(0,), tokens=TOKENS, layers_of=None,
               is_dense=False):
    return Configuration(
        name, [f"--calibrate-tokens={tokens}", *options], seeds, layers_of,
        is_dense)


MIDDLE = "--layers=" + ",".join(map(str, range(1, 29)))
TEN = "ten, rank 0"  # the run whose layers others share
# The ten without layer 0, which a map with one row for all ids harms.
NINE = "--layers=9,10,12,13,14,15,16,17,18"
TEN_MORE = "ten, rank 0, 200,000 tokens"

CONFIGURATIONS = [
    Configuration("dense", None),
    calibrated(TEN, "--layers=auto:10", seeds=MAIN_SEEDS),
    *(calibrated(f"ten, rank {rank}", f"--mix-rank={rank}", seeds=MAIN_SEEDS,
                 layers_of=TEN)
      for rank in (64, 128)),
    calibrated("fifteen, rank 0", "--layers=auto:15", seeds=MAIN_SEEDS),
    calibrated("28 layers, rank 64", MIDDLE, "--mix-rank=64",
               seeds=MAIN_SEEDS),
    calibrated("28 layers, rank 64, 200,000 tokens", MIDDLE, "--mix-rank=64",
               tokens=MORE_TOKENS),
    # The model's own text beside the files: for what they do not cover.
    calibrated("28 layers, rank 64, self beside", MIDDLE, "--mix-rank=64",
               "--calibrate=self"),
    calibrated("28 layers, rank 64, half its own", MIDDLE, "--mix-rank=64",
               "--self-share=0.5", seeds=MAIN_SEEDS),
    calibrated("ten, rank 0, half its own", "--self-share=0.5",
               layers_of=TEN),
    calibrated("ten, a fifth of the arithmetic", "--flops=20%",
               layers_of=TEN),
    calibrated(TEN_MORE, "--layers=auto:10", tokens=MORE_TOKENS),
    *(calibrated(f"ten, rank {rank}, 200,000 tokens", f"--mix-rank={rank}",
                 tokens=MORE_TOKENS, layers_of=TEN_MORE)
      for rank in (64, 128)),
    # Starts for training, on the same ten layers.
    *(Configuration(f"ten, {init}", [f"--init={init}"], (0,), TEN)
      for init in ("embedding", "row-mean", "xavier")),
    # Tableless twins: one gate-weighted mean row, refitted alike.
    *(calibrated(f"ten, one row, rank {rank}", "--rows=mean",
                 f"--mix-rank={rank}", layers_of=TEN)
      for rank in (0, 64, 128)),
    *(calibrated(f"nine, {rows}, rank {rank}", NINE, *options,
                 f"--mix-rank={rank}")
      for rank in (0, 64, 128)
      for rows, options in (("rows", ()), ("one row", ("--rows=mean",)))),
    calibrated("ten, one row, rank 0, 200,000 tokens", "--rows=mean",
               tokens=MORE_TOKENS, layers_of=TEN_MORE),
    # d_ff pruned, and whole blocks dropped, at equal arithmetic: ten
    # up-projections of SmolLM2-135M are two and a half blocks.
    calibrated("ten, pruned", "--method=prune", layers_of=TEN, is_dense=True),
    *(calibrated(f"{blocks} blocks dropped", "--method=drop",
                 f"--blocks={blocks}", is_dense=True)
      for blocks in (2, 3)),
    # Ids seen fewer times than this keep the matrix.
    *(calibrated(f"ten, dense below {count}", f"--dense-below={count}",
                 layers_of=TEN)
      for count in (1, 4, 16)),
]
