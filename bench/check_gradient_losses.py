#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_gradient_losses.py - tests gradient_losses.py with a tiny model: its table, local steps, and
# that the rules of papers are in effect in the trainings that name them.
"""usage: check_gradient_losses.py BUILD, a build folder that has the trainer and the benchmarks.
The losses themselves are not judged, because those of a tiny model mean nothing. That replicas stay
equal is checked by the trainer, which ends a run otherwise."""

import itertools
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent
FULL_RANK = "rule:powersgd:64:64"
CODECS = [
    "chunk:feedback=ef",
    "rule:cocktail",
    "rule:cocktail:0",
    "rule:sparseloco:0:1",
    "rule:sparseloco:1:1",
    "rule:sparseloco:1:2",
    "rule:powersgd:2:64",
    FULL_RANK,
]


def run(out, *arguments):
    """Runs gradient_losses.py with a tiny model. Returns what it printed, and its exit status."""
    script = SOURCE / "gradient_losses.py"
    text = ("--small", "--text", SOURCE.parent / "docs" / "format.md")
    words = [sys.executable, script, sys.argv[1], out, *text, *arguments]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout, done.returncode


def losses(out, *arguments):
    """Returns {codec: (cell of the bytes, the cells of the losses)}."""
    printed, status = run(out, *arguments)
    assert status == 0, printed[-3000:]
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line[:1] == "|"]
    assert lines[0][:3] == ["weight gradients", "bytes", "less"], lines
    return {row[0].strip("`"): (row[1], [float(x) for x in row[3:-1]]) for row in lines[2:]}


def main():
    with tempfile.TemporaryDirectory(prefix="deltawire-gradient-losses-") as folder:
        found = losses(folder, "--seeds", "2,3", *CODECS)
        assert list(found) == ["raw:f32", *CODECS], found
        assert all((sent == "-") == codec.startswith("rule:") for codec, (sent, _) in found.items())
        # All values are sent if no direction is left out, and else each rule loses something else.
        raw, full = found["raw:f32"][1], found.pop(FULL_RANK)[1]
        assert all(abs(a - b) < 5e-4 for a, b in zip(raw, full)), (raw, full)
        for one, other in itertools.combinations(found, 2):
            assert found[one][1] != found[other][1], (one, found[one], other)
        # What was trained before is not trained again.
        printed, _ = run(folder, "--seeds", "3", "rule:cocktail")
        assert "step" not in printed and printed.count("|\n") == 4, printed
        local = losses(folder, "--local-steps", "2", "rule:sparseloco:1:1")
        assert local["raw:f32"][1] != raw[:1], (local, raw)
        assert local["raw:f32"] != local["rule:sparseloco:1:1"], local
        printed, status = run(folder, "rule:nothing")
        assert status != 0 and "DW_RULE is not" in printed, printed


if __name__ == "__main__":
    main()
