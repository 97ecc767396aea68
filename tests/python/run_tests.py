#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# run_tests.py - runs a test with pytest, or an example, with the package of a build folder; with
# AddressSanitizer if the build uses it.
"""usage: run_tests.py BUILD SANITIZE CC FILE [ARGS]

FILE: test_*.py for pytest, or an example. SANITIZE: Meson's b_sanitize. Exits 77 where pytest, cffi
or numpy is missing (Debian: python3-pytest, python3-cffi, python3-numpy)."""

import importlib.util
import os
import pathlib
import subprocess
import sys

FOLDERS = ("src", "threads", "transports", "python")


def asan_runtime(cc):
    """Returns the path of AddressSanitizer's shared runtime, which must be preloaded because the
    interpreter is not linked with it."""
    names = ["libclang_rt.asan-x86_64.so", "libclang_rt.asan.so", "libasan.so"]
    for name in names:
        done = subprocess.run(
            [*cc.split(), f"-print-file-name={name}"], capture_output=True, text=True, check=False
        )
        path = pathlib.Path(done.stdout.strip())
        if path.is_absolute() and path.exists():
            return str(path)
    return None


def main():
    build, sanitize, cc, file, *rest = sys.argv[1:]
    missing = [n for n in ("pytest", "cffi", "numpy") if importlib.util.find_spec(n) is None]
    if missing:
        print(f"run_tests: {', '.join(missing)} cannot be imported: install the packages")
        sys.exit(77)
    build = pathlib.Path(build)
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONFAULTHANDLER="1")
    env["PYTHONPATH"] = str(build / "python")
    env["DW_TEST_LIBRARIES"] = ":".join(str(build / folder) for folder in FOLDERS)
    env["DW_TEST_SANITIZED"] = "" if sanitize == "none" else sanitize
    if "address" in sanitize:
        runtime = asan_runtime(cc)
        if runtime is None:
            print(f"run_tests: {cc} has no shared runtime of AddressSanitizer: build without it")
            sys.exit(77)
        env["LD_PRELOAD"] = runtime
        # No leak detection, because the interpreter never frees some of its own memory.
        env["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1"
        env["PYTHONMALLOC"] = "malloc"
    elif sanitize not in ("none", ""):
        print(f"run_tests: the interpreter cannot run with {sanitize}: build without it")
        sys.exit(77)
    command = [sys.executable, "-X", "dev", file, *rest]
    if pathlib.Path(file).name.startswith("test_"):
        options = ["-q", "-x", "-p", "no:cacheprovider", "-W", "error"]
        command = [sys.executable, "-m", "pytest", *options, file, *rest]
    sys.exit(subprocess.run(command, env=env, check=False).returncode)


if __name__ == "__main__":
    main()
