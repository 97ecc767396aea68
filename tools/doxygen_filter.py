#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# doxygen_filter.py - a public header as Doxygen reads it, which knows comments by their marks only.
"""doxygen_filter.py HEADER: prints it. Comments of the headers are plain. Here each becomes one of
Doxygen's: in front of a declaration, behind a member, or of the header as a whole, where it opens a
part of it. Tables stay as they are written. No line comes or goes, so places stay true."""

import pathlib
import re
import sys

COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
RULE = re.compile(r"^ -{20,}$")
SPECIAL = re.compile(r"([\\@&$#<>%\"])")


def body(text):
    """The lines of a comment, with what Doxygen would take for commands quoted, and tables kept."""
    lines, table = [], False
    for line in text.split("\n"):
        is_row = bool(re.match(r"^ \* +\|", line))
        if is_row:
            line = line.replace("*", "", 1)
            line = ("@verbatim" if not table else "") + line
        else:
            line = SPECIAL.sub(r"\\\1", line)
            if table and lines:
                lines[-1] += "@endverbatim"
        table = is_row
        lines.append(line)
    if table:
        lines[-1] += " @endverbatim"
    return "\n".join(lines)


def mark(source, match):
    """What the comment begins with for Doxygen."""
    line = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
    after = source[match.end() : match.end() + 3]
    if match.start() == 0:
        return "/** @file"
    if line.lstrip().startswith("#") or after.startswith("\n#"):
        return "/*"  # of the preprocessor: of no declaration
    if line.strip():
        return "/**<"
    if after.startswith("\n\n"):  # of no declaration either: a rule opens a part of the header
        return "/** @file" if RULE.match(match[1].split("\n")[0]) else "/*"
    return "/**"


def filtered(source):
    out, at = [], 0
    for match in COMMENT.finditer(source):
        begin, lines = mark(source, match), match[1].split("\n")
        if RULE.match(lines[0]) or "SPDX" in lines[0]:
            lines[0] = ""
        text = "\n".join(lines)
        out += [source[at : match.start()], begin, text if begin == "/*" else body(text), "*/"]
        at = match.end()
    return "".join(out) + source[at:]


if __name__ == "__main__":
    print(filtered(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), end="")
