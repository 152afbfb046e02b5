# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A Llama-shaped decoder in plain PyTorch, dense or with tables, for speed: its
weights are random, its shape is SmolLM2-135M's. Leaner than the transformers
library's model, so that what is measured is PyTorch."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    hidden: int = 576
    layers: int = 30
    heads: int = 9
    kv_heads: int = 3
    head_size: int = 64
    intermediate: int = 1536
    vocab: int = 49152
    rope_theta: float = 1e5
    positions: int = 2048


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        kv_width = shape.kv_heads * shape.head_size
        self.q = linear(shape.hidden, shape.heads * shape.head_size)
        self.k = linear(shape.hidden, kv_width)
        self.v = linear(shape.hidden, kv_width)
        self.o = linear(shape.heads * shape.head_size, shape.hidden)

    def forward(self, x, rotation, cache, start):
        batch, tokens, _ = x.shape
        size = self.shape.head_size
        q, k, v = (project(x).view(batch, tokens, -1, size).transpose(1, 2)
                   for project in (self.q, self.k, self.v))
        q, k = rotate(q, rotation), rotate(k, rotation)
        if cache is not None:
            end = start + tokens
            cache[0, :, :, start:end] = k
            cache[1, :, :, start:end] = v
            k, v = cache[0, :, :, :end], cache[1, :, :, :end]
        groups = self.shape.heads // self.shape.kv_heads
        k = k.repeat_interleave(groups, dim=1)
        v = v.repeat_interleave(groups, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1)
        return self.o(mixed.transpose(1, 2).reshape(batch, tokens, -1))


def rotate(x, rotation):
    cosine, sine = rotation
    low, high = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-high, low), dim=-1) * sine


class FeedForward(nn.Module):
    def __init__(self, shape, is_stem):
        super().__init__()
        self.gate = linear(shape.hidden, shape.intermediate)
        self.down = linear(shape.intermediate, shape.hidden)
        self.is_stem = is_stem
        self.up = (nn.Embedding(shape.vocab, shape.intermediate) if is_stem
                   else linear(shape.hidden, shape.intermediate))

    def forward(self, x, ids):
        up = self.up(ids if self.is_stem else x)
        return self.down(F.silu(self.gate(x)) * up)


class Layer(nn.Module):
    def __init__(self, shape, is_stem):
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden, eps=1e-5)
        self.attention = Attention(shape)
        self.ffn_norm = nn.RMSNorm(shape.hidden, eps=1e-5)
        self.ffn = FeedForward(shape, is_stem)

    def forward(self, x, ids, rotation, cache, start):
        x = x + self.attention(self.attention_norm(x), rotation, cache, start)
        return x + self.ffn(self.ffn_norm(x), ids)


class Decoder(nn.Module):
    """Logits of the last position; the head is the embedding."""

    def __init__(self, shape, stem_layers=()):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, index in stem_layers)
                                    for index in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-5)
        exponents = torch.arange(0, shape.head_size, 2) / shape.head_size
        angles = torch.outer(torch.arange(shape.positions).float(),
                             shape.rope_theta ** -exponents)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, caches=None, start=0):
        x = self.embedding(ids)
        end = start + ids.shape[1]
        rotation = self.cosine[start:end], self.sine[start:end]
        for index, layer in enumerate(self.layers):
            cache = caches[index] if caches is not None else None
            x = layer(x, ids, rotation, cache, start)
        return F.linear(self.norm(x[:, -1:]), self.embedding.weight)
