#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""eval, generate and bench: figures against ones worked out here."""

import json
import math
import os
import unittest

from e2e import ModelTest, Tensor, read_tensors, stem_json, stem_run, \
    write_tensors

MASK = 2**32 - 1
TEXT = "In the beginning God created the heaven and the earth. And it was so."


def losses(model, ids, scratch):
    """-log p of every token of `ids` but the first, seen from the start."""
    write_tensors(scratch + ".ids",
                  {"input_ids": Tensor("I64", [1, len(ids)], ids)})
    stem_run("eval", model, f"--input-ids={scratch}.ids",
             f"--logits-out={scratch}.logits", "--force", "--dtype=f32")
    logits = read_tensors(scratch + ".logits")["logits"]
    result = []
    for t, label in enumerate(ids[1:]):
        row = logits.row(t)
        top = max(row)
        result.append(top + math.log(sum(math.exp(v - top) for v in row)) -
                      row[label])
    return result


def philox_uniform(stream, index):
    """Number `index` of the stream under the seed 0, in [0, 1)."""
    counter, key = [index, 0, stream, 0], [0, 0]
    for _ in range(10):
        a, b = 0xd2511f53 * counter[0], 0xcd9e8d57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b & MASK,
                   a >> 32 ^ counter[3] ^ key[1], a & MASK]
        key = [key[0] + 0x9e3779b9 & MASK, key[1] + 0xbb67ae85 & MASK]
    return ((counter[1] << 32 | counter[0]) >> 11) * 2.0**-53


def percentiles(values):
    values = sorted(values)
    result = []
    for share in (0.025, 0.975):
        place = share * (len(values) - 1)
        below = int(place)
        result.append(math.exp(values[below] + (place - below) *
                               (values[below + 1] - values[below])))
    return result


def bootstrap(files):
    """Of files of (difference, tokens): the intervals of the ratio of all, of
    each file's ratio and of their geometric mean."""
    of_all, of_files, of_mean = [], [[] for _ in files], []
    for resample in range(2000):
        draw, sums = 0, []
        for documents in files:
            total = [0, 0]
            for _ in documents:
                place = int(philox_uniform(resample, draw) * len(documents))
                draw += 1
                total = [a + b for a, b in zip(total, documents[place])]
            sums.append(total)
        means = [difference / tokens for difference, tokens in sums]
        for values, mean in zip(of_files, means):
            values.append(mean)
        of_mean.append(sum(means) / len(means))
        of_all.append(sum(s[0] for s in sums) / sum(s[1] for s in sums))
    return (percentiles(of_all), [percentiles(v) for v in of_files],
            percentiles(of_mean))


class EvalTest(ModelTest):
    def text(self, text=TEXT, name="text"):
        return self.write(name, text)

    def ids(self, text=TEXT):
        return stem_json("generate", self.small, f"--prompt={text}", "-n",
                         0)["prompt_ids"]

    def evaluate(self, *options):
        return stem_json("eval", self.small, "--dtype=f32", *options)

    def expected(self, context, stride):
        """Every window computed alone, the protocol spelled out."""
        ids, total, scored, begin = self.ids(), 0.0, 0, 0
        while scored < len(ids) - 1:
            window = ids[begin:begin + context + 1]
            values = losses(self.small, window, self.path("window"))
            total += sum(values[scored - begin:])
            scored = begin + len(values)
            begin += stride
        return total, scored

    def test_windows(self):
        for context, stride in [(256, 256), (16, 16), (16, 5)]:
            with self.subTest(context=context, stride=stride):
                nll, count = self.expected(context, stride)
                result = self.evaluate(f"--text={self.text()}",
                                       f"--ctx={context}",
                                       f"--stride={stride}")
                entry = result["files"][0]
                self.assertEqual(entry["scored_tokens"], count)
                self.assertEqual(count, len(self.ids()) - 1)
                self.assertAlmostEqual(entry["nll"] / nll, 1, delta=1e-5)
                self.assertAlmostEqual(
                    entry["perplexity"] / math.exp(nll / count), 1, delta=1e-4)
                self.assertAlmostEqual(
                    entry["bits_per_byte"],
                    nll / math.log(2) / len(TEXT), delta=1e-4)
                self.assertEqual(result["protocol"]["ctx"], context)
                self.assertEqual(result["protocol"]["stride"], stride)

    def test_standard_error(self):
        values = losses(self.small, self.ids(), self.path("all"))
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
        entry = self.evaluate(f"--text={self.text()}")["files"][0]
        self.assertAlmostEqual(
            entry["perplexity_standard_error"] / entry["perplexity"],
            math.sqrt(variance / len(values)), delta=1e-4)

    def test_files_are_not_joined(self):
        both = self.evaluate(f"--text={self.text(TEXT, 'a')}",
                             f"--text={self.text(TEXT[:20], 'b')}")
        second = self.evaluate(f"--text={self.text(TEXT[:20], 'b')}")
        self.assertAlmostEqual(both["files"][1]["nll"],
                               second["files"][0]["nll"], delta=1e-3)
        self.assertEqual(len(both["files"]), 2)

    def lines(self, name, texts):
        return self.write(name + ".jsonl", "".join(
            json.dumps({"text": text}) + "\n" for text in texts))

    def test_documents_of_json_lines(self):
        texts = [TEXT, TEXT[4:40], TEXT[::-1], "ab"] * 5
        path = self.lines("a", texts)
        for options in [], ["--ctx=16", "--stride=5"]:
            with self.subTest(options=options):
                result = self.evaluate(f"--text={path}",
                                       f"--text={self.text()}", *options)
                lines, plain = result["files"]
                self.assertNotIn("documents", plain)
                self.assertEqual(lines["bytes"], sum(map(len, texts)))
                self.assertEqual(len(lines["documents"]), len(texts))
                for document, text in zip(lines["documents"], texts[:4]):
                    alone = self.evaluate(f"--text={self.text(text)}",
                                          *options)["files"][0]
                    self.assertEqual(document["tokens"],
                                     alone["scored_tokens"])
                    self.assertAlmostEqual(document["nll"] / alone["nll"], 1,
                                           delta=1e-5)
                for key, sum_key in ("tokens", "scored_tokens"), ("nll", "nll"):
                    total = sum(d[key] for d in lines["documents"])
                    self.assertAlmostEqual(total / lines[sum_key], 1,
                                           delta=1e-9)

    def test_bad_json_lines(self):
        good = '{"text": "In the beginning"}\n'
        for content, parts in [
                (good + "{\n", [":2: is no JSON in UTF-8"]),
                (good + '{"txt": "a"}\n', [":2: its object has no string"]),
                ("3\n", [":1: holds no object", '{"text": "..."}']),
                ("", ["holds no document"]),
                (good + good + '{"text": "a"}\n',
                 [":3: gives 1 token; at least 2"])]:
            with self.subTest(content=content):
                path = self.write("bad.jsonl", content)
                self.assert_fails([path, *parts], "eval", self.small,
                                  f"--text={path}")

    def test_bootstrap(self):
        stem = self.path("stem")
        stem_run("convert", self.small, stem, "--layers=1/2",
                 "--init=row-mean")
        texts = [f"--text={self.lines('a', [TEXT[i:] for i in range(12)])}",
                 f"--text={self.lines('b', [TEXT[i:30] for i in range(9)])}"]
        result = stem_json("eval", stem, "--dtype=f32", *texts,
                           f"--against={self.small}")
        files = [[(d["nll"] - d["against_nll"], d["tokens"])
                  for d in file["documents"]] for file in result["files"]]
        of_all, of_files, of_mean = bootstrap(files)
        near = lambda got, wanted: [self.assertAlmostEqual(a, b, delta=1e-9)
                                    for a, b in zip(got, wanted)]
        near(result["perplexity_ratio_interval"], of_all)
        near(result["geometric_mean_ratio_interval"], of_mean)
        for file, interval in zip(result["files"], of_files):
            near(file["perplexity_ratio_interval"], interval)
        ratios = [math.exp(sum(d for d, _ in f) / sum(t for _, t in f))
                  for f in files]
        near([file["perplexity_ratio"] for file in result["files"]], ratios)
        near([result["geometric_mean_ratio"]],
             [math.sqrt(ratios[0] * ratios[1])])
        self.assertEqual((result["interval_unit"], result["interval_method"]),
                         ("document", "bootstrap"))
        # The same losses without --against.
        own = stem_json("eval", stem, "--dtype=f32", *texts)
        for a, b in zip(own["files"], result["files"]):
            for x, y in zip(a["documents"], b["documents"]):
                self.assertAlmostEqual(x["nll"], y["nll"], delta=1e-3)

    def test_protocol_is_printed(self):
        out = stem_run("eval", self.small, f"--text={self.text()}",
                       "--ctx=32").stdout
        self.assertIn("windows of 32 tokens, stride 32, beginning token", out)

    def test_against_itself(self):
        texts = [f"--text={self.text(TEXT[i:], str(i))}" for i in range(3)]
        result = self.evaluate(*texts, f"--against={self.small}")
        self.assertAlmostEqual(result["mean_kl"], 0, delta=1e-9)
        self.assertEqual(result["top1_agreement"], 1)
        self.assertEqual(result["perplexity_ratio"], 1)
        self.assertEqual(result["perplexity_ratio_interval"], [1, 1])
        self.assertEqual(result["interval_unit"], "document")

    def test_against_another(self):
        stem = self.path("stem")
        stem_run("convert", self.small, stem, "--layers=1/2",
                 "--init=row-mean")
        texts = [f"--text={self.text(TEXT[i:], str(i))}" for i in range(3)]
        result = stem_json("eval", stem, "--dtype=f32", *texts,
                           f"--against={self.small}")
        own = stem_json("eval", stem, "--dtype=f32", *texts)
        base = self.evaluate(*texts)
        difference = tokens = 0
        for a, b in zip(own["files"], base["files"]):
            difference += a["nll"] - b["nll"]
            tokens += a["scored_tokens"]
        ratio = math.exp(difference / tokens)
        self.assertAlmostEqual(result["perplexity_ratio"], ratio, delta=1e-4)
        # A ratio estimate over three documents: Student's t with 2 degrees.
        mean = difference / tokens
        squares = sum((a["nll"] - b["nll"] - mean * a["scored_tokens"]) ** 2
                      for a, b in zip(own["files"], base["files"]))
        half = 4.303 * math.sqrt(squares * 3 / 2) / tokens
        low, high = result["perplexity_ratio_interval"]
        self.assertAlmostEqual(low, math.exp(mean - half), delta=1e-3)
        self.assertAlmostEqual(high, math.exp(mean + half), delta=1e-3)
        self.assertGreater(result["mean_kl"], 0)

    def with_nan(self, tensor, index):
        model = self.copy_model(tensor)
        path = os.path.join(model, "model.safetensors")
        tensors = read_tensors(path)
        tensors[tensor].values[index] = 0x7fc0
        write_tensors(path, tensors)
        return model

    def test_losses_that_are_not_finite(self):
        advice = ["look for NaN or infinity in its weights", "--dtype=f32"]
        norm = self.with_nan("model.norm.weight", 3)
        text = self.text()
        parts = [f"{norm}: its loss on {text} is NaN at document 0, token 1 "
                 f"(id {self.ids()[1]})", *advice]
        for command in ["eval", norm], \
                ["eval", norm, f"--against={self.small}"], \
                ["eval", self.small, f"--against={norm}"]:
            for flags in [], ["--json"]:
                self.assert_fails(parts, *command, f"--text={text}", *flags)
        # A row of an id that the second document alone has.
        stem = self.path("stem")
        stem_run("convert", self.small, stem, "--layers=1", "--init=row-mean")
        second = TEXT[:9] + "z" + TEXT
        ids = self.ids(second)
        own, = set(ids) - set(self.ids())
        path = os.path.join(stem, "stem-table-001.safetensors")
        tensors = read_tensors(path)
        table, = tensors.values()
        table.values[own * table.shape[1]] = 0x7fc0
        write_tensors(path, tensors)
        lines = self.lines("nan", [TEXT, second])
        # It reaches all tokens of its tile of attention.
        self.assert_fails([f"{stem}: its loss on {lines} is NaN at document 1, "
                           f"token 1 (id {ids[1]})"], "eval", stem,
                          f"--text={lines}")

    def test_logits_that_are_not_finite(self):
        model = self.with_nan("model.norm.weight", 3)
        ids, out = self.path("ids"), self.path("logits")
        write_tensors(ids, {"input_ids": Tensor("I32", [1, 3], [1, 2, 3])})
        result = stem_run("eval", model, f"--input-ids={ids}",
                          f"--logits-out={out}", "--json")
        count = len(read_tensors(out)["logits"].values)
        self.assertEqual(json.loads(result.stdout)["not_finite"], count)
        self.assertIn(f"warning: {out}: {count} of {count} logits of {model} "
                      "are NaN or infinite; look for NaN", result.stderr)
        self.assertEqual(stem_json("eval", self.small, f"--input-ids={ids}",
                                   f"--logits-out={out}", "--force")
                         ["not_finite"], 0)

    def test_empty_batches(self):
        for shape in [0, 5], [2, 0], [0, 0]:
            with self.subTest(shape=shape):
                ids, out = self.path("ids"), self.path("logits")
                write_tensors(ids, {"input_ids": Tensor("I32", shape, [])})
                stem_run("eval", self.small, f"--input-ids={ids}",
                         f"--logits-out={out}", "--force")
                logits = read_tensors(out)["logits"]
                self.assertEqual(logits.shape[:2], shape)
                self.assertEqual(len(logits.values), 0)

    def test_sampling_repeats(self):
        common = ["generate", self.small, "--prompt=Once", "-n", 20,
                  "--temperature=0.9", "--top-k=40", "--ignore-end"]
        first = stem_json(*common, "--seed=5")["ids"]
        self.assertEqual(first, stem_json(*common, "--seed=5")["ids"])
        self.assertNotEqual(first, stem_json(*common, "--seed=6")["ids"])

    def test_stops(self):
        common = ["generate", self.small, "--prompt=Once", "--ignore-end"]
        free = stem_json(*common, "-n", 20)
        self.assertEqual((free["finish"], len(free["ids"])), ("length", 20))
        stop = free["ids"][7]
        result = stem_json(*common, "-n", 20, f"--stop-ids={stop}")
        self.assertEqual(result["finish"], "stop")
        self.assertEqual(result["ids"],
                         free["ids"][:free["ids"].index(stop) + 1])

    def test_stop_string(self):
        stop = "zz"
        prompt = ["generate", self.small, "--prompt=Once", "-n", 64,
                  "--temperature=1", "--seed=1", "--ignore-end"]
        text = stem_json(*prompt)["text"]
        stop = text[10:12]
        result = stem_json(*prompt, f"--stop={stop}")
        self.assertEqual(result["finish"], "stop")
        self.assertEqual(result["text"], text[:text.index(stop)])
        shown = stem_run(*prompt, f"--stop={stop}").stdout
        self.assertEqual(shown, result["text"] + "\n")

    def test_context_limit(self):
        config = self.copy_model()
        path = os.path.join(config, "config.json")
        with open(path) as file:
            lines = [line if "max_position_embeddings" not in line
                     else '  "max_position_embeddings": 16,\n'
                     for line in file]
        with open(path, "w") as file:
            file.writelines(lines)
        for length in 4, 15, 16:
            prompt = ",".join(["1"] * length)
            for flags in [], ["--no-cache"]:
                result = stem_json("generate", config, "-n", 50,
                                   f"--prompt-ids={prompt}", "--ignore-end",
                                   *flags)
                self.assertEqual(result["finish"], "context")
                self.assertEqual(len(result["ids"]), 17 - length)
        self.assert_fails(["17 tokens", "holds 16"], "generate", config,
                          "--prompt-ids=" + ",".join(["1"] * 17))
        self.assert_fails(["--ctx=17", "holds 16"], "eval", config,
                          f"--text={self.text()}", "--ctx=17")

    def test_bench(self):
        stem = self.path("stem")
        stem_run("convert", self.small, stem, "--layers=1/2",
                 "--init=row-mean")
        result = stem_json("bench", self.small, stem, "--prompt-tokens=128",
                           "--decode-tokens=8", "--repeat=6")
        self.assertEqual(len(result["models"]), 2)
        for model in result["models"]:
            for key in ("prefill_tokens_per_second", "peak_bytes",
                        "decode_tokens_per_second", "compile_seconds_cold",
                        "compile_seconds_warm",
                        "prefill_share_of_matrix_rate",
                        "decode_share_of_read_bandwidth"):
                self.assertGreater(model[key], 0)
            self.assertLess(model["prefill_share_of_matrix_rate"], 1)
            self.assertLess(model["compile_seconds_warm"],
                            model["compile_seconds_cold"])
        for ratio in result["ratio"].values():
            self.assertEqual(ratio["pairs"], 6)
            self.assertLessEqual(ratio["interval"][0], ratio["median"])
            self.assertLessEqual(ratio["median"], ratio["interval"][1])


if __name__ == "__main__":
    unittest.main()
