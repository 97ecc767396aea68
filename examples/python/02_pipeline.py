# SPDX-License-Identifier: Apache-2.0
# 02_pipeline.py - trains a model in two pipeline stages (processes), raw and compressed.
"""Numbers mark the three lines for deltawire. Activations are sent as their change since the last
epoch, with 4 bits per value, and gradients directly, with 6. It prints the loss of each epoch:

    epoch     raw   delta 4 / direct 6   bytes sent forward, of raw
      1    2.3483         2.3484                 28.0%
      2    2.2755         2.2755                 15.9%
      3    2.2493         2.2494                 15.9%
      4    2.2098         2.2099                 15.9%
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from deltawire.torch import compress_stage

EPOCHS, SAMPLES, BATCH = 4, 64, 16


def half(rank):
    """Half of the model. The first half returns (N, 16, 64), the second one 10 classes."""
    torch.manual_seed(rank)
    if rank == 0:
        return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64))
    return nn.Sequential(nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Flatten(), nn.Linear(1024, 10))


def train(rank, compressed):
    stage = PipelineStage(half(rank), rank, 2, torch.device("cpu"))
    if compressed:
        stage = compress_stage(stage, forward="delta:bits=4", backward="direct:bits=6")  # 1
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.AdamW(stage.submod.parameters(), lr=1e-3)
    torch.manual_seed(9)
    x, y = torch.randn(SAMPLES, 16, 32), torch.arange(SAMPLES) % 10
    table, before = [], 0
    for _ in range(EPOCHS):
        losses = []
        for ids in torch.randperm(SAMPLES).split(BATCH):  # the index of a sample is its id  # 2
            optimizer.zero_grad()
            if rank == 0:
                schedule.step(x[ids], **({"sample_ids": ids} if compressed else {}))  # 3
            else:
                schedule.step(target=y[ids], losses=losses)
            optimizer.step()
        share = 0.0
        if compressed and rank == 0:
            sent = stage.compression_stats()["forward_sent"]["message_bytes"]
            share, before = (sent - before) / (SAMPLES * 16 * 64 * 4), sent
        table.append((torch.stack(losses).mean().item() if losses else 0.0, share))
    return torch.tensor(table)


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/s", rank=rank, world_size=2)
    raw, ours = train(rank, False), train(rank, True)
    dist.reduce(raw, 0), dist.reduce(ours, 0)  # each column is zero on one rank
    if rank == 0:
        print("epoch     raw   delta 4 / direct 6   bytes sent forward, of raw")
        for epoch in range(EPOCHS):
            loss, share = ours[epoch].tolist()
            line = f"  {epoch + 1}    {raw[epoch, 0]:.4f}         {loss:.4f}      {share:16.1%}"
            print(line, flush=True)
        assert abs(ours[-1, 0] / raw[-1, 0] - 1) < 0.01 and ours[-1, 1] < 0.2
    os._exit(0)  # a thread of torch's gloo that still runs would abort a process that ends


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(main, (folder,), nprocs=2)
