#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stem-run bench --paced: another program says when to measure."""

import json
import os
import subprocess
import unittest

from e2e import GOLDEN, ModelTest, stem_run

MODEL = os.path.join(GOLDEN, "llama_gqa")


def paced(text, *options, model=(MODEL,)):
    return subprocess.run(
        ["stem-run", "bench", *model, "--paced", "--json",
         "--prompt-tokens=16", "--decode-tokens=4", *options],
        input=text, capture_output=True, text=True, timeout=600)


class PacedTest(ModelTest):
    def test_one_answer_for_each_line(self):
        result = paced("prefill\ndecode\nprefill\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        answers = [json.loads(line)["seconds"] for line in lines[:3]]
        model = json.loads("\n".join(lines[3:]))["models"][0]
        self.assertEqual(model["prefill_seconds"], [answers[0], answers[2]])
        self.assertEqual(model["decode_seconds"], [answers[1]])

    def test_what_was_not_asked_for_is_measured_once(self):
        result = paced("")
        self.assertEqual(result.returncode, 0, result.stderr)
        model = json.loads(result.stdout)["models"][0]
        self.assertEqual(len(model["prefill_seconds"]), 1)
        self.assertEqual(len(model["decode_seconds"]), 1)

    def test_rows_are_read_in_their_own_type(self):
        read = {}
        for dtype in "f32", "bf16":
            stem_run("convert", MODEL, self.path(dtype), "--layers=1",
                     "--init=row-mean", f"--row-dtype={dtype}")
            result = paced("", "--dtype=f32", model=(self.path(dtype),))
            self.assertEqual(result.returncode, 0, result.stderr)
            model = json.loads(result.stdout)["models"][0]
            read[dtype] = model["decode_bytes_per_token"]
        # One row of d_ff 80.
        self.assertAlmostEqual(read["f32"] - read["bf16"], 80 * 2, places=3)

    def test_other_words_are_refused(self):
        result = paced("warm up\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("'warm up' was read", result.stderr)
        self.assertIn("prefill or decode", result.stderr)

    def test_one_model_only(self):
        result = paced("", model=(MODEL, MODEL))
        self.assertEqual(result.returncode, 2)
        self.assertIn("--paced measures one model", result.stderr)


if __name__ == "__main__":
    unittest.main()
