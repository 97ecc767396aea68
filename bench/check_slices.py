#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_slices.py - tests slices.py: its table for tiny models, with real and simulated processors.
"""usage: check_slices.py BUILD, a build folder that has the trainer and the benchmarks. Times are
not judged, except that products take at least as long as the simulated processor needs."""

import pathlib
import subprocess
import sys

import slices

TINY = "--layers 3 --channels 32 --context 24 --batch 2 --steps 3 --rounds 1".split()


def run(*arguments):
    """Returns the rows of the table, as lists of the cells' texts."""
    script = pathlib.Path(slices.__file__)
    words = [sys.executable, script, "--build", sys.argv[1], *TINY, *arguments]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    assert lines[0][:3] == ["stages", "slices", "step"], lines
    return lines[2:]


def main():
    fast = run("--stages", "1", "3", "--slices", "1", "4")
    assert [row[:2] for row in fast] == [["1", "1"], ["1", "4"], ["3", "1"], ["3", "4"]], fast
    assert [row[4] for row in fast] == ["1.00", "1.00", "1.00", "0.50"], fast
    assert fast[0][3] == fast[2][3] == "1.00", fast
    # A step takes 13 million operations, so at least 650 ms, because one stage waits for the other.
    (slow,) = run("--stages", "2", "--slices", "1", "--gflops", "0.02")
    assert float(slow[2].split()[0]) > 600, slow


if __name__ == "__main__":
    main()
