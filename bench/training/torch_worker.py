#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's side: training steps of a decoder of a config.json, dense or STEM.

Reads lines "step", takes one, and answers each with a line of JSON: what
stem-run bench --train --paced does. At the end of its input: one object.

--mode=dense     every layer has its up-projection
--mode=official  tables with dense gradients and dense AdamW, as STEM's
                 published code trains them
--mode=sparse    tables with sparse gradients and torch.optim.SparseAdam
--mode=rowwise   sparse gradients, and one second moment a row"""

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LEARNING_RATE = 1e-4
BETAS = (0.9, 0.95)
DECAY = 0.1


class Block(nn.Module):
    def __init__(self, config, has_table, sparse):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.heads = config["num_attention_heads"]
        self.groups = self.heads // config["num_key_value_heads"]
        self.size = width // self.heads
        keys = config["num_key_value_heads"] * self.size

        def linear(inputs, outputs):
            return nn.Linear(inputs, outputs, bias=False)

        self.attention_norm = nn.RMSNorm(width, eps=config["rms_norm_eps"])
        self.ffn_norm = nn.RMSNorm(width, eps=config["rms_norm_eps"])
        self.query, self.output = linear(width, width), linear(width, width)
        self.key, self.value = linear(width, keys), linear(width, keys)
        self.gate, self.down = linear(width, inner), linear(inner, width)
        self.has_table = has_table
        if has_table:
            self.table = nn.Embedding(config["vocab_size"], inner,
                                      sparse=sparse)
        else:
            self.up = linear(width, inner)

    def attend(self, x, rotation):
        batch, tokens, _ = x.shape
        query, key, value = (
            project(x).view(batch, tokens, -1, self.size).transpose(1, 2)
            for project in (self.query, self.key, self.value))
        query, key = rotate(query, rotation), rotate(key, rotation)
        key = key.repeat_interleave(self.groups, 1)
        value = value.repeat_interleave(self.groups, 1)
        mixed = F.scaled_dot_product_attention(query, key, value,
                                               is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    def forward(self, x, ids, rotation, rows):
        x = x + self.attend(self.attention_norm(x), rotation)
        y = self.ffn_norm(x)
        if self.has_table:
            up = self.table(ids) if rows is None else rows
            if torch.is_autocast_enabled("cpu"):
                up = up.to(torch.bfloat16)
        else:
            up = self.up(y)
        return x + self.down(F.silu(self.gate(y)) * up)


def rotate(x, rotation):
    cosine, sine = rotation
    low, high = x.chunk(2, -1)
    turned = x * cosine + torch.cat((-high, low), -1) * sine
    return turned.to(x.dtype)


class Decoder(nn.Module):
    def __init__(self, config, length, sparse):
        super().__init__()
        stem = set(config.get("stem", {}).get("layers", []))
        self.embedding = nn.Embedding(config["vocab_size"],
                                      config["hidden_size"])
        self.blocks = nn.ModuleList(
            Block(config, layer in stem, sparse)
            for layer in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"],
                               eps=config["rms_norm_eps"])
        size = config["hidden_size"] // config["num_attention_heads"]
        angles = torch.outer(
            torch.arange(length).float(),
            config["rope_theta"] ** (-torch.arange(0, size, 2) / size))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=config["initializer_range"])

    def forward(self, ids, labels, rows):
        """`rows`: of each block with a table, or none to look them up."""
        x, rows = self.embedding(ids), iter(rows or ())
        for block in self.blocks:
            own = next(rows, None) if block.has_table else None
            x = block(x, ids, (self.cosine, self.sine), own)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class RowwiseAdam:
    """Rows of a batch move; the second moment is the mean over a row."""

    def __init__(self, tables):
        self.tables = tables
        self.first = [torch.zeros_like(table) for table in tables]
        self.second = [torch.zeros(len(table)) for table in tables]
        self.count = 0

    def zero_grad(self, set_to_none=True):
        for table in self.tables:
            table.grad = None

    @torch.no_grad()
    def step(self):
        self.count += 1
        scale = 1 - BETAS[0] ** self.count, 1 - BETAS[1] ** self.count
        for table, first, second in zip(self.tables, self.first, self.second):
            gradient = table.grad.coalesce()
            ids, values = gradient.indices()[0], gradient.values()
            m = first[ids].mul_(BETAS[0]).add_(values, alpha=1 - BETAS[0])
            v = second[ids].mul_(BETAS[1]).add_(
                values.square().mean(1), alpha=1 - BETAS[1])
            first[ids], second[ids] = m, v
            divisor = (v / scale[1]).sqrt_().add_(1e-8).mul_(scale[0])
            moved = table[ids] * (1 - LEARNING_RATE * DECAY)
            table[ids] = moved.addcdiv_(m, divisor.unsqueeze(1),
                                        value=-LEARNING_RATE)


class ZipfBatches:
    """The k-th most frequent id with a probability of k^-1.05; labels are the
    ids that follow."""

    def __init__(self, vocabulary, batch, length):
        self.generator = torch.Generator().manual_seed(0)
        self.weights = torch.arange(1, vocabulary + 1).double() ** -1.05
        self.order = torch.randperm(vocabulary, generator=self.generator)
        self.shape = batch, length + 1

    def next(self):
        count = self.shape[0] * self.shape[1]
        ranks = torch.multinomial(self.weights, count, replacement=True,
                                  generator=self.generator)
        ids = self.order[ranks].view(self.shape)
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


class Worker:
    def __init__(self, arguments):
        with open(arguments.config, encoding="utf-8") as file:
            config = json.load(file)
        if (arguments.mode == "dense") == ("stem" in config):
            sys.exit(f"--mode={arguments.mode} does not go with "
                     f"{arguments.config}")
        self.is_sparse = arguments.mode in ("sparse", "rowwise")
        self.is_bf16 = arguments.dtype == "bf16"
        self.model = Decoder(config, arguments.ctx, self.is_sparse)
        # A lookup with a sparse gradient cannot be compiled: it comes before.
        self.is_hoisted = self.is_sparse and arguments.compile
        self.forward = (torch.compile(self.model) if arguments.compile
                        else self.model)
        self.batches = ZipfBatches(config["vocab_size"], arguments.batch,
                                   arguments.ctx)
        self.make_optimizers(arguments.mode)

    def make_optimizers(self, mode):
        tables = [block.table.weight for block in self.model.blocks
                  if block.has_table]
        of_tables = {id(table) for table in tables}
        dense = [parameter for parameter in self.model.parameters()
                 if not self.is_sparse or id(parameter) not in of_tables]
        self.optimizers = [torch.optim.AdamW(
            dense, lr=LEARNING_RATE, betas=BETAS, weight_decay=DECAY,
            fused=True)]
        if mode == "sparse":
            self.optimizers.append(torch.optim.SparseAdam(
                tables, lr=LEARNING_RATE, betas=BETAS))
        elif mode == "rowwise":
            self.optimizers.append(RowwiseAdam(tables))

    def step(self):
        ids, labels = self.batches.next()
        start = time.perf_counter()
        rows = None
        if self.is_hoisted:
            rows = [block.table(ids) for block in self.model.blocks
                    if block.has_table]
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16,
                            enabled=self.is_bf16):
            loss = self.forward(ids, labels, rows)
        loss.backward()
        value = loss.item()
        for optimizer in self.optimizers:
            optimizer.step()
        return {"seconds": time.perf_counter() - start, "loss": value}


def peak_bytes():
    with open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", metavar="CONFIG.json")
    parser.add_argument("--mode", required=True,
                        choices=["dense", "official", "sparse", "rowwise"])
    parser.add_argument("--dtype", choices=["f32", "bf16"], required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    worker = Worker(arguments)
    for line in sys.stdin:
        if line != "step\n":
            sys.exit(f"'{line.strip()}' was read; lines say step")
        print(json.dumps(worker.step()), flush=True)
    print(json.dumps({"torch": torch.__version__, "mode": arguments.mode,
                      "compiled": arguments.compile,
                      "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
