#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile time against depth: the same model with 4 and with 40 layers, in
turns, without the cache. Prints one JSON object.

usage: flat_compile.py [--repeat=N]     (stem-run on PATH; default: 15)
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "test", "e2e"))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from e2e import GOLDEN, deepen  # noqa: E402
from order_statistics import interval  # noqa: E402


def compile_seconds(folder):
    run = subprocess.run(
        ["stem-run", "generate", folder, "--prompt-ids=1", "-n", "1", "--json",
         "--no-compile-cache"], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["engine"]["compile_seconds"]


def main(arguments):
    repeat = 15
    for argument in arguments:
        if not argument.startswith("--repeat="):
            print(__doc__)
            return 2
        repeat = int(argument[len("--repeat="):])
    depths = 4, 40
    seconds = {depth: [] for depth in depths}
    with tempfile.TemporaryDirectory() as scratch:
        for depth in depths:
            deepen(os.path.join(GOLDEN, "llama_gqa"),
                   os.path.join(scratch, str(depth)), depth)
        for turn in range(repeat + 1):
            for depth in depths:
                value = compile_seconds(os.path.join(scratch, str(depth)))
                if turn > 0:  # the first one warms the file cache
                    seconds[depth].append(value)
    ratios = [deep / shallow for shallow, deep in zip(*seconds.values())]
    print(json.dumps({
        "schema": "stem.flat_compile/1", "repeat": repeat,
        "seconds": {str(depth): {"mean": statistics.mean(values),
                                 "deviation": statistics.pstdev(values),
                                 "least": min(values)}
                    for depth, values in seconds.items()},
        "ratio": {"median": statistics.median(ratios),
                  "interval": interval(ratios),
                  "wanted": 1.3}}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
