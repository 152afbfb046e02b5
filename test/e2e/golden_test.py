#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logits and greedy ids of six families against the reference values, through
stem-run: f32 within 2e-4, bf16 within 0.35."""

import os
import unittest

from e2e import GOLDEN, ModelTest, Tensor, read_tensors, stem_json, stem_run, \
    write_tensors

BOUNDS = {"f32": 2e-4, "bf16": 0.35}


class GoldenTest(ModelTest):
    def families(self):
        for name in sorted(os.listdir(GOLDEN)):
            folder = os.path.join(GOLDEN, name)
            # Other folders hold values of optimizers, not a model.
            if os.path.exists(os.path.join(folder, "config.json")):
                with self.subTest(family=name):
                    yield folder, read_tensors(
                        os.path.join(folder, "golden.safetensors"))

    def test_logits(self):
        count = 0
        for folder, golden in self.families():
            count += 1
            ids, logits = self.path("ids"), self.path("logits")
            write_tensors(ids, {"input_ids": golden["input_ids"]})
            for dtype, bound in BOUNDS.items():
                stem_run("eval", folder, f"--input-ids={ids}",
                         f"--logits-out={logits}", "--force",
                         f"--dtype={dtype}")
                got = read_tensors(logits)["logits"]
                self.assertEqual(got.shape, golden["logits"].shape)
                worst = max(abs(a - b) for a, b in
                            zip(got.values, golden["logits"].values))
                self.assertLess(worst, bound)
        self.assertEqual(count, 6)

    def test_greedy(self):
        for folder, golden in self.families():
            prompt = ",".join(map(str, golden["prompt_ids"].values))
            wanted = list(golden["greedy_ids"].values)
            common = ["generate", folder, f"--prompt-ids={prompt}", "-n",
                      len(wanted), "--ignore-end", "--dtype=f32"]
            self.assertEqual(stem_json(*common)["ids"], wanted)
            self.assertEqual(stem_json(*common, "--no-cache")["ids"], wanted)
            batch = stem_json(*common, f"--prompt-ids={prompt}",
                              "--prompt-ids=1")
            self.assertEqual(batch["ids"][:2], [wanted, wanted])

    def test_one_and_two_threads(self):
        for folder, golden in self.families():
            ids = self.path("ids")
            write_tensors(ids, {"input_ids": golden["input_ids"]})
            results = []
            for threads in 1, 2:
                logits = self.path(f"logits{threads}")
                stem_run("eval", folder, f"--input-ids={ids}", "--dtype=f32",
                         f"--logits-out={logits}", "--force",
                         f"--threads={threads}")
                results.append(read_tensors(logits)["logits"].values)
            self.assertLess(max(abs(a - b) for a, b in zip(*results)), 2e-5)

    def test_constant_table_is_a_bias(self):
        """Rows of c are the up-projection of zero weight and bias c."""
        dense = self.copy_model("dense", os.path.join(GOLDEN, "llama_gqa"))
        stem = self.path("stem")
        stem_run("convert", dense, stem, "--layers=1", "--init=row-mean")
        name = "model.layers.1.mlp.up_table.weight"
        table_file = os.path.join(stem, "stem-table-001.safetensors")
        table = read_tensors(table_file)[name]
        table.values = [0.75] * len(table.values)
        write_tensors(table_file, {name: table})

        weights = os.path.join(dense, "model.safetensors")
        tensors = read_tensors(weights)
        up = tensors["model.layers.1.mlp.up_proj.weight"]
        up.values = [0.0] * len(up.values)
        for layer in range(3):
            for projection in "gate_proj", "up_proj", "down_proj":
                key = f"model.layers.{layer}.mlp.{projection}"
                width = tensors[key + ".weight"].shape[0]
                value = 0.75 if (layer, projection) == (1, "up_proj") else 0.0
                tensors[key + ".bias"] = Tensor("F32", [width],
                                                [value] * width)
        os.remove(weights)
        write_tensors(weights, tensors)
        config = os.path.join(dense, "config.json")
        with open(config) as file:
            text = file.read().replace('"mlp_bias": false',
                                       '"mlp_bias": true')
        with open(config, "w") as file:
            file.write(text)

        ids = self.path("ids")
        write_tensors(ids, {"input_ids": Tensor("I32", [1, 9],
                                                list(range(9)))})
        logits = []
        for folder in dense, stem:
            out = self.path("logits")
            stem_run("eval", folder, f"--input-ids={ids}",
                     f"--logits-out={out}", "--force", "--dtype=f32")
            logits.append(read_tensors(out)["logits"].values)
        self.assertLess(max(abs(a - b) for a, b in zip(*logits)), 1e-5)


if __name__ == "__main__":
    unittest.main()
