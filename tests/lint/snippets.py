#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# snippets.py - checks that the C programs in the pages compile, run, and print what the pages say.
"""snippets.py ROOT BUILD

A block marked ```c is a complete program: it is compiled (C11, all warnings are errors) and run,
and must exit with 0. If the next block is marked ```text output, the program must print that text.
A program that includes deltawire/mpi.h is run by three ranks, with the first MPI for which the
build has a library; without one it is only compiled. A block marked ```c fragment is not a complete
program and is not compiled."""

import pathlib
import re
import subprocess
import sys
import tempfile

import lint

MPI_RANKS = "3"
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```[ \t]*$", re.S | re.M)


def documents(root):
    root = pathlib.Path(root)
    return [
        *sorted(root.glob("*.md")),
        *sorted((root / "docs").glob("**/*.md")),
        *sorted((root / "bench").glob("*.md")),
        *sorted((root / "study").glob("*.md")),
    ]


def blocks(path):
    """(line, mark, code) of each fenced block."""
    source = path.read_text(encoding="utf-8")
    for match in BLOCK.finditer(source):
        yield source.count("\n", 0, match.start()) + 1, match.group(1).strip(), match.group(2)


FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SKIPPED = 77


def run(command, work, seconds=60):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, cwd=work
    )


def mpi_of(build):
    """The name of an MPI for which the build has a library, or None."""
    place = pathlib.Path(build) / "transports/mpi"
    for name in ("openmpi", "mpich"):
        if (place / f"libdeltawire-mpi-{name}.so").exists():
            return name
    return None


def libraries_of(build, code):
    """The folder and the name of each library that a program needs."""
    libraries = [("src", "deltawire")]
    if "deltawire/transport.h" in code or "deltawire/collective.h" in code:
        libraries.insert(0, ("transports", "deltawire-net"))
    if "deltawire/mpi.h" in code:
        libraries.insert(0, ("transports/mpi", f"deltawire-mpi-{mpi_of(build)}"))
    return libraries


def run_program(root, build, code, work):
    """(a complaint or None, what the program printed, or None if it cannot be run here)."""
    source, program = work / "snippet.c", work / "snippet"
    source.write_text(code, encoding="utf-8")
    include, command = ["-I", f"{pathlib.Path(root).resolve()}/include"], [str(program)]
    needs_mpi = "deltawire/mpi.h" in code
    if needs_mpi and not mpi_of(build):
        done = run(["cc", *FLAGS, *include, "-fsyntax-only", str(source)], work)
        return (f"does not compile:\n{done.stderr}" if done.returncode else None), None
    link = []
    for folder, name in libraries_of(build, code):
        place = pathlib.Path(build).resolve() / folder
        link += [f"-L{place}", f"-l{name}", f"-Wl,-rpath,{place}"]
    done = run(["cc", *FLAGS, *include, str(source), "-o", str(program), *link, "-lm"], work)
    if done.returncode:
        return f"does not compile:\n{done.stderr}", ""
    if needs_mpi:
        launcher = pathlib.Path(root).resolve() / "tests/transports/mpi/mpirun.sh"
        command = [str(launcher), mpi_of(build), MPI_RANKS, *command]
    done = run(command, work)
    if needs_mpi and done.returncode == SKIPPED:
        return None, None
    if done.returncode:
        return f"exits with {done.returncode}:\n{done.stdout}{done.stderr}", ""
    return None, done.stdout


def check(root, build):
    complaints, programs = [], 0
    with tempfile.TemporaryDirectory(prefix="dw-snippets-") as name:
        for path in documents(root):
            printed, is_run = None, True
            for line, mark, code in blocks(path):
                where = f"{path.relative_to(root)}:{line}"
                if mark == "c":
                    programs += 1
                    complaint, printed = run_program(root, build, code, pathlib.Path(name))
                    is_run = printed is not None
                    if complaint:
                        complaints.append(f"{where}: the example {complaint}")
                        printed = None
                elif mark == "text output":
                    if not is_run:
                        is_run = True
                    elif printed is None:
                        complaints.append(f"{where}: output without a program that runs before it")
                    elif printed != code:
                        complaints.append(f"{where}: the program prints\n{printed}and not\n{code}")
                    printed = None
                elif mark.startswith("c ") and mark != "c fragment":
                    complaints.append(f"{where}: unknown mark ```{mark}: c, or c fragment")
        first = [mark for _, mark, _ in blocks(pathlib.Path(root) / "README.md")]
        if "c" not in first:
            complaints.append("README.md: shows no whole C program (a block marked ```c)")
    print(f"snippets: {programs} programs")
    return complaints


if __name__ == "__main__":
    lint.report("snippets", check(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
