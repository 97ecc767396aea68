#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# plot.py - GB/s of x against its size, each line together with the limit of the memory.
"""plot.py BENCH.json PICTURE.png: reads what bench_codec wrote with --benchmark_out."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend must be chosen first)


def read(path):
    """{(way, codec words): [(bytes, GBps, limit)]} in the file's order."""
    with open(path, encoding="utf-8") as file:
        runs = json.load(file)["benchmarks"]
    lines = {}
    for run in runs:
        if run.get("error_occurred") or run.get("run_type") == "aggregate":
            continue
        way, codec, width, group, x, prev, isa, size, threads = run["name"].split("/")
        label = f"{codec} {width} {group} {x}/{prev} {isa} {threads}"
        lines.setdefault((way, label), []).append((int(size), run["GBps"], run["limit_GBps"]))
    return lines


def main():
    lines = read(sys.argv[1])
    if not lines:
        sys.exit(f"plot.py: {sys.argv[1]} holds no results")
    ways = sorted({way for way, _ in lines}, reverse=True)
    figure, axes = plt.subplots(1, len(ways), figsize=(7 * len(ways), 5), squeeze=False)
    for axis, way in zip(axes[0], ways):
        for (its_way, label), points in lines.items():
            if its_way != way:
                continue
            points.sort()
            sizes = [size / 2**20 for size, _, _ in points]
            (drawn,) = axis.plot(sizes, [speed for _, speed, _ in points], marker="o", label=label)
            axis.plot(
                sizes, [limit for _, _, limit in points], linestyle=":", color=drawn.get_color()
            )
        axis.set(
            title=f"{way} (dotted: the same reads and writes without arithmetic)",
            xlabel="MiB of x",
            ylabel="GB/s of x",
            xscale="log",
            yscale="log",
        )
        axis.grid(True, which="both", alpha=0.3)
        axis.legend(fontsize="x-small")
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=120)


if __name__ == "__main__":
    main()
