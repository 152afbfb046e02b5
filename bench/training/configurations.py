# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models, and what is measured with them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    theta: float
    batch: int
    length: int = 512


SHAPES = {
    "60m": Shape(512, 8, 8, 4, 1536, 32000, 1e4, batch=4),
    "135m": Shape(576, 30, 9, 3, 1536, 49152, 1e5, batch=2),
    "350m": Shape(960, 32, 15, 5, 2560, 32000, 1e4, batch=2),
    "tiny": Shape(64, 4, 4, 2, 96, 256, 1e4, batch=2, length=32),
}


def stem_layers(shape, which):
    """none; all: all but the first; third: 2, 5, 8, ..."""
    return {"none": [], "all": list(range(1, shape.layers)),
            "third": list(range(2, shape.layers, 3))}[which]


def config(shape, which):
    """A config.json, for stem-run and for the PyTorch worker."""
    result = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "vocab_size": shape.vocab, "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "hidden_act": "silu",
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "rope_theta": shape.theta, "tie_word_embeddings": True,
        "initializer_range": 0.02, "dtype": "float32"}
    layers = stem_layers(shape, which)
    if layers:
        result.update(
            model_type="stem_llama", architectures=["StemLlamaForCausalLM"],
            stem={"version": 1,
                  "base": {"model_type": "llama",
                           "architectures": ["LlamaForCausalLM"]},
                  "layers": layers, "rank": 0, "select": False,
                  "row_dtype": "float32"})
    return result


@dataclass(frozen=True)
class Program:
    """One process: ours (peer is empty) or PyTorch's."""
    stem: str = "none"  # which layers
    peer: str = ""      # dense, official, sparse or rowwise
    compiled: bool = False
    options: tuple = ()  # of stem-run bench --train

    @property
    def name(self):
        if not self.peer:
            return " ".join(["ours", "dense" if self.stem == "none"
                             else "STEM", *self.options])
        return f"torch {self.peer} {'compiled' if self.compiled else 'eager'}"


@dataclass(frozen=True)
class Configuration:
    """Ours, and the other program that it is measured in turns with."""
    name: str
    table: str  # of the report
    shape: str
    dtype: str
    ours: Program
    other: Program | None = None
    batch: int = 0  # 0: the shape's
    length: int = 0
    steps: int = 0  # alone: timed steps; 0: as many as pairs
    minutes: float = 0  # about, on two cores; for the list
    gigabytes: float = 0  # of memory, both programs together
    program: str = ""  # in place of both: prints lines of JSON

    def batch_of(self):
        shape = SHAPES[self.shape]
        return self.batch or shape.batch, self.length or shape.length


def against(shape, which, dtype, peers, minutes, gigabytes=12):
    """Ours against some of PyTorch's ways; names say what is compared."""
    part = {"none": "dense", "all": "STEM all but the first",
            "third": "STEM every third"}[which]
    for peer, compiled in peers:
        other = Program(which, peer, compiled)
        yield Configuration(f"{shape} {part} {dtype} against {other.name}",
                            "speed", shape, dtype, Program(which), other,
                            minutes=minutes, gigabytes=gigabytes)


ROW_MODES = {
    "exact": ("--row-optimizer=exact",),
    "lazy": ("--row-optimizer=lazy",),
    "rowwise": ("--row-optimizer=rowwise",),
    "rowwise, no first moment": ("--row-optimizer=rowwise",
                                 "--table-betas=0,0.95"),
    "rowwise, bf16 rows": ("--row-optimizer=rowwise", "--row-dtype=bf16"),
}


def alone(name, table, shape, dtype, ours, minutes, **more):
    return Configuration(name, table, shape, dtype, ours, steps=3,
                         minutes=minutes, **more)


CONFIGURATIONS = [
    # 60m, all layers but the first
    *against("60m", "all", "bf16", [("sparse", True), ("official", True),
                                    ("rowwise", True)], 4),
    *against("60m", "none", "bf16", [("dense", True)], 4),
    *against("60m", "all", "f32", [("sparse", True), ("official", True)], 5),
    *against("60m", "all", "bf16", [("sparse", False)], 4),
    # 135m, every third layer
    *against("135m", "third", "bf16", [("sparse", True)], 6, 22),
    *against("135m", "third", "f32", [("sparse", True)], 7, 22),
    *against("135m", "none", "bf16", [("dense", True)], 6),
    # ours against ours
    *(Configuration(f"60m STEM all but the first against dense {dtype}",
                    "dense", "60m", dtype, Program("all"), Program("none"),
                    minutes=2) for dtype in ("bf16", "f32")),
    # row optimizers
    *(Configuration(f"60m rows {name}", "rows", "60m", "bf16",
                    Program("all", options=options), minutes=1)
      for name, options in ROW_MODES.items()),
    Configuration("row optimizers", "optimizers", "60m", "f32", Program(),
                  minutes=2, program="row_optimizers"),
    # 8,192 tokens at a time
    *(alone(f"{shape} {name} {batch} x 512 tokens", "memory", shape, "bf16",
            Program(which), 1, batch=batch)
      for shape, which_stem in (("60m", "all"), ("135m", "third"))
      for name, which in (("dense", "none"), ("STEM", which_stem))
      for batch in (8, 16)),
    # planned against measured
    alone("350m STEM every third", "plan", "350m", "bf16", Program("third"),
          3, gigabytes=14),
    alone("350m STEM every third, no first moment", "plan", "350m", "bf16",
          Program("third", options=ROW_MODES["rowwise, no first moment"]), 3,
          gigabytes=11),
]
