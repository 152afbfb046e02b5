#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the models of quickstart.sh side by side: the dense one, what it was
converted to, with rows alone and with a low-rank map beside them, and the last of
these after some steps of training.

usage: quickstart_report.py FOLDER

Reads what stem-run wrote with --json: convert-*.json, a conversion or several,
and train-RECOVERED.json, which say what models there are; of each eval-MODEL.json, and what any of
bench-*.json has; llama-bench.json where llama.cpp is installed; and the generated
texts generate-MODEL.txt. A figure that is not in them is shown as '-'.
"""

import glob
import json
import os
import sys

DENSE = "dense"
RECOVERED = "recovered"
UNITS = ["", "k", "M", "G", "T"]


def readable(number, digits=2):
    """1234567 -> 1.23 M"""
    if number is None:
        return "-"
    power = 0
    while abs(number) >= 1000 and power + 1 < len(UNITS):
        number /= 1000
        power += 1
    return f"{number:.{digits}f} {UNITS[power]}".rstrip()


def figure(number, digits=2):
    return "-" if number is None else f"{number:,.{digits}f}"


def load(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def at(tree, *keys):
    for key in keys:
        if isinstance(tree, list):
            tree = tree[key] if key < len(tree) else None
        elif isinstance(tree, dict):
            tree = tree.get(key)
        if tree is None:
            return None
    return tree


def llama_rate(runs, field):
    """llama-bench's rate of the run that has only prompt or generated tokens"""
    for run in runs or []:
        other = {"n_prompt": "n_gen", "n_gen": "n_prompt"}[field]
        if run.get(field) and not run.get(other):
            return run.get("avg_ts")
    return None


def load_all(folder, pattern):
    return [load(folder, os.path.basename(path)) for path in
            sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))]


def conversions(folder):
    """{model: its conversion}, in the order of their ranks."""
    results = [conversion for result in load_all(folder, "convert-*.json")
               for conversion in result.get("conversions", [result])]
    results.sort(key=lambda result: at(result, "calibration", "mix_rank") or 0)
    return {os.path.basename(result["out"]): result for result in results}


def all_models(folder):
    """{model: its conversion, None of the dense one}; training changes what no
    figure of a conversion says."""
    models = {DENSE: None, **conversions(folder)}
    trained = load(folder, f"train-{RECOVERED}.json")
    if trained:
        models[RECOVERED] = models[os.path.basename(trained["model"])]
    return models


def title(model, conversion):
    if model in (DENSE, RECOVERED):
        return model
    rank = at(conversion, "calibration", "mix_rank")
    return f"STEM, rank {rank}" if rank else "STEM"


def rows(folder, models):
    evaluations = [load(folder, f"eval-{name}.json") for name in models]
    benches = {os.path.basename(measured.get("model", "")): measured
               for bench in load_all(folder, "bench-*.json")
               for measured in bench.get("models", [])}
    llama = load(folder, "llama-bench.json")
    measured = [benches.get(name) for name in models]
    for index, entry in enumerate(at(evaluations[0], "files") or []):
        name = os.path.basename(entry["file"])
        yield (f"perplexity, {name}",
               *(figure(at(result, "files", index, "perplexity"))
                 for result in evaluations), "")
    converted = [model for model in models.values() if model]
    for label, key in [("parameters", "parameters"),
                       ("FLOPs per token", "flops_per_token"),
                       ("bytes of weights", "bytes"),
                       ("bytes read per token", "bytes_read_per_token")]:
        yield (label, readable(at(converted, 0, "before", key)),
               *(readable(at(model, "after", key)) for model in converted), "")
    for label, key, field in [
            ("prefill, tokens per second", "prefill_tokens_per_second",
             "n_prompt"),
            ("decode, tokens per second", "decode_tokens_per_second", "n_gen")]:
        rate = llama_rate(llama, field)
        yield (label, *(figure(at(model, key), 1) for model in measured),
               figure(rate, 1) if rate else "")
    yield ("peak memory, bytes",
           *(readable(at(model, "peak_bytes")) for model in measured), "")
    trained = load(folder, f"train-{RECOVERED}.json")
    for label, key in [("tokens trained on", "tokens"),
                       ("seconds of training", "seconds")] if trained else []:
        yield (label, *(figure(trained[key] if name == RECOVERED else None, 0)
                        for name in models), "")


def texts(folder, models):
    for name, conversion in models.items():
        path = os.path.join(folder, f"generate-{name}.txt")
        if os.path.exists(path):
            with open(path) as file:
                yield title(name, conversion), file.read().strip()


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    folder = arguments[0]
    models = all_models(folder)
    table = [("", *(title(*model) for model in models.items()), "llama.cpp")]
    table += rows(folder, models)
    columns = len(table[0]) - (not any(row[-1] for row in table[1:]))
    widths = [max(len(row[c]) for row in table) for c in range(columns)]
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [row[c].rjust(widths[c]) for c in range(1, columns)]
        print("  ".join(cells).rstrip())
    for name, text in texts(folder, models):
        print(f"\n{name} writes:\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
