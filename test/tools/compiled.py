# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles MLIR on buffers into a shared object and calls it."""

import array
import ctypes
import struct
import subprocess

TO_LLVM = [
    "-canonicalize", "-cse", "-expand-strided-metadata", "-lower-affine",
    "-convert-scf-to-cf", "-convert-vector-to-llvm", "-convert-math-to-llvm",
    "-finalize-memref-to-llvm", "-convert-arith-to-llvm",
    "-convert-index-to-llvm", "-convert-func-to-llvm", "-convert-cf-to-llvm",
    "-reconcile-unrealized-casts"]


def compile_mlir(source, library, passes, march="native"):
    """`source` through `passes`, then LLVM, into `library`, loaded."""
    lowered = subprocess.run(["stem-opt", source] + passes + TO_LLVM,
                             check=True, stdout=subprocess.PIPE).stdout
    with open(library + ".ll", "wb") as file:
        subprocess.run(["mlir-translate", "-mlir-to-llvmir"], input=lowered,
                       check=True, stdout=file)
    subprocess.run(["clang-22", "-O2", "-march=" + march, "-shared", "-fPIC",
                    "-Wno-override-module", library + ".ll", "-lm", "-o",
                    library],
                   check=True)
    return ctypes.CDLL(library)


class MemRef:
    """A buffer of array.array type `code` with a shape; strides in elements."""

    def __init__(self, code, values, shape=None, strides=None, offset=0):
        self.data = array.array(code, values)
        self.shape = shape or [len(self.data)]
        if strides is None:
            strides = [1] * len(self.shape)
            for k in range(len(self.shape) - 2, -1, -1):
                strides[k] = strides[k + 1] * self.shape[k + 1]
        self.strides = strides
        self.offset = offset

    def arguments(self):
        pointer = ctypes.c_void_p(self.data.buffer_info()[0])
        numbers = [self.offset] + self.shape + self.strides
        return [pointer, pointer] + [ctypes.c_int64(n) for n in numbers]


def call(library, name, *memrefs):
    function = getattr(library, name)
    function.restype = None
    function(*[value for m in memrefs for value in m.arguments()])


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def bf16_of(value):
    """The bits of `value` rounded to bf16, to nearest even."""
    bits = bits_of(value)
    if value != value:
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
