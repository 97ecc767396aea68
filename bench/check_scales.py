#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_scales.py - runs the comparison of scales with the smallest settings, and checks that
# attempts.py computes what the encoder does.
"""usage: check_scales.py BUILD. The figures of a tiny model are not checked, except those
that must agree."""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import attempts
import scales

SOURCE = pathlib.Path(__file__).resolve().parent


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, str(SOURCE / script), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def assert_same_encoder(record, figures):
    """What the library loses of the gradients with scale=mse is what attempts.py says it loses: of
    two scales whose sums of squares are alike to the last places of a binary32 they may choose
    different ones, hence the margin."""
    is_gradients, visits = attempts.read(record, 1 << 30)
    assert is_gradients and len(visits) == figures["tensors"], len(visits)
    for known in figures["codecs"]:
        # Canonical text: what is default is left out, so mse is not named where it is.
        options = known["codec"].partition(":")[2].split(",")
        words = dict(word.split("=") for word in options if word)
        scale = words.get("scale", "mse" if words.get("bits") == "1" else "signed")
        if scale == "mse" and "rounding" not in words:
            group = words.get("group", "64")
            if group.isdigit() and int(group) <= 64:  # the tiny model has 64 channels
                d = np.concatenate([x.reshape(-1, int(group)) for _, _, x in visits])
                lost = d - attempts.quantize(d, int(words.get("bits", 4)))
                error = np.linalg.norm(lost.astype(np.float64)) / np.linalg.norm(
                    d.astype(np.float64)
                )
                assert abs(error / known["all"]["error"] - 1) < 1e-5, (
                    known["codec"],
                    error,
                    known["all"]["error"],
                )
                yield known["codec"]


def main():
    with tempfile.TemporaryDirectory(prefix="deltawire-scales-") as folder:
        out = pathlib.Path(folder)
        printed = run(
            "scales.py",
            "--small",
            "--seeds",
            1,
            "--text",
            SOURCE.parent / "docs" / "format.md",
            "--build",
            sys.argv[1],
            "--out",
            out,
        )
        tables = (out / "scales.md").read_text()
        assert tables in printed
        rows = [line for line in tables.splitlines() if line.startswith("|")]
        # The rows of all tables, and two lines of head for each table.
        assert len(rows) == 8 + 12 + 6 + len(scales.TRAINED) + 1 + 2 * 4, tables
        assert (out / "scales.png").read_bytes()[:4] == b"\x89PNG"
        backward = out / "record" / "backward-1.record"
        compared = list(
            assert_same_encoder(backward, json.loads((out / "backward.json").read_text()))
        )
        assert len(compared) == 2 * 8, compared
        printed = run(
            "attempts.py",
            "--bits",
            "1,4",
            "--samples",
            8,
            out / "record" / "forward-0.record",
            backward,
        ).splitlines()
        assert len(printed) == 1 + 2 * (2 + 2 + 3), printed
        for line in printed:
            if line.split()[1] in "01":
                signed, now, two, four, eight, fine = map(float, line.split()[2:])
                assert fine <= eight <= four <= two and fine <= now <= signed, line


main()
