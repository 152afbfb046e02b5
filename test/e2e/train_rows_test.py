#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stem-run train --train=rows:FILE: what moves, what it leaves, and what it
refuses."""

import json
import os
import unittest

from e2e import GOLDEN, Tensor, read_metadata, read_tensors, stem_json, \
    stem_run, write_tensors
from training import ROW_MODES, STEM, TrainingTest, checkpoints, metrics, \
    model_tensors

IDS = [3, 8, 30, 77, 95]
LAYERS = (1, 2)


def rows_of(path):
    """{(layer, id): row} of an overlay."""
    tensors = read_tensors(path)
    ids = tensors.pop("ids").values
    return {(int(name.split(".")[2]), token): tensor.row(i)
            for name, tensor in tensors.items()
            for i, token in enumerate(ids)}


class TrainRowsTest(TrainingTest):
    def token_list(self, ids=IDS):
        return self.write("ids.txt", "".join(f"{i}\n" for i in ids))

    def given(self, ids, labels=None):
        path = self.path("given.safetensors")
        write_tensors(path, {
            "input_ids": Tensor("I64", [1, len(ids)], ids),
            "labels": Tensor("I64", [1, len(ids)],
                             labels or list(range(len(ids))))})
        return path

    # ---- What moves ----

    def test_rows_of_the_data(self):
        """are those of a list of its tokens, to the byte, with a text too."""
        model = self.path("stem")
        stem_run("convert", self.small, model, "--layers=1",
                 "--init=row-mean")
        text = self.write("text", "A kite is light. " * 40)
        given = [3, 8, 30, 77, 95, 8]
        for source, data in ((STEM, [f"--batch-ids={self.given(given)}"]),
                             (model, [f"--data={text}", "--ctx=32"])):
            with self.subTest(data=data):
                rows = []
                for name, part in (("data", "rows"),
                                   ("list", "rows:" + self.path("ids.txt"))):
                    out = self.path(name + os.path.basename(source))
                    result = stem_json("train", source, *data, "--steps=2",
                                       f"--train={part}", f"--out={out}")
                    rows.append(os.path.join(out, "rows.safetensors"))
                    ids = read_tensors(rows[-1])["ids"].values
                    self.assertEqual(result["rows"]["present"], len(ids))
                    self.write("ids.txt", "".join(f"{i}\n" for i in ids))
                    if data[0].startswith("--batch-ids"):
                        self.assertEqual(list(ids), sorted(set(given)))
                with open(rows[0], "rb") as a, open(rows[1], "rb") as b:
                    self.assertEqual(a.read(), b.read())

    def test_rows_of_the_list_alone(self):
        """move, and those of them that the batch reads; exact lets the others
        decay."""
        batch = self.given([3, 4, 5, 30, 3, 9, 95, 6])
        table = {(layer, row): model_tensors(STEM)[
            f"model.layers.{layer}.mlp.up_table.weight"].row(row)
            for layer in LAYERS for row in range(96)}
        for mode, flags in ROW_MODES.items():
            with self.subTest(mode=mode):
                out = self.path(mode)
                result = stem_run(
                    "train", STEM, f"--batch-ids={batch}", "--steps=4",
                    "--lr=1e-2", f"--out={out}",
                    f"--train=rows:{self.token_list()}", *flags)
                self.assertIn("2 of its 5 tokens are not in the training data",
                              result.stderr)
                self.assertEqual(os.listdir(out).count("rows.safetensors"), 1)
                self.assertEqual(set(os.listdir(out)),
                                 {"rows.safetensors", "training"})
                rows = rows_of(os.path.join(out, "rows.safetensors"))
                self.assertEqual(set(rows), {(layer, token) for layer in LAYERS
                                             for token in IDS})
                for place, row in rows.items():
                    same = row == table[place]
                    self.assertEqual(same, place[1] in (8, 77) and
                                     mode != "exact", place)
                self.assertEqual(metrics(out)[1]["rows_touched"], 2 * 3)

    def test_first_step_is_that_of_tables(self):
        """Gradients of these rows are the same, and nothing else is in the
        norm."""
        batch, outs = self.batch(), {}
        for part in "tables", "rows":
            outs[part] = self.path(part)
            flag = part if part == "tables" else \
                f"rows:{self.token_list(range(96))}"
            stem_run("train", STEM, f"--batch-ids={batch}", "--steps=5",
                     "--lr=1e-2", f"--out={outs[part]}", f"--train={flag}",
                     "--clip=0.01", "--row-optimizer=exact")
        tables = model_tensors(outs["tables"])
        rows = rows_of(os.path.join(outs["rows"], "rows.safetensors"))
        for (layer, token), row in rows.items():
            name = f"model.layers.{layer}.mlp.up_table.weight"
            self.assertEqual(row, tables[name].row(token), (layer, token))
        # One step without clipping: of some of the rows too.
        some = self.path("some")
        whole = self.path("whole")
        common = ["train", STEM, f"--batch-ids={batch}", "--steps=1"]
        stem_run(*common, f"--out={whole}", "--train=tables")
        stem_run(*common, f"--out={some}",
                 f"--train=rows:{self.token_list([8, 15, 22])}")
        tables = model_tensors(whole)
        for (layer, token), row in rows_of(
                os.path.join(some, "rows.safetensors")).items():
            name = f"model.layers.{layer}.mlp.up_table.weight"
            self.assertEqual(row, tables[name].row(token), (layer, token))

    def test_micro_batches(self):
        batch, outs = self.given([3, 4, 30, 3]), []
        for accumulate in 1, 2:
            outs.append(self.path(f"out{accumulate}"))
            stem_run("train", STEM, f"--batch-ids={batch}", "--steps=1",
                     f"--out={outs[-1]}", f"--accumulate={accumulate}",
                     f"--train=rows:{self.token_list([3, 30])}")
        rows = [rows_of(os.path.join(out, "rows.safetensors"))
                for out in outs]
        for place, row in rows[0].items():
            for one, two in zip(row, rows[1][place]):
                self.assertAlmostEqual(one, two, places=5)

    # ---- What it leaves ----

    def test_plan_and_checkpoints_are_of_these_rows(self):
        batch, out = self.given([3, 4, 30, 3]), self.path("out")
        result = stem_json("train", STEM, f"--batch-ids={batch}", "--steps=2",
                           f"--out={out}", "--row-optimizer=lazy",
                           f"--train=rows:{self.token_list()}")
        memory = result["plan"]["memory"]
        self.assertEqual(memory["row_moments"], 2 * 5 * 80 * 8)
        self.assertEqual(memory["tables"], 2 * (96 + 5) * 80 * 4)
        self.assertEqual(memory["masters"] + memory["moments"], 0)
        # Of the five and one for all others.
        self.assertEqual(memory["gradients"], 2 * 6 * 80 * 4)
        self.assertEqual(result["rows"], {
            "file": os.path.join(out, "rows.safetensors"), "ids": 5,
            "present": 2})
        self.assertEqual(result["options"]["--train"], "rows")
        saved = os.path.join(out, "training", checkpoints(out)[0])
        self.assertEqual(
            sorted(os.listdir(saved)),
            ["manifest.json", "run.json", "table-000.safetensors",
             "table-001.safetensors"])
        self.assertLess(os.path.getsize(os.path.join(
            saved, "table-000.safetensors")), 5 * 80 * 12 + 1000)
        metadata = read_metadata(os.path.join(out, "rows.safetensors"))
        self.assertEqual((metadata["format"], metadata["version"]),
                         ("stem-rows", "1"))
        provenance = json.loads(metadata["provenance"])
        self.assertEqual(provenance["steps"], 2)
        self.assertEqual(provenance["options"]["--train"], "rows")

    def test_resume_has_the_same_bits(self):
        batch = self.given([3, 4, 30, 3, 95, 8, 7])
        for mode, flags in ROW_MODES.items():
            for rows in "f32", "bf16":
                with self.subTest(mode=mode, rows=rows):
                    names = [self.path(f"{mode}-{rows}-{which}")
                             for which in ("whole", "parts")]
                    common = ["train", STEM, f"--batch-ids={batch}",
                              "--schedule=constant", "--lr=1e-2",
                              f"--row-dtype={rows}",
                              f"--train=rows:{self.token_list()}", *flags]
                    stem_run(*common, "--steps=7", f"--out={names[0]}")
                    stem_run(*common, "--steps=3", f"--out={names[1]}")
                    stem_run(*common, "--steps=7", f"--out={names[1]}",
                             "--resume")
                    files = []
                    for name in names:
                        with open(os.path.join(name, "rows.safetensors"),
                                  "rb") as file:
                            files.append(file.read())
                    # Provenance names what was asked for, the same in both.
                    self.assertEqual(*files)

    def test_learns_a_text_and_validates(self):
        model, text = self.path("stem"), self.text()
        stem_run("convert", self.small, model, "--layers=1,4",
                 "--init=row-mean")
        words = self.write("words.txt", "a\ne\n\"t\"\n\" \"\n  o  \n\n")
        out = self.path("out")
        result = stem_json("train", model, f"--data={text}", "--ctx=16",
                           "--batch=2", "--steps=8", "--lr=1e-2",
                           f"--out={out}", "--eval-every=4",
                           "--separator=", f"--train=rows:{words}")
        self.assertEqual(result["rows"]["ids"], 5)
        self.assertEqual(result["rows"]["present"], 5)
        self.assertIsNotNone(result["validation_loss"])
        lines = metrics(out)
        self.assertLess(lines[8]["loss"], lines[1]["loss"])
        # The rows see the same text through --rows.
        rows = os.path.join(out, "rows.safetensors")
        plain = stem_json("eval", model, f"--text={text}", "--ctx=64")
        tuned = stem_json("eval", model, f"--text={text}", "--ctx=64",
                          f"--rows={rows}")
        self.assertLess(tuned["files"][0]["perplexity"],
                        plain["files"][0]["perplexity"])

    def test_starts_from_rows(self):
        """--rows of training: the base stays that of the model."""
        batch, first, second = self.batch(), self.path("a"), self.path("b")
        common = ["train", STEM, f"--batch-ids={batch}", "--steps=2",
                  "--lr=1e-2", f"--train=rows:{self.token_list([8, 15])}"]
        stem_run(*common, f"--out={first}")
        rows = os.path.join(first, "rows.safetensors")
        stem_run(*common, f"--out={second}", f"--rows={rows}")
        metadata = [read_metadata(os.path.join(out, "rows.safetensors"))
                    for out in (first, second)]
        for key in "dense_sha256", "rows_sha256":
            self.assertEqual(metadata[0][key], metadata[1][key])
        self.assertEqual(json.loads(metadata[1]["provenance"])["rows"], [rows])
        losses = [metrics(out)[1]["loss"] for out in (first, second)]
        self.assertLess(losses[1], losses[0])

    # ---- What it refuses ----

    def refuse(self, parts, content, model=None, data=None):
        path = self.write("bad.txt", content)
        self.assert_fails(parts, "train", model or STEM,
                          f"--batch-ids={data or self.batch()}", "--steps=1",
                          f"--out={self.path('no')}", f"--train=rows:{path}")
        self.assertFalse(os.path.exists(self.path("no")))

    def test_refuses_lists(self):
        model = self.path("stem")
        stem_run("convert", self.small, model, "--layers=1,4",
                 "--init=row-mean")
        self.refuse(["bad.txt: names no token"], "\n  \n")
        self.refuse(["bad.txt:2: token id 96", "ids 0 to 95"], "1\n96\n")
        self.refuse(["bad.txt:1: 99999999999999999999 is too large"],
                    "99999999999999999999")
        self.refuse(["there is no tokenizer", "name tokens by their ids"],
                    "word\n")
        self.refuse(["bad.txt:2: a row is of one token", "\"ab\" is \"a\" (",
                     "\" ab\" is"], "a\nab\n", model)
        self.refuse(["bad.txt:3: a row is of one token", "\" a\" is"],
                    "a\n\n\" a\"\n", model)
        self.refuse(["bad.txt:1: \"a begins with a quote but is no JSON"],
                    "\"a\n", model)
        self.refuse(["bad.txt:1: \"\" begins with a quote"], "\"\"\n", model)
        self.refuse(["none of its 2 tokens is in the training data"], "3\n4\n",
                    data=self.given([5, 6]))
        self.refuse(["--train=rows finds nothing to train", "stem-run convert"],
                    "3\n", os.path.join(GOLDEN, "llama_gqa"))

    def test_refuses_parts(self):
        for part in "rows:", "row:x":
            self.assert_fails(
                [f"--train={part}: give all, tables, stem-layers, rows (of the "
                 "tokens in the data) or rows:FILE"],
                "train", STEM, f"--batch-ids={self.batch()}", "--steps=1",
                f"--out={self.path('no')}", f"--train={part}", status=2)
        config = os.path.join(STEM, "config.json")
        for option in "--train=rows:ids.txt", "--rows=rows.safetensors":
            self.assert_fails(
                ["--from-config begins with random weights", "give MODEL"],
                "train", f"--from-config={config}", "--steps=1", option,
                f"--batch-ids={self.batch()}", f"--out={self.path('no')}",
                status=2)
        self.assert_fails(["nowhere.txt: no such file"], "train", STEM,
                          f"--batch-ids={self.batch()}", "--steps=1",
                          f"--out={self.path('no')}",
                          "--train=rows:nowhere.txt")

    def test_resume_takes_the_same_rows(self):
        batch, out = self.batch(), self.path("out")
        common = ["train", STEM, f"--batch-ids={batch}", "--steps=1",
                  f"--out={out}"]
        stem_run(*common, f"--train=rows:{self.token_list()}")
        self.assert_fails(["row_ids_sha256 was"], *common, "--resume",
                          f"--train=rows:{self.token_list([1, 8])}")


if __name__ == "__main__":
    unittest.main()
