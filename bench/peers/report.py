#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Joins the results of the comparisons into results.json, with the machine they
ran on, and prints them as a table in Markdown."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys

import common

PARTS = ("accuracy", "modeling", "speed", "llama")
# Instruction sets that decide which kernels run.
NOTED_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def processor():
    model, flags = platform.processor(), set()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
    return model, [flag for flag in NOTED_FLAGS if flag in flags]


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(load_before):
    model, flags = processor()
    commit = subprocess.run(["git", "-C", common.ROOT, "rev-parse", "--short",
                             "HEAD"], capture_output=True, text=True)
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip() or None,
        "machine": {"cpu": model, "cores": os.cpu_count(), "isa": flags,
                    "load_average_before": load_before},
        "versions": {"python": platform.python_version(),
                     **{package: version(package) for package in
                        ("torch", "transformers", "numpy",
                         "llama-cpp-python")}},
    }


def value_text(row):
    text = common.shown(row["value"])
    if row.get("interval"):
        text += " ({:.3g} to {:.3g})".format(*row["interval"])
    return text


def beside_text(row):
    """The two figures that a ratio or a difference is made of."""
    if "our_tokens_per_second" in row:
        text = (f"{row['our_tokens_per_second']:.5g} against "
                f"{row['their_tokens_per_second']:.5g} tokens/s")
        if "share" in row:
            text += f"; {row['share']:.0%} of the {row['share_of']}"
        return text
    if "transformers" in row:
        text = f"{row['ours']:.6g} against {row['transformers']:.6g}"
        return text + (f" and llama.cpp's {row['llama']:.6g}"
                       if "llama" in row else "")
    return ""


def main():
    load_before = float(sys.argv[1]) if len(sys.argv) > 1 else None
    result = {"schema": "stem.peers/1", **describe(load_before)}
    for part in PARTS:
        path = os.path.join(common.RESULTS, f"{part}.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                result[part] = json.load(file)
    with open(os.path.join(common.RESULTS, "results.json"), "w",
              encoding="utf-8") as file:
        json.dump(result, file, indent=2)

    machine = result["machine"]
    print(f"\n{result['date']}, {machine['cpu']}, {machine['cores']} cores, "
          f"{' '.join(machine['isa'])}, commit {result['commit']}, "
          f"torch {result['versions']['torch']}, "
          f"transformers {result['versions']['transformers']}")
    if load_before is not None and load_before > 0.5:
        print(f"The load average was {load_before} before the first run: the "
              "machine was not quiet, and its speeds say little.")
    marks = {None: "", True: "yes", False: "**no**"}
    print("\n| measured | value | bound | met | beside it |")
    print("| --- | --- | --- | --- | --- |")
    for part in PARTS:
        for row in result.get(part, {}).get("rows", []):
            print(f"| {row['what']} | {value_text(row)} | "
                  f"{row['bound'] or ''} | {marks[row['passed']]} | "
                  f"{beside_text(row)} |")


if __name__ == "__main__":
    main()
