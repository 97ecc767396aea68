# SPDX-License-Identifier: Apache-2.0
# gpu_ranks.py - what each rank of test_gpu.py runs. All ranks use the same GPU.
"""Every function takes the device, so that it can be tried without a GPU."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import deltawire.torch
from ddp_ranks import Known, batch_of, bits_of, gradients_of, small_model

PAUSE_CYCLES = 100_000_000  # of the GPU's clock: some 50 ms


def pause(device):
    """Keeps the current stream busy, so that work that does not wait for it would be noticed."""
    if torch.device(device).type == "cuda":
        torch.cuda._sleep(PAUSE_CYCLES)


def use_nccl(rank):
    """Settings with which NCCL takes several ranks on one GPU: each rank claims to be a machine."""
    os.environ["NCCL_HOSTID"] = f"deltawire-{rank}"
    os.environ.update(NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_NET="Socket")


def rank_of_means(rank, world, device, codec, dtype, carrier, count, steps):
    """The bits of the mean of each step."""
    inner = Known(count).to(device, dtype)
    model = DistributedDataParallel(inner)
    model.register_comm_hook(*deltawire.torch.ddp_hook(codec, carrier=carrier, exchange="parts"))
    means = []
    for step in range(steps):
        loss = model(gradients_of(rank, step, count).to(device, dtype))
        pause(device)
        loss.backward()
        means.append(inner.weights.grad.cpu().view(torch.uint8).numpy().tobytes())
        model.zero_grad()
    return means


def train(model, rank, device):
    """Trains for 24 steps and returns the losses."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for step in range(24):
        x, y = (part.to(device) for part in batch_of(rank, step % 4))
        loss = (model(x) - y).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


def rank_that_trains(rank, world, device, codec, carrier):
    """The bits of the parameters at the end, the losses, and what was sent."""
    model = DistributedDataParallel(small_model().to(device), bucket_cap_mb=0.02)
    state, hook = deltawire.torch.ddp_hook(codec, carrier=carrier)
    model.register_comm_hook(state, hook)
    losses = train(model, rank, device)
    stats = state.stats()
    return bits_of(model.module.cpu()), losses, stats


class Part(nn.Module):
    """One stage of a pipeline. Tensors between stages are (N, 8, 48)."""

    def __init__(self, index, stages):
        super().__init__()
        torch.manual_seed(index)
        self.inner = nn.Sequential(
            nn.Linear(16 if index == 0 else 48, 48),
            nn.GELU(),
            nn.Linear(48, 8 if index == stages - 1 else 48),
        )

    def forward(self, x):
        return self.inner(x)


def rank_of_pipeline(rank, world, device, options):
    """The losses, on the last rank, and what was sent."""
    stage = pipelining.PipelineStage(
        Part(rank, world).to(device), rank, world, torch.device(device)
    )
    deltawire.torch.compress_stage(stage, **options)
    schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=lambda made, y: (made - y).square().mean())
    optimizer = torch.optim.AdamW(stage.submod.parameters(), lr=3e-3)
    made = torch.Generator().manual_seed(9)
    x = torch.randn(32, 8, 16, generator=made)
    y = torch.sin(2 * x[..., :8])
    losses = []
    for step in range(32):
        part = slice(8 * (step % 4), 8 * (step % 4) + 8)
        optimizer.zero_grad()
        found, named = [], {}
        if rank == 0:
            named["sample_ids"] = torch.arange(32)[part]
        if rank == world - 1:
            named.update(target=y[part].to(device), losses=found)
        if step < 4:
            pause(device)
        schedule.step(*((x[part].to(device),) if rank == 0 else ()), **named)
        optimizer.step()
        if found:
            losses.append(torch.stack(found).mean().item())
    stats = stage.compression_stats()
    stage.close_compression()
    return losses, stats


def rank_of_fsdp(rank, world, device, codec, carrier):
    """The losses, and how many bytes were sent."""
    mesh = init_device_mesh(torch.device(device).type, (world,))
    model = small_model().to(device)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            dist.fsdp.fully_shard(module, mesh=mesh)
    dist.fsdp.fully_shard(model, mesh=mesh)
    state = codec and deltawire.torch.compress_fsdp(model, codec, carrier=carrier)
    losses = train(model, rank, device)
    return losses, state and state.stats()["sent_bytes"]
