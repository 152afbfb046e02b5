#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How fast a conversion is, beside prefill of as many tokens.

A pair is a conversion of ten layers with nothing but texts of bench/calibration,
and prefill of 512 tokens at a time by `stem-run bench`. Each ratio is the time
of prefill for the tokens of the conversion, by the conversion's; the layers are
named, so no sensitivity pass is in it. Prints one JSON object."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time

import common

sys.path.append(os.path.join(common.ROOT, "bench"))
from order_statistics import interval, median  # noqa: E402

LAYERS = "0,9,10,12,13,14,15,16,17,18"  # what auto:10 takes of SmolLM2-135M
TOKENS = 50_000
WINDOW = 512


def converted(dense, out):
    """(tokens, seconds of the conversion, seconds of the command)"""
    begin = time.monotonic()
    result = common.stem_run(
        "convert", dense, out, "--force", f"--layers={LAYERS}",
        f"--calibrate-tokens={TOKENS}", "--dialogue-share=0",
        *(f"--calibrate={common.text(register, 'fit')}"
          for register in common.IN_DOMAIN))
    command = time.monotonic() - begin
    calibration = result["calibration"]
    tokens = sum(calibration[f"tokens_{part}"]
                 for part in ("fit", "choose", "check"))
    return tokens, calibration["convert_seconds"], command


def prefilled(dense):
    """Seconds of a token."""
    model = common.stem_run("bench", dense, f"--prompt-tokens={WINDOW}",
                            "--decode-tokens=1", "--repeat=15")["models"][0]
    return 1 / model["prefill_tokens_per_second"]


def ratio(values):
    return {"median": median(values), "interval": interval(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the dense model, a folder")
    parser.add_argument("--pairs", type=int, default=15)
    options = parser.parse_args()
    measured = []
    with tempfile.TemporaryDirectory(dir=common.FOLDER) as folder:
        out = os.path.join(folder, "converted")
        for number in range(options.pairs):
            tokens, conversion, command = converted(options.model, out)
            shutil.rmtree(out)
            prefill = tokens * prefilled(options.model)
            measured.append({"tokens": tokens, "convert_seconds": conversion,
                             "command_seconds": command,
                             "prefill_seconds": prefill})
            print(f"pair {number + 1}: {conversion:.1f} s, command "
                  f"{command:.1f} s, prefill {prefill:.1f} s", file=sys.stderr,
                  flush=True)
    print(json.dumps({
        "schema": "stem.bench.calibration.clock/1", "pairs": measured,
        "prefill_by_conversion": ratio(
            [pair["prefill_seconds"] / pair["convert_seconds"]
             for pair in measured]),
        "prefill_by_command": ratio(
            [pair["prefill_seconds"] / pair["command_seconds"]
             for pair in measured])}, indent=2))


if __name__ == "__main__":
    main()
