#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_entropy.py - checks that the benchmark of entropy-coded blocks runs, and that its results
# have the documented names.
"""check_entropy.py BENCH_ENTROPY"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

NAME = re.compile(r"(encode|decode|count)/(gauss|laplace|uniform)[\d.]+/[a-z0-9]+/\d+$")


def main():
    with tempfile.TemporaryDirectory(prefix="dw-bench-") as name:
        out = pathlib.Path(name) / "bench.json"
        options = ["--benchmark_min_time=0.001", f"--benchmark_out={out}"]
        subprocess.run(
            [sys.argv[1], *options, "--benchmark_out_format=json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        runs = json.loads(out.read_text())["benchmarks"]
    wrong = [run["name"] for run in runs if not NAME.match(run["name"])]
    wrong += [f"{run['name']}: {run['error_message']}" for run in runs if run.get("error_occurred")]
    wrong += [
        f"{run['name']}: no {counter}"
        for run in runs
        for counter in ("Gcodes", "bits", "entropy")
        if not run.get(counter, 0) > 0
    ]
    print(*wrong, f"{len(runs)} benchmarks, {len(wrong)} complaints", sep="\n")
    sys.exit(1 if wrong or not runs else 0)


if __name__ == "__main__":
    main()
