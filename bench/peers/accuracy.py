#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SmolLM2-135M: the same tokens, perplexity, logits and greedy continuations as
the transformers library gives on the same folder."""

import math
import os
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import common

CONTEXT = 2048
PROMPTS = [
    "Once upon a time",
    "The capital of France is",
    "def fibonacci(n):\n",
    "In the beginning God created the heaven and the earth.",
    "Water boils at a temperature of",
]
# What regular text does not show: other scripts, digits, spaces, control.
SAMPLES = [
    "naïve café — 東京 Привет 🙂👩‍👩‍👧 \u200b x",
    "  two  spaces\t\ttabs\r\nCRLF\n\n\n", "1234567890 3.14e-10 v1.2.3",
    "don't WE'LL I'm 'sword", "e\u0301 é ﬁ Ⅷ ½", "<|im_start|>", "",
    "a" * 300, "for(i=0;i<n;++i){x[i]+=y[i];}",
]


def window_losses(model, ids):
    """-log p of every token but the first, in windows of CONTEXT tokens."""
    total = 0.0
    for begin in range(0, len(ids) - 1, CONTEXT):
        end = min(begin + CONTEXT, len(ids) - 1)
        logits = model(torch.tensor([ids[begin:end]])).logits[0].float()
        labels = torch.tensor(ids[begin + 1:end + 1])
        total += torch.nn.functional.cross_entropy(
            logits, labels, reduction="none").double().sum().item()
    return total


def compare_tokens(results, tokenizer, model_folder, paths):
    """One prompt for each piece, so that none exceeds the context."""
    pieces = list(SAMPLES)
    for path in paths.values():
        text = common.read_text(path)
        pieces += [text[i:i + 8000] for i in range(0, len(text), 8000)]
    pieces = [piece for piece in pieces if piece]
    # No token is wanted, but each prompt takes its place in the cache.
    ours = []
    for i in range(0, len(pieces), 4):
        result = common.stem_run(
            "generate", model_folder, "-n0", "--dtype=bf16",
            *(f"--prompt={piece}" for piece in pieces[i:i + 4]))
        sequences = result.get("sequences", [result])
        ours += [sequence["prompt_ids"] for sequence in sequences]
    theirs = [tokenizer(piece, split_special_tokens=True)["input_ids"]
              for piece in pieces]
    different = sum(a != b for a, b in zip(ours, theirs))
    results.add(f"tokenizer: texts with other ids, of {len(pieces)} "
                f"({sum(map(len, theirs))} tokens)", different, "0",
                different == 0,
                "stem-run generate -n0 against PreTrainedTokenizerFast")


def compare_perplexity(results, model, tokenizer, folder, paths, prefix=""):
    evaluated = common.stem_run("eval", folder, "--dtype=f32",
                                f"--ctx={CONTEXT}",
                                *(f"--text={p}" for p in paths.values()))
    for name, entry in zip(paths, evaluated["files"]):
        ids = tokenizer(common.read_text(paths[name]),
                        split_special_tokens=True)["input_ids"]
        same = entry["scored_tokens"] == len(ids) - 1
        theirs = math.exp(window_losses(model, ids) / (len(ids) - 1))
        gap = abs(entry["perplexity"] / theirs - 1)
        results.add(f"{prefix}perplexity f32, {name} ({len(ids)} tokens), "
                    "difference", gap, "at most 5e-4", gap <= 5e-4 and same,
                    "stem-run eval --dtype=f32 --ctx=2048",
                    ours=entry["perplexity"], transformers=theirs,
                    tokens=len(ids), our_tokens=entry["tokens"])
    return {f["file"]: f["perplexity"] for f in evaluated["files"]}


def compare_bf16(results, folder, paths, f32):
    """What rounding costs: the weights once, products' operands always."""
    evaluated = common.stem_run("eval", folder, "--dtype=bf16",
                                f"--ctx={CONTEXT}",
                                *(f"--text={p}" for p in paths.values()))
    for name, entry in zip(paths, evaluated["files"]):
        gap = abs(entry["perplexity"] / f32[entry["file"]] - 1)
        results.add(f"perplexity bf16 against f32, {name}, difference", gap,
                    "at most 1e-2", gap <= 1e-2, "stem-run eval --dtype=bf16",
                    ours=entry["perplexity"])


def our_logits(folder, ids, *options):
    source = os.path.join(common.RESULTS, "ids.safetensors")
    target = os.path.join(common.RESULTS, "logits.safetensors")
    save_file({"input_ids": ids.contiguous()}, source)
    common.stem_run("eval", folder, f"--input-ids={source}",
                    f"--logits-out={target}", "--force", *options)
    with safe_open(target, "pt") as file:
        return file.get_tensor("logits")


def compare_logits(results, model, tokenizer, folder, paths):
    rows = [tokenizer(common.read_text(path))["input_ids"][:128]
            for path in list(paths.values())[:2]]
    ids = torch.tensor(rows)
    ours = our_logits(folder, ids, "--dtype=f32")
    theirs = model(ids).logits.float()
    gap = (ours - theirs).abs().max().item()
    largest = theirs.abs().max().item()
    results.add("logits f32 [2, 128], largest difference relative to the "
                "largest logit", gap / largest, "at most 1e-4",
                gap / largest <= 1e-4,
                "stem-run eval --input-ids --logits-out --dtype=f32",
                absolute=gap, largest_logit=largest)


def continuation(model, tokenizer, prompt, count):
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    made = model.generate(ids, attention_mask=torch.ones_like(ids),
                          do_sample=False, max_new_tokens=count)
    return made[0, ids.shape[1]:].tolist()


def without_end(ids, tokenizer_end=2):
    return ids[:-1] if ids and ids[-1] == tokenizer_end else ids


def compare_greedy(results, model, tokenizer, folder):
    result = common.stem_run("generate", folder, "--dtype=f32", "-n30",
                             *(f"--prompt={prompt}" for prompt in PROMPTS))
    same, count = 0, 0
    for prompt, ours in zip(PROMPTS, result["sequences"]):
        theirs = continuation(model, tokenizer, prompt, 30)
        equal = without_end(ours["ids"]) == without_end(theirs)
        same += equal
        count += len(theirs)
        if not equal:
            print(f"  {prompt!r}\n  ours   {ours['ids']}\n  theirs {theirs}")
    results.add(f"greedy f32: equal continuations of {len(PROMPTS)} prompts "
                f"({count} tokens)", same, f"{len(PROMPTS)}",
                same == len(PROMPTS), "stem-run generate -n30 --dtype=f32")


def main():
    args = common.arguments(__doc__).parse_args()
    torch.set_num_threads(common.THREADS)
    results = common.Results("accuracy")
    paths = common.texts(12_000 if args.quick else 32_000)
    folder = common.imported("f32")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(folder, "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    with torch.inference_mode():
        compare_tokens(results, tokenizer, common.imported("bf16"), paths)
        f32 = compare_perplexity(results, model, tokenizer, folder, paths)
        compare_bf16(results, common.imported("bf16"), paths, f32)
        compare_logits(results, model, tokenizer, folder, paths)
        compare_greedy(results, model, tokenizer, folder)
    sys.exit(0 if results.write() else 1)


if __name__ == "__main__":
    main()
