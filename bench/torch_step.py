#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# torch_step.py - the time of a pipeline step behind a slow network: torch's own stages beside
# compress_stage.
"""torch_step.py [--rate 100mbit] [--width 512] [--layer mlp|transformer] [--batch 32]
    [--tokens 64] [--microbatches 4] [--rounds 5] [--out FILE]

A model of two equal layers is cut into two stages. Each stage is a process with one thread in its
own network namespace; the link between them has the given rate in both directions (veth and tc tbf:
root is needed). All variants take turns in one run, so only their ratios are meaningful. Bytes are
those that the kernel counted at both ends. Needs torch."""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

from slow_network import SlowNetwork

STEPS = 3  # of one measurement
VARIANTS = {
    "raw": None,
    "delta 3 / direct 6": ("delta:bits=3", "direct:bits=6"),
    "delta 4 / direct 6": ("delta:bits=4", "direct:bits=6"),
}


def layer_of(kind, width):
    from torch import nn

    if kind == "transformer":
        return nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())


class Variant:
    """One stage of the model on this rank, with its schedule and optimizer."""

    def __init__(self, given, config):
        import torch
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        from deltawire.torch import compress_stage

        torch.manual_seed(1 + given.rank)
        layer = layer_of(given.layer, given.width)
        stage = PipelineStage(layer, given.rank, 2, torch.device("cpu"))
        if config is not None:
            compress_stage(stage, forward=config[0], backward=config[1], profiles={})
        self.schedule = Schedule1F1B(
            stage, given.microbatches, loss_fn=lambda made, wanted: (made - wanted).square().mean()
        )
        self.optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        self.first, self.compressed = given.rank == 0, config is not None
        self.x = torch.randn(given.batch, given.tokens, given.width)
        self.ids = list(range(given.batch))
        self.seconds, self.kernel = [], []

    def step(self):
        self.optimizer.zero_grad()
        if self.first:
            self.schedule.step(self.x, **({"sample_ids": self.ids} if self.compressed else {}))
        else:
            self.schedule.step(target=self.x, losses=[])
        self.optimizer.step()

    def timed(self, dist):
        dist.barrier()
        start, bytes_before = time.monotonic(), SlowNetwork.sent_bytes()
        for _ in range(STEPS):
            self.step()
        dist.barrier()  # the step has ended at both ends
        self.seconds.append((time.monotonic() - start) / STEPS)
        self.kernel.append((SlowNetwork.sent_bytes() - bytes_before) / STEPS)


def computing_seconds(given):
    """The time that one process needs for both halves of its stage's step, without a network."""
    import torch

    layer, x = layer_of(given.layer, given.width), None
    found = []
    for _ in range(3):
        start = time.monotonic()
        for _ in range(given.microbatches):
            x = torch.randn(given.batch // given.microbatches, given.tokens, given.width)
            x.requires_grad_()
            layer(x).square().mean().backward()
        found.append(time.monotonic() - start)
    return min(found)


def rank_main(given):
    import torch
    import torch.distributed as dist

    SlowNetwork.join(given.rank, 2)
    computing = computing_seconds(given)
    variants = {name: Variant(given, config) for name, config in VARIANTS.items()}
    for one in variants.values():  # shapes are exchanged, and the first frames are key frames
        one.step()
        one.step()
    for _ in range(given.rounds):
        for one in variants.values():
            one.timed(dist)
    sent = torch.tensor([statistics.median(one.kernel) for one in variants.values()])
    dist.all_reduce(sent)
    if given.rank == 0:
        found = {
            name: {"seconds": statistics.median(one.seconds), "kernel": total}
            for (name, one), total in zip(variants.items(), sent.tolist())
        }
        given.found.write_text(json.dumps({"found": found, "computing": computing}))
    dist.barrier()
    dist.destroy_process_group()


def show(measured):
    found = measured["found"]
    print(f"one stage computes for {1000 * measured['computing']:.0f} ms in each step\n")
    print("| config, forward / backward | step | faster | sent by both |\n|---|---|---|---|")
    for name, one in found.items():
        print(
            f"| {name} | {1000 * one['seconds']:.0f} ms | "
            f"{found['raw']['seconds'] / one['seconds']:.2f} | {one['kernel'] / 1e6:.2f} MB |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layer", choices=("mlp", "transformer"), default="mlp")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", help="write the figures as JSON")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--found", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank_main(given)
        return
    with tempfile.TemporaryDirectory() as folder, SlowNetwork(2, given.rate) as network:
        found = pathlib.Path(folder) / "found.json"
        command = [sys.executable, *sys.argv, "--found", str(found)]
        ranks = [network.start(rank, [*command, "--rank", str(rank)]) for rank in range(2)]
        if any([rank.wait() for rank in ranks]):
            sys.exit("a rank failed")
        measured = json.loads(found.read_text())
    if given.out:
        pathlib.Path(given.out).write_text(json.dumps({**vars(given), **measured}))
    show(measured)


if __name__ == "__main__":
    main()
