#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The disk cache of compiled modules: what is damaged is built again, what is
asked for otherwise is another entry, and a place that cannot be written does
no harm."""

import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import unittest

from e2e import GOLDEN, ModelTest, cpu_flags, stem_json

MODEL = os.path.join(GOLDEN, "stem_llama")
NOBODY = 65534


def limit_files():
    """Writing beyond 8 KB fails, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


class CacheTest(ModelTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.chmod(cls.folder, 0o755)
        cls.prompt = "--prompt-ids=5,9,2,77,31"
        cls.filled = os.path.join(cls.folder, "filled")
        cls.wanted, hit = cls.generate(cls.filled)
        assert not hit
        cls.entry, = os.listdir(cls.filled)

    @classmethod
    def generate(cls, cache, *options, model=MODEL, dtype="f32"):
        """The ids, and whether the module came from the cache."""
        result = stem_json("generate", model, cls.prompt, "-n", 8,
                           "--ignore-end", f"--dtype={dtype}",
                           f"--cache-dir={cache}", *options)
        return result["ids"], result["engine"]["compile_cached"]

    def filled_copy(self, name="cache"):
        shutil.copytree(self.filled, self.path(name))
        return self.path(name), os.path.join(self.path(name), self.entry)

    def start(self, cache, **options):
        return subprocess.Popen(
            ["stem-run", "generate", MODEL, self.prompt, "-n", "8", "--json",
             "--ignore-end", "--dtype=f32", f"--cache-dir={cache}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            **options)

    def finish(self, process):
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 0, err)
        result = json.loads(out)
        self.assertEqual(result["ids"], self.wanted)
        return result["engine"]["compile_cached"]

    def test_found_again(self):
        for threads in 1, 2:
            self.assertEqual(
                self.generate(self.filled, f"--threads={threads}"),
                (self.wanted, True))
        self.assertEqual(os.listdir(self.filled), [self.entry])

    def test_damaged_entries(self):
        """Built again, and good the next time."""
        with open(os.path.join(self.filled, self.entry), "rb") as file:
            content = file.read()
        middle = len(content) // 2
        other = os.path.join(self.folder, "other")
        self.generate(other, model=os.path.join(GOLDEN, "llama_gqa"))
        with open(os.path.join(other, os.listdir(other)[0]), "rb") as file:
            foreign = file.read()
        self.assertNotEqual(foreign, content)
        for name, damaged in [
                ("truncated", content[:middle]), ("empty", b""),
                ("changed", content[:middle] +
                 bytes([content[middle] ^ 1]) + content[middle + 1:]),
                ("foreign", foreign)]:
            with self.subTest(damage=name):
                cache, entry = self.filled_copy(name)
                with open(entry, "wb") as file:
                    file.write(damaged)
                self.assertEqual(self.generate(cache), (self.wanted, False))
                self.assertEqual(self.generate(cache), (self.wanted, True))
                self.assertEqual(len(os.listdir(cache)), 1)

    def test_entries_that_are_no_files(self):
        cache, entry = self.filled_copy()
        os.remove(entry)
        os.mkdir(entry)
        self.assertEqual(self.generate(cache), (self.wanted, False))
        entry, = (os.path.join(cache, name) for name in os.listdir(cache))
        os.remove(entry)
        os.mkfifo(entry)
        self.assertEqual(self.generate(cache), (self.wanted, False))
        self.assertEqual(self.generate(cache), (self.wanted, True))

    def test_place_of_an_entry_is_taken(self):
        """The module is built elsewhere, and nothing else is left."""
        cache, entry = self.filled_copy()
        os.remove(entry)
        os.makedirs(os.path.join(entry, "folder"))
        for _ in range(2):
            self.assertEqual(self.generate(cache), (self.wanted, False))
            self.assertEqual(os.listdir(cache), [self.entry])

    def test_what_killed_processes_left(self):
        """Removed once it is a day old, and nothing else is."""
        cache = self.path("cache")
        for name in "building-Old123", "building-New123", "building-Old":
            os.makedirs(os.path.join(cache, name))
            if "Old" in name:
                part = os.path.join(cache, name, "module.so")
                with open(part, "w"):
                    pass
                for path in part, os.path.join(cache, name):
                    os.utime(path, (1e9, 1e9))
        self.assertEqual(self.generate(cache), (self.wanted, False))
        self.assertEqual(sorted(name for name in os.listdir(cache)
                                if not name.endswith(".so")),
                         ["building-New123", "building-Old"])

    def test_what_makes_another_entry(self):
        cache = self.path("cache")
        kinds = [("bf16", "avx2"), ("f32", "avx2")]
        if "avx512f" in cpu_flags():
            kinds.append(("f32", "native"))
        for count, (dtype, isa) in enumerate(kinds):
            _, hit = self.generate(cache, f"--max-isa={isa}", dtype=dtype)
            self.assertFalse(hit, (dtype, isa))
            self.assertEqual(len(os.listdir(cache)), count + 1)

    def test_another_library_makes_another_entry(self):
        """A changed library of the compiler or the runtime is another build,
        whatever the program is, and the same one elsewhere is not."""
        linked = subprocess.run(["ldd", shutil.which("stem-run")], check=True,
                                capture_output=True, text=True).stdout
        library, = [line.split()[2] for line in linked.splitlines()
                    if "libStemRuntime" in line]
        os.mkdir(self.path("preloaded"))
        copy = shutil.copy2(library, self.path("preloaded"))
        cache, _ = self.filled_copy()
        environment = {**os.environ, "LD_PRELOAD": copy}
        os.utime(copy, (1e9, 1e9))
        self.assertTrue(self.finish(self.start(cache, env=environment)))
        # Another build id, in a file of the same size and time.
        with open(copy, "rb") as file:
            content = bytearray(file.read())
        note = content.index(struct.pack("<III", 4, 20, 3) + b"GNU\0")
        content[note + 16] ^= 1
        os.remove(copy)
        with open(copy, "wb") as file:
            file.write(content)
        os.utime(copy, (1e9, 1e9))
        for hit in False, True:
            self.assertEqual(
                self.finish(self.start(cache, env=environment)), hit)
        # Without one, the time counts.
        content[note + 8] ^= 1
        with open(copy, "wb") as file:
            file.write(content)
        for time in 1e9, 1.1e9:
            os.utime(copy, (time, time))
            for hit in False, True:
                self.assertEqual(
                    self.finish(self.start(cache, env=environment)), hit)
        self.assertEqual(len(os.listdir(cache)), 4)

    def test_processes_at_once(self):
        cache = self.path("cache")
        for process in [self.start(cache) for _ in range(3)]:
            self.finish(process)
        self.assertEqual([name for name in os.listdir(cache)
                          if not name.endswith(".so")], [])
        self.assertTrue(self.finish(self.start(cache)))

    def as_reader(self):
        """Options of a process that may not write where this test does."""
        if os.geteuid() != 0:
            return {}
        run = shutil.which("stem-run")
        may_read = subprocess.run(["test", "-x", run, "-a", "-r", MODEL],
                                  user=NOBODY, group=NOBODY, extra_groups=[])
        if may_read.returncode:
            self.skipTest("another user may not run the build")
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def test_read_only(self):
        reader = self.as_reader()
        filled, _ = self.filled_copy("filled")
        empty = self.path("empty")
        os.mkdir(empty)
        for folder, hit in (filled, True), (empty, False):
            before = os.listdir(folder)
            os.chmod(folder, 0o555)
            self.assertEqual(self.finish(self.start(folder, **reader)), hit)
            os.chmod(folder, 0o755)
            self.assertEqual(os.listdir(folder), before)
        # A folder that cannot be made.
        os.chmod(empty, 0o555)
        self.assertFalse(self.finish(
            self.start(os.path.join(empty, "below"), **reader)))
        os.chmod(empty, 0o755)

    def test_place_that_is_a_file(self):
        """A warning says why nothing is kept."""
        place = self.write("file", "text")
        process = self.start(place)
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(json.loads(out)["ids"], self.wanted)
        self.assertRegex(err, f"warning: .*{place}.* is not kept")

    def test_without(self):
        cache, temporary = self.path("cache"), self.path("tmp")
        os.mkdir(temporary)
        process = subprocess.run(
            ["stem-run", "generate", MODEL, self.prompt, "-n", "8", "--json",
             "--ignore-end", "--dtype=f32", f"--cache-dir={cache}",
             "--no-compile-cache"], capture_output=True, text=True,
            env={**os.environ, "TMPDIR": temporary})
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(json.loads(process.stdout)["ids"], self.wanted)
        self.assertFalse(os.path.exists(cache))
        self.assertEqual(os.listdir(temporary), [])

    def test_disk_full_everywhere(self):
        """One message, and nothing left in the cache or beside it."""
        cache, temporary = self.path("cache"), self.path("tmp")
        os.mkdir(temporary)
        process = self.start(cache, preexec_fn=limit_files,
                             env={**os.environ, "TMPDIR": temporary})
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(out, "")
        self.assertEqual(err.count("error: "), 1, err)
        self.assertIn("cannot write", err)
        self.assertEqual(os.listdir(cache), [])
        self.assertEqual(os.listdir(temporary), [])

    @unittest.skipIf(os.geteuid() != 0, "only root mounts a small disk")
    def test_disk_full(self):
        """The module is built elsewhere."""
        cache = self.path("cache")
        os.mkdir(cache)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k",
                                  "tmpfs", cache], capture_output=True)
        if mounted.returncode:
            self.skipTest("this machine lets nobody mount a tmpfs")
        try:
            self.assertEqual(self.generate(cache), (self.wanted, False))
            self.assertEqual(os.listdir(cache), [])
        finally:
            subprocess.run(["umount", cache], check=True)


if __name__ == "__main__":
    unittest.main()
