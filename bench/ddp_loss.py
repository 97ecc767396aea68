#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ddp_loss.py - measures how the codecs of ddp_hook change the loss of a small GPT.
"""ddp_loss.py OUT.json [--worlds 2,4] [--optimizers adamw,sgd] [--seeds 3] [--codecs ...] [--small]

For each seed, a byte-level GPT with 2 layers is pre-trained on Debian's fortunes. Then it is
fine-tuned on the King James Bible with DistributedDataParallel, without a hook ("raw") and with
each codec, and the loss of held-out samples is measured after the last epoch. All runs with the
same seed begin with the same parameters and use the same batches. Results are stored in OUT.json,
and runs that are already there are not repeated. Needs torch, and Debian's packages fortunes and
bible-kjv."""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import subprocess
import tempfile

import torch
import torch._dynamo  # optimizers import it in their first step; here once, before the ranks fork
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import deltawire
import deltawire.torch

LAYERS, WIDTH, HEADS, CONTEXT = 2, 64, 4, 64
SAMPLES, HELD_OUT, BATCH, EPOCHS = 256, 128, 16, 8
PRETRAIN_STEPS = 150
RATES = {"adamw": 2e-3, "sgd": 0.2}
CODECS = [f"{codec}:bits={bits}" for codec in ("delta", "direct") for bits in (4, 3, 2)]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixing, self.joining = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, c = x.shape
        heads = self.mixing(self.before(x)).view(n, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.joining(seen.transpose(1, 2).reshape(n, t, c))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Gpt(nn.Module):
    """A byte-level GPT. It maps samples (N, T + 1) to the mean loss of the next byte."""

    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        for embedding in (self.bytes, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, samples):
        x = self.bytes(samples[:, :-1]) + self.places.weight
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), samples[:, 1:].flatten())


def samples_of(text, count):
    """Returns the first count samples of T + 1 bytes, without overlap."""
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    size = CONTEXT + 1
    return data[: count * size].view(count, size).long()


def texts():
    folder = pathlib.Path("/usr/share/games/fortunes")
    parts = [p for p in sorted(folder.glob("*")) if p.is_file() and p.suffix == ""]
    verses = subprocess.run(["bible", "-f", "gen1:1-exo40:38"], capture_output=True, check=True)
    return b"".join(p.read_bytes() for p in parts if not p.is_symlink()), verses.stdout


def optimizer_of(name, model, steps):
    if name == "adamw":
        made = torch.optim.AdamW(model.parameters(), RATES[name], (0.9, 0.95), weight_decay=0.1)
    else:
        made = torch.optim.SGD(model.parameters(), RATES[name], momentum=0.9)
    falling = torch.optim.lr_scheduler.LambdaLR(
        made, lambda step: min(1.0, (step + 1) / 10) * (1 - step / steps)
    )
    return made, falling


def pretrained(text, seed):
    torch.manual_seed(seed)
    model = Gpt()
    samples = samples_of(text, len(text) // (CONTEXT + 1))
    step_of, falling = optimizer_of("adamw", model, PRETRAIN_STEPS)
    for _ in range(PRETRAIN_STEPS):
        model(samples[torch.randint(len(samples), (BATCH,))]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step_of.step(), falling.step(), step_of.zero_grad()
    return model.state_dict()


def rank_of_run(pipe, rank, world, place, start, samples, run):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=world)
    inner = Gpt()
    inner.load_state_dict(start)
    model = DistributedDataParallel(inner)
    if run["codec"] != "raw":
        model.register_comm_hook(
            *deltawire.torch.ddp_hook(run["codec"], exchange=run.get("exchange", "auto"))
        )
    steps = EPOCHS * (SAMPLES // BATCH)
    step_of, falling = optimizer_of(run["optimizer"], model, steps)
    order = torch.Generator().manual_seed(100 + run["seed"])
    for _ in range(EPOCHS):
        for batch in torch.randperm(SAMPLES, generator=order).view(-1, BATCH):
            model(samples[batch[rank::world]]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            step_of.step(), falling.step(), step_of.zero_grad()
    if rank == 0:
        with torch.no_grad():
            parts = samples[SAMPLES:].split(32)
            pipe.send(sum(inner(part).item() for part in parts) / len(parts))
    dist.barrier()
    os._exit(0)


def measured(start, samples, run):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "meet")
        ranks = [
            context.Process(
                target=rank_of_run, args=(there, r, run["world"], place, start, samples, run)
            )
            for r in range(run["world"])
        ]
        for rank in ranks:
            rank.start()
        there.close()
        loss = here.recv()
        for rank in ranks:
            rank.join()
    return loss


def table(runs):
    """Returns a table of mean losses, and their difference from raw."""
    rows = []
    for world, name in sorted({(r["world"], r["optimizer"]) for r in runs}):
        means = {}
        for codec in dict.fromkeys(r["codec"] for r in runs):
            of_codec = (world, name, codec)
            losses = [
                r["loss"] for r in runs if (r["world"], r["optimizer"], r["codec"]) == of_codec
            ]
            if losses:
                means[codec] = (sum(losses) / len(losses), len(losses))
        raw = means.get("raw", (math.nan, 0))[0]
        for codec, (mean, count) in means.items():
            more = 100 * (mean / raw - 1)
            rows.append(f"| {world} | {name} | {codec} | {mean:.4f} | {more:+.2f} % | {count} |")
    head = "| replicas | optimizer | codec | loss | beside raw | seeds |\n|---|---|---|---|---|---|"
    return "\n".join([head, *rows])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--worlds", default="2,4")
    parser.add_argument("--optimizers", default="adamw,sgd")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--codecs", default=" ".join(CODECS), help="separated by blanks")
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = json.loads(given.out.read_text()) if given.out.exists() else []
    fortunes, bible = texts()
    samples = samples_of(bible, SAMPLES + HELD_OUT)
    for seed in range(given.seeds):
        start = pretrained(fortunes, seed)
        for world in map(int, given.worlds.split(",")):
            for name in given.optimizers.split(","):
                for codec in ["raw", *given.codecs.split()]:
                    run = {"world": world, "optimizer": name, "codec": codec, "seed": seed}
                    if any(run.items() <= done.items() for done in runs):
                        continue
                    loss = measured(start, samples, run)
                    runs.append({**run, "loss": loss})
                    print(f"{world} replicas, {name}, seed {seed}, {codec}: {loss:.4f}", flush=True)
                    given.out.write_text(json.dumps(runs, indent=1) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
