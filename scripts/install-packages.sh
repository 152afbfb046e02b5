#!/usr/bin/env bash
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs the Debian packages that Stem needs, through apt-get.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/install-packages.sh [--build] [--quickstart] [--list]

Lists the Debian packages that Stem needs with their sizes, and installs those
that are missing, as root or through sudo.

  --build       what building and testing needs (the default)
  --quickstart  what --build installs, and the text that quickstart.sh
                evaluates models on
  --list        only list, install nothing
TEXT
}

compiler=(clang-22 clang-format-22 clang-tidy-22 lld-22 llvm-22-dev
  llvm-22-tools libmlir-22-dev mlir-22-tools libomp-22-dev libclang-rt-22-dev)
build_tools=(cmake ninja-build ccache pkg-config git ca-certificates)
libraries=(nlohmann-json3-dev libcli11-dev libfmt-dev libpcre2-dev
  libutf8proc-dev libeigen3-dev)
tests=(libgtest-dev libgmock-dev libdnnl-dev python3 python3-venv
  python3-pip)
# The CMake files of LLVM look for the development files of what it links to.
llvm_needs=(zlib1g-dev libzstd-dev libcurl4-openssl-dev libedit-dev
  libxml2-dev)
texts=(debian-policy)

packages=("${compiler[@]}" "${build_tools[@]}" "${libraries[@]}" "${tests[@]}"
  "${llvm_needs[@]}")
list_only=false
for argument in "$@"; do
  case "$argument" in
    --build) ;;
    --quickstart) packages+=("${texts[@]}") ;;
    --list) list_only=true ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install-packages.sh: unknown argument '$argument'" >&2
       usage >&2; exit 2 ;;
  esac
done

refuse() {
  cat >&2 <<TEXT
install-packages.sh: $1
Known systems: Debian 12 (bookworm) and Debian 13 (trixie) on amd64, with the
security updates enabled, where LLVM 22 is packaged.
Elsewhere, use a container (podman build -t stem . ; see Containerfile), or
install these by hand and run cmake --preset release:
  LLVM, MLIR, clang, lld and OpenMP 22 with their development files,
  CMake 3.22 or later, Ninja, pkg-config, Python 3.9 or later,
  nlohmann-json 3.11, CLI11 2.1, fmt 9, PCRE2, utf8proc, Eigen 3.4, GoogleTest,
  oneDNN (bench/ only).
TEXT
  exit 1
}

# STEM_OS_RELEASE and STEM_ARCHITECTURE let a test play another system.
release_file=${STEM_OS_RELEASE:-/etc/os-release}
[ -r "$release_file" ] || refuse "cannot read $release_file, so this system is unknown."
id=$(sed -n 's/^ID=//p' "$release_file" | tr -d '"')
version=$(sed -n 's/^VERSION_ID=//p' "$release_file" | tr -d '"')
case "$id-$version" in
  debian-12 | debian-13) ;;
  *) refuse "this is '$id ${version:-(no version)}', which is not known to package LLVM 22." ;;
esac
command -v apt-get >/dev/null || refuse "apt-get is not on PATH."
architecture=${STEM_ARCHITECTURE:-$(dpkg --print-architecture)}
[ "$architecture" = amd64 ] || refuse "the architecture is $architecture; Stem's kernels are for amd64."

as_root() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}
known() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done

can_install() {
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null
}
if [ ${#missing[@]} -gt 0 ] && ! $list_only && ! can_install; then
  echo "install-packages.sh: not root, and sudo is not on PATH. Run as root:" >&2
  echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

unknown=()
for package in "${missing[@]}"; do
  known "$package" || unknown+=("$package")
done
if [ ${#unknown[@]} -gt 0 ] && ! $list_only; then
  echo "Not in the package lists: ${unknown[*]}. Updating the lists."
  as_root apt-get update
  for package in "${unknown[@]}"; do
    known "$package" || refuse "no package '$package' after apt-get update: are the security updates of $id $version among apt's sources?"
  done
fi

printf '%-24s %10s  %s\n' package installed state
for package in "${packages[@]}"; do
  if installed "$package"; then
    size=$(dpkg-query -W -f '${Installed-Size}' "$package")
    state="already there"
  elif known "$package"; then
    size=$(apt-cache show --no-all-versions "$package" | sed -n 's/^Installed-Size: //p')
    state="to be installed"
  else
    size=0
    state="not in the package lists (apt-get update)"
  fi
  printf '%-24s %7.1f MB  %s\n' "$package" "$((${size:-0} * 10 / 1024))e-1" "$state"
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "All ${#packages[@]} packages are there."
  exit 0
fi
$list_only && exit 0

# With what they depend on, as apt counts it.
install=(apt-get install --yes --no-install-recommends "${missing[@]}")
as_root apt-get install --no-install-recommends --assume-no "${missing[@]}" \
  2>/dev/null | grep -E '^(Need to get|After this)' || true
if ! as_root "${install[@]}"; then
  echo "The lists may be old: updating them and trying once more."
  as_root apt-get update
  as_root "${install[@]}"
fi
