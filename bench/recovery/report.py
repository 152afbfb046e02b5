#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the results of run.py as Markdown tables."""

import sys

from run import common, read_results


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def interval(bootstrap, losses, registers):
    return "{:.4g} ({:.4g} to {:.4g})".format(
        *bootstrap.ratio(losses, registers))


def search_rows(results):
    for (name, _), entry in results.items():
        if "losses" in entry:
            continue
        first, last = entry["curve"][0], entry["curve"][-1]
        yield [name, f"{first[3]:.4g}", f"{last[3]:.4g}",
               f"{last[2] / 60:.1f}", f"{entry['peak_bytes'] / 1e9:.1f}"]


def final_rows(results, bootstrap):
    """Against the dense model as it was, and as trained on the same tokens."""
    for (name, seed), entry in results.items():
        if "losses" not in entry:
            continue
        trained = results.get(("recovered dense", seed))
        other = common.Bootstrap(trained["losses"]) if trained else None
        yield [name, str(seed),
               *(f"{common.perplexity(entry['losses'][register]):.5g}"
                 for register in common.REGISTERS),
               interval(bootstrap, entry["losses"], common.IN_DOMAIN),
               interval(bootstrap, entry["losses"], ("kjv",)),
               (interval(other, entry["losses"], common.IN_DOMAIN)
                if other else ""),
               f"{entry['tokens']:,}", f"{entry['seconds'] / 60:.1f}",
               f"{entry['peak_bytes'] / 1e9:.1f}"]


def curve_rows(results):
    for (name, seed), entry in results.items():
        if "losses" in entry:
            for _, tokens, seconds, perplexity in entry["curve"]:
                yield [name, str(seed), f"{tokens:,}", f"{seconds / 60:.1f}",
                       f"{perplexity:.4g}"]


def main():
    digest = common.texts_digest()
    dense = common.read_results(digest).get(("dense", 0))
    if dense is None:
        sys.exit("no result of the dense model; "
                 "run bench/calibration/run.py MODEL --only=^dense$ first")
    results = read_results(digest)
    table(["configuration", "perplexity before (validation)", "after",
           "minutes of steps", "peak, GB"], search_rows(results))
    table(["configuration", "seed", *common.REGISTERS, "ratio to dense",
           "kjv ratio", "ratio to dense on the same tokens", "tokens",
           "minutes", "peak, GB"],
          final_rows(results, common.Bootstrap(dense["losses"])))
    table(["configuration", "seed", "tokens", "minutes of steps",
           "validation perplexity"], curve_rows(results))


if __name__ == "__main__":
    main()
