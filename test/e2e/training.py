# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the end-to-end tests of stem-run train share."""

import glob
import hashlib
import json
import os

from e2e import GOLDEN, ModelTest, Tensor, read_tensors, stem_run, \
    write_tensors

STEM = os.path.join(GOLDEN, "stem_llama")
ROW_MODES = {
    "exact": ["--row-optimizer=exact"],
    "lazy": ["--row-optimizer=lazy"],
    "rowwise": ["--row-optimizer=rowwise"],
    "rowwise-0": ["--row-optimizer=rowwise", "--table-betas=0,0.95"],
}
WORDS = ("the a of and to in is it on as by at an be we he so no if or up do "
         "table row layer token model step rate loss word text line page")


def model_tensors(folder):
    """Every tensor of a model folder, those of its index where it has one."""
    result = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        if os.path.basename(path) != "golden.safetensors":
            result.update(read_tensors(path))
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return result
    with open(index) as file:
        return {name: result[name] for name in json.load(file)["weight_map"]}


def metrics(out):
    """The lines of steps, by step."""
    with open(os.path.join(out, "training", "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    return {line["step"]: line for line in lines if "loss" in line}


def checkpoints(out):
    folder = os.path.join(out, "training")
    return sorted(name for name in os.listdir(folder)
                  if name.startswith("step-"))


def is_complete(checkpoint):
    """Whether the files are those of the manifest."""
    with open(os.path.join(checkpoint, "manifest.json")) as file:
        manifest = json.load(file)
    for entry in manifest["files"]:
        with open(os.path.join(checkpoint, entry["name"]), "rb") as file:
            content = file.read()
        if len(content) != entry["bytes"] or \
                hashlib.sha256(content).hexdigest() != entry["sha256"]:
            return False
    return True


def contents(folder):
    """Bytes of each file at the top, but for what says when it was made."""
    result = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and name != "stem_provenance.json":
            with open(path, "rb") as file:
                result[name] = file.read()
    return result


class TrainingTest(ModelTest):
    def batch(self, rows=2, length=8, vocabulary=96, ignored=()):
        """A file for --batch-ids."""
        ids = [(7 * i + i * i // 3 + 1) % vocabulary
               for i in range(rows * length)]
        labels = [-100 if i in ignored else (3 * i + 5) % vocabulary
                  for i in range(rows * length)]
        path = self.path("batch.safetensors")
        write_tensors(path, {"input_ids": Tensor("I64", [rows, length], ids),
                             "labels": Tensor("I64", [rows, length], labels)})
        return path

    def text(self, name="text.jsonl", documents=12):
        words = WORDS.split()
        lines = []
        for i in range(documents):
            text = " ".join(words[(i * i + 5 * j + j * j // 7) % len(words)]
                            for j in range(40))
            lines.append(json.dumps({"text": text}))
        return self.write(name, "\n".join(lines) + "\n")

    def train(self, model, out, *options):
        return stem_run("train", model, f"--out={self.path(out)}", *options)
