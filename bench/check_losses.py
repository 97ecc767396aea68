#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_losses.py - tests losses.py: its figures for a made-up log, and runs of the program with a
# tiny model, of which a later one must reuse the trainings of the first.
"""usage: check_losses.py BUILD, a build folder that has the trainer. The losses themselves are not
judged, because those of a tiny model mean nothing."""

import json
import pathlib
import subprocess
import sys
import tempfile

import losses

SOURCE = pathlib.Path(__file__).resolve().parent


def run(out, *arguments):
    """Runs losses.py with a tiny model, one seed and the folder out. Returns what it printed."""
    done = subprocess.run(
        [
            sys.executable,
            str(SOURCE / "losses.py"),
            *("--small", "--seeds", "1", "--build", sys.argv[1], "--out", str(out)),
            *("--text", str(SOURCE.parent / "docs" / "format.md")),
            *arguments,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def check_figures():
    """Checks the figures of a made-up log of two epochs with two steps each. Every step sends 100
    values in each direction. The first epoch sends 200 bytes, which is 8 bits per value. The third
    step counts for neither figure, because its bytes include those of the evaluation after the
    first epoch. The fourth step sends 25 bytes, which is 2 bits per value."""

    def step(number, epoch, sent):
        return {
            "event": "step",
            "epoch": epoch,
            "step": number,
            **{f"raw_{way}": 400 * number for way in ("forward", "backward")},
            **{f"bytes_{way}": sent for way in ("forward", "backward")},
        }

    events = [step(1, 1, 100), step(2, 1, 200), step(3, 2, 230), step(4, 2, 255)]
    events.append({**events[-1], "event": "summary", "held_out_loss": 2.5})
    found = losses.figures(events)
    assert found["held_out_loss"] == 2.5, found
    assert found["bits_forward_first"] == 8 and found["bits_backward_first"] == 8, found
    assert found["bits_forward"] == 2 and found["bits_backward"] == 2, found
    assert found["bits_of_all"] == [5.1, 5.1], found


def check_over_raw():
    """Checks that a loss is compared with that of the uncompressed training on the same text."""
    results = losses.over_raw(
        [
            {"text": text, "seed": 2, "forward": codec, "backward": codec, "held_out_loss": loss}
            for text, codec, loss in (
                *(("a", "raw:f32", 2.0), ("a", "direct", 2.02)),
                *(("b", "raw:f32", 4.0), ("b", "direct", 4.02)),
            )
        ]
    )
    assert [round(it["over_raw_percent"], 6) for it in results] == [0, 1, 0, 0.5], results


def is_raw(training):
    return (training["forward"], training["backward"]) == losses.RAW


def main():
    check_figures()
    check_over_raw()
    with tempfile.TemporaryDirectory(prefix="deltawire-losses-") as folder:
        out = pathlib.Path(folder)
        printed = run(out)
        rows = [line for line in printed.splitlines() if line.startswith("|")]
        # The table has two lines of head, and for each of the two texts a row for the uncompressed
        # training and one for each pair.
        pairs = len(losses.PAIRS[2]) + len(losses.PAIRS[4])
        assert len(rows) == 2 + 2 * (1 + pairs), printed
        results = json.loads((out / "losses.json").read_text())
        assert len({it["text_sha256"] for it in results}) == 2, results
        for it in results:
            raw = is_raw(it)
            assert (32 if raw else 1) < it["bits_forward"] < (34 if raw else 8), it
            assert it["stages"] in (2, 4), it
        assert f"{len(results)} trainings were done now" in printed, printed
        # A second run repeats only a training whose file is missing. It is an uncompressed one,
        # because a training with dither would not give the same loss again.
        files = (out / "trainings").glob("*.json")
        next(file for file in files if is_raw(json.loads(file.read_text()))).unlink()
        assert "losses.json; 1 trainings" in run(out)
        again = json.loads((out / "losses.json").read_text())
        assert [it["held_out_loss"] for it in again] == [it["held_out_loss"] for it in results]
        pair = ("direct:bits=8", "raw:bf16")
        rows = [line for line in run(out, "--stages", "4", "--pair", *pair).splitlines()]
        assert sum("`direct:bits=8` | `raw:bf16`" in row for row in rows) == 2, rows
        log = (out / "training.jsonl").read_text().splitlines()
        usual = json.loads(log[0])
        assert usual["stages"] == 4, usual
        # Another model: eight stages with a layer each, of half the width, have fewer parameters.
        larger = ("--layers", "8", "--channels", "32", "--stages", "8", "--pair", *pair)
        run(out / "larger", *larger)
        log = (out / "larger" / "training.jsonl").read_text().splitlines()
        other = json.loads(log[0])
        assert other["stages"] == 8 and other["parameters"] < usual["parameters"], (usual, other)
    for words, said in (
        (("--stages", "2,3"), '"2,3"'),
        (("--stages", "4,8"), "8 stages need as many layers"),
    ):
        bad = subprocess.run(
            [sys.executable, str(SOURCE / "losses.py"), *words], capture_output=True, text=True
        )
        assert bad.returncode == 2 and said in bad.stderr, bad.stderr


main()
