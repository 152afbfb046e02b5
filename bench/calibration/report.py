#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the results of run.py as a Markdown table."""

import sys

import common

HEAD = ["configuration", "seed", *common.REGISTERS, "ratio (95 %)",
        "kjv ratio", "FLOPs saved", "of the replaced", "folder, GB",
        "MB a token", "minutes"]


def cost_cells(entry, dense):
    """FLOPs saved in the model's linear layers and of the up-projections that
    were replaced (none where whole blocks went), sizes and time."""
    before, after = entry["before"], entry["after"]
    saved = before["flops_per_token"] - after["flops_per_token"]
    up = 2 * dense["hidden_size"] * dense["intermediate_size"]
    return [f"{100 * saved / before['flops_per_token']:.1f} %",
            (f"{100 * saved / (up * len(entry['layers'])):.0f} %"
             if entry["layers"] else ""),
            f"{entry['folder_bytes'] / 1e9:.2f}",
            f"{after['bytes_read_per_token'] / 1e6:.1f}",
            f"{entry['seconds'] / 60:.1f}"]


def main():
    results = common.read_results(common.texts_digest())
    dense = results.get(("dense", 0))
    if dense is None:
        sys.exit("no result of the dense model; "
                 "run bench/calibration/run.py MODEL first")
    bootstrap = common.Bootstrap(dense["losses"])
    print("| " + " | ".join(HEAD) + " |")
    print("|" + " --- |" * len(HEAD))
    for (name, seed), entry in results.items():
        losses = entry["losses"]
        cells = [name, str(seed)] + [
            f"{common.perplexity(losses[register]):.5g}"
            for register in common.REGISTERS]
        if name == "dense":
            cells += ["1", "1", "", "",
                      f"{entry['folder_bytes'] / 1e9:.2f}", "", ""]
        else:
            ratio, low, high = bootstrap.ratio(losses, common.IN_DOMAIN)
            cells += [f"{ratio:.4g} ({low:.4g} to {high:.4g})",
                      "{:.4g} ({:.4g} to {:.4g})".format(
                          *bootstrap.ratio(losses, ("kjv",)))]
            cells += cost_cells(entry, dense)
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
