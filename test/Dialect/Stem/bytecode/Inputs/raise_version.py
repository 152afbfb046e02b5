# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes version 1 of the stem dialect in MLIR bytecode to version 2.

A dialect's version is a section of its own: number 7, then the length and the
version as varints (1 is 3, 2 is 5).
"""

import sys

source, target = sys.argv[1:]
with open(source, "rb") as file:
    data = file.read()
section = bytes([7, 3, 3])
if data.count(section) != 1:
    sys.exit(f"{source}: expected one version, found {data.count(section)}")
with open(target, "wb") as file:
    file.write(data.replace(section, bytes([7, 3, 5])))
