#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""--tables=file: the bits of tables in memory, from rows that are read."""

import json
import os
import unittest

from e2e import GOLDEN, ModelTest, Tensor, stem_json, stem_run, write_tensors

VOCABULARY = 259  # of the small model
PLACES = ("resident", "file")
DISTANCES = ("0", "1", "2", "auto")


class TablePlacementTest(ModelTest):
    def stem(self, name="stem", *options, layers="1,4"):
        model = self.path(name)
        stem_run("convert", self.small, model, f"--layers={layers}",
                 "--init=embedding", *options)
        return model

    def ids(self, count=300, vocabulary=96):
        ids = [(7 * i * i + 3 * i) % vocabulary for i in range(count)]
        path = self.path("ids.safetensors")
        write_tensors(path, {"input_ids": Tensor("I64", [2, count // 2], ids)})
        return path

    def logits(self, model, place, *options):
        out = self.path("logits.safetensors")
        result = stem_json("eval", model, f"--input-ids={self.ids()}",
                           f"--logits-out={out}", "--force",
                           f"--tables={place}", *options)
        with open(out, "rb") as file:
            return file.read(), result["engine"]

    def check_same(self, model, *options):
        resident, kept = self.logits(model, "resident", *options)
        for rows in ("0", "1", "7", "1%", "10%", "100%"):
            read, staged = self.logits(model, "file", f"--cache-rows={rows}",
                                       *options)
            self.assertEqual(resident, read, rows)
            if rows == "0":
                self.check_figures(model, kept, staged)

    def check_figures(self, model, kept, staged):
        self.assertEqual(kept["plan"]["tables"],
                         staged["plan"]["tables_in_files"])
        self.assertGreater(kept["plan"]["tables"], 0)
        self.assertEqual(staged["plan"]["tables"], 0)
        self.assertEqual(kept["plan"]["staging"], 0)
        self.assertEqual(kept["lookups"]["bytes_read"], 0)
        lookups = staged["lookups"]
        with open(os.path.join(model, "config.json")) as file:
            vocabulary = json.load(file)["vocab_size"]
        rows_of_an_id = lookups["bytes_in_files"] // vocabulary
        self.assertEqual(lookups["bytes_read"],
                         lookups["different_ids"] * rows_of_an_id)
        self.assertEqual(lookups["rows_cached"], 0)
        self.assertLess(lookups["different_ids"], lookups["ids"])

    def test_logits(self):
        for row_type, dtype in (("f32", "f32"), ("bf16", "bf16"),
                                ("f16", "bf16")):
            model = self.stem(row_type, f"--row-dtype={row_type}")
            with self.subTest(rows=row_type, dtype=dtype):
                self.check_same(model, f"--dtype={dtype}")

    def test_distances(self):
        model = self.stem("four", layers="1,2,4,5")
        resident, kept = self.logits(model, "resident")
        self.assertIsNone(kept["prefetch_distance"])
        whole = None
        for distance in reversed(DISTANCES):
            for rows in ("0", "7"):
                read, staged = self.logits(
                    model, "file", f"--cache-rows={rows}",
                    f"--prefetch-distance={distance}")
                with self.subTest(distance=distance, rows=rows):
                    self.assertEqual(resident, read)
                    staging = staged["plan"]["staging"]
                    whole = whole or staging
                    ahead = 4 if distance == "auto" else int(distance)
                    self.assertEqual(staged["prefetch_distance"], ahead)
                    self.assertEqual(staging, whole * min(ahead + 1, 4) // 4)
        self.assertEqual(self.logits(model, "file",
                                     "--prefetch-distance=99")[1]
                         ["prefetch_distance"], 4)

    def test_distances_of_text(self):
        model = self.stem("four", layers="1,2,4,5")
        options = ["generate", model, "--prompt=the", "--prompt=and so",
                   "--temperature=1", "--seed=3", "-n", "20"]
        wanted = stem_json(*options)["sequences"]
        for distance in DISTANCES:
            for rows in ("0", "7"):
                seen = stem_json(*options, "--tables=file",
                                 f"--cache-rows={rows}",
                                 f"--prefetch-distance={distance}")
                self.assertEqual([s["ids"] for s in seen["sequences"]],
                                 [s["ids"] for s in wanted], distance)
        plan = stem_run(*options, "--tables=file",
                        "--prefetch-distance=0").stderr
        self.assertIn(", for 1 table at a time, ", plan)

    def test_schedule(self):
        model, dump = self.stem("four", layers="1,2,4,5"), self.path("ir")
        for distance, ahead in (("0", 1), ("2", 3), ("auto", 4)):
            stem_run("generate", model, "--prompt=the", "-n", "1",
                     "--tables=file", f"--prefetch-distance={distance}",
                     f"--dump-ir={dump}")
            for phase in ("02-schedule", "04-buffers"):
                with open(os.path.join(dump, f"{phase}.mlir")) as file:
                    text = file.read()
                held, most = 0, 0
                for line in text.splitlines():
                    held += "stem.prefetch " in line
                    held -= "stem.release " in line
                    most = max(most, held)
                self.assertEqual((held, most), (0, ahead), phase)

    def test_golden(self):
        self.check_same(os.path.join(GOLDEN, "stem_llama"))

    def test_generate(self):
        model = self.stem()
        for options in (["--prompt=the"], ["--prompt=the", "--prompt=and so",
                                           "--temperature=1", "--seed=3"]):
            results = [stem_json("generate", model, *options, "-n", "30",
                                 f"--tables={place}") for place in PLACES]
            for result in results:
                lookups = result["engine"]["lookups"]
            self.assertEqual(*[[s["ids"] for s in r.get("sequences", [r])]
                               for r in results])
            self.assertGreater(lookups["bytes_read"], 0)

    def test_against(self):
        model, text = self.stem(), self.write("text", "In the beginning. " * 9)
        resident, read = (stem_json("eval", model, f"--text={text}",
                                    f"--against={self.small}",
                                    f"--tables={place}") for place in PLACES)
        self.assertEqual(resident["files"], read["files"])
        for against, times in ((self.small, 1), (model, 2)):
            errors = stem_run("eval", model, f"--text={text}",
                              f"--against={against}", "--tables=file").stderr
            self.assertEqual(errors.count("\ntables: "), times, errors)

    def test_bench(self):
        result = stem_json("bench", self.small, self.stem(), "--tables=file",
                           "--prompt-tokens=40", "--decode-tokens=4",
                           "--repeat=6", "--prefetch-distance=1")
        dense, stem = (model["engine"] for model in result["models"])
        self.assertEqual(dense["lookups"]["bytes_in_files"], 0)
        self.assertGreater(stem["lookups"]["bytes_read"], 0)
        self.assertIsNone(dense["prefetch_distance"])
        self.assertEqual(stem["prefetch_distance"], 1)

    def test_rows_are_kept(self):
        model = self.stem()
        def lookups(*options):
            return stem_json("generate", model, "--prompt=the", "-n", "60",
                             "--tables=file", "--ignore-end",
                             *options)["engine"]
        none, some, all_ids = (lookups(f"--cache-rows={rows}")
                               for rows in ("0", "5", "100%"))
        uses = none["lookups"]["rows_read"]
        self.assertEqual(none["plan"]["kept"], 0)
        self.assertEqual(none["plan"]["counts"], 0)
        self.assertEqual(some["plan"]["counts"],
                         21 * VOCABULARY + 20 * 5 - 16)
        for engine in (none, some, all_ids):
            plan = engine["plan"]
            self.assertEqual(plan["total"], sum(plan[part] for part in (
                "weights", "tables", "staging", "kept", "counts", "arena",
                "cache", "logits")))
        self.assertGreater(some["plan"]["kept"], 0)
        self.assertEqual(all_ids["plan"]["kept"],
                         all_ids["plan"]["tables_in_files"])
        self.assertEqual(all_ids["lookups"]["evictions"], 0)
        self.assertEqual(none["lookups"]["rows_cached"], 0)
        for engine in (some, all_ids):
            seen = engine["lookups"]
            self.assertEqual(seen["rows_read"] + seen["rows_cached"], uses)
        self.assertGreaterEqual(all_ids["lookups"]["rows_cached"],
                                some["lookups"]["rows_cached"])
        self.assertGreater(all_ids["lookups"]["rows_cached"], 0)

    def test_says_what_it_read(self):
        model = self.stem()
        for place, wanted in zip(PLACES, (False, True)):
            errors = stem_run("generate", model, "--prompt=the", "-n", "3",
                              f"--tables={place}").stderr
            self.assertEqual("tables in files (" in errors, wanted)
            self.assertEqual("\ntables: " in errors, wanted, errors)
        self.assertIn("no layer has a table: --tables=file changes nothing",
                      stem_run("generate", self.small, "--prompt=the", "-n",
                               "1", "--tables=file").stderr)

    def test_rows_that_cannot_stay_in_the_file(self):
        model = self.stem()
        self.assert_fails(
            ["model.layers.1.mlp.up_table.weight", "row overlay", "--swap-rows",
             "choose --tables=resident"],
            "generate", model, "--prompt=the", "-n", "1", "--tables=file",
            "--swap-rows=a=b")

    def test_a_plan_that_is_refused_is_told_once(self):
        model = self.stem()
        for place in PLACES:
            told = stem_run("generate", model, "--prompt=the",
                            f"--tables={place}", "--memory=10MB",
                            check=False).stderr
            self.assertIn("--memory allows 10 MB", told)
            self.assertEqual(told.count("memory: weights "), 1, told)

    def test_values_are_refused_before_a_model_is_opened(self):
        missing = self.path("missing")
        for options, part in (
                (["--memory=much"], "--memory=much: give a whole number"),
                (["--tables=file", "--cache-rows=x"], "--cache-rows=x: wanted"),
                (["--tables=file", "--prefetch-distance=x"],
                 "--prefetch-distance=x: wanted"),
                (["--table-place=x"], "--table-place=x: give")):
            for command in (["generate", missing, "--prompt=the"],
                            ["eval", missing, "--text=none"],
                            ["eval", missing, "--input-ids=no",
                             "--logits-out=out"],
                            ["bench", missing]):
                self.assert_fails([part], *command, *options, status=2)

    def test_bad_options(self):
        model = self.stem()
        self.assert_fails(["--tables", "nowhere"], "eval", model,
                          "--input-ids=x", "--logits-out=y",
                          "--tables=nowhere", status=2)
        for rows in ("-1", "1.5", "101%", "nan", "%"):
            self.assert_fails([f"--cache-rows={rows}: wanted a number of ids"],
                              "generate", model, "--prompt=the",
                              "--tables=file", f"--cache-rows={rows}",
                              status=2)
        self.assert_fails(["--cache-rows=5 with --tables=resident"],
                          "generate", model, "--prompt=the", "--cache-rows=5",
                          status=2)
        for place in "resident", "host":
            self.assert_fails([f"--cache-rows=5 with --tables={place}",
                               "leave it out", "choose --tables=file"],
                              "generate", model, "--prompt=the",
                              "--cache-rows=5", f"--tables={place}", status=2)
        for distance in ("-1", "1.5", "far", "nan"):
            self.assert_fails([f"--prefetch-distance={distance}: wanted auto"],
                              "generate", model, "--prompt=the",
                              "--tables=file",
                              f"--prefetch-distance={distance}", status=2)
        for distance in ("1", "auto"):
            self.assert_fails([f"--prefetch-distance={distance} with "
                               "--tables=resident", "leave it out"],
                              "generate", model, "--prompt=the",
                              "--tables=resident",
                              f"--prefetch-distance={distance}", status=2)
        self.assert_fails(["--prefetch-distance=1 with --tables=resident"],
                          "bench", model, "--prefetch-distance=1", status=2)
        self.assert_fails(["--train", "--cache-rows"], "bench", model,
                          "--train", "--cache-rows=5", status=2)
        self.assert_fails(["--train", "--tables"], "bench", model, "--train",
                          "--tables=file", status=2)


if __name__ == "__main__":
    unittest.main()
