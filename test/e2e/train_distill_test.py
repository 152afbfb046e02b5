#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stem-run train --distill: a converted model follows the dense one that it
was made of."""

import json
import os
import unittest

from e2e import GOLDEN, stem_json, stem_run
from training import STEM, TrainingTest, contents, metrics, model_tensors

DENSE = os.path.join(GOLDEN, "llama_gqa")


class TrainDistillTest(TrainingTest):
    def stem(self):
        """The small model with two tables, which know the tokens alone."""
        model = self.path("stem")
        stem_run("convert", self.small, model, "--layers=1,4",
                 "--init=row-mean")
        return model

    def common(self, model, text, *options, teacher=None):
        return ["train", model, f"--distill={teacher or self.small}",
                f"--data={text}", "--ctx=16", "--batch=4", "--lr=3e-4",
                "--dtype=f32", *options]

    def test_follows_its_dense_parent(self):
        model, out, text = self.stem(), self.path("out"), self.text()
        arguments = [*self.common(model, text), "--steps=24",
                     "--eval-every=24", f"--out={out}"]
        result = stem_json(*arguments)
        self.assertEqual(result["teacher"], self.small)
        self.assertEqual(result["options"]["--distill-weight"], 1)
        self.assertGreater(result["plan"]["memory"]["teacher"], 0)
        lines = metrics(out)
        for line in lines.values():
            self.assertEqual(line["loss"], line["kl"])
            self.assertGreater(line["nll"], 0)
        # Batches differ more than steps.
        first, last = (sum(lines[step]["kl"] for step in steps)
                       for steps in (range(1, 7), range(19, 25)))
        self.assertLess(last, 0.85 * first)
        with open(os.path.join(out, "training", "metrics.jsonl")) as file:
            kls = [line["validation_kl"] for line in map(json.loads, file)
                   if "validation_kl" in line]
        self.assertEqual(len(kls), 2)
        self.assertLess(kls[1], kls[0])
        self.assertEqual(result["validation_kl"], kls[1])
        with open(os.path.join(out, "training", "report.html")) as file:
            self.assertIn("Divergence from the teacher", file.read())
        with open(os.path.join(out, "stem_provenance.json")) as file:
            self.assertIn(self.small, file.read())
        stem_run("eval", out, f"--text={text}")

    def test_a_mix_of_both_losses(self):
        batch = self.batch()
        for weight in 0, 0.25:
            out = self.path(f"out-{weight}")
            result = stem_run("train", STEM, f"--distill={DENSE}",
                              f"--distill-weight={weight}", "--steps=2",
                              f"--batch-ids={batch}", f"--out={out}",
                              "--dtype=f32")
            self.assertRegex(result.stderr,
                             r"step 2/2 +loss [\d.]+ \(nll [\d.]+, kl [\d.]+\)")
            self.assertRegex(result.stderr, r"teacher +[\d.]+ [KM]B")
            line = metrics(out)[2]
            self.assertAlmostEqual(
                line["loss"],
                (1 - weight) * line["nll"] + weight * line["kl"])
        plain = self.path("plain")
        stem_run("train", STEM, f"--batch-ids={batch}", "--steps=2",
                 f"--out={plain}", "--dtype=f32")
        self.assertEqual(contents(plain), contents(self.path("out-0")))
        self.assertNotEqual(contents(plain), contents(self.path("out-0.25")))

    def test_resumes_with_the_same_teacher(self):
        model, text = self.stem(), self.text()
        def common(weight, teacher=None):
            return self.common(model, text, "--save-every=2",
                               "--schedule=constant",
                               f"--distill-weight={weight}", teacher=teacher)
        whole, parts = self.path("whole"), self.path("parts")
        stem_run(*common(0.5), "--steps=4", f"--out={whole}")
        stem_run(*common(0.5), "--steps=2", f"--out={parts}")
        stem_run(*common(0.5), "--steps=4", f"--out={parts}", "--resume")
        self.assertEqual(contents(whole), contents(parts))
        again = "--steps=6", f"--out={parts}", "--resume"
        self.assert_fails(["--distill-weight", "0.5", "0.75"], *common(0.75),
                          *again)
        other = self.path("other-teacher")
        stem_run("convert", self.small, other, "--layers=2",
                 "--init=row-mean")
        self.assert_fails(["--distill was"], *common(0.5, other), *again)

    def test_micro_batches(self):
        """The divergence is a mean over all labels of a step."""
        batch, out = self.batch(), self.path("out")
        stem_run("train", STEM, f"--distill={DENSE}", f"--batch-ids={batch}",
                 "--steps=1", "--accumulate=2", "--lr=0", f"--out={out}",
                 "--dtype=f32")
        one = self.path("one")
        stem_run("train", STEM, f"--distill={DENSE}", f"--batch-ids={batch}",
                 "--steps=1", "--lr=0", f"--out={one}", "--dtype=f32")
        self.assertAlmostEqual(metrics(out)[1]["kl"], metrics(one)[1]["kl"])

    def test_nothing_to_compare(self):
        batch, out = self.batch(ignored=range(16)), self.path("out")
        result = stem_run("train", STEM, f"--distill={DENSE}",
                          f"--batch-ids={batch}", "--steps=1", f"--out={out}")
        self.assertIn("no place of the batch has a label", result.stderr)
        self.assertEqual(metrics(out)[1]["kl"], 0)
        before = model_tensors(STEM)
        for name, tensor in model_tensors(out).items():
            self.assertEqual(tensor.values, before[name].values)

    # ---- Bad teachers ----

    def test_another_vocabulary(self):
        out = self.path("out")
        vocabulary = json.loads(self.read_config(self.small))["vocab_size"]
        self.assert_fails(["vocabulary has 96 tokens", f"has {vocabulary}",
                           "give a teacher with the same vocabulary"],
                          "train", self.small, f"--distill={DENSE}",
                          f"--data={self.text()}", "--ctx=8",
                          f"--out={out}")
        self.assertFalse(os.path.exists(out))

    def read_config(self, model):
        with open(os.path.join(model, "config.json")) as file:
            return file.read()

    def test_another_tokenizer(self):
        other, out = self.copy_model("other"), self.path("out")
        with open(os.path.join(other, "tokenizer.json"), "a") as file:
            file.write("\n")
        self.assert_fails(["tokenizer is another one", "SHA-256",
                           "give a teacher with the same tokenizer"],
                          "train", self.small, f"--distill={other}",
                          f"--data={self.text()}", "--ctx=8",
                          f"--out={out}")
        self.assertFalse(os.path.exists(out))

    def test_too_few_positions(self):
        other, out = self.copy_model("other"), self.path("out")
        config = json.loads(self.read_config(other))
        config["max_position_embeddings"] = 8
        with open(os.path.join(other, "config.json"), "w") as file:
            json.dump(config, file)
        self.assert_fails(["length 16", "teacher's 8 positions",
                           "smaller --ctx"], "train", self.small,
                          f"--distill={other}", f"--data={self.text()}",
                          "--ctx=16", f"--out={out}")
        self.assertFalse(os.path.exists(out))

    def test_no_model(self):
        out = self.path("out")
        for name in "no-such-folder", os.path.dirname(self.write("x", "")):
            self.assert_fails([name], "train", STEM, f"--distill={name}",
                              f"--batch-ids={self.batch()}", "--steps=1",
                              f"--out={out}")
        self.assertFalse(os.path.exists(out))

    def test_command_lines(self):
        for part, options in [
                ("--distill-weight=1.5: give a number from 0 to 1",
                 ["--distill=x", "--distill-weight=1.5"]),
                ("--distill-weight=-0.1: give a number from 0 to 1",
                 ["--distill=x", "--distill-weight=-0.1"]),
                ("--distill-weight=half: give a number from 0 to 1",
                 ["--distill=x", "--distill-weight=half"]),
                ("--distill-weight goes with --distill=TEACHER",
                 ["--distill-weight=0.5"])]:
            with self.subTest(part=part):
                self.assert_fails([part], "train", self.small, "--data=x",
                                  f"--out={self.path('out')}", *options,
                                  status=2)


if __name__ == "__main__":
    unittest.main()
