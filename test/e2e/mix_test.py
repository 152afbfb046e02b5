#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The low-rank term: up = U[t] + A (B x). With rows of zeros, A = W_up and
B = 1 a STEM layer is its dense one."""

import json
import os
import shutil
import unittest

from e2e import GOLDEN, ROOT, ModelTest, Tensor, read_tensors, stem_json, \
    stem_run, write_tensors

DENSE = os.path.join(GOLDEN, "llama_gqa")
LAYERS = [1, 2]
TEXT = os.path.join(ROOT, "models", "text", "king-james-genesis-exodus.txt")


class MixTest(ModelTest):
    def mixed(self, name, rank, factor=1.0):
        """The dense model with full-rank terms in place of W_up, of which
        `rank` directions are left."""
        folder = self.path(name)
        os.makedirs(folder)
        with open(os.path.join(DENSE, "config.json")) as file:
            config = json.load(file)
        d, f, vocab = (config[key] for key in (
            "hidden_size", "intermediate_size", "vocab_size"))
        config["stem"] = {
            "version": 1, "base": {"model_type": config["model_type"],
                                   "architectures": config["architectures"]},
            "layers": LAYERS, "rank": rank, "select": False,
            "row_dtype": "float32"}
        config["model_type"] = "stem_llama"
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        tensors = read_tensors(os.path.join(DENSE, "model.safetensors"))
        for layer in LAYERS:
            mlp = f"model.layers.{layer}.mlp."
            up = tensors.pop(mlp + "up_proj.weight")
            self.assertEqual(up.shape, [f, d])
            tensors[mlp + "up_table.weight"] = Tensor(
                "F32", [vocab, f], [0.0] * (vocab * f))
            tensors[mlp + "up_mix.a.weight"] = Tensor(
                "F32", [f, rank],
                [factor * value for row in range(f)
                 for value in up.row(row)[:rank]])
            tensors[mlp + "up_mix.b.weight"] = Tensor(
                "F32", [rank, d],
                [float(row == column) for row in range(rank)
                 for column in range(d)])
        write_tensors(os.path.join(folder, "model.safetensors"), tensors)
        return folder

    def logits(self, model, *options):
        ids, out = self.path("ids"), self.path("logits")
        shutil.rmtree(out, ignore_errors=True)
        write_tensors(ids, {"input_ids": Tensor(
            "I32", [2, 70], [(7 * i + i * i // 3) % 96 for i in range(140)])})
        stem_run("eval", model, f"--input-ids={ids}", f"--logits-out={out}",
                 "--force", *options)
        return read_tensors(out)["logits"].floats()

    def difference(self, a, b):
        return max(abs(x - y) for x, y in zip(a, b, strict=True))

    def test_full_rank_is_the_dense_layer(self):
        mixed = self.mixed("full", 32)
        dense = self.logits(DENSE)
        self.assertLess(self.difference(self.logits(mixed), dense), 2e-5)
        self.assertLess(
            self.difference(self.logits(mixed, "--dtype=bf16"),
                            self.logits(DENSE, "--dtype=bf16")), 0.3)

    def test_every_direction_counts(self):
        dense = self.logits(DENSE)
        self.assertGreater(
            self.difference(self.logits(self.mixed("less", 31)), dense), 1e-3)
        self.assertGreater(
            self.difference(self.logits(self.mixed("half", 32, 0.5)), dense),
            1e-3)

    def test_decode_is_prefill(self):
        mixed = self.mixed("steps", 32)
        options = "--prompt-ids=5,9,33,2", "-n", 12, "--ignore-end"
        self.assertEqual(
            stem_json("generate", mixed, *options)["ids"],
            stem_json("generate", mixed, *options, "--no-cache")["ids"])

    def test_rank_above_the_hidden_size(self):
        folder = self.mixed("wide", 32)
        path = os.path.join(folder, "config.json")
        with open(path) as file:
            config = json.load(file)
        config["stem"]["rank"] = 33
        with open(path, "w") as file:
            json.dump(config, file)
        result = stem_run("eval", folder, "--input-ids=none",
                          f"--logits-out={self.path('out')}", check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("stem.rank is 33 for layer 1, which is more than "
                      "hidden_size 32",
                      result.stderr)

    def convert(self, name, *options):
        out = self.path(name)
        result = stem_json("convert", self.small, out, f"--calibrate={TEXT}",
                           "--calibrate-tokens=8192", "--layers=1", *options)
        return out, result["calibration"]

    def test_calibration_fits_it(self):
        rows, without = self.convert("rows")
        mixed, calibration = self.convert("mixed", "--mix-rank=8")
        self.assertEqual((without["mix_rank"], calibration["mix_rank"]), (0, 8))
        with open(os.path.join(mixed, "config.json")) as file:
            config = json.load(file)
        self.assertEqual(config["stem"]["rank"], 8)
        tensors = read_tensors(
            os.path.join(mixed, "stem-table-001.safetensors"))
        mlp = "model.layers.1.mlp."
        self.assertEqual(
            {name: tensors[name].shape for name in tensors
             if "up_mix" in name},
            {mlp + "up_mix.a.weight": [config["intermediate_size"], 8],
             mlp + "up_mix.b.weight": [8, config["hidden_size"]]})
        # What a random model computes says little of a token: the term takes
        # most of what the rows leave.
        self.assertLess(calibration["layers"][0]["error_before_refit"],
                        without["layers"][0]["error_before_refit"])
        losses = [stem_json("eval", model, f"--text={TEXT}")
                  ["files"][0]["perplexity"] for model in (rows, mixed)]
        self.assertNotEqual(*losses)

    def test_refused_ranks(self):
        for options, words in (
                [["--mix-rank=9999", f"--calibrate={TEXT}"],
                 ["--mix-rank=9999", "hidden size"]],
                [["--mix-rank=4", "--init=xavier", "--layers=1"],
                 ["--mix-rank is for --init=calibrated"]],
                [["--mix-rank=-1", f"--calibrate={TEXT}"], ["--mix-rank"]]):
            with self.subTest(options=options):
                out = self.path("refused")
                result = stem_run("convert", self.small, out, *options,
                                  check=False)
                self.assertNotEqual(result.returncode, 0)
                for word in words:
                    self.assertIn(word, result.stderr)
                self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main()
