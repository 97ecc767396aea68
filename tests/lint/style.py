#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# style.py - checks the heads of files, sizes, and words that must not stay in the tree.
"""style.py ROOT. exceptions.txt lists what may exceed a limit, with the reason."""

import re
import sys

import lint

FUNCTION_LINES = 70  # "about 60"
FILE_LINES = 620  # "about 500"
STRUCT_FIELDS = 30  # outside public headers and tests: a larger struct is several nouns in one
PUBLIC_HEADER_LINES = 1850  # all public headers together, except those below
# A header of a layer that most programs do not use has a limit of its own: readers of the others
# need not know it, so it should not take their lines.
OWN_HEADER_LINES = {"collective.h": 260, "profile.h": 75, "storage.h": 100}
PUBLIC_FUNCTIONS = 105  # that all public headers declare, except those below
# What tells of memory for state alone, and what is going to leave.
UNCOUNTED = {"profile.h", "storage.h"}
UNCOUNTED_NAME = re.compile(r"_prefetch$")
COLUMNS_MARK = ":columns"  # marks exceptions for format.py
WORDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")

FUNCTION_NAME = re.compile(r"(?:\b\w*TEST(?:_WITH)?\()?(\w+)\s*[(,)]")


def exceptions(root):
    """{"path" or "path:function": reason}. A line without a reason is an error."""
    table, complaints = {}, []
    for number, line in enumerate(lint.text(root, "tests/lint/exceptions.txt").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition(" - ")
        if len(reason.split()) < 4:
            complaints.append(
                f"tests/lint/exceptions.txt:{number}: say why {name.strip()} may exceed its limit"
            )
        table[name.strip()] = reason
    return table, complaints


def check_head(path, lines):
    if path.suffix in {".c", ".h", ".cc", ".cu", ".cuh"}:
        first, second = "/* SPDX-License-Identifier: Apache-2.0", f" * {path.name} - "
    else:
        lines = lines[1:] if lines and lines[0].startswith("#!") else lines
        first, second = "# SPDX-License-Identifier: Apache-2.0", f"# {path.name} - "
    if len(lines) < 2 or lines[0] != first or not lines[1].startswith(second):
        yield f'{path}:1: the head must be "{first}" and "{second}the one thing this file hides."'


def functions(lines):
    """(name, first line, number of lines) of each function, found by '{' and '}' in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line.startswith("}") and start:
            above = start - 1
            while (
                above > 1
                and lines[above - 2].strip()
                and not lines[above - 2].startswith(("}", "#", "/", " *"))
                and not lines[above - 2].endswith((";", "*/"))
            ):
                above -= 1
            name = FUNCTION_NAME.search(" ".join(lines[above - 1 : start - 1]))
            yield (name.group(1) if name else "?"), above, number - start + 1
            start = None


STRUCT = re.compile(r"^(?:typedef |static )?(?:struct|union) ?(\w*) \{\n(.*?)^\}", re.M | re.S)


def check_structs(root, path, allowed, used):
    for name, body in STRUCT.findall(lint.without_comments(lint.text(root, path))):
        body = re.sub(r"\([^;]*\)|\{[^{}]*\}", "", body)
        count = sum(1 + part.count(",") for part in body.split(";") if part.strip())
        if count > STRUCT_FIELDS:
            used.add(f"{path}:{name}")
            if f"{path}:{name}" not in allowed:
                yield f"{path}: {name} has {count} fields, more than {STRUCT_FIELDS}"


def check_sizes(path, lines, allowed, used):
    if len(lines) > FILE_LINES:
        used.add(str(path))
        if str(path) not in allowed:
            yield (
                f"{path}: {len(lines)} lines, more than {FILE_LINES}: split it, or say why in "
                "exceptions.txt"
            )
    for name, first, count in functions(lines):
        if count > FUNCTION_LINES:
            used.add(f"{path}:{name}")
            if f"{path}:{name}" not in allowed:
                yield f"{path}:{first}: {name} has {count} lines, more than {FUNCTION_LINES}"


def public_functions(root, headers):
    """The functions that count for the limit."""
    names = []
    for path in headers:
        source = lint.without_comments(lint.text(root, path))
        source = re.sub(r"^[ \t]*#.*$", "", source, flags=re.M)
        found = re.findall(r"\bDW_API\b[^;{(]*?\b(\w+)\s*\(", source)
        if path.name not in UNCOUNTED:
            names += [name for name in found if not UNCOUNTED_NAME.search(name)]
    return names


def check(root):
    allowed, complaints = exceptions(root)
    used = set()
    c_files = lint.files(root, {".c", ".h", ".cc", ".cu", ".cuh"})
    scripts = lint.files(root, {".py", ".sh"}) + [
        lint.pathlib.Path("run"),
        lint.pathlib.Path(".ci/run"),
    ]
    for path in c_files + scripts:
        lines = lint.text(root, path).splitlines()
        complaints += check_head(path, lines)
        if path in c_files:
            complaints += check_sizes(path, lines, allowed, used)
            if path.parts[0] not in ("include", "tests"):
                complaints += check_structs(root, path, allowed, used)
    complaints += [
        f"tests/lint/exceptions.txt: {name} needs no exception any more"
        for name in allowed
        if name not in used and not name.endswith(COLUMNS_MARK)
    ]
    public = lint.files(root, {".h"}, (lint.PUBLIC_HEADERS,))
    total = 0
    for path in public:
        count = len(lint.text(root, path).splitlines())
        own = OWN_HEADER_LINES.get(path.name)
        total += 0 if own else count
        if own and count > own:
            complaints.append(f"{path}: {count} lines, more than {own}")
    if total > PUBLIC_HEADER_LINES:
        complaints.append(
            f"{lint.PUBLIC_HEADERS}: {total} lines together, more than {PUBLIC_HEADER_LINES}"
        )
    names = public_functions(root, public)
    if len(names) > PUBLIC_FUNCTIONS:
        complaints.append(
            f"{lint.PUBLIC_HEADERS}: {len(names)} functions together, more than "
            f"{PUBLIC_FUNCTIONS}: let one of them do what the new one does"
        )
    prose = lint.files(root, {".md", ".txt", ".build"}, lint.MODULES + ("docs",))
    for path in c_files + scripts + prose:
        for number, line in enumerate(lint.text(root, path).splitlines(), 1):
            if WORDS.search(line):
                complaints.append(
                    f'{path}:{number}: "{WORDS.search(line).group(1)}" must not stay: do it, or '
                    "open an issue"
                )
    return complaints


if __name__ == "__main__":
    lint.report("style", check(sys.argv[1]))
