#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# abi.py - checks that the libraries still have the functions and types that programs rely on.
"""abi.py ROOT BUILD [--renew]

Compares the libraries with the baselines in tests/house/abi/ by libabigail's abidiff: functions,
structs and enums, as their debug information contains them. There is a baseline for each kind of
machine. An intended difference is stored by `./run abi`, in the commit that causes it. Exits 77 if
abidiff, debug information or a baseline for this machine is missing."""

import pathlib
import platform
import re
import shutil
import subprocess
import sys

import house

LIBRARIES = {
    "deltawire": "src",
    "deltawire-threads": "threads",
    "deltawire-link": "transports",
    "deltawire-collective": "collective",
}
SKIP = 77


def baseline(root, name):
    return pathlib.Path(root) / "tests" / "house" / "abi" / f"lib{name}-{platform.machine()}.abi"


def built(build, name, folder):
    """The path of the shared library, or None."""
    found = [
        path
        for path in (pathlib.Path(build) / folder).glob(f"lib{name}.so*")
        if path.is_file() and not path.is_symlink()
    ]
    return found[0] if len(found) == 1 else None


def has_debug_information(library):
    sections = subprocess.run(
        ["readelf", "-S", "-W", str(library)], check=True, capture_output=True, text=True
    ).stdout
    return re.search(r"\.debug_info\b", sections) is not None


def headers(root):
    return str(pathlib.Path(root) / house.PUBLIC_HEADERS)


def renew(root, name, library):
    # With the places of declarations, because by them abidiff distinguishes public from other
    # types.
    subprocess.run(
        ["abidw", "--no-corpus-path", "--no-comp-dir-path", "--drop-private-types"]
        + ["--headers-dir", headers(root), "--out-file", str(baseline(root, name)), str(library)],
        check=True,
    )
    print(f"abi: wrote {baseline(root, name)}")


def compare(root, name, library):
    """What abidiff says has changed."""
    if "filepath=" not in baseline(root, name).read_text():
        yield f"{baseline(root, name)} names no places: abidiff would take all types for private"
    done = subprocess.run(
        ["abidiff", "--drop-private-types", "--headers-dir2", headers(root)]
        + [str(baseline(root, name)), str(library)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        yield (
            f"{library.name} is not what {baseline(root, name).name} says; if that is meant, run "
            f"./run abi and commit what it writes:\n{done.stdout}{done.stderr}"
        )


def main():
    root, build, renews = sys.argv[1], sys.argv[2], "--renew" in sys.argv[3:]
    complaints, compared = [], 0
    if not shutil.which("abidiff") or not shutil.which("abidw"):
        print("abi: no abidiff and abidw here (Debian: abigail-tools)")
        sys.exit(SKIP)
    for name, folder in LIBRARIES.items():
        library = built(build, name, folder)
        if not library or not has_debug_information(library):
            print(f"abi: lib{name} was not built, or without debug information")
        elif renews:
            renew(root, name, library)
        elif not baseline(root, name).exists():
            print(f"abi: no baseline of lib{name} for {platform.machine()}")
        else:
            complaints += compare(root, name, library)
            compared += 1
    if not renews and not compared:
        sys.exit(SKIP)
    house.report("abi", complaints)


if __name__ == "__main__":
    main()
