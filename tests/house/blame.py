#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# blame.py - checks that the commits that git blame skips are commits of this repository.
"""blame.py ROOT. Exits 77 if there is no history: in a tarball or a shallow clone."""

import pathlib
import re
import subprocess
import sys

import house

FILE = ".git-blame-ignore-revs"
HASH = re.compile(r"[0-9a-f]{40}")


def git(root, *arguments):
    """What git prints, or None if it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def has_history(root):
    top = git(root, "rev-parse", "--show-toplevel")  # this tree may be inside another repository
    is_ours = top is not None and pathlib.Path(top).resolve() == pathlib.Path(root).resolve()
    return is_ours and git(root, "rev-parse", "--is-shallow-repository") == "false"


def check(root):
    """Complaints, or None if there is no history."""
    if not has_history(root):
        return None
    complaints = []
    for number, line in enumerate(house.text(root, FILE).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not HASH.fullmatch(line):
            complaints.append(f"{FILE}:{number}: a line is a whole hash or begins with #")
        elif git(root, "merge-base", "--is-ancestor", line, "HEAD") is None:
            complaints.append(f"{FILE}:{number}: {line} is no commit that leads to this one")
    return complaints


if __name__ == "__main__":
    found = check(sys.argv[1])
    if found is None:
        print(
            "blame: no history here (a tarball, a shallow clone, or no git): nothing is checked"
        )
        sys.exit(77)
    house.report("blame", found)
