# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Configuration of the lit tests, loaded by lit.site.cfg.py of a build."""

import os

import lit.formats

config.name = "Stem"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "data", "unit", "fuzz", "corpus"]
config.test_source_root = os.path.join(config.stem_source_dir, "test")
config.test_exec_root = os.path.join(config.stem_binary_dir, "test")

# Our programs, FileCheck, not, mlir-opt, mlir-translate, …
config.environment["PATH"] = os.pathsep.join([
    os.path.join(config.stem_binary_dir, "bin"), config.llvm_tools_dir,
    os.environ["PATH"]])
# A variable of one CHECK-LABEL block does not reach into the next.
config.environment["FILECHECK_OPTS"] = "--enable-var-scope"
# The cache of compiled modules, not the one of the person who runs the tests.
config.environment["STEM_CACHE_DIR"] = os.path.join(
    config.test_exec_root, "cache")

config.substitutions += [
    ("%python", "python3"),
    ("%stem_src", config.stem_source_dir),
    ("%stem_lib", os.path.join(config.stem_binary_dir, "lib")),
    ("%data", os.path.join(config.test_source_root, "data")),
    ("%models", os.path.join(config.stem_source_dir, "models")),
]


def cpu_flags():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("flags"):
                return set(line.split(":")[1].split())
    return set()


flags = cpu_flags()
if {"avx2", "fma"} <= flags:
    config.available_features.add("avx2")
if {"avx512f", "avx512bw", "avx512vl"} <= flags:
    config.available_features.add("avx512")
if "avx512_bf16" in flags:
    config.available_features.add("avx512bf16")
if "amx_bf16" in flags:
    config.available_features.add("amx")

# scripts/fetch-models.sh gets these files; tests say REQUIRES: smollm2.
for feature, variable in [("smollm2", "STEM_SMOLLM2_GGUF"),
                          ("deepseek-tokenizer", "STEM_DEEPSEEK_TOKENIZER")]:
    if os.environ.get(variable):
        config.available_features.add(feature)
        config.environment[variable] = os.environ[variable]
