#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the reference ids of the tokenizer tests with the `tokenizers` package.

  make_golden.py synthetic       writes the small tokenizers beside this script
                                 and NAME_golden.json for each
  make_golden.py file IN OUT     writes OUT for the tokenizer.json IN
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent

TEXTS = [
    "",
    " ",
    "Hello, world!  Is this it?",
    "def f(x):\n\treturn x**2  # a comment\n\n\n",
    "  \n  \t x   ",
    "a" * 70,
    " " * 70,
    "\n" * 20,
    "ab" * 30,
    "12 345 6789 ½ ² Ⅷ ٣٤ 3.14159e-10",
    "🙂👩‍👩‍👧‍👦🇩🇪 flag",
    "naïve café e\u0301\u0323 ﬁ Å",
    "a\u0315\u0300\u05ae\u0301b",
    "ⒶⒷ 𝒳 ﷽ x\u200cy",
    "İstanbul ſ don'ſ",
    "\u00a0nbsp\u3000wide\u1680ogham\u180emvs\u0085nel",
    "don't DON'T we'LL they're",
    "x_y __init__ a-b $5 <tag>",
    "ก็ คำ ไทย देवनागरी हिन्दी",
    "العربية עברית",
    "日本語テキスト、한국어",
    "\u0001\u007f\ufeff",
    "www.example.com/path?q=1&b=2",
    "\r\n\r\n  \r x\r\n",
    "▁▁ x▁y  ▁",
    "<0x0A> <0xE2>",
    "the then and in the end",
    "tail   ",
    "   lead",
    "<s>hello</s> <s> world",
    "say<tool> now <tool>!",
    "a <pad>  b<pad>c <word> sword<word>s",
    "ÀÉ <Norm> <norm> ＜norm＞",
    "<|im_start|>user\nHi<|im_end|>",
]

CORPUS = [
    "the quick brown fox jumps over the lazy dog and then the end of it",
    "in the beginning there was a word, and the word was with the thing",
    "hello world! hello there, hello again. don't they're we'll",
    "a naïve café and a résumé; über straße; 日本語 and 한국어",
    "def f(x): return x**2 12 123 1234 2024 3.14",
    "aaaa bbbb abab abab   two  spaces   three",
] * 4


def added(id, content, **flags):
    token = dict(id=id, content=content, single_word=False, lstrip=False,
                 rstrip=False, normalized=False, special=False)
    token.update(flags)
    return token


def cases(tokenizer, decodes=True):
    result = []
    for text in TEXTS:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text).ids
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        raw = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids}
        # The others are written where they differ.
        if plain != ids:
            case["plain_ids"] = plain
        if raw != plain:
            case["raw_ids"] = raw
        if decodes:
            shown = tokenizer.decode(ids)
            everything = tokenizer.decode(ids, skip_special_tokens=False)
            case["decoded"] = shown
            if everything != shown:
                case["decoded_with_special"] = everything
        result.append(case)
    return result


def write(path, value):
    lines = json.dumps(value, ensure_ascii=True, indent=None,
                       separators=(",", ":"))
    for mark in ('{"text"', '{"name"', '"cases":', '"changes":', '"model":',
                 '"merges":'):
        lines = lines.replace(mark, "\n" + mark)
    path.write_text(lines + "\n")


def train(pre_tokenizer, size, specials, alphabet=()):
    tokenizer = Tokenizer(models.BPE(unk_token=specials[0]))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials,
                                  initial_alphabet=list(alphabet),
                                  show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())


def byte_level():
    """Byte level, merges as lists, NFC, a begin token, flags of added tokens."""
    data = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 420, ["<s>"],
                 pre_tokenizers.ByteLevel.alphabet())
    data["model"]["unk_token"] = None
    data["model"]["ignore_merges"] = True
    # Reachable through ignore_merges only.
    vocab = data["model"]["vocab"]
    for token in ("Ġ<tag", "Ġexample"):
        vocab[token] = len(vocab)
    data["normalizer"] = {"type": "NFC"}
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {
            "Regex": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
                     r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                     r"\s+(?!\S)|\s+"}},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
         "use_regex": False}]}
    data["decoder"] = {"type": "ByteLevel", "add_prefix_space": True,
                       "trim_offsets": True, "use_regex": True}
    data["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
         "use_regex": True},
        {"type": "TemplateProcessing",
         "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                  {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<s>": {"id": "<s>", "ids": [0],
                                    "tokens": ["<s>"]}}}]}
    data["added_tokens"] = [
        added(0, "<s>", special=True),
        added(len(vocab), "<tool>", rstrip=True, special=True),
        added(len(vocab) + 1, "</s>", lstrip=True, special=True),
        added(len(vocab) + 2, "<pad>", lstrip=True, rstrip=True),
        added(len(vocab) + 3, "<word>", single_word=True),
        added(len(vocab) + 4, "é<norm>", normalized=True),
        added(len(vocab) + 5, "<norm>", normalized=True),
    ]
    return data


def sentence_piece():
    """Prepend and Replace, byte fallback, begin and end tokens."""
    data = train(pre_tokenizers.Metaspace(), 260, ["<unk>", "<s>", "</s>"])
    vocab = data["model"]["vocab"]
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    data["model"].update(byte_fallback=True, fuse_unk=True)
    data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    data["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    data["pre_tokenizer"] = None
    data["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    data["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                 {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
            "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}
    return data


def characters():
    """Merges across spaces, so that ids show where a pre-tokenizer cut."""
    data = train(None, 330, ["<unk>", "<s>"])
    data["pre_tokenizer"] = data["normalizer"] = data["decoder"] = None
    data["decoder"] = {"type": "Fuse"}
    data["added_tokens"].append(added(len(data["model"]["vocab"]), "Is",
                                      normalized=True, single_word=True))
    return data


def split(pattern, behavior, invert=False):
    return {"pre_tokenizer": {"type": "Split", "pattern": pattern,
                              "behavior": behavior, "invert": invert}}


def metaspace(scheme, cut):
    part = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme,
            "split": cut}
    return {"pre_tokenizer": part, "decoder": part}


def variants():
    """Changes to characters.json, one component each."""
    for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield kind, {"normalizer": {"type": kind}}
    yield "NFD, StripAccents", {"normalizer": {
        "type": "Sequence",
        "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}}
    for left, right in ((True, False), (False, True), (True, True)):
        yield f"Strip {left} {right}", {"normalizer": {
            "type": "Strip", "strip_left": left, "strip_right": right}}
    yield "Replace by regex", {"normalizer": {
        "type": "Replace", "pattern": {"Regex": r"\s{2,}"}, "content": " "}}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious",
                     "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield (f"Split by regex {behavior} {invert}",
                   split({"Regex": r"\w|\d"}, behavior, invert))
        yield (f"Split by string {behavior}",
               split({"String": "a"}, behavior))
        yield f"Punctuation {behavior}", {"pre_tokenizer": {
            "type": "Punctuation", "behavior": behavior}}
    for pattern in (r"\bt", r"(?<=a)b+", r"[^\w\s]+", r"\W", r"[\d\-]+",
                    r"^\S|\S$", r"\u3042|[ぁ-んァ-ヶ]+", r"a++|.",
                    r"\p{Han}+|\p{Lu}", r"(?i)DON|ſ", r"(?>the|then)x?", "b*"):
        yield f"Split by {pattern}", split({"Regex": pattern}, "Isolated")
    for individual in (False, True):
        yield f"Digits {individual}", {"pre_tokenizer": {
            "type": "Digits", "individual_digits": individual}}
    for kind in ("Whitespace", "WhitespaceSplit"):
        yield kind, {"pre_tokenizer": {"type": kind}}
    for scheme in ("always", "first", "never"):
        for cut in (False, True):
            yield f"Metaspace {scheme} {cut}", metaspace(scheme, cut)
    # The reference panics where both ends of a token are the same space.
    for fuse in (False, True):
        yield f"Strip decoder, fused {fuse}", {"decoder": {
            "type": "Sequence", "decoders": [{"type": "Fuse"}] * fuse + [
                {"type": "Strip", "content": " ", "start": 2, "stop": 0}]}}
    yield "Unknown characters fused", {"model": {"fuse_unk": True}}
    yield "No decoder", {"decoder": None}


def main():
    if sys.argv[1:2] == ["file"] and len(sys.argv) == 4:
        tokenizer = Tokenizer.from_file(sys.argv[2])
        write(pathlib.Path(sys.argv[3]), {"cases": cases(tokenizer)})
        return
    if sys.argv[1:] != ["synthetic"]:
        sys.exit(__doc__)
    for make in (byte_level, sentence_piece, characters):
        data = make()
        name = make.__name__
        write(HERE / f"{name}.json", data)
        tokenizer = Tokenizer.from_file(str(HERE / f"{name}.json"))
        write(HERE / f"{name}_golden.json", {"cases": cases(tokenizer)})
    base = characters()
    result = []
    for name, changes in variants():
        changed = {**base, **changes}
        changed["model"] = {**base["model"], **changes.get("model", {})}
        tokenizer = Tokenizer.from_str(json.dumps(changed))
        result.append({"name": name, "changes": changes,
                       "cases": cases(tokenizer, "decoder" in changes)})
    write(HERE / "components_golden.json", {"variants": result})


main()
