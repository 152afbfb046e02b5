#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Peak memory: import and convert stream, the others hold each weight once.
On SmolLM2-135M where STEM_SMOLLM2_GGUF names it, else on a model made here."""

import array
import json
import os
import random
import struct
import subprocess
import tempfile
import unittest

from e2e import ROOT, ModelTest

MB = 1_000_000
TEXT = os.path.join(ROOT, "models", "text", "king-james-genesis-exodus.txt")


def make_model(folder):
    """12 layers of 21 MB each and an embedding of 17 MB, in bf16."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": 8192, "hidden_size": 1024, "intermediate_size": 2304,
        "num_hidden_layers": 12, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16"}
    d, f, keys = 1024, 2304, 256
    shapes = {"model.embed_tokens.weight": [8192, d], "model.norm.weight": [d]}
    for layer in range(12):
        for name, shape in {
                "self_attn.q_proj": [d, d], "self_attn.k_proj": [keys, d],
                "self_attn.v_proj": [keys, d], "self_attn.o_proj": [d, d],
                "mlp.gate_proj": [f, d], "mlp.up_proj": [f, d],
                "mlp.down_proj": [d, f], "input_layernorm": [d],
                "post_attention_layernorm": [d]}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    numbers = random.Random(1)
    block = array.array("f", [numbers.gauss(0, 0.03) for _ in range(1 << 16)])
    halves = block.tobytes()
    bf16 = b"".join(halves[i + 2:i + 4] for i in range(0, len(halves), 4))
    header, end = {}, 0
    for name, shape in shapes.items():
        begin = end
        end += 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape,
                        "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.mkdir(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry in header.values():
            size = entry["data_offsets"][1] - entry["data_offsets"][0]
            file.write((bf16 * (size // len(bf16) + 1))[:size])


def largest_tensor(folder):
    sizes = []
    for name in os.listdir(folder):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        sizes += [entry["data_offsets"][1] - entry["data_offsets"][0]
                  for key, entry in header.items() if key != "__metadata__"]
    return max(sizes)


class MemoryTest(ModelTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = os.environ.get("STEM_SMOLLM2_GGUF")
        cls.has_tokenizer = bool(cls.source)
        if not cls.source:
            cls.source = os.path.join(cls.folder, "made")
            make_model(cls.source)
        cls.model = os.path.join(cls.folder, "model")
        cls.import_peak = cls.peak_of("import", cls.source, cls.model)[0]
        cls.cache = os.path.join(cls.folder, "cache")

    @staticmethod
    def peak_of(*arguments):
        """The most bytes resident, by the kernel's count, and the result."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                ["stem-run", *map(str, arguments), "--json"], stdout=out,
                stderr=err)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            if process.returncode:
                raise AssertionError(err.read().decode())
            result = json.loads(out.read())
        peak = usage.ru_maxrss * 1024
        # What the program says of itself is true.
        assert abs(result["peak_bytes"] - peak) < 0.1 * peak + 10 * MB, (
            result["peak_bytes"], peak)
        return peak, result

    def assert_streams(self, peak):
        bound = 1.2 * largest_tensor(self.model) + 200 * MB
        self.assertLess(peak, bound)
        # The bound says something: the whole model is beyond it.
        self.assertLess(bound, 1.05 * sum(
            os.path.getsize(os.path.join(self.model, name))
            for name in os.listdir(self.model)))

    def test_import(self):
        self.assert_streams(self.import_peak)

    def test_convert(self):
        for init in "embedding", "row-mean", "xavier":
            with self.subTest(init=init):
                out = self.path(init)
                peak, _ = self.peak_of("convert", self.model, out,
                                       "--layers=1/3", f"--init={init}")
                self.assertLess(peak, 1.2 * max(
                    largest_tensor(self.model), largest_tensor(out)) +
                    200 * MB)

    def check_run(self, *arguments):
        """Cold, then warm."""
        for cached, allowance in (False, 350 * MB), (True, 150 * MB):
            peak, result = self.peak_of(
                *arguments, f"--cache-dir={self.path('cache')}")
            self.assertEqual(result["engine"]["compile_cached"], cached)
            plan = result["engine"]["plan"]
            self.assertEqual(plan["total"], sum(
                plan[key] for key in ("weights", "tables", "arena", "cache",
                                      "logits")))
            self.assertLess(peak, plan["total"] + allowance,
                            f"cached: {cached}, plan: {plan}")

    def test_generate(self):
        prompt = ",".join(str(i % 97) for i in range(200))
        self.check_run("generate", self.model, f"--prompt-ids={prompt}", "-n",
                       8, "--ignore-end")

    def test_generate_stem(self):
        stem = self.path("stem")
        self.peak_of("convert", self.model, stem, "--layers=2,5",
                     "--init=row-mean")
        self.check_run("generate", stem, "--prompt-ids=1,2,3", "-n", 8,
                       "--ignore-end")

    def test_eval(self):
        if not self.has_tokenizer:
            self.skipTest("STEM_SMOLLM2_GGUF is not set")
        with open(TEXT) as file:
            text = self.write("text", file.read(10_000))
        self.check_run("eval", self.model, f"--text={text}")


if __name__ == "__main__":
    unittest.main()
