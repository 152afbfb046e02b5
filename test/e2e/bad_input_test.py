#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bad input gives one message that names it, and leaves nothing behind."""

import json
import os
import resource
import shutil
import subprocess
import unittest

from calibration import some_text
from e2e import GOLDEN, ModelTest, Tensor, read_tensors, stem_json, \
    stem_run, write_tensors


def limit_files(size=100_000):
    """Writing beyond 100 KB fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class BadInputTest(ModelTest):
    golden = os.path.join(GOLDEN, "llama_gqa")

    def changed_config(self, **changes):
        folder = self.copy_model(source=self.golden)
        path = os.path.join(folder, "config.json")
        with open(path) as file:
            config = json.load(file)
        config.update(changes)
        with open(path, "w") as file:
            json.dump(config, file)
        return folder

    def assert_nothing_left(self, out):
        parent = os.path.dirname(out)
        left = [name for name in os.listdir(parent)
                if os.path.basename(out) in name]
        self.assertEqual(left, [])

    # ---- Files ----

    def test_missing_model(self):
        for command in ["eval", "--text=x"], ["generate", "--prompt=x"], \
                ["inspect"], ["bench"]:
            self.assert_fails(["/no/such", "no such file"], command[0],
                              "/no/such", *command[1:])
        out = self.path("out")
        self.assert_fails(["/no/such"], "import", "/no/such", out)
        self.assert_fails(["/no/such"], "convert", "/no/such", out,
                          "--layers=1", "--init=xavier")
        self.assert_nothing_left(out)

    def test_truncated_tensors(self):
        folder = self.copy_model(source=self.golden)
        weights = os.path.join(folder, "model.safetensors")
        os.truncate(weights, os.path.getsize(weights) - 4)
        self.assert_fails(["model.safetensors"], "import", folder,
                          self.path("out"))
        self.assert_nothing_left(self.path("out"))

    def test_truncated_gguf(self):
        path = self.write("model.gguf", b"GGUF\x03\x00\x00\x00\x01")
        self.assert_fails(["model.gguf"], "import", path, self.path("out"))

    def test_wrong_shape(self):
        folder = self.copy_model(source=self.golden)
        path = os.path.join(folder, "model.safetensors")
        tensors = read_tensors(path)
        tensors["model.norm.weight"] = Tensor("F32", [31], [1.0] * 31)
        write_tensors(path, tensors)
        self.assert_fails(["model.norm.weight", "[31]", "[32]"], "generate",
                          folder, "--prompt-ids=1")

    def test_missing_tensor(self):
        folder = self.copy_model(source=self.golden)
        path = os.path.join(folder, "model.safetensors")
        tensors = read_tensors(path)
        del tensors["model.layers.1.mlp.up_proj.weight"]
        write_tensors(path, tensors)
        self.assert_fails(["model.layers.1.mlp.up_proj.weight"], "convert",
                          folder, self.path("out"), "--layers=2",
                          "--init=row-mean")

    def test_malformed_config(self):
        folder = self.copy_model(source=self.golden)
        with open(os.path.join(folder, "config.json"), "w") as file:
            file.write("{")
        self.assert_fails(["config.json"], "generate", folder,
                          "--prompt-ids=1")

    def test_unsupported_architecture(self):
        folder = self.changed_config(model_type="gpt2",
                                     architectures=["GPT2LMHeadModel"])
        self.assert_fails(["gpt2"], "generate", folder, "--prompt-ids=1")
        inspected = stem_run("inspect", folder).stdout
        self.assertIn("unsupported", inspected)
        self.assertIn("gpt2", inspected)

    def test_unsupported_config_value(self):
        folder = self.changed_config(hidden_act="gelu")
        self.assert_fails(["hidden_act", "gelu"], "generate", folder,
                          "--prompt-ids=1")

    # ---- Ids and text ----

    def test_id_out_of_range(self):
        self.assert_fails(["id 96", "position 2", "96 rows"], "generate",
                          self.golden, "--prompt-ids=1,2,96")
        self.assert_fails(["id -2", "position 0", "96 rows"], "generate",
                          self.golden, "--prompt-ids=-2,4")
        self.assert_fails(["--stop-ids", "id 500"], "generate", self.golden,
                          "--prompt-ids=1", "--stop-ids=500")

    def test_batch_id_out_of_range(self):
        ids, out = self.path("ids"), self.path("logits")
        write_tensors(ids, {"input_ids": Tensor("I64", [2, 3],
                                                [1, 2, 3, 4, 2 ** 40, 5])})
        self.assert_fails(["batch 1", f"id {2 ** 40}", "position 1",
                           "96 rows"], "eval", self.golden,
                          f"--input-ids={ids}", f"--logits-out={out}")
        self.assert_nothing_left(out)

    def test_wrong_ids_tensor(self):
        ids = self.path("ids")
        write_tensors(ids, {"input_ids": Tensor("F32", [1, 3], [1, 2, 3])})
        self.assert_fails(["input_ids", "F32", "I64 or I32"], "eval",
                          self.golden, f"--input-ids={ids}",
                          f"--logits-out={self.path('out')}")
        write_tensors(ids, {"ids": Tensor("I32", [1, 1], [1])})
        self.assert_fails(["input_ids"], "eval", self.golden,
                          f"--input-ids={ids}",
                          f"--logits-out={self.path('out')}")

    def test_prompts(self):
        self.assert_fails(["300 tokens", "holds 256"], "generate",
                          self.golden, "--prompt-ids=" + ",".join(["1"] * 300))
        self.assert_fails(["--prompt-ids"], "generate", self.golden,
                          "--prompt-ids=", status=2)
        for empty in ["--prompt", ""], ["--prompt="]:
            self.assert_fails(["prompt is empty"], "generate", self.small,
                              *empty, "-n", "2")
        self.assert_fails(["no tokenizer", "--prompt-ids"], "generate",
                          self.golden, "--prompt=hello")

    def test_more_than_the_memory(self):
        # Keys and values of a billion positions: 1.86 TB.
        folder = self.changed_config(max_position_embeddings=2 ** 31 - 1)
        self.assert_fails(["key-value cache up to 1.86 TB", "are available",
                           "-n"], "generate", folder, "--prompt-ids=1,2",
                          "-n", 2 ** 30)

    def test_tokenizer_larger_than_vocabulary(self):
        folder = self.copy_model()
        path = os.path.join(folder, "tokenizer.json")
        with open(path) as file:
            tokenizer = json.load(file)
        with open(os.path.join(folder, "config.json")) as file:
            rows = json.load(file)["vocab_size"]
        tokenizer["added_tokens"].append(
            {"id": rows + 3, "content": "<|beyond|>", "single_word": False,
             "lstrip": False, "rstrip": False, "normalized": False,
             "special": True})
        with open(path, "w") as file:
            json.dump(tokenizer, file)
        for command in ["generate", folder, "--prompt=a"], \
                ["eval", folder, f"--text={self.write('t', 'some text')}"]:
            self.assert_fails(["<|beyond|>", str(rows + 3)], *command)

    def test_tokenizer_that_cannot_be_read(self):
        for content in ['{"version": "1.0", ',
                        "version https://git-lfs.github.com/spec/v1\n"]:
            folder = self.copy_model(f"model-{len(content)}")
            path = os.path.join(folder, "tokenizer.json")
            with open(path, "w") as file:
                file.write(content)
            for number, command in enumerate((
                    ["import"], ["convert", "--layers=1", "--init=row-mean"])):
                out = self.path(f"out-{len(content)}-{number}")
                result = stem_run(command[0], folder, out, *command[1:])
                warning, = [line for line in result.stderr.splitlines()
                            if line.startswith(f"warning: {path}: ")]
                self.assertIn("it is copied as it is", warning)
                with open(os.path.join(out, "tokenizer.json")) as file:
                    self.assertEqual(file.read(), content)

    def test_texts(self):
        self.assert_fails(["no.txt", "no such file"], "eval", self.small,
                          f"--text={self.path('no.txt')}")
        self.assert_fails(["empty", "at least 2"], "eval", self.small,
                          f"--text={self.write('empty', '')}")
        self.assert_fails(["latin", "UTF-8"], "eval", self.small,
                          f"--text={self.write('latin', bytes([65, 233]))}")
        self.assert_fails(["not a regular file"], "eval", self.small,
                          f"--text={self.folder}")

    # ---- Outputs ----

    def convert(self, out, *options):
        return ["convert", self.golden, out, "--init=row-mean", *options]

    def test_layers(self):
        out = self.path("out")
        self.assert_fails(["no layer 9", "0 to 2"],
                          *self.convert(out, "--layers=1,9"))
        self.assert_fails(["--layers=1/9", "wanted 1/3, 1/2, all"],
                          *self.convert(out, "--layers=1/9"))
        # A calibration can choose them, too.
        self.assert_fails(["--layers=third", "wanted auto:N, 1/3, 1/2, all"],
                          "convert", self.golden, out, "--layers=third")
        self.assert_fails(["'x'", "--layers"],
                          *self.convert(out, "--layers=1,x"))
        self.assert_nothing_left(out)

    def test_output_exists(self):
        out = self.path("out")
        stem_run(*self.convert(out, "--layers=1"))
        self.assert_fails([out, "exists already", "--force"],
                          *self.convert(out, "--layers=2"))
        stem_run(*self.convert(out, "--layers=2", "--force"))
        self.assertTrue(os.path.exists(
            os.path.join(out, "stem-table-002.safetensors")))
        self.assertFalse(os.path.exists(
            os.path.join(out, "stem-table-001.safetensors")))

    def test_force_spares_other_folders(self):
        out = self.path("mine")
        os.mkdir(out)
        with open(os.path.join(out, "notes"), "w") as file:
            file.write("mine")
        self.assert_fails([out, "not made by Stem"],
                          *self.convert(out, "--layers=1", "--force"))
        self.assertEqual(os.listdir(out), ["notes"])

    def test_force_spares_what_lies_within(self):
        out = self.path("out")
        stem_run(*self.convert(out, "--layers=1"))
        inner = os.path.join(out, "model.gguf")
        shutil.copy(os.path.join(out, "stem-table-001.safetensors"), inner)
        for source in inner, os.path.join(out, "nested"):
            if not os.path.exists(source):
                shutil.copytree(self.golden, source)
            for command in ["import", source, out], \
                    ["convert", source, out, "--layers=1", "--init=xavier"]:
                self.assert_fails([out, os.path.basename(source),
                                   "--force does not replace it"],
                                  *command, "--force")
                self.assertTrue(os.path.exists(source))
        os.remove(inner)
        shutil.rmtree(os.path.join(out, "nested"))
        # A file of the folder itself as the source.
        self.assert_fails(["lies in", "--force would replace"], "import",
                          os.path.join(out, "config.json"), out, "--force")
        stem_run(*self.convert(out, "--layers=2", "--force"))

    def test_force_says_the_truth_about_provenance(self):
        out = self.path("out")
        os.mkdir(out)
        with open(os.path.join(out, "stem_provenance.json"), "w") as file:
            file.write("{")
        self.assert_fails(["stem_provenance.json", "may not be Stem's"],
                          *self.convert(out, "--layers=1", "--force"))

    def ids_file(self):
        path = self.path("ids")
        write_tensors(path, {"input_ids": Tensor("I32", [1, 2], [1, 2])})
        return path

    def test_logits_replace_nothing(self):
        ids, model = self.ids_file(), self.copy_model(source=self.golden)
        weights = os.path.join(model, "model.safetensors")
        link, hard_link = self.path("link"), self.path("hard-link")
        os.symlink(weights, link)
        os.link(weights, hard_link)
        os.mkdir(os.path.join(model, "folder"))
        mine = self.write("mine", "mine")
        for out, parts, force in [
                (mine, ["exists already", "--force"], []),
                (ids, ["is the file of --input-ids"], ["--force"]),
                (os.path.join(self.folder, ".", os.path.basename(ids)),
                 ["is the file of --input-ids"], ["--force"]),
                (weights, ["in the model"], ["--force"]),
                (link, ["in the model"], ["--force"]),
                (hard_link, ["the model's file"], ["--force"]),
                (os.path.join(model, "new"), ["in the model"], []),
                (os.path.join(model, "folder", "new"), ["in the model"], []),
                (self.folder, ["not a regular file"], ["--force"])]:
            with self.subTest(out=out):
                self.assert_fails(["logits-out" if force and out != self.folder
                                   else "", *parts], "eval", model,
                                  f"--input-ids={ids}", f"--logits-out={out}",
                                  *force)
        with open(mine) as file:
            self.assertEqual(file.read(), "mine")
        stem_run("eval", model, f"--input-ids={ids}", f"--logits-out={mine}",
                 "--force")
        self.assertEqual(read_tensors(mine)["logits"].shape, [1, 2, 96])
        self.assert_fails(["--force goes with"], "eval", model, "--text=a",
                          "--force", status=2)

    def test_stale_index(self):
        folder = self.copy_model("stale", self.golden)
        weights = os.path.join(folder, "model.safetensors")
        names = read_tensors(weights)
        os.rename(weights, os.path.join(folder, "weights.safetensors"))
        os.remove(os.path.join(folder, "golden.safetensors"))
        with open(f"{weights}.index.json", "w") as index:
            json.dump({"metadata": {}, "weight_map": {
                name: "model-00001-of-00002.safetensors" for name in names}},
                index)
        out = self.path("whole")
        self.assert_fails(["model-00001-of-00002.safetensors",
                           "stem-run import --ignore-index"],
                          "import", folder, out)
        stem_run("import", folder, out, "--ignore-index")
        self.assertEqual(set(read_tensors(os.path.join(
            out, "model.safetensors"))), set(names))

    def test_empty_batches(self):
        ids = self.path("ids")
        for shape in [2 ** 62, 0], [0, 2 ** 63 - 1]:
            write_tensors(ids, {"input_ids": Tensor("I64", shape, [])})
            self.assert_fails([ids, "input_ids", str(shape), "at most"],
                              "eval", self.golden, f"--input-ids={ids}",
                              f"--logits-out={self.path('out')}")

    # ---- Values that do not fit ----

    def with_value(self, name, tensor, dtype, value):
        folder = self.copy_model(name, self.golden)
        path = os.path.join(folder, "model.safetensors")
        tensors = read_tensors(path)
        old = tensors[tensor]
        values = list(old.values)
        values[5] = value
        tensors[tensor] = Tensor(dtype, old.shape, values)
        write_tensors(path, tensors)
        return folder

    def test_values_that_do_not_fit(self):
        norm, up = "model.norm.weight", "model.layers.1.mlp.up_proj.weight"
        out = self.path("out")
        wide = self.with_value("wide", norm, "F64", 1e300)
        for dtype, largest in ("f32", "3.40282e+38"), ("bf16", "3.38953e+38"):
            self.assert_fails([norm, "1e+300", largest, "--dtype=keep"],
                              "import", wide, out, f"--dtype={dtype}")
        float_max = self.with_value("float", norm, "F32", 3.4e38)
        self.assert_fails([norm, "3.4e+38", "BF16", "--dtype=f32"], "import",
                          float_max, out, "--dtype=bf16")
        large = self.with_value("large", up, "F32", 1e30)
        self.assert_fails(["model.layers.1.mlp.up_table.weight", "F16",
                           "65504", "--row-dtype=bf16"], "convert", large, out,
                          "--layers=1", "--init=row-mean", "--row-dtype=f16")
        self.assert_nothing_left(out)
        stem_run("import", float_max, out)

    def test_values_that_are_not_finite(self):
        norm, up = "model.norm.weight", "model.layers.1.mlp.up_proj.weight"
        for value in float("nan"), float("inf"):
            folder = self.with_value(f"norm{value}", norm, "F32", value)
            for dtype in "keep", "bf16", "f32":
                out = self.path(f"out-{value}-{dtype}")
                result = stem_run("import", folder, out, f"--dtype={dtype}",
                                  "--json")
                self.assertIn(f'warning: tensor "{norm}" has 1 value that is '
                              "NaN or infinite", result.stderr)
                result = json.loads(result.stdout)
                self.assertEqual(result["not_finite"],
                                 [{"tensor": norm, "values": 1}])
                if dtype == "bf16":
                    self.assertGreater(result["rounding"]["relative"], 0)
        folder = self.with_value("up", up, "F32", float("nan"))
        result = stem_run("convert", folder, self.path("out"), "--layers=1",
                          "--init=row-mean", "--json")
        self.assertIn("values that are NaN", result.stderr)
        self.assertEqual(json.loads(result.stdout)["not_finite"],
                         [{"tensor": "model.layers.1.mlp.up_table.weight",
                           "values": 96}])

    def test_no_parent_folder(self):
        self.assert_fails(["/no/such"], "import", self.golden,
                          "/no/such/out")
        ids = self.path("ids")
        write_tensors(ids, {"input_ids": Tensor("I32", [1, 1], [1])})
        self.assert_fails(["/no/such"], "eval", self.golden,
                          f"--input-ids={ids}", "--logits-out=/no/such/out")

    def test_folders_in_the_model(self):
        model = self.copy_model(source=self.golden)
        before = sorted(os.listdir(model))
        inside = os.path.join(model, "sub")
        words = [f"{inside}: lies in the model {model}", "another place"]
        self.assert_fails(words, "import", model, inside)
        convert = ["--layers=1", "--init=row-mean"]
        self.assert_fails(words, "convert", model, inside, *convert)
        self.assert_fails([f"--dump-ir={inside}: is or lies in the model "
                           f"{model}"], "convert", model, self.path("out"),
                          *convert, f"--dump-ir={inside}")
        file = self.write("file", "mine")
        self.assert_fails([f"{file}/out: {file} is a file, not a folder"],
                          "import", model, file + "/out")
        self.assertEqual(sorted(os.listdir(model)), before)

    def test_dump_cannot_be_written(self):
        out, file = self.path("out"), self.write("file", "")
        self.assert_fails([f"cannot create {file}"],
                          *self.convert(out, "--layers=1",
                                        f"--dump-ir={file}"))
        folder = self.path("dump")
        for command in self.convert(out, "--layers=1"), \
                ["generate", self.golden, "--prompt-ids=1"]:
            result = subprocess.run(
                ["stem-run", *command, f"--dump-ir={folder}"],
                capture_output=True, text=True,
                preexec_fn=lambda: limit_files(1000))
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("cannot write " + folder, result.stderr)
            self.assertEqual(os.listdir(folder), [])
        self.assert_nothing_left(out)

    def test_dump_in_the_output(self):
        out = self.path("out")
        for dump in out, out + "/", os.path.join(out, "ir"):
            self.assert_fails(["--dump-ir=" + dump, "choose another place"],
                              *self.convert(out, "--layers=1",
                                            f"--dump-ir={dump}"))
        self.assert_nothing_left(out)

    @unittest.skipIf(os.geteuid() == 0, "root writes everywhere")
    def test_read_only_folder(self):
        folder = self.path("read-only")
        os.mkdir(folder, 0o555)
        self.assert_fails(["cannot write"], "import", self.golden,
                          os.path.join(folder, "out"))

    def test_disk_full(self):
        out = self.path("out")
        result = subprocess.run(["stem-run", "import", self.golden, out],
                                capture_output=True, text=True,
                                preexec_fn=limit_files)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("error: ", result.stderr)
        self.assertIn("model.safetensors", result.stderr)
        self.assert_nothing_left(out)

    # ---- Command lines ----

    def test_usage(self):
        for parts, command in [
                (["subcommand"], []),
                (["\"serve\" is no command"], ["serve"]),
                (["OUT is required"], ["import", "a"]),
                (["--init=xavier: name the layers"],
                 ["convert", "a", "b", "--init=xavier"]),
                (["--init"], ["convert", "a", "b", "--layers=1",
                              "--init=best"]),
                (["--seed is for --init=xavier, not for --init=calibrated",
                  "--calibrate-seed"], ["convert", "a", "b", "--seed=7"]),
                (["--seed is for --init=xavier, not for --init=embedding",
                  "leave it out"],
                 ["convert", "a", "b", "--layers=1", "--init=embedding",
                  "--seed=7"]),
                (["--dtype"], ["generate", "a", "--dtype=f8"]),
                (["--threads"], ["bench", "a", "--threads=0"]),
                (["--prompt"], ["generate", "a"]),
                (["--chat needs --prompt"],
                 ["generate", "a", "--chat", "--prompt-ids=1"]),
                (["--greedy"], ["generate", "a", "--prompt=b", "--greedy",
                                "--top-k=3"]),
                (["--stop= is empty"], ["generate", "a", "--prompt=b",
                                        "--stop", ""]),
                (["\"b\" is not an integer"],
                 ["generate", self.golden, "--prompt-ids=1,b"]),
                (["go together"], ["eval", "a", "--input-ids=b"]),
                (["--text=FILE"], ["eval", "a"]),
                (["--stride=9", "--ctx=4"],
                 ["eval", self.small, "--ctx=4", "--stride=9",
                  f"--text={self.write('t', 'text')}"])]:
            with self.subTest(command=command):
                self.assert_fails(parts + ["--help"], *command, status=2)

    def test_empty_values(self):
        for option, value, command in [
                ("--prompt-ids", "IDS", ["generate", "a"]),
                ("--stop-ids", "IDS", ["generate", "a", "--prompt=b"]),
                ("--stop", "TEXT", ["generate", "a", "--prompt=b"]),
                ("--temperature", "FLOAT", ["generate", "a", "--prompt=b"]),
                ("--count", "N", ["generate", "a", "--prompt=b"]),
                ("--dtype", "TYPE", ["generate", "a", "--prompt=b"]),
                ("--cache-dir", "DIR", ["generate", "a", "--prompt=b"]),
                ("--dump-ir", "DIR", ["generate", "a", "--prompt=b"]),
                ("--text", "FILE", ["eval", "a"]),
                ("--against", "MODEL", ["eval", "a", "--text=b"]),
                ("--layers", "LAYERS", ["convert", "a", "b"]),
                ("--init", "KIND", ["convert", "a", "b", "--layers=1"]),
                ("--repeat", "N", ["bench", "a"])]:
            for empty in [f"{option}="], [option, ""]:
                with self.subTest(option=empty):
                    self.assert_fails(
                        [f"stem-run {command[0]}: {option}= is empty; give "
                         f"{option}={value}"],
                        *command, *empty, "--threads=1", status=2)

    def test_empty_text(self):
        """The empty prompt is a prompt; a value that looks like an option
        with an empty value stays a value."""
        model = self.copy_model()
        with open(os.path.join(model, "chat_template.jinja"), "w") as file:
            file.write("{% for m in messages %}[{{ m.content }}]{% endfor %}")
        def prompts(*options):
            result = stem_json("generate", model, "-n", 2, *options)
            return [sequence["prompt_ids"]
                    for sequence in result.get("sequences", [result])]
        empty, = prompts("--chat", "--prompt=", "--system=")
        self.assertEqual([empty], prompts("--chat", "--prompt", ""))
        self.assertEqual([empty], prompts("--prompt=[]"))
        self.assertEqual(prompts("--chat", "--prompt=", "--prompt=b"),
                         [empty, *prompts("--prompt=[b]")])
        self.assertEqual(prompts("--prompt", "--stop="),
                         prompts("--prompt=--stop="))

    def test_sampling_values(self):
        for option in "--temperature=-1", "--top-p=0", \
                "--repetition-penalty=0":
            with self.subTest(option=option):
                self.assert_fails([], "generate", self.golden,
                                  "--prompt-ids=1", option)
        generate = ["generate", self.golden, "--prompt-ids=1"]
        for command, option in [
                (generate, "--seed"), (generate, "--top-k"),
                (self.convert(self.path("out"), "--layers=1"), "--seed")]:
            for value in "-1", "99999999999999999999", "1.5", "0x7":
                self.assert_fails([option, value, "no whole number from 0 to"],
                                  *command, f"{option}={value}", status=2)
        stem_run(*generate, "-n", 2, "--seed=18446744073709551615")

    def test_paths_that_are_no_utf8(self):
        model = self.copy_model(os.fsdecode(b"s\xff"))
        text = self.write(os.fsdecode(b"t\xff.txt"), some_text(3000, 1))
        stem = self.path(os.fsdecode(b"stem\xff"))
        page = self.path(os.fsdecode(b"page\xff.html"))
        rows = self.write(os.fsdecode(b"rows\xff"), "e\n")
        trained, applied = self.path("trained"), self.path("applied")
        for command in [
                ["convert", model, stem, "--layers=1", f"--calibrate={text}",
                 "--calibrate-tokens=8192", "--dialogue-share=0",
                 f"--report={page}"],
                ["convert", stem, self.path("again"), "--layers=2",
                 "--init=row-mean"],
                ["import", model, self.path("import")],
                ["train", stem, f"--data={text}", f"--out={trained}",
                 f"--train=rows:{rows}", "--steps=1", "--batch=1",
                 "--ctx=16", "--schedule=constant"],
                ["train", stem, f"--data={text}", f"--out={trained}",
                 f"--train=rows:{rows}", "--steps=2", "--batch=1",
                 "--ctx=16", "--schedule=constant", "--resume"],
                ["apply", stem, f"--rows={trained}/rows.safetensors",
                 f"--out={applied}"]]:
            result = subprocess.run(["stem-run", *command, "--json"],
                                    capture_output=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            json.loads(result.stdout)
        with open(os.path.join(stem, "stem_provenance.json"),
                  encoding="utf-8") as file:
            provenance = json.load(file)
        self.assertEqual(os.path.basename(provenance["source"]),
                         os.path.basename(os.fsencode(model)).decode(
                             errors="replace"))
        source, = provenance["calibration"]["texts"]
        self.assertTrue(source["file"].endswith("t\ufffd.txt"))
        with open(page, encoding="utf-8") as file:
            self.assertIn("t\ufffd.txt", file.read())

    def test_numbers_that_are_not_finite(self):
        out = self.path("out")
        generate = ["generate", self.golden, "--prompt-ids=1"]
        convert = ["convert", self.small, out]
        train = ["train", self.small, f"--out={out}", "--steps=1"]
        for command, option in [
                (generate, "--temperature"), (generate, "--top-p"),
                (generate, "--repetition-penalty"),
                (convert, "--dialogue-share"), (convert, "--flops"),
                *((train, option) for option in (
                    "--lr", "--final-lr", "--eps", "--weight-decay", "--clip",
                    "--table-lr", "--table-weight-decay", "--distill-weight",
                    "--validation", "--betas", "--table-betas"))]:
            for value in "nan", "-nan", "inf", "-inf", "1e999", "0.1x2":
                with self.subTest(option=option, value=value):
                    first = "0.9," if option.endswith("betas") else ""
                    self.assert_fails([option, value, "--help"], *command,
                                      f"{option}={first}{value}", status=2)
        self.assert_fails(["--flops=nan%: give a share"], *convert,
                          "--flops=nan%", status=2)
        self.assert_fails(["--dialogue-share: nan is no number from 0 to 0.9"],
                          *convert, "--dialogue-share=nan", status=2)
        self.assert_nothing_left(out)

    def test_epsilons_that_no_step_takes(self):
        out = self.path("out")
        for value in "0", "10", "-1e-8", "9e-13":
            self.assert_fails([f"--eps={value}: give a number from 1e-12 to 1",
                               "--help"], "train", self.small, f"--out={out}",
                              "--steps=1", f"--eps={value}", status=2)
        self.assert_nothing_left(out)

    def test_end_ids_without_a_row(self):
        folder = self.copy_model(source=self.golden)
        with open(os.path.join(folder, "generation_config.json"), "w") as file:
            json.dump({"eos_token_id": [7, 96]}, file)
        result = stem_run("generate", folder, "--prompt-ids=1", "-n", 1)
        self.assertIn("warning: ", result.stderr)
        self.assertIn("generation_config.json: \"eos_token_id\": 96 is no id",
                      result.stderr)
        with open(os.path.join(folder, "generation_config.json"), "w") as file:
            json.dump({"eos_token_id": 2 ** 64 - 1}, file)
        self.assert_fails(["generation_config.json", "eos_token_id",
                           "32-bit integer"], "generate", folder,
                          "--prompt-ids=1")
        with open(os.path.join(folder, "generation_config.json"), "w") as file:
            json.dump({"repetition_penalty": -1}, file)
        self.assert_fails(["generation_config.json", "repetition_penalty",
                           "-1 but must be positive"], "generate", folder,
                          "--prompt-ids=1")


if __name__ == "__main__":
    unittest.main()
