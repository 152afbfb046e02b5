#!/usr/bin/env bash
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares stem-run with PyTorch, the transformers library and llama.cpp.
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: bench/peers/run.sh [--quick] [--strict] [PART...]

Makes a virtual environment with PyTorch and transformers (about 6 GB, once),
runs the comparisons (all without arguments; about 20 minutes on two quiet
cores), and prints a table.

  accuracy  SmolLM2-135M: tokens, perplexity, logits, greedy continuations
  modeling  converted folders in transformers
  speed     prefill and decode, measured in turns; needs a quiet machine
  llama     llama.cpp: the same speeds and perplexities. Builds the PyPI package
            llama-cpp-python for this processor (10 to 20 minutes, once; the
            log is llama-build.log among the results). Where that fails, it says
            so and runs the other parts
  --quick   shorter texts, prompts of 512 tokens, fewer pairs: no final figures
  --strict  fails where a speed is short of its bound too

Environment: STEM_RUN (stem-run on PATH or build/release/bin/stem-run),
STEM_SMOLLM2_GGUF, STEM_PEERS_VENV (build/peers-venv), STEM_PEERS_RESULTS
(build/peers-results). Everything is written below the last two.
Exits with 77 where PyPI cannot be reached, or where only llama was asked for
and cannot be built; else with 1 where a comparison failed.
TEXT
}

cd "$(dirname "$0")/../.." || exit 1
skipped=77
options=() speed_options=() chosen=()
for argument in "$@"; do
  case "$argument" in
    --quick) options+=(--quick) ;;
    --strict) speed_options+=(--strict) ;;
    accuracy | modeling | speed | llama) chosen+=("$argument") ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run.sh: unknown argument '$argument'" >&2; usage >&2; exit 2 ;;
  esac
done
[ ${#chosen[@]} -gt 0 ] || chosen=(accuracy modeling speed llama)

export STEM_PEERS_RESULTS=${STEM_PEERS_RESULTS:-$PWD/build/peers-results}
venv=${STEM_PEERS_VENV:-$PWD/build/peers-venv}
mkdir -p "$STEM_PEERS_RESULTS" || exit 1
# Folders that an earlier stem-run made say nothing about this one.
rm -rf "$STEM_PEERS_RESULTS"/smollm2-*

if [ -z "${STEM_RUN:-}" ]; then
  STEM_RUN=$(PATH=$PATH:$PWD/build/release/bin command -v stem-run) || {
    echo "run.sh: no stem-run: build it (ninja -C build/release stem-run) or name it in STEM_RUN" >&2
    exit 1
  }
fi
export STEM_RUN

if [ -z "${STEM_SMOLLM2_GGUF:-}" ]; then
  scripts/fetch-models.sh smollm2
  case $? in
    0) export STEM_SMOLLM2_GGUF=$PWD/build/cache/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf ;;
    75) exit $skipped ;;
    *) exit 1 ;;
  esac
fi

# Complete once the mark is there.
mark=$venv/stem-peers-complete
if [ ! -f "$mark" ]; then
  echo "Installing PyTorch and transformers into $venv (about 6 GB)"
  python3 -m venv "$venv" || exit 1
  if ! "$venv/bin/pip" install --quiet --retries 1 --timeout 30 \
    torch transformers numpy safetensors; then
    echo "run.sh: pip cannot install PyTorch: is PyPI reachable from here?" >&2
    exit $skipped
  fi
  touch "$mark"
fi

# For this processor and with OpenMP; the part for images is left out.
install_llama() {
  local mark=$venv/stem-llama-complete
  local log=$STEM_PEERS_RESULTS/llama-build.log
  [ -f "$mark" ] && return 0
  echo "Building llama.cpp into $venv (10 to 20 minutes)"
  CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_OPENMP=ON -DLLAVA_BUILD=OFF" \
    CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$venv/bin/pip" install --verbose \
    --retries 1 --timeout 30 --no-cache-dir --no-binary llama-cpp-python \
    llama-cpp-python gguf &>"$log" || return 1
  touch "$mark"
}

# Parts that can run here.
wanted=("${chosen[@]}") chosen=()
for part in "${wanted[@]}"; do
  if [ "$part" = llama ] && ! install_llama; then
    rm -f "$STEM_PEERS_RESULTS/llama.json"
    echo "run.sh: llama.cpp cannot be built (see $STEM_PEERS_RESULTS/llama-build.log); left out" >&2
    continue
  fi
  chosen+=("$part")
done
[ ${#chosen[@]} -gt 0 ] || exit $skipped

# Tuning that is meant for other programs changes PyTorch's matrix products.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1 TRANSFORMERS_VERBOSITY=error
export HF_MODULES_CACHE=$STEM_PEERS_RESULTS/modules
export TORCHINDUCTOR_CACHE_DIR=$STEM_PEERS_RESULTS/inductor
export PYTHONDONTWRITEBYTECODE=1

read -r load _ </proc/loadavg
status=0
for part in "${chosen[@]}"; do
  echo
  echo "== $part"
  extra=("${options[@]}")
  [[ $part =~ ^(speed|llama)$ ]] && extra+=("${speed_options[@]}")
  start=$SECONDS
  rm -f "$STEM_PEERS_RESULTS/$part.json"
  "$venv/bin/python" "bench/peers/$part.py" "${extra[@]}" || status=1
  echo "$part took $((SECONDS - start)) s"
done
"$venv/bin/python" bench/peers/report.py "$load" || status=1
echo
echo "All figures: $STEM_PEERS_RESULTS/results.json"
exit $status
