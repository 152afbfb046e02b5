#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How converted models chat: how 20 fixed prompts end, and how near their next
tokens are to the dense model's, on held-out text and on dialogue in the chat
template.

The dialogue is the dense model's own answers to the prompts, template and
special tokens included; it is written once, as template.jsonl beside the texts.
"""

import argparse
import collections
import json
import os

import common

# SmolLM2-135M-Instruct ends its greedy answer to each within 400 tokens, so
# that an answer that does not end is the conversion's doing.
PROMPTS = [
    "What is the capital of France?",
    "What is 17 plus 26?",
    "What is the opposite of brave?",
    "Which planet is the largest?",
    "How many days has February?",
    "Translate 'good morning' into French.",
    "Is a tomato a fruit?",
    "What colour do blue and yellow make?",
    "Write one sentence about a lighthouse.",
    "What does a librarian do?",
    "How many legs does a spider have?",
    "What is the boiling point of water?",
    "Name a musical instrument with strings.",
    "What is the past tense of 'go'?",
    "Which ocean is the deepest?",
    "What is a synonym of 'happy'?",
    "How many minutes are in an hour?",
    "What is the chemical symbol of gold?",
    "Which animal says 'moo'?",
    "What do plants need to grow?",
]


# A small model that is a little worse repeats itself where it is greedy.
PENALTY = "--repetition-penalty=1.1"


def answers(model, count, *options):
    result = common.stem_run(
        "generate", model, "--chat", "--greedy", f"-n{count}", *options,
        *(f"--prompt={prompt}" for prompt in PROMPTS))
    return result["sequences"]


def ended(entry, key):
    return f"{collections.Counter(entry[key])['end']} of {len(PROMPTS)}"


def byte_of_character():
    """The bytes that a byte-level vocabulary writes as characters: those that
    print stand for themselves, the others follow from 256 on."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    table = {chr(byte): byte for byte in printed}
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table


def decoder(model):
    """Ids to text, special tokens spelled, for a byte-level tokenizer."""
    with open(os.path.join(model, "tokenizer.json"),
              encoding="utf-8") as file:
        tokenizer = json.load(file)
    table = byte_of_character()
    pieces = {index: bytes(table[c] for c in token)
              for token, index in tokenizer["model"]["vocab"].items()
              if all(c in table for c in token)}
    pieces.update({token["id"]: token["content"].encode()
                   for token in tokenizer["added_tokens"]})
    return lambda ids: b"".join(pieces[i] for i in ids).decode(
        errors="replace")


def template_text(dense, sequences):
    path = os.path.join(common.FOLDER, "template.jsonl")
    if not os.path.exists(path):
        decode = decoder(dense)
        with open(path, "w", encoding="utf-8") as file:
            for sequence in sequences:
                text = decode(sequence["prompt_ids"] + sequence["ids"])
                file.write(json.dumps({"text": text}) + "\n")
    return path


def nearness(model, dense, *options):
    result = common.stem_run("eval", model, f"--against={dense}", *options)
    return {key: result[key] for key in ("mean_kl", "top1_agreement",
                                         "perplexity_ratio")}


def row(name, entry):
    cells = [name, ended(entry, "finish"), ended(entry, "finish_penalized")]
    for kind in ("plain", "template"):
        near = entry.get(kind)
        cells += ([f"{100 * near['top1_agreement']:.1f} %",
                   f"{near['mean_kl']:.3f}"] if near else ["", ""])
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("dense", help="the dense model, a folder")
    parser.add_argument("models", nargs="*", help="converted folders")
    parser.add_argument("-n", type=int, default=400,
                        help="tokens of an answer at most")
    parser.add_argument("--no-plain", action="store_true",
                        help="leave the held-out text out, which takes minutes")
    options = parser.parse_args()
    path = os.path.join(common.FOLDER, "chat.jsonl")
    print(f"| model | ended | ended, {PENALTY[2:]} | top-1, plain "
          "| KL, plain | top-1, template | KL, template |")
    print("|" + " --- |" * 7)
    template = None
    for model in [options.dense, *options.models]:
        sequences = answers(model, options.n, "--repetition-penalty=1")
        entry = {"model": model, "n": options.n,
                 "finish": [sequence["finish"] for sequence in sequences],
                 "finish_penalized": [
                     sequence["finish"] for sequence in
                     answers(model, options.n, PENALTY)],
                 "answers": [sequence["text"] for sequence in sequences]}
        if model == options.dense:
            template = template_text(model, sequences)
        else:
            if not options.no_plain:
                entry["plain"] = nearness(
                    model, options.dense,
                    *(f"--text={common.text(register, 'held')}"
                      for register in common.IN_DOMAIN))
            entry["template"] = nearness(model, options.dense, "--special",
                                         f"--text={template}")
        with open(path, "a") as file:
            file.write(json.dumps(entry) + "\n")
        print(row(os.path.basename(model.rstrip("/")), entry), flush=True)


if __name__ == "__main__":
    main()
