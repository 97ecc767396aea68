# SPDX-License-Identifier: Apache-2.0
# 07_fsdp.py - FSDP2 with compressed gradients: one more line of code.
"""Two processes train a small model on a text that every Debian has, each with half of all
parameters. compress_fsdp sends 4 bits per value, with error feedback. It prints the losses:

    epoch    raw    4 bits
        1  3.2473    3.2500
        2  2.4361    2.4393
        3  2.1701    2.1742
    bytes of gradients for each byte sent: 7.3
"""

import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import deltawire.torch

WORLD, EPOCHS, BATCH, CONTEXT = 2, 3, 32, 8
TEXT = "/usr/share/common-licenses/GPL-3"


def sharded_model_of_bytes():
    torch.manual_seed(1)
    hidden = nn.Linear(16 * CONTEXT, 128), nn.GELU(), nn.Linear(128, 256)
    model = nn.Sequential(nn.Embedding(256, 16), nn.Flatten(), *hidden)
    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in (model[2], model[4]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(rank, codec):
    """Trains a model. Returns the mean loss of each epoch, and the statistics of compress_fsdp."""
    model = sharded_model_of_bytes()
    state = deltawire.torch.compress_fsdp(model, codec) if codec else None
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-3), []
    text = torch.frombuffer(bytearray(pathlib.Path(TEXT).read_bytes()), dtype=torch.uint8)
    data = text.unfold(0, CONTEXT + 1, 4).long()
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
    return losses, state and state.stats()


def run(rank, place):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=WORLD)
    (raw, _), (four, sent) = (train(rank, codec) for codec in (None, "direct:bits=4,feedback=ef"))
    if rank == 0:
        print("epoch    raw    4 bits")
        for epoch, pair in enumerate(zip(raw, four), 1):
            print(f"{epoch:5}  {pair[0]:.4f}    {pair[1]:.4f}")
        ratio = sent["raw_bytes"] / WORLD / sent["sent_bytes"]  # a rank keeps its own half
        print(f"bytes of gradients for each byte sent: {ratio:.1f}", flush=True)
    assert four[-1] < 1.005 * raw[-1], "the loss with 4 bits is more than half a percent higher"
    os._exit(0)  # a thread of torch's gloo that still runs would abort a process that ends


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (os.path.join(folder, "meet"),), WORLD)
