#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_studies.py - runs each study with a tiny model: that it works, never what it finds.
"""check_studies.py STUDY BUILD, a build folder that has the trainer and the studies. Of a study its
output must have the right shape, what is stored must not be done again, and a mistake of the user
must be refused with a sentence. Losses of a tiny model mean nothing."""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

STUDY = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[2]).resolve()
TEXT = ("--text", STUDY.parent / "docs" / "transports.md")


def run(*words, code=0):
    """Returns what a program printed, with its errors."""
    done = subprocess.run(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == code, done.stdout[-3000:]
    return done.stdout


def script(name, *words, code=0):
    return run(sys.executable, STUDY / name, *words, code=code)


def rows_of(text):
    """The rows of a table in Markdown, without its two lines of head."""
    return [line for line in text.splitlines() if line.startswith("| ")][1:]


def is_picture(path):
    return path.read_bytes()[:4] == b"\x89PNG"


def compare(out):
    """One method beside raw, in every role; a later run trains nothing anew."""
    words = ("--quick", "--untimed", "--build", BUILD, "--out", out, *TEXT)
    script("compare.py", *words, "--only", "blocks")
    stored = json.loads((out / "compare.json").read_text())
    done = {(t["method"], t["role"]): t for t in stored["trainings"]}
    assert len(done) == len(stored["trainings"]) == 2 * 3, stored
    for (method, _), training in done.items():
        bits = 32 if method == "raw" else 8
        assert bits < training["bits"] < 1.2 * bits, training
    assert is_picture(out / "comparison.png")
    assert "`blocks`" in (out / "comparison.md").read_text()
    assert "; 0 trainings" in script("compare.py", *words, "--only", "blocks")
    assert "unknown method block;" in script("compare.py", "--only", "block", code=2)
    lines = run(BUILD / "study" / "speed", "--parse", "tah", "nothing").splitlines()
    assert "unknown codec" in lines[1] and "refused" not in lines[0], lines


def losses(out):
    """One pair on two texts, with raw; what is stored is not trained again."""
    words = ("--small", "--seeds", 1, "--stages", 2, "--build", BUILD, "--out", out, *TEXT)
    words += ("--pair", "delta:bits=2", "direct:bits=4")
    assert len(rows_of(script("losses.py", *words))) == 4
    for it in json.loads((out / "losses.json").read_text()):
        assert (32 if it["forward"] == "raw:f32" else 2) < it["bits_forward"] < 34, it
    assert "; 0 trainings" in script("losses.py", *words)
    assert "as many layers" in script("losses.py", "--stages", "4,8", code=2)


def quality(out):
    """Every codec and baseline on tiny sets; what is known of errors holds on one of them."""
    words = ("--small", "--work", out, "--build", BUILD, "--out", out / "q.json", *TEXT)
    printed = script("quality/quality.py", *words)
    whole = json.loads((out / "q.json").read_text())
    assert len(whole["sets"]) == 5 and is_picture(out / "q.png")
    assert (out / "q.md").read_text() in printed
    sys.path.insert(0, str(STUDY / "quality"))
    import sets

    record = out / "gaussian.record"
    sets.write(record, "gaussian", 4, 3, 128, 128)
    only = ("--only", "dither,rowwise", "--json", out / "one.json", record)
    run(BUILD / "study" / "quality", *only)
    for row in json.loads((out / "one.json").read_text())["rows"]:
        its, codec = row["later"], row["codec"]
        if codec.startswith("direct:form=step,group=sample,step=1,rounding=dither"):
            # an error of dither is uniform over one step, without a side
            assert abs(its["error"] * math.sqrt(12) - 1) < 0.02, its
            assert abs(its["bias"]) < 5 * its["bias_sigma"], its
        elif codec == "rowwise:bits=8":
            assert 0.002 < its["error"] < 0.01 and its["bits"] == 8 + 64 / 128, its
    record.write_bytes(record.read_bytes()[:-4] + b"\0\0\xc0\x7f")
    assert "NaN" in run(BUILD / "study" / "quality", "--only", "rowwise", record, code=1)


def main():
    with tempfile.TemporaryDirectory(prefix="deltawire-study-") as folder:
        globals()[sys.argv[1]](pathlib.Path(folder))


if __name__ == "__main__":
    main()
