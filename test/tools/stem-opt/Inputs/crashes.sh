#!/bin/sh
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A test of stem-reduce that dies.
kill -SEGV $$
