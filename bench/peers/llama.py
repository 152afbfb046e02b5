#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SmolLM2-135M in llama.cpp: perplexity beside ours and transformers', prefill
and decode in turns with stem-run as in speed.py.

Equal bits per weight: the GGUF file's values as a BF16 file for llama.cpp and
as a bf16 folder for stem-run. The GGUF file as it is (Q4_1) has less than a
third of the bits and is there for information."""

import json
import math
import os
import sys

import numpy
import torch
from llama_cpp import llama_cpp as api
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import accuracy
import common
import llama_gguf
import report
import speed
from llama_worker import Session

CHUNK = 512  # tokens whose logits are held at a time
# What decides its kernels: the processor's name for it and llama.cpp's.
INSTRUCTIONS = {"avx2": "AVX2", "avx512f": "AVX512",
                "avx512_bf16": "AVX512_BF16"}


def gguf_file(dtype):
    path = os.path.join(common.RESULTS, f"smollm2-{dtype}.gguf")
    if not os.path.exists(path):
        llama_gguf.write(common.GGUF, path + ".part", dtype)
        os.replace(path + ".part", path)
    return path


def chunk_losses(logits, labels):
    logits = logits.astype(numpy.float64)
    largest = logits.max(axis=1)
    logits -= largest[:, None]
    chosen = logits[numpy.arange(len(labels)), labels]
    return (numpy.log(numpy.exp(logits).sum(axis=1)) - chosen).sum()


def perplexity(session, ids):
    """In the windows of accuracy.window_losses."""
    total = 0.0
    for begin in range(0, len(ids) - 1, accuracy.CONTEXT):
        end = min(begin + accuracy.CONTEXT, len(ids) - 1)
        session.forget()
        for first in range(begin, end, CHUNK):
            last = min(first + CHUNK, end)
            logits = session.all_logits(ids[first:last], first - begin)
            total += chunk_losses(logits, ids[first + 1:last + 1])
    return math.exp(total / (len(ids) - 1))


def their_perplexities(file, texts, f32_cache=False):
    """llama.cpp's for {name: ids}."""
    session = Session(file, accuracy.CONTEXT, common.THREADS, f32_cache)
    values = {name: perplexity(session, ids) for name, ids in texts.items()}
    session.close()
    return values


def our_perplexities(dtype, paths):
    evaluated = common.stem_run(
        "eval", common.imported(dtype), f"--dtype={dtype}",
        f"--ctx={accuracy.CONTEXT}", *(f"--text={p}" for p in paths.values()))
    return {name: entry["perplexity"]
            for name, entry in zip(paths, evaluated["files"])}


def transformers_perplexities(texts):
    model = AutoModelForCausalLM.from_pretrained(
        common.imported("f32"), dtype=torch.float32).eval()
    with torch.inference_mode():
        return {name: math.exp(accuracy.window_losses(model, ids)
                               / (len(ids) - 1))
                for name, ids in texts.items()}


def compare_tokens(results, paths, texts):
    session = Session(common.GGUF, accuracy.CONTEXT, common.THREADS)
    different = sum(session.tokenize(common.read_text(path)) != texts[name]
                    for name, path in paths.items())
    session.close()
    results.add(f"llama.cpp: texts with other ids than transformers, of "
                f"{len(texts)}", different, how="llama_tokenize")


def compare_perplexity(results, paths):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(
        common.imported("f32"), "tokenizer.json"))
    texts = {name: tokenizer(common.read_text(path),
                             split_special_tokens=True)["input_ids"]
             for name, path in paths.items()}
    compare_tokens(results, paths, texts)
    transformers = transformers_perplexities(texts)
    f32, bf16 = (our_perplexities(dtype, paths) for dtype in ("f32", "bf16"))
    for kind, ours, theirs in (
            ("F32", f32, their_perplexities(gguf_file("f32"), texts, True)),
            ("BF16", bf16, their_perplexities(gguf_file("bf16"), texts)),
            ("Q4_1", f32, their_perplexities(common.GGUF, texts))):
        for name in paths:
            results.add(
                f"perplexity {name} ({len(texts[name])} tokens), llama.cpp "
                f"{kind}, difference", abs(theirs[name] / ours[name] - 1),
                how="bench/peers/llama.py", ours=ours[name],
                transformers=transformers[name], llama=theirs[name])


def llama_side(name, file, plan):
    here = os.path.dirname(os.path.abspath(__file__))
    return speed.Side(name, [
        sys.executable, os.path.join(here, "llama_worker.py"), file,
        f"--prompt-tokens={plan.prompt}",
        f"--decode-tokens={speed.DECODE_TOKENS}",
        f"--threads={common.THREADS}"])


def refuse_slow_build():
    """A llama.cpp without instructions that ours uses is no peer."""
    system = api.llama_print_system_info().decode()
    _, flags = report.processor()
    missing = [name for flag, name in INSTRUCTIONS.items()
               if flag in flags and f" {name} = 1" not in system]
    if missing:
        sys.exit(f"llama.cpp was built without {', '.join(missing)}, which this "
                 f"processor has. It says: {system}")
    return system


def compare_speed(results, plan, kind, file, target=None):
    ours = speed.our_side(f"ours-{kind}", common.imported("bf16"), plan)
    # Alone: it measures the machine when it starts.
    ours.measure("prefill")
    theirs = llama_side(f"llama-{kind}", file, plan)
    speed.measure_in_turns("decode", [ours, theirs], plan.pairs,
                           plan.decode_seconds)
    speed.measure_in_turns("prefill", [ours, theirs], plan.pairs,
                           plan.prefill_seconds)
    described = json.loads(theirs.close())
    # It measures the machine again at the end, alone.
    measured = json.loads(ours.close())
    read = measured["models"][0]["decode_share_of_read_bandwidth"]
    speed.add_ratio(results, f"decode bf16 dense / llama.cpp {kind}", ours,
                    theirs, speed.DECODE_TOKENS, target,
                    ("read bandwidth", read, None))
    speed.add_ratio(results, f"prefill {plan.prompt} bf16 dense / llama.cpp "
                    f"{kind}", ours, theirs, plan.prompt)
    return {"ours": measured, "llama": described}


def main():
    args = common.arguments(__doc__, speeds=True).parse_args()
    torch.set_num_threads(common.THREADS)
    results = common.Results("llama")
    system = refuse_slow_build()
    prompt, pairs = (512, speed.LEAST_PAIRS) if args.quick else (2048, 15)
    bench = {
        "BF16": compare_speed(
            results, speed.Plan("bf16", prompt, pairs, 90, 60), "BF16",
            gguf_file("bf16"), 1),
        "Q4_1": compare_speed(
            results, speed.Plan("bf16", prompt, pairs, 30, 30), "Q4_1",
            common.GGUF)}
    # They stay, should the rest be stopped.
    results.write(system=system, bench=bench)
    compare_perplexity(results, common.texts(12_000 if args.quick else 32_000))
    met = results.write(system=system, bench=bench)
    sys.exit(1 if args.strict and not met else 0)


if __name__ == "__main__":
    main()
