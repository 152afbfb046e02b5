#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tables in files cost beside tables in memory.

Two processes of `stem-run bench --paced` take turns: one with --tables=resident,
one with --tables=file. No row is kept (--cache-rows=0), and the ids are drawn
evenly from the vocabulary, so that a step reads all of its rows. With --cold the
page cache gives up the model's files before each turn of the second. Prints one
JSON object; a ratio is the time with files by the time in memory."""

import argparse
import json
import os
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from order_statistics import interval, median  # noqa: E402

SETTLE_SECONDS = 0.3  # threads of the other side go to sleep


class Side:
    def __init__(self, model, place, options):
        self.process = subprocess.Popen(
            [os.environ.get("STEM_RUN", "stem-run"), "bench", model, "--paced",
             "--json", f"--tables={place}",
             f"--prompt-tokens={options.prompt_tokens}",
             f"--decode-tokens={options.decode_tokens}",
             *(["--cache-rows=0"] if place == "file" else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("stem-run bench ended early")
        time.sleep(SETTLE_SECONDS)
        return json.loads(line)["seconds"]

    def end(self):
        rest, _ = self.process.communicate()
        return json.loads(rest)


def forget(model):
    """The page cache gives up the files of the folder."""
    for name in os.listdir(model):
        file = os.open(os.path.join(model, name), os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def compare(what, sides, options):
    resident, file = sides
    times = {"resident": [], "file": []}
    for turn in range(options.pairs + 1):
        first = resident.seconds(what)
        if options.cold:
            forget(options.model)
        second = file.seconds(what)
        if turn > 0:  # the first warms up
            times["resident"].append(first)
            times["file"].append(second)
    ratios = [b / a for a, b in zip(times["resident"], times["file"])]
    return {"ratio": median(ratios), "interval": interval(ratios),
            "seconds": {place: median(values)
                        for place, values in times.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a STEM model, a folder")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--prompt-tokens", type=int, default=2048)
    parser.add_argument("--decode-tokens", type=int, default=32)
    options = parser.parse_args()
    sides = [Side(options.model, place, options)
             for place in ("resident", "file")]
    results = {what: compare(what, sides, options)
               for what in ("prefill", "decode")}
    model = [side.end() for side in sides][1]["models"][0]
    print(json.dumps({"schema": "stem.bench.tables.overhead/1",
                      "cold": options.cold, "pairs": options.pairs,
                      "lookups": model["engine"]["lookups"], **results},
                     indent=2))


if __name__ == "__main__":
    main()
