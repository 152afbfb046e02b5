#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ids that keep the up-projection. In the last layer a token's logits are, to
the bit, those of the dense model where its id is selected, and those of the
table alone where it is not."""

import os
import shutil
import unittest

from e2e import Tensor, read_tensors, stem_json, stem_run, write_tensors
from golden_models import DENSE, IDS, GoldenModelTest, dense

SOME = [0, 3, 10, 11, 12, 40, 41, 77, 95]


class SelectTest(GoldenModelTest):
    def hybrid(self, name, selected, rank=0, bias=False):
        """`selected`: for each STEM layer its ids, or a tensor, or None for a
        model of tables alone."""
        return self.stem_model(
            name, dict.fromkeys(selected, rank), written=rank, bias=bias,
            ids=None if None in selected.values() else selected)

    def test_all_ids_is_the_dense_model(self):
        everything = list(range(96))
        for rank in (0, 4):
            model = self.hybrid("all", {1: everything, 2: everything}, rank)
            for dtype in ("f32", "bf16"):
                with self.subTest(rank=rank, dtype=dtype):
                    self.assertEqual(self.logits(model, f"--dtype={dtype}"),
                                     self.logits(DENSE, f"--dtype={dtype}"))

    def test_no_ids_is_the_table_alone(self):
        unused = sorted(set(range(96)) - set(IDS[:20]))
        for rank in (0, 4):
            table = self.hybrid("table", {1: None, 2: None}, rank)
            none = self.hybrid("none", {1: [], 2: []}, rank)
            self.assertEqual(self.logits(none), self.logits(table))
            missed = self.hybrid("missed", {1: unused, 2: unused}, rank)
            self.assertEqual(self.logits(missed, ids=IDS[:20]),
                             self.logits(table, ids=IDS[:20]))

    def test_each_token_by_its_id(self):
        dense = self.logits(DENSE)
        for rank in (0, 4):
            table = self.logits(self.hybrid("table", {2: None}, rank))
            for dtype in ("I32", "I64"):
                ids = Tensor(dtype, [len(SOME)], SOME)
                some = self.logits(self.hybrid("some", {2: ids}, rank))
                hits = 0
                for token, id in enumerate(IDS):
                    self.assertNotEqual(dense[token], table[token])
                    wanted = dense if id in SOME else table
                    self.assertEqual(some[token], wanted[token], token)
                    hits += id in SOME
                self.assertGreater(hits, 10)

    def test_bias_belongs_to_the_matrix(self):
        whole = self.logits(self.save("dense", *dense(bias=True)))
        table = self.logits(self.hybrid("table", {2: None}, bias=True))
        some = self.logits(self.hybrid("some", {2: SOME}, bias=True))
        self.assertEqual(some, [
            (whole if id in SOME else table)[token]
            for token, id in enumerate(IDS)])

    def test_layers_with_different_ids(self):
        both = self.hybrid("both", {1: list(range(96)), 2: SOME})
        ir = self.path("ir")
        self.assertEqual(self.logits(both, f"--dump-ir={ir}"),
                         self.logits(self.hybrid("last", {2: SOME})))
        graph = next(name for name in os.listdir(ir) if "graph" in name)
        with open(os.path.join(ir, graph)) as file:
            text = file.read()
        # The number of ids makes no function.
        self.assertEqual(text.count("func.func private @layer_stem"), 1)
        self.assertEqual(text.count("stem.select_up"), 1)

    def test_a_token_does_not_depend_on_the_others(self):
        model = self.hybrid("steps", {1: SOME, 2: SOME}, rank=4)
        whole = self.logits(model, "--threads=1")
        self.assertEqual(self.logits(model, "--threads=2"), whole)
        self.assertEqual(self.logits(model, ids=IDS[:70], batch=1), whole[:70])
        self.assertEqual(self.logits(model, ids=IDS[:5], batch=1), whole[:5])

    def test_decode_is_prefill(self):
        for name, ids in (("none", []), ("some", SOME),
                          ("all", list(range(96)))):
            model = self.hybrid(name, {1: ids, 2: ids})
            options = "--prompt-ids=5,10,33,0,3", "-n", 24, "--ignore-end"
            cached = stem_json("generate", model, *options)["ids"]
            self.assertEqual(cached, stem_json(
                "generate", model, *options, "--no-cache")["ids"])
            self.assertEqual(cached, stem_json(
                "generate", model, *options, "--threads=1")["ids"])
            if name == "all":
                self.assertEqual(cached, stem_json(
                    "generate", DENSE, *options)["ids"])

    def test_inspect_counts_the_matrix(self):
        model = self.hybrid("some", {1: SOME, 2: SOME})
        text = stem_run("inspect", model).stdout
        self.assertIn("ids that keep the up-projection: 9", text)
        self.assertIn("for one whose id keeps the up-projection", text)
        config, _ = dense()
        matrix = config["hidden_size"] * config["intermediate_size"]
        table = stem_json("inspect", self.hybrid(
            "table", {1: None, 2: None}))["model"]
        hybrid = stem_json("inspect", model)["model"]
        self.assertEqual(hybrid["parameters"] - table["parameters"], 2 * matrix)
        self.assertEqual(hybrid["flops_per_token"], table["flops_per_token"])
        self.assertEqual(
            hybrid["flops_per_selected_token"] - hybrid["flops_per_token"],
            4 * matrix)
        self.assertEqual(
            hybrid["bytes_read_per_selected_token"] -
            hybrid["bytes_read_per_token"], 8 * matrix)
        self.assertEqual(hybrid["bytes"] - table["bytes"],
                         2 * (4 * matrix + 8 * len(SOME)))
        self.assertEqual(hybrid["layers"][2]["selected_ids"], 9)
        self.assertNotIn("flops_per_selected_token", table)

    def test_bad_ids(self):
        name = "model.layers.2.mlp.up_select.ids"
        for ids, words in (
                (Tensor("I64", [3], [4, 3, 9]),
                 ["id 3 after 4 at 1", "must rise"]),
                (Tensor("I32", [3], [4, 9, 9]),
                 ["id 9 after 9 at 2", "must rise"]),
                (Tensor("I32", [2], [4, 96]),
                 ["id 96 at 1", "the vocabulary ends at 95"]),
                (Tensor("I64", [2], [4, 2**32 + 5]),
                 ["id 4294967301 at 1", "the vocabulary ends at 95"]),
                (Tensor("I64", [2], [-1, 4]), ["id -1 at 0"]),
                (Tensor("F32", [2], [3.0, 4.0]),
                 ["has type F32; I32 or I64 was expected"]),
                (Tensor("U8", [2], [3, 4]),
                 ["has type U8; I32 or I64 was expected"]),
                (Tensor("I64", [1, 2], [3, 4]), ["has shape [1, 2]"]),
                (Tensor("I64", [97], range(97)),
                 ["has 97 ids, the vocabulary 96"])):
            with self.subTest(words=words):
                model = self.hybrid("bad", {2: ids})
                self.assert_fails(
                    [os.path.join(model, "model.safetensors"), name, *words],
                    "eval", model, "--input-ids=none",
                    f"--logits-out={self.path('out')}")

    def test_missing_tensors(self):
        model = self.hybrid("missing", {2: SOME})
        path = os.path.join(model, "model.safetensors")
        for name in ("up_select.ids", "up_proj.weight"):
            with self.subTest(name=name):
                tensors = read_tensors(path)
                del tensors["model.layers.2.mlp." + name]
                broken = self.copy_model("broken", model)
                write_tensors(os.path.join(broken, "model.safetensors"),
                              tensors)
                self.assert_fails(
                    [name, "is missing"], "eval", broken, "--input-ids=none",
                    f"--logits-out={self.path('out')}")
                shutil.rmtree(broken)


if __name__ == "__main__":
    unittest.main()
