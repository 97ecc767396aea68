#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# folders.py - checks that every folder says what is in it, what may be changed and what tests it.
"""folders.py ROOT. A folder says this in the first comment of its meson.build, or else in its
README.md: first what is in it, then, each at the beginning of a line, "Change:" and "Tests:". Files
that are named there must exist. Folders that contain only data need not say it."""

import re
import sys

import house

ROOMS = ("src", "transports", "trainer", "cli", "cuda", "bench", "examples", "cmake", "docs")
ROOMS += ("tests", "tools", "threads", "collective", "python")
CODE = {".c", ".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".build", ".md", ".in", ".ini"}
OF_OTHERS = {"tests/house/consumer/cmake", "tests/house/consumer/meson"}  # as in other projects
NAME = re.compile(r"(?:[\w-]+/)+[\w.-]*|[\w-]+\.(?:c|h|map|md|py|sh)")


def folders(root):
    """Every folder of these rooms that contains more than data."""
    found = {path.parent for path in house.files(root, CODE, ROOMS)}
    found = {path for path in found if "results" not in path.parts}
    return sorted(str(path) for path in found if str(path) not in OF_OTHERS)


def beginning(root, folder):
    """The first comment of the folder, line by line, without the comment characters, or None."""
    place = house.pathlib.Path(root) / folder
    if (place / "meson.build").is_file():
        lines = []
        for line in (place / "meson.build").read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            lines.append(line[1:].strip())
        return lines
    if (place / "README.md").is_file():
        return (place / "README.md").read_text(encoding="utf-8").splitlines()
    return None


def paragraphs(lines):
    """The text after these words, up to the next one or an empty line: {"Change": text, ...}."""
    said, word = {}, None
    for line in lines:
        begins = re.match(r"(Change|Tests): *", line)
        if begins:
            word = begins[1]
            said[word] = line[begins.end() :]
        elif not line:
            word = None
        elif word:
            said[word] += " " + line
    return said


def exists(root, folder, name):
    """Whether the name is a path in the tree, or a file in the folder."""
    root = house.pathlib.Path(root)
    return any(place.exists() for place in (root / name, root / folder / name))


def look(root, folder, lines):
    """Complaints about what a folder says."""
    what = next((line for line in lines if line and not line.startswith("# ")), "")
    if len(what.split()) < 3 or re.match(r"(Change|Tests):", what):
        yield f"{folder}: its beginning must say first what lives here"
    said = paragraphs(lines)
    for word in ("Change", "Tests"):
        if not said.get(word):
            yield f'{folder}: its beginning lacks a line "{word}: ..."'
            continue
        words = [name.strip("`.,;:()") for name in said[word].split()]
        names = [name for name in words if NAME.fullmatch(name)]
        for name in names:
            if not exists(root, folder, name):
                yield f"{folder}: {word}: there is no {name}"
        if word == "Tests" and not names and not folder.startswith("tests/"):
            yield f"{folder}: Tests: names no file or folder"


def check(root):
    complaints = []
    for folder in folders(root):
        lines = beginning(root, folder)
        if lines is None:
            complaints.append(f"{folder}: neither meson.build nor README.md says what lives here")
        else:
            complaints += look(root, folder, lines)
    return complaints


if __name__ == "__main__":
    house.report("folders", check(sys.argv[1]))
