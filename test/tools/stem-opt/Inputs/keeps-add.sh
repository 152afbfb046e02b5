#!/bin/sh
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Interesting, for stem-reduce, is what still has an arith.addf: status 1.
! grep -q arith.addf "$1"
