#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stem-run train --tables=file: the bits of tables in memory."""

import json
import os
import unittest

from e2e import stem_json, stem_run
from training import ROW_MODES, STEM, TrainingTest, contents, metrics

PLACES = ("resident", "file")


class TrainTablesTest(TrainingTest):
    def assert_same_run(self, first, second):
        self.assertEqual(contents(first), contents(second))
        losses = [{step: line["loss"] for step, line in metrics(out).items()}
                  for out in (first, second)]
        self.assertEqual(losses[0], losses[1])

    def converted(self):
        """A model of two tables and a tokenizer."""
        model = self.path("stem")
        stem_run("convert", self.small, model, "--layers=1,4",
                 "--init=xavier")
        return model

    def in_both(self, name, *options, model=STEM):
        """The folders of a run with tables in memory and of one with files."""
        outs = [self.path(f"{name}-{place}") for place in PLACES]
        for out, place in zip(outs, PLACES):
            stem_run("train", model, f"--out={out}", f"--tables={place}",
                     *options)
        return outs

    def test_every_row_mode(self):
        batch = self.batch()
        for name, mode in ROW_MODES.items():
            for dtype in "f32", "bf16":
                with self.subTest(mode=name, dtype=dtype):
                    self.assert_same_run(*self.in_both(
                        f"{name}-{dtype}", f"--batch-ids={batch}",
                        "--steps=20", "--lr=1e-2", f"--row-dtype={dtype}",
                        f"--dtype={dtype}", *mode))

    def test_every_part(self):
        """Batches that differ, of which the next one's rows are read ahead,
        and validations between."""
        text, model = self.text(), self.converted()
        for part in "all", "tables", "stem-layers", "rows":
            for extra in ["--row-optimizer=exact"], ["--accumulate=2"]:
                with self.subTest(part=part, extra=extra):
                    self.assert_same_run(*self.in_both(
                        part + extra[0],
                        f"--data={text}", f"--train={part}", "--ctx=16",
                        "--batch=2", "--steps=7", "--lr=1e-2",
                        "--eval-every=2", "--validation=0.2", *extra,
                        model=model))

    def test_resume_in_the_other_place(self):
        text, model = self.text(), self.converted()
        common = ["train", model, f"--data={text}", "--ctx=16", "--batch=2",
                  "--lr=1e-2", "--schedule=constant"]
        whole = self.path("whole")
        stem_run(*common, "--steps=8", f"--out={whole}")
        for places in PLACES, PLACES[::-1]:
            out = self.path("-".join(places))
            stem_run(*common, "--steps=3", f"--out={out}",
                     f"--tables={places[0]}")
            stem_run(*common, "--steps=8", f"--out={out}", "--resume",
                     f"--tables={places[1]}")
            self.assert_same_run(whole, out)

    def test_plan_and_report(self):
        result = stem_json("train", STEM, f"--out={self.path('out')}",
                           f"--batch-ids={self.batch()}", "--steps=2",
                           "--row-optimizer=exact", "--tables=file")
        self.assertEqual(result["tables"], "file")
        plan = result["plan"]
        self.assertEqual(plan["memory"]["tables"], 0)
        self.assertGreater(plan["files"]["tables"], 0)
        self.assertGreater(plan["files"]["row_moments"],
                           plan["files"]["tables"])
        for line in metrics(self.path("out")).values():
            self.assertGreaterEqual(line["row_wait_seconds"], 0)
        # Of the files nothing is left.
        self.assertEqual(
            sorted(os.listdir(os.path.join(self.path("out"), "training"))),
            ["metrics.jsonl", "report.html", "step-0000000002"])
        result = stem_json("train", STEM, f"--out={self.path('in')}",
                           f"--batch-ids={self.batch()}", "--steps=2")
        self.assertEqual(result["tables"], "resident")
        self.assertEqual(result["plan"]["files"], {})
        host = self.path("host")
        stem_run("train", STEM, f"--out={host}",
                 f"--batch-ids={self.batch()}", "--steps=2", "--tables=host")
        self.assert_same_run(self.path("in"), host)

    def test_no_table(self):
        run = stem_run("train", self.small, f"--out={self.path('out')}",
                       f"--batch-ids={self.batch()}", "--steps=1",
                       "--tables=file")
        self.assertIn("no layer has a table: --tables=file changes nothing",
                      run.stderr)

    def test_auto(self):
        """In memory where that is enough, else in a file; where that is too
        much as well, no run."""
        with open(os.path.join(STEM, "config.json")) as file:
            config = json.load(file)
        config.update(vocab_size=20000, intermediate_size=4096)
        source = self.write("config.json", json.dumps(config))
        common = ["train", f"--from-config={source}", "--steps=1",
                  f"--batch-ids={self.batch()}", "--table-betas=0,0.95"]
        places = {}
        for limit in "20GB", "700MB":
            result = stem_json(*common, f"--out={self.path(limit)}",
                               "--tables=auto", f"--memory={limit}")
            places[result["tables"]] = self.path(limit)
        self.assertEqual(set(places), {"resident", "file"})
        self.assert_same_run(*places.values())
        for place, hint in ("resident", "give --tables=file, a smaller"), \
                ("file", "give a smaller --batch"):
            self.assert_fails(["--memory allows 10 MB", hint], *common,
                              f"--out={self.path('out')}",
                              f"--tables={place}", "--memory=10MB")
        # The model that came out, where it is only read.
        model, texts = places["file"], []
        for limit, place in ("20GB", "resident"), ("500MB", "file"):
            result = stem_json("generate", model, "--prompt-ids=5,6,7", "-n",
                               "4", "--tables=auto", f"--memory={limit}")
            plan = result["engine"]["plan"]
            self.assertEqual(plan["tables_in_files"] > 0, place == "file")
            texts.append(result["ids"])
        # One that has a place of its own stays there.
        result = stem_json("generate", model, "--prompt-ids=5,6,7", "-n", "4",
                           "--tables=auto", "--memory=650MB",
                           "--table-place=2=resident")
        self.assertEqual([table["place"]
                          for table in result["engine"]["tables"]],
                         ["file", "resident"])
        texts.append(result["ids"])
        self.assertEqual(texts, texts[:1] * 3)
        self.assert_fails(["--memory allows 500 MB",
                           "--tables=file leaves the tables"], "generate",
                          model, "--prompt-ids=5", "--memory=500MB")

    def test_larger_than_the_disk(self):
        with open(os.path.join(STEM, "config.json")) as file:
            config = json.load(file)
        config.update(vocab_size=1 << 20, intermediate_size=1 << 16,
                      hidden_size=16, num_attention_heads=2,
                      num_key_value_heads=2, tie_word_embeddings=True)
        config.pop("head_dim", None)
        path = self.write("config.json", json.dumps(config))
        self.assert_fails(["--tables=file takes", "tables", "row moments",
                           "are free on", "choose another --out"],
                          "train", f"--from-config={path}",
                          f"--out={self.path('out')}",
                          f"--batch-ids={self.batch()}", "--steps=1",
                          "--tables=file")


if __name__ == "__main__":
    unittest.main()
