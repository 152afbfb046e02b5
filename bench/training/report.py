#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the results of this machine as tables in Markdown."""

import sys

import common
from configurations import CONFIGURATIONS
from order_statistics import median


def gigabytes(value):
    return f"{value / 1e9:.2f} GB"


def seconds(values):
    return f"{median(values):.3f} s"


def ratio(result):
    # Few pairs have none.
    ends = result["ratio"]["interval"]
    return f"{result['ratio']['median']:.2f}" + (
        f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else "")


def flops(end):
    return (end["plan"]["linear_flops_per_step"]
            + end["plan"]["attention_flops_per_step"])


def planned(end):
    return end["plan"]["memory"]["total"]


def row_state(end):
    return end["plan"]["memory"]["row_moments"]


def table(head, rows):
    print("\n| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def speed(results):
    print("\n### A step, in turns with PyTorch's\n")
    print("Ratio: PyTorch's time over ours. Share: FLOPs of the linear layers "
          "and of causal attention in the time of a step less that of the row "
          "optimizers and of packing new weights (AdamW on dense weights is "
          "part of the step), over the rate of the matrix kernels on tiles in "
          "the cache, and over that of a large product.")
    rows = []
    for result in results:
        ours, other = result["ours"], result["other"]
        end = ours["end"]
        rows.append([
            result["name"], ratio(result), seconds(ours["seconds"]),
            seconds(other["seconds"]),
            f"{end['share_of_matrix_rate']:.0%}, "
            f"{end['share_of_product_rate']:.0%}",
            gigabytes(end["peak_bytes"]),
            gigabytes(other["end"]["peak_bytes"]),
            f"{end['compile_seconds_cold']:.1f} s, "
            f"{end['first_step_seconds']:.1f} s",
            f"{other['first_step_seconds']:.1f} s"])
    table(["measured", "ratio", "ours", "PyTorch", "share", "our peak",
           "its peak", "compiled, first step after", "its first step after"],
          rows)


def dense(results):
    print("\n### STEM against our dense model\n")
    print("Ratio: the dense model's time over STEM's, beside that of the "
          "counted FLOPs.")
    rows = []
    for result in results:
        ours, other = result["ours"]["end"], result["other"]["end"]
        rows.append([
            result["name"], ratio(result), f"{flops(other) / flops(ours):.3f}",
            seconds(result["ours"]["seconds"]),
            seconds(result["other"]["seconds"]),
            gigabytes(ours["peak_bytes"]), gigabytes(other["peak_bytes"])])
    table(["measured", "time", "FLOPs", "STEM", "dense", "STEM's peak",
           "dense peak"], rows)


def rows(results):
    print("\n### Modes of row optimizers\n")
    lines = []
    for result in results:
        end = result["ours"]["end"]
        lines.append([
            result["name"], seconds(result["ours"]["seconds"]),
            f"{1e3 * median(end['row_optimizer_seconds']):.1f} ms",
            f"{1e3 * median(end['dense_optimizer_seconds']):.1f} ms",
            gigabytes(row_state(end)), gigabytes(planned(end)),
            gigabytes(end["step_peak_bytes"])])
    table(["measured", "step", "rows", "packing weights", "row moments",
           "planned", "peak"], lines)


def optimizers(results):
    print("\n### Row optimizers alone, in turns with AdamW over the whole "
          "table\n")
    lines = []
    for result in results:
        for line in result["lines"]:
            lines.append([
                f"{line['mode']}, {line['touched']} of {line['rows']} rows "
                f"x {line['columns']}",
                f"{line['milliseconds']:.1f} ms",
                f"{line['dense_milliseconds']:.1f} ms",
                f"{line['ratio']:.1f} ({line['ratio_low']:.1f} to "
                f"{line['ratio_high']:.1f})",
                f"{line['state_bytes'] / 1e6:.1f} MB",
                f"{line['dense_state_bytes'] / 1e6:.1f} MB"])
    table(["mode", "a step", "AdamW", "ratio", "state", "AdamW's"], lines)


def memory(results):
    """What is planned grows by the same bytes with each sequence."""
    print("\n### Memory of many tokens\n")
    lines = []
    sizes = {}
    for result in results:
        end = result["ours"]["end"]
        model = result["name"].rsplit(" ", 4)[0]
        sizes.setdefault(model, []).append((result["batch"], planned(end)))
        lines.append([
            result["name"], seconds(result["ours"]["seconds"]),
            gigabytes(planned(end)), gigabytes(end["step_peak_bytes"])])
    table(["measured", "step", "planned", "peak"], lines)
    lines = []
    for model, points in sizes.items():
        if len(points) < 2:
            continue
        (small, less), (large, more) = sorted(points)[0], sorted(points)[-1]
        each = (more - less) / (large - small)
        most = [int((limit * 1e9 - less) / each + small)
                for limit in (8, 16, 64)]
        lines.append([model, f"{each / 1e6:.0f} MB", *map(str, most)])
    if lines:
        table(["model", "a sequence of 512", "sequences that 8 GB hold",
               "16 GB", "64 GB"], lines)


def plan(results):
    print("\n### Planned and measured\n")
    lines = []
    for result in results:
        end = result["ours"]["end"]
        lines.append([
            result["name"], seconds(result["ours"]["seconds"]),
            gigabytes(planned(end)), gigabytes(end["step_peak_bytes"]),
            gigabytes(end["base_bytes"]),
            f"{end['step_peak_bytes'] / planned(end):.3f}"])
    table(["measured", "step", "planned", "peak", "before it was loaded",
           "peak / planned"], lines)


TABLES = {"speed": speed, "dense": dense, "rows": rows,
          "optimizers": optimizers, "memory": memory, "plan": plan}


def main():
    results = common.read_results()
    if not results:
        print(f"{common.results_path()}: no result of this machine; run "
              "bench/training/run.py", file=sys.stderr)
        return 1
    here = common.machine()
    versions = sorted({result["other"]["end"]["torch"]
                       for result in results.values()
                       if "torch" in result.get("other", {}).get("end", {})})
    days = sorted({result["date"] for result in results.values()})
    print(f"{' '.join(days)}, {here['cpu']}, {here['cores']} cores, "
          f"{' '.join(here['isa'])}, torch {' '.join(versions) or 'not used'}")
    for name, show in TABLES.items():
        chosen = [results[c.name] for c in CONFIGURATIONS
                  if c.table == name and c.name in results]
        if chosen:
            show(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
