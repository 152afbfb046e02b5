#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts and evaluates the configurations that have no result yet.

Each result is a line of results.jsonl beside the texts, written when it is
complete; a run that was ended goes on from there. A converted folder (tables of
1.5 GB for ten layers of SmolLM2-135M) is removed after its evaluation.
"""

import argparse
import json
import os
import re
import shutil
import sys
import time

import common
from configurations import CONFIGURATIONS, is_judged


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(folder, name))
               for name in os.listdir(folder))


def hold_shape(model):
    """What the share of the replaced arithmetic is told from."""
    path = os.path.join(model, "config.json")
    if not os.path.exists(path):
        sys.exit(f"{model}: a folder with config.json is needed; "
                 "see stem-run import")
    with open(path) as file:
        config = json.load(file)
    return {key: config[key] for key in ("hidden_size", "intermediate_size")}


def total_cost(cost):
    return {key: value for key, value in cost.items()
            if key not in ("layers", "rest")}


def options_of(configuration, seed, layers):
    options = list(configuration.options)
    if not any(option.startswith("--init=") for option in options):
        options += [f"--calibrate={common.text_path(register, 'fit')}"
                    for register in common.IN_DOMAIN]
        if seed:
            options.append(f"--calibrate-seed={seed}")
    if layers is not None:
        options.append("--layers=" + ",".join(map(str, layers)))
    return options


def without_folders(options):
    """Where a text lies does not matter; what it holds is in the digest."""
    text = "--calibrate="
    return [text + os.path.basename(option) if option.startswith(text)
            else option for option in options]


def is_current(result, configuration, results):
    """Whether it is of the configuration as it stands. One that does not say
    what it is of counts."""
    if configuration.options is None or "options" not in result:
        return True
    layers = None
    if configuration.layers_of:
        layers = (result_of_layers(configuration, result["seed"], results)
                  or result)["layers"]
    wanted = options_of(configuration, result["seed"], layers)
    return without_folders(result["options"]) == without_folders(wanted)


def result_of_layers(configuration, seed, results):
    return (results.get((configuration.layers_of, seed))
            or results.get((configuration.layers_of, 0)))


def current_results():
    """Without those of configurations as they were before."""
    results = common.read_results(common.texts_digest())
    # One whose layers others share stands before them.
    for configuration in CONFIGURATIONS:
        for key in [key for key in results if key[0] == configuration.name]:
            if not is_current(results[key], configuration, results):
                del results[key]
    return results


def convert(model, out, configuration, seed, layers):
    options = options_of(configuration, seed, layers)
    start = time.monotonic()
    if configuration.is_dense:
        result = common.compressed_dense(model, out, "--force", *options)
    else:
        result = common.stem_run("convert", model, out, "--force", *options)
    calibration = result.get("calibration") or {}
    return {"options": options, "seconds": time.monotonic() - start,
            "layers": result.get("converted", result.get("layers")),
            "blocks": result.get("blocks"),
            "before": total_cost(result["before"]),
            "after": total_cost(result["after"]),
            "sensitivity_seconds": result.get("sensitivity_seconds"),
            "calibration": calibration,
            "peak_bytes": result["peak_bytes"],
            # Columns that were pruned are in the folder as zeros.
            "folder_bytes": (folder_bytes(out)
                             - result.get("bytes_of_zero_columns", 0))}


def all_losses(model, configuration, is_judge_alone):
    losses = {} if is_judge_alone else {"losses": common.losses(model)}
    if is_judged(configuration):
        losses["judge"] = common.losses(model, "judge")
        losses["judge_texts"] = common.judge_digest()
    return losses


def run(model, configuration, seed, results, keep, is_judge_alone):
    """The result, or None where it waits for another one."""
    if configuration.options is None:
        return {**all_losses(model, configuration, False),
                "folder_bytes": folder_bytes(model), **hold_shape(model)}
    layers = None
    if configuration.layers_of:
        other = result_of_layers(configuration, seed, results)
        if other is None:
            return None
        layers = other["layers"]
    name = re.sub(r"\W+", "-", configuration.name)
    out = os.path.join(common.FOLDER, "models", f"{name}-{seed}")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    try:
        entry = convert(model, out, configuration, seed, layers)
        entry.update(all_losses(out, configuration, is_judge_alone))
    finally:
        if not keep:
            shutil.rmtree(out, ignore_errors=True)
    return entry


def is_complete(result, configuration, is_judge_alone):
    return (result is not None
            and ("judge" in result or not is_judged(configuration))
            and ("losses" in result or is_judge_alone))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the dense model, a folder")
    parser.add_argument("--only", metavar="REGEX", default="",
                        help="the configurations whose name this matches")
    parser.add_argument("--seeds", metavar="LIST", default="",
                        help="of these seeds alone, like 0,1")
    parser.add_argument("--keep", action="store_true",
                        help="keep the converted folders")
    parser.add_argument("--judge-only", action="store_true",
                        help="of what the judge documents are for, read no "
                             "others")
    options = parser.parse_args()
    seeds = {int(seed) for seed in options.seeds.split(",") if seed}
    digest = common.texts_digest()
    results = current_results()
    failed = False
    for configuration in CONFIGURATIONS:
        for seed in configuration.seeds:
            name = configuration.name
            judge_alone = options.judge_only and is_judged(configuration)
            if (is_complete(results.get((name, seed)), configuration,
                            judge_alone)
                    or not re.search(options.only, name)
                    or (seeds and seed not in seeds)):
                continue
            print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
            try:
                entry = run(options.model, configuration, seed, results,
                            options.keep, judge_alone)
            except common.Failed as error:
                print(f"  failed: {error}", file=sys.stderr)
                failed = True
                continue
            if entry is None:
                print(f"  waits for {configuration.layers_of}",
                      file=sys.stderr)
                failed = True
                continue
            entry = {"name": name, "seed": seed, "texts": digest, **entry}
            results[name, seed] = entry
            with open(common.results_path(), "a") as file:
                file.write(json.dumps(entry) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
