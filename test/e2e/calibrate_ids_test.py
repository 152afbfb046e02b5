#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --init=calibrated: ids that keep the up-projection."""

import json
import math
import os
import unittest

from calibration import DOWN, IDS, TABLE, UP, VOCABULARY, CalibrationTest
from e2e import stem_json, stem_run


class CalibrateIdsTest(CalibrationTest):
    def counts(self):
        """How often the text to fit holds each id: 14 of 16 windows, of which
        the first position does not count."""
        with open(self.text, "rb") as file:
            content = file.read()
        with open(os.path.join(self.small, "tokenizer.json")) as file:
            ids = json.load(file)["model"]["vocab"]
        windows = len(content) // 512
        # Evenly from the whole file.
        taken, passed, chosen = 0, 0, []
        for window in range(windows):
            passed += 512
            if taken * windows * 512 >= 8192 * passed:
                continue
            chosen.append(window)
            taken += 512
        self.assertEqual(len(chosen), 16)
        result = [0] * VOCABULARY
        for place, window in enumerate(chosen):
            if place in (8, 15):  # to choose and to check
                continue
            for byte in content[window * 512 + 1:(window + 1) * 512]:
                result[ids["\u0120" if byte == 32 else chr(byte)]] += 1
        self.assertEqual(sum(result), 14 * 511)
        return result

    def test_dense_below(self):
        before, counts = self.tensors(self.small), self.counts()
        for least in 1, 4:
            out = self.path(f"below-{least}")
            result = stem_json(*self.calibrate(out, "--layers=1,4",
                                               f"--dense-below={least}"))
            ids = [id for id, count in enumerate(counts) if count < least]
            calibration = result["calibration"]
            self.assertEqual(calibration["dense_below"], least)
            self.assertEqual(calibration["selected_ids"], len(ids))
            self.assertTrue(0 <= calibration["selected_share"] < 0.1)
            self.assertEqual(result["replaced"], [])
            self.assertIs(self.section(out)["select"], True)
            index, after = self.index(out), self.tensors(out)
            for layer in 1, 4:
                self.assertEqual(list(after[IDS.format(layer)].values), ids)
                self.assertEqual(after[IDS.format(layer)].dtype, "I32")
                self.assertIn(UP.format(layer), index)
                self.assertIn(TABLE.format(layer), index)
            for name, tensor in before.items():
                if name not in (DOWN.format(1), DOWN.format(4)):
                    self.assertEqual(after[name].values, tensor.values, name)
            evaluated = stem_json("eval", out, f"--text={self.text}")
            self.assertTrue(1 < evaluated["files"][0]["perplexity"] < math.inf)
        self.assertIn("ids that keep the up-projection",
                      stem_run("inspect", out).stdout)

    def test_dense_below_with_a_low_rank_term(self):
        # More often than any id is there: the dense model, table and all.
        out = self.path("stem")
        result = stem_json(*self.calibrate(
            out, "--layers=1,4", "--dense-below=100000", "--mix-rank=8"))
        calibration = result["calibration"]
        self.assertEqual(calibration["selected_ids"], VOCABULARY)
        self.assertEqual(calibration["selected_share"], 1)
        self.assertAlmostEqual(calibration["perplexity_converted"] /
                               calibration["perplexity_dense"], 1, delta=1e-3)
        dense, stem = (stem_json("eval", model, f"--text={self.text}")
                       ["files"][0]["perplexity"]
                       for model in (self.small, out))
        self.assertAlmostEqual(stem / dense, 1, delta=1e-3)
        self.assertEqual(stem_json("inspect", out)["model"]["stem"]["rank"], 8)


if __name__ == "__main__":
    unittest.main()
