#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ddp_loss.py - measures how the codecs of ddp_hook change the loss of a small GPT.
"""ddp_loss.py OUT.json [--worlds 2,4] [--optimizers adamw,sgd] [--seeds 3] [--codecs ...]
            [--send gradients] [--warm-up PART] [--epochs 8] [--samples 256] [--rates 1]

For each seed, a byte-level GPT with 2 layers is pre-trained on Debian's fortunes. Then it is
fine-tuned on the King James Bible with DistributedDataParallel, without a codec ("raw") and with
each codec, and the loss of held-out samples is measured after the last epoch. All runs with the
same seed begin with the same parameters and use the same batches. Results are stored in OUT.json,
and runs that are already there are not repeated. Needs torch, and Debian's packages fortunes and
bible-kjv.

--send: what replicas send, one of those that ddp_sender.py explains; several with commas between
    them. AdamW with momentum is 1-bit Adam, whose mean squares are fixed after the warm-up, so it
    needs one; "raw" then fixes them in the same step.
--warm-up: the part of the steps, at the beginning, that go without the codec; several with commas.
--epochs, --samples: how long the fine-tuning is, and how many samples an epoch has.
--rates: what the optimizers' rates are multiplied by; several with commas."""

import argparse
import functools
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import subprocess
import tempfile
from statistics import fmean as mean

import torch
import torch._dynamo  # optimizers import it in their first step; here once, before the ranks fork
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import deltawire
import deltawire.torch
from ddp_sender import RATES, SENT, Sender, optimizer_of

LAYERS, WIDTH, HEADS, CONTEXT = 2, 64, 4, 64
HELD_OUT, BATCH = 128, 16
PRETRAIN_STEPS = 150
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


def mean_loss(model, samples):
    with torch.no_grad():
        parts = samples.split(32)
        return sum(model(part).item() for part in parts) / len(parts)


def rank_of_run(pipe, rank, world, place, start, samples, run):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=world)
    inner = Gpt()
    inner.load_state_dict(start)
    model = DistributedDataParallel(inner)
    steps = run["epochs"] * (run["samples"] // BATCH)
    raw_steps = round(run["warm_up"] * steps)
    compression = None if run["codec"] == "raw" else deltawire.torch.ddp_hook(run["codec"])
    sender = Sender(model, run["send"], compression, raw_steps)
    step_of, falling = optimizer_of(
        run["optimizer"], model, steps, run["send"], raw_steps, run["rate"]
    )
    order = torch.Generator().manual_seed(100 + run["seed"])
    for _ in range(run["epochs"]):
        for batch in torch.randperm(run["samples"], generator=order).view(-1, BATCH):
            model(samples[batch[rank::world]]).backward()
            sender.end_backward(model)
            step_of.step(), falling.step(), step_of.zero_grad()
    if rank == 0:
        pipe.send((mean_loss(inner, samples[-HELD_OUT:]), mean_loss(inner, samples[:256])))
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
        losses = here.recv()
        for rank in ranks:
            rank.join()
    return losses


def setting(run):
    """Returns what a run shares with those that its loss is compared with."""
    names = ("world", "optimizer", "rate", "epochs", "samples", "send")
    return tuple(run[name] for name in names)


def over(run, raws, name):
    """Returns by how many percent a loss is above that of the raw run with the same seed."""
    raw = raws.get((raw_warm_up(run), run["seed"]))
    return 100 * (run[name] / raw[name] - 1) if raw else math.nan


def table(runs):
    """Returns a table of mean losses, and their difference from raw, also of single seeds."""
    rows = []
    for of_setting in sorted({setting(r) for r in runs}):
        same = [r for r in runs if setting(r) == of_setting]
        raws = {(r["warm_up"], r["seed"]): r for r in same if r["codec"] == "raw"}
        for warm_up, codec in dict.fromkeys((r["warm_up"], r["codec"]) for r in same):
            ours = [r for r in same if (r["warm_up"], r["codec"]) == (warm_up, codec)]
            cells = [*of_setting, warm_up, f"`{codec}`", f"{mean(r['loss'] for r in ours):.4f}"]
            more = [over(r, raws, "loss") for r in ours]
            cells += [f"{mean(more):+.2f} %", f"{min(more):+.2f} to {max(more):+.2f}"]
            cells += [f"{mean(over(r, raws, 'trained') for r in ours):+.2f} %", len(ours)]
            rows.append("| " + " | ".join(map(str, cells)) + " |")
    names = ["replicas", "optimizer", "rate", "epochs", "samples", "sent", "warm-up", "codec"]
    names += ["loss", "over raw", "of single seeds", "training samples over raw", "seeds"]
    return "\n".join(["| " + " | ".join(names) + " |", "|---" * len(names) + "|", *rows])


def raw_warm_up(run):
    """Returns the warm-up of the raw run that a run is compared with. It matters to 1-bit Adam."""
    frozen = run["optimizer"] == "adamw" and run["send"] != "gradients"
    return run["warm_up"] if frozen else 0.0


def wanted(given):
    """Yields the runs that were asked for, raw ones first, without repetition."""
    parts = [
        range(given.seeds),
        map(int, given.worlds.split(",")),
        given.optimizers.split(","),
        given.send.split(","),
        map(float, given.warm_up.split(",")),
        map(float, given.rates.split(",")),
        ["raw", *given.codecs.split()],
    ]
    names = ("seed", "world", "optimizer", "send", "warm_up", "rate", "codec")
    for values in itertools.product(*parts):
        run = {**dict(zip(names, values)), "epochs": given.epochs, "samples": given.samples}
        if run["codec"] == "raw":
            run["warm_up"] = raw_warm_up(run)
        yield run


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--worlds", default="2,4")
    parser.add_argument("--optimizers", default="adamw,sgd", help=f"of {', '.join(RATES)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--codecs", default=" ".join(CODECS), help="separated by blanks")
    parser.add_argument("--send", default="gradients", help=f"{', '.join(SENT)}")
    parser.add_argument("--warm-up", default="0", help="parts of the steps, from 0 to 1")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=256, help="a multiple of 16")
    parser.add_argument("--rates", default="1", help="factors")
    given = parser.parse_args()
    for sent in given.send.split(","):
        if sent not in SENT:
            parser.error(f"--send {sent}: give one of {', '.join(SENT)}")
        if sent != "gradients" and "plain" in given.optimizers.split(","):
            parser.error("plain SGD has no momentum that could be sent: give --send gradients")
        if sent != "gradients" and "adamw" in given.optimizers.split(","):
            if any(float(part) <= 0 for part in given.warm_up.split(",")):
                parser.error("AdamW with momentum fixes its mean squares: give a --warm-up above 0")
    if given.samples % BATCH:
        parser.error(f"--samples {given.samples}: give a multiple of {BATCH}")
    return given


def main():
    given = arguments()
    torch.set_num_threads(1)
    runs = json.loads(given.out.read_text()) if given.out.exists() else []
    fortunes, bible = texts()
    samples = samples_of(bible, given.samples + HELD_OUT)
    start_of = functools.lru_cache(maxsize=None)(functools.partial(pretrained, fortunes))
    for run in wanted(given):
        if any(run.items() <= done.items() for done in runs):
            continue
        loss, trained = measured(start_of(run["seed"]), samples, run)
        runs.append({**run, "loss": loss, "trained": trained})
        print(f"{run}: {loss:.4f}, of training samples {trained:.4f}", flush=True)
        given.out.write_text(json.dumps(runs, indent=1) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
