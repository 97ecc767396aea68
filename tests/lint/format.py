#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# format.py - checks the layout of text: length of lines, blanks, tabs, and clang-format.
"""format.py ROOT [--lines | --clang-format | --write]

--lines checks every text file: C, C++, CUDA, Python, shell, Meson, Markdown, CMake, settings. No
line may have more than 100 columns, contain a tab or end with a blank, and a file must end with one
newline. Only a table may be wider, with a marker:

    C, C++, CUDA    " * wide table:" in a comment, for the rows " * | ..." that follow;
                    "/* clang-format off */", up to "/* clang-format on */"
    Python          "# fmt: off", up to "# fmt: on"
    Markdown        "<!-- wide table -->", for the rows "| ..." that follow

A marker without a long line is an error, too. A file that cannot keep to this for now is listed in
exceptions.txt as "path:columns".

--clang-format checks that clang-format 14, with the settings in .clang-format, would not change any
C, C++ or CUDA file; exits 77 if it is not installed. --write lets it change the files. Without an
option both are checked. Python is formatted by `black -l 100`, which is not checked here.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import lint
import style

COLUMNS = 100
CLANG_FORMAT = "clang-format-14"  # other releases format differently
SOURCES = {".c", ".h", ".cc", ".cu", ".cuh"}
TEXTS = SOURCES | {".py", ".sh", ".md", ".txt", ".build", ".in", ".ini", ".supp"}
# Files at the top in addition to the pages (*.md), and folders without sources.
TOP = (
    "meson.build",
    "meson_options.txt",
    "run",
    ".ci/run",
    ".clang-format",
    ".gitignore",
    ".git-blame-ignore-revs",
)
TEXT_MODULES = lint.MODULES + ("docs", "cmake")

# Kind of file -> (the beginning of a stretch of wide lines; what all of its lines look like, or
# None; its end, or None if it ends with the first line that looks different).
TABLE = re.compile(r"^\s*(/\*|\*) wide table:$")
MARKERS = {
    "C": [
        (TABLE, re.compile(r"^\s*\* \|"), None),
        (re.compile(r"/\* clang-format off \*/"), None, re.compile(r"/\* clang-format on \*/")),
    ],
    "Python": [(re.compile(r"^\s*# fmt: off$"), None, re.compile(r"^\s*# fmt: on$"))],
    "Markdown": [(re.compile(r"^<!-- wide table -->$"), re.compile(r"^\|"), None)],
}


def texts(root):
    """Every text file of the tree, whether Git knows it or not, except for corpora."""
    root = pathlib.Path(root)
    found = [path for path in lint.files(root, TEXTS, TEXT_MODULES) if "results" not in path.parts]
    found += [path.relative_to(root) for path in sorted(root.glob("*.md"))]
    return found + [pathlib.Path(name) for name in TOP if (root / name).is_file()]


def kind_of(path):
    if path.suffix in SOURCES:
        return "C"
    return {".py": "Python", ".md": "Markdown"}.get(path.suffix)


def wide_stretches(lines, kind):
    """For each marker: (its index, indices of its lines, whether they are a table)."""
    index = 0
    while index < len(lines):
        for begin, row, end in MARKERS.get(kind, ()):
            if not begin.search(lines[index]):
                continue
            stop = index + 1
            while stop < len(lines) and (
                row.search(lines[stop]) if row else not end.search(lines[stop])
            ):
                stop += 1
            yield index, range(index + 1, stop), row is not None
            index = stop - 1
            break
        index += 1


def check_lines(path, content):
    lines = content.split("\n")
    if lines[-1] or (len(lines) > 1 and not lines[-2]):
        yield f"{path}:{len(lines)}: a file ends with one newline"
    may_be_wide = set()
    for marker, covered, is_table in wide_stretches(lines, kind_of(path)):
        may_be_wide.update(covered)
        if is_table and all(len(lines[index]) <= COLUMNS for index in covered):
            yield f"{path}:{marker + 1}: this marker of a wide table is not needed"
    for index, line in enumerate(lines):
        if len(line) > COLUMNS and index not in may_be_wide:
            yield f"{path}:{index + 1}: {len(line)} columns, more than {COLUMNS}"
        if "\t" in line:
            yield f"{path}:{index + 1}: a tab"
        if line != line.rstrip():
            yield f"{path}:{index + 1}: blanks at the end"


def check(root):
    """Checks the lines of every text file."""
    allowed = {name for name in style.exceptions(root)[0] if name.endswith(style.COLUMNS_MARK)}
    complaints, used = [], set()
    for path in texts(root):
        found = list(check_lines(path, lint.text(root, path)))
        name = f"{path}{style.COLUMNS_MARK}"
        if found and name in allowed:
            used.add(name)
        else:
            complaints += found
    complaints += [
        f"tests/lint/exceptions.txt: {name} needs no exception any more"
        for name in sorted(allowed - used)
    ]
    return complaints


def clang_format(root, *options):
    """What clang-format prints about the sources, or None if it is not installed."""
    if not shutil.which(CLANG_FORMAT):
        return None
    files = [str(path) for path in lint.files(root, SOURCES)]
    done = subprocess.run(
        [CLANG_FORMAT, *options, *files], cwd=root, capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if ": error: " in line]
    if done.returncode and not said:
        said = [f"{CLANG_FORMAT} failed: {done.stderr.strip()}"]
    return said


def check_layout(root):
    """One complaint for each place that clang-format would change."""
    return clang_format(root, "--dry-run", "-Werror")


def main():
    root, option = sys.argv[1], (sys.argv[2:] or [""])[0]
    if option not in ("", "--lines", "--clang-format", "--write"):
        sys.exit(f"format: no option '{option}'")
    complaints = check(root) if option in ("", "--lines") else []
    layout = []
    if option == "--write":
        layout = clang_format(root, "-i")
    elif option != "--lines":
        layout = check_layout(root)
    if layout is None:
        print(f"format: {CLANG_FORMAT} is not installed: the layout of C, C++, CUDA is not checked")
    if layout is None and not complaints:
        sys.exit(77)
    lint.report("format", complaints + (layout or []))


if __name__ == "__main__":
    main()
