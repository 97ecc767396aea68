#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# cffi_reads.py - checks that cffi's parser understands the preprocessed public headers.
"""cffi_reads.py ROOT. Exits 77 where cffi or a preprocessor is missing.

Does what a binding does: `gcc -E -P -DDW_API=` without the system's headers, whose types cffi
knows, and then cdef. Extensions, inline functions and values that only a compiler knows are
errors."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import lint

SYSTEM = ("stddef.h", "stdint.h", "stdbool.h")


def preprocessed(root, header, empty):
    return subprocess.run(
        ["gcc", "-E", "-P", "-std=c11", "-nostdinc", "-DDW_API=", "-I", str(empty), "-I"]
        + [str(pathlib.Path(root) / "include"), str(pathlib.Path(root) / header)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def check(root):
    complaints = []
    with tempfile.TemporaryDirectory() as folder:
        for name in SYSTEM:
            (pathlib.Path(folder) / name).write_text("")
        for header in lint.files(root, {".h"}, (lint.PUBLIC_HEADERS,)):
            try:
                cffi.FFI().cdef(preprocessed(root, header, folder))
            except (cffi.CDefError, cffi.FFIError, pycparser.c_parser.ParseError) as error:
                complaints.append(f"{header}: cffi does not understand it: {error}")
            except subprocess.CalledProcessError as error:
                complaints.append(f"{header}: cannot be preprocessed alone:\n{error.stderr}")
    return complaints


if __name__ == "__main__":
    try:
        import cffi
        import pycparser
    except ImportError as absent:
        print(f"cffi_reads: {absent} (Debian: python3-cffi, python3-pycparser)")
        sys.exit(77)
    if not shutil.which("gcc"):
        print("cffi_reads: no gcc here")
        sys.exit(77)
    lint.report("cffi_reads", check(sys.argv[1]))
