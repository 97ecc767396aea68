# SPDX-License-Identifier: Apache-2.0
# lint.py - what the checks of the tree share: lists of sources, and the output of complaints.
import pathlib
import re
import sys

MODULES = (
    "include",
    "base",
    "src",
    "cuda",
    "threads",
    "transports",
    "collective",
    "trainer",
    "cli",
    "examples",
    "bench",
    "study",
    "tests",
    "python",
    "tools",
)
PUBLIC_HEADERS = "include/deltawire"


def files(root, suffixes, modules=MODULES):
    """The paths, relative to root, of all files of these kinds in these modules, sorted."""
    root = pathlib.Path(root)
    return [
        path.relative_to(root)
        for module in modules
        for path in sorted((root / module).rglob("*"))
        if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts
    ]


def text(root, path):
    return (pathlib.Path(root) / path).read_text(encoding="utf-8")


def without_comments(source):
    """C source with comments and contents of strings replaced by blanks; line numbers are kept."""
    pattern = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)

    def blank(match):
        word = match.group(0)
        if word[0] in "\"'":
            return word[0] + word[0]
        return "\n" * word.count("\n") or " "

    return pattern.sub(blank, source)


def report(name, complaints):
    """Prints the complaints, and ends the program with the exit code that Meson expects."""
    for complaint in complaints:
        print(complaint)
    print(f"{name}: {len(complaints)} complaints" if complaints else f"{name}: all is well")
    sys.exit(1 if complaints else 0)
