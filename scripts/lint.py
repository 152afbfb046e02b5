#!/usr/bin/env python3
# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the project's own rules on every file that git knows or would add.

usage: lint.py [FILE...]     checks these files, or all
       lint.py --self-test   runs each rule on an example that it must report
                             and on one that it must not

A rule is a function of a path and its lines that yields (line number, message).
"""

import fnmatch
import functools
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAX_LINES = 800
RULES = []


def rule(*patterns, but=()):
    """Registers a rule for the paths that match a pattern and none of `but`."""
    def register(function):
        RULES.append((function, patterns, but))
        return function
    return register


def applies(path, patterns, but):
    return (any(fnmatch.fnmatch(path, p) for p in patterns)
            and not any(fnmatch.fnmatch(path, p) for p in but))


def matching(lines, pattern, message):
    for number, line in enumerate(lines, 1):
        found = re.search(pattern, line)
        if found:
            yield number, message.replace("{}", found.group(0).strip())


CODE = ("*.cpp", "*.h", "*.c")
SCRIPTS = ("*.py", "*.sh", ".ci/run")
# Texts, inputs and goldens that other programs wrote.
DATA = ("test/data/*", "test/fuzz/corpus/*", "models/text/*", "LICENSE")
LIT = ("test/*.mlir", "test/*.test")
LIT_DATA = DATA + ("test/*/Inputs/*",)


# ---- Files as a whole ----

@rule(*CODE, "*.td", *SCRIPTS, but=DATA)
def banner(path, lines):
    head = "\n".join(lines[:12])
    if ("Part of Stem, under the Apache License v2.0 with LLVM Exceptions."
            not in head
            or "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
            not in head):
        yield 1, "the licence banner is missing (see any file beside it)"
    elif path.endswith((".cpp", ".h", ".c", ".td")):
        name = os.path.basename(path)
        if not re.match(r"(//|/\*) ?===-+ (\S+/)?" + re.escape(name) + r"\b", lines[0]):
            yield 1, f"the first line does not name this file, {name}"


@rule(*CODE, "*.td", "*.py", but=DATA)
def file_length(path, lines):
    if len(lines) > MAX_LINES:
        yield MAX_LINES + 1, (f"{len(lines)} lines, more than {MAX_LINES}: "
                              "split it by category")


# ---- C++ ----

@rule(*CODE, "*.td")
def builder_create(path, lines):
    return matching(lines, r"\b\w*([bB]uilder|[rR]ewriter|\bb)(\.|->)create<",
                    "'{}': write Op::create(builder, ...)")


@rule("lib/*.cpp", "lib/*.h", "include/*.h")
def library_flags(path, lines):
    return matching(lines, r"\bcl::(opt|list|bits|alias)\b",
                    "'{}' in a library: make it a pass option in td")


@rule("tools/*.cpp")
def tool_flags(path, lines):
    # One letter, as in -o, is what every tool has.
    text = "\n".join(lines)
    for found in re.finditer(
            r"\bcl::(?:opt|list)<[^;]*?>\s*\w+\(\s*\"([^\"]{2,})\"", text):
        if not found.group(1).startswith("stem-"):
            yield (text.count("\n", 0, found.start(1)) + 1,
                   f"flag '{found.group(1)}' does not begin with 'stem-'")


@rule("include/*.td", "lib/*.td")
def pass_names(path, lines):
    text = "\n".join(lines)
    for found in re.finditer(
            r"(?:\bOption<\s*\"\w+\"\s*,|\bListOption<\s*\"\w+\"\s*,"
            r"|:\s*(?:Interface)?Pass<)\s*\"([^\"]*)\"", text):
        if not found.group(1).startswith("stem-"):
            yield (text.count("\n", 0, found.start(1)) + 1,
                   f"'{found.group(1)}' does not begin with 'stem-'")


def body_after(lines, start):
    """The line numbers of the braces' body that opens at or after `start`;
    empty for a declaration."""
    depth = 0
    opened = False
    for index in range(start, len(lines)):
        code = re.sub(r"//.*|\"(\\.|[^\"\\])*\"", "", lines[index])
        for character in code:
            if character == ";" and not opened:
                return range(0)
            if character == "{":
                depth += 1
                opened = True
            elif character == "}":
                depth -= 1
                if opened and depth == 0:
                    return range(start, index + 1)
    return range(start, len(lines))


@rule("lib/*.cpp", "lib/*.h")
def silent_failure(path, lines):
    """In a pattern, failure() is for what already reported: a callee that
    failed, or a diagnostic just above."""
    for start, line in enumerate(lines):
        if not re.search(r"\bmatchAndRewrite\(", line):
            continue
        for index in body_after(lines, start):
            if not re.match(r"\s*return failure\(\);", lines[index]):
                continue
            above = "\n".join(lines[max(start, index - 4):index])
            if not re.search(r"\bfailed\(|emit\w*(Error|Remark)|"
                             r"notifyMatchFailure", above):
                yield index + 1, ("a bare failure() in a pattern: say why with "
                                  "notifyMatchFailure")


@rule("lib/*.cpp", "lib/*.h", "include/*.h", "tools/*.cpp", "tools/*.h")
def throwing_stderr(path, lines):
    """A closed standard error must not end a command."""
    return matching(lines, r"\bfmt::print(ln)?\(\s*(stderr|$)",
                    "'{}' throws when it cannot write: call printStderr")


@rule("lib/*.cpp", "lib/*.h", "include/*.h")
def init_all(path, lines):
    return matching(lines, r"#include \"(mlir/InitAll|llvm/.*InitAll)\w*\.h\"",
                    "{} outside tools/: include what is used")


# ---- Layers ----

LAYERS_IN = "docs/development.md"
# What the table of layers names beside the project's own libraries.
FOREIGN = {"MLIR": ("mlir", "mlir-c", "llvm", "llvm-c"), "Eigen": ("Eigen",)}
CPP_ONLY = " (in .cpp files)"


def layer_rows(lines):
    """(line number, library, what it may include) of each row of the table."""
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        folder = re.fullmatch(r"lib/(\w+)(?:/\w+)?", cells[0])
        if folder and len(cells) == 3:
            yield number, folder.group(1), cells[2].split(", ")


@functools.cache
def allowed_includes():
    """By library, from the table that people read."""
    return {name: items for _, name, items in layer_rows(read_lines(LAYERS_IN))}


@rule(LAYERS_IN)
def layer_table(path, lines):
    for number, name, items in layer_rows(lines):
        for item in items:
            known = item.removesuffix(CPP_ONLY)
            if (known not in FOREIGN and known != "nothing"
                    and not re.fullmatch(r"lib/\w+", known)):
                yield number, (f"'{item}' in the row of lib/{name}: name "
                               f"lib/NAME, {', '.join(FOREIGN)} or nothing")


@rule("lib/*/*.cpp", "lib/*/*.h", "include/stem/*/*.h", "include/stem-c/*.h")
def layers(path, lines):
    # The C interface is the runtime's, and everyone's.
    name = ("Runtime" if path.startswith("include/stem-c/")
            else re.match(r"(?:lib|include/stem)/(\w+)/", path).group(1))
    items = allowed_includes().get(name)
    if items is None:
        yield 1, f"lib/{name} has no row in the table of {LAYERS_IN}"
        return
    for number, line in enumerate(lines, 1):
        found = re.match(r"#include [\"<](?:stem/(\w+)|([\w-]+))/", line)
        if not found or found.group(1) == name:
            continue
        wanted = (f"lib/{found.group(1)}" if found.group(1) else
                  next((item for item, roots in FOREIGN.items()
                        if found.group(2) in roots), None))
        if (wanted and wanted not in items
                and not (path.endswith(".cpp") and wanted + CPP_ONLY in items)):
            yield number, (f"{line.strip()}: lib/{name} may include "
                           f"{', '.join(items)} ({LAYERS_IN})")


@rule("lib/*", "include/*", "tools/*")
def stubs(path, lines):
    return matching(
        lines, r"(?i)\b(not implemented|un" r"implemented|stub|FIX"
        r"ME|XX" r"X|hack)\b",
        "'{}': give a diagnostic that names what is missing, or do it")


# ---- Tests ----

DIRECTIVE = re.compile(r"(?://|#|;)\s*([A-Z][A-Z0-9_-]*?)"
                       r"(?:-(?:NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-\d+))?:")


@rule(*LIT, but=LIT_DATA)
def dead_checks(path, lines):
    runs = " ".join(l for l in lines if "RUN:" in l)
    prefixes = set()
    for call in re.findall(r"FileCheck[^|;]*", runs):
        named = re.findall(r"-check-prefix(?:es)?[= ](\S+)", call)
        prefixes.update(",".join(named).split(",") if named else ["CHECK"])
    for number, line in enumerate(lines, 1):
        found = DIRECTIVE.search(line)
        if not found:
            continue
        suffixed = not found.group(0).rstrip(":").endswith(found.group(1))
        name = found.group(1)
        if (suffixed or name.startswith("CHECK")) and name not in prefixes:
            yield number, f"no FileCheck in a RUN line reads '{name}'"
    if (any(re.search(r"//\s*expected-(error|warning|remark|note)", l)
            for l in lines) and "verify-diagnostics" not in runs):
        yield 1, "expected diagnostics, but no RUN line has -verify-diagnostics"


TOOLS = ("stem-opt", "stem-run", "stem-exec", "stem-reduce", "stem-lsp-server",
         "%python", "%stem_src/scripts/")


@rule(*LIT, but=LIT_DATA)
def run_lines(path, lines):
    runs = [l.split("RUN:", 1)[1] for l in lines if "RUN:" in l]
    if not runs:
        yield 1, "no RUN line: lit cannot run it"
    elif not any(tool in run for run in runs for tool in TOOLS):
        yield 1, "no RUN line calls one of " + ", ".join(TOOLS)


def passes_run_alone():
    """The passes that some lit test runs without another one of Stem."""
    names = set()
    for folder, _, files in os.walk(os.path.join(ROOT, "test")):
        for name in files:
            if not name.endswith((".mlir", ".test")):
                continue
            with open(os.path.join(folder, name), encoding="utf-8",
                      errors="replace") as file:
                runs = [l.split("RUN:", 1)[1] for l in file if "RUN:" in l]
            for command in re.split(r"[|;]|&&", " | ".join(runs)):
                passes = re.findall(r"\s--?(stem-[a-z0-9-]+)", command)
                passes += re.findall(r"[(,](stem-[a-z0-9-]+)(?=[{),])",
                                     command)
                if re.search(r"\bstem-opt\b", command) and len(passes) == 1:
                    names.add(passes[0])
    return names


@rule("include/stem/Transforms/*.td")
def untested_pass(path, lines):
    for number, line in enumerate(lines, 1):
        found = re.search(r":\s*Pass<\"(stem-[a-z0-9-]+)\"", line)
        if found and found.group(1) not in passes_run_alone():
            yield number, f"no lit test runs {found.group(1)} alone"


# ---- Words and addresses ----

@rule("*", but=DATA)
def unfiled_todo(path, lines):
    return matching(lines, r"\bTO" r"DO\b(?!\(#\d+\))",
                    "'{}' without an issue: write it as {}(#12), or do it")


@rule("*", but=DATA)
def machine_paths(path, lines):
    return matching(
        lines, r"(^|[^A-Za-z0-9_.])((/wo" r"rk|/ro" r"ot)(?=[/.\"'\s]|$)|"
        r"/tmp/ba" r"sh_)|[.]libra" r"ry/",
        "'{}': a path of one machine")


@rule("*", but=DATA)
def registries(path, lines):
    return matching(
        lines, r"(index-u" r"rl|find-li" r"nks)[ =]|^de" r"b (\[|http)|"
        r"\b(pypi\.o" r"rg|pythonhos" r"ted\.org|deb\.deb" r"ian\.org|"
        r"npmjs\.o" r"rg|crates\.i" r"o|docker\.i" r"o|ghcr\.i" r"o)\b",
        "'{}': the clients know the registries' addresses")


@rule("*", but=DATA)
def foreign_words(path, lines):
    return matching(
        lines, r"(?i)\b(ag" r"ents?|suba" r"gents?|helper ses" r"sion|"
        r"(this|next|developer) ses" r"sion|LLM-wri" r"tten|"
        r"co-auth" r"ored-by)\b",
        "'{}' does not belong in the project")


# ---- Self-test: rule, path, text that it reports, text that it does not ----

BANNER = """//===- A.cpp - What ---===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
PATTERN = """LogicalResult matchAndRewrite(Op op, PatternRewriter &r) const {{
  if (%s)
    return failure();
  return success();
}}
LogicalResult other() {{
  return failure();
}}""".replace("{{", "{").replace("}}", "}")

EXAMPLES = [
    (banner, "lib/A.cpp", "int x;", BANNER),
    (banner, "lib/B.cpp", BANNER, BANNER.replace("A.cpp", "B.cpp")),
    (banner, "scripts/a.sh", "#!/bin/sh", BANNER),
    (file_length, "lib/A.td", "\n" * 801, "\n" * 799),
    (builder_create, "lib/A.cpp", "builder.create<AddOp>(loc);",
     "AddOp::create(builder, loc);"),
    (builder_create, "lib/A.cpp", "rewriter.create<AddOp>(loc);",
     "std::make_unique<A>();"),
    (library_flags, "lib/A.cpp", "static cl::opt<int> x(\"stem-x\");",
     "Option<int> x;"),
    (tool_flags, "tools/a/a.cpp", "llvm::cl::opt<bool> x(\n  \"dump\");",
     "llvm::cl::opt<bool> x(\n  \"stem-dump\");"),
    (tool_flags, "tools/a/a.cpp", "cl::opt<A<int>> x(\"dump\");",
     "cl::opt<bool> x(\"o\", cl::desc(\"a\"));"),
    (pass_names, "include/a.td", "Option<\"a\",\n \"block\", \"bool\", \"\">",
     "Option<\"a\",\n \"stem-block\", \"bool\", \"\">"),
    (pass_names, "include/a.td", "def A : Pass<\"fuse\", \"ModuleOp\">",
     "def A : Pass<\"stem-fuse\", \"ModuleOp\">"),
    (silent_failure, "lib/A.cpp", PATTERN % "!op", PATTERN % "failed(f())"),
    (throwing_stderr, "tools/a/a.cpp", "fmt::print(stderr, \"a\");",
     "fmt::print(\"a\");"),
    (throwing_stderr, "lib/A.cpp", "fmt::println(\n    stderr, \"a\");",
     "printStderr(\"a\");"),
    (init_all, "lib/A.cpp", "#include \"mlir/InitAllDialects.h\"",
     "#include \"mlir/IR/Builders.h\""),
    (layer_table, "docs/development.md", "| lib/A | a | lib/B, no MLIR |",
     "| lib/A | a | lib/B, MLIR, Eigen (in .cpp files) |\n| lib/B | b | nothing |"),
    (layers, "lib/Runtime/A.cpp", "#include \"llvm/ADT/Twine.h\"",
     "#include \"stem/Runtime/Context.h\"\n#include \"stem-c/Runtime.h\""),
    (layers, "lib/Model/A.cpp", "#include \"stem/Graph/ModelGraph.h\"",
     "#include \"stem/Model/DType.h\"\n#include <nlohmann/json.hpp>"),
    (layers, "lib/Calibration/A.cpp", "#include \"mlir/IR/Value.h\"",
     "#include <Eigen/Core>"),
    (layers, "include/stem/Calibration/A.h", "#include <Eigen/Core>",
     "#include \"stem/Runtime/Pack.h\""),
    (layers, "lib/Report/A.cpp", "#include \"stem/Runtime/Arena.h\"",
     "#include \"stem/Support/Error.h\""),
    (layers, "lib/Target/A.cpp", "#include \"stem/Graph/ModelGraph.h\"",
     "#include \"stem/Transforms/Passes.h\"\n#include \"mlir/IR/Value.h\""),
    (stubs, "lib/A.cpp", "fail(\"not implemented\");", "fail(\"no F16\");"),
    (dead_checks, "test/a.mlir", "// RUN: stem-opt %s\n// CHECK: x",
     "// RUN: stem-opt %s | FileCheck %s\n// CHECK: x"),
    (dead_checks, "test/a.mlir",
     "// RUN: stem-opt %s | FileCheck %s\n// CHECK: x\n// OTHER-NEXT: y",
     "// RUN: stem-opt %s | FileCheck %s --check-prefixes=CHECK,OTHER\n"
     "// CHECK: x\n// OTHER-NEXT: y\n// NOTE: prose"),
    (dead_checks, "test/a.mlir", "// RUN: stem-opt %s\n// expected-error {{x}}",
     "// RUN: stem-opt %s -verify-diagnostics\n// expected-error {{x}}"),
    (run_lines, "test/a.mlir", "func.func @f()", "// RUN: stem-opt %s"),
    (run_lines, "test/a.test", "RUN: echo", "RUN: %python %S/a.py"),
    (untested_pass, "include/stem/Transforms/A.td",
     "def A : Pass<\"stem-no-such-pass\", \"ModuleOp\"> {",
     "def A : Pass<\"stem-interpret\", \"ModuleOp\"> {"),
    (unfiled_todo, "README.md", "TO" "DO: more", "TO" "DO(#7): more"),
    (machine_paths, "a.sh", "cd /wo" "rk/main", "cd /workspace"),
    (machine_paths, "a.sh", "cat /tmp/ba" "sh_jobs.0/x", "cat /tmp/x"),
    (registries, "a.sh", "pip --index-u" "rl=x", "pip download x"),
    (registries, "a.md", "https://pypi.o" "rg/simple", "PyPI"),
    (foreign_words, "a.md", "for the next ses" "sion", "a training session"),
]


def self_test():
    failures = 0
    for function, path, bad, good in EXAMPLES:
        chosen = [(p, b) for f, p, b in RULES if f is function]
        if not applies(path, *chosen[0]):
            print(f"{function.__name__}: does not look at {path}")
            failures += 1
        for text, wanted in ((bad, True), (good, False)):
            found = list(function(path, text.split("\n")))
            if bool(found) != wanted:
                what = "missed" if wanted else f"wrongly reported {found} in"
                print(f"{function.__name__}: {what} {text!r}")
                failures += 1
    untested = {f.__name__ for f, _, _ in RULES} - {
        e[0].__name__ for e in EXAMPLES}
    for name in sorted(untested):
        print(f"{name}: no example")
    failures += len(untested)
    print(f"lint self-test: {len(EXAMPLES)} examples of {len(RULES)} rules, "
          f"{failures} failures")
    return 1 if failures else 0


def known_files():
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z",
         "--cached", "--others", "--exclude-standard"],
        check=True, stdout=subprocess.PIPE).stdout.decode()
    return sorted(set(filter(None, listing.split("\0"))))


def read_lines(path):
    """The lines of a text file; None for anything else."""
    full = os.path.join(ROOT, path)
    if not os.path.isfile(full) or os.path.islink(full):
        return None
    with open(full, "rb") as file:
        content = file.read()
    if b"\0" in content[:8192]:
        return None
    return content.decode("utf-8", "replace").rstrip("\n").split("\n")


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments and arguments[0].startswith("-"):
        print(__doc__)
        return 0 if arguments[0] in ("-h", "--help") else 2
    paths = [os.path.relpath(os.path.abspath(a), ROOT) for a in arguments]
    findings = checked = 0
    for path in paths or known_files():
        rules = [f for f, patterns, but in RULES if applies(path, patterns, but)]
        lines = read_lines(path) if rules else None
        if lines is None:
            continue
        checked += 1
        for function in rules:
            for number, message in function(path, lines):
                print(f"{path}:{number}: {message} [{function.__name__}]")
                findings += 1
    print(f"lint: {checked} files, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
