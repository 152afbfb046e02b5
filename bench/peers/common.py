# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the comparisons share: folders, stem-run, texts, and their results."""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
RESULTS = os.environ.get("STEM_PEERS_RESULTS",
                         os.path.join(ROOT, "build", "peers-results"))
GGUF = os.environ.get("STEM_SMOLLM2_GGUF", os.path.join(
    ROOT, "build/cache/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
GOLDEN = os.path.join(ROOT, "test", "data", "golden")
THREADS = 2


def arguments(description, speeds=False):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true",
                        help="shorter texts and prompts, fewer pairs")
    if speeds:
        parser.add_argument("--strict", action="store_true",
                            help="fail where a ratio is short of its bound")
    return parser


def command(*args, compiles=True):
    """A stem-run command line; compiled modules stay below the results."""
    line = [os.environ.get("STEM_RUN", "stem-run"), *map(str, args)]
    if compiles:
        line += ["--cache-dir", os.path.join(RESULTS, "compiled"),
                 f"--threads={THREADS}"]
    return line


def stem_run(*args, compiles=True):
    """Runs it with --json and returns its result."""
    line = command(*args, "--json", compiles=compiles)
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(line)}\nfailed ({done.returncode}):\n"
                 f"{done.stderr}")
    return json.loads(done.stdout)


def imported(dtype):
    """SmolLM2-135M out of the GGUF as a folder of this type."""
    folder = os.path.join(RESULTS, f"smollm2-{dtype}")
    if not os.path.exists(os.path.join(folder, "config.json")):
        stem_run("import", GGUF, folder, f"--dtype={dtype}", "--force",
                 compiles=False)
    return folder


CALIBRATION = [
    "--calibrate-tokens=8192", "--calibrate=" + os.path.join(
        ROOT, "models", "text", "king-james-genesis-exodus.txt")]


def converted(init):
    """The bf16 folder with tables in every third layer; "mixed": calibrated,
    with a low-rank term; "special": rare special tokens keep the matrix too."""
    folder = os.path.join(RESULTS, f"smollm2-{init}")
    options = {
        "mixed": [*CALIBRATION, "--mix-rank=16", "--dense-special-below=0"],
        "special": [*CALIBRATION, "--mix-rank=16"],
    }.get(init, [f"--init={init}"])
    if not os.path.exists(os.path.join(folder, "config.json")):
        stem_run("convert", imported("bf16"), folder, "--layers=1/3",
                 f"--threads={THREADS}", "--force", *options, compiles=False)
    return folder


def read_text(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return file.read()


def texts(size):
    """Three English texts of about `size` bytes: {name: path}."""
    sources = {
        "debian-policy": "/usr/share/doc/debian-policy/policy.txt.gz",
        "king-james": os.path.join(
            ROOT, "models/text/king-james-genesis-exodus.txt"),
        "gpl-3": "/usr/share/common-licenses/GPL-3",
        "gpl-2": "/usr/share/common-licenses/GPL-2",
    }
    os.makedirs(os.path.join(RESULTS, "text"), exist_ok=True)
    chosen = {}
    for name, source in sources.items():
        if len(chosen) == 3 or not os.path.exists(source):
            continue
        text = read_text(source)
        # Past the table of contents.
        start = re.search(r"^1\. About this manual", text, re.MULTILINE)
        text = text[start.start() if start else 0:][:size]
        path = os.path.join(RESULTS, "text", f"{name}.txt")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        chosen[name] = path
    return chosen


class Results:
    """Figures with their bounds; written as one JSON file and printed."""

    def __init__(self, name):
        self.name = name
        self.rows = []

    def add(self, what, value, bound=None, passed=None, how=None, **more):
        """`bound` is text; `passed` is None for a figure without one."""
        self.rows.append({"what": what, "value": value, "bound": bound,
                          "passed": passed, "how": how, **more})
        mark = {None: "", True: "  ok", False: "  MISSED"}[passed]
        limit = f"  ({bound})" if bound else ""
        print(f"{what}: {shown(value)}{limit}{mark}", flush=True)

    def write(self, **more):
        path = os.path.join(RESULTS, f"{self.name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schema": f"stem.peers.{self.name}/1", **more,
                       "rows": self.rows}, file, indent=2)
        return all(row["passed"] is not False for row in self.rows)


def shown(value):
    return f"{value:.5g}" if isinstance(value, float) else str(value)
