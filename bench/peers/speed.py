#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prefill and decode of a model of SmolLM2-135M's shape, stem-run and PyTorch
measured in turns: each side is a process that waits to be told when to run.

The ratio of a pair is the other side's time by ours; quoted are the median of
the pairs and its 95 % interval from order statistics."""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import common

sys.path.append(os.path.join(common.ROOT, "bench"))
from order_statistics import interval  # noqa: E402

STEM_LAYERS = ",".join(str(layer) for layer in range(2, 30, 3))
DECODE_TOKENS = 32
# Both OpenMP runtimes spin after a parallel region, this one's 0.2 s; the next
# side starts when they sleep.
SETTLE_SECONDS = 0.3
LEAST_PAIRS = 6  # fewer have no 95 % interval


class Side:
    """A process that measures once for each line that it is sent."""

    def __init__(self, name, line):
        self.name = name
        self.seconds = {"prefill": [], "decode": []}
        environment = dict(os.environ, OMP_NUM_THREADS=str(common.THREADS))
        for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
            environment.pop(variable, None)
        log = os.path.join(common.RESULTS, f"speed-{name}.log")
        self.log = open(log, "w", encoding="utf-8")
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True, env=environment)

    def ask(self, what):
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            sys.exit(f"{self.name} ended: see {self.log.name}")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended: see {self.log.name}")
        return json.loads(line)["seconds"]

    def measure(self, what):
        self.ask(what)
        seconds = self.answer()
        time.sleep(SETTLE_SECONDS)
        return seconds

    def close(self):
        """What it prints at the end of its input."""
        rest, _ = self.process.communicate()
        self.log.close()
        if self.process.returncode != 0:
            sys.exit(f"{self.name} failed: see {self.log.name}")
        return rest


def our_side(name, folder, plan):
    return Side(name, common.command(
        "bench", folder, "--paced", "--json", f"--dtype={plan.dtype}",
        f"--prompt-tokens={plan.prompt}", f"--decode-tokens={DECODE_TOKENS}"))


def torch_side(name, stem, plan, *options):
    here = os.path.dirname(os.path.abspath(__file__))
    return Side(name, [
        sys.executable, os.path.join(here, "torch_worker.py"),
        f"--dtype={plan.dtype}",
        f"--stem-layers={STEM_LAYERS if stem else ''}",
        f"--prompt-tokens={plan.prompt}", f"--decode-tokens={DECODE_TOKENS}",
        f"--threads={common.THREADS}", *options])


def clock():
    return time.strftime("%H:%M:%S")


@dataclass
class Plan:
    """One type: how much to measure, and for how many seconds at most once
    there are pairs enough for an interval."""
    dtype: str
    prompt: int
    pairs: int
    prefill_seconds: float
    decode_seconds: float


def measure_in_turns(what, sides, pairs, seconds):
    """Once untimed each, all at a time, for compiling; once untimed in turn;
    then rounds through all sides."""
    for side in sides:
        side.ask(what)
    for side in sides:
        side.answer()
    print(f"{what}: started, {clock()}", flush=True)
    for side in sides:
        side.measure(what)
    start = time.monotonic()
    for pair in range(pairs):
        spent = time.monotonic() - start
        if pair >= LEAST_PAIRS and spent > seconds:
            break
        for side in sides:
            side.seconds[what].append(side.measure(what))
    print(f"{what}: {len(sides[0].seconds[what])} rounds of "
          f"{', '.join(side.name for side in sides)}, {clock()}", flush=True)


def add_ratio(results, what, ours, theirs, tokens, target=None, share=None):
    """`target` is a ratio, `share` (name, value, bound) what may be reached in
    its place; where its bound is None, it is there for information."""
    kind = what.split()[0]
    pairs = [b / a for a, b in zip(ours.seconds[kind], theirs.seconds[kind])]
    ratio = statistics.median(pairs)
    bound, met = None, None
    if target:
        bound, met = f"at least {target}", ratio >= target
        if share and share[2]:
            bound += f", or {share[2]:.0%} of the {share[0]}"
            met = met or share[1] >= share[2]
    results.add(
        what, ratio, bound, met, "bench/peers/speed.py",
        interval=interval(pairs), pairs=len(pairs),
        our_tokens_per_second=tokens / statistics.median(ours.seconds[kind]),
        their_tokens_per_second=tokens
        / statistics.median(theirs.seconds[kind]),
        **({"share_of": share[0], "share": share[1]} if share else {}))


def start_sides(plan):
    """Dense and STEM: ours, eager and (bf16) compiled."""
    models = {"dense": common.imported("bf16"),
              "stem": common.converted("row-mean")}
    ours, eager, compiled = {}, {}, {}
    for name, folder in models.items():
        stem = name == "stem"
        ours[name] = our_side(f"ours-{name}-{plan.dtype}", folder, plan)
        # Alone: it measures the machine when it starts.
        ours[name].measure("prefill")
        eager[name] = torch_side(f"eager-{name}-{plan.dtype}", stem, plan)
        if plan.dtype == "bf16":
            compiled[name] = torch_side(f"compiled-{name}-{plan.dtype}", stem,
                                        plan, "--compile")
    return ours, eager, compiled


def compare(results, plan):
    ours, eager, compiled = start_sides(plan)
    measure_in_turns("prefill", [group[name] for name in ours
                                 for group in (ours, compiled, eager)
                                 if name in group],
                     plan.pairs, plan.prefill_seconds)
    measure_in_turns("decode", [group[name] for name in ours
                                for group in (ours, eager)],
                     plan.pairs, plan.decode_seconds)
    for side in (*eager.values(), *compiled.values()):
        side.close()
    # It measures the machine again at the end, alone.
    reports = {name: json.loads(side.close()) for name, side in ours.items()}

    dtype, prompt = plan.dtype, plan.prompt
    for name in ours:
        model = reports[name]["models"][0]
        matrix = model["prefill_share_of_matrix_rate"]
        if dtype == "bf16":
            add_ratio(results, f"prefill {prompt} bf16 {name} / compiled",
                      ours[name], compiled[name], prompt, 1.6,
                      ("matrix rate", matrix, 0.8))
            add_ratio(results, f"prefill {prompt} bf16 {name} / eager",
                      ours[name], eager[name], prompt)
        else:
            add_ratio(results, f"prefill {prompt} f32 {name} / eager",
                      ours[name], eager[name], prompt, 1.15,
                      ("matrix rate", matrix, 0.9))
        read = model["decode_share_of_read_bandwidth"]
        add_ratio(results, f"decode {dtype} {name} / eager", ours[name],
                  eager[name], DECODE_TOKENS, 2 if dtype == "bf16" else None,
                  ("read bandwidth", read, 0.8))
    add_ratio(results, f"prefill {prompt} {dtype} our STEM / our dense",
              ours["stem"], ours["dense"], prompt)
    return reports


def main():
    args = common.arguments(__doc__, speeds=True).parse_args()
    results = common.Results("speed")
    prompt, pairs = (512, LEAST_PAIRS) if args.quick else (2048, 15)
    reports, met = {}, True
    for plan in (Plan("bf16", prompt, pairs, 240, 60),
                 Plan("f32", prompt, pairs, 150, 90)):
        reports[plan.dtype] = compare(results, plan)
        # What there is stays, should the next one be stopped.
        met = results.write(bench=reports)
    sys.exit(1 if args.strict and not met else 0)


if __name__ == "__main__":
    main()
