#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logits and greedy ids of the six families under each cap of the instruction
set, through stem-run: f32 within 2e-4, bf16 within 0.3 of logits up to 30."""

import concurrent.futures
import os
import unittest

from e2e import GOLDEN, ModelTest, read_tensors, stem_json, stem_run, \
    write_tensors

FAMILIES = ["llama3_rope_tied_headdim", "llama_gqa", "mistral_sliding",
            "qwen2_qkv_bias", "qwen3_qk_norm", "stem_llama"]
# Those of stem-run --help, rising.
CAPS = "avx2", "avx512", "avx512bf16", "amx"


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

    def caps(self):
        """Every --max-isa that this machine can keep to: it says which
        instructions it took."""
        def taken(cap):
            return stem_json("generate", self.small, "--prompt-ids=1", "-n", 1,
                             "--dtype=f32", f"--max-isa={cap}")["engine"]["isa"]
        caps = []
        for cap in CAPS:
            if taken(cap) == cap:
                caps.append(cap)
            else:
                print(f"--max-isa={cap} is not tried: this machine lacks it")
        self.assertIn("avx2", caps)
        # What a machine lacks, it lacks from there on.
        self.assertEqual(caps, list(CAPS[:len(caps)]))
        self.assertEqual(taken("native"), caps[-1])
        return caps

    def test_golden(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for result in [pool.submit(self.check, family, isa)
                           for isa in self.caps() for family in FAMILIES]:
                result.result()

    def test_bf16(self):
        """Also where bf16 arithmetic is emulated."""
        caps = self.caps()
        for family in "llama_gqa", "stem_llama":
            folder = os.path.join(GOLDEN, family)
            golden = read_tensors(os.path.join(folder, "golden.safetensors"))
            ids, out = self.path("ids"), self.path("logits")
            write_tensors(ids, {"input_ids": golden["input_ids"]})
            for isa in caps:
                stem_run("eval", folder, f"--input-ids={ids}",
                         f"--logits-out={out}", "--force", "--dtype=bf16",
                         f"--max-isa={isa}")
                got = read_tensors(out)["logits"].values
                worst = max(abs(a - b) for a, b in
                            zip(got, golden["logits"].values))
                self.assertLess(worst, 0.3, (family, isa))


if __name__ == "__main__":
    unittest.main()
