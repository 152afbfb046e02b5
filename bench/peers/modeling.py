#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converted folders in the transformers library, through the modeling file that
lies in them: the same logits, perplexity, batches, padding, generation, and
refusals."""

import gc
import json
import os
import shutil
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModelForCausalLM,
                          PreTrainedTokenizerFast)

import accuracy
import common

MODELING = os.path.join(common.ROOT, "tools", "stem-run", "resources",
                        "modeling_stem_llama.py")
# 7 and 11 are special tokens that hardly any text has.
IDS = torch.tensor([[504, 2520, 314, 253, 655, 28, 216, 788] * 4,
                    [19, 18, 4000, 49000, 11, 7, 1234, 42] * 4])


def load(folder, **options):
    return AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, dtype=torch.float32, **options).eval()


def raises(error, function):
    """The error's text where `function` raises it, else None."""
    try:
        function()
    except error as caught:
        return str(caught)
    return None


def relative_gap(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def golden_folder(name="golden-stem", **section):
    """The small reference model as a folder that transformers can load;
    `section`: what changes in config.json's "stem"."""
    folder = os.path.join(common.RESULTS, name)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(common.GOLDEN, "stem_llama"), folder)
    shutil.copy(MODELING, folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["auto_map"] = {
        "AutoConfig": "modeling_stem_llama.StemLlamaConfig",
        "AutoModelForCausalLM": "modeling_stem_llama.StemLlamaForCausalLM"}
    config["stem"].update(section)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    return folder


def check_golden(results):
    folder = golden_folder()
    with safe_open(os.path.join(folder, "golden.safetensors"), "pt") as file:
        golden = {key: file.get_tensor(key) for key in file.keys()}
    model = load(folder)
    logits = model(golden["input_ids"]).logits
    gap = (logits - golden["logits"]).abs().max().item()
    results.add("golden stem_llama: logits, largest difference", gap,
                "at most 1e-5", gap <= 1e-5)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), golden["labels"].flatten(), ignore_index=-100)
    loss.backward()
    gaps = [(parameter.grad - golden[f"grad.{name}"]).abs().max().item()
            for name, parameter in model.named_parameters()]
    results.add(f"golden stem_llama: gradients of {len(gaps)} tensors, "
                "largest difference", max(gaps), "at most 1e-5",
                max(gaps) <= 1e-5)
    with torch.inference_mode():
        made = model.generate(golden["prompt_ids"][None], do_sample=False,
                              max_new_tokens=12, eos_token_id=-1)
    same = made[0, -12:].tolist() == golden["greedy_ids"].tolist()
    results.add("golden stem_llama: greedy ids equal", same, "True", same)
    saved = os.path.join(common.RESULTS, "golden-saved")
    shutil.rmtree(saved, ignore_errors=True)
    model.save_pretrained(saved)
    with torch.inference_mode():
        again = load(saved)(golden["input_ids"]).logits
    same = torch.equal(again, logits)
    results.add("golden stem_llama: saved and loaded again, equal logits",
                same, "True", same)


def check_ranks(results):
    """A rank for each layer, which config.json names in falling order."""
    folder = golden_folder("golden-ranks", layers=[2, 1], rank=[4, 16])
    path = os.path.join(folder, "model.safetensors")
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
    generator = torch.Generator().manual_seed(1)
    for layer, rank in (2, 4), (1, 16):
        mix = f"model.layers.{layer}.mlp.up_mix."
        outputs, inputs = tensors[
            f"model.layers.{layer}.mlp.gate_proj.weight"].shape
        for name, shape in (("a", (outputs, rank)), ("b", (rank, inputs))):
            tensors[f"{mix}{name}.weight"] = torch.randn(
                shape, generator=generator) / 4
    save_file(tensors, path, metadata={"format": "pt"})
    ids = (torch.arange(140) * 7 % 96).reshape(2, 70)
    with torch.inference_mode():
        logits = load(folder)(ids).logits
        plain = load(golden_folder())(ids).logits
    gap = relative_gap(accuracy.our_logits(folder, ids, "--dtype=f32"), logits)
    results.add("ranks 16 and 4: logits f32 relative to the largest, "
                "difference", gap, "at most 1e-5", gap <= 1e-5,
                "stem-run eval --input-ids --logits-out --dtype=f32")
    gap = relative_gap(plain, logits)
    results.add("ranks 16 and 4: the same against rows alone", gap,
                "more than 1e-2", gap > 1e-2)
    for rank in [4], [4, -1], [4, 16.0]:
        said = raises(ValueError, lambda: load(
            golden_folder("golden-refused", rank=rank)))
        refused = said is not None and "stem.rank" in said
        results.add(f"stem.rank {rank} raises", refused, "True", refused,
                    message=said)


def byte_rows(tensors, layer, hot_ids):
    """Turns a table to 8 bits; gives the rows that it stands for then."""
    table = f"model.layers.{layer}.mlp.up_table."
    rows = tensors[table + "weight"]
    minimum = rows.min(1).values
    scale = ((rows.max(1).values.double() - minimum) / 255).float()
    stored = ((rows.double() - minimum[:, None]) / scale[:, None]).round()
    tensors.update({table + "weight": stored.to(torch.uint8),
                    table + "scale": scale, table + "minimum": minimum})
    decoded = (minimum.double()[:, None] +
               scale.double()[:, None] * stored).float()
    if len(hot_ids):
        tensors[table + "hot_ids"] = hot_ids.to(torch.int32)
        tensors[table + "hot_rows"] = decoded[hot_ids] = rows[hot_ids]
    return decoded


def check_byte_rows(results):
    """Rows of 8 bits, in one layer with some at full precision."""
    folder = golden_folder("golden-bytes", row_dtype="uint8")
    path = os.path.join(folder, "model.safetensors")
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
    wanted = {1: byte_rows(tensors, 1, torch.arange(0, 96, 7)),
              2: byte_rows(tensors, 2, torch.empty(0, dtype=torch.int64))}
    save_file(tensors, path, metadata={"format": "pt"})
    ids = (torch.arange(140) * 7 % 96).reshape(2, 70)
    every = torch.arange(96)
    with torch.inference_mode():
        model = load(folder)
        logits = model(ids).logits
        plain = load(golden_folder())(ids).logits
        same = all(torch.equal(model.model.layers[layer].mlp.up_table(every),
                               rows) for layer, rows in wanted.items())
    results.add("8-bit rows: decoded as Stem does it", same, "True", same)
    gap = relative_gap(accuracy.our_logits(folder, ids, "--dtype=f32"), logits)
    results.add("8-bit rows: logits f32 relative to the largest, difference",
                gap, "at most 1e-5", gap <= 1e-5,
                "stem-run eval --input-ids --logits-out --dtype=f32")
    gap = relative_gap(plain, logits)
    results.add("8-bit rows: the same against full rows", gap,
                "1e-5 to 1e-1", 1e-5 <= gap <= 1e-1)
    saved = os.path.join(common.RESULTS, "golden-saved")
    shutil.rmtree(saved, ignore_errors=True)
    model.save_pretrained(saved)
    with torch.inference_mode():
        again = load(saved)(ids).logits
    same = torch.equal(again, logits)
    results.add("8-bit rows: saved and loaded again, equal logits", same,
                "True", same)
    narrow = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, dtype=torch.bfloat16)
    table = narrow.model.layers[1].mlp.up_table
    same = (torch.equal(table.scale, tensors["model.layers.1.mlp.up_table.scale"])
            and table.weight.dtype == torch.uint8)
    results.add("8-bit rows: loaded as bf16, scales in f32", same, "True", same)


def check_logits(results, model, folder, name):
    ours = accuracy.our_logits(folder, IDS, "--dtype=f32")
    gap = relative_gap(ours, model(IDS).logits)
    results.add(f"{name}: logits f32 relative to the largest, difference", gap,
                "at most 2e-3", gap <= 2e-3,
                "stem-run eval --input-ids --logits-out --dtype=f32")


def check_perplexity(results, model, folder, name):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(folder, "tokenizer.json"))
    accuracy.compare_perplexity(results, model, tokenizer, folder,
                                common.texts(12_000), prefix=f"{name}: ")


def fed_lengths(model, prompt, options):
    """Tokens that the decoder sees at once during generate."""
    lengths = set()
    hook = model.model.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.add(kwargs["input_ids"].shape[1]),
        with_kwargs=True)
    model.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None],
                   **options)
    hook.remove()
    return lengths


def check_use(results, model, folder, name):
    """Batches, padding on the left, generation, and what must raise."""
    both = model(IDS).logits
    gap = max(relative_gap(both[b:b + 1], model(IDS[b:b + 1]).logits)
              for b in range(2))
    results.add(f"{name}: batch of 2 against single rows, difference", gap,
                "at most 1e-5", gap <= 1e-5)

    short, pad = IDS[1, :20], 6
    padded = torch.stack([IDS[0, :20 + pad],
                          torch.cat([torch.full((pad,), 2), short])])
    mask = torch.ones_like(padded)
    mask[1, :pad] = 0
    options = {"do_sample": False, "max_new_tokens": 12, "min_new_tokens": 12}
    made = model.generate(padded, attention_mask=mask, **options)[:, -12:]
    singles = torch.cat([
        model.generate(row[None], attention_mask=torch.ones_like(row)[None],
                       **options)[:, -12:] for row in (padded[0], short)])
    same = torch.equal(made, singles)
    results.add(f"{name}: generate with left padding equals single prompts",
                same, "True", same)
    lengths = fed_lengths(model, short, options)
    results.add(f"{name}: generate feeds one token after the prompt",
                lengths == {20, 1}, "True", lengths == {20, 1})
    uncached = model.generate(short[None], use_cache=False, **options,
                              attention_mask=torch.ones_like(short)[None])
    same = torch.equal(uncached[:, -12:], singles[1:])
    results.add(f"{name}: generate without the cache gives the same ids", same,
                "True", same)
    ours = common.stem_run(
        "generate", folder, "--dtype=f32", "-n12", "--ignore-end",
        "--prompt-ids=" + ",".join(map(str, short.tolist())))["ids"]
    theirs = model.generate(short[None], do_sample=False, max_new_tokens=12,
                            attention_mask=torch.ones_like(short)[None],
                            eos_token_id=-1)[0, -12:].tolist()
    results.add(f"{name}: greedy ids equal those of stem-run",
                ours == theirs, "True", ours == theirs,
                "stem-run generate -n12 --dtype=f32")

    embedded = model.get_input_embeddings()(IDS)
    for what, call in (
            ("inputs_embeds alone", lambda: model(inputs_embeds=embedded)),
            ("generate from inputs_embeds",
             lambda: model.generate(inputs_embeds=embedded,
                                    max_new_tokens=1))):
        said = raises(ValueError, call)
        results.add(f"{name}: {what} raises", said is not None, "True",
                    said is not None, message=said)


def check_penalty(results, model, folder, name):
    """The repetition penalty that generation_config.json has from a calibrated
    conversion, in f32 on both sides."""
    count, prompt = 48, IDS[0, :20]
    declared = model.generation_config.repetition_penalty
    results.add(f"{name}: repetition penalty that transformers reads", declared,
                "1.1", declared == 1.1)
    options = {"do_sample": False, "max_new_tokens": count, "eos_token_id": -1,
               "attention_mask": torch.ones_like(prompt)[None]}
    theirs = model.generate(prompt[None], **options)[0, -count:].tolist()
    without = model.generate(prompt[None], repetition_penalty=1.0,
                             **options)[0, -count:].tolist()
    ours = common.stem_run(
        "generate", folder, "--dtype=f32", f"-n{count}", "--ignore-end",
        "--prompt-ids=" + ",".join(map(str, prompt.tolist())))["ids"]
    results.add(f"{name}: greedy ids with the penalty equal those of stem-run",
                ours == theirs, "True", ours == theirs,
                f"stem-run generate -n{count} --dtype=f32")
    results.add(f"{name}: ids without the penalty are others",
                without != theirs, "True", without != theirs)


def check_refusal(results, folder, name):
    """Without remote code there is no model, rather than one of random rows."""
    for loader in (AutoConfig, AutoModelForCausalLM):
        said = raises(ValueError, lambda: loader.from_pretrained(
            folder, trust_remote_code=False))
        results.add(f"{name}: {loader.__name__} without remote code refuses",
                    said is not None, "True", said is not None, message=said)


def selected():
    """The "mixed" folder whose layers keep the up-projection for a third of
    the ids, each for another third."""
    folder = os.path.join(common.RESULTS, "smollm2-select")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(common.converted("mixed"), folder)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["stem"]["select"] = True
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    tensors = {}
    with safe_open(os.path.join(common.imported("bf16"), "model.safetensors"),
                   "pt") as dense:
        for layer in config["stem"]["layers"]:
            mlp = f"model.layers.{layer}.mlp."
            tensors[mlp + "up_proj.weight"] = dense.get_tensor(
                mlp + "up_proj.weight")
            tensors[mlp + "up_select.ids"] = torch.arange(
                layer // 3 % 3, config["vocab_size"], 3)
    save_file(tensors, os.path.join(folder, "stem-select.safetensors"),
              metadata={"format": "pt"})
    path = os.path.join(folder, "model.safetensors.index.json")
    with open(path, encoding="utf-8") as file:
        index = json.load(file)
    index["weight_map"].update(dict.fromkeys(tensors,
                                             "stem-select.safetensors"))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(index, file)
    return folder


INITS = "row-mean", "embedding", "mixed", "select", "special"


def main():
    args = common.arguments(__doc__).parse_args()
    torch.set_num_threads(common.THREADS)
    os.environ.setdefault("HF_MODULES_CACHE",
                          os.path.join(common.RESULTS, "modules"))
    results = common.Results("modeling")
    check_golden(results)
    check_ranks(results)
    check_byte_rows(results)
    for init in INITS[:1] if args.quick else INITS:
        folder = selected() if init == "select" else common.converted(init)
        model = load(folder)
        with torch.inference_mode():
            check_logits(results, model, folder, init)
            if init in ("mixed", "special"):
                check_perplexity(results, model, folder, init)
                check_penalty(results, model, folder, init)
            if init in ("row-mean", "select"):
                check_use(results, model, folder, init)
        check_refusal(results, folder, init)
        del model
        gc.collect()
    for init in INITS[1:]:
        shutil.rmtree(os.path.join(common.RESULTS, f"smollm2-{init}"),
                      ignore_errors=True)
    sys.exit(0 if results.write() else 1)


if __name__ == "__main__":
    main()
