#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_compare.py - tests compare.py: its table of methods, its page for made-up results, and runs
# with a tiny model, of which a later one must reuse the trainings of the first.
"""usage: check_compare.py BUILD, a build folder that has the program and bench/speed. The losses
themselves are not judged, because those of a tiny model mean nothing."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import compare_page
from compare import BACKWARD, GRADIENT, METHODS, ROLES, Comparison
from compare import figures, speeds_of, texts_of
from compare_methods import ACTIVATIONS, named

SOURCE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1])
# Words that only codecs have which this library need not have. The text of every other method must
# be understood; otherwise a mistake in it would only leave the method out of the comparison.
OTHERS = ("cocktail", "chunk", "lowrank", "tah", "transform=hadamard")


def run(out, *words):
    """Runs compare.py with a tiny model in the folder out. Returns what it printed."""
    done = subprocess.run(
        [
            sys.executable,
            str(SOURCE / "compare.py"),
            *("--quick", "--build", str(BUILD), "--out", str(out)),
            *("--text", str(SOURCE.parent / "docs" / "format.md")),
            *words,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def check_methods():
    """Every text belongs to a role; names are used once; the library takes what it knows."""
    assert len({method.name for method in METHODS}) == len(METHODS)
    assert METHODS[0].name == "raw" and set(METHODS[0].texts) == set(ROLES)
    for method in METHODS:
        assert method.texts and set(method.texts) <= set(ROLES), method
    assert [m.name for m in named(["blocks", "topk"])] == ["raw", "topk", "blocks"]
    assert named([]) == METHODS
    try:
        named(["blocks", "block"])
        assert False, "an unknown method was taken"
    except ValueError as wrong:
        assert "unknown method block;" in str(wrong) and "quantile" in str(wrong), wrong
    lines = speeds_of(BUILD / "bench" / "speed", ["--parse", *texts_of(METHODS)])
    assert list(lines) == texts_of(METHODS), lines
    for text, line in lines.items():
        known = not any(word in text for word in OTHERS)
        assert "refused" not in line or not known, line


def check_speed():
    """The program speed measures every codec, and says why it does not measure one."""
    wrong = "blocks:block=65"
    texts = ["raw:f32", "blocks", "delta:bits=4", wrong, "nothing"]
    lines = speeds_of(BUILD / "bench" / "speed", texts)
    assert list(lines) == texts, lines
    expected = (("raw:f32", 32, 0), ("blocks", 8, 0.02), ("delta:bits=4", 4.26, 0.05))
    for text, bits, error in expected:
        line = lines[text]
        assert bits <= line["bits"] < 1.02 * bits, line
        assert line["error"] <= error and (error == 0 or line["error"] > error / 10), line
        assert line["encode_GBps"] > 0 and line["decode_GBps"] > 0, line
    assert "65" in lines[wrong]["refused"] and "unknown codec" in lines["nothing"]["refused"]


def check_wanted():
    """Codecs that the library does not know are not trained with; the first seed comes first, and
    it alone behind the slow wire."""
    comparison = Comparison.__new__(Comparison)
    comparison.options = argparse.Namespace(seeds=2)
    comparison.methods = named(["blocks", "tah"])
    comparison.results = {"skipped": {"tah": "no such codec"}}
    wanted = [(m.name, role, seed, wire) for m, role, seed, wire in comparison.wanted()]
    assert len(wanted) == 2 * (3 + 3 + 1) and wanted[6] == ("tah", GRADIENT, 2, True), wanted
    assert all(wire == (seed == 2) == (i < 7) for i, (_, _, seed, wire) in enumerate(wanted))


def training(method, role, seed, loss, wall=10.0, behind_wire=False, bits=8.0):
    text = next(m for m in METHODS if m.name == method).texts[role]
    words = {"method": method, "role": role, "seed": seed, "text": text, "loss": loss}
    return {**words, "wall_s": wall, "bits": bits, "behind_wire": behind_wire}


def check_page():
    """The page of made-up results: losses are compared with raw's of the same role and seed, and
    wall clocks with the bare link's."""
    results = {
        "settings": {"epochs": 4, "seeds": 2, "machine": "an abacus, 2 cores"},
        "wall_bare": {"pipeline": 5.0, "grid": 8.0},
        "speeds": {"blocks": {"encode_GBps": 2.0, "decode_GBps": 8.0}},
        "skipped": {"tah": "the library does not take it: unknown codec"},
        "trainings": [
            training("raw", ACTIVATIONS, 2, 2.0, 40.0, True, 32.0),
            training("raw", ACTIVATIONS, 3, 4.0, bits=32.0),
            training("blocks", ACTIVATIONS, 2, 2.02, 11.0, True),
            training("blocks", ACTIVATIONS, 3, 4.12),
            training("blocks", ACTIVATIONS, 4, 9.0),  # raw has no such seed
            training("raw", GRADIENT, 2, 3.0, 32.0, True, 32.0),
            training("topk", GRADIENT, 2, 3.0, 12.0, True, 0.4),
            {**training("mx", BACKWARD, 2, 0), "failed": "a sentence"},
        ],
    }
    row = compare_page.row_of(results, named(["blocks"])[1], ACTIVATIONS)
    assert row["seeds"] == 2 and abs(row["loss"] - 3.07) < 1e-9, row
    assert abs(row["percent"] - 2) < 1e-9 and abs(row["least"] - 1) < 1e-9, row
    assert row["wall"] == 2.2, row
    assert compare_page.row_of(results, named(["mx"])[1], BACKWARD) is None
    page = compare_page.page(results)
    for words in (
        "| 8-bit blocks (SWARM) | `blocks` | 8.00 | 3.0700 | +2.00 % | +1.00 to +3.00 | 2.20 | 2 |",
        "| top-k | `topk:keep=0.01,feedback=ef` | 0.40 | 3.0000 | +0.00 % | +0.00 to +0.00 | 1.50",
        "- Activations, 8-bit blocks (SWARM): +2.0 %.",
        "`tah` was left out: the library does not take it: unknown codec",
        "`mx:element=e2m1` (backward) could not be trained with: a sentence",
        "AQ-SGD, arXiv:2206.01299",
        "an abacus, 2 cores",
    ):
        assert words in " ".join(page.split()), (words, page)
    assert "## Gradients of activations" not in page
    for line in page.splitlines():
        assert len(line) <= 100 or line.startswith("|"), line
    summary = {"held_out_loss": 1.5, "wall_s": 3.0}
    summary.update(bytes_backward=100, raw_backward=1600, bytes_gradients=5, raw_gradients=10)
    assert figures(summary, BACKWARD) == {"loss": 1.5, "wall_s": 3.0, "bits": 2}
    assert figures(summary, GRADIENT)["bits"] == 16


def check_runs():
    with tempfile.TemporaryDirectory(prefix="deltawire-compare-") as folder:
        out = pathlib.Path(folder)
        printed = run(out, "--only", "blocks", "--only", "tah")
        stored = json.loads((out / "compare.json").read_text())
        done = {(t["method"], t["role"]) for t in stored["trainings"] if "failed" not in t}
        assert {(name, role) for name in ("raw", "blocks") for role in ROLES} <= done, stored
        for t in stored["trainings"]:
            if t["method"] in ("raw", "blocks"):
                bits = 32 if t["method"] == "raw" else 8
                assert t["behind_wire"] and bits < t["bits"] < 1.2 * bits, t
        if "tah" in stored["skipped"]:
            assert "tah is left out" in printed and "unknown codec" in stored["skipped"]["tah"]
        assert (out / "comparison.png").read_bytes()[:4] == b"\x89PNG"
        assert "`blocks`" in (out / "comparison.md").read_text()
        assert f"{len(stored['trainings'])} trainings were done now" in printed, printed
        # What is stored is not done again, but for the method that is to be forgotten; and the time
        # may be over before anything is done.
        again = ("--only", "blocks", "--again", "blocks")
        printed = run(out, "--minutes", "0", *again)
        assert "0 trainings were done now" in printed and "3 trainings are missing" in printed
        assert "; 3 trainings" in run(out, "--only", "blocks")
        assert "; 0 trainings" in run(out, "--only", "blocks")
        stored["settings"]["epochs"] = 77
        (out / "compare.json").write_text(json.dumps(stored))
        words = ("--quick", "--build", str(BUILD), "--out", str(out), "--only", "blocks")
        bad = subprocess.run(
            [sys.executable, str(SOURCE / "compare.py"), *words], capture_output=True, text=True
        )
        assert bad.returncode == 1 and "other settings" in bad.stderr, bad.stderr


def check_usage():
    for words, said in (
        (("--only", "block"), "unknown method block"),
        (("--again", "x"), "unknown method x"),
        (("--seeds", "0"), "--seeds needs"),
    ):
        bad = subprocess.run(
            [sys.executable, str(SOURCE / "compare.py"), *words], capture_output=True, text=True
        )
        assert bad.returncode == 2 and said in bad.stderr, bad.stderr


def main():
    check_methods()
    check_page()
    check_usage()
    check_wanted()
    check_speed()
    check_runs()


main()
