#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --report: the page, where it may lie, and the figures on it."""

import html.parser
import os
import re
import shutil
import stat
import subprocess
import unittest

from calibration import PLAIN, TEXT_ALONE, CalibrationTest
from e2e import stem_json, stem_run

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(html.parser.HTMLParser):
    """The text of a page; an error where tags do not nest or something from
    elsewhere is wanted."""

    def __init__(self, path):
        super().__init__()
        self.open, self.text, self.tags = [], "", []
        with open(path, encoding="utf-8") as file:
            self.source = file.read()
        self.feed(self.source)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        assert tag not in ("script", "iframe", "link", "img"), tag
        for name, value in attributes:
            assert name not in ("src", "href", "xlink:href"), (name, value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


class CalibrateReportTest(CalibrationTest):
    def command(self, out, *options):
        return ["convert", self.small, out, *PLAIN,
                "--calibrate-tokens=16384",
                *(f"--calibrate={text}" for text in self.texts), *options]

    def read(self, path):
        page = Page(path)
        self.assertNotRegex(page.source, r"https?://(?!www\.w3\.org/)")
        self.assertNotIn("@import", page.source)
        self.assertNotIn("url(", page.source)
        return page

    def test_page_and_figures(self):
        report = self.path("report.html")
        result = stem_json(*self.command(self.path("stem"), "--layers=auto:2",
                                         f"--report={report}"))
        calibration = result["calibration"]
        page = self.read(report)
        for words in ["Conversion of", "What it costs and saves",
                      "Sensitivity of the layers",
                      "Error of the converted layers",
                      "Rows by the frequency of their token",
                      "Perplexity per text", "How it was made",
                      *self.texts, calibration["texts"][0]["sha256"]]:
            self.assertIn(words, page.text)
        self.assertGreaterEqual(page.tags.count("svg"), 5)
        # A window's last token predicts nothing.
        windows = calibration["tokens_check"] // 512
        scored = calibration["tokens_check"] - windows
        by_text = calibration["perplexity_by_text"]
        self.assertEqual([text["file"] for text in by_text], self.texts)
        self.assertEqual(sum(text["tokens"] for text in by_text), scored)
        groups = calibration["coverage_by_count"]
        self.assertEqual(sum(group["check_tokens"] for group in groups),
                         scored)
        self.assertEqual(sum(group["ids"] for group in groups), 259)
        self.assertEqual(groups[0]["from"], 0)
        self.assertIsNone(groups[-1]["to"])
        for low, high in zip(groups, groups[1:]):
            self.assertEqual(low["to"] + 1, high["from"])
        # Perplexities of the shares make that of the whole.
        for entries, count, suffix in ((by_text, "tokens", ""),
                                       (groups, "check_tokens",
                                        "perplexity_")):
            for kind in "dense", "converted":
                product = 1.0
                for entry in entries:
                    if entry[count] == 0:
                        self.assertIsNone(entry[suffix + kind])
                        continue
                    product *= entry[suffix + kind] ** (entry[count] / scored)
                self.assertAlmostEqual(
                    product / calibration["perplexity_" + kind], 1,
                    delta=1e-6)

    def test_ids_that_keep_the_matrix(self):
        report = self.path("report.html")
        texts = []
        for base in PLAIN, TEXT_ALONE:
            stem_run(*self.calibrate(
                self.path("stem"), "--layers=1", f"--report={report}",
                "--force", base=base))
            texts.append(self.read(report).text.replace("\n", ""))
        self.assertNotIn("keep the up-projection", texts[0])
        for words in ["ids that keep the up-projection3",
                      "special tokens among them3",
                      "tokens held back that take it0.0 %",
                      "all ids below this count keep it (--dense-below)0",
                      "special ones below this count keep it "
                      "(--dense-special-below)4"]:
            self.assertIn(words, texts[1])

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_its_folder_is_read_only(self):
        folder = self.path("closed")
        os.mkdir(folder, 0o500)
        self.assert_fails(["its folder cannot be written to"],
                          "convert", self.small, self.path("out"),
                          "--init=row-mean", "--layers=1",
                          f"--report={folder}/report.html")

    def test_where_it_may_lie(self):
        out = self.path("out")
        there = self.write("there.html", "mine")
        for report, words in [
                (os.path.join(out, "report.html"), ["lies in the folder to "
                                                    "make", out]),
                (self.path("no/report.html"), ["its folder does not exist",
                                               "make it first"]),
                (self.folder, ["is a folder", "the name of a file"]),
                (there, ["exists already", "--force"])]:
            for kind in [], ["--init=row-mean"]:
                command = (self.command(out) if not kind else
                           ["convert", self.small, out, *kind])
                self.assert_fails([f"--report={report}: ", *words], *command,
                                  "--layers=1", f"--report={report}")
        self.assertFalse(os.path.exists(out))
        with open(there) as file:
            self.assertEqual(file.read(), "mine")

    def test_what_it_may_not_replace(self):
        model, out = self.copy_model(), self.path("out")
        weights = os.path.join(model, "model.safetensors")
        hard, soft = self.path("hard"), self.path("soft")
        os.link(weights, hard)
        os.symlink(weights, soft)
        text = shutil.copy(self.text, self.path("text"))
        before = {}
        for path in weights, text:
            with open(path, "rb") as file:
                before[path] = file.read()
        for report, words in [
                (weights, ["is or lies in the model " + model]),
                (os.path.join(model, "new.html"),
                 ["is or lies in the model " + model]),
                (hard, ["is the model's file " + weights]),
                (soft, ["is or lies in the model " + model]),
                (text, ["is the text of --calibrate=" + text])]:
            for kind in [f"--calibrate={text}"], ["--init=row-mean"]:
                if report == text and kind != [f"--calibrate={text}"]:
                    continue
                with self.subTest(report=report, kind=kind):
                    self.assert_fails(
                        [f"--report={report}: ", *words], "convert", model,
                        out, "--layers=1", *kind, f"--report={report}",
                        "--force")
        for path, content in before.items():
            with open(path, "rb") as file:
                self.assertEqual(file.read(), content)
        self.assertFalse(os.path.exists(out))

    def test_special_files(self):
        pipe, link = self.path("pipe"), self.path("link")
        os.mkfifo(pipe)
        os.symlink(self.write("page.html", "mine"), link)
        for report in pipe, link, "/dev/null":
            with self.subTest(report=report):
                self.assert_fails(
                    [f"--report={report}: exists already and is not a regular "
                     "file; choose another name"], "convert", self.small,
                    self.path("out"), "--layers=1", "--init=row-mean",
                    f"--report={report}", "--force")
        self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))
        self.assertTrue(os.path.islink(link))

    def test_folders_of_other_ranks(self):
        out = self.path("x")
        self.assert_fails(
            [f"--report={out}11: is or lies in the folder to make, {out}11"],
            *self.command(out + "{rank}"), "--layers=1", "--mix-rank=1,11",
            f"--report={out}1{{rank}}")
        for rank in 1, 11:
            self.assertFalse(os.path.exists(f"{out}{rank}"))

    @unittest.skipIf(os.geteuid() != 0, "only root mounts a small disk")
    def test_full_disk(self):
        disk, out = self.path("disk"), self.path("out")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs",
                           disk], capture_output=True).returncode:
            self.skipTest("this machine lets nobody mount a tmpfs")
        try:
            result = stem_run("convert", self.small, out, "--layers=1",
                              "--init=row-mean", f"--report={disk}/page.html",
                              check=False)
            self.assertEqual(result.returncode, 1)
            for words in ["page.html", "No space left",
                          f"{out} is complete all the same"]:
                self.assertIn(words, result.stderr)
            # What is printed is there too.
            self.assertIn("layers are STEM", result.stdout)
            self.assertEqual(os.listdir(disk), [])
            stem_run("inspect", out)
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_other_inits(self):
        report = self.write("report.html", "old")
        for kind in "row-mean", "xavier", "embedding":
            result = stem_run("convert", self.small, self.path(kind),
                              "--layers=1,4", f"--init={kind}", "--force",
                              f"--report={report}")
            self.assertIn(f"report in {report}", result.stderr)
            page = self.read(report)
            self.assertIn(f"The rows start from {kind}. Nothing was measured",
                          page.text)
            self.assertNotIn("Sensitivity", page.text)
            self.assertTrue(re.search(r"in\s+2 layers: 1, 4", page.text))


if __name__ == "__main__":
    unittest.main()
