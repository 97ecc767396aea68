#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ddp_step.py - measures the time of a training step over a slow network, raw and with ddp_hook.
"""ddp_step.py [--world 2] [--rate 100mbit] [--model layers] [--layers 2] [--width 512] [--cap 25]
    [--rounds 3] [--raw-rounds 1] [--steps 2] [--codecs ...] [--carrier group,link]

Each rank runs in a network namespace of its own, connected to a switch by a link with this rate in
both directions (veth and tc tbf, so root is needed). All variants take turns in one run, several
times; only the ratios of their times are meaningful. The bytes that rank 0 sends are counted by the
kernel and compared with the size of its frames. Needs torch.

--model: layers of torch with random input; gpt2, the 124 million parameters of GPT-2 with random
weights; or smollm2, pretrained, which study/real/models.py keeps in --models, with texts. All
variants begin with the same weights, and see the same batches. The loss is the mean over the
last half of the steps of rank 0. A codec powersgd:R is torch's own hook of that rank."""

import argparse
import copy
import json
import pathlib
import statistics
import sys
import tempfile
import time

import torch
from torch import nn

from slow_network import SlowNetwork

MODELS = pathlib.Path(__file__).parent.parent / "build" / "models"


def variants(given):
    """Yields (name, codec or None, options of ddp_hook) for each variant."""
    if given.raw_rounds:
        yield "raw", None, {}
    address = f"tcp://{SlowNetwork.address(given.rank or 0)}"
    linked = {"carrier": address, "link": {"insecure_plaintext": True}}
    for codec in given.codecs.split():
        if codec.startswith("powersgd:"):
            yield codec, codec, {}
            continue
        for carrier in given.carrier.split(","):
            if carrier == "link":
                yield f"{codec} over links", codec, linked
                continue
            for way in given.exchanges.split(","):
                yield f"{codec} {way}", codec, {"exchange": way}


class OfRows(nn.Module):
    """The loss of a language model, on rows of tokens."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, rows):
        return self.net(input_ids=rows, labels=rows).loss


class MeanSquare(nn.Module):
    def forward(self, x):
        return x.square().mean()


class Loss:
    """What is trained: make() returns a module that computes the loss of a batch; batch(step), of a
    rank; optimizer(module)."""

    def __init__(self, given):
        self.given = given
        self.rows = self.net = None
        if given.model == "smollm2":
            sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "study"))
            from real import models, texts

            model = models.load("smollm2", given.models, f32=True)
            self.net = model.net
            self.rows = texts.shares(model, texts.text())["train"]
        elif given.model == "gpt2":
            import transformers

            torch.manual_seed(1)
            self.net = transformers.GPT2LMHeadModel(transformers.GPT2Config())

    def make(self):
        if self.net is not None:
            return OfRows(copy.deepcopy(self.net))
        torch.manual_seed(1)
        given = self.given
        layer = nn.TransformerEncoderLayer(given.width, 8, 4 * given.width, batch_first=True)
        inner = nn.TransformerEncoder(layer, given.layers, enable_nested_tensor=False)
        return nn.Sequential(inner, MeanSquare())

    def optimizer(self, module):
        if self.rows is not None:
            return torch.optim.AdamW(module.parameters(), lr=5e-5)
        return torch.optim.SGD(module.parameters(), lr=0.01)

    def batch(self, step):
        number = step * self.given.world + self.given.rank
        if self.rows is not None:
            return self.rows[number][None]
        draws = torch.Generator().manual_seed(number)
        if self.net is not None:
            return torch.randint(50257, (1, 128), generator=draws)
        return torch.randn(4, self.given.tokens, self.given.width, generator=draws)


class Variant:
    """A model, trained with DistributedDataParallel and one codec."""

    def __init__(self, given, loss, codec, options):
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
        from torch.nn.parallel import DistributedDataParallel

        import deltawire.torch

        self.loss, self.steps, self.codec = loss, given.steps, codec
        inner = loss.make()
        self.model = DistributedDataParallel(inner, bucket_cap_mb=given.cap)
        self.state = None
        if codec and codec.startswith("powersgd:"):
            rank = int(codec.split(":")[1])
            state = powerSGD_hook.PowerSGDState(None, rank, start_powerSGD_iter=2)
            self.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif codec:
            self.state, hook = deltawire.torch.ddp_hook(codec, **options)
            self.model.register_comm_hook(self.state, hook)
        self.optimizer = loss.optimizer(inner)
        self.seconds, self.cpu, self.kernel, self.frames, self.losses = [], [], [], [], []

    def step(self):
        found = self.model(self.loss.batch(len(self.losses)))
        found.backward()
        self.losses.append(found.item())
        self.optimizer.step()
        self.optimizer.zero_grad()

    def timed(self, dist):
        before = self.state.stats()["sent_bytes"] if self.state else 0
        dist.barrier()
        start, bytes_before = time.monotonic(), SlowNetwork.sent_bytes()
        cpu = time.process_time()
        for done in range(self.steps):
            if dist.get_rank() == 0 and done % 20 == 19:
                print(f"{self.codec or 'raw'}: step {done} of {self.steps}", file=sys.stderr)
            self.step()
        self.seconds.append((time.monotonic() - start) / self.steps)
        self.cpu.append((time.process_time() - cpu) / self.steps)
        dist.barrier()  # after it, everything sent before has left this rank
        dist.barrier()
        self.kernel.append((SlowNetwork.sent_bytes() - bytes_before) / self.steps)
        after = self.state.stats()["sent_bytes"] if self.state else 0
        self.frames.append((after - before) / self.steps)


def rank_main(given):
    import torch.distributed as dist

    SlowNetwork.join(given.rank, given.world)
    loss = Loss(given)
    all_of_them = {name: Variant(given, loss, codec, how) for name, codec, how in variants(given)}
    bare = loss.make()
    elements = sum(p.numel() for p in bare.parameters())
    for _ in range(2):
        start = time.monotonic()
        bare(loss.batch(0)).backward()
        computing = time.monotonic() - start
    del bare
    for one in all_of_them.values():  # torch rebuilds the buckets, and key frames are sent
        one.step()
        one.step()
    for number in range(given.rounds):
        for one in all_of_them.values():
            if one.codec or number < given.raw_rounds:
                one.timed(dist)
    dist.barrier()
    if given.rank == 0:
        found = {
            name: {
                "seconds": statistics.median(one.seconds),
                "cpu": statistics.median(one.cpu),
                "kernel": statistics.median(one.kernel),
                "frames": statistics.median(one.frames),
                "loss": statistics.mean(one.losses[len(one.losses) // 2 :]),
            }
            for name, one in all_of_them.items()
        }
        given.out.write_text(
            json.dumps({"found": found, "elements": elements, "computing": computing})
        )
    dist.destroy_process_group()


def show(measured):
    found = measured["found"]
    print(f"{measured['elements'] / 1e6:.1f} million parameters; forward and backward take")
    print(f"{measured['computing']:.2f} s\n")
    print("| gradients | step | CPU | faster | sent by a rank | frames' share | loss |")
    print("|---|---|---|---|---|---|---|")
    for name, one in found.items():
        share = f"{100 * one['frames'] / one['kernel']:.1f} %" if one["frames"] else ""
        faster = f"{found['raw']['seconds'] / one['seconds']:.2f}" if "raw" in found else ""
        print(
            f"| {name} | {one['seconds']:.2f} s | {one['cpu']:.2f} s | {faster} "
            f"| {one['kernel'] / 1e6:.2f} MB | {share} | {one['loss']:.4f} |"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--model", choices=("layers", "gpt2", "smollm2"), default="layers")
    parser.add_argument("--models", type=pathlib.Path, default=MODELS)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--cap", type=float, default=25.0, help="bucket_cap_mb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--raw-rounds", type=int, default=100, help="0: without raw")
    parser.add_argument("--steps", type=int, default=2, help="in one measurement")
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
