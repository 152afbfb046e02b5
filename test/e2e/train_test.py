#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stem-run train: what moves and what does not, what it reports, and what it
refuses."""

import json
import math
import os
import unittest

from e2e import GOLDEN, Tensor, read_tensors, stem_json, stem_run, \
    write_tensors
from training import ROW_MODES, STEM, TrainingTest, checkpoints, contents, \
    is_complete, metrics, model_tensors

DENSE = os.path.join(GOLDEN, "llama_gqa")
TABLES = [f"model.layers.{layer}.mlp.up_table.weight" for layer in (1, 2)]


class TrainTest(TrainingTest):
    def stem(self):
        """The small model, which has a tokenizer, with two tables."""
        model = self.path("stem")
        stem_run("convert", self.small, model, "--layers=1,4",
                 "--init=row-mean")
        return model

    # ---- What moves ----

    def test_no_step_changes_no_byte(self):
        batch = self.batch()
        for model in self.small, DENSE, STEM, self.stem():
            with self.subTest(model=model):
                out = self.path("out-" + os.path.basename(model))
                stem_run("train", model, f"--batch-ids={batch}", "--steps=0",
                         f"--out={out}")
                before, after = model_tensors(model), model_tensors(out)
                self.assertEqual(set(before), set(after))
                for name, tensor in before.items():
                    self.assertEqual(tensor.dtype, after[name].dtype)
                    self.assertEqual(tensor.values, after[name].values, name)
                with open(os.path.join(model, "config.json")) as file:
                    config = json.load(file)
                with open(os.path.join(out, "config.json")) as file:
                    self.assertEqual(config, json.load(file))
                stem_run("inspect", out)

    def test_rows_outside_the_batch(self):
        """stand still in every mode but exact, where they decay."""
        batch = self.batch()
        ids = set(read_tensors(batch)["input_ids"].values)
        before = model_tensors(STEM)
        for mode, flags in ROW_MODES.items():
            with self.subTest(mode=mode):
                out = self.path(mode)
                stem_run("train", STEM, f"--batch-ids={batch}", "--steps=3",
                         f"--out={out}", *flags)
                after = model_tensors(out)
                for name in TABLES:
                    for row in range(96):
                        same = before[name].row(row) == after[name].row(row)
                        self.assertEqual(same, row not in ids and
                                         mode != "exact", (name, row))

    def test_parts_of_a_model(self):
        batch = self.batch()
        before = model_tensors(STEM)
        parts = {"tables": set(TABLES),
                 "stem-layers": {name for name in before
                                 if ".layers.1." in name or
                                 ".layers.2." in name},
                 "all": set(before)}
        for part, names in parts.items():
            with self.subTest(part=part):
                out = self.path(part)
                result = stem_json("train", STEM, f"--batch-ids={batch}",
                                   "--steps=2", "--lr=1e-2",
                                   f"--out={out}", f"--train={part}")
                after = model_tensors(out)
                moved = {name for name, tensor in before.items()
                         if tensor.values != after[name].values}
                self.assertEqual(moved, names)
                self.assertEqual(result["options"]["--train"], part)
        for part in "tables", "stem-layers":
            self.assert_fails([DENSE, f"--train={part} finds nothing",
                               "stem-run convert"], "train", DENSE,
                              f"--batch-ids={batch}", "--steps=1",
                              f"--train={part}", f"--out={self.path('no')}")
        self.assertFalse(os.path.exists(self.path("no")))

    def test_equal_runs_have_equal_bits(self):
        """Ids that occur many times in a batch too."""
        path = self.path("batch")
        write_tensors(path, {
            "input_ids": Tensor("I32", [2, 9], [5] * 12 + [6, 5] * 3),
            "labels": Tensor("I32", [2, 9], list(range(18)))})
        outs = [self.path("a"), self.path("b")]
        for out in outs:
            stem_run("train", STEM, f"--batch-ids={path}", "--steps=5",
                     f"--out={out}", "--row-dtype=bf16")
        self.assertEqual(contents(outs[0]), contents(outs[1]))

    def test_rates_of_tables(self):
        """A factor is that rate; a rate of 0 leaves the rows alone."""
        batch = self.batch()
        common = ["train", STEM, f"--batch-ids={batch}", "--steps=2",
                  "--lr=1e-2", "--row-optimizer=lazy"]
        outs = {}
        for name, flag in ("factor", "2x"), ("rate", "0.02"):
            outs[name] = self.path(name)
            stem_run(*common, f"--out={outs[name]}", f"--table-lr={flag}")
        self.assertEqual(contents(outs["factor"]), contents(outs["rate"]))

    def test_epsilon_final_rate_and_decay_of_tables(self):
        """An epsilon that makes a step as small as its gradient, which is no
        more than 0.01, beside a decay of tables alone, at rates that end
        above zero."""
        out, batch = self.path("out"), self.batch()
        result = stem_json("train", STEM, f"--batch-ids={batch}",
                           "--steps=4", "--lr=1e-2", "--schedule=linear",
                           "--final-lr=0.5", "--eps=1", "--weight-decay=0",
                           "--table-weight-decay=5", "--clip=0.01",
                           "--row-optimizer=exact", f"--out={out}")
        for option, value in (("--eps", 1), ("--final-lr", 0.5),
                              ("--weight-decay", 0),
                              ("--table-weight-decay", 5)):
            self.assertEqual(result["options"][option], value, option)
        rates = [line["lr"] for _, line in sorted(metrics(out).items())]
        for rate, share in zip(rates, (1, 0.875, 0.75, 0.625), strict=True):
            self.assertAlmostEqual(rate, share * 1e-2)
        left = math.prod(1 - 5 * rate for rate in rates)
        ids = set(read_tensors(batch)["input_ids"].values)
        before, after = model_tensors(STEM), model_tensors(out)
        for name, tensor in before.items():
            factor = left if name in TABLES else 1
            width = tensor.shape[-1]
            for i, (old, new) in enumerate(zip(
                    tensor.floats(), after[name].floats(), strict=True)):
                is_still = name in TABLES and i // width not in ids
                self.assertAlmostEqual(
                    new, factor * old, msg=name,
                    delta=1e-6 if is_still else 0.01 * sum(rates) + 1e-6)

    # ---- What it reports ----

    def test_learns_a_text(self):
        model, out, text = self.stem(), self.path("out"), self.text()
        result = stem_json("train", model, f"--data={text}", f"--out={out}",
                           "--ctx=16", "--batch=2", "--steps=8", "--lr=1e-2",
                           "--warmup=2", "--eval-every=4", "--eval-batches=2",
                           "--clip=1", "--table-lr=2x", "--dtype=f32")
        self.assertEqual(result["schema"], "stem.train/1")
        self.assertEqual(result["steps"], 8)
        self.assertEqual(result["tokens"], 8 * 32)
        for key in "tokens_per_second", "peak_bytes", "loss", \
                "validation_perplexity":
            self.assertGreater(result[key], 0)
        self.assertEqual(set(result["plan"]["memory"]), {
            "weights", "masters", "moments", "tables", "row_moments",
            "gradients", "activations", "data", "rows_aside",
            "total"})
        with open(os.path.join(out, "training", "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        losses = [line["loss"] for line in lines if "loss" in line]
        self.assertEqual(len(losses), 8)
        self.assertLess(losses[-1], losses[0])
        validations = [line for line in lines if "validation_loss" in line]
        self.assertEqual([line["step"] for line in validations], [0, 4, 8])
        self.assertLess(validations[-1]["validation_perplexity"],
                        validations[0]["validation_perplexity"])
        self.assertAlmostEqual(metrics(out)[1]["lr"], 5e-3)
        self.assertGreater(metrics(out)[1]["rows_touched"], 0)
        with open(os.path.join(out, "training", "report.html")) as file:
            page = file.read()
        for part in "Loss of each step", "Validation perplexity", \
                "Throughput", "Rows touched", "--table-lr":
            self.assertIn(part, page)
        self.assertNotIn("http://", page.replace("http://www.w3.org", ""))
        checkpoint, = checkpoints(out)
        self.assertEqual(checkpoint, "step-0000000008")
        self.assertTrue(is_complete(os.path.join(out, "training",
                                                 checkpoint)))
        stem_run("eval", out, f"--text={text}")

    def test_shard_for_several_runs(self):
        text, shard = self.text(), self.path("shard.safetensors")
        common = ["train", self.small, "--ctx=8", "--batch=1", "--steps=1",
                  f"--shard={shard}"]
        first = stem_run(*common, f"--data={text}",
                         f"--out={self.path('a')}")
        self.assertIn("tokens, 12 documents", first.stderr)
        stem_run(*common, f"--data={text}", f"--out={self.path('b')}")
        stem_run(*common, f"--out={self.path('c')}")
        self.assertEqual(contents(self.path("a")), contents(self.path("c")))
        other = self.text("other.jsonl", documents=3)
        self.assert_fails([shard, "other"], *common, f"--data={other}",
                          f"--out={self.path('d')}")

    def test_plan_comes_first(self):
        batch = self.batch()
        result = stem_run("train", STEM, f"--batch-ids={batch}", "--steps=1",
                          f"--out={self.path('out')}")
        plan = result.stderr[result.stderr.index("memory:"):]
        for part in "weights", "masters", "moments", "tables", \
                "row moments", "activations", "data", "in all", \
                "a step: 1 x 2 x 8 tokens", "FLOP (linear layers", \
                "--row-optimizer=rowwise":
            self.assertIn(part, plan)
        self.assertLess(plan.index("in all"), plan.index("step 1/1"))

    def test_plan_of_short_documents(self):
        """Each begins a tile, which is known once the texts are read."""
        text = self.text(documents=40)
        common = ["train", self.small, f"--data={text}", "--ctx=256",
                  "--batch=2", "--steps=1"]
        plain, apart = (
            stem_run(*common, f"--out={self.path(str(len(options)))}",
                     "--json", *options)
            for options in ([], ["--respect-documents"]))
        self.assertIn("each document begins a tile of 128 tokens; with that, "
                      "memory:", apart.stderr)
        self.assertNotIn("each document", plain.stderr)
        memory = [json.loads(result.stdout)["plan"]["memory"]
                  for result in (plain, apart)]
        self.assertGreater(memory[1]["activations"],
                           1.5 * memory[0]["activations"])
        self.assertEqual(memory[1]["gradients"], memory[0]["gradients"])

    def test_recompute_budget_of_short_documents(self):
        """Is for their tiles, several times the tokens."""
        text = self.text(documents=40)
        common = ["train", self.small, f"--data={text}", "--ctx=256",
                  "--batch=2", "--steps=1"]

        def activations(name, *options):
            result = stem_json(*common, f"--out={self.path(name)}", *options)
            return result["plan"]["memory"]["activations"]

        documents, budget = "--respect-documents", "--recompute-budget=6MB"
        self.assertEqual(activations("a"), activations("b", budget))
        self.assertLess(activations("c", documents, budget),
                        activations("d", documents))

    def test_one_table_alone(self):
        """moves as it does beside all else: nothing below it is trained."""
        batch, model = self.batch(), self.path("one")
        for layer, dtype in ((0, "f32"), (2, "f32"), (0, "bf16"), (2, "bf16")):
            stem_run("convert", DENSE, model, f"--layers={layer}",
                     "--init=row-mean", "--force")
            name = f"model.layers.{layer}.mlp.up_table.weight"
            rows = []
            for part in "tables", "all":
                out = self.path(f"{part}-{layer}-{dtype}")
                stem_run("train", model, f"--batch-ids={batch}", "--steps=1",
                         f"--train={part}", f"--out={out}",
                         f"--dtype={dtype}")
                rows.append(model_tensors(out)[name].values)
            self.assertNotEqual(rows[0], model_tensors(model)[name].values)
            self.assertEqual(*rows)

    def test_recompute_budget(self):
        batch = self.batch()

        def train(name, *flags):
            out = self.path(name)
            result = stem_json("train", STEM, f"--batch-ids={batch}",
                               "--steps=2", f"--out={out}", *flags)
            return result, model_tensors(out)

        for dtype in "f32", "bf16":
            kept, wanted = train(dtype, f"--dtype={dtype}")
            self.assertIsNone(kept["recompute_budget"])
            for budget, count in ("1KB", 1000), ("1GB", 10**9):
                tight, seen = train(dtype + budget, f"--dtype={dtype}",
                                    f"--recompute-budget={budget}")
                self.assertEqual(tight["recompute_budget"], count)
                activations = [result["plan"]["memory"]["activations"]
                               for result in (tight, kept)]
                if budget == "1KB":
                    self.assertLess(*activations)
                else:
                    self.assertEqual(*activations)
                for key, tensor in wanted.items():
                    self.assertEqual(tensor.values, seen[key].values, key)
        with open(tight["report"]) as file:
            self.assertRegex(file.read(),
                             "--recompute-budget.{1,80}1000000000 bytes")
        with open(os.path.join(tight["out"], "stem_provenance.json")) as file:
            self.assertIn('"recompute_budget": 1000000000', file.read())
        self.assert_fails(["--recompute-budget=some"], "train", STEM,
                          f"--batch-ids={batch}", "--steps=1",
                          f"--out={self.path('wrong')}",
                          "--recompute-budget=some", status=2)

    def test_memory_that_is_not_there(self):
        """Is refused before a text is read. --accumulate is no way out for
        nothing where the step updates what it has gradients of."""
        out = self.path("out")
        for options, advice in (
                ([], "give a smaller --batch (--accumulate with it keeps "
                 "about 2.5 MB of gradients), "),
                (["--clip=1"], "give a smaller --batch with --accumulate, ")):
            self.assert_fails(
                ["training takes", "masters 1.25 MB", "moments 2.5 MB",
                 "activations", "are available", advice + "a smaller --ctx, "
                 "--row-optimizer=rowwise, --train=tables, or a "
                 "--recompute-budget"],
                "train", self.small, "--data=no-such-file",
                "--batch=1000000", "--ctx=2048", f"--out={out}", *options)
        self.assertFalse(os.path.exists(out))

    def test_memory_stays_flat(self):
        batch, out = self.batch(rows=1, length=4), self.path("out")
        stem_run("train", STEM, f"--batch-ids={batch}", "--steps=1000",
                 "--save-every=0", "--row-optimizer=exact", f"--out={out}")
        lines = metrics(out)
        self.assertLess(lines[1000]["resident_bytes"],
                        lines[100]["resident_bytes"] + (1 << 20))

    # ---- Nothing to learn, nothing finite ----

    def test_batch_without_a_label(self):
        batch, out = self.batch(ignored=range(16)), self.path("out")
        result = stem_run("train", STEM, f"--batch-ids={batch}", "--steps=2",
                          f"--out={out}", "--json")
        self.assertIn("step 1: no place of the batch has a label; loss 0, "
                      "step skipped", result.stderr)
        self.assertEqual(json.loads(result.stdout)["skipped_steps"], 2)
        self.assertEqual(metrics(out)[1]["loss"], 0)
        before = model_tensors(STEM)
        for name, tensor in model_tensors(out).items():
            self.assertEqual(tensor.values, before[name].values)

    def test_diverging_rate(self):
        batch, out = self.batch(), self.path("out")
        common = ["train", STEM, f"--batch-ids={batch}", "--steps=10",
                  "--save-every=1", f"--out={out}", "--schedule=constant",
                  "--lr=3e38", "--weight-decay=0"]
        result = stem_run(*common, check=False)
        self.assertEqual(result.returncode, 1)
        error, = [line for line in result.stderr.splitlines()
                  if line.startswith("error: ")]
        self.assertRegex(error, r"step \d+: .*model\.")
        self.assertRegex(error, "NaN or infinite|has -?nan|has -?inf")
        self.assertIn("lower --lr", error)
        self.assertFalse(os.path.exists(os.path.join(out, "config.json")))
        for name in checkpoints(out):
            folder = os.path.join(out, "training", name)
            self.assertTrue(is_complete(folder))
            for file in os.listdir(folder):
                if file.endswith(".safetensors"):
                    for tensor in read_tensors(
                            os.path.join(folder, file)).values():
                        self.assertTrue(all(map(math.isfinite,
                                                tensor.floats())))

    def test_last_good_checkpoint_is_kept(self):
        """A rate that rises beyond all bounds."""
        batch, out = self.batch(), self.path("out")
        common = ["train", STEM, f"--batch-ids={batch}", f"--out={out}",
                  "--save-every=1", "--schedule=linear", "--warmup=40",
                  "--lr=3e20", "--weight-decay=0", "--steps=60"]
        result = stem_run(*common, check=False)
        self.assertEqual(result.returncode, 1)
        kept, = checkpoints(out)
        self.assertIn(f"the checkpoint of step {int(kept[len('step-'):])} is "
                      "kept", result.stderr)
        self.assertTrue(is_complete(os.path.join(out, "training", kept)))
        again = stem_run(*common, "--resume", check=False)
        errors = [[line for line in text.splitlines() if "error:" in line]
                  for text in (result.stderr, again.stderr)]
        self.assertEqual(errors[0], errors[1])

    def test_decay_beyond_the_weights(self):
        batch = self.batch()
        self.assert_fails(["step 1: ", "times the weights off them",
                           "lower one of the two"], "train", STEM,
                          f"--batch-ids={batch}", "--steps=1", "--lr=20",
                          f"--out={self.path('out')}")

    # ---- Bad input ----

    def test_bad_batches(self):
        def write(**tensors):
            path = self.path("batch")
            write_tensors(path, {name: Tensor("I64", shape, values)
                                 for name, (shape, values) in
                                 tensors.items()})
            return path
        ids = ([1, 3], [1, 2, 3])
        long = ([1, 5000], [1] * 5000)
        for parts, tensors in [
                (["label 96 in row 0, column 2", "ids 0 to 95"],
                 {"input_ids": ids, "labels": ([1, 3], [1, 2, 96])}),
                (["label -4 in row 0, column 1"],
                 {"input_ids": ids, "labels": ([1, 3], [1, -4, 5])}),
                (["id 100 in row 0, column 1"],
                 {"input_ids": ([1, 3], [1, 100, 5]), "labels": ids}),
                (["labels"], {"input_ids": ids}),
                (["5000", "positions"],
                 {"input_ids": long, "labels": long})]:
            with self.subTest(parts=parts):
                out = self.path("out")
                self.assert_fails(parts, "train", STEM,
                                  f"--batch-ids={write(**tensors)}",
                                  "--steps=1", f"--out={out}")
                self.assertFalse(os.path.exists(out))

    def test_bad_texts(self):
        out = self.path("out")
        empty = self.write("empty.txt", "")
        self.assert_fails([empty, "0 bytes"], "train", self.small,
                          f"--data={empty}", f"--out={out}", "--ctx=8")
        self.assert_fails(["no-such-file"], "train", self.small,
                          "--data=no-such-file", f"--out={out}", "--ctx=8")
        text = self.text()
        self.assert_fails(["999999", "positions"], "train", self.small,
                          f"--data={text}", f"--out={out}", "--ctx=999999")
        self.assert_fails(["fewer than"], "train", self.small,
                          f"--data={text}", f"--out={out}", "--ctx=2048")
        one = self.write("one.txt", "A single document of some words.")
        self.assert_fails(["has one document"], "train", self.small,
                          f"--data={one}", f"--out={out}", "--ctx=8",
                          "--eval-every=1")
        self.assert_fails(["tokenizer"], "train", STEM, f"--data={text}",
                          f"--out={out}", "--ctx=8")
        self.assertFalse(os.path.exists(out))

    def test_shard_of_another_tokenizer(self):
        text, shard = self.text(), self.path("shard.safetensors")
        stem_run("train", self.small, f"--data={text}", f"--shard={shard}",
                 "--ctx=8", "--steps=1", "--batch=1",
                 f"--out={self.path('a')}")
        other = self.copy_model("other")
        path = os.path.join(other, "tokenizer.json")
        with open(path, "a") as file:
            file.write("\n")
        out = self.path("out")
        self.assert_fails([shard, "tokenizer"], "train", other,
                          f"--shard={shard}", "--ctx=8", "--steps=1",
                          f"--out={out}")
        self.assertFalse(os.path.exists(out))

    def test_a_bad_shard_is_found_before_compiling(self):
        for shard in (self.write("pointer", "version https://git-lfs.github"
                                 ".com/spec/v1\noid sha256:0\nsize 1\n"),
                      self.path("none")):
            result = stem_run("train", self.small, f"--shard={shard}",
                              "--ctx=8", "--steps=1", "--no-compile-cache",
                              f"--out={self.path('out')}",
                              f"--dump-ir={self.path('ir')}", check=False)
            self.assertEqual(result.returncode, 1)
            self.assertIn(shard, result.stderr)
            self.assertFalse(os.path.exists(self.path("ir")))

    def test_data_takes_one_file(self):
        text = self.text()
        self.assert_fails(["second"], "train", self.small, "--out=x",
                          "--data", text, "second", status=2)

    def test_command_lines(self):
        out = f"--out={self.path('out')}"
        for part, options in [
                ("nothing to train on", [out]),
                ("--out is required", ["--batch-ids=x", "--steps=1"]),
                ("--batch-ids needs --steps", [out, "--batch-ids=x"]),
                ("--batch=1048576 of --ctx=2048: a batch has at most "
                 "2147483647 tokens",
                 [out, "--data=x", "--batch=1048576", "--ctx=2048"]),
                ("--data does not go with --batch-ids",
                 [out, "--batch-ids=x", "--steps=1", "--data=y"]),
                ("--betas=1,2: give two numbers",
                 [out, "--data=x", "--betas=1,2"]),
                ("--betas=0.9: give two numbers",
                 [out, "--data=x", "--betas=0.9"]),
                ("--lr=nan: give a number",
                 [out, "--data=x", "--lr=nan"]),
                ("--lr=-1: give a number", [out, "--data=x", "--lr=-1"]),
                ("--table-lr=fast: give a learning rate",
                 [out, "--data=x", "--table-lr=fast"]),
                ("--validation=1: give a share below 1",
                 [out, "--data=x", "--validation=1"]),
                ("--eval-every needs documents",
                 [out, "--data=x", "--validation=0", "--eval-every=1"]),
                ("--decay-steps goes with --schedule=wsd",
                 [out, "--data=x", "--decay-steps=3"]),
                ("--steps", [out, "--data=x", "--steps=-1"]),
                ("--keep", [out, "--data=x", "--keep=-1"]),
                ("--row-optimizer", [out, "--data=x",
                                     "--row-optimizer=fast"])]:
            with self.subTest(part=part):
                self.assert_fails([part], "train", self.small, *options,
                                  status=2)


if __name__ == "__main__":
    unittest.main()
