//===- KeptTaps.cpp - What a layer's FFN multiplies, kept -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptTaps.h"

using namespace stem;

KeptTaps::KeptTaps(const TokenStream &stream, int64_t hidden, int64_t ffn)
    : hidden(hidden), ffn(ffn), places(stream.places()),
      taken(static_cast<size_t>(places)),
      values(bytes(places, hidden, ffn), "the taps of a layer") {}

int64_t KeptTaps::bytes(int64_t places, int64_t hidden, int64_t ffn) {
  return places * (hidden + 2 * ffn) * int64_t(sizeof(float));
}

TapRows KeptTaps::at(const TokenStream::Step &step, float *other) const {
  float *start = static_cast<float *>(values.data());
  float *gates = start + places * hidden;
  return {hidden > 0 ? start + step.begin * hidden : other,
          gates + step.begin * ffn, gates + (places + step.begin) * ffn};
}

bool KeptTaps::take(const TokenStream::Step &step) {
  const bool wasTaken = taken[static_cast<size_t>(step.begin)];
  taken[static_cast<size_t>(step.begin)] = true;
  return wasTaken;
}
