#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What convert and import leave untouched, and outputs that cannot be
written."""

import json
import os
import struct
import subprocess
import unittest

from e2e import GOLDEN, ModelTest, stem_json, stem_run, write_tensors, Tensor

MODEL = os.path.join(GOLDEN, "llama_gqa")


def raw_tensors(folder):
    """Name to bytes, of all that the index or the one file lists."""
    index = os.path.join(folder, "model.safetensors.index.json")
    files = ["model.safetensors"]
    listed = None
    if os.path.exists(index):
        with open(index) as file:
            listed = json.load(file)["weight_map"]
        files = sorted(set(listed.values()))
    result = {}
    for name in files:
        with open(os.path.join(folder, name), "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            header, data = json.loads(file.read(size)), file.read()
        for key, entry in header.items():
            if key == "__metadata__" or (listed and listed.get(key) != name):
                continue
            begin, end = entry["data_offsets"]
            result[key] = entry["dtype"], entry["shape"], data[begin:end]
    return result


class OutputsTest(ModelTest):
    def test_untouched_tensors_keep_their_bytes(self):
        out = self.path("stem")
        stem_run("convert", MODEL, out, "--layers=1,2", "--init=embedding")
        before, after = raw_tensors(MODEL), raw_tensors(out)
        replaced = {f"model.layers.{layer}.mlp.up_proj.weight"
                    for layer in (1, 2)}
        tables = {f"model.layers.{layer}.mlp.up_table.weight"
                  for layer in (1, 2)}
        self.assertEqual(set(after), set(before) - replaced | tables)
        for name in set(before) - replaced:
            self.assertEqual(after[name], before[name], name)

    def test_section(self):
        out = self.path("stem")
        stem_run("convert", self.small, out, "--layers=1/3", "--init=xavier",
                 "--seed=7")
        with open(os.path.join(out, "config.json")) as file:
            config = json.load(file)
        section = config["stem"]
        provenance = section.pop("provenance")
        self.assertEqual(provenance["seed"], 7)
        self.assertEqual(section, {
            "version": 1, "base": {"model_type": "llama",
                                   "architectures": ["LlamaForCausalLM"]},
            "layers": [2, 5], "rank": 0, "select": False,
            "row_dtype": "bfloat16"})
        self.assertEqual(config["architectures"], ["StemLlamaForCausalLM"])

    def test_unknown_section_is_refused(self):
        out = self.path("stem")
        stem_run("convert", MODEL, out, "--layers=1", "--init=row-mean")
        path = os.path.join(out, "config.json")
        with open(path) as file:
            config = json.load(file)
        for change, parts in [({"version": 2}, ["version", "2"]),
                              ({"surprise": 1}, ["surprise"])]:
            with open(path, "w") as file:
                json.dump({**config, "stem": {**config["stem"], **change}},
                          file)
            self.assert_fails(parts, "generate", out, "--prompt-ids=1")

    @unittest.skipUnless(os.environ.get("STEM_SMOLLM2_GGUF"),
                         "STEM_SMOLLM2_GGUF is not set")
    def test_all_tensors_of_smollm2(self):
        out = self.path("smollm2")
        result = stem_json("import", os.environ["STEM_SMOLLM2_GGUF"], out)
        self.assertEqual(result["tensors"], 272)
        self.assertEqual(result["tensors_in_source"], 272)
        self.assertEqual(result["left_out"], [])
        self.assertEqual(sum(result["types"].values()), 272)
        self.assertEqual(len(raw_tensors(out)), 272)

    @unittest.skipIf(os.geteuid() != 0, "only root mounts a small disk")
    def test_small_disk(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs",
                           disk], capture_output=True).returncode:
            self.skipTest("this machine lets nobody mount a tmpfs")
        try:
            out, ids = os.path.join(disk, "out"), self.path("ids")
            self.assert_fails([out, "are needed", "free"], "import", MODEL,
                              out)
            self.assert_fails([out, "are needed", "free"], "convert", MODEL,
                              out, "--layers=all", "--init=row-mean")
            write_tensors(ids, {"input_ids": Tensor("I32", [1, 200],
                                                    [1] * 200)})
            self.assert_fails([out, "are needed", "free"], "eval", MODEL,
                              f"--input-ids={ids}", f"--logits-out={out}")
            self.assertEqual(os.listdir(disk), [])
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_read_only_folder(self):
        if os.geteuid() == 0:
            self.skipTest("root writes everywhere")
        folder = self.path("read-only")
        os.mkdir(folder, 0o555)
        for command in ["import"], ["convert", "--layers=1", "--init=xavier"]:
            self.assert_fails(["cannot write"], command[0], MODEL,
                              os.path.join(folder, "out"), *command[1:])

    def test_malformed_ir(self):
        for text, parts in [
                ("func.func @f( {", ["error"]),
                ("\"stem.no_such_op\"() : () -> ()", ["no_such_op"]),
                ("ML\xefR\0\1\2", ["error"])]:
            path = self.write("bad.mlir", text.encode("latin-1"))
            result = subprocess.run(["stem-opt", path], capture_output=True)
            self.assertEqual(result.returncode, 1, result.stderr)
            for part in parts:
                self.assertIn(part, result.stderr.decode("utf-8", "replace"))


if __name__ == "__main__":
    unittest.main()
