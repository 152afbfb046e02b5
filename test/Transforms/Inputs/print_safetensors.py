# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints name, type, shape and bytes of every tensor of a small file."""

import json
import struct
import sys

with open(sys.argv[1], "rb") as file:
    data = file.read()
(length,) = struct.unpack_from("<Q", data)
header = json.loads(data[8:8 + length])
header.pop("__metadata__", None)
end = 0
for name, entry in header.items():
    begin, end = entry["data_offsets"]
    values = data[8 + length + begin:8 + length + end]
    print(name, entry["dtype"], entry["shape"], values.hex())
assert 8 + length + end == len(data)
