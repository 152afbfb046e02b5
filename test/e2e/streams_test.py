#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What surrounds a command: signals, full or closed streams, odd files."""

import json
import os
import signal
import subprocess
import time
import unittest

from e2e import GOLDEN, ModelTest, read_tensors, stem_run


def shell(line, *arguments):
    """stem-run with redirections; `line` names the arguments "$@"."""
    return subprocess.run(["sh", "-c", line, "sh", *map(str, arguments)],
                          capture_output=True, text=True, timeout=600)


class StreamsTest(ModelTest):
    golden = os.path.join(GOLDEN, "llama_gqa")

    def commands(self):
        text = self.write("text", "Some text of a few words.")
        return {
            "help": ["--help"],
            "inspect": ["inspect", self.small],
            "import": ["import", self.small, self.path("imported")],
            "convert": ["convert", self.small, self.path("converted"),
                        "--layers=1", "--init=xavier"],
            "eval": ["eval", self.small, f"--text={text}"],
            "generate": ["generate", self.small, "--prompt=a", "-n", 2],
        }

    # ---- Streams ----

    def test_unwritable_stderr(self):
        for redirection in "2>/dev/full", "2>&-":
            for name, command in self.commands().items():
                with self.subTest(command=name, redirection=redirection):
                    if name in ("import", "convert"):
                        command[2] += redirection[2:].replace("/", "")
                    result = shell(f'stem-run "$@" {redirection}', *command)
                    self.assertEqual(result.returncode, 0)
                    self.assertNotEqual(result.stdout, "")
            for command in ["inspect", "/no/such"], ["generate", "/no/such"]:
                result = shell(f'stem-run "$@" {redirection}', *command)
                self.assertIn(result.returncode, (1, 2))

    def test_unwritable_stdout(self):
        for redirection, reason in (">/dev/full", "No space left"), \
                (">&-", "Bad file descriptor"):
            for name, command in self.commands().items():
                with self.subTest(command=name, redirection=redirection):
                    if name in ("import", "convert"):
                        command[2] += redirection[1:].replace("/", "")
                    result = shell(f'stem-run "$@" {redirection}', *command)
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertIn("error: cannot write to standard output",
                                  result.stderr)
                    if name != "generate":
                        self.assertIn(reason, result.stderr)

    def test_closed_descriptors(self):
        """No file of the model becomes descriptor 0, 1 or 2."""
        expected = stem_run("inspect", self.small).stdout
        result = shell('exec 3>&1; stem-run "$@" <&- 2>&- | cat',
                       "inspect", self.small)
        self.assertEqual(result.stdout, expected)

    def test_closed_pipe(self):
        result = shell('(sleep 1; stem-run "$@"; echo "status $?" >&2) | true',
                       "inspect", self.small)
        self.assertIn("Broken pipe", result.stderr)
        self.assertIn("status 1", result.stderr)

    def test_escapes_do_not_reach_the_terminal(self):
        folder = self.copy_model()
        with open(os.path.join(folder, "chat_template.jinja"), "w") as file:
            file.write(r"{{ raise_exception('\x1b]0;title\x07') }}")
        result = stem_run("generate", folder, "--chat", "--prompt=a",
                          check=False)
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("\x1b", result.stderr)
        self.assertIn(r"\x1b]0;title\x07", result.stderr)
        for command in ["\x1b[31m"], ["inspect", "\x1b[31m"], \
                ["eval", "a", "--dtype=\x1b[31m"]:
            result = stem_run(*command, check=False)
            self.assertNotIn("\x1b", result.stderr)
            self.assertIn(r"\x1b[31m", result.stderr)

    def test_long_values_are_cut(self):
        long = "x" * 100_000
        for command in [long], ["inspect", long], \
                ["eval", self.small, "--text=" + long], \
                ["generate", self.golden, "--prompt-ids=" + long], \
                ["generate", self.golden, "--prompt-ids=1," + "9" * 5 +
                 ",1" * 50_000], \
                ["generate", self.golden, "--prompt=a", "--dtype=" + long], \
                ["generate", self.golden, "--prompt=a", "--seed=" + long]:
            result = stem_run(*command, check=False)
            self.assertIn(result.returncode, (1, 2))
            self.assertLess(len(result.stderr), 6000)
            self.assertIn("bytes)" if command[0] != "inspect"
                          else "too long", result.stderr)

    # ---- Files that are no files ----

    def test_pipes_in_place_of_files(self):
        for name in "config.json", "model.safetensors", "tokenizer.json", \
                "tokenizer_config.json", "chat_template.jinja", \
                "generation_config.json":
            with self.subTest(name=name):
                folder = self.copy_model(name)
                path = os.path.join(folder, name)
                if os.path.exists(path):
                    os.remove(path)
                os.mkfifo(path)
                self.assert_fails([name, "not a regular file"], "generate",
                                  folder, "--prompt=a")
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        ids = ["--input-ids=" + pipe, "--logits-out=" + self.path("out")]
        for command in ["inspect", pipe], ["eval", self.small, *ids], \
                ["eval", self.small, "--text=" + pipe]:
            result = stem_run(*command, check=False)
            self.assertIn("not a regular file", result.stdout + result.stderr)

    def test_text_that_cannot_be_read(self):
        self.assert_fails(["/proc/self/mem", "cannot be read",
                           "Input/output error"], "eval", self.small,
                          "--text=/proc/self/mem")

    def test_names_that_cannot_be(self):
        name = self.path("x" * 256)
        loop = self.path("loop")
        os.symlink(loop, loop)
        text = self.write("text", "Some text.")
        for path, reason in (name, "File name too long"), \
                (loop, "Too many levels of symbolic links"):
            for command in ["inspect", path], ["import", path, "out"], \
                    ["import", self.small, os.path.join(path, "out")], \
                    ["eval", self.small, f"--text={path}"], \
                    ["eval", self.small, f"--text={text}",
                     f"--against={path}"]:
                with self.subTest(command=command):
                    self.assert_fails([path[:100], reason], *command)
                    self.assertNotIn("filesystem error",
                                     stem_run(*command, check=False).stderr)
        self.assert_fails(["File name too long"], "import", self.small, name)

    # ---- Signals ----

    def large_model(self):
        """A model whose embedding takes a while to import: a hole in the file
        makes 1.6 GB of it."""
        folder = self.copy_model(source=self.golden)
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        rows, config["vocab_size"] = config["vocab_size"], 12_500_000
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        path = os.path.join(folder, "model.safetensors")
        header, end = {}, 0
        for name, tensor in read_tensors(path).items():
            shape = [config["vocab_size"] if size == rows else size
                     for size in tensor.shape]
            size = 4
            for dimension in shape:
                size *= dimension
            header[name] = {"dtype": "F32", "shape": shape,
                            "data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
        os.truncate(path, 8 + len(text) + end)
        return folder

    def start(self, *arguments):
        return subprocess.Popen(["stem-run", *map(str, arguments)],
                                stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def wait_for(self, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def temporaries(self, out):
        parent, name = os.path.split(out)
        return [entry for entry in os.listdir(parent)
                if entry.startswith(f".{name}.tmp-")]

    def test_signals_leave_nothing(self):
        model = self.large_model()
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            with self.subTest(signal=number):
                out = self.path(f"out{int(number)}")
                process = self.start("import", model, out, "--dtype=f32")
                self.wait_for(lambda: self.temporaries(out))
                process.send_signal(number)
                process.communicate()
                self.assertEqual(process.returncode, 128 + number)
                self.assertEqual(self.temporaries(out), [])
                self.assertFalse(os.path.exists(out))

    def test_source_that_shrinks(self):
        model, out = self.large_model(), self.path("out")
        process = self.start("import", model, out, "--dtype=bf16")
        self.wait_for(lambda: self.temporaries(out))
        os.truncate(os.path.join(model, "model.safetensors"), 100_000)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("model.safetensors: changed while it was read", errors)
        self.assertEqual(self.temporaries(out), [])
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main()
