#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A low-rank term of its own rank for each layer. With factors that zeros fill
up to the largest rank, one rank for all layers is the same model."""

import json
import math
import os
import unittest

from e2e import ROOT, stem_json, stem_run
from golden_models import DENSE, IDS, GoldenModelTest, dense

LAYERS = [0, 1, 2]
RANKS = [0, 4, 16]
TEXT = os.path.join(ROOT, "models", "text", "king-james-genesis-exodus.txt")


class RankedModelTest(GoldenModelTest):
    def model(self, name, ranks=RANKS, layers=LAYERS, written=None, width=None,
              ids=None):
        """`ids`: those that keep the up-projection, in all STEM layers."""
        return self.stem_model(
            name, dict(zip(layers, ranks)), written=written, width=width,
            ids=None if ids is None else dict.fromkeys(layers, ids))

    def difference(self, a, b):
        return max(abs(x - y) for x, y in zip(sum(a, []), sum(b, []),
                                              strict=True))

    def assert_finite(self, logits):
        self.assertTrue(all(map(math.isfinite, sum(logits, []))))


class RanksTest(RankedModelTest):
    def test_is_one_rank_with_zeros(self):
        model = self.model("ranks")
        padded = self.model("padded", written=16, width=16)
        for dtype in ("f32", "bf16"):
            with self.subTest(dtype=dtype):
                option = f"--dtype={dtype}"
                self.assertEqual(self.logits(model, option),
                                 self.logits(padded, option))
        # Each term counts.
        for layer in (1, 2):
            ranks = [0 if i == layer else r for i, r in enumerate(RANKS)]
            self.assertGreater(self.difference(
                self.logits(self.model("less", ranks)), self.logits(model)),
                1e-3)

    def test_ranks_go_with_their_layers(self):
        """Whatever the order that config.json names them in."""
        turned = self.model("turned", RANKS[::-1], LAYERS[::-1])
        self.assertEqual(self.logits(turned), self.logits(self.model("ranks")))

    def test_selected_ids(self):
        everything = self.model("all", ids=list(range(96)))
        self.assertEqual(self.logits(everything), self.logits(DENSE))
        none = self.model("none", ids=[])
        self.assertEqual(self.logits(none), self.logits(self.model("ranks")))

    def test_threads_and_the_number_of_tokens(self):
        model = self.model("steps")
        whole = self.logits(model, "--threads=1")
        self.assertEqual(self.logits(model, "--threads=2"), whole)
        self.assertEqual(self.logits(model, ids=IDS[:70], batch=1),
                         whole[:70])

    def test_decode_is_prefill(self):
        model = self.model("steps")
        options = "--prompt-ids=5,10,33,0,3", "-n", 24, "--ignore-end"
        cached = stem_json("generate", model, *options)["ids"]
        for extra in ("--no-cache", "--threads=1", "--threads=2"):
            self.assertEqual(
                stem_json("generate", model, *options, extra)["ids"], cached)

    def test_a_function_for_each_rank(self):
        ir = self.path("ir")
        model = self.model("kinds", [4, 16, 4])
        self.logits(model, f"--dump-ir={ir}")
        graph = next(name for name in os.listdir(ir) if "graph" in name)
        with open(os.path.join(ir, graph)) as file:
            text = file.read()
        for name in ("layer_stem_rank4(", "layer_stem_rank16("):
            self.assertEqual(text.count(f"func.func private @{name}"), 1)
        self.assertEqual(text.count("func.func private @layer_"), 2)

    def test_inspect(self):
        model = self.model("inspected", [0, 16, 16])
        self.assertIn("float32, rank 0 in layers 0; 16 in layers 1-2\n",
                      stem_run("inspect", model).stdout)
        ranks = stem_json("inspect", model)["model"]
        self.assertEqual(ranks["stem"]["rank"], [0, 16, 16])
        self.assertEqual([layer["rank"] for layer in ranks["layers"]],
                         [0, 16, 16])
        rows = stem_json("inspect", self.model("rows", [0, 0, 0]))["model"]
        self.assertEqual(rows["stem"]["rank"], 0)
        config, _ = dense()
        term = 16 * (config["hidden_size"] + config["intermediate_size"])
        self.assertEqual(
            [a["flops_per_token"] - b["flops_per_token"] for a, b in
             zip(ranks["layers"], rows["layers"])], [0, 2 * term, 2 * term])
        self.assertEqual(ranks["parameters"] - rows["parameters"], 2 * term)
        self.assertEqual(ranks["bytes"] - rows["bytes"], 8 * term)

    def test_refused_ranks(self):
        for rank, words in (
                ([0, 4], ['"rank" has 2 entries, "layers" 3']),
                ([0, 4, -1], ['"rank" has -1 at 2', "an integer from 0"]),
                ([0, 4, 16.0], ['"rank" has 16.0 at 2', "an integer from 0"]),
                ([0, 4, 33], ["stem.rank is 33 for layer 2, which is more "
                              "than hidden_size 32"])):
            with self.subTest(rank=rank):
                model = self.model("bad", written=rank)
                self.assert_fails(
                    [os.path.join(model, "config.json"), *words], "eval",
                    model, "--input-ids=none",
                    f"--logits-out={self.path('out')}")
        model = self.model("bad", written=[0, 4, 8])
        self.assert_fails(
            ['"model.layers.2.mlp.up_mix.a.weight" has shape [80, 16]',
             "asks for [80, 8]"], "eval", model, "--input-ids=none",
            f"--logits-out={self.path('out')}")

    def test_import_keeps_the_ranks(self):
        model, out = self.model("source"), self.path("copy")
        stem_run("import", model, out, "--dtype=bf16")
        with open(os.path.join(out, "config.json")) as file:
            section = json.load(file)["stem"]
        self.assertEqual((section["rank"], section["row_dtype"]),
                         (RANKS, "bfloat16"))
        self.assertEqual(stem_json("inspect", out)["model"]["stem"]["rank"],
                         RANKS)


class ConvertAgainTest(RankedModelTest):
    """A STEM model gets further layers."""

    def convert(self, model, init):
        out = self.path("out-" + init)
        stem_run("convert", model, out, "--layers=1", f"--init={init}")
        with open(os.path.join(out, "config.json")) as file:
            return out, json.load(file)["stem"]

    def test_new_layers_have_rows_alone(self):
        for init in ("xavier", "embedding", "row-mean"):
            with self.subTest(init=init):
                out, section = self.convert(
                    self.model("source-" + init, [4, 4], [0, 2], written=4),
                    init)
                self.assertEqual((section["layers"], section["rank"]),
                                 ([0, 1, 2], [4, 0, 4]))
                self.assertEqual(stem_json("inspect", out)["unsupported"], [])
                self.assert_finite(self.logits(out))

    def test_ranks_stay(self):
        _, section = self.convert(self.model("source", [16, 0], [2, 0]),
                                  "row-mean")
        self.assertEqual((section["layers"], section["rank"]),
                         ([0, 1, 2], [0, 0, 16]))
        _, section = self.convert(self.model("rows", [0, 0], [0, 2]), "xavier")
        self.assertEqual(section["rank"], 0)

    def test_calibrated_layers_bring_their_rank(self):
        model = self.small
        for name, layer, rank in (("first", 2, 8), ("second", 1, 4)):
            out = self.path(name)
            stem_run("convert", model, out, f"--calibrate={TEXT}",
                     "--calibrate-tokens=8192", f"--layers={layer}",
                     f"--mix-rank={rank}")
            model = out
        section = stem_json("inspect", model)["model"]["stem"]
        self.assertEqual((section["layers"], section["rank"]),
                         ([1, 2], [4, 8]))

    def test_selected_ids_stay(self):
        """A new layer has none, and keeps its matrix in the folder."""
        source = self.model("source", [0, 0], [0, 2], ids=[3, 10])
        for init in ("xavier", "embedding", "row-mean"):
            with self.subTest(init=init):
                out, section = self.convert(source, init)
                self.assertEqual((section["layers"], section["select"]),
                                 ([0, 1, 2], True))
                layers = stem_json("inspect", out)["model"]["layers"]
                self.assertEqual([layer["selected_ids"] for layer in layers],
                                 [2, 0, 2])
                with open(os.path.join(
                        out, "model.safetensors.index.json")) as file:
                    self.assertIn("model.layers.1.mlp.up_proj.weight",
                                  json.load(file)["weight_map"])
                self.assert_finite(self.logits(out))


if __name__ == "__main__":
    unittest.main()
