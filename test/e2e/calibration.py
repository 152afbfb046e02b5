# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the end-to-end tests of convert --init=calibrated share."""

import json
import os
import random
import struct

from e2e import ModelTest, read_tensors, stem_json

DOWN = "model.layers.{}.mlp.down_proj.weight"
UP = "model.layers.{}.mlp.up_proj.weight"
TABLE = "model.layers.{}.mlp.up_table.weight"
IDS = "model.layers.{}.mlp.up_select.ids"
VOCABULARY = 259  # of the small model, whose tokens are bytes
TEXT_ALONE = ["--dialogue-share=0"]
# And rows for all ids, though it holds no special token.
PLAIN = [*TEXT_ALONE, "--dense-special-below=0"]


def some_text(words, seed):
    """Words out of a list, with some order: enough for a text of any length."""
    numbers = random.Random(seed)
    known = ["".join(numbers.choice("abcdefghiklmnoprstuvwy")
                     for _ in range(numbers.randint(2, 9)))
             for _ in range(300)]
    result, at = [], 0
    for _ in range(words):
        at = (at * 7 + numbers.choice([1, 2, 5])) % len(known)
        result.append(known[at] + ("." if at % 9 == 0 else ""))
    return " ".join(result)


def change_json(path, **values):
    with open(path) as file:
        content = json.load(file)
    content.update(values)
    with open(path, "w") as file:
        json.dump(content, file)


def widen(folder, width):
    """Makes a model's FFN that wide, with zeros that take no disk."""
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        before = json.load(file)["intermediate_size"]
    change_json(path, intermediate_size=width)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    end = 0
    for name, entry in header.items():
        begin, end_before = entry["data_offsets"]
        size = end_before - begin
        if ".mlp." in name:
            entry["shape"] = [width if side == before else side
                              for side in entry["shape"]]
            size = size // before * width
        entry["data_offsets"] = [end, end + size]
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


class CalibrationTest(ModelTest):
    """A test with two texts that the small model may be calibrated on."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.texts = []
        for name, seed in ("one", 1), ("two", 2):
            path = os.path.join(cls.folder, name + ".txt")
            with open(path, "w") as file:
                file.write(some_text(3000, seed))
            cls.texts.append(path)
        cls.text = cls.texts[0]

    def calibrate(self, out, *options, text=None, model=None, base=PLAIN):
        return ["convert", model or self.small, out,
                f"--calibrate={text or self.text}", "--calibrate-tokens=8192",
                *base, *options]

    def convert(self, *options, name="stem", **arguments):
        out = self.path(name)
        return out, stem_json(*self.calibrate(out, *options, **arguments))

    def tensors(self, folder):
        """All tensors of a folder; none may lie in two files."""
        result = {}
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".safetensors"):
                continue
            for key, tensor in read_tensors(os.path.join(folder,
                                                         name)).items():
                self.assertNotIn(key, result)
                result[key] = tensor
        return result

    def index(self, folder):
        with open(os.path.join(folder, "model.safetensors.index.json")) as file:
            return json.load(file)["weight_map"]

    def section(self, folder):
        with open(os.path.join(folder, "config.json")) as file:
            return json.load(file)["stem"]

    def provenance(self, folder):
        with open(os.path.join(folder, "stem_provenance.json")) as file:
            return json.load(file)

    def assert_same_folder(self, a, b):
        self.assertEqual(sorted(os.listdir(a)), sorted(os.listdir(b)))
        for name in os.listdir(a):
            with open(os.path.join(a, name), "rb") as one, \
                    open(os.path.join(b, name), "rb") as other:
                self.assertEqual(one.read(), other.read(), name)

    def assert_nothing_left(self, out):
        name = os.path.basename(out)
        self.assertEqual([entry for entry in os.listdir(self.folder)
                          if name in entry], [])
