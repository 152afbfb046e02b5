#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Row overlays: --rows, stem-run apply and generate --swap-rows."""

import json
import os
import unittest

from e2e import GOLDEN, Tensor, read_metadata, read_tensors, stem_json, \
    stem_run, write_tensors
from training import STEM, TrainingTest, contents, model_tensors


class RowsTest(TrainingTest):
    def stem(self, name="stem"):
        """The small model with two tables, each in a file of its own."""
        model = self.path(name)
        stem_run("convert", self.small, model, "--layers=1,4",
                 "--init=embedding")
        return model

    def overlay(self, model, ids, name="rows", steps=3):
        """Trained rows of these ids."""
        ids = list(ids)
        batch = self.path("trained.safetensors")
        sequence = ids + [40, 41] + ids[::-1] + [1]
        write_tensors(batch, {
            "input_ids": Tensor("I64", [1, len(sequence)], sequence),
            "labels": Tensor("I64", [1, len(sequence)],
                             sequence[1:] + [40])})
        tokens = self.write(name + ".txt", "".join(f"{i}\n" for i in ids))
        out = self.path(name)
        stem_run("train", model, f"--batch-ids={batch}", f"--steps={steps}",
                 "--lr=3e-2", f"--out={out}", f"--train=rows:{tokens}")
        return os.path.join(out, "rows.safetensors")

    def logits(self, model, *options, vocabulary=96):
        ids = [(5 * i + 3) % vocabulary for i in range(24)] + [8, 15, 22, 2]
        source = self.path("ids.safetensors")
        write_tensors(source, {"input_ids": Tensor("I64", [1, 28], ids)})
        out = self.path("logits.safetensors")
        stem_run("eval", model, f"--input-ids={source}", f"--logits-out={out}",
                 "--force", *options)
        return read_tensors(out)["logits"].values

    def edit(self, path, name, tensors=None, **metadata):
        """A copy of an overlay with other entries."""
        out = self.path(name)
        write_tensors(out, {**read_tensors(path), **(tensors or {})},
                      {**read_metadata(path), **metadata})
        return out

    # ---- apply ----

    def check_apply(self, model, layers):
        ids = [2, 8, 15, 77]
        rows = self.overlay(model, ids)
        out = self.path("applied")
        result = stem_json("apply", model, f"--rows={rows}", "-o", out)
        self.assertEqual(result["rows"], len(ids) * len(layers))
        self.assertEqual(result["tables"], len(layers))
        overlay = read_tensors(rows)
        before, after = model_tensors(model), model_tensors(out)
        self.assertEqual(set(before), set(after))
        for name, tensor in before.items():
            self.assertEqual((tensor.dtype, tensor.shape),
                             (after[name].dtype, after[name].shape))
            if "up_table" not in name:
                self.assertEqual(tensor.values, after[name].values, name)
                continue
            new = overlay[name.replace("table.weight", "table.rows")]
            for row in range(tensor.shape[0]):
                wanted = new.row(ids.index(row)) if row in ids \
                    else tensor.row(row)
                self.assertEqual(after[name].row(row), wanted, (name, row))
        for name in os.listdir(model):
            if name.endswith(".json") and name not in (
                    "stem_provenance.json", "model.safetensors.index.json"):
                with open(os.path.join(model, name), "rb") as one, \
                        open(os.path.join(out, name), "rb") as two:
                    self.assertEqual(one.read(), two.read(), name)
        self.assertEqual(self.logits(model, f"--rows={rows}"),
                         self.logits(out))
        self.assertNotEqual(self.logits(model), self.logits(out))
        return rows, out

    def test_apply(self):
        model = self.stem()
        untouched = contents(model)
        rows, out = self.check_apply(model, (1, 4))
        self.assertEqual(untouched, contents(model))
        with open(os.path.join(out, "stem_provenance.json")) as file:
            provenance = json.load(file)
        self.assertEqual(provenance["command"], "apply")
        self.assertEqual(provenance["source"], model)
        self.assertEqual(provenance["rows"][0]["file"], rows)
        self.assertEqual(provenance["rows"][0]["layers"], [1, 4])
        # The tables' files have their names; the dense shard is a link.
        self.assertEqual({name for name in os.listdir(model)
                          if name.startswith("stem-table")},
                         {name for name in os.listdir(out)
                          if name.startswith("stem-table")})
        shard, = [name for name in os.listdir(out)
                  if name.startswith("model-")]
        self.assertGreater(os.stat(os.path.join(out, shard)).st_nlink, 1)
        # Applied once: the rows are not those that it began with.
        self.assert_fails(["rows.safetensors: was made for another model",
                           "as after training or after stem-run apply"],
                          "eval", out, f"--text={self.text()}",
                          f"--rows={rows}")

    def test_apply_to_one_file(self):
        """that has tables and weights."""
        _, out = self.check_apply(STEM, (1, 2))
        self.assertIn("stem-table-001.safetensors", os.listdir(out))

    def test_eval_with_rows_is_that_of_the_applied_folder(self):
        model, text = self.stem(), self.text()
        rows, out = self.overlay(model, range(97, 123)), self.path("applied")
        stem_run("apply", model, f"--rows={rows}", "-o", out)
        common = [f"--text={text}", "--ctx=64"]
        results = [stem_json("eval", *which, *common)["files"] for which in
                   ([model, f"--rows={rows}"], [out], [model])]
        self.assertEqual(results[0], results[1])
        against = stem_json("eval", model, f"--rows={rows}",
                            f"--against={out}", *common)
        self.assertEqual(against["top1_agreement"], 1)
        self.assertLess(against["mean_kl"], 1e-9)
        answers = [stem_json("generate", *which, "--prompt=the table", "-n",
                             12)["ids"] for which in
                   ([model, f"--rows={rows}"], [out])]
        self.assertEqual(*answers)

    def test_later_rows_win(self):
        model = self.stem()
        a = self.overlay(model, [2, 8], "a", steps=2)
        b = self.overlay(model, [8, 15], "b", steps=5)
        both, out = [f"--rows={a}", f"--rows={b}"], self.path("both")
        stem_run("apply", model, *both, "-o", out)
        self.assertEqual(self.logits(model, *both), self.logits(out))
        self.assertNotEqual(self.logits(model, *both),
                            self.logits(model, *reversed(both)))
        table = model_tensors(out)["model.layers.4.mlp.up_table.weight"]
        name = "model.layers.4.mlp.up_table.rows"
        self.assertEqual(table.row(2), read_tensors(a)[name].row(0))
        self.assertEqual(table.row(8), read_tensors(b)[name].row(0))
        self.assertEqual(table.row(15), read_tensors(b)[name].row(1))
        # Of other ids: the second fits what the first was applied to.
        c = self.overlay(model, [22], "c")
        first = self.path("first")
        stem_run("apply", model, f"--rows={a}", "-o", first)
        self.assertEqual(self.logits(first, f"--rows={c}"),
                         self.logits(model, f"--rows={a}", f"--rows={c}"))

    def test_apply_refuses(self):
        model, out = self.stem(), self.path("out")
        rows = self.overlay(model, [8])
        stem_run("apply", model, f"--rows={rows}", "-o", out)
        self.assert_fails(["exists already", "--force"], "apply", model,
                          f"--rows={rows}", "-o", out)
        stem_run("apply", model, f"--rows={rows}", "-o", out, "--force")
        other = self.path("other")
        os.mkdir(other)
        with open(os.path.join(other, "mine"), "w"):
            pass
        self.assert_fails(["was not made by Stem"], "apply", model,
                          f"--rows={rows}", "-o", other, "--force")
        self.assert_fails(["give --rows=FILE or --cold-rows=int8"], "apply",
                          model, "-o", self.path("no"), status=2)
        self.assert_fails(["--out is required"], "apply", model,
                          f"--rows={rows}", status=2)
        self.assertFalse(os.path.exists(self.path("no")))

    # ---- Layers that read no row, or rows of another kind ----

    def variant(self, name, tensors, **stem):
        """The golden STEM model with more tensors."""
        folder = self.path(name)
        os.mkdir(folder)
        with open(os.path.join(STEM, "config.json")) as file:
            config = json.load(file)
        config["stem"].update(stem)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        write_tensors(os.path.join(folder, "model.safetensors"),
                      {**read_tensors(os.path.join(STEM, "model.safetensors")),
                       **tensors})
        return folder

    def test_ids_that_keep_the_matrix(self):
        tensors = {}
        for layer in 1, 2:
            mlp = f"model.layers.{layer}.mlp."
            tensors[mlp + "up_select.ids"] = Tensor("I32", [2], [8, 20 + layer])
            tensors[mlp + "up_proj.weight"] = Tensor(
                "F32", [80, 32], [i % 7 / 50 for i in range(80 * 32)])
        model = self.variant("select", tensors, select=True)
        result = stem_run("generate", model, "--prompt-ids=8,15", "-n", 2,
                          "--swap-rows=8=15", "--swap-rows=9=21")
        for part in "layer 1 computes with the matrix for 8, 21: it reads no " \
                    "row", "layer 2 computes with the matrix for 8: it reads":
            self.assertIn(f"warning: --swap-rows: {part}", result.stderr)
        # No gradient reaches such a row.
        batch, ids = self.batch(), self.write("ids.txt", "1\n8\n")
        out = self.path("out")
        result = stem_run("train", model, f"--batch-ids={batch}", "--steps=2",
                          f"--out={out}", f"--train=rows:{ids}",
                          "--weight-decay=0")
        self.assertIn(f"warning: {ids}: layer 1 computes with the matrix for 8",
                      result.stderr)
        rows = read_tensors(os.path.join(out, "rows.safetensors"))
        for layer in 1, 2:
            table = read_tensors(os.path.join(model, "model.safetensors"))[
                f"model.layers.{layer}.mlp.up_table.weight"]
            moved = rows[f"model.layers.{layer}.mlp.up_table.rows"]
            self.assertNotEqual(moved.row(0), table.row(1))
            self.assertEqual(moved.row(1), table.row(8))

    def test_rows_of_8_bits(self):
        rows = self.overlay(STEM, [8])
        tensors = {}
        for layer in 1, 2:
            table = f"model.layers.{layer}.mlp.up_table."
            tensors[table + "weight"] = Tensor("U8", [96, 80], [1] * 96 * 80)
            for part in "scale", "minimum":
                tensors[table + part] = Tensor("F32", [96], [1] * 96)
        model = self.variant("bytes", tensors, row_dtype="uint8")
        self.assert_fails(["has rows of 8 bits, which overlays do not replace",
                           "give the model that they were made from"],
                          "inspect", model, f"--rows={rows}")
        self.assertEqual(stem_json("inspect", model)["unsupported"], [])

    # ---- What does not fit ----

    def test_refuses_overlays(self):
        rows = self.overlay(STEM, [8, 15])
        name = "model.layers.1.mlp.up_table.rows"
        tensors = read_tensors(rows)
        cases = {
            "no row overlay": os.path.join(STEM, "model.safetensors"),
            "version \"7\"": self.edit(rows, "a", version="7"),
            "weights of": self.edit(rows, "b", dense_sha256="0" * 64),
            "the rows of": self.edit(rows, "c", rows_sha256="0" * 64),
            "id 96 is outside the vocabulary": self.edit(
                rows, "d", {"ids": Tensor("I32", [2], [8, 96])}),
            "ids rise": self.edit(
                rows, "e", {"ids": Tensor("I32", [2], [15, 8])}),
            "after 8; ids rise": self.edit(
                rows, "f", {"ids": Tensor("I32", [2], [8, 8])}),
            "layer 0, which is no STEM layer": self.edit(
                rows, "g", {name.replace("1", "0"): tensors[name]}),
            "have 40 columns": self.edit(
                rows, "h", {name: Tensor("F32", [2, 40],
                                         tensors[name].values[:80])}),
            "have type BF16": self.edit(
                rows, "i", {name: Tensor("BF16", [2, 80], [0] * 160)}),
            "has shape [1, 160]": self.edit(
                rows, "j", {name: Tensor("F32", [1, 160],
                                         tensors[name].values)}),
            "truncated": self.write("k", b"\1" * 100),
            "No such file": self.path("none"),
        }
        for part, path in cases.items():
            with self.subTest(part=part):
                for command in (["inspect"], ["generate", "--prompt-ids=1"],
                                ["apply", "-o", self.path("no")]):
                    self.assert_fails([path, part], command[0], STEM,
                                      *command[1:], f"--rows={path}")
        self.assert_fails(["llama_gqa has no table"], "generate",
                          os.path.join(GOLDEN, "llama_gqa"), "--prompt-ids=1",
                          f"--rows={rows}")
        self.assertFalse(os.path.exists(self.path("no")))

    def test_inspect(self):
        rows = self.overlay(STEM, [8, 9, 15])
        text = stem_run("inspect", STEM, f"--rows={rows}").stdout
        self.assertIn(f"{rows}: 3 rows in 2 layers", text)
        self.assertIn("ids 8-9, 15; layers 1-2", text)
        entry, = stem_json("inspect", STEM, f"--rows={rows}")["rows"]
        self.assertEqual((entry["file"], entry["ids"], entry["layers"]),
                         (rows, [8, 9, 15], [1, 2]))
        self.assertEqual(entry["provenance"]["command"], "train")
        folder = self.path("broken")
        os.mkdir(folder)
        self.assert_fails(["cannot be read as a model", "config.json"],
                          "inspect", folder, f"--rows={rows}")

    def test_bf16_rows(self):
        """The small model's tables are bf16: rows are stored as they are."""
        rows = self.overlay(self.stem(), [8])
        self.assertEqual(read_tensors(rows)[
            "model.layers.1.mlp.up_table.rows"].dtype, "BF16")

    # ---- swap-rows ----

    def swapped(self, model, pairs):
        """The model with its tables edited by hand."""
        folder = self.copy_model("swapped", model)
        for file in os.listdir(folder):
            path = os.path.join(folder, file)
            if not file.endswith(".safetensors"):
                continue
            os.chmod(path, 0o644)
            tensors, before = read_tensors(path), read_tensors(path)
            for name, tensor in tensors.items():
                if name.endswith("up_table.weight"):
                    width = tensor.shape[1]
                    for left, right in pairs:
                        tensor.values[left * width:(left + 1) * width] = \
                            before[name].row(right)
            write_tensors(path, tensors)
        return folder

    def generate(self, model, *options):
        return stem_json("generate", model, "-n", 16, "--ignore-end",
                         *options)["ids"]

    def with_words(self, model):
        """A tokenizer in which A and B are tokens after a space too, and DE is
        one there alone."""
        path = os.path.join(model, "tokenizer.json")
        with open(path) as file:
            tokenizer = json.load(file)
        vocab = tokenizer["model"]["vocab"]
        names = {number: name for name, number in vocab.items()}
        space = "\u0120"
        for number, name in enumerate(["A", "B", "D", "DE"], start=200):
            del vocab[names[number]]
            vocab[space + name] = number
        tokenizer["model"]["merges"] = [
            [space, "A"], [space, "B"], [space, "D"], [space + "D", "E"]]
        with open(path, "w") as file:
            json.dump(tokenizer, file)
        return vocab

    def test_swap_rows(self):
        model = self.stem()
        prompt = "--prompt-ids=8,15,22,8,40,41"
        result = stem_run("generate", model, prompt, "-n", 4,
                          "--swap-rows=8=15")
        self.assertIn("note: 8 gets the row of 15 in 2 layers", result.stderr)
        swapped = self.swapped(model, [(8, 15)])
        self.assertEqual(self.generate(model, prompt, "--swap-rows=8=15"),
                         self.generate(swapped, prompt))
        # One way; both are two swaps, of the rows as they were.
        both = self.path("both")
        os.rename(swapped, both)
        both = self.swapped(model, [(8, 15), (15, 8)])
        prompts = [prompt, "--prompt-ids=15,15,8,15,8,8,8,15"]
        for which in prompts:
            self.assertEqual(
                self.generate(model, which, "--swap-rows=8=15",
                              "--swap-rows=15=8"), self.generate(both, which))

    def test_swap_rows_of_words(self):
        model = self.stem()
        vocab = self.with_words(model)
        result = stem_run("generate", model, "--prompt=A A", "-n", 1,
                          "--swap-rows=A=B")
        for part in (f'note: "A" ({vocab["A"]}) gets the row of "B" '
                     f'({vocab["B"]}) in 2 layers',
                     'note: " A" (200) gets the row of " B" (201)'):
            self.assertIn(part, result.stderr)
        result = stem_run("generate", model, "--prompt=A A", "-n", 1,
                          '--swap-rows=" A"="B"')
        self.assertIn('note: " A" (200) gets the row of "B"', result.stderr)
        self.assertEqual(result.stderr.count("gets the row"), 1)
        result = stem_run("generate", model, "--prompt=A C", "-n", 1,
                          "--swap-rows=C=B")
        self.assertEqual(result.stderr.count("gets the row"), 1)
        swapped = self.swapped(model, [(vocab["A"], vocab["B"]), (200, 201)])
        for prompt in "--prompt=A A", "--prompt=B", "--prompt=is A so":
            self.assertEqual(
                self.generate(model, prompt, "--swap-rows=A=B"),
                self.generate(swapped, prompt))

    def test_swap_rows_of_an_overlay(self):
        """The rows that --rows has put there."""
        model = self.stem()
        rows = self.overlay(model, [8, 15])
        out = self.path("applied")
        stem_run("apply", model, f"--rows={rows}", "-o", out)
        prompt = "--prompt-ids=22,8,40,22"
        self.assertEqual(
            self.generate(model, prompt, "--swap-rows=22=8",
                          f"--rows={rows}"),
            self.generate(self.swapped(out, [(22, 8)]), prompt))

    def test_swap_rows_refuses(self):
        model = self.stem()
        def refuse(parts, *swaps, status=1, of=model):
            self.assert_fails(parts, "generate", of, "--prompt-ids=1",
                              *[f"--swap-rows={swap}" for swap in swaps],
                              status=status)
        for swap in "AB", "\"A\"", "\"A=B", "\"A\"B=C":
            refuse([f"--swap-rows={swap}: give LEFT=RIGHT"], swap, status=2)
        refuse(["a token has no name"], "A=", status=2)
        refuse(["a token has no name"], "=A", status=2)
        refuse(["--swap-rows=8=300: token id 300", "ids 0 to 258"], "8=300")
        refuse(["a row is of one token, but \"Spain\" is \"S\" (",
                "\" Spain\" is"], "Spain=A")
        refuse(["a row is of one token, but \"Spain\" is"], "A=Spain")
        refuse(["one side is a word", "two words, or ids and quoted"], "A=8")
        refuse(["is on both sides"], "8=8")
        refuse(["8 gets a row twice"], "8=9", "8=10")
        self.with_words(model)
        refuse(["DE is one token with a space before it, C without"], "DE=C")
        refuse(["C is one token without a space before it, DE with"], "C=DE")
        refuse(["--swap-rows: ", "llama_gqa has no tables"], "1=2",
               of=os.path.join(GOLDEN, "llama_gqa"))
        refuse(["there is no tokenizer", "name tokens by their ids"], "A=B",
               of=STEM)


if __name__ == "__main__":
    unittest.main()
