#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights and loss after three AdamW steps of six families against the
reference values, through stem-run train."""

import os
import unittest

from e2e import GOLDEN, read_tensors, stem_json, write_tensors
from training import TrainingTest, metrics, model_tensors

BOUND = 2e-4  # of each tensor's largest value
RATE = 1e-2
# Adam makes a sign of the rounding of a gradient this small, as a share of its
# tensor's largest: such elements may be off by twice the rate.
SMALL = 1e-6
MOST_SMALL = 10


class TrainGoldenTest(TrainingTest):
    def differences(self, name, got, golden):
        """Elements that differ although they should not, and small ones."""
        wanted = golden["step3." + name].values
        gradient = golden["grad." + name].values
        bound = BOUND * max(map(abs, wanted))
        small = SMALL * max(map(abs, gradient))
        bad, excused = [], 0
        for i, (a, b, g) in enumerate(zip(got, wanted, gradient)):
            if abs(a - b) <= bound:
                continue
            if abs(g) < small and abs(a - b) <= 2 * RATE:
                excused += 1
            else:
                bad.append((name, i, a, b))
        return bad, excused

    def check(self, family):
        folder = os.path.join(GOLDEN, family)
        golden = read_tensors(os.path.join(folder, "golden.safetensors"))
        ids, out = self.path(family + "-ids"), self.path(family)
        write_tensors(ids, {name: golden[name]
                            for name in ("input_ids", "labels")})
        result = stem_json("train", folder, f"--batch-ids={ids}", "--steps=3",
                           f"--lr={RATE}", "--schedule=constant",
                           "--row-optimizer=exact", "--dtype=f32",
                           f"--out={out}")
        loss = golden["loss"].values[0]
        self.assertLess(abs(metrics(out)[1]["loss"] - loss), BOUND * loss)
        loss = golden["step3.loss"].values[0]
        self.assertLess(abs(result["final_loss"] - loss), BOUND * loss)
        tensors = model_tensors(out)
        self.assertEqual(set(tensors), {
            name[len("step3."):] for name in golden
            if name.startswith("step3.") and name != "step3.loss"})
        bad, excused = [], 0
        for name, tensor in tensors.items():
            some, few = self.differences(name, tensor.values, golden)
            bad += some
            excused += few
        print(f"{family}: {excused} elements of tiny gradients")
        self.assertEqual(bad, [])
        self.assertLessEqual(excused, MOST_SMALL)

    def test_three_steps(self):
        count = 0
        for family in sorted(os.listdir(GOLDEN)):
            if os.path.exists(os.path.join(GOLDEN, family, "config.json")):
                count += 1
                with self.subTest(family=family):
                    self.check(family)
        self.assertEqual(count, 6)

    def test_halves_of_a_batch(self):
        """Two micro-batches are one batch: the mean is over all labels."""
        folder = os.path.join(GOLDEN, "stem_llama")
        golden = read_tensors(os.path.join(folder, "golden.safetensors"))
        ids = self.path("ids")
        write_tensors(ids, {name: golden[name]
                            for name in ("input_ids", "labels")})
        results = []
        for accumulate in 1, 2:
            out = self.path(f"out{accumulate}")
            stem_json("train", folder, f"--batch-ids={ids}", "--steps=2",
                      "--dtype=f32", "--schedule=constant", f"--lr={RATE}",
                      f"--accumulate={accumulate}", f"--out={out}")
            results.append(model_tensors(out))
        for name, tensor in results[0].items():
            largest = max(map(abs, tensor.values))
            for a, b in zip(tensor.values, results[1][name].values):
                self.assertLess(abs(a - b), BOUND * largest)


if __name__ == "__main__":
    unittest.main()
