#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recovers converted models by training, and measures them.

Texts are those of bench/calibration: trained on what is there to fit, judged on
held-out documents that neither the calibration nor a choice has seen. Each
result is a line of results.jsonl, written when it is complete; a run that was
ended goes on from there. Folders are removed after their evaluation.
"""

import argparse
import json
import os
import re
import shutil
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "calibration"))

import common
from recipes import BATCH, CALIBRATION_TOKENS, CONFIGURATIONS, LENGTH, \
    STARTS, flags

FOLDER = os.environ.get("STEM_RECOVERY",
                        os.path.join(common.ROOT, "build", "recovery"))
FIT = [common.text(register, "fit") for register in common.IN_DOMAIN]


def results_path():
    return os.path.join(FOLDER, "results.jsonl")


def recipe(configuration):
    """What a result says that it is of."""
    start = STARTS[configuration.start]
    return {"options": configuration.options, "steps": configuration.steps,
            "batch": BATCH, "length": LENGTH, "start": start,
            "start_tokens": CALIBRATION_TOKENS if start else None}


def is_current(result, configuration):
    """Whether it is of the recipe as it stands, as far as it says."""
    return all(result.get(key, value) == value
               for key, value in recipe(configuration).items())


def read_results(digest):
    """Without those of recipes as they were before."""
    named = {configuration.name: configuration
             for configuration in CONFIGURATIONS}
    return {key: result for key, result in
            common.read_results(digest, results_path()).items()
            if key[0] not in named or is_current(result, named[key[0]])}


def append(entry):
    with open(results_path(), "a") as file:
        file.write(json.dumps(entry) + "\n")


class Starts:
    """Conversions by name and seed, made when they are asked for. One at a time
    is kept: each has tables of 1.5 GB."""

    def __init__(self, dense):
        self.dense = dense
        self.held = None

    def get(self, name, seed):
        if STARTS[name] is None:
            return self.dense
        path = os.path.join(FOLDER, "start")
        if self.held != (name, seed):
            self.held = None
            common.stem_run(
                "convert", self.dense, path, "--force",
                f"--calibrate-tokens={CALIBRATION_TOKENS}",
                f"--calibrate-seed={seed}", *STARTS[name],
                *(f"--calibrate={text}" for text in FIT))
            self.held = (name, seed)
        return path

    def remove(self):
        shutil.rmtree(os.path.join(FOLDER, "start"), ignore_errors=True)


def curve(out):
    """(step, tokens, seconds of steps, validation perplexity)."""
    points, seconds = [], 0.0
    with open(os.path.join(out, "training", "metrics.jsonl")) as file:
        for line in map(json.loads, file):
            seconds += line.get("seconds", 0.0) if "loss" in line else 0.0
            if "validation_perplexity" in line:
                points.append((line["step"], line["step"] * BATCH * LENGTH,
                               seconds, line["validation_perplexity"]))
    return points


def train(start, dense, configuration, seed, out):
    weight = configuration.options.get("distill-weight", "0")
    options = {name: value for name, value in configuration.options.items()
               if name != "distill-weight"}
    teacher = ([] if float(weight) == 0 or start == dense
               else [f"--distill={dense}", f"--distill-weight={weight}"])
    result = common.stem_run(
        "train", start, f"--out={out}", *(f"--data={text}" for text in FIT),
        f"--shard={os.path.join(FOLDER, 'fit.safetensors')}",
        f"--steps={configuration.steps}", f"--batch={BATCH}",
        f"--ctx={LENGTH}", f"--seed={seed}", "--save-every=0", "--keep=1",
        f"--eval-every={max(1, configuration.steps // 10)}",
        "--validation=0.02", *flags(options), *teacher)
    return {"tokens": result["tokens"], "seconds": result["seconds"],
            "peak_bytes": result["peak_bytes"], "plan": result["plan"],
            "curve": curve(out)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the dense model, a folder")
    parser.add_argument("--only", metavar="REGEX", default="",
                        help="the configurations whose name this matches")
    parser.add_argument("--seeds", metavar="LIST", default="",
                        help="of these seeds alone, like 0,1")
    parser.add_argument("--list", action="store_true",
                        help="name what has no result yet")
    options = parser.parse_args()
    seeds = {int(seed) for seed in options.seeds.split(",") if seed}
    os.makedirs(FOLDER, exist_ok=True)
    digest = common.texts_digest()
    results = read_results(digest)
    starts, failed = Starts(os.path.abspath(options.model)), False
    missing = [(configuration, seed) for configuration in CONFIGURATIONS
               for seed in configuration.seeds
               if (configuration.name, seed) not in results
               and re.search(options.only, configuration.name)
               and (not seeds or seed in seeds)]
    for configuration, seed in missing:
        print(f"{configuration.name}, seed {seed}", file=sys.stderr, flush=True)
        if options.list:
            continue
        out = os.path.join(FOLDER, "out")
        shutil.rmtree(out, ignore_errors=True)
        try:
            entry = train(starts.get(configuration.start, seed), starts.dense,
                          configuration, seed, out)
            if not configuration.name.startswith("search"):
                entry["losses"] = common.losses(out)
            append({"name": configuration.name, "seed": seed, "texts": digest,
                    **recipe(configuration), **entry})
        except common.Failed as error:
            print(f"  failed: {error}", file=sys.stderr)
            failed = True
        finally:
            shutil.rmtree(out, ignore_errors=True)
    starts.remove()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
