#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# sources.py - checks that each C file of the libraries and the program also compiles where all of
# the system's headers are visible, whose names ours must not have.
"""sources.py ROOT BUILD. Packagers and other build systems define these macros for everybody."""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

import lint

FOLDERS = ("base", "src", "cuda", "transports", "threads", "collective", "trainer", "cli")
VISIBLE = ["-D_GNU_SOURCE", "-D_ALL_SOURCE", "-D_DEFAULT_SOURCE", "-fsyntax-only", "-w"]


def commands(root, build):
    """The command of each file, without what it would write."""
    for of in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(os.path.normpath(build / of["file"]))
        inside = path.relative_to(root).parts[0] if path.is_relative_to(root) else ""
        if path.suffix == ".c" and inside in FOLDERS:
            words = shlex.split(of["command"])
            dropped = {"-MD", "-MQ", "-MF", "-o", "-c"}
            follows = {i + 1 for i, w in enumerate(words) if w in ("-MQ", "-MF", "-o")}
            kept = [w for i, w in enumerate(words) if w not in dropped and i not in follows]
            yield path.relative_to(root), [*kept, *VISIBLE]


def check(root, build):
    root, build = pathlib.Path(root).resolve(), pathlib.Path(build).resolve()
    found = list(commands(root, build))
    complaints = [] if found else ["the build names no C file"]

    def compiled(one):
        path, command = one
        done = subprocess.run(
            command, cwd=build, capture_output=True, text=True, check=False
        )
        return f"{path}: does not compile with _GNU_SOURCE:\n{done.stderr[:2000]}" * (
            done.returncode != 0
        )

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints += filter(None, pool.map(compiled, found))
    return complaints


if __name__ == "__main__":
    lint.report("sources", check(sys.argv[1], sys.argv[2]))
