#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# reference.py - checks that Doxygen makes the API reference from the public headers without a
# warning.
"""reference.py ROOT [--out FOLDER]. The reference must contain every public function and the text
of its comment. Exits 77 if doxygen is missing."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import house

FUNCTION = re.compile(r"^DW_API\b[^;(]*?\b(dw_\w+)\(", re.M)
# Words from comments in each place: before a declaration, after a member, within a comment.
SAID = (
    "a sentence that explains a status",
    "what is wrong, and what to do about it",
    "the decoder holds",
)


def make(root, out):
    """What Doxygen complains about."""
    out.mkdir(parents=True, exist_ok=True)
    settings = house.text(root, "docs/Doxyfile") + f'OUTPUT_DIRECTORY = "{out.resolve()}"\n'
    done = subprocess.run(
        ["doxygen", "-"], cwd=root, input=settings, capture_output=True, text=True, check=False
    )
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return complaints or ([f"doxygen exits with {done.returncode}"] if done.returncode else [])


def missing(root, out):
    """Functions and words that the reference lacks."""
    pages = "\n".join(
        path.read_text(encoding="utf-8", errors="replace") for path in out.rglob("*.html")
    )
    for path in house.files(root, {".h"}, (house.PUBLIC_HEADERS,)):
        for function in FUNCTION.findall(house.text(root, path)):
            if f"</a></span>{function}()" not in pages:
                yield f"{path}: the reference has no {function}"
    for words in SAID:
        if words not in pages:
            yield f'the reference does not say "{words}"'


def check(root, out):
    return make(root, out) + list(missing(root, out))


def main():
    root = pathlib.Path(sys.argv[1])
    if not shutil.which("doxygen"):
        print("reference: no doxygen here")
        sys.exit(77)
    if sys.argv[2:3] == ["--out"]:
        house.report("reference", check(root, pathlib.Path(sys.argv[3])))
    with tempfile.TemporaryDirectory(prefix="dw-reference-") as name:
        complaints = check(root, pathlib.Path(name))
    house.report("reference", complaints)


if __name__ == "__main__":
    main()
