#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --mix-rank=0,4: folders that differ in the rank, in one run. Each is
the folder that a run with its rank alone makes."""

import os
import signal
import subprocess
import unittest

from calibration import PLAIN, TEXT_ALONE, CalibrationTest
from e2e import stem_json, stem_run


def without_seconds(result):
    """Of a conversion's JSON what every run gives."""
    calibration = {key: value for key, value in result["calibration"].items()
                   if not key.endswith("seconds") and key != "plan"}
    return {key: value for key, value in result.items()
            if key not in ("out", "seconds", "peak_bytes")} | {
                "calibration": calibration}


class CalibrateRanksTest(CalibrationTest):
    def test_is_what_separate_runs_make(self):
        for name, ranks, options, base in (
                ("rows", [4, 0, 8], ["--layers=auto:2"], PLAIN),
                ("special", [0, 4], ["--layers=1,4"], TEXT_ALONE),
                ("mean", [0, 4], ["--layers=3", "--rows=mean"], PLAIN)):
            with self.subTest(name=name):
                _, result = self.convert(
                    *options, "--mix-rank=" + ",".join(map(str, ranks)),
                    name=name + "-{rank}", base=base)
                self.assertEqual(result["schema"], "stem.convert/1")
                self.assertEqual(result["source"], self.small)
                self.assertEqual(
                    [each["out"] for each in result["conversions"]],
                    [self.path(f"{name}-{rank}") for rank in ranks])
                self.assertGreater(result["seconds"], sum(
                    each["seconds"] for each in result["conversions"]))
                for each, rank in zip(result["conversions"], ranks):
                    alone, single = self.convert(
                        *options, f"--mix-rank={rank}",
                        name=f"{name}-alone-{rank}", base=base)
                    self.assert_same_folder(each["out"], alone)
                    self.assertEqual(without_seconds(each),
                                     without_seconds(single))
                    self.assertEqual(each["calibration"]["mix_rank"], rank)

    def test_text_and_layers_are_common(self):
        out = self.path("stem-{rank}")
        result = stem_run(
            "convert", self.small, out, "--calibrate-tokens=8192",
            "--dialogue-share=0.1", "--layers=auto:1", "--mix-rank=0,8")
        for words in ("has written its own text", "has written answers, ",
                      "tokens to fit", " to " + self.path("stem-0 ("),
                      " to " + self.path("stem-8 ("),
                      "layers with each of 2 ranks, sensitivities included"):
            self.assertEqual(result.stderr.count(words), 1, words)
        for words, count in ("sensitivity (nats", 1), ("shrinkage", 2), (
                "perplexity on ", 2), (self.path("stem-0: "), 1), (
                    self.path("stem-8: "), 1):
            self.assertEqual(result.stdout.count(words), count, words)
        # Up to what the program holds, which is measured.
        plan, alone = (next(line.partition(", files ")[0]
                            for line in text.splitlines()
                            if "tokens to fit" in line) for text in (
            result.stderr, stem_run(
                "convert", self.small, self.path("alone"),
                "--calibrate-tokens=8192", "--dialogue-share=0.1",
                "--layers=auto:1", "--mix-rank=8").stderr))
        self.assertEqual(plan, alone)

    def test_pages(self):
        out, report = self.path("stem-{rank}"), self.path("page-{rank}.html")
        result = stem_run(*self.calibrate(
            out, "--layers=1", "--mix-rank=0,4", f"--report={report}"))
        for rank in 0, 4:
            path = report.replace("{rank}", str(rank))
            self.assertIn(f"report in {path}\n", result.stderr)
            with open(path) as file:
                page = file.read()
            self.assertIn(out.replace("{rank}", str(rank)), page)
            self.assertRegex(
                page, r"rank of the low-rank term \(--mix-rank\)</td>\s*"
                rf"<td[^>]*>{rank}<")

    def test_nothing_can_be_said(self):
        # The folders are made all the same, and the message says so.
        for options, ranks in ([], ["2"]), (["--json"], ["2"]), \
                (["--mix-rank=0,4"], ["0", "4"]), \
                (["--mix-rank=0,4", "--json"], ["0", "4"]):
            with self.subTest(options=options):
                base = self.path("-".join(ranks) + "".join(options))
                out = base + "{rank}" if len(ranks) > 1 else base
                outs = [out.replace("{rank}", rank) for rank in ranks]
                with open("/dev/full", "w") as full:
                    result = subprocess.run(
                        ["stem-run", *self.calibrate(out, "--layers=1",
                                                     *options)],
                        stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(result.returncode, 1)
                for words in ["cannot write to standard output",
                              ", ".join(outs) + (
                                  " are" if len(outs) > 1 else " is") +
                              " complete all the same"]:
                    self.assertIn(words, result.stderr)
                for folder in outs:
                    stem_run("inspect", folder)

    def test_one_rank_has_a_name_too(self):
        out = self.path("a{rank}b{rank}")
        result = stem_json(*self.calibrate(out, "--layers=1", "--mix-rank=4"))
        self.assertEqual(result["out"], self.path("a4b4"))
        self.assertTrue(os.path.isdir(result["out"]))

    def test_interrupted(self):
        out = self.path("stem-{rank}")
        command = self.calibrate(out, "--layers=0,1,2,3,4,5", "--mix-rank=0,4")
        process = subprocess.Popen(["stem-run", *command],
                                   stderr=subprocess.PIPE, text=True)
        is_second = any("writing" in line and "stem-4" in line
                        for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertTrue(is_second)
        self.assertEqual(process.returncode, 130)
        self.assert_nothing_left(self.path("stem-4"))
        alone, _ = self.convert("--layers=0,1,2,3,4,5", name="alone")
        self.assert_same_folder(self.path("stem-0"), alone)

    # ---- Refusals ----

    def test_usage(self):
        out, many = self.path("out"), self.path("out-{rank}")
        page = self.path("page.html")
        for parts, name, options in [
                ([f"{out}: --mix-rank has 2 ranks", "a name with {rank}"],
                 out, ["--mix-rank=0,4"]),
                ([f"--report={page}: --mix-rank has 2 ranks",
                  "a name with {rank}"], many,
                 ["--mix-rank=0,4", f"--report={page}"]),
                ([f"{many}: {{rank}} stands for a rank of --mix-rank",
                  "another name"], many, []),
                (["{rank} stands for a rank of --mix-rank"], many,
                 ["--flops=20%"]),
                ([f"--report={page}{{rank}}: {{rank}} stands for"], out,
                 [f"--report={page}{{rank}}"]),
                (["--mix-rank=4,0,4: 4 is there twice", "give it once"], many,
                 ["--mix-rank=4,0,4"]),
                (["--mix-rank=4,-1: -1 is no rank", "from 0"], many,
                 ["--mix-rank=4,-1"]),
                (['--mix-rank=4,x: "x" is not an integer'], many,
                 ["--mix-rank=4,x"]),
                (['--mix-rank=4,: "" is not an integer'], many,
                 ["--mix-rank=4,"]),
                (["--mix-rank= is empty", "--mix-rank=RANKS"], many,
                 ["--mix-rank="]),
                (["--mix-rank=65: the model's hidden size is 64"], many,
                 ["--mix-rank=4,65"])]:
            with self.subTest(options=options):
                self.assert_fails(parts, *self.calibrate(
                    name, "--layers=1", *options), status=2)
        self.assert_fails(["{rank} stands for a rank of --mix-rank"],
                          "convert", self.small, many, "--layers=1",
                          "--init=row-mean", status=2)
        self.assert_nothing_left(out)

    def test_what_is_there(self):
        out = self.path("out-{rank}")
        options = ["--layers=1", "--mix-rank=0,4"]
        os.mkdir(self.path("out-4"))
        self.write("out-4/mine", "mine")
        self.assert_fails([self.path("out-4"), "exists already"],
                          *self.calibrate(out, *options))
        self.assert_fails(
            ["lies in the folder to make", self.path("stem-0")],
            *self.calibrate(self.path("stem-{rank}"), *options,
                            "--report=" + self.path("stem-0/{rank}.html")))
        self.assertFalse(os.path.exists(self.path("out-0")))

    def test_source_is_not_replaced(self):
        first, _ = self.convert("--layers=1", name="stem-0")
        self.assert_fails(
            [f"{first}: is or holds what is converted",
             "choose another name"],
            *self.calibrate(self.path("stem-{rank}"), "--layers=2",
                            "--mix-rank=0,4", "--force", model=first))
        self.assertEqual(self.section(first)["layers"], [1])

    @unittest.skipIf(os.geteuid() != 0, "only root mounts a small disk")
    def test_room_for_all(self):
        alone, _ = self.convert("--layers=1", name="alone")
        size = sum(os.path.getsize(os.path.join(alone, name))
                   for name in os.listdir(alone))
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size * 3 // 2}",
                 "tmpfs", disk], capture_output=True).returncode:
            self.skipTest("this machine lets nobody mount a tmpfs")
        try:
            self.assert_fails(
                ["are needed", "free"], *self.calibrate(
                    os.path.join(disk, "stem-{rank}"), "--layers=1",
                    "--mix-rank=0,4"))
            self.assertEqual(os.listdir(disk), [])
            stem_run(*self.calibrate(os.path.join(disk, "stem"), "--layers=1"))
        finally:
            subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    unittest.main()
