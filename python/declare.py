#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# declare.py - turns the C headers into _declarations.py, which tells cffi their declarations.
"""declare.py OUT VERSION --include FOLDER... --header HEADER... -- COMPILER...

So the public headers are the only source of the interface. They are preprocessed without the
system's headers, whose types cffi knows. cffi parses the result and writes a Python file, which
needs neither a compiler nor a parser when it is imported."""

import argparse
import pathlib
import subprocess
import tempfile

import cffi

SYSTEM = ("stddef.h", "stdint.h", "stdbool.h")


def preprocessed(compiler, folders, headers):
    with tempfile.TemporaryDirectory() as empty:
        for name in SYSTEM:
            (pathlib.Path(empty) / name).write_text("")
        options = ["-E", "-P", "-x", "c", "-std=c11", "-nostdinc", "-DDW_API=", f"-I{empty}"]
        return subprocess.run(
            [*compiler, *options, *[f"-I{folder}" for folder in folders], "-"],
            input="".join(f'#include "{header}"\n' for header in headers),
            check=True,
            capture_output=True,
            text=True,
        ).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("version")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("compiler", nargs="+")
    given = parser.parse_args()
    ffi = cffi.FFI()
    ffi.cdef(preprocessed(given.compiler, given.include, given.header))
    ffi.set_source("deltawire._declarations", None)
    ffi.emit_python_code(str(given.out))
    with given.out.open("a", encoding="utf-8") as out:
        out.write(f'VERSION = "{given.version}"\n')


if __name__ == "__main__":
    main()
