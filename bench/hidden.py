#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# hidden.py - how much of the all-reduces of gradients a grid hides behind its backward passes.
"""Trains a grid of pipelines and replicas, all of whose links have the same rate, with one codec of
gradients after the other, and as many pipelines at the same time that share nothing. All runs take
turns, --rounds times.

Two times say what is not hidden: by how much a step of the grid is longer than one of separate
pipelines, and how long a rank waits for means in a step, after its backward pass. The second one
is more exact where steps vary; it includes waiting for a replica that is late. Each is compared to
the time that the wire needs for the gradients that a rank sends. The rest of that time is hidden
behind the backward passes. An all-reduce takes at least as long as the wire needs, so the true part
is at least as large.

With --gflops every rank has a simulated processor of that speed (slow_products.c), so the ranks do
not compete for the cores of this machine, and steps vary less."""

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


def start(given, replicas, gradient, log):
    """Starts a training, which writes its events to a file."""
    options = {
        "text": ROOT / "docs" / "format.md",
        "link": f"shaped:rate={given.rate},delay=1ms/tcp://127.0.0.1:0",
        "local": given.stages * replicas,
        "stages": given.stages,
        "replicas": replicas,
        "forward": "delta:bits=3",
        "backward": "direct:bits=4",
        "log": log,
    }
    if gradient:
        options["gradient"] = gradient
    names = "layers channels heads context batch micro-batches steps".split()
    options |= {name: getattr(given, name.replace("-", "_")) for name in names}
    words = [str(word) for name, value in options.items() for word in ("--" + name, value)]
    program = given.build / "cli" / "deltawire"
    environment = simulated.environment(given.build, given.gflops)
    words = [program, "train", "--quiet", *words]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment)


def train(given, gradient):
    """Trains a grid, or separate pipelines if there is no codec of gradients. Returns the median
    seconds of a step, and for a rank and a step the bytes of gradients that it sends, and the
    seconds that it waits for means."""
    runs = 1 if gradient else given.replicas
    with tempfile.TemporaryDirectory() as folder:
        logs = [pathlib.Path(folder) / str(run) for run in range(runs)]
        running = [start(given, given.replicas // runs, gradient, log) for log in logs]
        if any([process.wait() for process in running]):
            sys.exit("a training failed")
        events = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    steps = [event["seconds"] for event in events if event["event"] == "step" and event["step"] > 1]
    summary = next(event for event in events if event["event"] == "summary")
    ranks = given.stages * given.replicas
    if not gradient:
        return statistics.median(steps), 0, 0
    sent, waited = summary["bytes_gradients"] / ranks, summary["gradient_wait_s"]
    return statistics.median(steps), sent / summary["steps"], waited / summary["steps"]


def bits_per_second(rate):
    """The number that a rate such as 100mbit means."""
    digits = rate.rstrip("kmgbit")
    return float(digits) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[rate[len(digits) :][:-3]]


def measure(given):
    """Returns {codec, or None for separate pipelines: the medians of what `train` returns}."""
    found = {gradient: [] for gradient in (None, *given.gradients)}
    for _ in range(given.rounds):
        for gradient, runs in found.items():
            runs.append(train(given, gradient))
    return {gradient: list(map(statistics.median, zip(*runs))) for gradient, runs in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "demo")
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--gradients", nargs="+", default=["raw:f32", "direct:bits=4,feedback=ef"])
    parser.add_argument("--gflops", type=float, help="speed of a simulated processor")
    numbers = {"stages": 2, "replicas": 2, "layers": 4, "channels": 256, "heads": 4}
    numbers |= {"context": 128, "batch": 16, "micro-batches": 4, "steps": 8, "rounds": 5}
    for name, value in numbers.items():
        parser.add_argument("--" + name, type=int, default=value)
    given = parser.parse_args()
    found = measure(given)
    alone = found.pop(None)[0]
    rows = [["separate pipelines", f"{alone * 1e3:.0f} ms", "-", "-", "-", "-"]]
    for gradient, (step, sent, waited) in found.items():
        wire = sent * 8 / bits_per_second(given.rate)
        times = [f"{seconds * 1e3:.0f} ms" for seconds in (step, wire, waited)]
        hidden = [f"{1 - seconds / wire:.0%}" for seconds in (step - alone, waited)]
        rows.append([gradient, *times, *hidden])
    names = ["gradients", "step", "wire", "waited", "hidden, by steps", "hidden, by waits"]
    print(markdown(names, rows), end="")


if __name__ == "__main__":
    main()
