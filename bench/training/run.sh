#!/usr/bin/env bash
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Measures training steps in turns with PyTorch's, and prints the tables.
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: bench/training/run.sh [OPTIONS OF run.py]

Makes a virtual environment with PyTorch where there is none (about 6 GB),
measures what has no result yet (run.py --list says what, and for how long),
and prints all results of this machine. Needs a quiet machine with two cores and
22 GB of free memory.

Environment: STEM_RUN (stem-run on PATH or build/release/bin/stem-run),
STEM_TORCH_PYTHON (a Python with PyTorch), else STEM_PEERS_VENV
(build/peers-venv), STEM_TRAINING_BENCH (build/training-bench: results.jsonl).
TEXT
}

cd "$(dirname "$0")/../.." || exit 1
case "${1:-}" in -h | --help) usage; exit 0 ;; esac

if [ -z "${STEM_RUN:-}" ]; then
  STEM_RUN=$(PATH=$PATH:$PWD/build/release/bin command -v stem-run) || {
    echo "run.sh: no stem-run: build it (ninja -C build/release stem-run) or name it in STEM_RUN" >&2
    exit 1
  }
fi
export STEM_RUN
venv=${STEM_PEERS_VENV:-$PWD/build/peers-venv}
if [ -z "${STEM_TORCH_PYTHON:-}" ]; then
  export STEM_TORCH_PYTHON=$venv/bin/python
  if ! "$STEM_TORCH_PYTHON" -c 'import torch' 2>/dev/null; then
    echo "Installing PyTorch into $venv"
    python3 -m venv "$venv" || exit 1
    if ! "$venv/bin/pip" install --quiet --retries 1 --timeout 30 torch numpy; then
      echo "run.sh: pip cannot install PyTorch: is PyPI reachable from here?" >&2
      exit 77
    fi
  fi
fi
export PYTHONDONTWRITEBYTECODE=1
status=0
python3 bench/training/run.py "$@" || status=1
case " $* " in *" --list "*) exit $status ;; esac
python3 bench/training/report.py || status=1
exit $status
