#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# headers.py - checks that each public header compiles alone, as C11 and C++17, with gcc and clang,
# and says what its functions do.
"""headers.py ROOT. Compilers that are missing are named, and left out; ./run test installs them."""

import re
import shutil
import subprocess
import sys

import lint

STRICT = [
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-pedantic-errors",
    "-Werror",
    "-Wundef",
    "-Wshadow",
]
COMPILERS = [
    ("gcc", ["-std=c11", "-x", "c", "-Wstrict-prototypes"]),
    ("g++", ["-std=c++17", "-x", "c++"]),
    ("clang", ["-std=c11", "-x", "c", "-Wstrict-prototypes"]),
    ("clang++", ["-std=c++17", "-x", "c++"]),
]


def check(root):
    there = [way for way in COMPILERS if shutil.which(way[0])]
    complaints = [] if there else ["no compiler is installed"]
    for path in lint.files(root, {".h"}, (lint.PUBLIC_HEADERS,)):
        name = path.relative_to("include")
        # Included twice to detect a missing guard; the declaration detects an incomplete last line.
        program = f'#include "{name}"\n#include "{name}"\nextern int after_the_header;\n'
        for compiler, options in there:
            done = subprocess.run(
                [compiler, *options, *STRICT, "-I", str(lint.pathlib.Path(root) / "include"), "-"],
                input=program,
                text=True,
                capture_output=True,
                check=False,
            )
            if done.returncode:
                complaints.append(
                    f"{path} alone does not compile with {compiler} {options[0]}:\n{done.stderr}"
                )
        source = lint.text(root, path)
        if 'extern "C"' not in source and "(" in lint.without_comments(source):
            complaints.append(f'{path}: declares functions without extern "C" for C++')
        # Functions that stand together may share a comment.
        for block in source.split("\n\n"):
            function = re.search(r"^DW_API[^;(]*?(\w+)\(", block, re.M)
            if function and "/*" not in block:
                complaints.append(f"{path}: no comment says what {function[1]} does")
    return complaints


if __name__ == "__main__":
    absent = [compiler for compiler, _ in COMPILERS if not shutil.which(compiler)]
    if absent:
        print(f"headers: no {', '.join(absent)} here")
    lint.report("headers", check(sys.argv[1]))
