#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# manual.py - makes the manual page of the program: a template, and what --help says of commands.
"""manual.py TEMPLATE PROGRAM VERSION PAGE"""

import pathlib
import re
import subprocess
import sys

COMMANDS = ("train", "advise", "measure", "inspect", "keygen")
OPTION = re.compile(r"^ {2,6}((?:-\S, )?--[\w-]+(?:=\S+)?)(?: +(.*))?$")
SECTION = re.compile(r"^ (\S.*):$")


def roff(text):
    """Escapes text for troff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def verbatim(lines):
    while lines and not lines[-1].strip():
        lines.pop()
    return [".nf", *(roff(line) for line in lines), ".fi"]


def options_of(lines):
    """The headings and options of a --help; all other lines are taken as they are."""
    out, rest = [], []
    for line in lines:
        option, section = OPTION.match(line), SECTION.match(line)
        if rest or (line and not option and not section and not line.startswith(" " * 20)):
            rest.append(line)
        elif section:
            out.append(f'.SS "{roff(section[1])}"')
        elif option:
            out += [".TP", f".B {roff(option[1])}"] + ([roff(option[2])] if option[2] else [])
        elif line.strip():
            out.append(roff(line.strip()))
    return out, rest


def command_page(name, said):
    """The --help of a command as a section of the page."""
    lines = said.splitlines()
    page = [f'.SH "DELTAWIRE {name.upper()}"', roff(lines[0].replace("Usage: ", "")), ".PP"]
    until = next((i for i, line in enumerate(lines) if not line.strip()), len(lines))
    page += [roff(line) for line in lines[1:until]]
    options, rest = options_of(lines[until:])
    return page + options + ([".PP"] + verbatim(rest) if rest else [])


def commands(program):
    page = []
    for name in COMMANDS:
        said = subprocess.run(
            [program, name, "--help"], capture_output=True, text=True, check=True
        ).stdout
        page += command_page(name, said)
    return "\n".join(page)


def main():
    template, program, version, page = sys.argv[1:]
    text = pathlib.Path(template).read_text(encoding="utf-8").replace("@VERSION@", version)
    pathlib.Path(page).write_text(text.replace("@COMMANDS@", commands(program)), encoding="utf-8")


if __name__ == "__main__":
    main()
