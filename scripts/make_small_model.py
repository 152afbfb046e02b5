#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes a Hugging Face folder of the model in models/small, with random
weights.

usage: make_small_model.py OUT [--seed=N]
"""

import array
import json
import os
import random
import shutil
import struct
import sys

SOURCE = os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "models", "small")


def shapes(config):
    """The tensors of the model: name, shape, standard deviation (0: ones)."""
    d, f = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", [config["vocab_size"], d], 1.0 / d ** 0.5
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, rows, columns in [
                ("self_attn.q_proj", queries, d), ("self_attn.k_proj", keys, d),
                ("self_attn.v_proj", keys, d), ("self_attn.o_proj", d, queries),
                ("mlp.gate_proj", f, d), ("mlp.up_proj", f, d),
                ("mlp.down_proj", d, f)]:
            yield prefix + name + ".weight", [rows, columns], columns ** -0.5
        for name in ["input_layernorm", "post_attention_layernorm"]:
            yield prefix + name + ".weight", [d], 0.0
    yield "model.norm.weight", [d], 0.0


def bf16(values):
    """The upper halves of the floats, rounded to nearest."""
    words = array.array("I", array.array("f", values).tobytes())
    return array.array("H", [(w + 0x7FFF + ((w >> 16) & 1)) >> 16
                             for w in words]).tobytes()


def main(arguments):
    seed = 1
    folders = []
    for argument in arguments:
        if argument.startswith("--seed="):
            seed = int(argument[len("--seed="):])
        else:
            folders.append(argument)
    if len(folders) != 1 or folders[0].startswith("-"):
        print(__doc__)
        return 2
    out = folders[0]
    with open(os.path.join(SOURCE, "config.json")) as file:
        config = json.load(file)
    numbers = random.Random(seed)
    header, data = {}, bytearray()
    for name, shape, deviation in shapes(config):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = ([numbers.gauss(0.0, deviation) for _ in range(count)]
                  if deviation else [1.0] * count)
        begin = len(data)
        data += bf16(values)
        header[name] = {"dtype": "BF16", "shape": shape,
                        "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(out)
    for name in os.listdir(SOURCE):
        if name.endswith(".json"):
            shutil.copy(os.path.join(SOURCE, name), out)
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    print(f"{out}: {len(header)} tensors, {len(data) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
