#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which results bench/calibration and bench/recovery take for done. Another
program stands in for stem-run."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from e2e import ROOT

CALIBRATION = os.path.join(ROOT, "bench", "calibration")
RECOVERY = os.path.join(ROOT, "bench", "recovery")
STEM_RUN = f"""#!{sys.executable}
import json, os, sys
command, *options = sys.argv[1:]
with open(os.environ["CALLS"], "a") as file:
    print(command, file=file)
document = {{"tokens": 2, "nll": 3.0}}
cost = {{"flops_per_token": 9, "bytes_read_per_token": 9}}
result = {{
    "files": [{{"documents": [document]}} for _ in range(4)],
    "converted": [1, 2], "before": cost, "after": cost, "peak_bytes": 1,
    "tokens": 8, "seconds": 1.0, "plan": {{}}}}
if command == "convert":
    os.makedirs(options[1], exist_ok=True)
if command == "train":
    out = next(o for o in options if o.startswith("--out="))[len("--out="):]
    os.makedirs(os.path.join(out, "training"))
    with open(os.path.join(out, "training", "metrics.jsonl"), "w") as file:
        print(json.dumps({{"step": 0, "validation_perplexity": 7.5}}), file=file)
print(json.dumps(result))
"""


class BenchResultsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.calls = self.path("calls")
        self.results = self.path("results.jsonl")
        program = self.path("stem-run")
        with open(program, "w") as file:
            file.write(STEM_RUN)
        os.chmod(program, 0o755)
        self.environment = {**os.environ, "STEM_RUN": program,
                            "STEM_CALIBRATION": self.folder,
                            "STEM_RECOVERY": self.path("recovery"),
                            "CALLS": self.calls}
        self.model = self.path("model")
        os.mkdir(self.model)
        with open(os.path.join(self.model, "config.json"), "w") as file:
            json.dump({"hidden_size": 4, "intermediate_size": 8}, file)
        for register in "faq", "pydoc", "wordnet", "kjv":
            for part in "fit", "held", "judge":
                self.write_text(f"{register}.{part}")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_text(self, name, text="a text"):
        with open(self.path(name + ".jsonl"), "w") as file:
            print(json.dumps({"text": text}), file=file)

    def python(self, *line):
        done = subprocess.run([sys.executable, *line], env=self.environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def run_benchmark(self, folder, only, *options):
        """The commands that it ran."""
        open(self.calls, "w").close()
        self.python(os.path.join(folder, "run.py"), self.model,
                    f"--only={only}", "--seeds=0", *options)
        with open(self.calls) as file:
            return file.read().split()

    def calibrate(self, only="^dense$|^ten, rank (0|64)$", *options):
        return self.run_benchmark(CALIBRATION, only, *options)

    def change(self, name, change, path=None):
        """Rewrites the last result of this name."""
        path = path or self.results
        with open(path) as file:
            entries = [json.loads(line) for line in file]
        change([entry for entry in entries if entry["name"] == name][-1])
        with open(path, "w") as file:
            for entry in entries:
                print(json.dumps(entry), file=file)

    def reported(self, column=0):
        lines = self.python(os.path.join(CALIBRATION,
                                         "report.py")).splitlines()
        return [line.split(" | ")[column].strip("| ") for line in lines[2:]]

    # ---- Calibration ----

    def test_another_configuration(self):
        both = ["convert", "eval", "eval"]
        self.assertEqual(self.calibrate(), ["eval", "eval"] + both + both)
        self.assertEqual(self.calibrate(), [])
        names = ["dense", "ten, rank 0", "ten, rank 64"]
        self.assertEqual(self.reported(), names)

        def other_rank(entry):
            entry["options"][entry["options"].index("--mix-rank=64")] = \
                "--mix-rank=32"
        self.change("ten, rank 64", other_rank)
        self.assertEqual(self.reported(), names[:2])
        self.assertEqual(self.calibrate(), both)
        self.assertEqual(self.reported(), names)

        # Other layers, which "ten, rank 64" shares.
        self.change("ten, rank 0", lambda entry: entry.update(layers=[3]))
        self.assertEqual(self.reported(), names[:2])
        self.change("ten, rank 0", lambda entry: entry.update(layers=[1, 2]))
        self.assertEqual(self.calibrate(), [])

    def test_what_counts_as_before(self):
        self.calibrate()
        # Texts that lay elsewhere; results that do not say what they are of.
        self.change("ten, rank 0", lambda entry: entry.update(options=[
            option.replace(self.folder, "/elsewhere")
            for option in entry["options"]]))
        self.change("ten, rank 64", lambda entry: entry.pop("options"))
        for name in "dense", "ten, rank 0", "ten, rank 64":
            self.change(name, lambda entry: entry.pop("judge_texts"))
        # One that no configuration has.
        self.change("ten, rank 64", lambda entry: entry.update(name="older"))
        self.assertEqual(self.calibrate("^dense$|^ten, rank 0$"), [])
        self.assertEqual(self.reported(), ["dense", "ten, rank 0", "older"])
        self.assertEqual(self.reported(8), ["1", "1 (1 to 1)", "1 (1 to 1)"])

    def test_judge_documents_alone(self):
        ten = "^ten, rank 0$"
        self.calibrate("^dense$")
        self.assertEqual(self.calibrate(ten, "--judge-only"),
                         ["convert", "eval"])
        self.assertEqual(self.calibrate(ten, "--judge-only"), [])
        self.assertEqual(self.reported(6)[1], "")
        self.assertEqual(self.reported(8)[1], "1 (1 to 1)")
        # What is not for the judge documents is read whole.
        self.assertEqual(self.calibrate("^28 layers.*self", "--judge-only"),
                         ["convert", "eval"])
        self.assertEqual(self.reported(6)[2], "1 (1 to 1)")
        self.assertEqual(self.calibrate(ten), ["convert", "eval", "eval"])
        self.assertEqual(self.reported(6)[1:], ["1 (1 to 1)"] * 2)

    def test_other_documents_to_judge_by(self):
        self.calibrate("^dense$|^ten, rank 0$")
        judge = 8
        self.assertEqual(self.reported(judge)[1], "1 (1 to 1)")
        self.write_text("faq.judge", "another text")
        self.assertEqual(self.reported(judge)[1], "")
        self.assertEqual(self.reported(), ["dense", "ten, rank 0"])
        self.assertEqual(self.calibrate("^dense$|^ten, rank 0$"),
                         ["eval", "eval", "convert", "eval", "eval"])
        self.assertEqual(self.reported(judge)[1], "1 (1 to 1)")

    def test_the_texts_lie_where_the_results_do(self):
        shown = self.python(os.path.join(CALIBRATION, "prepare.py"), "--help")
        self.assertIn(self.folder, shown.replace("\n", "").replace(" ", ""))

    # ---- Recovery ----

    def test_another_recipe(self):
        name = "search rows: base"
        results = self.path("recovery/results.jsonl")

        def recover():
            return self.run_benchmark(RECOVERY, f"^{name}$")

        self.assertEqual(recover(), ["convert", "train"])
        self.assertEqual(recover(), [])
        self.calibrate("^dense$")
        report = os.path.join(RECOVERY, "report.py")
        self.assertIn(name, self.python(report))
        for change in (lambda entry: entry.update(steps=1),
                       lambda entry: entry["options"].update(lr="1"),
                       lambda entry: entry.update(start=["--layers=1"])):
            self.change(name, change, results)
            self.assertNotIn(name, self.python(report))
            self.assertEqual(recover(), ["convert", "train"])
        self.change(name, lambda entry: entry.pop("steps"), results)
        self.assertEqual(recover(), [])


if __name__ == "__main__":
    unittest.main()
