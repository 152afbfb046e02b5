#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --init=calibrated before its passes: the memory that they take, the
IR of what they run."""

import os
import subprocess
import unittest

from calibration import CalibrationTest, change_json, widen
from e2e import stem_run


class CalibratePlanTest(CalibrationTest):
    def layer(self, model, *options):
        return self.calibrate(self.path("out"), "--layers=1", *options,
                              model=model)

    def test_more_than_the_memory(self):
        # The normal matrix of W_down alone: 8 bytes * 2^40.
        model = self.copy_model()
        widen(model, 1 << 20)
        command = self.layer(model)
        self.assert_fails(["the calibration takes", "its fits 8.8",
                           " TB", "are available", "--calibrate-tokens",
                           "--dtype=bf16"], *command)
        told = stem_run(*command, check=False).stderr
        self.assertIn("in windows of 512, ", told)
        self.assertEqual(told.count("its fits"), 1, told)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_tokens_have_a_limit(self):
        self.assert_fails(["--calibrate-tokens", "10000000"], *self.layer(
            self.small, "--calibrate-tokens=10000001"), status=2)

    def test_dump(self):
        dump = self.path("dump")
        stem_run(*self.layer(self.small, f"--dump-ir={dump}"))
        phases = sorted(os.listdir(os.path.join(dump, "calibration")))
        self.assertEqual(phases[0], "00-import.mlir")
        self.assertGreater(len(phases), 4)
        for name in phases:
            path = os.path.join(dump, "calibration", name)
            with open(path) as file:
                self.assertIn("taps", file.read())
            subprocess.run(["stem-opt", path, "-o", os.devnull], check=True)

    def test_note_on_the_type(self):
        result = stem_run(*self.layer(self.small, "--max-isa=avx2"))
        self.assertIn("note: the model is bf16, but this CPU has no bf16",
                      result.stderr)

    def test_window_is_the_models_context(self):
        model = self.copy_model()
        change_json(os.path.join(model, "config.json"),
                    max_position_embeddings=128)
        self.assertIn("in windows of 128 (the model's context), ",
                      stem_run(*self.layer(model)).stderr)


if __name__ == "__main__":
    unittest.main()
