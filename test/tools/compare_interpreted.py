# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a compiled entry with the interpreter.

usage: compare_interpreted.py MODULE.mlir PROGRAM ENTRY TOKENS SEQUENCES
                              TOLERANCE [HEADS HEAD_DIM DTYPE]

PROGRAM is Inputs/run_host.c of test/Transforms with the compiled module. Runs
it on one and on two threads, and prints the largest difference, relative to
the larger of one and the magnitude of the reference.
"""

import subprocess
import sys


def interpreted(module, entry, tokens, sequences):
    text = subprocess.run(
        ["stem-opt", module, "-o", "/dev/null",
         f"--stem-interpret=stem-function={entry} stem-tokens={tokens} "
         f"stem-sequences={sequences} stem-id-bound={min(16, int(tokens))} "
         "stem-print=full"],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [l for l in text.splitlines() if not l.lstrip().startswith(
        ("@", "result"))]
    return [float(word) for line in lines for word in line.split()]


def main():
    module, program, entry, tokens, sequences, tolerance = sys.argv[1:7]
    wanted = interpreted(module, entry, tokens, sequences)
    largest = 0.0
    for threads in ("1", "2"):
        output = subprocess.run(
            [program, entry, tokens, sequences, threads] + sys.argv[7:],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        seen = [float(word) for word in output.split()]
        if len(seen) != len(wanted):
            sys.exit(f"{entry}: {len(seen)} values, expected {len(wanted)}")
        for index, (a, b) in enumerate(zip(seen, wanted)):
            difference = abs(a - b) / max(1.0, abs(b))
            # Written so that NaN fails.
            if not difference <= float(tolerance):
                sys.exit(f"{entry}: element {index}: {a}, expected {b}")
            largest = max(largest, difference)
    print(f"{entry}: {len(wanted)} values agree, largest difference "
          f"{largest:.1e}")


if __name__ == "__main__":
    main()
