#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# manual.py - checks that the manual page agrees with the program, and that troff accepts it.
"""manual.py ROOT PROGRAM [--write]

The part of docs/deltawire.1 between ".\\" generated: begin" and ".\\" generated: end" contains the
commands and options of the program, as --help prints them. Then groff formats the page and mandoc,
if it is installed, checks it: neither may print a warning. Exits 77 if groff is missing. --write
updates the page."""

import pathlib
import re
import shutil
import subprocess
import sys

import lint

COMMANDS = ("train", "advise", "measure", "inspect", "keygen")
PAGE = "docs/deltawire.1"
BEGIN, END = '.\\" generated: begin\n', '.\\" generated: end\n'
OPTION = re.compile(r"^ {2,6}((?:-\S, )?--[\w-]+(?:=\S+)?)(?: +(.*))?$")
SECTION = re.compile(r"^ (\S.*):$")
VERSION = re.compile(r'define DW_VERSION_STRING "([^"]+)"')


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
    return "\n".join(page) + "\n"


def compare(root, generated, write):
    """Complaints if the generated part or the version is outdated."""
    path = pathlib.Path(root) / PAGE
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    stored, _, after = rest.partition(END)
    if write:
        path.write_text(before + BEGIN + generated + END + after, encoding="utf-8")
    elif stored != generated:
        old, new = stored.splitlines(), generated.splitlines()
        less = [line for line in new if line not in old][:3]
        more = [line for line in old if line not in new][:3]
        yield f"{PAGE} is old: it lacks {less}, and has {more}; renew it by manual.py --write"
    version = VERSION.search(lint.text(root, f"{lint.PUBLIC_HEADERS}/version.h"))[1]
    if f'"deltawire {version}"' not in text:
        yield f"{PAGE} is not that of version {version}"


def groff_complaints(root):
    """The warnings of groff and mandoc."""
    path = pathlib.Path(root) / PAGE
    ways = [["groff", "-man", "-Tutf8", "-ww", "-z"], ["mandoc", "-T", "lint", "-W", "warning"]]
    for way in ways:
        if shutil.which(way[0]):
            done = subprocess.run([*way, path], capture_output=True, text=True, check=False)
            if done.returncode or done.stdout or done.stderr:
                yield f"{way[0]} of {PAGE}: {done.stdout}{done.stderr}"


def main():
    root, program = [word for word in sys.argv[1:] if word != "--write"]
    complaints = list(compare(root, commands(program), "--write" in sys.argv))
    complaints += groff_complaints(root)
    if not complaints and not shutil.which("groff"):
        print("manual: no groff here: the layout of the page was not checked")
        sys.exit(77)
    lint.report("manual", complaints)


if __name__ == "__main__":
    main()
