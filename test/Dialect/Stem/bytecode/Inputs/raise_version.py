# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes the version of the stem dialect in MLIR bytecode to version 3.

A dialect's version is a section of its own: number 7, then the length and the
version as varints (1 is 3, 2 is 5, 3 is 7).
"""

import sys

source, target = sys.argv[1:]
with open(source, "rb") as file:
    data = file.read()
sections = [bytes([7, 3, 3]), bytes([7, 3, 5])]
count = sum(map(data.count, sections))
if count != 1:
    sys.exit(f"{source}: expected one version, found {count}")
for section in sections:
    data = data.replace(section, bytes([7, 3, 7]))
with open(target, "wb") as file:
    file.write(data)
