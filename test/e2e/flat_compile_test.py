#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of one kind are one function, however many there are. The time that
compiling takes is measured by bench/flat_compile.py."""

import os
import re
import unittest

from e2e import GOLDEN, ModelTest, deepen, stem_run


class FlatCompileTest(ModelTest):
    def compile(self, layers, arguments):
        """The functions of each phase, and the bytes of the last one."""
        model, dump = self.path(f"{layers}"), self.path(f"{layers}-dump")
        deepen(os.path.join(GOLDEN, "llama_gqa"), model, layers)
        stem_run(*arguments(model), "--no-compile-cache", f"--dump-ir={dump}")
        functions = {}
        for name in sorted(os.listdir(dump)):
            with open(os.path.join(dump, name)) as file:
                functions[name] = sorted(re.findall(
                    r"(?:func\.func|llvm\.func) (?:\w+ )*@(\w+)\(",
                    file.read()))
        return functions, os.path.getsize(os.path.join(dump, name))

    def compare(self, arguments):
        """Gives the bytes of 4 layers and of 40."""
        shallow, shallow_bytes = self.compile(4, arguments)
        deep, deep_bytes = self.compile(40, arguments)
        self.assertEqual(list(shallow), list(deep))
        self.assertGreater(len(shallow), 4)
        for phase, names in shallow.items():
            self.assertGreater(len(names), 0, phase)
            self.assertEqual(deep[phase], names, phase)
        return shallow_bytes, deep_bytes

    def test_depth(self):
        shallow, deep = self.compare(lambda model: [
            "generate", model, "--prompt-ids=1", "-n", 1])
        # One call a layer in each entry, and its description.
        self.assertLess(deep, 3 * shallow)

    def test_depth_of_training(self):
        """A step that updates every layer's parameters."""
        batch = os.path.join(GOLDEN, "llama_gqa", "golden.safetensors")
        self.compare(lambda model: [
            "train", model, f"--batch-ids={batch}", "--steps=1",
            f"--out={model}-out"])


if __name__ == "__main__":
    unittest.main()
