#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --init=calibrated before its passes: the memory that they take, the
IR of what they run."""

import json
import os
import struct
import subprocess
import unittest

from calibrate_test import some_text
from e2e import ModelTest, stem_run


def widen(folder, width):
    """Makes a model's FFN that wide, with zeros that take no disk."""
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    before, config["intermediate_size"] = config["intermediate_size"], width
    with open(path, "w") as file:
        json.dump(config, file)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    end = 0
    for name, entry in header.items():
        begin, end_before = entry["data_offsets"]
        size = end_before - begin
        if ".mlp." in name:
            entry["shape"] = [width if side == before else side
                              for side in entry["shape"]]
            size = size // before * width
        entry["data_offsets"] = [end, end + size]
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


class CalibratePlanTest(ModelTest):
    def calibrate(self, model, *options):
        text = self.write("text", some_text(3000, 1))
        return ["convert", model, self.path("out"), "--layers=1",
                f"--calibrate={text}", "--calibrate-tokens=8192",
                "--dialogue-share=0", *options]

    def test_more_than_the_memory(self):
        # The normal matrix of W_down alone: 8 bytes * 2^40.
        model = self.copy_model()
        widen(model, 1 << 20)
        command = self.calibrate(model)
        self.assert_fails(["the calibration takes", "its fits 8.8",
                           " TB", "are available", "--calibrate-tokens",
                           "--dtype=bf16"], *command)
        self.assertIn("in windows of 512, ",
                      stem_run(*command, check=False).stderr)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_tokens_have_a_limit(self):
        self.assert_fails(["--calibrate-tokens", "10000000"], *self.calibrate(
            self.small, "--calibrate-tokens=10000001"), status=2)

    def test_dump(self):
        dump = self.path("dump")
        stem_run(*self.calibrate(self.small, f"--dump-ir={dump}"))
        phases = sorted(os.listdir(os.path.join(dump, "calibration")))
        self.assertEqual(phases[0], "00-import.mlir")
        self.assertGreater(len(phases), 4)
        for name in phases:
            path = os.path.join(dump, "calibration", name)
            with open(path) as file:
                self.assertIn("taps", file.read())
            subprocess.run(["stem-opt", path, "-o", os.devnull], check=True)

    def test_note_on_the_type(self):
        result = stem_run(*self.calibrate(self.small, "--max-isa=avx2"))
        self.assertIn("note: the model is bf16, but this CPU has no bf16",
                      result.stderr)

    def test_window_is_the_models_context(self):
        model = self.copy_model()
        path = os.path.join(model, "config.json")
        with open(path) as file:
            config = json.load(file)
        config["max_position_embeddings"] = 128
        with open(path, "w") as file:
            json.dump(config, file)
        self.assertIn("in windows of 128 (the model's context), ",
                      stem_run(*self.calibrate(model)).stderr)


if __name__ == "__main__":
    unittest.main()
