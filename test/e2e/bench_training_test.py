#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stem-run bench --train, and bench/training without its PyTorch. No time is
compared with anything."""

import contextlib
import importlib
import io
import json
import os
import statistics
import subprocess
import sys
import unittest

from e2e import GOLDEN, ROOT, stem_json, stem_run
from training import STEM, TrainingTest

DENSE = os.path.join(GOLDEN, "llama_gqa")
DRIVER = os.path.join(ROOT, "bench", "training")
PARTS = ("compute_seconds", "dense_optimizer_seconds",
         "row_optimizer_seconds")


class BenchTrainTest(TrainingTest):
    def bench(self, model, *options):
        return stem_json("bench", model, "--train", "--repeat=2", "--batch=2",
                         "--ctx=16", *options)

    def test_what_it_measures(self):
        result = self.bench(STEM)
        self.assertEqual(result["schema"], "stem.bench/1")
        self.assertEqual((result["sequences"], result["length"]), (2, 16))
        self.assertEqual(result["plan"]["tokens_per_step"], 32)
        self.assertIs(result["updates_in_step"], True)
        self.assertEqual(len(result["step_seconds"]), 2)
        for i, seconds in enumerate(result["step_seconds"]):
            self.assertGreaterEqual(seconds,
                                    sum(result[part][i] for part in PARTS))
        for key in "tokens_per_second", "matrix_rate", "product_rate", \
                "share_of_matrix_rate", "share_of_product_rate", \
                "compile_seconds_cold", "load_seconds", \
                "first_step_seconds", "base_bytes", "step_peak_bytes", \
                "peak_bytes", "loss":
            self.assertGreater(result[key], 0, key)
        self.assertGreaterEqual(result["peak_bytes"],
                                result["step_peak_bytes"])
        rows = result["plan"]["memory"]["row_moments"]
        self.assertGreater(rows, 0)
        # Two tables of 96 rows; 4 bytes a row are left.
        none = self.bench(STEM, "--table-betas=0,0.95")
        self.assertEqual(none["plan"]["memory"]["row_moments"], 2 * 96 * 4)

    def test_the_step_is_that_of_train(self):
        """The same losses, from the first step on."""
        batch = self.batch()
        text = "step\n" * 3
        line = ["stem-run", "bench", STEM, "--train", f"--batch-ids={batch}",
                "--paced", "--json"]
        done = subprocess.run(line, input=text, capture_output=True,
                              text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        answers = [json.loads(part) for part in lines[:3]]
        result = json.loads("\n".join(lines[3:]))
        self.assertEqual(result["step_seconds"],
                         [answer["seconds"] for answer in answers])
        out = self.path("out")
        stem_run("train", STEM, f"--batch-ids={batch}", "--steps=4",
                 "--lr=1e-4", "--schedule=constant", f"--out={out}")
        with open(os.path.join(out, "training", "metrics.jsonl")) as file:
            losses = [json.loads(part)["loss"] for part in file]
        # The first step is the untimed one.
        self.assertEqual(losses[1:], [answer["loss"] for answer in answers])

    def test_parts_and_text(self):
        tables = self.bench(STEM, "--train=tables")
        self.assertEqual(tables["plan"]["memory"]["masters"], 0)
        self.assertFalse(tables["updates_in_step"])
        for options, words in (
                ([DENSE, "--train"],
                 ["tokens/s: forward, backward and AdamW ",
                  ", packing weights ", "in forward, backward and AdamW "]),
                ([STEM, "--train=tables"],
                 ["tokens/s: forward and backward ", ", optimizer ",
                  "in forward and backward "])):
            done = stem_run("bench", *options, "--repeat=1", "--batch=1",
                            "--ctx=8")
            for word in *words, "% of the matrix rate", "planned":
                self.assertIn(word, done.stdout)

    def test_refused(self):
        for options, status, words in (
                ([DENSE, DENSE, "--train"], 2, "measures one model"),
                (["--train"], 2, "--from-config"),
                ([], 2, "MODEL is required"),
                ([DENSE, "--batch=2"], 2, "--train"),
                ([DENSE, "--train=some"], 2, "some"),
                ([DENSE, "--train", "--prompt-tokens=4"], 2, "--train"),
                ([DENSE, "--train", "--table-betas=1"], 2, "--table-betas"),
                ([DENSE, "--train", "--ctx=999"], 1, "999"),
                ([DENSE, "--train=tables", "--ctx=8"], 1, "finds nothing to train")):
            with self.subTest(options=options):
                done = stem_run("bench", *options, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(words, done.stderr)
        done = subprocess.run(
            ["stem-run", "bench", DENSE, "--train", "--paced", "--batch=1",
             "--ctx=8"], input="prefill\n", capture_output=True, text=True,
            timeout=600)
        self.assertEqual(done.returncode, 1)
        self.assertIn("'prefill' was read", done.stderr)
        self.assert_fails(["training takes", "are available; give a smaller "
                           "--batch, a smaller --ctx, --row-optimizer=rowwise "
                           "or --train=tables"], "bench", DENSE, "--train",
                          "--batch=10000000", "--ctx=8")
        batch = self.batch(ignored=range(16))
        self.assert_fails(["no place has a label"], "bench", DENSE, "--train",
                          f"--batch-ids={batch}")


class DriverTest(TrainingTest):
    """bench/training on a tiny model, ours against ours."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["STEM_TRAINING_BENCH"] = os.path.join(cls.folder, "bench")
        sys.path.insert(0, DRIVER)
        cls.common, cls.configurations, cls.runner, cls.report, cls.order = (
            importlib.import_module(name)
            for name in ("common", "configurations", "run", "report",
                         "order_statistics"))

    @classmethod
    def tearDownClass(cls):
        sys.path.remove(DRIVER)
        super().tearDownClass()

    def call(self, module, *arguments):
        out, before = io.StringIO(), sys.argv
        sys.argv = ["program", *arguments]
        try:
            with contextlib.redirect_stdout(out), \
                    contextlib.redirect_stderr(io.StringIO()):
                status = module.main()
        finally:
            sys.argv = before
        return status, out.getvalue()

    def test_measures_resumes_and_reports(self):
        c = self.configurations
        tiny = [c.Configuration("tiny STEM against dense", "dense", "tiny",
                                "f32", c.Program("all"), c.Program("none")),
                c.Configuration("tiny rows lazy", "rows", "tiny", "f32",
                                c.Program("third", options=(
                                    "--row-optimizer=lazy",))),
                c.alone("tiny STEM 2 x 32 tokens", "memory", "tiny", "f32",
                        c.Program("all"), 1, batch=2),
                c.alone("tiny STEM 4 x 32 tokens", "memory", "tiny", "f32",
                        c.Program("all"), 1, batch=4),
                c.alone("tiny", "plan", "tiny", "bf16", c.Program("all"), 1)]
        before = c.CONFIGURATIONS[:]
        c.CONFIGURATIONS[:] = tiny
        try:
            self.assertEqual(self.call(self.runner, "--pairs=3")[0], 0)
            results = self.common.read_results()
            self.assertEqual(set(results), {one.name for one in tiny})
            pair = results["tiny STEM against dense"]
            self.assertEqual(pair["ratio"]["pairs"], 3)
            self.assertIsNone(pair["ratio"]["interval"])
            # What is there is not measured again.
            size = os.path.getsize(self.common.results_path())
            self.assertEqual(self.call(self.runner, "--pairs=3")[0], 0)
            self.assertEqual(os.path.getsize(self.common.results_path()),
                             size)
            status, text = self.call(self.report)
            self.assertEqual(status, 0)
            for one in tiny:
                self.assertIn(f"| {one.name} |", text)
            self.assertIn("| rows | packing weights |", text)
        finally:
            c.CONFIGURATIONS[:] = before

    def test_every_configuration_has_a_model(self):
        status, text = self.call(self.runner, "--list")
        self.assertEqual(status, 0)
        names = [one.name for one in self.configurations.CONFIGURATIONS]
        self.assertEqual(len(set(names)), len(names))
        for one in self.configurations.CONFIGURATIONS:
            self.assertIn(one.name, text)
            self.assertIn(one.table, self.report.TABLES)
            shape = self.configurations.SHAPES[one.shape]
            for program in filter(None, (one.ours, one.other)):
                config = self.configurations.config(shape, program.stem)
                self.assertEqual("stem" in config, program.stem != "none")

    def test_a_side_that_ends_is_told(self):
        with self.assertRaisesRegex(self.common.Failed, "no such file"):
            program = self.configurations.Program()
            self.common.our_side(program, self.path("none.json"), "f32", 1,
                                 8).begin()

    def test_row_optimizers(self):
        lines = [{"mode": "lazy", "touched": 3, "rows": 8, "columns": 4,
                  "milliseconds": 1.0, "dense_milliseconds": 2.0,
                  "ratio": 2.0, "ratio_low": 1.5, "ratio_high": 2.5,
                  "state_bytes": 256, "dense_state_bytes": 256}]
        program = self.write("lines", "#!/bin/sh\n" + "".join(
            f"echo '{json.dumps(line)}'\n" for line in lines))
        os.chmod(program, 0o755)
        self.assertEqual(self.common.run_lines(program), lines)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.report.optimizers([{"lines": lines}])
        self.assertIn("| lazy, 3 of 8 rows x 4 | 1.0 ms |", out.getvalue())
        with self.assertRaisesRegex(self.common.Failed, "STEM_BUILD_BENCH"):
            self.common.run_lines("no_such_program")

    def test_memory_is_there(self):
        self.common.require_memory(0)
        with self.assertRaisesRegex(self.common.Failed, "are available"):
            self.common.require_memory(1e6)

    def test_interval(self):
        """The ends are as many values in as 95 % allow (bench/Pairs.h)."""
        values = [float(i) for i in range(15)]
        self.assertEqual(self.order.interval(values), [3.0, 11.0])
        self.assertEqual(self.order.median(values), statistics.median(values))
        self.assertIsNone(self.order.interval([1.0, 2.0]))
        result = {"ratio": {"median": 2.0, "interval": [1.5, 2.5]}}
        self.assertEqual(self.report.ratio(result), "2.00 (1.50 to 2.50)")


if __name__ == "__main__":
    unittest.main()
