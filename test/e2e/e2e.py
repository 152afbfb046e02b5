# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the end-to-end tests share: running stem-run, and safetensors files
with nothing but the standard library."""

import array
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
GOLDEN = os.path.join(ROOT, "test", "data", "golden")
CODES = {"F32": "f", "F64": "d", "I32": "i", "I64": "q", "BF16": "H",
         "F16": "H", "U8": "B"}


def stem_run(*arguments, check=True):
    result = subprocess.run(["stem-run", *map(str, arguments)],
                            capture_output=True, text=True, timeout=600)
    if check and result.returncode:
        raise AssertionError(f"stem-run {' '.join(map(str, arguments))} gave "
                             f"{result.returncode}:\n{result.stderr}")
    return result


def stem_json(*arguments):
    return json.loads(stem_run(*arguments, "--json").stdout)


def cpu_flags():
    with open("/proc/cpuinfo") as file:
        return next((set(line.split()) for line in file
                     if line.startswith("flags")), set())


class Tensor:
    def __init__(self, dtype, shape, values):
        self.dtype, self.shape, self.values = dtype, list(shape), values

    def row(self, index):
        width = self.shape[-1]
        return self.values[index * width:(index + 1) * width]

    def floats(self):
        if self.dtype != "BF16":
            return list(self.values)
        words = array.array("I", [v << 16 for v in self.values])
        return list(array.array("f", words.tobytes()))


def read_tensors(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    result = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = array.array(CODES[entry["dtype"]], data[begin:end])
        result[name] = Tensor(entry["dtype"], entry["shape"], values)
    return result


def read_metadata(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(size)).get("__metadata__", {})


def write_tensors(path, tensors, metadata=None):
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, tensor in tensors.items():
        part = array.array(CODES[tensor.dtype], tensor.values).tobytes()
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape,
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def deepen(source, target, layers):
    """Copies a dense model and repeats its layers up to this number."""
    os.mkdir(target)
    with open(os.path.join(source, "config.json")) as file:
        config = json.load(file)
    had, config["num_hidden_layers"] = config["num_hidden_layers"], layers
    with open(os.path.join(target, "config.json"), "w") as file:
        json.dump(config, file)
    result = {}
    for name, tensor in read_tensors(
            os.path.join(source, "model.safetensors")).items():
        parts = name.split(".")
        if parts[1] != "layers":
            result[name] = tensor
            continue
        for layer in range(int(parts[2]), layers, had):
            result[".".join(["model.layers", str(layer), *parts[3:]])] = tensor
    write_tensors(os.path.join(target, "model.safetensors"), result)


class ModelTest(unittest.TestCase):
    """A test with a scratch folder and a small model that has a tokenizer."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="stem-e2e-")
        cls.small = os.path.join(cls.folder, "small")
        subprocess.run(["python3",
                        os.path.join(ROOT, "scripts", "make_small_model.py"),
                        cls.small], check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def path(self, name):
        return os.path.join(self.folder, self.id().rsplit(".", 1)[-1] + "-" +
                            name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content if isinstance(content, bytes)
                       else content.encode())
        return self.path(name)

    def copy_model(self, name="model", source=None):
        shutil.copytree(source or self.small, self.path(name))
        return self.path(name)

    def assert_fails(self, parts, *arguments, status=1):
        """One message with all `parts` on standard error, and no output."""
        result = stem_run(*arguments, check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        for part in parts:
            self.assertIn(part, result.stderr)
        if status == 1:
            errors = [line for line in result.stderr.splitlines()
                      if line.startswith("error: ")]
            self.assertEqual(len(errors), 1, result.stderr)
