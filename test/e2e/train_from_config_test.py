#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stem-run train --from-config: models that begin with random weights."""

import json
import os
import shutil
import unittest

from e2e import GOLDEN, Tensor, read_tensors, stem_json, stem_run, \
    write_tensors
from training import TrainingTest, contents, metrics, model_tensors

STEM = {"version": 1, "base": {"model_type": "llama",
                               "architectures": ["LlamaForCausalLM"]},
        "layers": [1, 3], "rank": 0, "select": False,
        "row_dtype": "float32"}


class TrainFromConfigTest(TrainingTest):
    def config(self, name="config.json", stem=None, without=(), **changes):
        """Of the small model, in a folder of its own, without weights."""
        with open(os.path.join(self.small, "config.json")) as file:
            config = json.load(file)
        config.update(changes)
        if stem is not None:
            config.update(model_type="stem_llama", stem=stem)
        for key in without:
            config.pop(key, None)
        return self.write(name, json.dumps(config))

    def begin(self, config, out, *options):
        return stem_json("train", f"--from-config={config}",
                         f"--out={self.path(out)}", *options)

    def beside(self, config, *names):
        """The config in a folder that has these files of the small model."""
        folder = self.path("folder")
        os.mkdir(folder)
        shutil.copy(config, os.path.join(folder, "config.json"))
        for name in names:
            shutil.copy(os.path.join(self.small, name), folder)
        return os.path.join(folder, "config.json")

    # ---- What it makes ----

    def test_learns_a_batch(self):
        batch = self.batch()
        models = {"dense": {}, "stem": {"stem": STEM},
                  "mix": {"stem": {**STEM, "rank": [0, 4]}},
                  "bf16": {"stem": {**STEM, "row_dtype": "bfloat16"},
                           "dtype": "bfloat16"},
                  "untyped": {"without": ("dtype", "torch_dtype")}}
        for name, changes in models.items():
            with self.subTest(model=name):
                config = self.config(name + ".json", **changes)
                result = self.begin(config, name, f"--batch-ids={batch}",
                                    "--steps=12", "--lr=1e-2",
                                    "--schedule=constant")
                self.assertEqual(result["model"], config)
                lines = metrics(self.path(name))
                self.assertLess(lines[12]["loss"], 0.7 * lines[1]["loss"])
                self.check_folder(self.path(name), result)

    def check_folder(self, out, result):
        """A model like any other."""
        stem_run("inspect", out)
        ids = stem_json("generate", out, "--prompt-ids=1,2,3", "-n", "4")
        self.assertEqual(len(ids["ids"]), 4)
        with open(os.path.join(out, "config.json")) as file:
            config = json.load(file)
        self.assertIn(config.get("dtype", config.get("torch_dtype")),
                      ("float32", "bfloat16"))
        self.assertEqual("auto_map" in config, "stem" in config)
        logits = out + ".logits"
        write_tensors(self.path("ids"),
                      {"input_ids": Tensor("I64", [1, 4], [1, 2, 3, 4])})
        stem_run("eval", out, f"--input-ids={self.path('ids')}",
                 f"--logits-out={logits}")
        self.assertEqual(read_tensors(logits)["logits"].shape[:2], [1, 4])
        self.assertGreater(result["loss"], 0)

    def test_first_weights(self):
        """Norms are 1; the same seed is the same model, with any threads."""
        batch = self.batch()
        config = self.config(stem=STEM, initializer_range=0.05)
        outs = {}
        for name, flags in {"a": ["--threads=1"], "b": ["--threads=2"],
                            "other": ["--seed=1"]}.items():
            self.begin(config, name, f"--batch-ids={batch}", "--steps=0",
                       *flags)
            outs[name] = model_tensors(self.path(name))
        for name, tensor in outs["a"].items():
            self.assertEqual(tensor.values, outs["b"][name].values, name)
            is_norm = "norm" in name
            self.assertEqual(tensor.values == outs["other"][name].values,
                             is_norm, name)
            values = tensor.floats()
            if is_norm:
                self.assertEqual(set(values), {1.0})
                continue
            rows, columns = tensor.shape
            wanted = (2 / (rows + columns)) ** 0.5 if "up_table" in name \
                else 0.05
            found = (sum(x * x for x in values) / len(values)) ** 0.5
            self.assertAlmostEqual(found / wanted, 1, delta=0.1, msg=name)

    def test_equal_runs_and_resume(self):
        batch = self.batch()
        config = self.config(stem=STEM)
        common = ["train", f"--from-config={config}", f"--batch-ids={batch}",
                  "--lr=1e-2", "--schedule=constant", "--seed=5"]
        whole, again, broken = (self.path(n) for n in ("a", "b", "c"))
        for out in whole, again:
            stem_run(*common, "--steps=6", f"--out={out}")
        self.assertEqual(contents(whole), contents(again))
        stem_run(*common, "--steps=3", f"--out={broken}")
        stem_run(*common, "--steps=6", f"--out={broken}", "--resume")
        self.assertEqual(contents(whole), contents(broken))
        changed = self.config("changed.json", stem=STEM,
                              initializer_range=0.03)
        for source, flags in (changed, []), (config, ["--seed=6"]):
            line = [part for part in common if "from-config" not in part
                    and "seed" not in part]
            self.assert_fails(["--resume", "model was"], *line,
                              f"--from-config={source}",
                              *(flags or ["--seed=5"]), "--steps=9",
                              f"--out={broken}", "--resume")

    # ---- Text and tokens ----

    def test_text_needs_a_tokenizer(self):
        text = self.text()
        lone = self.config()
        data = [f"--data={text}", "--ctx=16", "--batch=2", "--steps=4",
                "--lr=1e-2"]
        self.assert_fails(["there is no tokenizer", "--batch-ids", "--shard"],
                          "train", f"--from-config={lone}",
                          f"--out={self.path('no')}", *data)
        self.assertFalse(os.path.exists(self.path("no")))
        whole = self.beside(lone, "tokenizer.json", "tokenizer_config.json")
        shard = self.path("tokens.safetensors")
        self.begin(whole, "text", f"--shard={shard}", *data)
        result = stem_json("eval", self.path("text"), f"--text={text}")
        self.assertGreater(result["files"][0]["perplexity"], 1)
        # The ids alone need none.
        done = stem_run("train", f"--from-config={lone}",
                        f"--out={self.path('ids')}", f"--shard={shard}",
                        *data[1:])
        self.assertIn("is taken as it is", done.stderr)
        losses = [{step: line["loss"]
                   for step, line in metrics(self.path(out)).items()}
                  for out in ("text", "ids")]
        self.assertEqual(*losses)
        few = self.config("few.json", vocab_size=32)
        self.assert_fails([shard, "has 32 rows"], "train",
                          f"--from-config={few}", f"--shard={shard}",
                          f"--out={self.path('few-out')}", *data[1:])

    # ---- What it refuses ----

    def test_bad_configs(self):
        batch = self.batch()
        cases = {
            "activation": ({"hidden_act": "gelu"}, ["gelu"]),
            "type": ({"model_type": "mamba"}, ["mamba", "llama"]),
            "missing": ({"without": ("hidden_size",)}, ["hidden_size"]),
            "range": ({"initializer_range": -1}, ["initializer_range", "-1"]),
            "word": ({"initializer_range": "x"}, ["initializer_range", '"x"']),
            "float64": ({"dtype": "float64"}, ["float64", "bfloat16"]),
            "rows": ({"stem": {**STEM, "row_dtype": "uint8"}},
                     ["stem.row_dtype", "uint8"]),
            "select": ({"stem": {**STEM, "select": True}}, ["stem.select"]),
            "layer": ({"stem": {**STEM, "layers": [99]}}, ["layer 99"]),
            "large": ({key: 1 << 30 for key in (
                "hidden_size", "head_dim", "num_attention_heads",
                "num_key_value_heads")}, ["_proj.weight", "too large"]),
            "memory": ({"hidden_size": 1 << 18, "head_dim": 8,
                        "vocab_size": 1 << 20, "num_hidden_layers": 1},
                       ["training takes", "available"]),
        }
        for name, (changes, parts) in cases.items():
            with self.subTest(case=name):
                config = self.config(name + ".json", **changes)
                self.assert_fails(parts, "train", f"--from-config={config}",
                                  f"--batch-ids={batch}", "--steps=1",
                                  f"--out={self.path('no')}")
                self.assertFalse(os.path.exists(self.path("no")))

    def test_bad_files(self):
        batch = self.batch()
        for path, parts in {
                self.path("none.json"): ["no such file", "config.json"],
                self.small: ["is a folder", "config.json"],
                self.write("broken.json", "{"): ["broken.json"],
                self.write("list.json", "[]"): ["list.json"]}.items():
            self.assert_fails(parts, "train", f"--from-config={path}",
                              f"--batch-ids={batch}", "--steps=1",
                              f"--out={self.path('no')}")

    def test_one_start(self):
        batch = self.batch()
        rest = [f"--batch-ids={batch}", "--steps=1",
                f"--out={self.path('no')}"]
        self.assert_fails(["there is no model", "--from-config"], "train",
                          *rest, status=2)
        result = stem_run("train", os.path.join(GOLDEN, "llama_gqa"),
                          f"--from-config={self.config()}", *rest,
                          check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("excludes", result.stderr)


if __name__ == "__main__":
    unittest.main()
