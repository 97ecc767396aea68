#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# gradient_losses.py - measures how much loss codecs of weight gradients cost: compares the held-out
# loss of the demo's grid with each of them to that of the grid that sends everything raw, and to
# that of the rules that papers give.
"""usage: gradient_losses.py BUILD OUT [--seeds 2,3] [--local-steps N] [--hops N] [CODEC...]

Fine-tunes the demo's model as two replicas of two stages (examples/demo_grid.py), on links that are
not slowed down, with activations and their gradients as f32 and each CODEC for weight gradients.
Without a CODEC: lowrank of ranks 1 to 32 with feedback, in floats and with 8 bits. A CODEC that
begins with "rule:" is the rule of a paper in place of a codec, such as rule:powersgd:4:128; the
head of published_rules.c lists them. --local-steps: replicas exchange the differences of N steps,
with SparseLoCo's outer step, which adds their mean to the parameters; epochs stay as they are.
--hops 1: codecs send gradients to all replicas; rules have hops of their own.

BUILD: a build with the program. OUT: a folder, where the result of each training is stored as soon
as it is done, so a run that was interrupted goes on where it stopped. The seeds of a codec follow
each other, and codecs take turns in the order in which they are given."""

import argparse
import hashlib
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "bench")]
import demo  # noqa: E402 (the model, its texts and settings are the demo's)
import demo_grid  # noqa: E402
from markdown_table import markdown  # noqa: E402

RAW = "raw:f32"
RULE = "rule:"
RANKS = (1, 2, 4, 8, 16, 32)
# The pieces of a gradient are buffers; rows of them are as long as the rows of most weights.
CODECS = [
    f"lowrank:rank={rank}{bits},width={demo.MODEL['channels']},feedback=ef"
    for bits in ("", ",bits=8")
    for rank in RANKS
]


class Grid(demo_grid.Grid):
    """The grid, with the rules of papers beside codecs."""

    def __init__(self, arguments):
        super().__init__(arguments)
        self.rules = pathlib.Path(arguments.build).resolve() / "study" / "libpublished_rules.so"
        if arguments.local_steps:
            # Error feedback takes the place of an outer momentum (docs/trainer.md).
            local = {"local-steps": arguments.local_steps, "outer-lr": 1, "outer-momentum": 0}
            self.finetune.update(local)
        if arguments.hops:
            self.finetune["hops"] = arguments.hops

    def result_of(self, text, model, codec, seed):
        """The summary of a training, which is stored under a name that says settings and seed."""
        what = codec + "".join(demo.options_of(self.finetune))
        name = f"{hashlib.sha256(what.encode()).hexdigest()[:12]}-{seed}"
        stored = self.out / f"{name}.json"
        if stored.exists():
            return json.loads(stored.read_text())
        title = f"{codec}, seed {seed}"
        preloaded = {}
        if codec.startswith(RULE):
            if not self.rules.exists():
                raise demo.Failed(f"{self.rules} is not built")
            preloaded = {"LD_PRELOAD": str(self.rules), "DW_RULE": codec[len(RULE) :]}
        os.environ.update(preloaded)
        try:
            gradient = RAW if preloaded else codec
            settings = (text, model, "tcp://127.0.0.1:0", RAW, RAW, gradient)
            result = self.trained(name, title, *settings, seed=seed)
        finally:
            for variable in preloaded:
                del os.environ[variable]
        stored.write_text(json.dumps(result))
        return result


def rows(codecs, results, seeds):
    """A row for each codec that all seeds have: bytes, compression, losses, mean over raw. What a
    rule would send is not counted."""
    for codec in codecs:
        runs = [results[codec, seed] for seed in seeds]
        raw = [results[RAW, seed]["held_out_loss"] for seed in seeds]
        losses = [run["held_out_loss"] for run in runs]
        over = sum(a / b - 1 for a, b in zip(losses, raw)) / len(seeds)
        sent, whole = runs[0]["bytes_gradients"], runs[0]["raw_gradients"]
        is_rule = codec.startswith(RULE)
        yield (
            f"`{codec}`",
            "-" if is_rule else f"{sent / 1e6:.2f} MB",
            "-" if is_rule else f"{whole / sent:.1f}x",
            *(f"{loss:.4f}" for loss in losses),
            f"{100 * over:+.2f} %",
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--seeds", default="2")
    parser.add_argument("--local-steps", type=int, default=0)
    parser.add_argument("--hops", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="a tiny model: a check, no result")
    parser.add_argument("--text", help="as for ./run demo")
    parser.add_argument("codecs", nargs="*", default=CODECS)
    arguments = parser.parse_intermixed_args()
    arguments.grid = (2, 2)
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    grid = Grid(arguments)
    pretrain_text, finetune_text = demo.texts(arguments, grid.out)
    model = grid.pretrained(pretrain_text)
    codecs, results = [RAW, *arguments.codecs], {}
    for codec in codecs:
        for seed in seeds:
            results[codec, seed] = grid.result_of(finetune_text, model, codec, seed)
        head = ("weight gradients", "bytes", "less", *(f"seed {s}" for s in seeds), "over raw")
        done = codecs[: codecs.index(codec) + 1]
        table = markdown(head, rows(done, results, seeds))
        (grid.out / "table.md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
