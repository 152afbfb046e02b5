#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert --init=calibrated: the folder it writes, and what it refuses."""

import hashlib
import json
import math
import os
import signal
import subprocess
import unittest

from calibration import DOWN, TABLE, UP, CalibrationTest, change_json, \
    some_text
from e2e import GOLDEN, read_tensors, stem_json, stem_run, write_tensors


class CalibrateTest(CalibrationTest):
    def test_evaluating_on_its_text(self):
        out, _ = self.convert("--layers=1")
        other = self.write("other.txt", "Another text, and a short one.")
        words = "were fitted on this text"
        for model, text, expected in ((out, self.text, 1), (out, other, 0),
                                      (self.small, self.text, 0)):
            result = stem_run("eval", model, f"--text={text}")
            self.assertEqual(result.stderr.count(words), expected)
        result = stem_run("eval", self.small, f"--against={out}",
                          f"--text={self.text}")
        self.assertEqual(result.stderr.count(words), 1)
        # Nor is what a conversion before it was fitted on forgotten.
        again, third = self.path("again"), self.path("third")
        stem_run(*self.calibrate(again, "--layers=2", text=self.texts[1],
                                 model=out))
        stem_run("convert", again, third, "--layers=3", "--init=row-mean")
        for model in again, third:
            for text, expected in zip([*self.texts, other], [1, 1, 0]):
                result = stem_run("eval", model, f"--text={text}")
                self.assertEqual(result.stderr.count(words), expected)
        # A provenance that another program wrote is no error.
        path = os.path.join(out, "config.json")
        with open(path) as file:
            config = json.load(file)
        for calibration in 3, [], {"texts": 3}, {"texts": [3, {"sha256": 3}]}:
            config["stem"]["provenance"] = {
                "calibration": calibration,
                "before": {"calibration": calibration, "before": calibration}}
            with open(path, "w") as file:
                json.dump(config, file)
            result = stem_run("eval", out, f"--text={other}")
            self.assertNotIn(words, result.stderr)

    # ---- What the folder holds ----

    def test_report_and_folder(self):
        out, result = self.convert("--layers=1,4")
        self.assertEqual(result["converted"], [1, 4])
        self.assertEqual(result["init"], "calibrated")
        calibration = result["calibration"]
        with open(self.text, "rb") as file:
            content = file.read()
        self.assertEqual(calibration["texts"], [
            {"file": self.text, "sha256": hashlib.sha256(content).hexdigest(),
             "documents": 1, "tokens": len(content), "tokens_taken": 8192,
             "split": "windows"}])
        self.assertEqual(calibration["self_share"], 0)
        self.assertEqual(calibration["dialogue_share"], 0)
        self.assertEqual(calibration["seed"], 0)
        self.assertEqual(calibration["dropped_passages"],
                         {"count": 0, "share": 0})
        self.assertEqual(calibration["window"], 512)
        self.assertEqual([calibration["tokens_" + part] for part in
                          ("fit", "choose", "check")], [14 * 512, 512, 512])
        self.assertTrue(0.9 < calibration["coverage"] <= 1)
        self.assertEqual([layer["layer"] for layer in calibration["layers"]],
                         [1, 4])
        for layer in calibration["layers"]:
            self.assertIn(layer["shrinkage"], [1, 4, 16])
            self.assertIn(layer["ridge"], [0, 1e-3, 1e-2, 1e-1])
            self.assertTrue(0 < layer["error_after_refit"]
                            <= layer["error_before_refit"])
        self.assertNotIn("sensitivities", calibration)
        for key in "perplexity_dense", "perplexity_converted":
            self.assertTrue(1 < calibration[key] < math.inf)
        recorded = {key: value for key, value in calibration.items()
                    if not key.endswith("seconds") and key != "plan"}
        self.assertEqual(set(calibration) - set(recorded),
                         {"convert_seconds", "plan"})
        for path, *keys in (["stem_provenance.json"],
                            ["config.json", "stem", "provenance"]):
            with open(os.path.join(out, path)) as file:
                content = json.load(file)
            for key in keys:
                content = content[key]
            self.assertEqual(content["calibration"], recorded)
            self.assertEqual(content["layers"], [1, 4])
            self.assertEqual(content["init"], "calibrated")

    def test_tensors(self):
        out, _ = self.convert("--layers=1,4")
        before, after = self.tensors(self.small), self.tensors(out)
        new = {TABLE.format(layer) for layer in (1, 4)}
        gone = {UP.format(layer) for layer in (1, 4)}
        changed = {DOWN.format(layer) for layer in (1, 4)}
        self.assertEqual(set(after), set(before) - gone | new)
        for name in set(before) - gone:
            same = (before[name].shape == after[name].shape
                    and before[name].dtype == after[name].dtype
                    and before[name].values == after[name].values)
            self.assertEqual(same, name not in changed, name)
            self.assertEqual(before[name].shape, after[name].shape)
        for name in new:
            self.assertEqual(after[name].shape, [259, 192])
            self.assertEqual(after[name].dtype, "BF16")
            self.assertTrue(all(map(math.isfinite, after[name].floats())))
        index = self.index(out)
        self.assertEqual(set(index), set(after))
        for layer in 1, 4:
            self.assertEqual(index[DOWN.format(layer)],
                             f"stem-table-{layer:03}.safetensors")

    def test_shards(self):
        source = self.copy_model()
        whole = os.path.join(source, "model.safetensors")
        tensors = read_tensors(whole)
        os.remove(whole)
        files = [f"model-{i}-of-00003.safetensors" for i in
                 ("00001", "00002", "00003")]
        weights = {name: files[int(name.split(".")[2]) // 2
                               if ".layers." in name else 0]
                   for name in tensors}
        for file in files:
            write_tensors(os.path.join(source, file),
                          {name: tensor for name, tensor in tensors.items()
                           if weights[name] == file})
        with open(os.path.join(source, "model.safetensors.index.json"),
                  "w") as file:
            json.dump({"metadata": {}, "weight_map": weights}, file)
        out = self.path("stem")
        stem_run(*self.calibrate(out, "--layers=1", model=source))
        # What the changed layer shares a file with is copied, the rest linked.
        self.assertEqual(set(self.tensors(out)),
                         set(tensors) - {UP.format(1)} | {TABLE.format(1)})
        index = self.index(out)
        for name, file in weights.items():
            if name not in (UP.format(1), DOWN.format(1)):
                self.assertEqual(
                    os.path.samefile(os.path.join(source, file),
                                     os.path.join(out, index[name])),
                    file != files[0], name)
        single = self.path("single")
        stem_run(*self.calibrate(single, "--layers=1"))
        table = "stem-table-001.safetensors"
        with open(os.path.join(out, table), "rb") as a, \
                open(os.path.join(single, table), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_converted_again(self):
        first, _ = self.convert("--layers=1")
        again = self.path("again")
        stem_run("convert", first, again, "--layers=2", "--init=row-mean")
        self.assertEqual(self.provenance(again)["before"]["calibration"],
                         self.provenance(first)["calibration"])

    def test_calibrated_again(self):
        first, result = self.convert("--layers=auto:2")
        stems = result["converted"]
        again, page = self.path("again"), self.path("report.html")
        shown = stem_run(*self.calibrate(
            again, "--layers=auto:2", "--mix-rank=4", f"--report={page}",
            model=first))
        provenance = self.provenance(again)
        layers, calibration = provenance["layers"], provenance["calibration"]
        sensitivities = calibration["sensitivities"]
        for values in sensitivities, calibration["sensitivity_errors"]:
            self.assertEqual([i for i in range(6) if values[i] is None], stems)
        dense = [i for i in range(6) if i not in stems]
        self.assertEqual(layers, sorted(sorted(
            dense, key=lambda layer: sensitivities[layer])[:2]))
        # Both are of the first model: by rows in f32, and as they are stored.
        before = result["calibration"]["perplexity_converted"]
        self.assertAlmostEqual(calibration["perplexity_dense"] / before, 1,
                               delta=0.01)
        self.assertIn(" before, ", shown.stdout)
        self.assertNotIn(" dense, ", shown.stdout)
        printed = shown.stdout.split("sensitivity (nats")[1].split("rank")[0]
        self.assertEqual([int(word) for word in printed.split("):")[1].split()
                          if "." not in word], dense)

        config = stem_json("inspect", again)["model"]
        stem = {layer: 4 * (layer in layers) for layer in stems + layers}
        self.assertEqual(config["stem"]["layers"], sorted(stem))
        self.assertEqual(config["stem"]["rank"],
                         [stem[layer] for layer in sorted(stem)])
        old, new = self.tensors(first), self.tensors(again)
        for name in set(old) - {UP.format(i) for i in layers}:
            self.assertEqual(old[name].values == new[name].values,
                             name not in [DOWN.format(i) for i in layers], name)
        other = self.write("other.txt", some_text(200, 3))
        figure = stem_json("eval", again, f"--text={other}")["files"][0]
        self.assertLess(figure["perplexity"], 5000)
        self.assertGreater(os.path.getsize(page), 1000)

        # A third of the two that are left, but one at least.
        result = stem_json(*self.calibrate(self.path("third"), model=again))
        self.assertEqual(len(result["converted"]), 1)
        self.assertNotIn(result["converted"][0], stem)

    def test_stem_source_writes_its_own_text(self):
        first = self.path("first")
        stem_run("convert", self.small, first, "--layers=2",
                 "--init=row-mean")
        result = stem_json("convert", first, self.path("out"), "--layers=1",
                           "--calibrate-tokens=8192", "--dialogue-share=0.1",
                           "--force-calibration")
        self.assertEqual([text["file"] for text in
                          result["calibration"]["texts"]],
                         ["self", "dialogue"])

    def test_short_context(self):
        model = self.copy_model()
        change_json(os.path.join(model, "config.json"),
                    max_position_embeddings=100)
        result = stem_json(*self.calibrate(self.path("stem"), "--layers=1",
                                           model=model))
        self.assertEqual(result["calibration"]["window"], 100)
        self.assertEqual(result["calibration"]["texts"][0]["tokens_taken"],
                         8100)

    def test_interrupt(self):
        long = self.write("long", some_text(100000, 3))
        out = self.path("stem")
        process = subprocess.Popen(
            ["stem-run", "convert", self.small, out, "--layers=1,2",
             f"--calibrate={long}", "--calibrate-tokens=500000",
             "--dialogue-share=0"],
            stderr=subprocess.PIPE, text=True)
        is_writing = any("writing" in line
                         for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertTrue(is_writing)
        self.assertEqual(process.returncode, 130)
        self.assert_nothing_left(out)

    def test_result_runs(self):
        out, result = self.convert("--layers=1,4")
        # The window held back: the last of 16, evenly spread.
        with open(self.text, "rb") as file:
            content = file.read()
        begin = 15 * (len(content) // 512) // 16 * 512
        held_back = self.write("held-back.txt", content[begin:begin + 512])
        dense, stem = (stem_json("eval", model, f"--text={held_back}")
                       ["files"][0]["perplexity"]
                       for model in (self.small, out))
        calibration = result["calibration"]
        self.assertAlmostEqual(calibration["perplexity_dense"] / dense, 1,
                               delta=1e-5)
        # What rounding rows and W_down to bf16 changes, which is little
        # beside what the conversion does.
        self.assertAlmostEqual(calibration["perplexity_converted"] / stem, 1,
                               delta=1e-3)
        self.assertGreater(abs(stem / dense - 1), 2e-3)
        text = stem_run("generate", out, "--prompt=abc", "--count=4",
                        "--temperature=0").stdout
        self.assertTrue(text)
        self.assertEqual(stem_json("inspect", out)["model"]["stem"]["layers"],
                         [1, 4])

    def test_same_bytes(self):
        first, _ = self.convert("--layers=auto:2", name="first")
        second, _ = self.convert("--layers=auto:2", "--threads=1",
                                 name="second")
        self.assert_same_folder(first, second)

    # ---- Layers ----

    def test_cheapest_layers(self):
        _, by_default = self.convert(name="default")
        _, three = self.convert("--layers=auto:3", name="three")
        _, all_layers = self.convert("--layers=auto:6", name="all")
        sensitivities = by_default["calibration"]["sensitivities"]
        self.assertEqual(len(sensitivities), 6)
        order = sorted(range(6), key=lambda layer: sensitivities[layer])
        for result, count in (by_default, 2), (three, 3), (all_layers, 6):
            self.assertEqual(result["calibration"]["sensitivities"],
                             sensitivities)
            self.assertEqual(result["converted"], sorted(order[:count]))
            self.assertIn("sensitivity_seconds", result["calibration"])

    def test_plan_and_figures_are_printed(self):
        out = self.path("stem")
        result = stem_run(*self.calibrate(out, "--layers=auto:1"))
        for part in ["calibration: 7168 tokens to fit, 512 to choose, 512 to "
                     "check", "3 passes over the first; hidden states",
                     "rows of a layer", "writing "]:
            self.assertIn(part, result.stderr)
        for part in ["sensitivity (nats", "shrinkage", "perplexity on 512 "
                     "tokens held back", "have a row that was fitted"]:
            self.assertIn(part, result.stdout)

    def test_several_texts(self):
        out, result = self.convert(f"--calibrate={self.texts[1]}",
                                   "--layers=3")
        calibration = result["calibration"]
        self.assertEqual([(text["file"], text["tokens_taken"])
                          for text in calibration["texts"]],
                         [(self.texts[0], 4096), (self.texts[1], 4096)])
        self.assertTrue(math.isfinite(calibration["perplexity_converted"]))
        self.assertEqual(calibration["tokens_choose"], 512)

    # ---- Bad input ----

    def test_usage(self):
        text = f"--calibrate={self.text}"
        out = self.path("out")
        for parts, options in [
                (["--calibrate=self is there twice", "give it once"],
                 ["--calibrate=self", "--calibrate=self"]),
                (["--dialogue-share"], ["--dialogue-share=0.95"]),
                (["--dialogue-share"], ["--dialogue-share=-0.1"]),
                (["--calibrate-seed"], ["--calibrate-seed=-1"]),
                (["--calibrate is for --init=calibrated", "--init=xavier"],
                 ["--init=xavier", "--layers=1", text]),
                (["--init=row-mean: name the layers", "--layers=1/3"],
                 ["--init=row-mean", "--layers=auto:2"]),
                (["--init=embedding: name the layers"], ["--init=embedding"]),
                (["--layers=auto:0", "like auto:10"],
                 [text, "--layers=auto:0"]),
                (["--layers=auto:x", "like auto:10"],
                 [text, "--layers=auto:x"]),
                (["--layers=auto:", "like auto:10"], [text, "--layers=auto:"]),
                (["--layers=auto", "like auto:10"], [text, "--layers=auto"]),
                (["--layers=auto10", "like auto:10"],
                 [text, "--layers=auto10"]),
                (["--layers=auto:-1", "like auto:10"],
                 [text, "--layers=auto:-1"]),
                (["--layers=auto:2,3", "like auto:10"],
                 [text, "--layers=auto:2,3"]),
                (["--layers=auto:999", "the model has 6 layers"],
                 [text, "--layers=auto:999"]),
                (["--layers=auto:99999999999999999999", "like auto:10"],
                 [text, "--layers=auto:99999999999999999999"]),
                (["--calibrate= is empty"], ["--calibrate="]),
                (["--calibrate-tokens", "8192"],
                 [text, "--calibrate-tokens=8191"]),
                (["--calibrate-tokens"], [text, "--calibrate-tokens=many"])]:
            with self.subTest(options=options):
                self.assert_fails(parts + ["--help"], "convert", self.small,
                                  out, *options, status=2)
        self.assert_nothing_left(out)

    def assert_refused(self, parts, *command):
        """Before the calibration, which first prints its plan."""
        self.assert_fails(parts, *command)
        self.assertNotIn("tokens to fit",
                         stem_run(*command, check=False).stderr)

    def test_texts(self):
        out = self.path("out")
        short = self.write("short", "a" * 8191)
        for parts, text in [
                (["no-such.txt", "no such file"], self.path("no-such.txt")),
                (["empty", "has 0 tokens", "too little to calibrate on",
                  "8192 are the least"], self.write("empty", "")),
                (["latin", "not valid UTF-8", "byte 2000"],
                 self.write("latin", b"a" * 2000 + b"\xe9" + b"a" * 9000)),
                ([short, "has 8191 tokens", "give a longer one"], short),
                (["not a regular file"], self.folder)]:
            with self.subTest(text=text):
                self.assert_refused(parts, *self.calibrate(out, text=text))
        self.assert_refused(["is the same text as", "give it once"],
                            *self.calibrate(out,
                                            f"--calibrate={self.text}"))
        self.assert_nothing_left(out)

    def test_models_and_layers(self):
        out = self.path("out")
        stem = self.path("stem")
        stem_run("convert", self.small, stem, "--layers=2", "--init=row-mean")
        self.assert_refused(["--layers=2,3", "layer 2 is STEM already"],
                            *self.calibrate(out, "--layers=2,3", model=stem))
        every = self.path("every")
        stem_run("convert", self.small, every, "--layers=0,1,2,3,4,5",
                 "--init=row-mean")
        for parts, model, options in [
                (["auto:6", "5 of the model's 6 layers are dense"], stem,
                 ["--layers=auto:6"]),
                (["auto:7", "the model has 6 layers"], stem,
                 ["--layers=auto:7"]),
                (["0 of the model's 6 layers are dense"], every, [])]:
            with self.subTest(options=options):
                self.assert_fails(parts, *self.calibrate(out, *options,
                                                         model=model),
                                  status=2)
        model = self.copy_model()
        change_json(os.path.join(model, "config.json"),
                    max_position_embeddings=1)
        self.assert_refused([model, "context is 1 token",
                             "max_position_embeddings", "2 at least"],
                            *self.calibrate(out, "--force-calibration",
                                            model=model))
        self.assert_refused(["there is no tokenizer", "calibration needs one"],
                            *self.calibrate(out, model=os.path.join(
                                GOLDEN, "llama_gqa")))
        self.assert_refused(["--layers=1,9", "no layer 9", "0 to 5"],
                            *self.calibrate(out, "--layers=1,9"))
        self.assert_refused(["--layers=1,x", "'x'"],
                            *self.calibrate(out, "--layers=1,x"))
        self.assert_nothing_left(out)

    def test_not_finite(self):
        out = self.path("out")
        model = self.copy_model()
        path = os.path.join(model, "model.safetensors")
        loss = [model, "has no finite loss", "NaN or infinity in its weights"]
        for name, value, layers, parts in [
                ("model.norm.weight", 0x7fc0, "auto:2", loss),
                ("model.norm.weight", 0x7fc0, "1,2", loss),
                (UP.format(1), 0x7f80, "1,2", loss),
                (UP.format(1), 0x7f80, "auto:2",
                 ["layer 1", "the sums of token id", "NaN or infinity",
                  "leave this layer dense"])]:
            tensors = read_tensors(os.path.join(self.small,
                                                "model.safetensors"))
            tensors[name].values[3] = value
            write_tensors(path, tensors)
            with self.subTest(name=name, layers=layers):
                self.assert_fails(parts, *self.calibrate(
                    out, f"--layers={layers}", model=model))
        self.assert_nothing_left(out)

    def test_output_exists(self):
        out, _ = self.convert("--layers=1")
        self.assert_refused([out, "exists already", "--force"],
                            *self.calibrate(out, "--layers=2"))
        result = stem_json(*self.calibrate(out, "--layers=2", "--force"))
        self.assertEqual(result["converted"], [2])

    @unittest.skipIf(os.geteuid() != 0, "only root mounts a small disk")
    def test_small_disk(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs",
                           disk], capture_output=True).returncode:
            self.skipTest("this machine lets nobody mount a tmpfs")
        try:
            self.assert_refused(["are needed", "free"], *self.calibrate(
                os.path.join(disk, "out")))
            self.assertEqual(os.listdir(disk), [])
        finally:
            subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    unittest.main()
