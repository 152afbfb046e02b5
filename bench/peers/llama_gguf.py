# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A GGUF file's weights, dequantised, as a GGUF file of another type: what
llama.cpp computes on has as many bits per weight as what stem-run does."""

import gguf
import gguf.quants

TYPES = {"f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
         "bf16": (gguf.GGMLQuantizationType.BF16,
                  gguf.LlamaFileType.MOSTLY_BF16)}


def copy_metadata(reader, writer):
    """All but what describes the container and the weights' type."""
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in (
                gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE,
                gguf.Keys.General.QUANTIZATION_VERSION):
            continue
        is_array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0],
                             field.types[-1] if is_array else None)


def write(source, target, name):
    """Matrices in this type; vectors stay f32, as in llama.cpp's own files."""
    weight_type, file_type = TYPES[name]
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field(gguf.Keys.General.ARCHITECTURE)
    writer = gguf.GGUFWriter(target, architecture.contents())
    copy_metadata(reader, writer)
    writer.add_file_type(file_type)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = (weight_type if len(tensor.shape) > 1
                else gguf.GGMLQuantizationType.F32)
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind),
                          raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
