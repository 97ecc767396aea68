#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_hidden.py - tests hidden.py: its table for a tiny model.
"""usage: check_hidden.py BUILD, a build folder that has the trainer. The bytes of gradients are
judged: 4 bits and a scale for each value, for half of the model in each rank. So are two times:
with f32 on this wire, nearly all of the wire's time must be waited for; and a simulated processor
makes a step take at least as long as its products need."""

import pathlib
import subprocess
import sys

import hidden

TINY = (
    "--layers 2 --channels 32 --heads 2 --context 24 --batch 2 --micro-batches 1 --steps 3 "
    "--rounds 1 --rate 1mbit"
).split()


def run(*arguments):
    """Returns the rows of the table, as lists of the cells' texts."""
    words = [sys.executable, pathlib.Path(hidden.__file__), "--build", sys.argv[1], *TINY]
    done = subprocess.run([*words, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [line.strip("| ").split(" | ") for line in done.stdout.splitlines()][2:]


def main():
    assert hidden.bits_per_second("20mbit") == 2e7 and hidden.bits_per_second("9600bit") == 9600
    rows = run()
    assert [row[0] for row in rows] == [
        "separate pipelines",
        "raw:f32",
        "direct:bits=4,feedback=ef",
    ], rows
    raw, coded = (float(row[2].split()[0]) for row in rows[1:])
    assert 6.5 < raw / coded < 8, rows
    assert float(rows[1][3].split()[0]) > 0.5 * raw, rows
    # Two samples of 24 tokens take 5 million operations in the blocks of a stage alone.
    (slow, *_) = run("--gflops", "0.02", "--gradients", "direct:bits=4")
    assert float(slow[1].split()[0]) > 200, slow


if __name__ == "__main__":
    main()
