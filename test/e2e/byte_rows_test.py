#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of 8-bit rows: made by convert and apply, run from memory and from
files."""

import array
import json
import math
import os
import shutil
import struct
import unittest

from calibration import TABLE, VOCABULARY, CalibrationTest
from e2e import GOLDEN, Tensor, read_tensors, stem_json, stem_run, \
    write_tensors

LAYERS = 1, 4


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def part(layer, name):
    return TABLE.format(layer).replace("weight", name)


class ByteRowsTest(CalibrationTest):
    def initial(self, name, *options):
        out = self.path(name)
        stem_run("convert", self.small, out, "--layers=1,4",
                 "--init=embedding", *options)
        return out

    def decoded(self, tensors, layer):
        """The rows that a table of 8 bits stands for, in f32."""
        table = tensors[TABLE.format(layer)]
        self.assertEqual(table.dtype, "U8")
        rows, width = table.shape
        scale = tensors[part(layer, "scale")].values
        minimum = tensors[part(layer, "minimum")].values
        values = array.array("f", [
            minimum[row] + scale[row] * byte for row in range(rows)
            for byte in table.row(row)])
        hot_rows = tensors.get(part(layer, "hot_rows"))
        if hot_rows:
            floats = hot_rows.floats()
            for place, id in enumerate(tensors[part(layer, "hot_ids")].values):
                values[id * width:(id + 1) * width] = array.array(
                    "f", floats[place * width:(place + 1) * width])
        return values

    def twin(self, model):
        """The same model with f32 rows: those that the 8-bit ones stand
        for."""
        twin = self.path("twin")
        shutil.rmtree(twin, ignore_errors=True)
        shutil.copytree(model, twin)
        with open(os.path.join(twin, "config.json")) as file:
            config = json.load(file)
        config["stem"]["row_dtype"] = "float32"
        with open(os.path.join(twin, "config.json"), "w") as file:
            json.dump(config, file)
        for layer in config["stem"]["layers"]:
            path = os.path.join(twin, f"stem-table-{layer:03}.safetensors")
            tensors = read_tensors(path)
            rows = self.decoded(tensors, layer)
            shape = tensors[TABLE.format(layer)].shape
            for name in "scale", "minimum", "hot_ids", "hot_rows":
                tensors.pop(part(layer, name), None)
            tensors[TABLE.format(layer)] = Tensor("F32", shape, rows)
            write_tensors(path, tensors)
        path = os.path.join(twin, "model.safetensors.index.json")
        with open(path) as file:
            index = json.load(file)
        index["weight_map"] = {
            name: file for name, file in index["weight_map"].items()
            if ".up_table." not in name or name.endswith(".weight")}
        with open(path, "w") as file:
            json.dump(index, file)
        return twin

    def logits(self, model, *options):
        ids = [(7 * i * i + 3 * i) % VOCABULARY for i in range(300)]
        path, out = self.path("ids"), self.path("logits")
        write_tensors(path, {"input_ids": Tensor("I64", [2, 150], ids)})
        result = stem_json("eval", model, f"--input-ids={path}",
                           f"--logits-out={out}", "--force", *options)
        with open(out, "rb") as file:
            return file.read(), result["engine"]

    def check_same(self, model, *options):
        """One result, wherever the rows lie and whatever is kept of them."""
        wanted, _ = self.logits(self.twin(model), *options)
        for place in ["resident"], ["file"], ["file", "0"], ["file", "1"], \
                ["file", "7"], ["file", "100%"]:
            flags = [f"--tables={place[0]}",
                     *[f"--cache-rows={count}" for count in place[1:]]]
            got, engine = self.logits(model, *flags, *options)
            self.assertEqual(got, wanted, flags)
            self.check_plan(model, place[0], engine)

    def check_plan(self, model, place, engine):
        tensors = self.tensors(model)
        rows = scales = 0
        for name, tensor in tensors.items():
            if ".up_table." not in name:
                continue
            size = {"U8": 1, "BF16": 2, "F16": 2}.get(tensor.dtype, 4)
            size *= math.prod(tensor.shape)
            if name.endswith((".weight", ".hot_rows")):
                rows += size
            else:
                scales += size
        plan, lookups = engine["plan"], engine["lookups"]
        in_file = place == "file"
        self.assertEqual(plan["tables"], scales + (0 if in_file else rows))
        self.assertEqual(plan["tables_in_files"], rows if in_file else 0)
        self.assertEqual(lookups["bytes_in_memory"], plan["tables"])
        self.assertEqual(lookups["bytes_in_files"], plan["tables_in_files"])
        self.assertGreater(plan["staging"], 0)

    def check_bound(self, model, full):
        """Against the rows that were quantised."""
        tensors, exact = self.tensors(model), self.tensors(full)
        for layer in LAYERS:
            table = exact[TABLE.format(layer)]
            values = self.decoded(tensors, layer)
            scale = tensors[part(layer, "scale")].values
            width = table.shape[1]
            floats = table.floats()
            for row in range(VOCABULARY):
                at = slice(row * width, (row + 1) * width)
                largest = max(map(abs, floats[at]))
                bound = scale[row] / 2 + 2 * largest * 2 ** -23
                self.assertLessEqual(max(
                    abs(a - b) for a, b in zip(floats[at], values[at])), bound)

    # ---- Made and run ----

    def test_convert(self):
        full = self.initial("full", "--row-dtype=f32")
        out = self.path("bytes")
        result = stem_json("convert", self.small, out, "--layers=1,4",
                           "--init=embedding", "--row-dtype=f32",
                           "--cold-rows=int8")
        self.check_bound(out, full)
        self.check_same(out, "--dtype=f32")
        self.check_same(out, "--dtype=bf16")
        cold = result["cold_rows"]
        tensors = self.tensors(out)
        width = tensors[TABLE.format(1)].shape[1]
        self.assertEqual(cold["table_bytes"], 2 * VOCABULARY * (width + 8))
        self.assertEqual(cold["table_bytes_before"], 2 * VOCABULARY * width * 4)
        self.assertAlmostEqual(cold["saved_of_tables"],
                               1 - (width + 8) / (4 * width))
        saved = cold["table_bytes_before"] - cold["table_bytes"]
        self.assertAlmostEqual(cold["saved_of_model"],
                               saved / (result["after"]["bytes"] + saved))
        self.assertEqual((cold["hot_ids"], cold["hot_fraction"]), (0, 0))
        self.assertEqual(result["row_dtype"], "uint8")
        self.assertEqual(self.section(out)["row_dtype"], "uint8")
        self.assertEqual(self.section(out)["provenance"]["cold_rows"], cold)
        self.assertNotIn(part(1, "hot_ids"), tensors)
        self.assertEqual(
            set(tensors), set(self.index(out)) | {
                f"model.layers.{layer}.mlp.up_proj.weight" for layer in LAYERS})
        said = stem_run("convert", self.small, self.path("other"),
                        "--layers=1,4", "--init=embedding",
                        "--cold-rows=int8").stdout
        self.assertIn("% of their bytes and", said)
        self.assertIn("no id keeps full precision", said)

    def test_calibrated(self):
        for hot, rank in ("auto", 0), ("2%", 4), ("0", 0), ("1", 0):
            out, result = self.convert(
                "--layers=1,4", "--cold-rows=int8", f"--hot-fraction={hot}",
                f"--mix-rank={rank}", "--row-dtype=bf16", name=f"hot-{hot}")
            calibration, cold = result["calibration"], result["cold_rows"]
            before, after = (calibration["perplexity_" + name]
                             for name in ("converted", "byte_rows"))
            self.assertLess(abs(math.log(after / before)), 1e-2)
            if hot == "1":
                self.assertAlmostEqual(math.log(after / before), 0, 6)
            else:
                self.assertNotEqual(after, before)
            tensors = self.tensors(out)
            with self.subTest(hot=hot):
                self.check_same(out)
                ids = tensors.get(part(1, "hot_ids"))
                self.assertEqual(cold["hot_ids"],
                                 len(ids.values) if ids else 0)
                if hot == "0":
                    self.assertIsNone(ids)
                    continue
                self.assertEqual(ids.dtype, "I32")
                self.assertEqual(tensors[part(1, "hot_rows")].dtype, "BF16")
                self.assertEqual(list(ids.values), sorted(set(ids.values)))
                self.assertEqual(ids.values, tensors[part(4, "hot_ids")].values)
                if hot == "auto":
                    self.assertGreaterEqual(cold["covered_share"], 0.9)
                    self.assertLess(len(ids.values), 30)
                else:
                    self.assertEqual(
                        len(ids.values),
                        VOCABULARY if hot == "1" else 5)
        out, result = self.convert("--layers=1,4", "--row-dtype=bf16",
                                   name="full")
        self.assertNotIn("perplexity_byte_rows", result["calibration"])
        self.assertEqual(result["calibration"]["perplexity_converted"], before)
        said = stem_run(*self.calibrate(
            self.path("said"), "--layers=1,4", "--cold-rows=int8",
            "--hot-fraction=auto")).stdout
        self.assertRegex(said, r"perplexity of the same tokens: [\d.]+ before, "
                               r"[\d.]+ with rows of 8 bits \([+-][\d.]+ %\)")
        self.assertIn("keep full precision", said)

    def test_apply(self):
        full, out = self.initial("full", "--row-dtype=bf16"), self.path("out")
        result = stem_json("apply", full, "--cold-rows=int8",
                           "--hot-fraction=auto", f"--text={self.text}", "-o",
                           out)
        self.check_bound(out, full)
        self.check_same(out)
        cold = result["cold_rows"]
        with open(self.text, "rb") as file:
            self.assertEqual(cold["counted_tokens"], len(file.read()))
        before, after = self.tensors(full), self.tensors(out)
        ids = list(after[part(1, "hot_ids")].values)
        for layer in LAYERS:
            table = before[TABLE.format(layer)]
            self.assertEqual(
                [after[part(layer, "hot_rows")].row(i)
                 for i in range(len(ids))], [table.row(id) for id in ids])
        for name, tensor in before.items():
            if ".up_table." not in name:
                self.assertEqual(after[name].values, tensor.values)
        self.assertEqual(self.provenance(out)["cold_rows"], cold)
        section = self.section(out)
        self.assertEqual(section["provenance"]["before"],
                         self.section(full)["provenance"])
        # The same bytes again, and without hot ids.
        stem_run("apply", full, "--cold-rows=int8", "--hot-fraction=auto",
                 f"--text={self.text}", "-o", out, "--force")
        said = stem_run("apply", full, "--cold-rows=int8", "-o",
                        self.path("cold")).stdout
        self.assertIn("rows of 8 bits in 2 tables", said)
        self.assertIn("no id keeps full precision", said)

    def test_named_hot_ids(self):
        """Ids and texts, a line each; the tokens of this model are bytes."""
        names = self.write("names", '20\n\n"a"\r\n" "\nz\n20\n')
        ids = sorted([20, *stem_json("generate", self.small, "--prompt=a z",
                                     "-n", "1")["prompt_ids"][-3:]])
        full = self.initial("full", "--row-dtype=bf16")
        source = self.tensors(full)
        def check(model, cold, wanted):
            tensors = self.tensors(model)
            self.assertEqual((cold["hot_ids"], cold["listed_ids"]),
                             (len(wanted), len(ids)))
            self.assertEqual(cold["list"]["file"], names)
            self.assertEqual(len(cold["list"]["sha256"]), 64)
            for layer in LAYERS:
                self.assertEqual(list(tensors[part(layer, "hot_ids")].values),
                                 wanted)
            return tensors
        made = stem_json("convert", self.small, self.path("made"),
                         "--layers=1,4", "--init=embedding",
                         "--row-dtype=bf16", "--cold-rows=int8",
                         f"--hot-ids={names}")["cold_rows"]
        tensors = check(self.path("made"), made, ids)
        self.assertEqual((made["hot_fraction"], made["counted_tokens"]), (0, 0))
        for layer in LAYERS:
            self.assertEqual(
                [tensors[part(layer, "hot_rows")].row(i)
                 for i in range(len(ids))],
                [source[TABLE.format(layer)].row(id) for id in ids])
        self.assertEqual(self.section(self.path("made"))["provenance"]
                         ["cold_rows"], made)
        self.check_same(self.path("made"))
        # Beside those that are counted, here and in a calibration.
        out = self.path("out")
        counted = stem_json("apply", full, "--cold-rows=int8", "-o", out,
                            "--hot-fraction=2%", f"--text={self.text}")
        frequent = list(self.tensors(out)[part(1, "hot_ids")].values)
        self.assertEqual(counted["cold_rows"]["listed_ids"], 0)
        self.assertNotIn("list", counted["cold_rows"])
        both = sorted({*frequent, *ids})
        cold = stem_json("apply", full, "--cold-rows=int8", "-o", out,
                         "--force", "--hot-fraction=2%", f"--text={self.text}",
                         f"--hot-ids={names}")["cold_rows"]
        check(out, cold, both)
        self.assertGreater(cold["covered_share"],
                           counted["cold_rows"]["covered_share"])
        said = stem_run("apply", full, "--cold-rows=int8", "-o", out, "--force",
                        f"--hot-ids={names}").stdout
        self.assertIn(f"{len(ids)} ids (1.5 %) keep full precision, "
                      f"{len(ids)} of --hot-ids", said)
        out, result = self.convert("--layers=1,4", "--cold-rows=int8",
                                   f"--hot-ids={names}", name="calibrated")
        check(out, result["cold_rows"], ids)
        self.assertGreater(result["cold_rows"]["counted_tokens"], 0)

    def test_apply_to_one_file_with_an_overlay(self):
        """A golden model, whose tables lie beside everything else; rows that
        were trained keep their type."""
        model = os.path.join(GOLDEN, "stem_llama")
        batch = self.path("batch")
        write_tensors(batch, {
            "input_ids": Tensor("I64", [2, 6], [5, 8, 9, 8, 3, 20] * 2),
            "labels": Tensor("I64", [2, 6], [8, 9, 8, 3, 20, 1] * 2)})
        ids = self.write("ids", "8\n20\n")
        trained = self.path("trained")
        stem_run("train", model, f"--train=rows:{ids}",
                 f"--batch-ids={batch}", "--steps=2", "--lr=1e-1", "--out",
                 trained)
        rows = os.path.join(trained, "rows.safetensors")
        merged, out = self.path("merged"), self.path("out")
        stem_run("apply", model, f"--rows={rows}", "-o", merged)
        stem_run("apply", model, f"--rows={rows}", "--cold-rows=int8", "-o",
                 out)
        before, after = self.tensors(merged), self.tensors(out)
        for layer in 1, 2:
            self.assertEqual(list(after[part(layer, "hot_ids")].values),
                             [8, 20])
            table, hot = (before[TABLE.format(layer)],
                          after[part(layer, "hot_rows")])
            self.assertEqual([hot.row(0), hot.row(1)],
                             [table.row(8), table.row(20)])
        self.assertEqual(
            stem_json("generate", out, "--prompt-ids=5,8,9", "-n", "12")["ids"],
            stem_json("generate", out, "--prompt-ids=5,8,9", "-n", "12",
                      "--tables=file")["ids"])

    def test_generate_and_bench(self):
        model = self.initial("stem", "--cold-rows=int8")
        results = [stem_json("generate", folder, "--prompt=the", "-n", "30",
                             *options)["ids"]
                   for folder, options in ((model, []), (self.twin(model), []),
                                           (model, ["--tables=file"]))]
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])
        engine = stem_json("bench", model, "--prompt-tokens=40",
                           "--decode-tokens=4", "--repeat=6"
                           )["models"][0]["engine"]
        self.assertGreater(engine["lookups"]["bytes_in_memory"], 0)
        errors = stem_run("generate", model, "--prompt=the", "-n", "1",
                          "--tables=file").stderr
        self.assertIn("their scales", errors)
        self.assertIn(", their rows of a step ", stem_run(
            "generate", model, "--prompt=the", "-n", "1").stderr)

    def test_hot_rows_that_save_nothing(self):
        full, out = self.initial("full", "--row-dtype=bf16"), self.path("out")
        for share, wanted in (("100%", r"nothing is saved: a hot row is there "
                               r"in 8 bits too, which makes the tables [\d.]+ % "
                               r"larger and the model [\d.]+ %; fewer hot ids "
                               r"save bytes; 259 ids \(100.0 %\) keep full"),
                              ("10%", r": [\d.]+ % of their bytes and [\d.]+ % "
                               r"of the model's are saved; 26 ids")):
            said = stem_run("apply", full, "--cold-rows=int8", "-o", out,
                            "--force", f"--hot-fraction={share}",
                            f"--text={self.text}").stdout
            self.assertRegex(said, wanted)
            self.assertNotIn("-", said.split("rows of 8 bits: ")[1])

    def test_a_share_of_no_id(self):
        full = self.initial("full")
        told = stem_run("apply", full, "--cold-rows=int8", "-o",
                        self.path("out"), "--hot-fraction=0.1%",
                        f"--text={self.text}")
        self.assertIn("note: --hot-fraction=0.001: of 259 ids that is less "
                      "than half of one, so that none keeps", told.stderr)
        self.assertIn("no id keeps full precision", told.stdout)

    def test_the_same_text_twice(self):
        full, out = self.initial("full"), self.path("out")
        with open(self.text, "rb") as file:
            copy = self.write("copy", file.read())
        for text in self.text, copy:
            self.assert_fails([f"--text={text}: is the same text as "
                               f"{self.text}; give it once"], "apply", full,
                              "--cold-rows=int8", "--hot-fraction=auto",
                              f"--text={self.text}", f"--text={text}", "-o",
                              out)
        self.assertFalse(os.path.exists(out))

    def test_written_is_what_lies_there(self):
        """All but links, to the byte: tables in files of their own, and in one
        with everything else."""
        for name, model in (("apart", self.initial("full")),
                            ("together", os.path.join(GOLDEN, "stem_llama"))):
            out = self.path(name)
            result = stem_json("apply", model, "--cold-rows=int8", "-o", out)
            status = [os.stat(os.path.join(out, file))
                      for file in os.listdir(out)]
            self.assertEqual(result["bytes"], sum(
                file.st_size for file in status if file.st_nlink == 1), name)

    def test_inspect(self):
        model, text = self.initial("stem", "--row-dtype=bf16"), self.text
        out = self.path("out")
        stem_run("apply", model, "--cold-rows=int8", "--hot-fraction=10%",
                 f"--text={text}", "-o", out)
        result = stem_json("inspect", out)
        self.assertEqual(result["unsupported"], [])
        rows = result["model"]["stem"]["byte_rows"]
        self.assertEqual(rows["hot_ids"], [26])
        self.assertAlmostEqual(rows["hot_share"], 26 / VOCABULARY)
        self.assertIn("8-bit rows: ", stem_run("inspect", out).stdout)
        self.assertIn("26 ids (10.0 %)", stem_run("inspect", out).stdout)
        dense = stem_json("inspect", model)["model"]
        self.assertNotIn("byte_rows", dense["stem"])
        self.assertEqual(dense["parameters"], result["model"]["parameters"])

    def test_import_keeps_them(self):
        model, out = self.initial("stem", "--cold-rows=int8"), self.path("out")
        for dtype in "keep", "bf16":
            stem_run("import", model, out, f"--dtype={dtype}", "--force")
            before, after = self.tensors(model), self.tensors(out)
            for name, tensor in before.items():
                if ".up_table." in name:
                    self.assertEqual(after[name].dtype, tensor.dtype)
                    self.assertEqual(after[name].values, tensor.values)
            self.assertEqual(self.logits(out, "--dtype=f32")[0],
                             self.logits(out, "--dtype=f32",
                                         "--tables=file")[0])

    # ---- What does not fit ----

    def test_rows_that_are_not_finite(self):
        model = self.initial("stem", "--row-dtype=f32")
        path = os.path.join(model, "stem-table-004.safetensors")
        for value in math.inf, -math.inf, math.nan:
            tensors = read_tensors(path)
            table = tensors[TABLE.format(4)]
            table.values[7 * table.shape[1] + 3] = value
            write_tensors(path, tensors)
            out = self.path("out")
            self.assert_fails([TABLE.format(4), "the row of id 7 has",
                               "in column 3", "leave --cold-rows out"],
                              "apply", model, "--cold-rows=int8", "-o", out)
            self.assert_nothing_left(out)

    def test_special_rows(self):
        """A zero row, a constant one, one with an outlier, denormals."""
        model = self.initial("stem", "--row-dtype=f32")
        path = os.path.join(model, "stem-table-001.safetensors")
        tensors = read_tensors(path)
        table = tensors[TABLE.format(1)]
        width = table.shape[1]
        special = [[0.0] * width, [f32(0.1)] * width,
                   [1000.0, *([f32(1e-3)] * (width - 1))],
                   [i * 2.0 ** -149 for i in range(width)],
                   [f32(1e-38) * (i % 5) for i in range(width)],
                   [-3e38, 3e38, *([1.0] * (width - 2))]]
        for row, values in enumerate(special):
            table.values[row * width:(row + 1) * width] = array.array(
                "f", values)
        write_tensors(path, tensors)
        out = self.path("out")
        stem_run("apply", model, "--cold-rows=int8", "-o", out)
        after = self.tensors(out)
        decoded = self.decoded(after, 1)
        for row in 0, 1:
            self.assertEqual(after[part(1, "scale")].values[row], 0)
            self.assertEqual(list(decoded[row * width:(row + 1) * width]),
                             special[row])
        for row, values in enumerate(special):
            scale = after[part(1, "scale")].values[row]
            bound = scale / 2 + 2 * max(max(map(abs, values)) * 2 ** -23,
                                        2 ** -149)
            for x, y in zip(values, decoded[row * width:]):
                self.assertLessEqual(abs(x - y), bound, row)
        self.check_same(out, "--dtype=f32")

    def test_refuses(self):
        model = self.initial("stem", "--cold-rows=int8")
        full, out = self.initial("full"), self.path("out")
        eight = ["its rows are of 8 bits", "uint8",
                 "give the model that they were made from"]
        self.assert_fails([*eight, "training does not change them"], "train",
                          model, f"--data={self.text}", "--steps=1", "--out",
                          out)
        self.assert_fails([*eight, "training does not change them"], "bench",
                          model, "--train")
        self.assert_fails([*eight, "a teacher's cannot be"], "train", full,
                          f"--data={self.text}", "--steps=1", "--ctx=64",
                          f"--distill={model}", "--out", out)
        self.assert_fails([*eight, "no further layers are converted"],
                          "convert", model, out, "--layers=2",
                          "--init=embedding")
        self.assert_fails([*eight, "8-bit rows are made of others"], "apply",
                          model, "--cold-rows=int8", "-o", out)
        self.assert_fails(["has no tables", "stem-run convert"], "apply",
                          self.small, "--cold-rows=int8", "-o", out)
        self.assert_fails(["--cold-rows=int8", "a model has one type of rows",
                           "stem-run apply OUT --cold-rows=int8"], "convert",
                          full, out, "--layers=2", "--init=embedding",
                          "--cold-rows=int8")
        self.assert_fails(["rows of 8 bits, which overlays do not replace"],
                          "generate", model, "--prompt=the", "-n", "1",
                          "--swap-rows=a=b")
        self.assertFalse(os.path.exists(out))

    def test_bad_options(self):
        full, out = self.initial("full"), self.path("out")
        convert = ["convert", self.small, out, "--layers=1,4",
                   "--init=embedding"]
        self.assert_fails(["--cold-rows", "int4"], *convert,
                          "--cold-rows=int4", status=2)
        self.assert_fails(["--hot-fraction is for --cold-rows=int8"], *convert,
                          "--hot-fraction=0.1", status=2)
        names = self.write("names", "7\n")
        self.assert_fails(["--hot-ids is for --cold-rows=int8"], *convert,
                          f"--hot-ids={names}", status=2)
        bad = self.write("bad", "7\n259\n")
        more = ["--cold-rows=int8", "--hot-ids"]
        for start in convert, ["apply", full, "-o", out]:
            self.assert_fails([f"{bad}:2", "259"], *start, *more, bad)
            self.assert_fails(["names no token"], *start, *more,
                              self.write("none", "\n \n"))
            self.assert_fails([self.path("missing")], *start, *more,
                              self.path("missing"))
        # Before the text is read, which takes its time.
        self.assert_fails([f"{bad}:2", "259"], "convert", self.small, out,
                          f"--calibrate={self.path('missing')}", *more, bad)
        self.assertFalse(os.path.exists(out))
        self.assert_fails(["ids are counted on the text of a calibration",
                           "name them with --hot-ids",
                           "stem-run apply OUT"], *convert, "--cold-rows=int8",
                          "--hot-fraction=auto", status=2)
        apply = ["apply", full, "-o", out]
        for share in "2", "-0.1", "101%", "nan", "some":
            self.assert_fails(["--hot-fraction", "give auto, or a share"],
                              *apply, "--cold-rows=int8",
                              f"--hot-fraction={share}", status=2)
        self.assert_fails(["give --rows=FILE or --cold-rows=int8"], *apply,
                          status=2)
        self.assert_fails(["give --text=FILE"], *apply, "--cold-rows=int8",
                          "--hot-fraction=auto", status=2)
        self.assert_fails(["--text is for --hot-fraction"], *apply,
                          "--cold-rows=int8", f"--text={self.text}", status=2)
        self.assert_fails(["--text with --hot-fraction=0", "a share above 0"],
                          *apply, "--cold-rows=int8", "--hot-fraction=0",
                          f"--text={self.text}", status=2)


if __name__ == "__main__":
    unittest.main()
