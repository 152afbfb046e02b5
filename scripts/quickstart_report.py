#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the models of quickstart.sh side by side: the dense one, the STEM one,
and the STEM one with a low-rank map beside its rows.

usage: quickstart_report.py FOLDER

Reads what stem-run wrote with --json: eval-dense.json, eval-stem.json,
eval-stem-rank.json, convert-stem.json, convert-stem-rank.json, bench.json,
bench-rank.json, and llama-bench.json where llama.cpp is installed; and the
generated texts generate-*.txt. A figure that is not in them is shown as '-'.
"""

import json
import os
import sys

MODELS = ["dense", "stem", "stem-rank"]
TITLES = ["dense", "STEM", "STEM, low rank"]
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


def rows(folder):
    evaluations = [load(folder, f"eval-{name}.json") for name in MODELS]
    stem, rank = (load(folder, f"convert-{name}.json") for name in MODELS[1:])
    bench, other = load(folder, "bench.json"), load(folder, "bench-rank.json")
    llama = load(folder, "llama-bench.json")
    measured = [at(bench, "models", 0), at(bench, "models", 1),
                at(other, "models", 0)]
    for index, entry in enumerate(at(evaluations[0], "files") or []):
        name = os.path.basename(entry["file"])
        yield (f"perplexity, {name}",
               *(figure(at(result, "files", index, "perplexity"))
                 for result in evaluations), "")
    for label, key in [("parameters", "parameters"),
                       ("FLOPs per token", "flops_per_token"),
                       ("bytes of weights", "bytes"),
                       ("bytes read per token", "bytes_read_per_token")]:
        yield (label, readable(at(stem, "before", key)),
               readable(at(stem, "after", key)),
               readable(at(rank, "after", key)), "")
    for label, key, field in [
            ("prefill, tokens per second", "prefill_tokens_per_second",
             "n_prompt"),
            ("decode, tokens per second", "decode_tokens_per_second", "n_gen")]:
        rate = llama_rate(llama, field)
        yield (label, *(figure(at(model, key), 1) for model in measured),
               figure(rate, 1) if rate else "")
    yield ("peak memory, bytes",
           *(readable(at(model, "peak_bytes")) for model in measured), "")


def texts(folder):
    for name, title in zip(MODELS, TITLES):
        path = os.path.join(folder, f"generate-{name}.txt")
        if os.path.exists(path):
            with open(path) as file:
                yield title, file.read().strip()


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    table = [("", *TITLES, "llama.cpp")] + list(rows(arguments[0]))
    columns = 5 if any(row[4] for row in table[1:]) else 4
    widths = [max(len(row[c]) for row in table) for c in range(columns)]
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [row[c].rjust(widths[c]) for c in range(1, columns)]
        print("  ".join(cells).rstrip())
    for title, text in texts(arguments[0]):
        print(f"\n{title} writes:\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
