#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --init=calibrated: one row for all ids, ids that keep the matrix,
rows in f16, a GGUF source, a conversion that is killed."""

import array
import json
import math
import os
import random
import signal
import struct
import subprocess
import unittest

from calibration import TABLE, TEXT_ALONE, UP, VOCABULARY, \
    CalibrationTest
from e2e import stem_json, stem_run


def write_gguf(path, model):
    """The small model's tokenizer and shapes in a GGUF file, with weights in
    f32 and in f16."""
    with open(os.path.join(model, "tokenizer.json")) as file:
        tokenizer = json.load(file)
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    vocabulary = sorted(tokenizer["model"]["vocab"].items(),
                        key=lambda item: item[1])
    special = {token["id"] for token in tokenizer["added_tokens"]}

    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def strings(values):
        return struct.pack("<IQ", 8, len(values)) + b"".join(map(text, values))

    heads = config["num_attention_heads"]
    entries = [
        ("general.architecture", 8, text("llama")),
        ("llama.rope.freq_base", 6, struct.pack("<f", config["rope_theta"])),
        ("llama.attention.layer_norm_rms_epsilon", 6,
         struct.pack("<f", config["rms_norm_eps"])),
        ("tokenizer.ggml.model", 8, text("gpt2")),
        ("tokenizer.ggml.pre", 8, text("gpt-2")),
        ("tokenizer.ggml.tokens", 9,
         strings([token for token, _ in vocabulary])),
        ("tokenizer.ggml.token_type", 9,
         struct.pack("<IQ", 5, len(vocabulary)) + b"".join(
             struct.pack("<i", 3 if number in special else 1)
             for _, number in vocabulary)),
        ("tokenizer.ggml.merges", 9, strings([])),
        *((key, 4, struct.pack("<I", value)) for key, value in (
            ("llama.context_length", 2048), ("llama.block_count", 2),
            ("llama.embedding_length", config["hidden_size"]),
            ("llama.feed_forward_length", config["intermediate_size"]),
            ("llama.attention.head_count", heads),
            ("llama.attention.head_count_kv", config["num_key_value_heads"]),
            ("llama.vocab_size", len(vocabulary)),
            ("llama.rope.dimension_count", config["head_dim"]),
            ("tokenizer.ggml.eos_token_id", 2)))]
    d, f = config["hidden_size"], config["intermediate_size"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"token_embd": [len(vocabulary), d], "output_norm": [d]}
    for layer in range(2):
        for name, shape in {
                "attn_norm": [d], "ffn_norm": [d], "attn_q": [d, d],
                "attn_k": [keys, d], "attn_v": [keys, d],
                "attn_output": [d, d], "ffn_gate": [f, d], "ffn_up": [f, d],
                "ffn_down": [d, f]}.items():
            shapes[f"blk.{layer}.{name}"] = shape
    numbers, headers, data = random.Random(1), b"", b""
    for name, shape in shapes.items():
        count = math.prod(shape)
        values = ([1.0] * count if len(shape) == 1 else
                  [numbers.gauss(0, shape[1] ** -0.5) for _ in range(count)])
        data += b"\0" * (-len(data) % 32)
        headers += (text(name + ".weight") + struct.pack("<I", len(shape)) +
                    b"".join(struct.pack("<Q", side)
                             for side in reversed(shape)) +
                    struct.pack("<IQ", len(shape) - 1, len(data)))
        data += (array.array("f", values).tobytes() if len(shape) == 1 else
                 struct.pack(f"<{count}e", *values))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(entries))
    for key, kind, value in entries:
        head += text(key) + struct.pack("<I", kind) + value
    head += headers
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


class CalibrateOptionsTest(CalibrationTest):
    # ---- Memory ----

    def test_less_memory_than_the_least(self):
        refused = self.path("refused")
        self.assert_fails(["the calibration takes", "a layer at a time",
                           "of hidden states in a file",
                           "but --memory allows 1 MB", "the program holds",
                           "fewer --calibrate-tokens", "--dtype=bf16"],
                          *self.calibrate(refused, "--memory=1MB"))
        self.assertFalse(os.path.exists(refused))

    def test_memory_that_is_none(self):
        out = self.path("out")
        for value in ("0", "-1", "-4GB", "0GB", "much", "1.5GB", "4XB", "GB",
                      "4GBB", "4 G B", "1e9", "+4GB", "0x10"):
            self.assert_fails(
                [f"--memory={value}: give a whole number above 0 with a unit, "
                 "like 4GB, 1500MB or 900MiB", "--help"],
                *self.calibrate(out, f"--memory={value}"), status=2)
        for value in ("18446744073709551616", "9223372036854775808",
                      "9223372036854775807KB", "10EB"):
            self.assert_fails([f"--memory={value}: is beyond 922337203685477580"
                               "7 bytes", "like 4GB"],
                              *self.calibrate(out, f"--memory={value}"),
                              status=2)
        # In every way of writing it: too little, by what it says.
        for value, said in [("1000000", "1 MB"), ("1mb", "1 MB"),
                            ("1M", "1 MB"), ("1000 kB", "1 MB"),
                            ("1MiB", "1.05 MB"), ("1024ki", "1.05 MB")]:
            self.assert_fails([f"--memory allows {said}, "],
                              *self.calibrate(out, f"--memory={value}"))

    # ---- One row ----

    def test_one_row(self):
        out = self.path("stem")
        result = stem_json(*self.calibrate(out, "--layers=1,4", "--rows=mean",
                                           "--row-dtype=f32"))
        self.assertEqual(result["calibration"]["rows"], "mean")
        tensors = self.tensors(out)
        for layer in 1, 4:
            table = tensors[TABLE.format(layer)]
            self.assertEqual(table.dtype, "F32")
            for row in range(1, VOCABULARY):
                self.assertEqual(table.row(row), table.row(0))
        self.assertTrue(any(tensors[TABLE.format(1)].row(0)))

    # ---- Refusals ----

    def test_other_inits(self):
        out = self.path("out")
        for option in ("--rows=mean", "--dense-below=1",
                       "--dense-special-below=1", "--memory=1GB",
                       "--mix-rank=4", "--flops=10%", "--calibrate=self",
                       "--calibrate-tokens=9000", "--calibrate-seed=1",
                       "--dialogue-share=0", "--force-calibration"):
            for kind in "embedding", "row-mean", "xavier":
                name = option.split("=")[0]
                self.assert_fails(
                    [f"{name} is for --init=calibrated, not for --init={kind}"],
                    "convert", self.small, out, "--layers=1",
                    f"--init={kind}", option, status=2)
        for options in (["--rows=some"], ["--dense-below=-1"],
                        ["--dense-below=few"], ["--memory=much"],
                        ["--dense-special-below=-1"],
                        ["--dense-special-below=few"],
                        ["--memory=-4GB"]):
            self.assert_fails([options[0].split("=")[0], "--help"],
                              *self.calibrate(out, *options), status=2)
        self.assertFalse(os.path.exists(out))

    # ---- Types and sources ----

    def test_rows_in_f16(self):
        wide, half = self.path("f32"), self.path("f16")
        for out, kind in (wide, "f32"), (half, "f16"):
            stem_run(*self.calibrate(out, "--layers=1", f"--row-dtype={kind}"))
        one, other = (self.tensors(folder)[TABLE.format(1)]
                      for folder in (wide, half))
        self.assertEqual((one.dtype, other.dtype), ("F32", "F16"))
        rounded = struct.pack(f"<{len(one.values)}e", *one.values)
        self.assertEqual(other.values.tobytes(), rounded)
        self.assertTrue(stem_json("eval", half, f"--text={self.text}"))

    def test_gguf(self):
        gguf = self.path("model.gguf")
        write_gguf(gguf, self.small)
        folder = self.path("folder")
        stem_run("import", gguf, folder)
        direct, imported = self.path("direct"), self.path("imported")
        for source, out in (gguf, direct), (folder, imported):
            result = stem_json(*self.calibrate(out, "--layers=1",
                                               model=source))
            self.assertEqual(result["replaced"], [UP.format(1)])
        one, other = self.tensors(direct), self.tensors(imported)
        other.pop(UP.format(1), None)  # lies in a linked shard
        self.assertEqual(set(one), set(other))
        for name, tensor in one.items():
            self.assertEqual(tensor.dtype, other[name].dtype)
            self.assertEqual(tensor.values, other[name].values, name)
        self.assertEqual(one[TABLE.format(1)].dtype, "F16")
        hybrid = self.path("hybrid")
        result = stem_json(*self.calibrate(hybrid, "--layers=1",
                                           "--dense-below=1", model=gguf))
        self.assertEqual(result["replaced"], [])
        self.assertEqual(self.tensors(hybrid)[UP.format(1)].values,
                         self.tensors(folder)[UP.format(1)].values)
        self.assertTrue(stem_json("eval", hybrid, f"--text={self.text}"))

    def test_special_tokens_of_a_gguf(self):
        gguf = self.path("model.gguf")
        write_gguf(gguf, self.small)
        for options, special in ([], None), (["--dense-special-below=1"], 3):
            _, result = self.convert(
                "--layers=1", *options, model=gguf, name=f"stem-{special}",
                base=TEXT_ALONE)
            # Without a chat template none is asked for.
            self.assertEqual(result["calibration"].get("selected_special_ids"),
                             special)

    # ---- A conversion that is killed ----

    def test_killed(self):
        whole, out = self.path("whole"), self.path("again")
        options = ["--layers=0,1,2,3,4,5", "--memory=1GB"]
        stem_run(*self.calibrate(whole, *options))
        process = subprocess.Popen(
            ["stem-run", *self.calibrate(out, *options)],
            stderr=subprocess.PIPE, text=True)
        is_writing = any("writing" in line
                         for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        self.assertTrue(is_writing)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertFalse(os.path.exists(out))
        stem_run(*self.calibrate(out, *options))
        self.assert_same_folder(out, whole)


if __name__ == "__main__":
    unittest.main()
