#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the configurations that have no result yet.

Each result is a line of results.jsonl, written when it is complete; a run that
was ended goes on from there. Two programs take turns, A B A B, one step each,
and neither runs while the other does."""

import argparse
import datetime
import json
import os
import re
import sys

import common
from configurations import CONFIGURATIONS, SHAPES, config
from order_statistics import interval, median


def write_config(shape, which):
    folder = os.path.join(common.FOLDER, "models")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{shape}-{which}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config(SHAPES[shape], which), file, indent=2)
    return path


def start(program, configuration):
    batch, length = configuration.batch_of()
    path = write_config(configuration.shape, program.stem)
    make = common.torch_side if program.peer else common.our_side
    return make(program, path, configuration.dtype, batch, length)


def side_result(side, answers, end):
    return {"name": side.name,
            "seconds": [answer["seconds"] for answer in answers],
            "first_step_seconds": side.first,
            "answers": answers, "end": end}


def measure_rows(configuration, pairs):
    """Optimizers alone, on one table of the model."""
    shape = SHAPES[configuration.shape]
    batch, length = configuration.batch_of()
    return {"lines": common.run_lines(
        configuration.program, shape.vocab, shape.intermediate, batch * length,
        pairs)}


def measure(configuration, pairs):
    """Two programs in turns, or one alone."""
    if configuration.program:
        return measure_rows(configuration, pairs)
    common.require_memory(configuration.gigabytes)
    sides = []
    try:
        # One after the other: each compiles alone.
        for program in filter(None, (configuration.ours, configuration.other)):
            sides.append(start(program, configuration))
            sides[-1].begin()
        rounds = pairs
        if not configuration.other and configuration.steps:
            rounds = min(configuration.steps, pairs)
        answers = [[] for _ in sides]
        for _ in range(rounds):
            for side, list_of in zip(sides, answers):
                list_of.append(side.step())
        result = {}
        for key in ("ours", "other"):
            if sides:
                side = sides.pop(0)
                end = side.close()
                result[key] = side_result(side, answers.pop(0), end)
    finally:
        for side in sides:
            side.end()
    if "other" in result:
        ratios = [other / ours for ours, other in
                  zip(result["ours"]["seconds"], result["other"]["seconds"])]
        result["ratio"] = {"median": median(ratios),
                           "interval": interval(ratios),
                           "pairs": len(ratios)}
    return result


def wanted(options):
    return [c for c in CONFIGURATIONS if re.search(options.only, c.name)
            and (not options.table or c.table == options.table)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="REGEX", default="",
                        help="the configurations whose name this matches")
    parser.add_argument("--table", help="those of this table of the report")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--again", action="store_true",
                        help="those that have a result too")
    parser.add_argument("--list", action="store_true",
                        help="name, table and minutes, and measure nothing")
    options = parser.parse_args()
    chosen = wanted(options)
    if options.list:
        for c in chosen:
            print(f"{c.table:8} {c.minutes:4g} min  {c.name}")
        print(f"{sum(c.minutes for c in chosen):g} minutes in all")
        return 0
    os.makedirs(common.FOLDER, exist_ok=True)
    done = common.read_results()
    failed = False
    for c in chosen:
        if c.name in done and not options.again:
            continue
        load = common.warn_of_load()
        print(f"{c.name}, {datetime.datetime.now():%H:%M:%S}",
              file=sys.stderr, flush=True)
        try:
            result = measure(c, options.pairs)
        except common.Failed as error:
            print(f"  failed: {error}", file=sys.stderr)
            failed = True
            continue
        batch, length = c.batch_of()
        common.add_result({
            "name": c.name, "table": c.table, "shape": c.shape,
            "dtype": c.dtype, "batch": batch, "length": length,
            "machine": common.machine(), "commit": common.commit(),
            "date": datetime.date.today().isoformat(),
            "load_average_before": load, **result})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
