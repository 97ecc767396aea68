# SPDX-License-Identifier: Apache-2.0
# 03_ddp.py - DistributedDataParallel with compressed gradients: two more lines of code.
"""Two processes train a small model on a text that every Debian has. "raw" sends gradients as they
are; ddp_hook sends their change since the last step, with 4 bits per value. It prints the losses:

    epoch    raw    delta:bits=4
        1  3.2473         3.2490
        2  2.4361         2.4379
        3  2.1701         2.1746
    bytes of gradients for each byte sent: 7.4
"""

import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import deltawire.torch

WORLD, EPOCHS, BATCH, CONTEXT = 2, 3, 32, 8
TEXT = "/usr/share/common-licenses/GPL-3"


def samples():  # (N, CONTEXT + 1) bytes
    text = torch.frombuffer(bytearray(pathlib.Path(TEXT).read_bytes()), dtype=torch.uint8)
    return text.unfold(0, CONTEXT + 1, 4).long()


def model_of_bytes():
    torch.manual_seed(1)
    first = nn.Embedding(256, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 128)
    return nn.Sequential(*first, nn.GELU(), nn.Linear(128, 256))


def train(rank, codec):
    """Trains a model. Returns the mean loss of each epoch, and the statistics of the hook."""
    model, hook = DistributedDataParallel(model_of_bytes()), None
    if codec != "raw":
        hook = deltawire.torch.ddp_hook(codec)
        model.register_comm_hook(*hook)
    optimizer, data, losses = torch.optim.AdamW(model.parameters(), 1e-3), samples(), []
    for epoch in range(EPOCHS):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(1)
        for batch in order[: len(data) // BATCH * BATCH].view(-1, BATCH):
            mine = data[batch[rank::WORLD]]
            loss = nn.functional.cross_entropy(model(mine[:, :-1]), mine[:, -1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        losses.append(total.item() / (len(data) // BATCH * WORLD))
    return losses, hook and hook[0].stats()


def run(rank, place):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=WORLD)
    (raw, _), (delta, sent) = (train(rank, codec) for codec in ("raw", "delta:bits=4"))
    if rank == 0:
        print("epoch    raw    delta:bits=4")
        for epoch, pair in enumerate(zip(raw, delta), 1):
            print(f"{epoch:5}  {pair[0]:.4f}         {pair[1]:.4f}")
        ratio = sent["raw_bytes"] / sent["sent_bytes"]
        print(f"bytes of gradients for each byte sent: {ratio:.1f}", flush=True)
    assert delta[-1] < 1.005 * raw[-1], "the loss with delta is more than half a percent higher"
    os._exit(0)  # a thread of torch's gloo that still runs would abort a process that ends


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (os.path.join(folder, "meet"),), WORLD)
