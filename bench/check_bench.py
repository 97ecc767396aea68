#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_bench.py - checks that the benchmark runs, that its results have the documented names, and
# that the plot can be drawn.
"""check_bench.py BENCH_CODEC PLOT.py"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

NAME = re.compile(
    r"(encode|decode)/(delta([+](choose|y|stochastic|mse|dither|rans|trellis|hadamard|"
    r"profile|prev8)|-audit)?|"
    r"direct([+](read|add|stochastic|dither|rans|dither[+]rans|trellis|feedback|hadamard|"
    r"hadamard[+]rans|profile|profile[+]rans))?|"
    r"(raw|mx)([+]feedback)?)/"
    r"(b\d+|int8|e\dm\d|step[\d.]*)/"
    r"g(\d+|row|channel|sample)/(f32|f16|bf16)/(f32|f16|bf16|none)/"
    r"[a-z0-9]+/\d+/t\d+$"
)


def main():
    with tempfile.TemporaryDirectory(prefix="dw-bench-") as name:
        out, picture = pathlib.Path(name) / "bench.json", pathlib.Path(name) / "bench.png"
        every_case, every_table = "/c/65536/t1", "/delta/b4/g64/f32/f32/[a-z0-9]+/65536/t[12]"
        subprocess.run(
            [
                sys.argv[1],
                f"--benchmark_filter=({every_case}|{every_table})$",
                "--benchmark_min_time=0.001",
                f"--benchmark_out={out}",
                "--benchmark_out_format=json",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        runs = json.loads(out.read_text())["benchmarks"]
        wrong = [run["name"] for run in runs if not NAME.match(run["name"])]
        wrong += [
            f"{run['name']}: {run['error_message']}" for run in runs if run.get("error_occurred")
        ]
        wrong += [
            f"{run['name']}: no {counter}"
            for run in runs
            for counter in ("GBps", "limit_GBps", "ratio", "compression")
            if not run.get(counter, 0) > 0
        ]
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            print("no matplotlib: the plot is not tried")
        else:
            subprocess.run([sys.executable, sys.argv[2], out, picture], check=True)
            if picture.read_bytes()[:4] != b"\x89PNG":
                wrong.append("plot.py wrote no picture")
    print(*wrong, f"{len(runs)} benchmarks, {len(wrong)} complaints", sep="\n")
    sys.exit(1 if wrong or not runs else 0)


if __name__ == "__main__":
    main()
