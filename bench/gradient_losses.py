#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# gradient_losses.py - measures how much loss codecs of weight gradients cost: compares the held-out
# loss of the demo's grid with each of them to that of the grid that sends everything raw.
"""usage: gradient_losses.py BUILD OUT [--seeds 2,3] [CODEC...]

Fine-tunes the demo's model as two replicas of two stages (examples/demo_grid.py), on links that are
not slowed down, with activations and their gradients as f32 and each CODEC for weight gradients.
Without a CODEC: lowrank of ranks 1 to 32 with feedback, in floats and with 8 bits. BUILD: a build
with the program. OUT: a folder, where the result of each training is stored as soon as it is done,
so a run that was interrupted goes on where it stopped."""

import argparse
import hashlib
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
import demo  # noqa: E402 (the model, its texts and settings are the demo's)
import demo_grid  # noqa: E402
from markdown_table import markdown  # noqa: E402

RAW = "raw:f32"
RANKS = (1, 2, 4, 8, 16, 32)
# The pieces of a gradient are buffers; rows of them are as long as the rows of most weights.
CODECS = [
    f"lowrank:rank={rank}{bits},width={demo.MODEL['channels']},feedback=ef"
    for bits in ("", ",bits=8")
    for rank in RANKS
]


def result_of(grid, text, model, codec, seed):
    """The summary of a training, which is stored under a name that says codec and seed."""
    name = f"{hashlib.sha256(codec.encode()).hexdigest()[:12]}-{seed}"
    stored = grid.out / f"{name}.json"
    if stored.exists():
        return json.loads(stored.read_text())
    link = "tcp://127.0.0.1:0"
    title = f"{codec}, seed {seed}"
    result = grid.trained(name, title, text, model, link, RAW, RAW, codec, seed=seed)
    stored.write_text(json.dumps(result))
    return result


def rows(codecs, results, seeds):
    """A row for each codec that all seeds have: bytes, compression, losses, mean over raw."""
    for codec in codecs:
        runs = [results[codec, seed] for seed in seeds]
        raw = [results[RAW, seed]["held_out_loss"] for seed in seeds]
        losses = [run["held_out_loss"] for run in runs]
        over = sum(a / b - 1 for a, b in zip(losses, raw)) / len(seeds)
        sent, whole = runs[0]["bytes_gradients"], runs[0]["raw_gradients"]
        yield (
            f"`{codec}`",
            f"{sent / 1e6:.2f} MB",
            f"{whole / sent:.1f}x",
            *(f"{loss:.4f}" for loss in losses),
            f"{100 * over:+.2f} %",
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--seeds", default="2")
    parser.add_argument("codecs", nargs="*", default=CODECS)
    arguments = parser.parse_intermixed_args()
    arguments.grid, arguments.small = (2, 2), False
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    grid = demo_grid.Grid(arguments)
    pretrain_text, finetune_text = demo.default_texts(grid.out)
    model = grid.pretrained(pretrain_text)
    codecs, results = [RAW, *arguments.codecs], {}
    for codec in codecs:
        for seed in seeds:
            results[codec, seed] = result_of(grid, finetune_text, model, codec, seed)
        head = ("weight gradients", "bytes", "less", *(f"seed {s}" for s in seeds), "over raw")
        done = codecs[: codecs.index(codec) + 1]
        table = markdown(head, rows(done, results, seeds))
        (grid.out / "table.md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
