#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# manual.py - checks that troff accepts the manual page, which cli/manual.py makes.
"""manual.py PAGE

groff formats the page and mandoc, if it is installed, checks it: neither may print a warning. Exits
77 if groff is missing."""

import shutil
import subprocess
import sys

import lint

WAYS = (["groff", "-man", "-Tutf8", "-ww", "-z"], ["mandoc", "-T", "lint", "-W", "warning"])


def complaints(page):
    for way in WAYS:
        if shutil.which(way[0]):
            done = subprocess.run([*way, page], capture_output=True, text=True, check=False)
            if done.returncode or done.stdout or done.stderr:
                yield f"{way[0]} of {page}: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    found = list(complaints(sys.argv[1]))
    if not found and not shutil.which("groff"):
        print("manual: no groff here: the layout of the page was not checked")
        sys.exit(77)
    lint.report("manual", found)
