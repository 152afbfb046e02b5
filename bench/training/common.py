# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders, the machine, and processes that take a step when they are asked to."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
FOLDER = os.environ.get("STEM_TRAINING_BENCH",
                        os.path.join(ROOT, "build", "training-bench"))
STEM_RUN = os.environ.get("STEM_RUN", "stem-run")
PYTHON = os.environ.get("STEM_TORCH_PYTHON", os.path.join(
    os.environ.get("STEM_PEERS_VENV", os.path.join(ROOT, "build",
                                                   "peers-venv")),
    "bin", "python"))
THREADS = 2
sys.path.append(os.path.join(ROOT, "bench"))  # order_statistics
# The threads of the side before go to sleep.
SETTLE_SECONDS = 0.3


class Failed(Exception):
    """A program ended; the message is the end of what it printed."""


def machine():
    model, flags = platform.processor(), set()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
    noted = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
             if flag in flags]
    return {"cpu": model, "cores": os.cpu_count(), "isa": noted}


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True)
    return done.stdout.strip() or None


# ---- Results ----

def results_path():
    return os.path.join(FOLDER, "results.jsonl")


def read_results():
    """The last result of each name on this machine."""
    results = {}
    if os.path.exists(results_path()):
        with open(results_path(), encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                if entry["machine"] == machine():
                    results[entry["name"]] = entry
    return results


def add_result(entry):
    with open(results_path(), "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


# ---- Processes ----

class Side:
    """A process that takes a step for each line that it is sent."""

    def __init__(self, name, line):
        self.name = name
        self.start = time.monotonic()
        self.scratch = tempfile.mkdtemp(prefix="training-bench-")
        # torch.compile starts from nothing each time.
        environment = dict(os.environ, OMP_NUM_THREADS=str(THREADS),
                           TORCHINDUCTOR_CACHE_DIR=self.scratch)
        for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
            environment.pop(variable, None)
        self.log = open(os.path.join(self.scratch, "log"), "w+",
                        encoding="utf-8")
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True, env=environment)

    def fail(self):
        self.process.kill()
        self.process.communicate()
        self.log.seek(0)
        text = self.log.read()[-2000:]
        self.clean()
        raise Failed(f"{self.name} ended:\n{text}")

    def clean(self):
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def step(self):
        try:
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.fail()
        line = self.process.stdout.readline()
        if not line:
            self.fail()
        answer = json.loads(line)
        time.sleep(SETTLE_SECONDS)
        return answer

    def begin(self):
        """The first step; seconds since the process was started."""
        self.step()
        self.first = time.monotonic() - self.start - SETTLE_SECONDS
        self.step()  # untimed

    def close(self):
        """What it prints at the end of its input."""
        rest, _ = self.process.communicate()
        if self.process.returncode != 0:
            self.fail()
        self.clean()
        return json.loads(rest)

    def end(self):
        """Without a result."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        self.clean()


def our_side(program, config, dtype, batch, length, threads=THREADS):
    return Side(program.name, [
        STEM_RUN, "bench", "--train", f"--from-config={config}", "--paced",
        "--json", f"--dtype={dtype}", f"--batch={batch}", f"--ctx={length}",
        f"--threads={threads}", *program.options])


def torch_side(program, config, dtype, batch, length, threads=THREADS):
    if not os.path.exists(PYTHON):
        raise Failed(f"{PYTHON}: no Python with PyTorch; name one in "
                     "STEM_TORCH_PYTHON (bench/training/README.md)")
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                          "torch_worker.py")
    return Side(program.name, [
        PYTHON, worker, config, f"--mode={program.peer}", f"--dtype={dtype}",
        f"--batch={batch}", f"--ctx={length}", f"--threads={threads}",
        *(["--compile"] if program.compiled else [])])


def require_memory(gigabytes):
    """Both programs of a pair stay in memory; too little ends one without a
    word."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        available = next(1024 * int(line.split()[1]) for line in file
                         if line.startswith("MemAvailable:"))
    if available < gigabytes * 1e9:
        raise Failed(f"about {gigabytes:g} GB are needed, "
                     f"{available / 1e9:.1f} GB are available")


def run_lines(name, *arguments):
    """The lines of JSON of a program that lies beside stem-run, or on PATH."""
    beside = os.path.join(os.path.dirname(STEM_RUN), name)
    program = beside if os.path.exists(beside) else shutil.which(name)
    if not program:
        raise Failed(f"{name}: not beside stem-run and not on PATH; build it "
                     "with -DSTEM_BUILD_BENCH=ON")
    environment = dict(os.environ, OMP_NUM_THREADS=str(THREADS))
    done = subprocess.run([program, *map(str, arguments)], text=True,
                          capture_output=True, env=environment)
    if done.returncode != 0:
        raise Failed(f"{name} gave {done.returncode}:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def warn_of_load():
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"The load average is {load:.2f}: the machine is not quiet, and "
              "its speeds say little.", file=sys.stderr)
    return load
