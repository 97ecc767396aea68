#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ddp_step.py - measures the time of a training step over a slow network, raw and with ddp_hook.
"""ddp_step.py [--world 2] [--rate 100mbit] [--layers 2] [--width 512] [--cap 25]
    [--rounds 3] [--codecs ...] [--carrier group,link]

Each rank runs in a network namespace of its own, connected to a switch by a link with this rate in
both directions (veth and tc tbf, so root is needed). All variants take turns in one run, several
times; only the ratios of their times are meaningful. The bytes that rank 0 sends are counted by the
kernel and compared with the size of its frames. Needs torch."""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

from slow_network import SlowNetwork

STEPS = 2  # in one measurement


def variants(given):
    """Yields (name, codec or None, options of ddp_hook) for each variant."""
    yield "raw", None, {}
    address = f"tcp://{SlowNetwork.address(given.rank or 0)}"
    linked = {"carrier": address, "link": {"insecure_plaintext": True}}
    for codec in given.codecs.split():
        for carrier in given.carrier.split(","):
            if carrier == "link":
                yield f"{codec} over links", codec, linked
                continue
            for way in given.exchanges.split(","):
                yield f"{codec} {way}", codec, {"exchange": way}


class Variant:
    """A model, trained with DistributedDataParallel and one codec."""

    def __init__(self, given, codec, options):
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        import deltawire.torch

        torch.manual_seed(1)
        layer = nn.TransformerEncoderLayer(given.width, 8, 4 * given.width, batch_first=True)
        inner = nn.TransformerEncoder(layer, given.layers, enable_nested_tensor=False)
        self.model = DistributedDataParallel(inner, bucket_cap_mb=given.cap)
        self.state = None
        if codec:
            self.state, hook = deltawire.torch.ddp_hook(codec, **options)
            self.model.register_comm_hook(self.state, hook)
        self.optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)
        self.x = torch.randn(4, given.tokens, given.width)
        self.seconds, self.kernel, self.frames = [], [], []
        self.elements = sum(p.numel() for p in inner.parameters())

    def step(self):
        self.model(self.x).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def timed(self, dist):
        before = self.state.stats()["sent_bytes"] if self.state else 0
        dist.barrier()
        start, bytes_before = time.monotonic(), SlowNetwork.sent_bytes()
        for _ in range(STEPS):
            self.step()
        self.seconds.append((time.monotonic() - start) / STEPS)
        dist.barrier()  # after it, everything sent before has left this rank
        dist.barrier()
        self.kernel.append((SlowNetwork.sent_bytes() - bytes_before) / STEPS)
        after = self.state.stats()["sent_bytes"] if self.state else 0
        self.frames.append((after - before) / STEPS)


def rank_main(given):
    import torch.distributed as dist

    SlowNetwork.join(given.rank, given.world)
    all_of_them = {name: Variant(given, codec, how) for name, codec, how in variants(given)}
    alone = all_of_them["raw"]
    with alone.model.no_sync():
        alone.step()
        start = time.monotonic()
        alone.step()
        computing = time.monotonic() - start
    for one in all_of_them.values():  # torch rebuilds the buckets, and key frames are sent
        one.step()
        one.step()
    for _ in range(given.rounds):
        for one in all_of_them.values():
            one.timed(dist)
    dist.barrier()
    if given.rank == 0:
        found = {
            name: {
                "seconds": statistics.median(one.seconds),
                "kernel": statistics.median(one.kernel),
                "frames": statistics.median(one.frames),
            }
            for name, one in all_of_them.items()
        }
        given.out.write_text(
            json.dumps({"found": found, "elements": alone.elements, "computing": computing})
        )
    dist.destroy_process_group()


def show(measured):
    found = measured["found"]
    print(f"{measured['elements'] / 1e6:.1f} million parameters; a step without a network takes")
    print(f"{measured['computing']:.2f} s\n")
    print("| gradients | step | faster | sent by a rank | frames' share |\n|---|---|---|---|---|")
    for name, one in found.items():
        share = f"{100 * one['frames'] / one['kernel']:.1f} %" if one["frames"] else ""
        print(
            f"| {name} | {one['seconds']:.2f} s | {found['raw']['seconds'] / one['seconds']:.2f} "
            f"| {one['kernel'] / 1e6:.2f} MB | {share} |"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--cap", type=float, default=25.0, help="bucket_cap_mb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codecs", default="delta:bits=4", help="separated by blanks")
    parser.add_argument("--exchanges", default="auto")
    parser.add_argument("--carrier", default="group", help="group, link, or both with a comma")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank_main(given)
        return
    with tempfile.TemporaryDirectory() as folder, SlowNetwork(given.world, given.rate) as network:
        out = pathlib.Path(folder) / "out.json"
        ranks = [
            network.start(rank, [sys.executable, *sys.argv, "--rank", str(rank), "--out", str(out)])
            for rank in range(given.world)
        ]
        if any([rank.wait() for rank in ranks]):
            sys.exit("a rank failed")
        show(json.loads(out.read_text()))


if __name__ == "__main__":
    main()
