#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# slices.py - measures how long a step of `deltawire train` takes with several numbers of slices.
"""Trains a model with one micro-batch in a step, once for each number of stages and of slices, on
this machine and without a slow link. With --gflops every stage has a simulated processor of that
speed (slow_products.c), so there may be more stages than cores; without it the stages compute as
fast as the cores do. All runs take turns, --rounds times; a figure is the median step of all
rounds, and the first step of each run does not count. Losses must be those without slices."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import simulated
from markdown_table import markdown

ROOT = pathlib.Path(__file__).resolve().parent.parent


def steps_of(given, stages, slices):
    """Runs a training. Returns the seconds and the losses of its steps."""
    options = {
        "text": ROOT / "docs" / "format.md",
        "layers": given.layers,
        "channels": given.channels,
        "heads": 4,
        "context": given.context,
        "batch": given.batch,
        "micro-batches": 1,
        "steps": given.steps,
        "local": stages,
        "slices": slices,
    }
    with tempfile.NamedTemporaryFile() as log:
        options["log"] = log.name
        words = [str(word) for name, value in options.items() for word in ("--" + name, value)]
        program = given.build / "cli" / "deltawire"
        environment = simulated.environment(given.build, given.gflops)
        subprocess.run([program, "train", "--quiet", *words], check=True, stdout=2, env=environment)
        events = [json.loads(line) for line in log]
    steps = [event for event in events if event["event"] == "step"]
    return [step["seconds"] for step in steps[1:]], [step["loss"] for step in steps]


def measure(given):
    """Returns {(stages, slices): median seconds of a step}."""
    cases = [(stages, slices) for stages in given.stages for slices in given.slices]
    found = {case: [] for case in cases}
    expected = None
    for _ in range(given.rounds):
        for case in cases:
            seconds, losses = steps_of(given, *case)
            expected = expected or losses
            for loss, other in zip(losses, expected, strict=True):
                if abs(loss - other) > 1e-5 * other:
                    sys.exit(f"{case}: the loss is {loss}, not {other}")
            found[case] += seconds
    return {case: statistics.median(seconds) for case, seconds in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "slices")
    parser.add_argument("--stages", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--gflops", type=float, help="speed of a simulated processor")
    for name, value in {"layers": 12, "channels": 128, "context": 256, "batch": 2}.items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows = []
    for (stages, slices), seconds in (found := measure(given)).items():
        whole = found[stages, given.slices[0]]
        # With s slices a stage computes for s of the s + K - 1 pieces of time that a step has.
        least = (slices + stages - 1) / (slices * stages)
        rows.append(
            [
                str(stages),
                str(slices),
                f"{seconds * 1e3:.0f} ms",
                f"{seconds / whole:.2f}",
                f"{least:.2f}",
            ]
        )
    head = ["stages", "slices", "step", "of the first", "(S + K - 1) / (S K)"]
    print(markdown(head, rows), end="")


if __name__ == "__main__":
    main()
