# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders, stem-run, results, and the paired bootstrap."""

import hashlib
import json
import math
import os
import random
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
FOLDER = os.environ.get("STEM_CALIBRATION",
                        os.path.join(ROOT, "build", "calibration"))
IN_DOMAIN = ("faq", "pydoc", "wordnet")
REGISTERS = IN_DOMAIN + ("kjv",)
RESAMPLES = 2000


class Failed(Exception):
    """A program gave an error; the message is what it printed."""


def text_path(register, part):
    return os.path.join(FOLDER, f"{register}.{part}.jsonl")


def text(register, part):
    path = text_path(register, part)
    if not os.path.exists(path):
        sys.exit(f"{path}: not there; run bench/calibration/prepare.py first")
    return path


def stem_run(*arguments):
    """Runs it with --json and returns its result."""
    return run_program(os.environ.get("STEM_RUN", "stem-run"), *arguments,
                       "--json")


def compressed_dense(*arguments):
    """The program of bench/compressed_dense, which lies beside stem-run."""
    folder = os.path.dirname(os.environ.get("STEM_RUN", ""))
    return run_program(os.path.join(folder, "compressed_dense"), *arguments)


def run_program(*line):
    """The JSON that it prints."""
    done = subprocess.run([*map(str, line)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        errors = [part for part in done.stderr.splitlines()
                  if part.startswith("error") or "not expected" in part]
        raise Failed(" ".join(errors) or done.stderr[-500:])
    return json.loads(done.stdout)


def digest_of(paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def texts_digest():
    """Of the texts' content: results on other texts are not mixed in."""
    return digest_of(text(register, part) for register in REGISTERS
                     for part in ("fit", "held")
                     if part == "held" or register in IN_DOMAIN)


def judge_digest():
    """The same of the documents to judge by; None where one is not there."""
    paths = [text_path(register, "judge") for register in REGISTERS]
    return digest_of(paths) if all(map(os.path.exists, paths)) else None


def results_path():
    return os.path.join(FOLDER, "results.jsonl")


def read_results(digest, path=None):
    """The last result of each name and seed, without losses of other documents
    to judge by. One that does not say which they were counts."""
    path = path or results_path()
    results, judge = {}, judge_digest()
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                entry = json.loads(line)
                if entry.get("judge_texts", judge) != judge:
                    entry.pop("judge", None)
                if entry["texts"] == digest:
                    results[entry["name"], entry["seed"]] = entry
    return results


def losses(model, part="held"):
    """(tokens, nll) of every document of the part, by register."""
    result = stem_run("eval", model,
                      *(f"--text={text(r, part)}" for r in REGISTERS))
    return {register: [(document["tokens"], document["nll"])
                       for document in file["documents"]]
            for register, file in zip(REGISTERS, result["files"])}


def perplexity(documents):
    return math.exp(sum(nll for _, nll in documents)
                    / sum(tokens for tokens, _ in documents))


def mean_difference(model, dense, drawn):
    tokens = difference = 0
    for i in drawn:
        tokens += model[i][0]
        difference += model[i][1] - dense[i][1]
    return difference / tokens


class Bootstrap:
    """Documents are drawn within their register, the same for every model."""

    def __init__(self, dense):
        self.dense = dense
        generator = random.Random(0)
        self.draws = {
            register: [generator.choices(range(len(documents)),
                                         k=len(documents))
                       for _ in range(RESAMPLES)]
            for register, documents in dense.items()}

    def ratio(self, model, registers):
        """Geometric mean of the registers' perplexity ratios, and its 95 %
        interval."""
        def of(draw):
            return math.exp(sum(
                mean_difference(model[r], self.dense[r], draw(r))
                for r in registers) / len(registers))
        values = sorted(of(lambda r, i=i: self.draws[r][i])
                        for i in range(RESAMPLES))
        ends = []
        for share in (0.025, 0.975):
            place = share * (RESAMPLES - 1)
            low = int(place)
            ends.append(values[low] + (place - low)
                        * (values[low + 1] - values[low]))
        return of(lambda r: range(len(self.dense[r]))), ends[0], ends[1]
