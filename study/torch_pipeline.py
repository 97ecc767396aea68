#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# torch_pipeline.py - measures the loss and the bytes of pipelines with compress_stage.
"""A character-level GPT is pre-trained on Debian's fortunes. Then its two halves are fine-tuned on
the King James Bible as two pipeline stages, in two processes over gloo, once for each config and
seed. The two processes run in a network namespace of their own, so that the kernel counts only
their bytes on the loopback interface. Prints one row for each config; --out writes all results as
JSON.

Needs torch (./run torch makes build/venv), deltawire, root for the namespace, and the packages
fortunes and bible-kjv."""

import argparse
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/python/torch"))
import small_gpt  # noqa: E402

CONFIGS = {
    "raw": None,
    "delta 3 / direct 6": ("delta:bits=3", "direct:bits=6"),
    "delta 4 / direct 6": ("delta:bits=4", "direct:bits=6"),
}


def letters(raw):
    raw = torch.frombuffer(bytearray(raw), dtype=torch.uint8).long()
    return torch.where((raw >= 32) & (raw < 127), raw - 32, torch.full_like(raw, 95))


def stages(args, seed):
    sizes = {"width": args.width, "length": args.length, "blocks": args.blocks, "seed": seed}
    return [small_gpt.Stage(i, 2, **sizes) for i in range(2)]


def pretrain(args, seed):
    """Trains both halves on the fortunes, and returns their parameters."""
    both = stages(args, seed)
    optimizer = torch.optim.AdamW([p for s in both for p in s.parameters()], lr=1e-3)
    whole = small_gpt.text()
    torch.manual_seed(seed)
    for _ in range(args.pretrain):
        starts = torch.randint(len(whole) - args.length - 1, (args.batch,)).tolist()
        x = torch.stack([whole[s : s + args.length] for s in starts])
        y = torch.stack([whole[s + 1 : s + 1 + args.length] for s in starts])
        loss = small_gpt.loss_of(both[1](both[0](x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [half.state_dict() for half in both]


def lo_bytes():
    rows = pathlib.Path("/proc/net/dev").read_text().splitlines()
    return int(next(r for r in rows if r.strip().startswith("lo:")).split(":")[1].split()[0])


def tune(rank, args, seed, config, states, text):
    from deltawire.torch import compress_stage

    half = stages(args, seed)[rank]
    half.load_state_dict(states[rank])
    stage = PipelineStage(half, rank, 2, torch.device("cpu"))
    if config is not None:
        compress_stage(stage, forward=config[0], backward=config[1], profiles={})
    schedule = Schedule1F1B(stage, args.microbatches, loss_fn=small_gpt.loss_of)
    optimizer = torch.optim.AdamW(half.parameters(), lr=args.rate)
    x, y = small_gpt.samples(args.samples, args.length, text)
    order, means, wire = torch.Generator().manual_seed(seed), [], 0
    for epoch in range(args.epochs):
        losses = []
        for step, ids in enumerate(torch.randperm(args.samples, generator=order).split(args.batch)):
            if epoch == 0 and step == 1:  # before it, torch connects the ranks and exchanges shapes
                dist.barrier()
                wire, before = lo_bytes(), told(stage, config)
            optimizer.zero_grad()
            of_step: "list[torch.Tensor]" = []  # which a schedule clears first
            if rank == 0:
                schedule.step(x[ids], **({} if config is None else {"sample_ids": ids}))
            else:
                schedule.step(target=y[ids], losses=of_step)
            losses += of_step
            optimizer.step()
        means.append(torch.stack(losses).mean().item() if losses else 0.0)
    dist.barrier()
    wire, frames = lo_bytes() - wire, told(stage, config) - before
    shared = torch.tensor([*means, float(frames)], dtype=torch.float64)
    dist.all_reduce(shared)
    return {"losses": shared[:-1].tolist(), "frame_bytes": int(shared[-1]), "wire_bytes": wire}


def told(stage, config):
    """Returns the size in bytes of the frames that this rank has sent."""
    if config is None:
        return 0
    stats = stage.compression_stats()
    return sum(stats[w]["frame_bytes"] for w in ("forward_sent", "backward_sent") if w in stats)


def rank_main(args):
    torch.set_num_threads(1)
    folder = pathlib.Path(args.folder)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=args.rank, world_size=2
    )
    bible = letters((folder / "bible.txt").read_bytes())
    found = {}
    for seed in range(args.seeds):
        states = [None]
        if args.rank == 0:
            disk = io.BytesIO()
            torch.save(pretrain(args, seed), disk)
            states = [disk.getvalue()]
        dist.broadcast_object_list(states)
        states = torch.load(io.BytesIO(states[0]))
        for name, config in CONFIGS.items():
            one = tune(args.rank, args, seed, config, states, bible)
            found.setdefault(name, []).append(one)
            if args.rank == 0:
                print(f"seed {seed}, {name}: {one['losses'][-1]:.4f}", file=sys.stderr, flush=True)
    if args.rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def report(found):
    raw = [one["losses"][-1] for one in found["raw"]]
    print("config                loss, last epoch   against raw   wire / frames")
    for name, runs in found.items():
        last = [one["losses"][-1] for one in runs]
        off = statistics.mean(a / b for a, b in zip(last, raw)) - 1
        over = ""
        if runs[0]["frame_bytes"]:
            over = f"{statistics.mean(o['wire_bytes'] / o['frame_bytes'] for o in runs):.4f}"
        print(f"{name:20}  {statistics.mean(last):16.4f}  {100 * off:+10.2f} %   {over:>12}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (
        *(("seeds", 3), ("epochs", 4), ("samples", 192), ("batch", 16), ("microbatches", 4)),
        *(("width", 128), ("length", 64), ("blocks", 1), ("pretrain", 150), ("rank", -1)),
    ):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--rate", type=float, default=3e-4)
    options.add_argument("--folder")
    options.add_argument("--out")
    args = options.parse_args()
    if args.rank >= 0:
        return rank_main(args)
    with tempfile.TemporaryDirectory() as folder:
        verses = subprocess.run(["bible", "-f", "gen1:1-gen20:1"], capture_output=True, check=True)
        (pathlib.Path(folder) / "bible.txt").write_bytes(verses.stdout)
        command = [sys.executable, __file__, *sys.argv[1:], "--folder", folder]
        both = " ".join(f"{' '.join(command)} --rank {rank} &" for rank in range(2))
        script = f"ip link set lo up && export GLOO_SOCKET_IFNAME=lo && {both} wait"
        subprocess.run(["unshare", "-n", "sh", "-c", script], check=True, env=os.environ)
        found = json.loads((pathlib.Path(folder) / "found.json").read_text())
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps({"torch": torch.__version__, "runs": found}))
    report(found)


if __name__ == "__main__":
    main()
