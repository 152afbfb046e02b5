#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --init=calibrated: ids that keep the up-projection."""

import json
import math
import os
import struct
import unittest

from calibration import DOWN, IDS, PLAIN, TABLE, TEXT_ALONE, UP, VOCABULARY, \
    CalibrationTest, change_json
from e2e import Tensor, read_tensors, stem_json, stem_run, write_tensors


def bf16_values(tensor):
    words = struct.pack(f"<{2 * len(tensor.values)}H",
                        *(half for value in tensor.values
                          for half in (0, value)))
    return struct.unpack(f"<{len(tensor.values)}f", words)


class CalibrateIdsTest(CalibrationTest):
    def counts(self):
        """How often the text to fit holds each id: 14 of 16 windows, of which
        the first position does not count. One in four is cut into windows of
        64."""
        with open(self.text, "rb") as file:
            content = file.read()
        with open(os.path.join(self.small, "tokenizer.json")) as file:
            ids = json.load(file)["model"]["vocab"]
        windows = len(content) // 512
        # Evenly from the whole file.
        taken, passed, chosen = 0, 0, []
        for window in range(windows):
            passed += 512
            if taken * windows * 512 >= 8192 * passed:
                continue
            chosen.append(window)
            taken += 512
        self.assertEqual(len(chosen), 16)
        result = [0] * VOCABULARY
        del chosen[15], chosen[8]  # to check and to choose
        for place, window in enumerate(chosen):
            length = 512 if place % 4 else 64
            for i, byte in enumerate(content[window * 512:(window + 1) * 512]):
                if i % length:
                    result[ids["\u0120" if byte == 32 else chr(byte)]] += 1
        self.assertEqual(sum(result), 14 * 512 - 4 * 8 - 10)
        return result

    def test_dense_below(self):
        before, counts = self.tensors(self.small), self.counts()
        for least in 1, 4:
            out = self.path(f"below-{least}")
            result = stem_json(*self.calibrate(out, "--layers=1,4",
                                               f"--dense-below={least}"))
            ids = [id for id, count in enumerate(counts) if count < least]
            calibration = result["calibration"]
            self.assertEqual(calibration["dense_below"], least)
            self.assertEqual(calibration["selected_ids"], len(ids))
            self.assertTrue(0 <= calibration["selected_share"] < 0.1)
            self.assertEqual(result["replaced"], [])
            self.assertIs(self.section(out)["select"], True)
            index, after = self.index(out), self.tensors(out)
            for layer in 1, 4:
                self.assertEqual(list(after[IDS.format(layer)].values), ids)
                self.assertEqual(after[IDS.format(layer)].dtype, "I32")
                self.assertIn(UP.format(layer), index)
                self.assertIn(TABLE.format(layer), index)
            for name, tensor in before.items():
                if name not in (DOWN.format(1), DOWN.format(4)):
                    self.assertEqual(after[name].values, tensor.values, name)
            evaluated = stem_json("eval", out, f"--text={self.text}")
            self.assertTrue(1 < evaluated["files"][0]["perplexity"] < math.inf)
        self.assertIn("ids that keep the up-projection",
                      stem_run("inspect", out).stdout)

    def test_positions_that_are_left_out_of_their_rows(self):
        # As often as the most frequent id is there: without one of its
        # positions it would keep the matrix too. Only places that no sum
        # counts, the first of a window, take its row.
        most, name = max(self.counts()), DOWN.format(1)
        dense = bf16_values(self.tensors(self.small)[name])
        moved = []
        for below in 0, most:
            out = self.path(f"below-{below}")
            result = stem_json(*self.calibrate(out, "--layers=1",
                                               f"--dense-below={below}"))
            down = bf16_values(self.tensors(out)[name])
            moved.append(sum((a - b) ** 2 for a, b in zip(down, dense)))
        self.assertEqual(result["calibration"]["selected_ids"],
                         VOCABULARY - 1)
        self.assertLess(0, moved[1])
        self.assertLess(moved[1], moved[0] / 50)

    def test_dense_below_with_a_low_rank_term(self):
        # More often than any id is there: the dense model, table and all.
        out = self.path("stem")
        result = stem_json(*self.calibrate(
            out, "--layers=1,4", "--dense-below=100000", "--mix-rank=8"))
        calibration = result["calibration"]
        self.assertEqual(calibration["selected_ids"], VOCABULARY)
        self.assertEqual(calibration["selected_share"], 1)
        self.assertAlmostEqual(calibration["perplexity_converted"] /
                               calibration["perplexity_dense"], 1, delta=1e-3)
        dense, stem = (stem_json("eval", model, f"--text={self.text}")
                       ["files"][0]["perplexity"]
                       for model in (self.small, out))
        self.assertAlmostEqual(stem / dense, 1, delta=1e-3)
        self.assertEqual(stem_json("inspect", out)["model"]["stem"]["rank"], 8)

    # ---- Special tokens ----

    def selected(self, folder, *layers):
        tensors = self.tensors(folder)
        first, *others = (list(tensors[IDS.format(layer)].values)
                          for layer in layers)
        for ids in others:
            self.assertEqual(ids, first)
        return first

    def logits(self, model, ids):
        path, out = self.path("ids"), self.path("logits")
        write_tensors(path, {"input_ids": Tensor("I32", [1, len(ids)], ids)})
        stem_run("eval", model, f"--input-ids={path}", f"--logits-out={out}",
                 "--force")
        tensor = read_tensors(out)["logits"]
        return [list(tensor.row(i)) for i in range(len(ids))]

    def test_rare_special_tokens_by_default(self):
        plain, without = self.convert("--layers=1,4", name="plain")
        out, result = self.convert("--layers=1,4", base=TEXT_ALONE)
        self.assertEqual(self.selected(out, 1, 4), [0, 1, 2])
        self.assertEqual(without["replaced"], [UP.format(1), UP.format(4)])
        self.assertEqual(result["replaced"], [])
        for key, value in (("dense_below", 0), ("dense_special_below", 4),
                           ("selected_ids", 3), ("selected_special_ids", 3),
                           ("selected_share", 0)):
            self.assertNotIn(key, without["calibration"])
            self.assertEqual(result["calibration"][key], value)
            self.assertEqual(self.provenance(out)["calibration"][key], value)
        # The text holds none of them: all else is the same.
        before, after = self.tensors(plain), self.tensors(out)
        for name in before:
            self.assertEqual(before[name].values, after[name].values, name)
        ids = list(range(3, 60))
        self.assertEqual(self.logits(out, ids), self.logits(plain, ids))
        special = self.logits(out, [1, 5])
        self.assertNotEqual(special[0], self.logits(plain, [1, 5])[0])
        self.assertEqual(self.section(plain)["select"], False)

    def test_such_a_model_runs(self):
        out = self.path("stem")
        shown = stem_run(*self.calibrate(out, "--layers=1,4", base=TEXT_ALONE))
        self.assertIn("3 ids keep the matrix, of which 3 are special tokens: "
                      "0.0 % of the tokens held back\n", shown.stdout)
        self.assertIn("ids that keep the up-projection: 3",
                      stem_run("inspect", out).stdout)
        self.assertTrue(stem_json("eval", out, f"--text={self.text}"))
        chat = ["--chat", "--prompt=abc", "-n", 8, "--ignore-end"]
        ids = stem_json("generate", out, *chat)["ids"]
        self.assertEqual(len(ids), 8)
        self.assertEqual(ids, stem_json("generate", out, *chat,
                                        "--no-cache")["ids"])
        bench = stem_json("bench", self.small, out, "--prompt-tokens=64",
                          "--decode-tokens=4", "--repeat=1")
        self.assertEqual(len(bench["models"]), 2)

    def test_special_tokens_of_the_dialogue_have_rows(self):
        out, result = self.convert("--layers=1", base=["--dialogue-share=0.2"])
        self.assertEqual(self.selected(out, 1), [0])
        self.assertEqual(result["calibration"]["selected_special_ids"], 1)
        # Both options together, and special tokens of any count.
        out, result = self.convert(
            "--layers=1", "--dense-below=1", "--dense-special-below=100000",
            base=["--dialogue-share=0.2"], name="both")
        ids = self.selected(out, 1)
        self.assertEqual(ids[:3], [0, 1, 2])
        self.assertGreater(len(ids), 3)
        counts = self.counts()
        self.assertNotIn(counts.index(max(counts)), ids)
        calibration = result["calibration"]
        self.assertEqual(calibration["selected_special_ids"], 3)
        self.assertEqual(calibration["selected_ids"], len(ids))
        self.assertGreater(calibration["selected_share"], 0)

    def test_penalty_of_a_chat_model(self):
        def generation(folder):
            with open(os.path.join(folder, "generation_config.json")) as file:
                return json.load(file)
        out, _ = self.convert("--layers=1")
        self.assertEqual(generation(out), {**generation(self.small),
                                           "repetition_penalty": 1.1})
        generate = ["generate", out, "--prompt-ids=5,6", "-n", 4]
        self.assertEqual(stem_json(*generate)["repetition_penalty"], 1.1)
        self.assertIn("note: the repetition penalty 1.1 is that of "
                      "generation_config.json; --repetition-penalty=1 turns "
                      "it off", stem_run(*generate).stderr)
        plain = [*generate, "--repetition-penalty=1"]
        self.assertEqual(stem_json(*plain)["repetition_penalty"], 1)
        self.assertNotIn("penalty", stem_run(*plain).stderr)
        # A source's own penalty stays.
        model = self.copy_model()
        change_json(os.path.join(model, "generation_config.json"),
                    repetition_penalty=1.3)
        out, _ = self.convert("--layers=1", model=model, name="own")
        self.assertEqual(generation(out), generation(model))

    def test_no_rare_special_token(self):
        model = self.copy_model()
        path = os.path.join(model, "tokenizer.json")
        with open(path) as file:
            tokens = json.load(file)["added_tokens"]
        tokens[0]["special"] = False
        change_json(path, added_tokens=tokens)
        for file in "config.json", "generation_config.json":
            change_json(os.path.join(model, file), bos_token_id=2,
                        eos_token_id=2)
        change_json(os.path.join(model, "tokenizer_config.json"),
                    bos_token="<|im_end|>")
        folders = [self.convert("--layers=1", *options, model=model,
                                base=["--dialogue-share=0.2"],
                                name=f"stem-{len(options)}")[0]
                   for options in ([], ["--dense-special-below=0"])]
        self.assert_same_folder(*folders)
        self.assertEqual(self.section(folders[0])["select"], False)

    def test_begin_end_and_padding(self):
        model = self.copy_model()
        unseen = [id for id, count in enumerate(self.counts()) if not count]
        begin, end, padding = rare = unseen[10:13]
        change_json(os.path.join(model, "config.json"), bos_token_id=begin,
                    eos_token_id=[2, end, 4096], pad_token_id=padding)
        os.remove(os.path.join(model, "generation_config.json"))
        out, result = self.convert("--layers=1", model=model, base=TEXT_ALONE)
        self.assertEqual(self.selected(out, 1), [0, 1, 2, *rare])
        self.assertEqual(result["calibration"]["selected_special_ids"], 6)

    def test_without_a_chat_template(self):
        model = self.copy_model()
        change_json(os.path.join(model, "tokenizer_config.json"),
                    chat_template=None)
        out, _ = self.convert("--layers=1", model=model, base=TEXT_ALONE)
        self.assertEqual(self.section(out)["select"], False)
        self.assertEqual(stem_json("generate", out, "--prompt-ids=5",
                                   "-n", 1)["repetition_penalty"], 1)
        out, result = self.convert("--layers=1", "--dense-special-below=1",
                                   model=model, base=TEXT_ALONE, name="asked")
        self.assertEqual(self.selected(out, 1), [0, 1, 2])
        self.assertEqual(result["calibration"]["dense_special_below"], 1)

    def test_with_one_row(self):
        out, _ = self.convert("--layers=1", "--rows=mean", base=TEXT_ALONE)
        self.assertEqual(self.selected(out, 1), [0, 1, 2])
        table = self.tensors(out)[TABLE.format(1)]
        self.assertTrue(all(table.row(row) == table.row(3)
                            for row in range(VOCABULARY)))

    # ---- Sources with STEM layers ----

    def test_source_of_tables_alone(self):
        first, _ = self.convert("--layers=1", name="first")
        note = "special tokens are rare in the text to fit and would keep"
        out = self.path("stem")
        result = stem_run(*self.calibrate(out, "--layers=2", model=first,
                                          base=TEXT_ALONE))
        self.assertIn("note: 3 " + note, result.stderr)
        self.assertIn("they get rows", result.stderr)
        self.assertEqual(self.section(out)["select"], False)
        plain = self.path("plain")
        result = stem_run(*self.calibrate(plain, "--layers=2", model=first))
        self.assertNotIn(note, result.stderr)
        self.assert_same_folder(plain, out)
        for option in "--dense-below", "--dense-special-below":
            self.assert_fails(
                [f"{option}: the STEM layers that the model has keep the "
                 "up-projection for no id", "convert the dense model"],
                *self.calibrate(self.path("no"), "--layers=2", f"{option}=1",
                                model=first, base=TEXT_ALONE), status=2)

    def test_source_with_such_ids(self):
        first, _ = self.convert("--layers=1", name="first", base=TEXT_ALONE)
        for name, options, base, ids in (
                ("default", [], TEXT_ALONE, [0, 1, 2]),
                ("none", [], PLAIN, []),
                ("mixed", ["--mix-rank=4"], ["--dialogue-share=0.2"], [0])):
            with self.subTest(name=name):
                out, result = self.convert("--layers=2", *options, model=first,
                                           base=base, name=name)
                self.assertEqual(self.selected(out, 1), [0, 1, 2])
                self.assertEqual(self.selected(out, 2), ids)
                self.assert_runs(out, [1, 2])
                self.assertEqual(result["replaced"], [])
        for init in "row-mean", "xavier", "embedding":
            with self.subTest(init=init):
                out = self.path(init)
                stem_run("convert", first, out, "--layers=3",
                         f"--init={init}")
                self.assertEqual(self.selected(out, 1), [0, 1, 2])
                self.assertEqual(self.selected(out, 3), [])
                self.assert_runs(out, [1, 3])

    def assert_runs(self, folder, layers):
        model = stem_json("inspect", folder)
        self.assertEqual(model["unsupported"], [])
        self.assertEqual(model["model"]["stem"]["layers"], layers)
        for layer in layers:
            self.assertIn(UP.format(layer), self.index(folder))
        logits = self.logits(folder, [1, 5, 2, 77])
        self.assertTrue(all(map(math.isfinite, sum(logits, []))))


if __name__ == "__main__":
    unittest.main()
