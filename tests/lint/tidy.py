#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tidy.py - runs clang-tidy on links, the trainer and the program.
"""tidy.py ROOT BUILD [FILE...]. Runs clang-tidy 14 with .clang-tidy on the C files of transports/,
trainer/ and cli/ that BUILD compiles, or on the given ones, as paths relative to ROOT. Findings in
system headers are ignored. src/ is not checked, because the analyzer does not know that the plan
has limited widths and shapes. Exits 77 if clang-tidy 14 or BUILD is missing."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import lint

TIDY = "clang-tidy-14"
MODULES = ("transports", "collective", "trainer", "cli")
FINDING = re.compile(r"^(\S+?):(\d+):\d+: (?:warning|error): (.*)$", re.M)
SKIP = 77


def compiled(root, build):
    """Paths, relative to root, of the C files in these rooms that the build compiles."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(os.path.normpath(pathlib.Path(entry["directory"], entry["file"])))
        if path.is_relative_to(root) and path.relative_to(root).parts[0] in MODULES:
            yield path.relative_to(root)


def look_at(root, build, path):
    done = subprocess.run(
        [TIDY, "-p", str(build), "--quiet", str(root / path)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = set()
    for place, line, words in FINDING.findall(done.stdout):
        where = pathlib.Path(os.path.normpath(build / place))
        if where.is_relative_to(root):
            found.add(f"{where.relative_to(root)}:{line}: {words}")
    return found


def main():
    root, build = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    if not shutil.which(TIDY) or not (build / "compile_commands.json").exists():
        print(f"tidy: no {TIDY} here, or {build} is no build")
        sys.exit(SKIP)
    paths = sys.argv[3:] or sorted(set(compiled(root, build)))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        found = workers.map(lambda path: look_at(root, build, path), paths)
        lint.report("tidy", sorted(set().union(*found)))


if __name__ == "__main__":
    main()
