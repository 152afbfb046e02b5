#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""llama.cpp's side of llama.py, in a process of its own.

Reads lines "prefill" and "decode", measures that once, and answers each with a
line of JSON: what stem-run bench --paced does. At the end of its input it says
what ran."""

import argparse
import ctypes
import json
import random
import sys
import time

import numpy
from llama_cpp import llama_cpp as api

LOG_WARNING, LOG_ERROR = 3, 4  # ggml.h


@api.llama_log_callback
def show_warnings(level, text, _):
    if level in (LOG_WARNING, LOG_ERROR):
        print(text.decode(), end="", file=sys.stderr)


class Session:
    """One model and its context, at the level of llama.cpp's own functions."""

    def __init__(self, path, positions, threads, f32_cache=False):
        api.llama_log_set(show_warnings, None)
        api.llama_backend_init()
        options = api.llama_model_default_params()
        self.model = api.llama_model_load_from_file(path.encode(), options)
        if not self.model:
            sys.exit(f"llama.cpp cannot load {path}")
        self.vocab = api.llama_model_get_vocab(self.model)
        self.vocab_size = api.llama_vocab_n_tokens(self.vocab)
        options = api.llama_context_default_params()
        options.n_ctx = positions
        options.n_batch = positions
        options.n_threads = options.n_threads_batch = threads
        if f32_cache:
            options.type_k = options.type_v = api.GGML_TYPE_F32
        self.context = api.llama_init_from_model(self.model, options)
        if not self.context:
            sys.exit(f"llama.cpp makes no context for {path}")
        self.memory = api.llama_get_memory(self.context)

    def forget(self):
        api.llama_memory_clear(self.memory, False)

    def feed(self, ids):
        """Appends these tokens; logits of the last one."""
        tokens = (api.llama_token * len(ids))(*ids)
        self.decode(api.llama_batch_get_one(tokens, len(ids)))
        return api.llama_get_logits_ith(self.context, -1)

    def decode(self, batch):
        status = api.llama_decode(self.context, batch)
        if status != 0:
            sys.exit(f"llama_decode failed ({status})")

    def all_logits(self, ids, start):
        """Appends these tokens at position `start`; [tokens, vocabulary]."""
        batch = api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = True
        self.decode(batch)
        api.llama_batch_free(batch)
        return numpy.ctypeslib.as_array(
            ctypes.cast(api.llama_get_logits(self.context),
                        ctypes.POINTER(ctypes.c_float)),
            (len(ids), self.vocab_size))

    def tokenize(self, text):
        """Without a beginning token; what looks special is text."""
        data = text.encode()
        tokens = (api.llama_token * len(data))()
        count = api.llama_tokenize(self.vocab, data, len(data), tokens,
                                   len(data), False, False)
        return list(tokens[:count])

    def description(self):
        text = ctypes.create_string_buffer(256)
        api.llama_model_desc(self.model, text, len(text))
        return {"model": text.value.decode(),
                "weight_bytes": api.llama_model_size(self.model),
                "system": api.llama_print_system_info().decode()}

    def close(self):
        api.llama_free(self.context)
        api.llama_model_free(self.model)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="FILE.gguf")
    parser.add_argument("--prompt-tokens", type=int, default=2048)
    parser.add_argument("--decode-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    session = Session(args.model, max(args.prompt_tokens, args.decode_tokens),
                      args.threads)
    generator = random.Random(0)
    prompt, steps = ([generator.randrange(session.vocab_size)
                      for _ in range(count)]
                     for count in (args.prompt_tokens, args.decode_tokens))

    def prefill():
        session.feed(prompt)

    def decode():
        for token in steps:
            session.feed([token])

    measures = {"prefill": prefill, "decode": decode}
    for line in sys.stdin:
        session.forget()
        start = time.perf_counter()
        measures[line.strip()]()
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
    print(json.dumps(session.description()))
    session.close()


if __name__ == "__main__":
    main()
