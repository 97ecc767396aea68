#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# snippets.py - checks that the C programs in the pages compile, run, and print what the pages say.
"""snippets.py ROOT BUILD

A block marked ```c is a complete program: it is compiled (C11, all warnings are errors) and run,
and must exit with 0. If the next block is marked ```text output, the program must print that text.
A block marked ```c fragment is not a complete program and is not compiled."""

import pathlib
import re
import subprocess
import sys
import tempfile

import house

BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```[ \t]*$", re.S | re.M)


def documents(root):
    root = pathlib.Path(root)
    return [
        *sorted(root.glob("*.md")),
        *sorted((root / "docs").glob("**/*.md")),
        *sorted((root / "bench").glob("*.md")),
    ]


def blocks(path):
    """(line, mark, code) of each fenced block."""
    source = path.read_text(encoding="utf-8")
    for match in BLOCK.finditer(source):
        yield source.count("\n", 0, match.start()) + 1, match.group(1).strip(), match.group(2)


def run_program(root, build, code, work):
    """(a complaint or None, what the program printed)."""
    source, program = work / "snippet.c", work / "snippet"
    source.write_text(code, encoding="utf-8")
    libraries = [("src", "deltawire")]
    if "deltawire/transport.h" in code or "deltawire/collective.h" in code:
        libraries.insert(0, ("transports", "deltawire-link"))
    if "deltawire/collective.h" in code:
        libraries.insert(0, ("collective", "deltawire-collective"))
    link = []
    for folder, name in libraries:
        place = pathlib.Path(build).resolve() / folder
        link += [f"-L{place}", f"-l{name}", f"-Wl,-rpath,{place}"]
    done = subprocess.run(
        [
            "cc",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
            f"{root}/include",
            str(source),
            "-o",
            str(program),
            *link,
            "-lm",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"does not compile:\n{done.stderr}", ""
    done = subprocess.run(
        [str(program)], capture_output=True, text=True, timeout=60, check=False, cwd=work
    )
    if done.returncode:
        return f"exits with {done.returncode}:\n{done.stdout}{done.stderr}", ""
    return None, done.stdout


def check(root, build):
    complaints, programs = [], 0
    with tempfile.TemporaryDirectory(prefix="dw-snippets-") as name:
        for path in documents(root):
            printed = None
            for line, mark, code in blocks(path):
                where = f"{path.relative_to(root)}:{line}"
                if mark == "c":
                    programs += 1
                    complaint, printed = run_program(root, build, code, pathlib.Path(name))
                    if complaint:
                        complaints.append(f"{where}: the example {complaint}")
                        printed = None
                elif mark == "text output":
                    if printed is None:
                        complaints.append(f"{where}: output without a program that runs before it")
                    elif printed != code:
                        complaints.append(f"{where}: the program prints\n{printed}and not\n{code}")
                    printed = None
                elif mark.startswith("c ") and mark != "c fragment":
                    complaints.append(f"{where}: unknown mark ```{mark}: c, or c fragment")
        first = [mark for _, mark, _ in blocks(pathlib.Path(root) / "README.md")]
        if "c" not in first:
            complaints.append("README.md: shows no whole C program (a block marked ```c)")
    print(f"snippets: {programs} programs")
    return complaints


if __name__ == "__main__":
    house.report("snippets", check(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
