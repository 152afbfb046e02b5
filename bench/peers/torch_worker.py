#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's side of speed.py, in a process of its own.

Reads lines "prefill" and "decode", measures that once, and answers each with a
line of JSON: what stem-run bench --paced does."""

import argparse
import json
import sys
import time

import torch

from torch_model import Decoder, Shape


class Worker:
    def __init__(self, args):
        self.shape = Shape()
        stem = [int(layer) for layer in args.stem_layers.split(",") if layer]
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
        self.model = Decoder(self.shape, stem).to(dtype).eval()
        self.forward = (torch.compile(self.model) if args.compile
                        else self.model)
        self.caches = torch.zeros(self.shape.layers, 2, 1, self.shape.kv_heads,
                                  args.decode_tokens, self.shape.head_size,
                                  dtype=dtype)
        self.prompt = torch.randint(self.shape.vocab, (1, args.prompt_tokens))
        self.steps = torch.randint(self.shape.vocab, (args.decode_tokens, 1, 1))

    def prefill(self):
        self.forward(self.prompt)

    def decode(self):
        for position, ids in enumerate(self.steps):
            self.model(ids, self.caches, position)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=["f32", "bf16"], required=True)
    parser.add_argument("--compile", action="store_true",
                        help="torch.compile for the prefill")
    parser.add_argument("--stem-layers", default="", metavar="2,5,8")
    parser.add_argument("--prompt-tokens", type=int, default=2048)
    parser.add_argument("--decode-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    with torch.inference_mode():
        worker = Worker(args)
        for line in sys.stdin:
            measure = getattr(worker, line.strip())
            start = time.perf_counter()
            measure()
            print(json.dumps({"seconds": time.perf_counter() - start}),
                  flush=True)


if __name__ == "__main__":
    main()
