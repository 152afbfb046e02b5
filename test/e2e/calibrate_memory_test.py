#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --init=calibrated keeps within its plan of memory and within
--memory, and gives the same folder whatever that is."""

import json
import os
import random
import shutil
import string
import unittest

from calibration import CalibrationTest
from e2e import Tensor, read_tensors, stem_json, stem_run, \
    write_tensors

MB = 1_000_000
VOCABULARY, WIDTH = 259 + 26 * 26, 2048


def grow(folder):
    """Gives the small model a token for each pair of letters and a wide FFN, so
    that what a layer's rows and fits take shows beside the program."""
    path = os.path.join(folder, "tokenizer.json")
    with open(path) as file:
        tokenizer = json.load(file)
    model, letters = tokenizer["model"], string.ascii_lowercase
    for first in letters:
        for second in letters:
            model["vocab"][first + second] = len(model["vocab"])
            model["merges"].append(f"{first} {second}")
    with open(path, "w") as file:
        json.dump(tokenizer, file)
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    before = config["intermediate_size"]
    config.update(vocab_size=VOCABULARY, intermediate_size=WIDTH)
    with open(path, "w") as file:
        json.dump(config, file)
    path = os.path.join(folder, "model.safetensors")
    numbers, grown = random.Random(1), {}
    for name, tensor in read_tensors(path).items():
        shape = [{before: WIDTH, 259: VOCABULARY}.get(side, side)
                 for side in tensor.shape]
        if shape != tensor.shape:
            tensor = Tensor(tensor.dtype, shape, numbers.choices(
                tensor.values, k=shape[0] * shape[1]))
        grown[name] = tensor
    write_tensors(path, grown)


def pairs_of_letters(words, seed):
    numbers = random.Random(seed)
    return " ".join("".join(numbers.choices(string.ascii_lowercase, k=2))
                    for _ in range(words))


class CalibrateMemoryTest(CalibrationTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = os.path.join(cls.folder, "grown")
        shutil.copytree(cls.small, cls.model)
        grow(cls.model)
        cls.text = os.path.join(cls.folder, "text.txt")
        with open(cls.text, "w") as file:
            file.write(pairs_of_letters(9000, 1))

    def convert(self, name, *options):
        """The folder, the plan and what was said. The peak lies within the plan
        and not far below it."""
        # A folder that ends in a slash lies where it lies without.
        out = self.path(name) + "/"
        run = stem_run("convert", self.model, out, f"--calibrate={self.text}",
                       "--calibrate-tokens=16384", "--dialogue-share=0",
                       "--json", "--threads=2", *options)
        result = json.loads(run.stdout)
        plan, peak = result["calibration"]["plan"], result["peak_bytes"]
        parts = ("states", "rows", "fits", "weights", "steps", "files",
                 "program")
        self.assertEqual(plan["total"], plan["products"] + plan["taps"]
                         + sum(plan[part] for part in parts))
        for part in parts:
            self.assertGreater(plan[part], 0, part)
        self.assertLessEqual(peak, max(plan["total"], plan["before"]), plan)
        self.assertGreater(peak, plan["total"] - plan["files"] - 30 * MB, plan)
        return out, plan, run.stderr

    def check_bounds(self, steps, *options):
        """Each step has so much less memory than the one before took, with
        words that are said of its plan and words that are not."""
        # The program takes less where the module is found compiled.
        self.convert("compiled", "--layers=1")
        whole, plan, said = self.convert("whole", *options)
        self.assertEqual(plan["spill"], 0)
        self.assertNotIn("in a file", said)
        self.assertNotIn(" 0 B", said)
        for name, part in ("taps", "taps"), ("again", "products"):
            memory = plan["total"] - plan[part] // 2
            out, plan, said = self.convert(name, f"--memory={memory}", *options)
            self.assertIn(f"its {part} 0 B", said)
            self.assertNotIn("in a file", said)
            self.assert_same_folder(out, whole)
        for name, less, words, absent in steps:
            memory = plan["total"] - less
            parts = plan["row_parts"]
            out, plan, said = self.convert(name, f"--memory={memory}", *options)
            for word in words:
                self.assertIn(word, said)
            self.assertNotIn(absent, said)
            self.assertGreater(plan["spill"], 0)
            self.assertLessEqual(plan["total"], memory)
            self.assertGreaterEqual(plan["row_parts"], parts)
            self.assert_same_folder(out, whole)
        self.assertEqual([name for name in os.listdir(self.folder)
                          if name.startswith(".")], [])

    def test_bounds(self):
        self.check_bounds([
            ("spilled", 2 * MB, ["of hidden states in a file"],
             "a layer at a time"),
            ("least", 2 * MB, ["(a layer at a time)"], "of rows"),
            ("parts", 4 * MB, ["(in 2 parts)", "of rows"],
             "states 0 B"),
            ("small", 5 * MB, [" parts)", "of rows"], "(in 2 parts)")],
            "--layers=1,4", "--mix-rank=8", "--dense-below=4")

    def test_bounds_with_sensitivities(self):
        self.check_bounds([("parts", 15 * MB, ["(in 2 parts)", "of rows"],
                            "states 0 B")], "--layers=auto:1")

    def test_text_that_the_model_writes(self):
        result = stem_json("convert", self.model, self.path("stem"),
                           "--layers=1", "--calibrate=self",
                           "--calibrate-tokens=8192", "--force-calibration",
                           "--threads=2", "--memory=400MB")
        plan, peak = result["calibration"]["plan"], result["peak_bytes"]
        self.assertLessEqual(peak, max(plan["total"], plan["before"]))
        self.assertLessEqual(peak, 400 * MB)
        # The model that wrote is no more in memory.
        self.assertLess(plan["program"], plan["before"] - 10 * MB)
        command = ["convert", self.small, self.path("out"), "--layers=1",
                   "--calibrate=self", "--memory=10MB"]
        self.assert_fails(
            ["memory: weights ", "--memory allows 10 MB, of which the program "
             "holds", "the model writes text to calibrate on",
             "--dtype=bf16 halves", "or allow more --memory"], *command)
        # Options that convert does not have.
        said = stem_run(*command, check=False).stderr
        for option in "--ctx", " -n", "prompts":
            self.assertNotIn(option, said)

    def test_text_that_is_too_long_to_read(self):
        text = self.write("text.jsonl", json.dumps(
            {"text": pairs_of_letters(9000, 1), "notes": "n" * 100 * MB}))
        self.assert_fails(
            ["reading the text and compiling took ", "but --memory allows "
             "230 MB", "shorter files"],
            "convert", self.small, self.path("out"), "--layers=1",
            f"--calibrate={text}", "--calibrate-tokens=8192",
            "--dialogue-share=0", "--memory=230MB")


if __name__ == "__main__":
    unittest.main()
