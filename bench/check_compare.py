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
from compare import figures, share_of, speeds_of, texts_of
from compare_methods import ACTIVATIONS, ONE_HOP, named, option

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


def check_offered():
    """The methods that are options of the trainer have rows, each with one that is raw but for the
    option; the share of the values that their codecs are given is right."""
    rows = {method.name: method for method in METHODS}
    for name, word, role, share in (
        ("bottleneck", "--bottleneck", ACTIVATIONS, 32 / 128),
        ("repeat", "--repeat", ACTIVATIONS, 1),
        ("chunk-local", "--local-steps", GRADIENT, 1 / 3),
    ):
        kind = name.split("-")[-1]
        raw = rows["raw-local" if kind == "local" else f"{name}-raw"]
        # Floats have the same sums in one hop as in two.
        hop = len(ONE_HOP) if rows[name].options[: len(ONE_HOP)] == ONE_HOP else 0
        options = rows[name].options[hop:]
        assert word in options and raw.options == options, name
        assert set(rows[name].texts) == {role} and raw.texts == {role: "raw:f32"}, name
        assert share_of(rows[name], 128) == share_of(raw, 128) == share, name
    assert "skip=" in rows["skip"].texts[ACTIVATIONS] and share_of(rows["skip"], 128) == 1
    assert option(rows["repeat"], "--repeat", 1) == 5 and option(rows["raw"], "--repeat", 1) == 1


class Runner:
    """Notes what it is asked to train, in place of training it."""

    def __init__(self, name, notes):
        self.name, self.notes, self.finetune = name, notes, {"epochs": 5}
        self.model = {"channels": 128}

    def pretrained(self, text):
        return f"model of {text} with {self.model.get('bottleneck')}"

    def finetuned(self, name, title, text, model, *codecs, **other):
        self.notes.append((self.name, model, codecs, other))
        ways = ("forward", "backward", "gradients")
        sizes = {f"{what}_{way}": 8 for what in ("bytes", "raw") for way in ways}
        return {"held_out_loss": 2.0, "wall_s": 1.0, **sizes}

    trained = finetuned


def made_up(notes):
    """A comparison that has no results yet, and only notes what it is asked to train."""
    one = Comparison.__new__(Comparison)
    one.options = argparse.Namespace(seeds=2, untimed=True)
    one.machine, one.trained, one.write = "a loom", 0, lambda: None
    one.results = {"skipped": {}, "trainings": [], "machines": {"a loom": {"rates": {}}}}
    one.text, one.before, one.model = "text", "first", "model"
    one.pipeline, one.grid, one.narrow = (Runner(n, notes) for n in ("pipeline", "grid", "narrow"))
    return one


def check_options():
    """What a training is given: its options, in a pipeline as in a grid, its epochs, and a model
    with the bottleneck where there is one."""
    notes = []
    one = made_up(notes)
    for name in ("raw", "repeat", "bottleneck", "chunk-local", "topk-same"):
        method = next(m for m in METHODS if m.name == name)
        one.train(method, next(iter(method.texts)), 3, False)
    runners, models, codecs, other = zip(*notes)
    assert runners == ("pipeline", "pipeline", "narrow", "grid", "pipeline"), runners
    assert models == ("model", "model", "model of first with 32", "model", "model"), models
    assert [len(words) for words in codecs] == [3, 3, 3, 4, 3] and codecs[3][3][:5] == "chunk"
    assert [given["epochs"] for given in other] == [5, 1, 5, 5, 5], other
    assert {given["seed"] for given in other} == {3}
    local = (*ONE_HOP, "--local-steps", "3", "--outer-momentum", "0", "--outer-lr", "1")
    expected = [(), ("--repeat", "5"), (), local, ("--same-places",)]
    assert [given["more"] for given in other] == expected, other
    bits = [t["bits"] for t in one.results["trainings"]]
    assert bits[:3] == [32, 32, 8] and abs(bits[3] - 32 / 3) < 1e-9, bits


def check_machines():
    """What another machine has done is not done again, but raw is, once, beside a new row."""
    one = made_up([])
    one.methods = named(["blocks", "tah"])
    for left in one.missing():
        one.train(*left)
    assert one.trained == 2 * 9 and not one.missing()
    one.machine = "a mill"
    one.results["machines"]["a mill"] = {"rates": {}}
    assert not one.missing()
    one.methods = named(["blocks", "repeat"])
    left = [(m.name, role, seed) for m, role, seed, _ in one.missing()]
    rows = [(name, ACTIVATIONS, seed) for seed in (2, 3) for name in ("raw", "repeat")]
    assert left == rows, left
    for each in one.missing():
        one.train(*each)
    assert not one.missing() and len(one.results["trainings"]) == 2 * 9 + 4
    # A training behind the slow wire takes the place of one that was not timed, whatever its
    # machine; raw's stays where it is of another one.
    one.results["machines"]["a mill"] = {"rates": {"pipeline": 1e6}}
    one.options.untimed = False
    one.methods = named(["blocks"])
    one.train(one.methods[1], ACTIVATIONS, 2, True)
    one.train(one.methods[0], BACKWARD, 2, True)
    found = [(t["method"], t["role"], t["machine"]) for t in one.results["trainings"]]
    assert found[-2:] == [("blocks", ACTIVATIONS, "a mill"), ("raw", BACKWARD, "a mill")]
    assert len(found) == 2 * 9 + 4 + 1 and found.count(("blocks", ACTIVATIONS, "a loom")) == 1


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
    comparison.options = argparse.Namespace(seeds=2, untimed=False)
    comparison.methods = named(["blocks", "tah"])
    comparison.results = {"skipped": {"tah": "no such codec"}}
    wanted = [(m.name, role, seed, wire) for m, role, seed, wire in comparison.wanted()]
    assert len(wanted) == 2 * (3 + 3 + 1) and wanted[6] == ("tah", GRADIENT, 2, True), wanted
    assert all(wire == (seed == 2) == (i < 7) for i, (_, _, seed, wire) in enumerate(wanted))
    comparison.options.untimed = True
    assert not any(wire for _, _, _, wire in comparison.wanted())


def training(method, role, seed, loss, wall=10.0, behind_wire=False, bits=8.0, machine="an abacus"):
    text = next(m for m in METHODS if m.name == method).texts[role]
    words = {"method": method, "role": role, "seed": seed, "text": text, "loss": loss}
    words.update(machine=machine, wall_s=wall, bits=bits, behind_wire=behind_wire)
    return words


def check_page():
    """The page of made-up results: losses are compared with raw's of the same role and seed, and
    wall clocks with the bare link's."""
    results = {
        "settings": {"epochs": 4, "seeds": 2},
        "machines": {
            "an abacus": {"wall_bare": {"pipeline": 5.0, "grid": 8.0}},
            "a slide rule": {"wall_bare": {}},
        },
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
            training("raw", ACTIVATIONS, 2, 8.0, bits=32.0, machine="a slide rule"),
            training("repeat", ACTIVATIONS, 2, 8.4, machine="a slide rule"),
            training("repeat", ACTIVATIONS, 3, 9.0, machine="a slide rule"),  # raw has no such seed
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
        "measured on this machine: an abacus.",
        "a slide rule, which did other things as well, nothing was timed: changes, 5 times",
        "| raw f32 | `raw:f32` | 32.00 | 3.0000 | +0.00 % | +0.00 to +0.00 | 8.00 |",
        "`delta:bits=2` `--repeat 5` | 8.00 | 8.4000 | +5.00 % | +5.00 to +5.00 | - | - | - |",
        "Rows with `--repeat` use every batch in 5 steps in a row",
        "the trainer has no option for it",
        "These are compared with raw's trainings there. Activations with fewer seeds: changes, 5 "
        "times in a row (Clapping), 1. Weight gradients with fewer seeds: raw f32, 1; top-k, 1.",
        "top-k (activations)",
        "| projection | Protocol Models, arXiv:2506.01260 | up to 100 times smaller",
    ):
        assert words in " ".join(page.split()), (words, page)
    assert "## Gradients of activations" not in page
    left = compare_page.untrained(results)
    assert "raw f32 (gradients of activations)" in left and "(SWARM) (activations)" not in left
    assert "(TAH-Quant) (activations)" not in left
    assert "bottleneck of 32 channels, 4 bits (activations)" in left
    for line in page.splitlines():
        assert len(line) <= 100 or line.startswith("|"), line
    summary = {"held_out_loss": 1.5, "wall_s": 3.0}
    summary.update(bytes_backward=100, raw_backward=1600, bytes_gradients=5, raw_gradients=10)
    assert figures(summary, BACKWARD) == {"loss": 1.5, "wall_s": 3.0, "bits": 2}
    assert figures(summary, GRADIENT)["bits"] == 16
    assert figures(summary, GRADIENT, 0.25)["bits"] == 4
    assert "--local-steps 3" not in page and "--bottleneck" not in page


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
        # A machine that is busy gives losses and bits, also with the options of rows.
        words = ("--untimed", "--only", "repeat", "--only", "bottleneck", "--only", "chunk-local")
        printed = run(out, *words)
        assert "; 3 trainings" in printed and "speeds of" not in printed, printed
        stored = json.loads((out / "compare.json").read_text())
        done = {t["method"]: t for t in stored["trainings"]}
        assert not any("failed" in t for t in done.values()), done
        assert not any(done[name]["behind_wire"] for name in words[2::2]), done
        assert 2 < done["bottleneck"]["bits"] < 3 and 0.05 < done["chunk-local"]["bits"] < 0.2, done
        assert not {"delta:bits=2", "direct:bits=4,group=32"} & set(stored["speeds"])
        assert "`direct:bits=4,group=32` `--bottleneck 32`" in (out / "comparison.md").read_text()
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
    check_offered()
    check_options()
    check_machines()
    check_page()
    check_usage()
    check_wanted()
    check_speed()
    check_runs()


main()
