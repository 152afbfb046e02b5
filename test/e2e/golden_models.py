# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""STEM models that end-to-end tests put together from the small dense reference
model, and their logits."""

import json
import math
import os
import shutil

from e2e import GOLDEN, ModelTest, Tensor, read_tensors, stem_run, \
    write_tensors

DENSE = os.path.join(GOLDEN, "llama_gqa")
VOCABULARY = 96
IDS = [(7 * i + i * i // 3) % VOCABULARY for i in range(140)]


def noise(count, seed):
    return [math.sin(seed + 1.7 * i) / 4 for i in range(count)]


def dense(bias=False):
    """(config, tensors) of the dense model; `bias`: with biases in the FFN."""
    with open(os.path.join(DENSE, "config.json")) as file:
        config = json.load(file)
    tensors = read_tensors(os.path.join(DENSE, "model.safetensors"))
    if not bias:
        return config, tensors
    config["mlp_bias"] = True
    sizes = {"gate": config["intermediate_size"],
             "up": config["intermediate_size"], "down": config["hidden_size"]}
    for layer in range(config["num_hidden_layers"]):
        for part, size in sizes.items():
            tensors[f"model.layers.{layer}.mlp.{part}_proj.bias"] = \
                Tensor("F32", [size], noise(size, layer))
    return config, tensors


def low_rank_term(d, f, rank, width, layer):
    """Factors of this rank that zeros fill up to `width`."""
    a, b = noise(f * rank, layer + 5), noise(rank * d, layer + 6)
    zeros = [0.0] * (width - rank)
    return {"up_mix.a.weight": Tensor(
                "F32", [f, width], [value for row in range(f) for value in
                                    a[row * rank:(row + 1) * rank] + zeros]),
            "up_mix.b.weight": Tensor("F32", [width, d], b + zeros * d)}


class GoldenModelTest(ModelTest):
    def save(self, name, config, tensors):
        folder = self.path(name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        write_tensors(os.path.join(folder, "model.safetensors"), tensors)
        return folder

    def stem_model(self, name, ranks, ids=None, written=None, width=None,
                   bias=False):
        """`ranks`: of each STEM layer; `ids`: of each, those that keep the
        up-projection, as a list or a tensor (None: a model of tables alone);
        `written`: stem.rank in config.json, unless it is `ranks`; `width`: the
        rank that zeros fill the factors up to."""
        config, tensors = dense(bias)
        d, f, vocab = (config[key] for key in (
            "hidden_size", "intermediate_size", "vocab_size"))
        config["stem"] = {
            "version": 1, "base": {"model_type": config["model_type"],
                                   "architectures": config["architectures"]},
            "layers": list(ranks),
            "rank": list(ranks.values()) if written is None else written,
            "select": ids is not None, "row_dtype": "float32"}
        config["model_type"] = "stem_llama"
        for layer, rank in ranks.items():
            mlp = f"model.layers.{layer}.mlp."
            tensors[mlp + "up_table.weight"] = Tensor(
                "F32", [vocab, f], noise(vocab * f, layer))
            if width or rank:
                tensors.update((mlp + key, factor) for key, factor in
                               low_rank_term(d, f, rank, width or rank,
                                             layer).items())
            if ids is None:
                del tensors[mlp + "up_proj.weight"]
                tensors.pop(mlp + "up_proj.bias", None)
            else:
                selected = ids[layer]
                tensors[mlp + "up_select.ids"] = (
                    selected if isinstance(selected, Tensor)
                    else Tensor("I64", [len(selected)], selected))
        return self.save(name, config, tensors)

    def logits(self, model, *options, ids=IDS, batch=2):
        """One list of logits for each token."""
        path, out = self.path("ids"), self.path("logits")
        shutil.rmtree(out, ignore_errors=True)
        write_tensors(path, {"input_ids": Tensor(
            "I32", [batch, len(ids) // batch], ids)})
        stem_run("eval", model, f"--input-ids={path}", f"--logits-out={out}",
                 "--force", *options)
        tensor = read_tensors(out)["logits"]
        return [list(tensor.row(i)) for i in range(len(ids))]
