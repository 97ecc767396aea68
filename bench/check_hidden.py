#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_hidden.py - tests hidden.py: its table for a tiny model.
"""usage: check_hidden.py BUILD, a build folder that has the trainer. The bytes of gradients are
judged: 4 bits and a scale for each value, for half of the model in each rank. So is one time: with
f32 on this wire, nearly all of the wire's time must be waited for."""

import pathlib
import subprocess
import sys

import hidden

TINY = (
    "--layers 2 --channels 32 --heads 2 --context 24 --batch 2 --micro-batches 1 --steps 3 "
    "--rounds 1 --rate 1mbit"
).split()


def main():
    assert hidden.bits_per_second("20mbit") == 2e7 and hidden.bits_per_second("9600bit") == 9600
    words = [sys.executable, pathlib.Path(hidden.__file__), "--build", sys.argv[1], *TINY]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[2:]] == [
        "separate pipelines",
        "raw:f32",
        "direct:bits=4,feedback=ef",
    ], rows
    raw, coded = (float(row[2].split()[0]) for row in rows[3:])
    assert 6.5 < raw / coded < 8, rows
    assert float(rows[3][3].split()[0]) > 0.5 * raw, rows


if __name__ == "__main__":
    main()
