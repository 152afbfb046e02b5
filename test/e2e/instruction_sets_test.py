#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logits and greedy ids of the six families under each cap of the instruction
set, through stem-run: f32 within 2e-4, bf16 within 0.3 of logits up to 30."""

import concurrent.futures
import os
import unittest

from e2e import GOLDEN, ModelTest, cpu_flags, read_tensors, stem_json, \
    stem_run, write_tensors

FAMILIES = ["llama3_rope_tied_headdim", "llama_gqa", "mistral_sliding",
            "qwen2_qkv_bias", "qwen3_qk_norm", "stem_llama"]


class InstructionSetTest(ModelTest):
    def check(self, family, isa):
        folder = os.path.join(GOLDEN, family)
        golden = read_tensors(os.path.join(folder, "golden.safetensors"))
        scratch = self.path(f"{family}-{isa}")
        write_tensors(scratch + ".ids", {"input_ids": golden["input_ids"]})
        options = ["--dtype=f32", f"--max-isa={isa}"]
        stem_run("eval", folder, f"--input-ids={scratch}.ids",
                 f"--logits-out={scratch}.logits", "--force", *options)
        got = read_tensors(scratch + ".logits")["logits"]
        self.assertEqual(got.shape, golden["logits"].shape)
        worst = max(abs(a - b) for a, b in
                    zip(got.values, golden["logits"].values))
        self.assertLess(worst, 2e-4, (family, isa))
        self.check_greedy(folder, golden, options)

    def check_greedy(self, folder, golden, options):
        """Alone and in a batch, with the cache and without."""
        prompt = ",".join(map(str, golden["prompt_ids"].values))
        wanted = list(golden["greedy_ids"].values)
        common = ["generate", folder, f"--prompt-ids={prompt}", "-n",
                  len(wanted), "--ignore-end", *options]
        other = ["--prompt-ids=5,9,2,77,31"]
        single = stem_json("generate", folder, *other, "-n", len(wanted),
                           "--ignore-end", *options)["ids"]
        for cache in [], ["--no-cache"]:
            message = (folder, options, cache)
            self.assertEqual(stem_json(*common, *cache)["ids"], wanted,
                             message)
            self.assertEqual(stem_json(*common, *other, *cache)["ids"],
                             [wanted, single], message)

    def test_golden(self):
        isas = []
        for isa in "avx2", "avx512", "native":
            if isa == "avx512" and "avx512f" not in cpu_flags():
                print(f"--max-isa={isa} is not tried: this CPU lacks it")
            else:
                isas.append(isa)
        self.assertIn("avx2", isas)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for result in [pool.submit(self.check, family, isa)
                           for isa in isas for family in FAMILIES]:
                result.result()

    def test_bf16(self):
        """Also where bf16 arithmetic is emulated."""
        for family in "llama_gqa", "stem_llama":
            folder = os.path.join(GOLDEN, family)
            golden = read_tensors(os.path.join(folder, "golden.safetensors"))
            ids, out = self.path("ids"), self.path("logits")
            write_tensors(ids, {"input_ids": golden["input_ids"]})
            for isa in "avx2", "native":
                stem_run("eval", folder, f"--input-ids={ids}",
                         f"--logits-out={out}", "--force", "--dtype=bf16",
                         f"--max-isa={isa}")
                got = read_tensors(out)["logits"].values
                worst = max(abs(a - b) for a, b in
                            zip(got, golden["logits"].values))
                self.assertLess(worst, 0.3, (family, isa))


if __name__ == "__main__":
    unittest.main()
