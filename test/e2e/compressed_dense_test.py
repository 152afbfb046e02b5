#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/compressed_dense: dense models of fewer FLOPs."""

import json
import math
import os
import random
import subprocess
import unittest

from calibration import change_json
from e2e import ModelTest, read_tensors, stem_json

DOWN = "model.layers.{}.mlp.down_proj.weight"
COLUMNS = 192  # d_ff of the small model, which has 6 layers
UP_FLOPS = 2 * 64 * COLUMNS
BLOCK_FLOPS = 3 * UP_FLOPS + 2 * 64 * (64 + 32 + 32 + 64)


def compressed_dense(*arguments):
    return subprocess.run(["compressed_dense", *map(str, arguments)],
                          capture_output=True, text=True, timeout=600)


class CompressedDenseTest(ModelTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # In f32, so that a folder holds the numbers that the check ran on.
        cls.model = os.path.join(cls.folder, "f32")
        stem_json("import", cls.small, cls.model, "--dtype=f32")
        numbers = random.Random(1)
        cls.text = os.path.join(cls.folder, "text.txt")
        with open(cls.text, "w") as file:
            file.write(" ".join(
                "".join(numbers.choice("abcdefghik")
                        for _ in range(numbers.randint(2, 9)))
                for _ in range(3000)))

    def options(self, source, out, *options):
        return [source, out, f"--calibrate={self.text}",
                "--calibrate-tokens=8192", "--dialogue-share=0", *options]

    def compress(self, *options, source=None, name="out"):
        out = self.path(name)
        result = compressed_dense(*self.options(source or self.model, out,
                                                *options))
        self.assertEqual(result.returncode, 0, result.stderr)
        return out, json.loads(result.stdout)

    def tensors(self, folder):
        return read_tensors(os.path.join(folder, "model.safetensors"))

    def zero_columns(self, tensor):
        return [all(tensor.values[row * COLUMNS + column] == 0
                    for row in range(tensor.shape[0]))
                for column in range(COLUMNS)]

    def assert_read_back(self, out, result):
        """The folder is the model that was checked."""
        _, again = self.compress("--method=prune", "--layers=0", "--keep=1",
                                 source=out, name="again")
        self.assertAlmostEqual(again["perplexity_dense"]
                               / result["perplexity_after"], 1, delta=1e-5)

    # ---- prune ----

    def test_all_columns_kept(self):
        out, result = self.compress("--method=prune", "--layers=1,4",
                                    "--keep=1")
        self.assertEqual(result["perplexity_after"],
                         result["perplexity_dense"])
        self.assertEqual(result["flops_saved_per_token"], 0)
        before, after = self.tensors(self.model), self.tensors(out)
        self.assertEqual(set(before), set(after))
        for name, tensor in before.items():
            self.assertEqual(tensor.values, after[name].values, name)

    def test_pruned(self):
        out, result = self.compress("--method=prune", "--layers=1,4")
        self.assertEqual(result["layers"], [1, 4])
        self.assertEqual(result["columns_kept"], COLUMNS * 2 // 3)
        self.assertEqual(result["flops_saved_per_token"], 2 * UP_FLOPS)
        self.assertEqual(result["flops_saved_in_up_projections"], 2)
        self.assertEqual(result["before"]["flops_per_token"]
                         - result["after"]["flops_per_token"], 2 * UP_FLOPS)
        # As many parameters as two up-projections, in f32.
        self.assertEqual(result["bytes_of_zero_columns"], 2 * 64 * COLUMNS * 4)
        before, after = self.tensors(self.model), self.tensors(out)
        for name, tensor in before.items():
            self.assertEqual(tensor.values == after[name].values,
                             name not in (DOWN.format(1), DOWN.format(4)),
                             name)
        for layer in 1, 4:
            self.assertEqual(sum(self.zero_columns(after[DOWN.format(layer)])),
                             COLUMNS // 3)
        for layer in result["refitted"]:
            self.assertIn(layer["ridge"], [1e-3, 1e-2, 1e-1])
            self.assertLess(0, layer["error_after_refit"])
            self.assertLess(layer["error_after_refit"],
                            layer["error_before_refit"])
        self.assertNotEqual(result["perplexity_after"],
                            result["perplexity_dense"])
        self.assert_read_back(out, result)

    def test_pruned_without_refit(self):
        """Without the refit W_down keeps its values there."""
        out, result = self.compress("--method=prune", "--layers=2",
                                    "--keep=0.25", "--no-refit")
        self.assertEqual(result["columns_kept"], COLUMNS // 4)
        self.assertFalse(result["refit"])
        before = self.tensors(self.model)[DOWN.format(2)]
        after = self.tensors(out)[DOWN.format(2)]
        gone = self.zero_columns(after)
        for i, value in enumerate(after.values):
            self.assertEqual(value,
                             0 if gone[i % COLUMNS] else before.values[i])
        # A further cut takes from what is left.
        smaller, _ = self.compress("--method=prune", "--layers=2",
                                   "--keep=0.125", "--no-refit", source=out,
                                   name="smaller")
        fewer = self.zero_columns(self.tensors(smaller)[DOWN.format(2)])
        self.assertEqual(sum(fewer), COLUMNS * 7 // 8)
        self.assertTrue(all(b for a, b in zip(gone, fewer) if a))

    # ---- drop ----

    def test_dropped(self):
        out, result = self.compress("--method=drop", "--blocks=2")
        blocks = result["blocks"]
        self.assertEqual(len(set(blocks)), 2)
        self.assertEqual(result["flops_saved_per_token"], 2 * BLOCK_FLOPS)
        self.assertAlmostEqual(result["flops_saved_in_up_projections"],
                               2 * BLOCK_FLOPS / UP_FLOPS)
        self.assertEqual(result["bytes_of_zero_columns"], 0)
        rounds = result["rounds"]
        self.assertEqual(sorted(r["block"] for r in rounds), blocks)
        left = list(range(6))
        for entry in rounds:
            self.assertEqual(entry["blocks"], left)
            least = min(entry["sensitivities"])
            self.assertEqual(entry["sensitivity"], least)
            self.assertEqual(entry["block"],
                             left[entry["sensitivities"].index(least)])
            left.remove(entry["block"])
        with open(os.path.join(out, "config.json")) as file:
            self.assertEqual(json.load(file)["num_hidden_layers"], 4)
        before, after = self.tensors(self.model), self.tensors(out)
        refitted = [entry["layer"] for entry in result["refitted"]]
        for block in refitted:
            self.assertIn(block, left)
            self.assertIn(block + 1, blocks)
        expected = {name: tensor for name, tensor in before.items()
                    if not name.startswith("model.layers.")}
        for new, old in enumerate(left):
            prefix = f"model.layers.{old}."
            for name, tensor in before.items():
                if name.startswith(prefix):
                    expected[f"model.layers.{new}."
                             + name[len(prefix):]] = tensor
        self.assertEqual(set(after), set(expected))
        changed = {DOWN.format(left.index(block)) for block in refitted}
        for name, tensor in expected.items():
            if name not in changed:
                self.assertEqual(tensor.values, after[name].values, name)
        self.assert_read_back(out, result)

    def test_dropped_without_refit(self):
        out, result = self.compress("--method=drop", "--blocks=1",
                                    "--no-refit")
        self.assertEqual(result["refitted"], [])
        self.assert_read_back(out, result)
        # What was measured on the text to choose, in one round.
        self.assertEqual(len(result["rounds"]), 1)
        self.assertTrue(all(map(math.isfinite,
                                result["rounds"][0]["sensitivities"])))

    # ---- What is refused ----

    def assert_refused(self, parts, *options, status, source=None):
        out = self.path("refused")
        result = compressed_dense(*self.options(source or self.model, out,
                                                *options))
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        for part in parts:
            self.assertIn(part, result.stderr)
        self.assertFalse(os.path.exists(out))

    def test_refused(self):
        prune, drop = "--method=prune", "--method=drop"
        for parts, *options in (
                [["--method=drop needs --blocks=N"], drop],
                [["--method=drop needs --blocks=N"], drop, "--blocks=0"],
                [["--blocks=6", "has 6 blocks"], drop, "--blocks=6"],
                [["--layers is not for"], drop, "--blocks=1", "--layers=2"],
                [["--keep is not for"], drop, "--blocks=1", "--keep=1"],
                [["--method=prune needs --layers"], prune],
                [["--blocks is not for"], prune, "--layers=1", "--blocks=1"],
                [["--keep=0:"], prune, "--layers=1", "--keep=0"],
                [["--keep=3/2:"], prune, "--layers=1", "--keep=3/2"],
                [["--keep=1/0:"], prune, "--layers=1", "--keep=1/0"],
                [["--keep=two", "like 2/3"], prune, "--layers=1",
                 "--keep=two"],
                [["--keep=1e-9", "no column of 192"], prune, "--layers=1",
                 "--keep=1e-9"]):
            with self.subTest(options=options):
                self.assert_refused(parts, *options, status=2)
        self.assert_refused(["--layers=9"], prune, "--layers=9", status=1)
        stem = self.path("stem")
        stem_json("convert", self.small, stem, "--layers=1",
                  "--init=embedding")
        model = self.copy_model()
        change_json(os.path.join(model, "config.json"),
                    max_position_embeddings=1)
        self.assert_refused([model, "context is 1 token", "2 at least"], prune,
                            "--layers=1", status=1, source=model)
        self.assert_refused(["has STEM layers"], prune, "--layers=2", status=1,
                            source=stem)


if __name__ == "__main__":
    unittest.main()
