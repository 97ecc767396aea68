#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# test_demo.py - runs the demo with its smallest settings, and checks that every run happens and
# that its output is complete. The measured values are not checked.
"""usage: test_demo.py SOURCE BUILD"""

import json
import pathlib
import subprocess
import sys
import tempfile

KEYS = [
    *("speedup", "speedup2", "speedup3", "slowdown_raw", "codec_share"),
    *("loss_raw", "loss_delta", "loss_direct", "loss_delta2", "loss_direct2", "loss_delta3"),
    *("bytes_raw", "bytes_delta", "bytes_delta3"),
    *("kernel_bytes_raw", "kernel_bytes_delta", "kernel_bytes_delta3"),
]
WIRE_KEYS = [
    *("speedup2", "speedup_best", "slowdown_raw", "loss_raw", "loss_delta2", "loss_best"),
    *("bytes_raw", "bytes_best", "kernel_bytes_best"),
]


def start(source, build, *arguments):
    """Runs the small demo with these further arguments, and returns the finished process. source,
    build: the folders of the source and of the build."""
    return subprocess.run(
        [
            sys.executable,
            str(source / "examples" / "demo.py"),
            "--small",
            *("--build", str(build)),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
    )


def check(out, done, keys, runs):
    """Checks what a demo that has ended leaves behind: its summary, picture and table, and the log
    of each training. out: the folder of its results; done: the process; keys: the keys that the
    summary must have; runs: the names of the trainings, the one with the fewest bytes last."""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "MISSED" not in done.stdout and "aim at any target" in done.stdout, done.stdout
    summary = json.loads((out / "summary.json").read_text())
    for key in keys:
        assert isinstance(summary[key], (int, float)) and summary[key] > 0, (key, summary[key])
    for way in ("raw", runs[1], runs[-1]):
        assert abs(summary[f"bytes_{way}"] / summary[f"kernel_bytes_{way}"] - 1) < 0.02, summary
    assert summary[f"bytes_{runs[1]}"] < summary["bytes_raw"] / 3, summary
    assert summary[f"bytes_{runs[-1]}"] < min(summary[f"bytes_{run}"] for run in runs[:-1])
    assert (out / "loss.png").read_bytes()[:4] == b"\x89PNG"
    for name in runs:
        events = [
            json.loads(line)["event"] for line in (out / f"{name}.jsonl").read_text().splitlines()
        ]
        assert (
            events.count("step") == 4 and events.count("eval") == 2 and events[-1] == "summary"
        ), events
    assert "| run" in done.stdout, done.stdout


def check_aims(source):
    """Checks the demo's targets, without a training: a summary that meets all of them is accepted,
    and each figure that is worse than its limit misses exactly one target."""
    sys.path.insert(0, str(source / "examples"))
    import demo

    parts = {
        **{f"loss_{run}": 2.0 for run in ("raw", "delta", "delta2", "delta3", "best")},
        **{"loss_direct2": 2.1, "speedup": 5, "speedup2": 6, "speedup3": 7.5, "speedup_best": 14},
        **{"unshaped_s": 10, "wall_delta3": 10.5, "slowdown_raw": 8},
        **{f"bytes_{run}": 1000 for run in ("raw", "delta", "delta3", "best")},
        **{f"kernel_bytes_{run}": 1010 for run in ("raw", "delta", "delta3", "best")},
    }
    wire = {**parts, "slowdown_raw": 31}
    assert all(holds for _, holds, _ in demo.targets(parts))
    assert all(holds for _, holds, _ in demo.wire_targets(wire, 32))
    assert not any("speedup" in what for what, _, _ in demo.wire_targets(wire, 16))
    bad = {"speedup3": 7.1, "loss_delta3": 2.016, "wall_delta3": 11.1, "kernel_bytes_delta3": 0}
    bad_wire = {"speedup_best": 12.9, "loss_best": 2.03, "slowdown_raw": 27, "bytes_best": 1100}
    for aims, good, words in (
        (demo.targets, parts, bad),
        (lambda summary: demo.wire_targets(summary, 32), wire, bad_wire),
    ):
        for word, value in words.items():
            missed = [what for what, holds, _ in aims({**good, word: value}) if not holds]
            assert len(missed) == 1, (word, missed)


GRID_KEYS = [
    *(f"grid_{run}_s" for run in ("bare", "raw", "activations", "all", "dithered")),
    *(f"grid_loss_{run}" for run in ("raw", "activations", "all", "dithered")),
    *("grid_speedup_all", "grid_speedup_over_activations", "grid_slowdown_raw"),
]


def check_grid(source, build, text, out):
    """Runs the small grid, and checks what it leaves behind."""
    for grid in ("2", "2x", "1x2", "2x1", "5x2", "2x17", "2x2x2", "-2x2"):
        bad = start(source, build, "--out", out, f"--grid={grid}")
        assert bad.returncode == 2 and f'"{grid}"' in bad.stderr, bad
    bad = start(source, build, "--out", out, "--grid=2x2", "--wire=20")
    assert bad.returncode == 2 and "give one of them" in bad.stderr, bad
    bad = start(source, build, "--out", out, "--grid=2x2", "--text", out / "nothing.txt")
    assert bad.returncode == 1 and bad.stderr.startswith("demo: --text"), bad
    done = start(source, build, "--out", out, "--text", text, "--grid", "2x2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "| run" in done.stdout and "aim at any target" in done.stdout, done.stdout
    summary = json.loads((out / "summary.json").read_text())
    for key in GRID_KEYS:
        assert isinstance(summary[key], (int, float)) and summary[key] > 0, (key, summary[key])
    gradients = {run: summary[f"grid_bytes_gradients_{run}"] for run in ("raw", "activations")}
    gradients |= {run: summary[f"grid_bytes_gradients_{run}"] for run in ("all", "dithered")}
    assert abs(gradients["activations"] / gradients["raw"] - 1) < 0.02, gradients
    assert gradients["dithered"] < gradients["all"] / 2 < gradients["raw"] / 12, gradients
    ours = {run: summary[f"grid_bytes_{run}"] for run in ("raw", "activations", "all")}
    assert ours["all"] < ours["activations"] / 2 < ours["raw"] / 2, ours
    for run in "raw", "all":
        # Control messages between replicas are a part of what the kernel counts.
        assert abs(ours[run] / summary[f"grid_kernel_bytes_{run}"] - 1) < 0.06, summary
    assert (out / "loss.png").read_bytes()[:4] == b"\x89PNG"


def check_grid_aims():
    """Like check_aims, for the grid."""
    import demo_grid

    good = {
        **{f"grid_loss_{run}": 2.0 for run in ("raw", "all", "dithered")},
        **{"grid_speedup_all": 5.6, "grid_speedup_over_activations": 2.1, "grid_slowdown_raw": 8},
        **{f"grid_bytes_{run}": 1000 for run in ("raw", "all")},
        **{f"grid_kernel_bytes_{run}": 1010 for run in ("raw", "all")},
    }
    assert all(holds for _, holds, _ in demo_grid.targets(good))
    bad = {"grid_speedup_all": 5.4, "grid_speedup_over_activations": 1.9, "grid_slowdown_raw": 9.1}
    bad |= {"grid_loss_all": 2.03, "grid_loss_dithered": 2.05, "grid_bytes_all": 1100}
    for word, value in bad.items():
        missed = [what for what, holds, _ in demo_grid.targets({**good, word: value}) if not holds]
        assert len(missed) == 1, (word, missed)


def check_median():
    """Of three runs in turn, that of median wall clock counts, with its log."""
    import demo

    walls = {"unshaped": [13, 12, 14], "best": [19, 15, 16]}
    made, taken = [], {"unshaped": 13, "best": 16}
    with tempfile.TemporaryDirectory(prefix="deltawire-demo-") as folder:
        out = pathlib.Path(folder)

        def run(name):
            made.append(name)
            wall = walls[name][made.count(name) - 1]
            (out / f"{name}.jsonl").write_text(str(wall))
            return {"wall_s": wall}

        results = {name: run(name) for name in walls}
        demo.median_of_turns(out, {name: lambda name=name: run(name) for name in walls}, results, 3)
        assert made == ["unshaped", "best"] * 3, made
        assert results == {name: {"wall_s": wall} for name, wall in taken.items()}, results
        logs = {name: int((out / f"{name}.jsonl").read_text()) for name in walls}
        assert logs == taken, logs


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    text = source / "docs" / "format.md"
    check_aims(source)
    check_median()
    check_grid_aims()
    with tempfile.TemporaryDirectory(prefix="deltawire-demo-") as folder:
        out = pathlib.Path(folder)
        bad = start(source, build, "--out", out, "--text", out / "nothing.txt")
        assert bad.returncode == 1 and "nothing.txt" in bad.stderr, bad
        for wire in ("1", "1001", "-3", "8x", "99999999999", "\u00b3"):
            bad = start(source, build, "--out", out, f"--wire={wire}")
            assert bad.returncode == 2 and f'"{wire}"' in bad.stderr, bad
        done = start(source, build, "--out", out, "--text", text)
        check(out, done, KEYS, ("raw", "delta", "direct", "delta2", "direct2", "delta3"))
        out = out / "wire"
        done = start(source, build, "--out", out, "--text", text, "--wire", 20)
        check(out, done, WIRE_KEYS, ("raw", "delta2", "best"))
        check_grid(source, build, text, out.parent / "grid")


main()
