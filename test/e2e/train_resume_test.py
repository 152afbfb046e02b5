#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stem-run train that is stopped, killed or out of space, and goes on."""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
import unittest

from e2e import GOLDEN, stem_run
from training import ROW_MODES, STEM, TrainingTest, checkpoints, contents, \
    is_complete, metrics

STEPS = 20


class TrainResumeTest(TrainingTest):
    def start(self, *arguments, limit=None):
        def set_limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return subprocess.Popen(
            ["stem-run", "train", *map(str, arguments)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=set_limit if limit else None)

    def wait_for(self, condition, process):
        end = time.monotonic() + 120
        while not condition() and process.poll() is None:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.002)

    def kill_at(self, step, out, *arguments):
        """Kills a run once this checkpoint is there."""
        process = self.start(*arguments)
        self.wait_for(lambda: os.path.exists(os.path.join(
            out, "training", f"step-{step:010}")), process)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, -signal.SIGKILL, errors)

    def assert_same_run(self, first, second):
        self.assertEqual(contents(first), contents(second))
        losses = [{step: line["loss"] for step, line in metrics(out).items()}
                  for out in (first, second)]
        self.assertEqual(losses[0], losses[1])

    def check_resume(self, model, name, *options):
        whole, broken = self.path(name + "-whole"), self.path(name + "-broken")
        common = [model, f"--steps={STEPS}", *options]
        stem_run("train", *common, f"--out={whole}", "--save-every=0")
        common += [f"--out={broken}", "--save-every=10", "--keep=2"]
        self.kill_at(10, broken, *common)
        stem_run("train", *common, "--resume")
        self.assert_same_run(whole, broken)

    # ---- The same bits ----

    def test_every_row_mode(self):
        batch = self.batch()
        for mode, flags in ROW_MODES.items():
            for rows in "f32", "bf16":
                for dtype in "f32", "bf16":
                    with self.subTest(mode=mode, rows=rows, dtype=dtype):
                        self.check_resume(
                            STEM, f"{mode}-{rows}-{dtype}",
                            f"--batch-ids={batch}", "--lr=1e-3", "--clip=1",
                            f"--row-dtype={rows}", f"--dtype={dtype}", *flags)

    def test_tied_embeddings(self):
        """One weight with two readers is saved once and comes back once."""
        tied = os.path.join(GOLDEN, "llama3_rope_tied_headdim")
        self.check_resume(tied, "tied", f"--batch-ids={self.batch()}",
                          "--lr=1e-2")

    def test_place_in_the_data(self):
        """Three epochs of shuffled sequences, in micro-batches."""
        text = self.text()
        model = self.path("stem")
        stem_run("convert", self.small, model, "--layers=1,4",
                 "--init=row-mean")
        self.check_resume(model, "text", f"--data={text}", "--ctx=16",
                          "--batch=1", "--accumulate=2", "--seed=3",
                          "--eval-every=7", "--eval-batches=1", "--warmup=4",
                          "--row-optimizer=exact", "--separator=")

    def test_tables_in_files(self):
        """The files of a run that is killed are gone; its checkpoint is not."""
        self.check_resume(STEM, "files", f"--batch-ids={self.batch()}",
                          "--lr=1e-2", "--row-optimizer=exact",
                          "--tables=file")

    def test_validation_changes_nothing(self):
        """Rows are caught up for it, and are as they were afterwards."""
        text = self.text()
        model = self.path("stem")
        stem_run("convert", self.small, model, "--layers=1,4",
                 "--init=row-mean")
        outs = []
        for every in 2, 5:
            outs.append(self.path(f"out{every}"))
            stem_run("train", model, f"--data={text}", f"--out={outs[-1]}",
                     "--ctx=12", "--batch=1", "--steps=5",
                     "--row-optimizer=exact", f"--eval-every={every}",
                     "--eval-batches=1")
        self.assert_same_run(*outs)

    def test_longer_run_of_a_constant_rate(self):
        batch, whole, out = self.batch(), self.path("whole"), self.path("out")
        common = [STEM, f"--batch-ids={batch}", "--schedule=constant"]
        stem_run("train", *common, f"--out={whole}", "--steps=4")
        stem_run("train", *common, f"--out={out}", "--steps=2")
        result = stem_run("train", *common, f"--out={out}", "--steps=4",
                          "--resume")
        self.assertIn("going on from step 2 of 4", result.stderr)
        self.assert_same_run(whole, out)
        # At its end already: exported again.
        os.remove(os.path.join(out, "config.json"))
        stem_run("train", *common, f"--out={out}", "--steps=4", "--resume")
        self.assert_same_run(whole, out)

    def test_recompute_budget_is_free(self):
        batch, whole, out = self.batch(), self.path("whole"), self.path("out")
        common = [STEM, f"--batch-ids={batch}", "--schedule=constant"]
        stem_run("train", *common, f"--out={whole}", "--steps=4")
        stem_run("train", *common, f"--out={out}", "--steps=2",
                 "--recompute-budget=1KB")
        stem_run("train", *common, f"--out={out}", "--steps=4", "--resume")
        self.assert_same_run(whole, out)

    def test_killed_while_the_model_was_moved(self):
        batch, whole, out = self.batch(), self.path("whole"), self.path("out")
        common = ["train", STEM, f"--batch-ids={batch}", "--steps=2"]
        stem_run(*common, f"--out={whole}")
        stem_run(*common, f"--out={out}")
        fresh = os.path.join(out, "training", "model")
        os.mkdir(fresh)
        for name in "config.json", "model.safetensors.index.json":
            os.rename(os.path.join(out, name), os.path.join(fresh, name))
        stem_run(*common, f"--out={out}", "--resume")
        self.assert_same_run(whole, out)
        self.assertFalse(os.path.exists(fresh))

    # ---- Signals ----

    def test_signal_saves_and_stops(self):
        batch = self.batch()
        common = [STEM, f"--batch-ids={batch}", "--save-every=0"]
        for number in signal.SIGINT, signal.SIGTERM:
            out = self.path(f"out{int(number)}")
            process = self.start(*common, f"--out={out}", "--steps=2000")
            path = os.path.join(out, "training", "metrics.jsonl")
            self.wait_for(lambda: os.path.exists(path) and
                          os.path.getsize(path) > 1000, process)
            process.send_signal(number)
            _, errors = process.communicate()
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertIn("--resume goes on", errors)
            self.assertNotIn("error:", errors)
            saved, = checkpoints(out)
            step = int(saved[len("step-"):])
            self.assertEqual(step, max(metrics(out)))
            self.assertFalse(os.path.exists(os.path.join(out, "config.json")))
            # Another number of steps is another cosine.
            self.assert_fails([f"--steps was 2000, is {step + 3}"], "train",
                              *common, f"--out={out}", "--resume",
                              f"--steps={step + 3}")

    def test_no_checkpoint(self):
        """The same model, and no way to go on."""
        batch, whole, out = self.batch(), self.path("whole"), self.path("out")
        common = [STEM, f"--batch-ids={batch}"]
        stem_run("train", *common, f"--out={whole}", "--steps=4")
        run = stem_run("train", *common, f"--out={out}", "--steps=4",
                       "--save-every=1", "--keep=0")
        self.assertRegex(run.stderr, r"disk: [0-9.]+ .?B for the model \(")
        self.assert_same_run(whole, out)
        self.assertEqual(checkpoints(out), [])
        self.assert_fails(["--resume finds no checkpoint"], "train", *common,
                          f"--out={out}", "--steps=4", "--resume")
        self.assert_fails(["--keep=0 writes no checkpoint, and --resume"],
                          "train", *common, f"--out={whole}", "--steps=4",
                          "--keep=0", "--resume", status=2)
        self.assertEqual(len(checkpoints(whole)), 1)

        stopped = self.path("stopped")
        process = self.start(*common, f"--out={stopped}", "--steps=200000",
                             "--keep=0")
        path = os.path.join(stopped, "training", "metrics.jsonl")
        self.wait_for(lambda: os.path.exists(path) and
                      os.path.getsize(path) > 1000, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 128 + signal.SIGINT, errors)
        self.assertIn("; --keep=0 saves nothing", errors)
        self.assertEqual(checkpoints(stopped), [])

    def test_signal_before_the_first_step(self):
        """Nothing is kept, and nothing stays."""
        out, text = self.path("out"), self.text(documents=4000)
        process = self.start(self.small, f"--data={text}", f"--out={out}",
                             "--ctx=64", "--no-compile-cache")
        self.wait_for(lambda: os.path.isdir(out), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 128 + signal.SIGINT, errors)
        self.assertFalse(os.path.exists(out))

    def test_killed_at_moments_of_saving(self):
        """50 times, from the beginning of a checkpoint on."""
        draw = random.Random(1)
        batch, out = self.batch(), self.path("out")
        common = [STEM, f"--batch-ids={batch}", "--steps=100000",
                  "--save-every=1", "--schedule=constant",
                  "--row-optimizer=exact", f"--out={out}"]
        training = os.path.join(out, "training")
        last, unfinished, held = 0, 0, 0
        for attempt in range(50):
            process = self.start(*common, *(["--resume"] if attempt else []))
            self.wait_for(lambda: checkpoints(out) if os.path.isdir(training)
                          else False, process)
            begun = time.monotonic()
            self.wait_for(lambda: time.monotonic() > begun + 0.05 and any(
                name.startswith(".step-") for name in os.listdir(training)),
                process)
            time.sleep(draw.uniform(0, 0.01))
            process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
            self.assertEqual(process.returncode, -signal.SIGKILL, errors)
            self.assertNotIn("passed over", errors)
            unfinished += any(name.startswith(".step-")
                              for name in os.listdir(training))
            steps = checkpoints(out)
            # Old ones go after a new one is there: each end between the two
            # leaves one more, until a later save removes them all.
            self.assertIn(len(steps), range(1, max(held, 1) + 2))
            held = len(steps)
            for name in steps:
                self.assertTrue(is_complete(os.path.join(training, name)))
            step = int(steps[-1][len("step-"):])
            self.assertGreaterEqual(step, last)
            last = step
        self.assertGreater(unfinished, 0)
        # What was left unfinished goes with the next run.
        stem_run("train", *[f"--steps={last + 1}" if option.startswith(
            "--steps") else option for option in common], "--resume")
        self.assertEqual([name for name in os.listdir(training)
                          if name.startswith(".")], [])
        self.assertEqual(len(checkpoints(out)), 1)
        whole = self.path("whole")
        stem_run("train", STEM, f"--batch-ids={batch}",
                 f"--steps={last + 1}", "--save-every=0",
                 "--schedule=constant", "--row-optimizer=exact",
                 f"--out={whole}")
        self.assert_same_run(whole, out)

    # ---- No space, no permission ----

    def test_file_that_may_not_grow(self):
        batch, whole, out = self.batch(), self.path("whole"), self.path("out")
        common = [STEM, f"--batch-ids={batch}", "--schedule=constant",
                  "--save-every=2"]
        stem_run("train", *common, f"--out={whole}", "--steps=6")
        stem_run("train", *common, f"--out={out}", "--steps=2")
        before = contents(os.path.join(out, "training",
                                       checkpoints(out)[0]))
        process = self.start(*common, f"--out={out}", "--steps=6", "--resume",
                             limit=50_000)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("cannot write: File too large", errors)
        self.assertEqual(checkpoints(out), ["step-0000000002"])
        self.assertEqual(before, contents(os.path.join(
            out, "training", "step-0000000002")))
        self.assertFalse([name for name in os.listdir(
            os.path.join(out, "training")) if name.startswith(".")])
        stem_run("train", *common, f"--out={out}", "--steps=6", "--resume")
        self.assert_same_run(whole, out)

    def in_small_folder(self, size, script, *arguments):
        """Runs it in a file system of that size, at $0; None without the
        right to make one."""
        folder = self.path("small-fs")
        os.makedirs(folder, exist_ok=True)
        mount = f'mount -t tmpfs -o size={size} none "$0" || exit 77; '
        try:
            result = subprocess.run(
                ["unshare", "-rm", "sh", "-c", mount + script, folder,
                 *map(str, arguments)], capture_output=True, text=True,
                timeout=600)
        except FileNotFoundError:
            return None
        refused = result.returncode == 77 or "unshare" in result.stderr
        return None if refused else result

    def test_full_disk(self):
        batch = self.batch()
        script = 'stem-run train "$@" --out="$0/out"'
        result = self.in_small_folder("300k", script, STEM,
                                      f"--batch-ids={batch}", "--steps=3")
        if result is None:
            self.skipTest("no right to mount a file system")
        # Before the first step, with the arithmetic.
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("are needed (2 checkpoints of", result.stderr)
        self.assertIn("are free on this file system", result.stderr)
        self.assertNotIn("step 1/", result.stderr)
        self.assertIn("or --keep=0, a run that cannot go on", result.stderr)
        result = self.in_small_folder("100k", script, STEM, "--keep=0",
                                      f"--batch-ids={batch}", "--steps=3")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("are needed for the model, ", result.stderr)
        # Filled by others while it runs.
        script = ('stem-run train "$@" --out="$0/out" --steps=2 && '
                  '(cat /dev/zero >"$0/rest" 2>/dev/null; '
                  'rm "$0/out/model.safetensors"; '
                  'stem-run train "$@" --out="$0/out" --steps=4 '
                  '--resume; echo "status $?" >&2; rm "$0/rest"; '
                  'ls -a "$0/out/training"; '
                  'stem-run train "$@" --out="$0/out" --steps=4 --resume)')
        result = self.in_small_folder("4m", script, STEM,
                                      f"--batch-ids={batch}",
                                      "--schedule=constant")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("status 1", result.stderr)
        self.assertIn("step-0000000002", result.stdout)
        self.assertNotIn(".step-", result.stdout)

    def test_folder_without_permission(self):
        batch = self.batch()
        self.assert_fails(["/proc/out", "cannot make this folder"], "train",
                          STEM, f"--batch-ids={batch}", "--steps=1",
                          "--out=/proc/out")
        script = ('stem-run train "$@" --out="$0/out" --steps=2 && '
                  'mount -o remount,ro "$0" && '
                  'stem-run train "$@" --out="$0/out" --steps=4 --resume')
        result = self.in_small_folder("4m", script, STEM,
                                      f"--batch-ids={batch}",
                                      "--schedule=constant")
        if result is None:
            self.skipTest("no right to mount a file system")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("cannot write there: Read-only file system",
                      result.stderr)

    # ---- What is refused ----

    def test_other_options(self):
        batch, out = self.batch(), self.path("out")
        common = ["train", STEM, f"--out={out}", "--resume"]
        stem_run(*common[:-1], f"--batch-ids={batch}", "--steps=2",
                 "--threads=1")
        other = self.path("other")
        shutil.copytree(STEM, other)
        with open(os.path.join(other, "config.json"), "a") as file:
            file.write("\n")
        self.assert_fails(
            ["--lr was 0.0003, is 0.5", "--clip was 0.0, is 1.0",
             '--row-optimizer was "rowwise", is "lazy"',
             "--threads was 1, is 2", "give what was, or begin a new run"],
            *common, f"--batch-ids={batch}", "--steps=2", "--lr=0.5",
            "--clip=1", "--row-optimizer=lazy", "--threads=2")
        self.assert_fails(["model was"], "train", other, *common[2:],
                          f"--batch-ids={batch}", "--steps=2", "--threads=1")
        # Nothing was lost.
        stem_run(*common, f"--batch-ids={batch}", "--steps=2", "--threads=1")

    def test_folders(self):
        batch, out = self.batch(), self.path("out")
        schedule = ["train", STEM, f"--batch-ids={batch}",
                    "--schedule=constant"]
        common = [*schedule, "--steps=1"]
        self.assert_fails(["--resume finds no such folder"], *common,
                          f"--out={out}", "--resume")
        os.mkdir(out)
        self.assert_fails(["--resume finds no training run"], *common,
                          f"--out={out}", "--resume")
        self.assertEqual(os.listdir(out), [])
        # As a run leaves it that ends before its first checkpoint.
        os.mkdir(os.path.join(out, "training"))
        self.assert_fails(["--resume finds no checkpoint"], *common,
                          f"--out={out}", "--resume")
        stem_run(*common, f"--out={out}")
        self.assert_fails(["holds a run with checkpoints"], *common,
                          f"--out={out}")
        self.assert_fails(["the run is at step 1 already, --steps=0"],
                          *schedule, f"--out={out}", "--resume", "--steps=0")
        full = self.path("full")
        os.mkdir(full)
        self.write("full/file", "text")
        self.assert_fails(["is not empty, and no training run made it"],
                          *common, f"--out={full}")
        model = self.copy_model("model", STEM)
        self.assert_fails(["where the model lies"], "train", model,
                          *common[2:], f"--out={model}")
        self.assert_fails(["cannot make this folder", "No such file"],
                          *common, f"--out={self.path('no')}/such/out")

    def test_one_process_at_a_time(self):
        batch, out = self.batch(), self.path("out")
        common = [STEM, f"--batch-ids={batch}", "--steps=100000",
                  f"--out={out}", "--save-every=1"]
        process = self.start(*common)
        training = os.path.join(out, "training")
        self.wait_for(lambda: os.path.isdir(training) and checkpoints(out),
                      process)
        self.assert_fails(["another process trains into this folder"],
                          "train", *common, "--resume")
        process.send_signal(signal.SIGINT)
        process.communicate()

    def test_damaged_checkpoints(self):
        batch, whole, out = self.batch(), self.path("whole"), self.path("out")
        common = ["train", STEM, f"--batch-ids={batch}", "--steps=4",
                  "--save-every=1", "--keep=3"]
        stem_run(*common, f"--out={whole}")
        stem_run(*common, f"--out={out}")
        self.assertEqual(checkpoints(out), [f"step-{step:010}"
                                            for step in (2, 3, 4)])
        training = os.path.join(out, "training")
        with open(os.path.join(training, "step-0000000004",
                               "dense.safetensors"), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        os.remove(os.path.join(training, "step-0000000003", "manifest.json"))
        result = stem_run(*common, f"--out={out}", "--resume")
        for part in ("dense.safetensors: has SHA-256", "manifest.json",
                     "going on from step 2 of 4"):
            self.assertIn(part, result.stderr)
        self.assert_same_run(whole, out)
        for name in checkpoints(out):
            self.assertTrue(is_complete(os.path.join(training, name)))
        for name in checkpoints(out):
            os.truncate(os.path.join(training, name, "run.json"), 10)
        self.assert_fails(["no checkpoint is complete"], *common,
                          f"--out={out}", "--resume")


if __name__ == "__main__":
    unittest.main()
