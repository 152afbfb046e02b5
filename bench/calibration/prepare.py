#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the texts that conversions are fitted to and judged on.

Four registers out of Debian packages, which are downloaded with apt-get and
unpacked below the output folder; nothing is installed. A document is on one
side of the split only. Before the split, a paragraph that occurred before in
any register is removed; after it, so is every calibration paragraph that shares
a run of words with held-out text.
"""

import argparse
import glob
import hashlib
import json
import os
import subprocess
import sys

import common
import corpus

PACKAGES = ["anarchism", "wordnet-base", "bible-kjv-text", "bible-kjv"]
# How a register is read, and what separates a document's paragraphs.
REGISTERS = {"faq": (corpus.faq, "\n\n"), "pydoc": (corpus.pydoc, "\n\n"),
             "wordnet": (corpus.wordnet, "\n"), "kjv": (corpus.kjv, "\n")}
OUT_OF_DOMAIN = {"kjv"}
# Of a held-out and of a calibration file; 50,000 tokens are about 220,000.
CHARACTERS = {"held": 280_000, "fit": 1_200_000, "judge": 280_000}
LEAST_CHARACTERS = 1000  # of a document without repeats
RUN_WORDS = 13


def unpack(folder):
    """The packages' files below folder/root; name and version of each."""
    manual = subprocess.run(["apt-cache", "depends", "python3-doc"],
                            stdout=subprocess.PIPE, text=True).stdout
    names = PACKAGES + [line.split()[-1] for line in manual.splitlines()
                        if "Depends: python3" in line]
    os.makedirs(folder, exist_ok=True)
    missing = [name for name in names
               if not glob.glob(os.path.join(folder, f"{name}_*.deb"))]
    if missing and subprocess.run(["apt-get", "download", *missing],
                                  cwd=folder).returncode != 0:
        print("prepare.py: apt-get cannot download " + ", ".join(missing)
              + ": this needs Debian and its archive", file=sys.stderr)
        sys.exit(77)
    versions = {}
    for name in names:
        package = glob.glob(os.path.join(folder, f"{name}_*.deb"))[0]
        subprocess.run(["dpkg-deb", "-x", package,
                        os.path.join(folder, "root")], check=True)
        versions[name] = subprocess.run(
            ["dpkg-deb", "-f", package, "Version"], check=True,
            stdout=subprocess.PIPE, text=True).stdout.strip()
    return versions


def without_repeats(registers):
    """Every paragraph stays where it is first; how many went."""
    seen, removed = set(), 0
    for documents in registers.values():
        for document in documents:
            kept = []
            for paragraph in document.paragraphs:
                key = " ".join(paragraph.split())
                if key not in seen:
                    kept.append(paragraph)
                seen.add(key)
            removed += len(document.paragraphs) - len(kept)
            document.paragraphs[:] = kept
    return removed


def split(register, documents, seed):
    """The documents of each part, in an order that depends on the seed and
    their names alone."""
    order = sorted(documents, key=lambda document: hashlib.sha256(
        f"{seed} {register} {document.name}".encode()).digest())
    parts = {}
    for kind, budget in CHARACTERS.items():
        part, size = [], 0
        while order and size < budget:
            document = order.pop(0)
            characters = sum(map(len, document.paragraphs))
            if characters >= LEAST_CHARACTERS:
                part.append(document)
                size += characters
        parts[kind] = part
    return parts


def runs(paragraph):
    words = paragraph.lower().split()
    return {hash(tuple(words[i:i + RUN_WORDS]))
            for i in range(len(words) - RUN_WORDS + 1)}


def remove_shared_runs(documents, others):
    """Removes paragraphs that share RUN_WORDS words in a row with another
    document; how many went."""
    known, removed = set(), 0
    for document in others:
        for paragraph in document.paragraphs:
            known |= runs(paragraph)
    for document in documents:
        kept = [paragraph for paragraph in document.paragraphs
                if not runs(paragraph) & known]
        removed += len(document.paragraphs) - len(kept)
        document.paragraphs[:] = kept
    return removed


def write(path, documents, separator):
    lines = [json.dumps({"id": document.name,
                         "text": separator.join(document.paragraphs) + "\n"},
                        ensure_ascii=False)
             for document in documents if document.paragraphs]
    content = ("\n".join(lines) + "\n").encode()
    with open(path, "wb") as file:
        file.write(content)
    texts = [json.loads(line)["text"] for line in lines]
    return {"documents": len(texts), "characters": sum(map(len, texts)),
            "words": sum(len(text.split()) for text in texts),
            "sha256": hashlib.sha256(content).hexdigest()}


def is_unused(register, kind):
    return kind == "fit" and register in OUT_OF_DOMAIN


def documents_of(parts, kind):
    return [document for register, kinds in parts.items()
            if not is_unused(register, kind) for document in kinds[kind]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", metavar="DIR", default=common.FOLDER,
                        help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the split")
    options = parser.parse_args()
    packages = os.path.join(options.out, "packages")
    manifest = {"seed": options.seed, "packages": unpack(packages)}
    root = os.path.join(packages, "root")
    registers = {name: list(read(root))
                 for name, (read, _) in REGISTERS.items()}
    manifest["repeated_paragraphs_removed"] = without_repeats(registers)
    parts = {name: split(name, documents, options.seed)
             for name, documents in registers.items()}
    held = documents_of(parts, "held")
    fit = documents_of(parts, "fit")
    judge = documents_of(parts, "judge")
    manifest["calibration_paragraphs_removed"] = remove_shared_runs(fit, held)
    manifest["judge_paragraphs_removed"] = remove_shared_runs(judge, held + fit)
    manifest["files"] = {}
    for name, kinds in parts.items():
        for kind, part in kinds.items():
            if is_unused(name, kind):
                continue
            file = f"{name}.{kind}.jsonl"
            counts = write(os.path.join(options.out, file), part,
                           REGISTERS[name][1])
            manifest["files"][file] = counts
            print(f"{file}: {counts['documents']} documents, "
                  f"{counts['words']} words, {counts['characters']} characters")
    with open(os.path.join(options.out, "manifest.json"), "w") as file:
        json.dump(manifest, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
