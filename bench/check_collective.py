#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_collective.py - tests collective.py with small buffers on the loopback interface.
"""usage: check_collective.py BUILD, the folder of bench_group. Times are not judged; the bytes that
the kernel counted are."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

SIZE = 1 << 20


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        script = pathlib.Path(__file__).with_name("collective.py")
        words = f"--networks loopback --ranks 3 --sizes 1024 {SIZE} --rounds 1 --repeats 2".split()
        done = subprocess.run(
            [sys.executable, script, "--build", sys.argv[1], *words, "--out", out],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        (found,) = json.loads(out.read_text())
        assert out.with_suffix(".png").stat().st_size > 1000
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines if len(line) > 4] == ["buffer", "1 KiB", "1 MiB"], lines
    sent = {name: figures[str(SIZE)][1] for name, figures in found["figures"].items()}
    # In a namespace of its own the interface carries nothing else. 2 (D - 1) / D of a buffer is the
    # least that a rank sends.
    least = 2 * (3 - 1) / 3 * SIZE
    for name, one in sent.items():
        assert one >= least / (10 if "codec" in name or "bits" in name else 1), (name, one, least)
    if os.geteuid() == 0:
        assert sent["raw:f32"] < 1.1 * least, sent


if __name__ == "__main__":
    main()
