#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""--table-place: the tables of some layers lie elsewhere."""

import unittest

from e2e import ModelTest, Tensor, stem_json, stem_run, write_tensors

LAYERS = 1, 2, 4, 5


class TablePlaceTest(ModelTest):
    def stem(self, *options):
        model = self.path("stem" + "".join(options))
        stem_run("convert", self.small, model,
                 "--layers=" + ",".join(map(str, LAYERS)), "--init=embedding",
                 *options)
        return model

    def logits(self, model, *options):
        ids, out = self.path("ids"), self.path("logits")
        write_tensors(ids, {"input_ids": Tensor("I32", [1, 200], [
            (7 * i * i + 3 * i) % 251 for i in range(200)])})
        result = stem_json("eval", model, f"--input-ids={ids}",
                           f"--logits-out={out}", "--force", *options)
        with open(out, "rb") as file:
            return file.read(), result["engine"]

    def check(self, model):
        wanted, engine = self.logits(model)
        size = engine["tables"][0]["bytes"]
        self.assertEqual(engine["tables"], [
            {"layer": layer, "place": "resident", "bytes": size}
            for layer in LAYERS])
        for options, in_files in (
                (["--table-place=2=file"], {2}),
                (["--table-place=1,5=file", "--cache-rows=9"], {1, 5}),
                (["--table-place=1=file", "--table-place=4=file",
                  "--prefetch-distance=1"], {1, 4}),
                (["--tables=file", "--table-place=2,4=resident"], {1, 5}),
                (["--tables=file", "--table-place=1,2,4,5=host"], set()),
                (["--tables=host"], set()),
                (["--tables=auto", "--table-place=5=file",
                  "--table-place=1=resident"], {5})):
            with self.subTest(options=options):
                seen, engine = self.logits(model, *options)
                self.assertEqual(wanted, seen)
                self.assertEqual(
                    {table["layer"] for table in engine["tables"]
                     if table["place"] == "file"}, in_files)
                self.assertEqual(engine["plan"]["tables_in_files"],
                                 size * len(in_files))
                self.assertEqual(engine["lookups"]["bytes_in_files"],
                                 size * len(in_files))
                rows = (engine["lookups"]["rows_read"]
                        + engine["lookups"]["rows_cached"])
                self.assertEqual(rows, len(in_files)
                                 * engine["lookups"]["different_ids"])

    def test_logits(self):
        self.check(self.stem())

    def test_rows_of_8_bits(self):
        self.check(self.stem("--cold-rows=int8"))

    def test_is_told(self):
        options = ["generate", self.stem(), "--prompt=the", "-n", "3"]
        told = stem_run(*options, "--tables=file",
                        "--table-place=1,2=resident").stderr
        self.assertRegex(told, r"tables of layers 1-2 in memory \(.*\), of "
                         r"layers 4-5 in files \(.*\), their rows of a step ")
        self.assertRegex(told, r"\ntables: layers 1-2 in memory, layers 4-5 "
                         r"with .* in files; ")
        told = stem_run(*options, "--tables=file").stderr
        self.assertIn("tables in files (", told)
        self.assertNotIn("layers", told)

    def test_rows_of_an_overlay(self):
        """A table in memory may have them while others lie in files."""
        options = ["generate", self.stem(), "--prompt=the", "-n", "9",
                   "--swap-rows=a=b"]
        everywhere = ["--tables=file", "--table-place=1,2,4,5=resident"]
        self.assertEqual(stem_json(*options)["ids"],
                         stem_json(*options, *everywhere)["ids"])
        self.assert_fails(["layers.5.mlp.up_table.weight",
                           "or --table-place for this layer"], *options,
                          "--tables=file", "--table-place=1,2,4=resident")

    def test_against_a_dense_model(self):
        model, text = self.stem(), self.write("text", "In the beginning. " * 9)
        options = ["eval", model, f"--text={text}", f"--against={self.small}"]
        wanted = stem_json(*options)
        seen = stem_json(*options, "--table-place=2=file")
        self.assertEqual(wanted["files"], seen["files"])
        self.assertIn("no layer has a table: --table-place=2=file changes "
                      "nothing", stem_run(*options, "--table-place=2=file")
                      .stderr)

    def test_inspect(self):
        model = self.stem()
        tables = stem_json("inspect", model)["model"]["stem"]["tables"]
        self.assertEqual([table["layer"] for table in tables], list(LAYERS))
        self.assertEqual([table["file"] for table in tables], [
            f"stem-table-{layer:03}.safetensors" for layer in LAYERS])
        _, engine = self.logits(model)
        self.assertEqual([table["bytes"] for table in tables],
                         [table["bytes"] for table in engine["tables"]])
        self.assertRegex(stem_run("inspect", model).stdout,
                         r"table of layer 4: .*B in stem-table-004.safetensors")

    def test_refusals(self):
        generate = ["generate", self.stem(), "--prompt=the", "-n", "1"]
        self.assert_fails(["--table-place=9=file: ", "has no layer 9; its "
                           "layers are 0 to 5"], *generate,
                          "--table-place=9=file")
        self.assert_fails(["--table-place=1,3=resident: layer 3 of ",
                           "has no table; its STEM layers are 1-2, 4-5"],
                          *generate, "--table-place=1,3=resident")
        for text in "2", "2=host disk", "=file", "-1=file", "2,2=file", "x=file":
            self.assert_fails([f"--table-place={text.split('=')[0]}"],
                              *generate, f"--table-place={text}", status=2)
        self.assert_fails(["--table-place= is empty"], *generate,
                          "--table-place=", status=2)
        self.assert_fails(["--train", "--table-place"], "bench", "model",
                          "--train", "--table-place=2=file", status=2)
        self.assert_fails(["--cache-rows=5 with --tables=resident",
                           "choose --tables=file"], *generate,
                          "--table-place=2=resident", "--cache-rows=5",
                          status=2)


if __name__ == "__main__":
    unittest.main()
