#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --init=calibrated: the text that it reads and writes."""

import json
import os
import re
import unittest

from calibration import change_json, some_text, widen
from e2e import ModelTest, stem_json, stem_run


class CalibrateTextTest(ModelTest):
    def convert(self, *options, name="stem", model=None):
        out = self.path(name)
        return out, stem_json("convert", model or self.small, out, "--layers=1",
                              "--calibrate-tokens=8192",
                              *options)["calibration"]

    def text(self, words=3000, seed=1):
        return "--calibrate=" + self.write(f"text-{seed}",
                                           some_text(words, seed))

    # ---- What the model writes ----

    def test_self_is_the_default(self):
        out, default = self.convert(name="default")
        _, named = self.convert("--calibrate=self", "--threads=1", name="named")
        for key in "convert_seconds", "plan":
            del default[key], named[key]
        # With another number of threads too.
        self.assertEqual(default, named)
        own, dialogue = default["texts"]
        self.assertAlmostEqual(
            default["self_share"] + default["dialogue_share"], 1)
        self.assertEqual((own["file"], dialogue["file"]), ("self", "dialogue"))
        for text in own, dialogue:
            self.assertRegex(text["sha256"], "^[0-9a-f]{64}$")
        # A tenth of 8192 tokens; the last conversation is whole.
        self.assertTrue(819 <= dialogue["tokens"] < 819 + 1024)
        self.assertEqual(dialogue["split"], "documents")
        self.assertTrue(0.05 < default["dialogue_share"] < 0.2)
        self.assertTrue(14 * 512 <= own["tokens"] < 15 * 512)
        with open(os.path.join(out, "stem_provenance.json")) as file:
            self.assertEqual(json.load(file)["calibration"], default)

    def test_seed(self):
        _, first = self.convert("--calibrate=self", name="first")
        _, second = self.convert("--calibrate=self", "--calibrate-seed=7",
                                 name="second")
        self.assertEqual(second["seed"], 7)
        for a, b in zip(first["texts"], second["texts"]):
            self.assertNotEqual(a["sha256"], b["sha256"])

    def test_self_beside_a_file(self):
        _, calibration = self.convert("--calibrate=self", self.text(),
                                      "--dialogue-share=0.2")
        files = [os.path.basename(text["file"])
                 for text in calibration["texts"]]
        self.assertEqual(files[1:], ["self", "dialogue"])
        self.assertTrue(0.15 < calibration["dialogue_share"] < 0.3)
        self.assertEqual(calibration["texts"][0]["split"], "windows")
        self.assertEqual(calibration["texts"][2]["split"], "documents")

    def test_self_share(self):
        result = stem_json("convert", self.small, self.path("stem"),
                           "--layers=1", "--calibrate-tokens=40960",
                           self.text(words=6000), "--self-share=0.25",
                           "--dialogue-share=0")
        texts = result["calibration"]["texts"]
        for text, tokens in zip(texts, (30720, 10240)):
            self.assertTrue(0.9 * tokens < text["tokens_taken"] <= tokens, text)
        taken = [text["tokens_taken"] for text in texts]
        self.assertAlmostEqual(result["calibration"]["self_share"],
                               taken[1] / sum(taken))
        self.assertEqual(texts[1]["file"], "self")
        command = ["convert", self.small, self.path("out"), "--layers=1"]
        for flags in [], ["--calibrate=self"]:
            self.assert_fails(["--self-share is the share beside files",
                               "--calibrate=FILE"], *command,
                              "--self-share=0.5", *flags, status=2)
        for share in ("0", "0.95", "nan"):
            self.assert_fails(["--self-share"], *command, self.text(),
                              f"--self-share={share}", status=2)
        self.assert_fails(["--self-share is for --init=calibrated"], *command,
                          "--init=xavier", "--self-share=0.5", status=2)

    def test_shares_beside_a_short_file(self):
        # Of 50,000 tokens the file has about 9,000.
        path = self.write("short", some_text(1600, 3))
        for shares, dialogue, own in [
                ([], 0.1, 0), (["--self-share=0.25"], 0.1, 0.25),
                (["--dialogue-share=0.3", "--calibrate-tokens=10000000"], 0.3,
                 0), (["--calibrate=self"], 0.1, 0.45)]:
            with self.subTest(shares=shares):
                result = stem_json("convert", self.small, self.path("out"),
                                   "--layers=1", f"--calibrate={path}",
                                   "--force", *shares)["calibration"]
                # The last conversation is whole, and windows are.
                self.assertAlmostEqual(result["dialogue_share"], dialogue,
                                       delta=0.07)
                self.assertAlmostEqual(result["self_share"], own, delta=0.07)

    def test_own_text_is_not_what_is_checked_on(self):
        _, calibration = self.convert(self.text(), "--self-share=0.01",
                                      "--dialogue-share=0")
        file, own = calibration["perplexity_by_text"]
        self.assertGreater(file["tokens"], 0)
        self.assertEqual(own["tokens"], 0)

    def test_what_is_printed(self):
        result = stem_run("convert", self.small, self.path("out"),
                          "--layers=1", "--calibrate-tokens=8192")
        for pattern in [
                r"memory: weights .*key-value cache up to",
                r"the model writes its own text, \d+ tokens, which takes "
                r"about ",
                r"the model has written its own text, \d+ tokens in .* "
                r"tokens/s\)",
                r"the model has written answers, \d+ tokens"]:
            self.assertRegex(result.stderr, pattern)

    def test_no_more_is_written_than_is_needed(self):
        result = stem_run("convert", self.small, self.path("out"),
                          "--layers=1", "--calibrate-tokens=8192",
                          self.text(), "--self-share=0.12",
                          "--dialogue-share=0")
        written, = re.findall(r"has written its own text, (\d+) tokens",
                              result.stderr)
        self.assertLess(int(written), 3 * 1024)

    def test_no_template(self):
        model = self.copy_model()
        os.remove(os.path.join(model, "tokenizer_config.json"))
        _, calibration = self.convert(self.text(), model=model)
        self.assertEqual(calibration["dialogue_share"], 0)
        self.assertEqual(len(calibration["texts"]), 1)
        self.assert_fails(["--dialogue-share=0.1", "has no chat template"],
                          "convert", model, self.path("out"), self.text(),
                          "--dialogue-share=0.1")

    def test_characters_without_a_token(self):
        model = self.copy_model()
        path = os.path.join(model, "tokenizer.json")
        with open(path) as file:
            tokenizer = json.load(file)
        del tokenizer["model"]["vocab"]["e"]
        with open(path, "w") as file:
            json.dump(tokenizer, file)
        result = stem_run("convert", model, self.path("out"), "--layers=1",
                          "--calibrate-tokens=8192", self.text())
        warnings = [line for line in result.stderr.splitlines()
                    if "have no token and were left out" in line]
        self.assertEqual(len(warnings), 2, warnings)
        self.assertIn(f"{model}: dialogue to calibrate on: ", warnings[1])

    def test_wrong_template(self):
        model, out = self.copy_model(), self.path("out")
        second = "{% if messages|length > 1 %}"
        command = ["convert", model, out, "--layers=1", self.text(),
                   "--calibrate-tokens=8192"]
        for template, parts in [
                ("{% if %}", []),
                ("{% for message in messages %}{{ message.content ", []),
                ("{{ raise_exception('not me') }}", ["not me"]),
                (second + "{{ raise_exception('one turn') }}{% endif %}a",
                 ["one turn"]),
                ("", ["no token for a conversation of 1 message,"]),
                ("{% if false %}x{% endif %}",
                 ["no token for a conversation of 1 message,"]),
                (second + "{% else %}a{% endif %}",
                 ["no token for a conversation of 3 messages,"])]:
            change_json(os.path.join(model, "tokenizer_config.json"),
                        chat_template=template)
            with self.subTest(template=template):
                self.assert_fails([model, "chat template",
                                   "--dialogue-share=0 goes without", *parts],
                                  *command)
                # Before anything is written.
                self.assertNotIn("the model has written", stem_run(
                    *command, check=False).stderr)
        self.assertFalse(os.path.exists(out))
        stem_run(*command, "--dialogue-share=0")

    def test_no_room_for_dialogue(self):
        model = self.copy_model()
        change_json(os.path.join(model, "config.json"),
                    max_position_embeddings=100)
        result = stem_run("convert", model, self.path("out"), "--layers=1",
                          "--calibrate-tokens=8192", self.text())
        self.assertIn("no dialogue to calibrate on: the model's context of 100 "
                      "positions is too short", result.stderr)

    def test_more_memory_than_there_is(self):
        model = self.copy_model()
        widen(model, 1 << 24)
        self.assert_fails(["memory: weights ", "are available", "the model "
                           "writes text to calibrate on", "--calibrate=FILE "
                           "and --dialogue-share=0"], "convert", model,
                          self.path("out"), "--layers=1")

    def test_dump(self):
        dump = self.path("dump")
        stem_run("convert", self.small, self.path("out"), "--layers=1",
                 f"--dump-ir={dump}", "--calibrate-tokens=8192", self.text())
        self.assertTrue(os.listdir(os.path.join(dump, "writing")))

    # ---- Files ----

    def test_documents(self):
        lines = [{"text": some_text(100, seed)} for seed in range(40)]
        path = self.write("documents.jsonl",
                          "\n".join(map(json.dumps, lines)))
        upper = self.write("documents.JSONL", "\n\n".join(
            map(json.dumps, lines)) + "\n \n")
        plain = self.write("documents.txt", "\f".join(
            line["text"] for line in lines))
        results = []
        for text in path, upper, plain:
            _, calibration = self.convert(
                f"--calibrate={text}", "--dialogue-share=0",
                name=os.path.basename(text))
            source, = calibration["texts"]
            self.assertEqual((source["documents"], source["split"]),
                             (40, "documents"))
            results.append((source["tokens"], source["tokens_taken"],
                            calibration["perplexity_converted"]))
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])
        path = self.write("wrong.jsonl", '{"text": "a"}\n{"text": 3}\n')
        self.assert_fails([path + ":2:", "text"], "convert", self.small,
                          self.path("out"), f"--calibrate={path}")

    def test_byte_that_is_not_utf8(self):
        command = ["convert", self.small, self.path("out"), "--layers=1"]
        line = b'{"text": "' + b"word " * 40 + b'"}\n'
        passage = b"The same words again. " * 10 + b"\n\n"
        for name, content, place in [
                ("plain", passage * 3 + b"a\fcaf\xe9 noir", ""),
                ("lines.jsonl", line * 2 + b"\n" + line[:50] + b"\xe9" + line,
                 ":4")]:
            path = self.write(name, content)
            message = (f"{path}{place}: the text is not valid UTF-8: byte "
                       f"{content.index(0xe9)} (0xE9) does not belong")
            self.assert_fails([message], *command, f"--calibrate={path}")
            self.assert_fails([message], "eval", self.small, f"--text={path}")

    def test_too_few_tokens_beside_dialogue(self):
        command = ["convert", self.small, self.path("out"), "--layers=1",
                   "--calibrate=self", self.text(), "--dialogue-share=0.9"]
        self.assert_fails(
            ["--calibrate-tokens=8192: 2 texts need 1024 at least, a window "
             "of 512 tokens each, and dialogue takes 7372 "
             "(--dialogue-share=0.9), which leaves 820; give 10231"],
            *command, "--calibrate-tokens=8192")
        stem_run(*command, "--calibrate-tokens=10231")

    def test_repeated_passages(self):
        text = some_text(3000, 1)
        path = self.write("text", text + "\n\n" + text)
        out = self.path("stem")
        result = stem_run("convert", self.small, out, "--layers=1",
                          f"--calibrate={path}", "--calibrate-tokens=8192",
                          "--dialogue-share=0")
        self.assertIn("1 passages that occur before are left out, 50.0 % of "
                      "the text", result.stderr)
        with open(os.path.join(out, "stem_provenance.json")) as file:
            dropped = json.load(file)["calibration"]["dropped_passages"]
        self.assertEqual(dropped["count"], 1)
        path = self.write("same", "\n\n".join([some_text(60, 2)] * 100))
        self.assert_fails(
            [f"--calibrate={path}: has ", " tokens without 99 passages that "
             "occur before, ", " KB, which is too little", "8192 are the least for a text"],
            "convert", self.small, self.path("short"), "--layers=1",
            f"--calibrate={path}", "--dialogue-share=0")
        self.assertAlmostEqual(dropped["share"], 0.5, delta=1e-3)

    def test_coverage(self):
        # What is checked on, the last of 16 windows, has ids of its own.
        path = self.write("text", "a" * (15 * 512) + "b" * 512)
        command = ["convert", self.small, self.path("out"), "--layers=1",
                   f"--calibrate={path}", "--calibrate-tokens=8192",
                   "--dialogue-share=0"]
        self.assert_fails(["only 0.0 % have an id that the text to fit holds",
                           "60 % are the least", "--force-calibration"],
                          *command)
        self.assertFalse(os.path.exists(self.path("out")))
        stem_run(*command, "--force-calibration")


if __name__ == "__main__":
    unittest.main()
