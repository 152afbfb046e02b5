# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the tools on IR on input that none of them can take.

usage: bad_input.py FOLDER

Prints the first line of each message; FAILED where a program is killed by a
signal, takes too long, or takes what it should not.
"""

import os
import random
import signal
import subprocess
import sys

folder = sys.argv[1]


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=120, **options)


def refused(name, command, **options):
    result = run(command, **options)
    lines = [line for line in result.stderr.decode(errors="replace")
             .splitlines() if line.startswith("stem-")]
    verdict = "" if result.returncode == 1 and lines else \
        f"FAILED ({result.returncode}): "
    print(f"{verdict}{name}: {lines[0] if lines else result.stderr[-500:]}",
          flush=True)


def taken(name, command):
    result = run(command)
    print(f"{'FAILED: ' if result.returncode else ''}{name}", flush=True)


def write(name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
    return path


def nested(opening, middle, closing, levels):
    return opening * levels + middle + closing * levels


def regions(levels):
    return "module {\n" + nested('"a.b"() ({\n', "", "}) : () -> ()\n",
                                 levels) + "}\n"


os.mkfifo(os.path.join(folder, "fifo"))
refused("fifo", ["stem-opt", os.path.join(folder, "fifo")])
refused("device", ["stem-opt", "/dev/zero"])
refused("folder", ["stem-opt", folder])
with open("/dev/zero", "rb") as zeros:
    refused("endless", ["stem-opt", "-"], stdin=zeros)

deep = 100_000
allow = "--allow-unregistered-dialect"
attributes = write("attributes.mlir", '"a.b"() {a = ' + nested(
    "[", "", "]", deep) + "} : () -> ()")
refused("attributes", ["stem-opt", allow, attributes])
types = write("types.mlir", '"a.b"() : () -> ' + nested(
    "tuple<", "i32", ">", deep))
refused("types", ["stem-opt", allow, types])
path = write("regions.mlir", regions(deep))
refused("regions", ["stem-opt", allow, path])
refused("reduce regions", ["stem-reduce", path])
negations = write("negations.mlir", "#map = affine_map<(d0) -> (" +
                  "-" * 10_000_000 + "d0)>")
refused("negations", ["stem-opt", negations])

elements = write("elements.mlir", "%x = arith.constant 0 : i8\n"
                 "%0 = tensor.from_elements %x : "
                 "tensor<9223372036854775807xi8>\n")
refused("abort", ["stem-opt", elements])



def start_until(ready, command):
    """A process of which `ready` holds, or which has ended."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE,
                               stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    while process.poll() is None and not ready(f"/proc/{process.pid}"):
        pass
    return process


def ends_well(name, process, wanted):
    message = process.communicate(timeout=120)[1].decode()
    verdict = "" if process.returncode in wanted else \
        f"FAILED ({process.returncode}): "
    print(f"{verdict}{name}: {message[:500]}", flush=True)


def catches_bus_errors(process):
    with open(f"{process}/status") as file:
        caught, = (int(line.split()[1], 16) for line in file
                   if line.startswith("SigCgt:"))
    return caught >> (signal.SIGBUS - 1) & 1


process = start_until(catches_bus_errors, ["stem-opt", "-"])
process.send_signal(signal.SIGBUS)
ends_well("bus error", process, {1})

shrinking = write("shrinking.mlir", "// A comment of a line.\n" * 4_000_000)


def is_reading(process):
    with open(f"{process}/maps") as file:
        if shrinking in file.read():
            return True
    try:
        return any(os.readlink(f"{process}/fd/{name}") == shrinking
                   for name in os.listdir(f"{process}/fd"))
    except OSError:
        return False  # closed in between


process = start_until(is_reading, ["stem-opt", shrinking])
os.truncate(shrinking, 4096)
ends_well("shrinking file", process, {0, 1})

message = b"[" * 1_000_000
refused("language server", ["stem-lsp-server"], input=(
    b"Content-Length: %d\r\n\r\n" % len(message)) + message)

small = write("small.mlir", "func.func @f(%x: tensor<?x4xf32>) -> "
              "tensor<?x4xf32> {\n  %0 = arith.addf %x, %x "
              ": tensor<?x4xf32>\n  return %0 : tensor<?x4xf32>\n}\n")
whole = os.path.join(folder, "small.mlirbc")
subprocess.run(["stem-opt", "--emit-bytecode", small, "-o", whole], check=True)
with open(whole, "rb") as file:
    good = file.read()
choose = random.Random(0)
count = 60
ends = set()
for _ in range(count):
    bad = bytearray(good)
    for _ in range(choose.randint(1, 3)):
        # Behind the magic number: otherwise it is text.
        bad[choose.randrange(4, len(bad))] = choose.randrange(256)
    result = run(["stem-opt", write("bad.mlirbc", bytes(bad))])
    ends.add(result.returncode)
print(f"bytecode: all of {count} changed files end well" if ends <= {0, 1}
      else f"FAILED: bytecode: {ends}", flush=True)

taken("brackets in strings and comments are none", ["stem-opt", allow, write(
    "strings.mlir", "// " + "(" * 5000 + '\n"a.b"() {a = "' + "[\\22" * 5000 +
    '"} : () -> ()')])
taken("900 levels are read", ["stem-opt", allow, write(
    "levels.mlir", regions(450))])
