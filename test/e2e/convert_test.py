#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""import and convert: what lies in the folders they write."""

import json
import math
import os
import unittest

from e2e import GOLDEN, ModelTest, Tensor, read_tensors, stem_json, stem_run, \
    write_tensors


def table_of(folder, layer):
    file = os.path.join(folder, f"stem-table-{layer:03}.safetensors")
    return read_tensors(file)[f"model.layers.{layer}.mlp.up_table.weight"]


def embedding_rows(model, layer, epsilon):
    """W_up · norm(emb[t]) for every t, in double precision."""
    tensors = read_tensors(os.path.join(model, "model.safetensors"))
    emb = tensors["model.embed_tokens.weight"]
    up = tensors[f"model.layers.{layer}.mlp.up_proj.weight"]
    norm = tensors[
        f"model.layers.{layer}.post_attention_layernorm.weight"].values
    for t in range(emb.shape[0]):
        x = emb.row(t)
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + epsilon)
        x = [v * scale * w for v, w in zip(x, norm)]
        yield [sum(a * b for a, b in zip(up.row(i), x))
               for i in range(up.shape[0])]


class ConvertTest(ModelTest):
    model = os.path.join(GOLDEN, "llama_gqa")

    def convert(self, *options, model=None):
        out = self.path("stem")
        result = stem_json("convert", model or self.model, out, *options)
        return out, result

    def assert_close(self, got, wanted):
        for a, b in zip(got, wanted):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def test_embedding_rows(self):
        out, _ = self.convert("--layers=1", "--init=embedding")
        table = table_of(out, 1)
        self.assertEqual((table.dtype, table.shape), ("F32", [96, 80]))
        for t, row in enumerate(embedding_rows(self.model, 1, 1e-5)):
            self.assert_close(table.row(t), row)

    def test_mean_rows(self):
        out, _ = self.convert("--layers=2", "--init=row-mean")
        table = table_of(out, 2)
        rows = list(embedding_rows(self.model, 2, 1e-5))
        mean = [sum(column) / len(rows) for column in zip(*rows)]
        for t in range(96):
            self.assert_close(table.row(t), mean)

    def test_xavier_rows(self):
        first, result = self.convert("--layers=all", "--init=xavier",
                                     "--seed=3")
        self.assertEqual(result["seed"], 3)
        table = table_of(first, 1)
        mean = sum(table.values) / len(table.values)
        variance = sum((v - mean) ** 2 for v in table.values) / len(
            table.values)
        self.assertAlmostEqual(mean, 0, delta=0.01)
        self.assertAlmostEqual(variance, 2 / (96 + 80), delta=0.001)
        self.assertNotEqual(table.values, table_of(first, 2).values)
        again = self.path("again")
        stem_run("convert", self.model, again, "--layers=1", "--init=xavier",
                 "--seed=3", "--threads=1")
        self.assertEqual(table.values, table_of(again, 1).values)
        other = self.path("other")
        stem_run("convert", self.model, other, "--layers=1", "--init=xavier",
                 "--seed=4")
        self.assertNotEqual(table.values, table_of(other, 1).values)

    def test_folder(self):
        source = self.copy_model(source=self.model)
        out, result = self.convert("--layers=1/2", "--init=row-mean",
                                   model=source)
        self.assertEqual(result["converted"], [1])
        with open(os.path.join(out, "config.json")) as file:
            config = json.load(file)
        with open(os.path.join(source, "config.json")) as file:
            original = json.load(file)
        self.assertEqual(config["model_type"], "stem_llama")
        self.assertEqual(config["stem"]["base"]["model_type"], "llama")
        self.assertEqual(config["stem"]["layers"], [1])
        self.assertEqual(config["stem"]["row_dtype"], "float32")
        for key, value in original.items():
            if key not in ("model_type", "architectures"):
                self.assertEqual(config[key], value)
        with open(os.path.join(out, "model.safetensors.index.json")) as file:
            weights = json.load(file)["weight_map"]
        self.assertNotIn("model.layers.1.mlp.up_proj.weight", weights)
        self.assertEqual(weights["model.layers.1.mlp.up_table.weight"],
                         "stem-table-001.safetensors")
        shard = os.path.join(out, weights["lm_head.weight"])
        self.assertTrue(os.path.samefile(
            shard, os.path.join(source, "model.safetensors")))
        module = config["auto_map"]["AutoModelForCausalLM"].split(".")[0]
        with open(os.path.join(out, module + ".py")) as file:
            compile(file.read(), module, "exec")

    def test_costs(self):
        _, result = self.convert("--layers=all", "--init=row-mean")
        before, after = result["before"], result["after"]
        # d 32, d_ff 80, V 96, two layers converted
        self.assertEqual(before["flops_per_token"] - after["flops_per_token"],
                         2 * 2 * 32 * 80)
        self.assertEqual(after["parameters"] - before["parameters"],
                         2 * (96 * 80 - 32 * 80))
        self.assertEqual(before["layers"][0], after["layers"][0])
        self.assertEqual([entry["kind"] for entry in after["layers"]],
                         ["dense", "stem", "stem"])
        self.assertEqual(before["bytes"], 4 * before["parameters"])

    def test_convert_again(self):
        first, _ = self.convert("--layers=2", "--init=row-mean")
        second = self.path("second")
        result = stem_json("convert", first, second, "--layers=all",
                           "--init=row-mean")
        self.assertEqual(result["converted"], [1])
        inspected = stem_json("inspect", second)
        self.assertEqual(inspected["model"]["stem"]["layers"], [1, 2])
        self.assertEqual(inspected["unsupported"], [])
        self.assert_fails(["layer 2 is STEM already"], "convert", first,
                          self.path("third"), "--layers=2", "--init=row-mean")

    def test_bias_goes_into_the_rows(self):
        source = self.copy_model(source=self.model)
        tensors = read_tensors(os.path.join(source, "model.safetensors"))
        for layer in range(3):
            for projection, width in [("gate_proj", 80), ("up_proj", 80),
                                      ("down_proj", 32)]:
                key = f"model.layers.{layer}.mlp.{projection}.bias"
                tensors[key] = Tensor("F32", [width], [2.0] * width)
        write_tensors(os.path.join(source, "model.safetensors"), tensors)
        out, _ = self.convert("--layers=1", "--init=row-mean", model=source)
        plain = self.path("plain")
        stem_run("convert", self.model, plain, "--layers=1",
                 "--init=row-mean")
        self.assert_close(table_of(out, 1).row(5),
                          [v + 2 for v in table_of(plain, 1).row(5)])

    def test_left_out_is_named(self):
        source = self.copy_model(source=self.model)
        tensors = read_tensors(os.path.join(source, "model.safetensors"))
        rotary = "model.layers.0.self_attn.rotary_emb.inv_freq"
        tensors[rotary] = Tensor("F32", [4], [1.0] * 4)
        write_tensors(os.path.join(source, "model.safetensors"), tensors)
        out, result = self.convert("--layers=1", "--init=row-mean",
                                   model=source)
        self.assertEqual(result["left_out"], [rotary])
        self.assertEqual(result["replaced"],
                         ["model.layers.1.mlp.up_proj.weight"])
        with open(os.path.join(out, "model.safetensors.index.json")) as file:
            self.assertNotIn(rotary, json.load(file)["weight_map"])
        self.assertEqual(
            stem_json("import", source, self.path("copy"))["left_out"],
            [rotary])
        # What a folder links, it does not list: both are named again.
        again = stem_json("convert", out, self.path("again"), "--layers=2",
                          "--init=row-mean")
        self.assertEqual(again["left_out"],
                         ["model.layers.0.self_attn.rotary_emb.inv_freq",
                          "model.layers.1.mlp.up_proj.weight"])
        for command, *options in ["import"], ["convert", "--layers=1",
                                              "--init=row-mean"]:
            text = stem_run(command, source, self.path(f"text-{command}"),
                            *options).stdout
            self.assertIn(f"left out, without effect: {rotary}", text)

    def test_nothing_left_out(self):
        _, result = self.convert("--layers=1", "--init=row-mean")
        self.assertEqual(result["left_out"], [])

    def test_import_and_types(self):
        out = self.path("bf16")
        result = stem_json("import", self.model, out, "--dtype=bf16")
        self.assertEqual(result["tensors"], 30)
        self.assertEqual(result["left_out"], [])
        self.assertGreater(result["rounding"]["largest"], 0)
        self.assertLess(result["rounding"]["relative"], 2 ** -8)
        with open(os.path.join(out, "config.json")) as file:
            self.assertEqual(json.load(file)["dtype"], "bfloat16")
        back = self.path("f32")
        result = stem_json("import", out, back, "--dtype=f32")
        self.assertNotIn("rounding", result)
        exact = read_tensors(os.path.join(self.model, "model.safetensors"))
        rounded = read_tensors(os.path.join(back, "model.safetensors"))
        self.assertEqual(sorted(exact), sorted(rounded))
        for name, tensor in exact.items():
            for a, b in zip(tensor.values, rounded[name].values):
                self.assertLessEqual(abs(a - b), abs(a) * 2 ** -8)

    def test_import_keeps_bytes(self):
        out = self.path("copy")
        stem_run("import", self.small, out)
        before = read_tensors(os.path.join(self.small, "model.safetensors"))
        after = read_tensors(os.path.join(out, "model.safetensors"))
        self.assertEqual({n: t.values for n, t in before.items()},
                         {n: t.values for n, t in after.items()})
        for name in "tokenizer.json", "generation_config.json":
            with open(os.path.join(self.small, name)) as a, \
                    open(os.path.join(out, name)) as b:
                self.assertEqual(a.read(), b.read())


if __name__ == "__main__":
    unittest.main()
