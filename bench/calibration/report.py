#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the results of run.py as a Markdown table."""

import sys

import common
from run import current_results

HEAD = ["configuration", "seed", *common.REGISTERS, "ratio (95 %)",
        "kjv ratio", "judge ratio", "judge kjv", "FLOPs saved",
        "of the replaced", "folder, GB",
        "MB a token", "minutes"]


def flops_per_token(entry):
    """Tokens whose ids keep the matrix as often as in the text to check."""
    after = entry["after"]
    share = entry["calibration"].get("selected_share", 0)
    return (after["flops_per_token"] * (1 - share)
            + after.get("flops_per_selected_token", 0) * share)


def cost_cells(entry, dense):
    """FLOPs saved in the model's linear layers and of the up-projections that
    were replaced (none where whole blocks went), sizes and time."""
    before, after = entry["before"], entry["after"]
    saved = before["flops_per_token"] - flops_per_token(entry)
    up = 2 * dense["hidden_size"] * dense["intermediate_size"]
    return [f"{100 * saved / before['flops_per_token']:.1f} %",
            (f"{100 * saved / (up * len(entry['layers'])):.0f} %"
             if entry["layers"] else ""),
            f"{entry['folder_bytes'] / 1e9:.2f}",
            f"{after['bytes_read_per_token'] / 1e6:.1f}",
            f"{entry['seconds'] / 60:.1f}"]


def ratio_cells(losses, bootstrap):
    return ["{:.4g} ({:.4g} to {:.4g})".format(
        *bootstrap.ratio(losses, registers))
            for registers in (common.IN_DOMAIN, ("kjv",))]


def main():
    results = current_results()
    dense = results.get(("dense", 0))
    if dense is None:
        sys.exit("no result of the dense model; "
                 "run bench/calibration/run.py MODEL first")
    bootstrap = common.Bootstrap(dense["losses"])
    judge = common.Bootstrap(dense["judge"]) if "judge" in dense else None
    print("| " + " | ".join(HEAD) + " |")
    print("|" + " --- |" * len(HEAD))
    for (name, seed), entry in results.items():
        losses = entry.get("losses")
        cells = [name, str(seed)] + [
            f"{common.perplexity(losses[register]):.5g}" if losses else ""
            for register in common.REGISTERS]
        if name == "dense":
            cells += ["1", "1", "1", "1", "", "",
                      f"{entry['folder_bytes'] / 1e9:.2f}", "", ""]
        else:
            cells += ratio_cells(losses, bootstrap) if losses else ["", ""]
            cells += (ratio_cells(entry["judge"], judge)
                      if judge and "judge" in entry else ["", ""])
            cells += cost_cells(entry, dense)
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
