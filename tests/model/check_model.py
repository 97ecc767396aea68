#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_model.py - Spin on in_step.pml, with all of its rules, and without one of them.
"""usage: check_model.py MODEL

All assertions must hold in all states, of which there must be at least 10 million, and one must
fail where a rule is taken away. Exit 77: Spin is not installed."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

RULES = ("NO_STATE_DIGEST", "NO_INCARNATION", "NO_LEAP", "NO_NEW_INCARNATION")
LEAST = 10**7


def searched(model, words=()):
    """(errors, states) of the model with these constants."""
    with tempfile.TemporaryDirectory(prefix="deltawire-model-") as folder:

        def run(*command):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
            return done.stdout

        said = run("spin", "-a", *(f"-D{word}" for word in words), str(model))
        assert "error" not in said, said
        run("gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=512", "-o", "pan", "pan.c")
        said = run("./pan", "-m10000", "-w24")
    assert "max search depth too small" not in said, said
    errors, states = (re.search(what, said) for what in (r"errors: (\d+)", r"(\d+) states, stored"))
    return int(errors[1]), int(states[1])


def main():
    if not shutil.which("spin"):
        print("Spin is not installed: apt install spin")
        return 77
    model = pathlib.Path(sys.argv[1]).resolve()
    for rule in RULES:
        errors, states = searched(model, [rule])
        print(f"{rule}: {errors} errors in {states} states", flush=True)
        assert errors == 1, f"nothing fails without this rule: {rule}"
    errors, states = searched(model)
    print(f"with all rules: {errors} errors in {states} states")
    assert errors == 0 and states >= LEAST
    return 0


if __name__ == "__main__":
    sys.exit(main())
