#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""--staging-rows: steps of more different ids are computed in parts, to the
same bits."""

import os
import random
import unittest

from e2e import GOLDEN, ModelTest, Tensor, stem_json, stem_run, write_tensors


class StagingRowsTest(ModelTest):
    def stem(self, *options, source=None, layers="1,4"):
        model = self.path("stem" + "".join(options))
        stem_run("convert", source or self.small, model, f"--layers={layers}",
                 "--init=embedding", *options)
        return model

    def ids(self, vocabulary=96, count=250):
        numbers = random.Random(1)
        path = self.path("ids.safetensors")
        write_tensors(path, {"input_ids": Tensor("I64", [2, count], [
            numbers.randrange(vocabulary) for _ in range(2 * count)])})
        return path

    def check_logits(self, model, *options, places=("file",)):
        def logits(*more):
            out = self.path("logits.safetensors")
            result = stem_json("eval", model, f"--input-ids={self.ids()}",
                               f"--logits-out={out}", "--force", *options,
                               *more)
            with open(out, "rb") as file:
                return file.read(), result["engine"]
        wanted, _ = logits("--tables=resident")
        for place in places:
            _, whole = logits(f"--tables={place}")
            self.assertEqual(whole["staging_cuts"], 0)
            for more in ([], ["--cache-rows=0"])[:1 + (place == "file")]:
                read, engine = logits(f"--tables={place}", "--staging-rows=64",
                                      *more)
                self.assertEqual(wanted, read)
                self.assertGreater(engine["staging_cuts"], 0)
                self.assertGreater(engine["steps"], whole["steps"])
                self.assertEqual(engine["plan"]["staged_rows"], 64)
                self.assertLess(engine["plan"]["staging"],
                                whole["plan"]["staging"])

    def test_logits(self):
        for row_type, dtype in (("f32", "f32"), ("bf16", "bf16")):
            with self.subTest(dtype=dtype):
                self.check_logits(self.stem(f"--row-dtype={row_type}"),
                                  f"--dtype={dtype}")

    def test_rows_of_8_bits(self):
        self.check_logits(self.stem("--cold-rows=int8"),
                          places=("resident", "file"))

    def test_sliding_window(self):
        model = self.stem(source=os.path.join(GOLDEN, "mistral_sliding"),
                          layers="0,2")
        for dtype in "f32", "bf16":
            with self.subTest(dtype=dtype):
                self.check_logits(model, f"--dtype={dtype}")

    def test_perplexity(self):
        model = self.stem()
        text = self.write("text.jsonl", "".join(
            '{"text": "%s"}\n' % "".join(chr(32 + (i * k) % 90) for i in
                                         range(1, 40 * k)).replace(
                '"', "'").replace("\\", "/") for k in (1, 7, 13)))
        options = ["eval", model, f"--text={text}", "--ctx=200",
                   "--stride=150"]
        for more in [], [f"--against={self.small}"]:
            wanted = stem_json(*options, *more)
            seen = stem_json(*options, *more, "--tables=file",
                             "--staging-rows=64")
            self.assertEqual(wanted["files"], seen["files"])
        self.assertGreater(stem_json(*options, "--tables=file",
                                     "--staging-rows=64")
                           ["engine"]["staging_cuts"], 0)

    def test_generate(self):
        """Prefill and decode of more sequences than staging has rows."""
        model = self.stem()
        prompts = [f"--prompt-ids={i},{i + 7},{(3 * i) % 95}"
                   for i in range(80)]
        options = ["generate", model, *prompts, "--temperature=2", "--seed=3",
                   "-n", "6", "--ignore-end", "--tables=file"]
        for more in [], ["--no-cache"]:
            wanted = stem_json(*options, *more)
            seen = stem_json(*options, *more, "--staging-rows=64")
            self.assertEqual(wanted["ids"], seen["ids"])
            self.assertEqual(wanted["engine"]["staging_cuts"], 0)
            self.assertGreater(seen["engine"]["staging_cuts"], 0)
        told = stem_run(*options, "--staging-rows=64").stderr
        self.assertIn("tables at a time, 64 rows of each, and of ", told)
        self.assertRegex(told, r"\ntables: .* ids in \d+ steps \(\d+ because "
                         r"staging was full\), ")

    def test_bench(self):
        result = stem_json("bench", self.stem(), "--tables=file",
                           "--prompt-tokens=400", "--decode-tokens=2",
                           "--repeat=1", "--staging-rows=64")
        self.assertGreater(result["models"][0]["engine"]["staging_cuts"], 0)

    def test_refusals(self):
        model = self.stem()
        generate = ["generate", model, "--prompt=the", "-n", "1"]
        for place in "file", "resident", "auto":
            self.assert_fails(
                ["--staging-rows=63: a tile of 64 tokens is computed as a "
                 "whole", "64 rows are needed of each table, 1 more than 63"],
                *generate, f"--tables={place}", "--staging-rows=63")
        for rows in "-1", "1.5", "many", "4294967296":
            self.assert_fails(["--staging-rows", "is no whole number from 0 "
                               "to 2147483647"], *generate, "--tables=file",
                              f"--staging-rows={rows}", status=2)
        self.assert_fails(["--train", "--staging-rows"], "bench", model,
                          "--train", "--staging-rows=64", status=2)

    def test_nothing_is_staged(self):
        model = self.stem()
        said = "no row of a table is staged: --staging-rows=64 changes nothing"
        for name, place, wanted in ((model, "resident", True),
                                    (model, "file", False),
                                    (self.small, "resident", True)):
            errors = stem_run("generate", name, "--prompt=the", "-n", "1",
                              f"--tables={place}", "--staging-rows=64").stderr
            self.assertEqual(said in errors, wanted, errors)


if __name__ == "__main__":
    unittest.main()
