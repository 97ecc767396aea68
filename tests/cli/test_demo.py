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
    "speedup",
    "speedup2",
    "slowdown_raw",
    "codec_share",
    "loss_raw",
    "loss_delta",
    "loss_direct",
    "loss_delta2",
    "loss_direct2",
    "bytes_raw",
    "bytes_delta",
    "kernel_bytes_raw",
    "kernel_bytes_delta",
]


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="deltawire-demo-") as folder:
        out = pathlib.Path(folder)
        command = [
            sys.executable,
            str(source / "examples" / "demo.py"),
            "--small",
            "--build",
            str(build),
            "--out",
            str(out),
        ]
        bad = subprocess.run(
            [*command, "--text", str(out / "nothing.txt")], capture_output=True, text=True
        )
        assert bad.returncode == 1 and "nothing.txt" in bad.stderr, bad
        done = subprocess.run(
            [*command, "--text", str(source / "docs" / "format.md")], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert "MISSED" not in done.stdout and "aim at any target" in done.stdout, done.stdout
        summary = json.loads((out / "summary.json").read_text())
        for key in KEYS:
            assert isinstance(summary[key], (int, float)) and summary[key] > 0, (key, summary[key])
        for way in ("raw", "delta"):
            assert abs(summary[f"bytes_{way}"] / summary[f"kernel_bytes_{way}"] - 1) < 0.02, summary
        assert summary["bytes_delta"] < summary["bytes_raw"] / 3, summary
        assert (out / "loss.png").read_bytes()[:4] == b"\x89PNG"
        for name in ("raw", "delta", "direct", "delta2", "direct2"):
            events = [
                json.loads(line)["event"]
                for line in (out / f"{name}.jsonl").read_text().splitlines()
            ]
            assert (
                events.count("step") == 4 and events.count("eval") == 2 and events[-1] == "summary"
            ), events
        assert "| run" in done.stdout, done.stdout


main()
