# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""STEM models for the transformers library.

A STEM layer's feed-forward block looks a row up by token id in place of the
up-projection:

    y = down_proj(act(gate_proj(x)) * up_table[token id])

With a rank (one for all STEM layers, or a list with one for each), a low-rank
map of x is added to the row; with "select", the tokens whose ids are in
up_select.ids take up_proj(x) instead of both. Rows of 8 bits ("row_dtype":
"uint8") stay bytes and are decoded when they are looked up.

The rest is the dense model that config.json's "stem" section names as its base.
Load a folder that holds this file with trust_remote_code=True:

    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
"""

import dataclasses

import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.configuration_utils import PretrainedConfig
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel

# The cache's name as an argument, which forward passes on, and in the outputs;
# releases of the library differ.
CACHE_KEY = ("cache" if "cache" in {field.name for field in dataclasses.fields(
    CausalLMOutputWithPast)} else "past_key_values")

SECTION_VERSION = 1
SECTION_KEYS = {"version", "base", "layers", "rank", "select", "row_dtype",
                "provenance"}


def check_section(stem):
    if stem.get("version") != SECTION_VERSION:
        raise ValueError(f"stem.version {stem.get('version')} is not supported,"
                         f" only {SECTION_VERSION}")
    unknown = sorted(set(stem) - SECTION_KEYS)
    if unknown:
        raise ValueError(f"stem section: unknown keys {', '.join(unknown)}")
    layer_ranks(stem)


def layer_ranks(stem):
    """{layer: rank of its low-rank term} of the STEM layers."""
    layers, ranks = stem["layers"], stem.get("rank") or 0
    if not isinstance(ranks, list):
        ranks = [ranks] * len(layers)
    if len(ranks) != len(layers):
        raise ValueError(f"stem.rank has {len(ranks)} entries, stem.layers"
                         f" {len(layers)}")
    for rank in ranks:
        if type(rank) is not int or rank < 0:
            raise ValueError(f"stem.rank: {rank} is not a whole number from 0")
    return dict(zip(layers, ranks))


class StemLlamaConfig(PretrainedConfig):
    """The base model's config and the section "stem"."""

    model_type = "stem_llama"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(self, stem=None, **kwargs):
        super().__init__(**kwargs)
        self.stem = stem
        if stem is None:
            return
        check_section(stem)
        # What the base's class computes from the keys is needed here too: the
        # cache asks for layer_types and sliding_window, for example.
        for key, value in self.base_config(kwargs).to_dict().items():
            if key not in OWN_KEYS and (key in kwargs or
                                        not hasattr(self, key)):
                setattr(self, key, value)

    def base_config(self, values=None):
        """The dense model's config."""
        if values is None:
            values = self.to_dict()
        values = {key: value for key, value in values.items()
                  if key not in OWN_KEYS and not key.startswith("_")}
        return AutoConfig.for_model(self.stem["base"]["model_type"], **values)


OWN_KEYS = {"stem", "model_type", "architectures", "auto_map",
            "transformers_version"}


class TokenIds:
    """The ids of the running forward pass; every STEM block has the same."""

    def __init__(self):
        self.ids = None


class LowRank(nn.Module):
    """x -> a b x"""

    def __init__(self, inputs, rank, outputs, **kwargs):
        super().__init__()
        self.a = nn.Linear(rank, outputs, bias=False, **kwargs)
        self.b = nn.Linear(inputs, rank, bias=False, **kwargs)

    def forward(self, x):
        return self.a(self.b(x))


class SelectedIds(nn.Module):
    """The ids that keep the up-projection."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ids", torch.empty(0, dtype=torch.int64))

    def resize(self, count):
        self.ids = torch.empty(count, dtype=self.ids.dtype,
                               device=self.ids.device)

    def forward(self, ids):
        """Where `ids` are selected."""
        return torch.isin(ids.to(self.ids.device), self.ids)


class ByteTable(nn.Module):
    """Rows of 8 bits: minimum + scale * byte, in double precision as Stem
    does it; the rows of hot_ids are kept as they were."""

    def __init__(self, rows, columns, device, dtype):
        super().__init__()
        self.register_buffer("weight", torch.empty(
            rows, columns, device=device, dtype=torch.uint8))
        for name in "scale", "minimum":
            self.register_buffer(name, torch.empty(rows, device=device,
                                                   dtype=torch.float32))
        self.dtype = dtype
        self.columns = columns

    def add_hot_rows(self, count):
        device = self.weight.device
        self.register_buffer("hot_ids", torch.empty(count, device=device,
                                                    dtype=torch.int32))
        self.register_buffer("hot_rows", torch.empty(
            count, self.columns, device=device, dtype=self.dtype))

    def forward(self, ids):
        minimum, scale = (values[ids].double()[..., None]
                          for values in (self.minimum, self.scale))
        rows = (minimum + scale * self.weight[ids].double()).float()
        if hasattr(self, "hot_ids") and len(self.hot_ids):
            place = torch.searchsorted(self.hot_ids, ids.to(self.hot_ids.dtype))
            place = place.clamp(max=len(self.hot_ids) - 1)
            is_hot = (self.hot_ids[place] == ids)[..., None]
            rows = torch.where(is_hot, self.hot_rows[place].float(), rows)
        return rows.to(self.dtype)


class StemMLP(nn.Module):
    def __init__(self, dense, vocab_size, rank, select, token_ids,
                 has_byte_rows=False):
        super().__init__()
        self.gate_proj = dense.gate_proj
        self.down_proj = dense.down_proj
        self.act_fn = dense.act_fn
        weight = dense.gate_proj.weight
        table = ByteTable if has_byte_rows else nn.Embedding
        self.up_table = table(vocab_size, weight.shape[0],
                              device=weight.device, dtype=weight.dtype)
        self.up_mix = (LowRank(weight.shape[1], rank, weight.shape[0],
                               device=weight.device, dtype=weight.dtype)
                       if rank else None)
        self.up_select = SelectedIds() if select else None
        if self.up_select is not None:
            self.up_proj = dense.up_proj
        # Not a module: kept out of the parameters.
        self.token_ids = token_ids

    def forward(self, x):
        ids = self.token_ids.ids
        if ids is None or ids.shape != x.shape[:-1]:
            raise ValueError("a STEM layer needs the token ids of its input: "
                             "call the model with input_ids")
        up = self.up_table(ids.to(self.up_table.weight.device))
        if self.up_mix is not None:
            up = up + self.up_mix(x)
        if self.up_select is not None:
            selected = self.up_select(ids)
            up[selected] = self.up_proj(x[selected]).to(up.dtype)
        return self.down_proj(self.act_fn(self.gate_proj(x)) * up)


class StemLlamaForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = StemLlamaConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flash_attn_2 = True
    _supports_attention_backend = True
    _supports_cache_class = True
    _can_compile_fullgraph = False
    _skip_keys_device_placement = ["past_key_values"]
    _keep_in_fp32_modules_strict = ["up_table.scale", "up_table.minimum"]
    # Shards that a conversion left alone still hold the matrices.
    _keys_to_ignore_on_load_unexpected = [r"\.mlp\.up_proj\."]
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        base = config.base_config()
        base._attn_implementation = config._attn_implementation
        dense = AutoModelForCausalLM.from_config(base)
        self.model = dense.model
        self.lm_head = dense.lm_head
        self.vocab_size = config.vocab_size
        self.token_ids = TokenIds()
        for index, rank in layer_ranks(config.stem).items():
            if not 0 <= index < len(self.model.layers):
                raise ValueError(f"stem.layers: there is no layer {index} among"
                                 f" {len(self.model.layers)}")
            layer = self.model.layers[index]
            layer.mlp = StemMLP(layer.mlp, config.vocab_size, rank,
                                config.stem.get("select"), self.token_ids,
                                config.stem.get("row_dtype") == "uint8")
        self.post_init()

    @classmethod
    def _load_pretrained_model(cls, model, state_dict, checkpoint_files, *args,
                               **kwargs):
        # config.json does not say how many ids there are; the library compares
        # shapes before it loads.
        shapes = {name: tensor.shape
                  for name, tensor in (state_dict or {}).items()}
        for path in checkpoint_files or () if not shapes else ():
            with safe_open(path, framework="pt") as file:
                for name in file.keys():
                    if name.endswith((".up_select.ids", ".up_table.hot_ids")):
                        shapes[name] = file.get_slice(name).get_shape()
        for name, module in model.named_modules():
            if isinstance(module, SelectedIds) and f"{name}.ids" in shapes:
                module.resize(*shapes[f"{name}.ids"])
            if isinstance(module, ByteTable) and f"{name}.hot_ids" in shapes:
                module.add_hot_rows(*shapes[f"{name}.hot_ids"])
        return super()._load_pretrained_model(
            model, state_dict, checkpoint_files, *args, **kwargs)

    def _init_weights(self, module):
        # The dense part is initialised by its own class, rows like embeddings.
        if isinstance(module, nn.Embedding):
            module.weight.data.normal_(
                mean=0.0, std=getattr(self.config, "initializer_range", 0.02))

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def set_input_embeddings(self, value):
        self.model.embed_tokens = value

    def get_output_embeddings(self):
        return self.lm_head

    def set_output_embeddings(self, value):
        self.lm_head = value

    def get_decoder(self):
        return self.model

    def resize_token_embeddings(self, *args, **kwargs):
        raise NotImplementedError("a STEM table has one row for each id of the "
                                  "vocabulary; resizing it is not supported")

    def forward(self, input_ids=None, attention_mask=None, position_ids=None,
                inputs_embeds=None, labels=None, use_cache=None,
                logits_to_keep=0, return_dict=None, **kwargs):
        if input_ids is None or inputs_embeds is not None:
            raise ValueError("a STEM model looks rows up by token id: call it "
                             "with input_ids, without inputs_embeds")
        self.token_ids.ids = input_ids
        try:
            outputs = self.model(
                input_ids=input_ids, attention_mask=attention_mask,
                position_ids=position_ids, use_cache=use_cache, **kwargs)
        finally:
            # Recomputation in the backward pass still reads them.
            if not (self.training and torch.is_grad_enabled()):
                self.token_ids.ids = None
        hidden = outputs.last_hidden_state
        keep = (slice(-logits_to_keep, None)
                if isinstance(logits_to_keep, int) else logits_to_keep)
        logits = self.lm_head(hidden[:, keep, :])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels,
                                      vocab_size=self.vocab_size, **kwargs)
        result = CausalLMOutputWithPast(
            loss=loss, logits=logits,
            hidden_states=outputs.get("hidden_states"),
            attentions=outputs.get("attentions"),
            **{CACHE_KEY: outputs.get(CACHE_KEY)})
        return result.to_tuple() if return_dict is False else result
