#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --flops: ranks chosen layer by layer within a budget."""

import json
import os
import unittest

from e2e import ROOT, ModelTest, read_tensors, stem_json

TEXT = os.path.join(ROOT, "models", "text", "king-james-genesis-exodus.txt")


class FlopsTest(ModelTest):
    def convert(self, name, *options):
        out = self.path(name)
        return out, stem_json("convert", self.small, out,
                              f"--calibrate={TEXT}", "--calibrate-tokens=8192",
                              "--dialogue-share=0", "--layers=0,1,2", *options)

    def test_ranks_are_within_the_budget(self):
        out, result = self.convert("half", "--flops=50%")
        with open(os.path.join(self.small, "config.json")) as file:
            config = json.load(file)
        d, f = config["hidden_size"], config["intermediate_size"]
        layers = result["calibration"]["layers"]
        ranks = [layer["rank"] for layer in layers]
        self.assertTrue(all(rank % 8 == 0 and 0 <= rank <= d
                            for rank in ranks), ranks)
        spent, budget = sum(ranks) * (d + f), 0.5 * 3 * d * f
        self.assertLessEqual(spent, budget)
        self.assertGreater(spent, budget - 8 * (d + f))
        self.assertEqual(result["calibration"]["flops"], 0.5)
        self.assertEqual(len(result["calibration"]["sensitivities"]),
                         config["num_hidden_layers"])
        self.assertIn("rank_seconds", result["calibration"])
        # Two operations a multiply-add.
        self.assertEqual(
            result["before"]["flops_per_token"] -
            result["after"]["flops_per_token"], 2 * (3 * d * f - spent))
        for layer, rank in zip((layer["layer"] for layer in layers), ranks):
            tensors = read_tensors(os.path.join(
                out, f"stem-table-{layer:03}.safetensors"))
            factor = f"model.layers.{layer}.mlp.up_mix.a.weight"
            self.assertEqual(tensors[factor].shape if rank else None,
                             [f, rank] if rank else None)
            self.assertEqual(factor in tensors, rank > 0)
        held = stem_json("eval", out, f"--text={TEXT}")["files"][0]
        self.assertGreater(held["perplexity"], 1)

    def test_a_budget_below_a_step_gives_none(self):
        _, result = self.convert("none", "--flops=0.001")
        self.assertEqual([layer["rank"] for layer in
                          result["calibration"]["layers"]], [0, 0, 0])

    def test_refused(self):
        for options, words in (
                [["--flops=0"], ["--flops=0", "like 20% or 0.2"]],
                [["--flops=101%"], ["--flops=101%", "up to 100%"]],
                [["--flops=many"], ["--flops=many"]],
                [["--flops=20%%"], ["--flops=20%%"]],
                [["--flops=20%", "--mix-rank=8"], ["--flops", "--mix-rank"]],
                [["--flops=20%", "--init=xavier", "--layers=1"],
                 ["--flops is for --init=calibrated"]]):
            with self.subTest(options=options):
                out = self.path("refused")
                self.assert_fails(words, "convert", self.small, out, *options,
                                  status=2)
                self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main()
