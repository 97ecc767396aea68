# SPDX-License-Identifier: Apache-2.0
# processes.py - that the boundaries inside of one process do what a pipeline of two processes does.
"""SmolLM2 is cut into two modules after its middle boundary. They are trained in one process, with
boundaries.py between them, and in two, by torch's PipelineStage and deltawire's compress_stage.
The losses of all steps must be the same bits.

In both, the output layer has weights of its own, because weights that both halves own would need
an exchange of gradients; gradients are not clipped, because the norm is that of both halves; there
is one thread, because sums of several threads are rounded otherwise; and a batch is one
micro-batch."""

from __future__ import annotations

import copy
import pathlib
import sys

import torch
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import models
import profiles
from boundaries import RAW, Boundary, autocast, send
from training import BATCH

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/python/torch"))
from ranks import Ranks  # noqa: E402

NAME = "smollm2"
TIMEOUT_S = 600  # of one exchange between the processes, as models load slowly on a busy machine


class Half(torch.nn.Module):
    """The layers up to the boundary with the embeddings, or those after it with the output."""

    def __init__(self, model: models.Model, body: torch.nn.Module, is_first: bool) -> None:
        super().__init__()
        cut = model.source.boundaries[1] + 1
        self.is_first, self.f32, self.body = is_first, model.f32, body
        if is_first:
            body.layers = body.layers[:cut]
            body.norm = torch.nn.Identity()
        else:
            body.layers = body.layers[cut:]
            body.embed_tokens = None
            self.head = copy.deepcopy(model.net.lm_head)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = {"input_ids" if self.is_first else "inputs_embeds": x, "use_cache": False}
        with autocast(self.f32):
            x = self.body(**given).last_hidden_state
            return x if self.is_first else self.head(x)


def halves(model: models.Model) -> list[Half]:
    second = copy.deepcopy(model.body)
    return [Half(model, model.body, True), Half(model, second, False)]


def loss_of(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), rows[:, 1:].flatten()
    )


def of_one_process(
    model: models.Model, pair: str, rows: torch.Tensor, steps: list[torch.Tensor], rate: float
) -> list[float]:
    """The loss of each step. steps: the ids of the rows of each batch. Uses the model up."""
    both = torch.nn.ModuleList(halves(model))
    boundary = Boundary(*pair.split("/"))
    optimizer = torch.optim.AdamW(both.parameters(), lr=rate)
    losses = []
    for ids in steps:
        optimizer.zero_grad()
        boundary.begin(ids.tolist())
        loss = loss_of(both[1](send(both[0](rows[ids]), boundary)), rows[ids])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _of_rank(
    rank: int,
    world: int,
    folder: pathlib.Path,
    f32: bool,
    pair: str,
    rows: torch.Tensor,
    steps: list[torch.Tensor],
    rate: float,
) -> list[float]:
    from deltawire.torch import compress_stage

    half = halves(models.load(NAME, folder, f32))[rank]
    stage = PipelineStage(half, rank, world, torch.device("cpu"))
    forward, backward = ("raw:f32" if codec == RAW else codec for codec in pair.split("/"))
    fits = "fit" if forward.endswith(profiles.FIT) else {}
    compress_stage(stage, forward=profiles.plain(forward), backward=backward, profiles=fits)
    schedule = ScheduleGPipe(stage, 1, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(half.parameters(), lr=rate)
    losses = []
    for ids in steps:
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(rows[ids], sample_ids=ids)
        else:
            its: list[torch.Tensor] = []  # the schedule clears it in each step
            schedule.step(target=rows[ids], losses=its)
            losses.append(its[0].item())
        optimizer.step()
    return losses


def steps_of(seed: int, samples: int, epochs: int) -> list[torch.Tensor]:
    """The ids of each batch, in an order that the seed draws."""
    drawn = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(samples, generator=drawn) for _ in range(epochs)]
    return [ids for order in orders for ids in order.split(BATCH)]


def of_two_processes(folder: pathlib.Path, f32: bool, *given: object) -> list[float]:
    """The same in two processes. given: what of_one_process is given after the model."""
    ranks = Ranks()
    try:
        return ranks.run(2, _of_rank, folder, f32, *given, timeout=TIMEOUT_S)[1]
    finally:
        ranks.stop()
