# SPDX-License-Identifier: Apache-2.0
# pipelines.py - Pipe: one rank of a pipeline-parallel training, for the tests.
"""Ranks.run calls these functions on each rank."""

import io
import warnings

import torch
from torch.distributed import pipelining

import small_gpt
from deltawire.torch import compress_stage

SCHEDULES = {
    "gpipe": (pipelining.ScheduleGPipe, 1),
    "1f1b": (pipelining.Schedule1F1B, 1),
    "interleaved": (pipelining.ScheduleInterleaved1F1B, 2),
    "zbv": (pipelining.ScheduleZBVZeroBubble, 2),
    "dualpipev": (getattr(pipelining, "ScheduleDualPipeV", None), 2),
}
HAS_EVAL = hasattr(pipelining.ScheduleGPipe, "eval")
if not HAS_EVAL:
    SCHEDULES["zbv"] = (None, 2)  # torch 2.6 cannot infer the shapes of such schedules


def stage_indices(name, rank, world):
    """Returns the indices of the stages on this rank."""
    each = SCHEDULES[name][1]
    if each == 1:
        return [rank]
    if name == "interleaved":
        return [rank, rank + world]
    return [rank, 2 * world - 1 - rank]


class Pipe:
    """The stages of one rank, with their schedule and optimizer."""

    def __init__(self, rank, world, name="gpipe", microbatches=4, options=None, make=None, seed=0):
        kind, each = SCHEDULES[name]
        stages = world * each
        make = make or (lambda i: small_gpt.Stage(i, stages, seed=seed))
        self.stages = []
        for index in stage_indices(name, rank, world):
            stage = pipelining.PipelineStage(make(index), index, stages, torch.device("cpu"))
            if options is not None:
                compress_stage(stage, **options)
            self.stages.append(stage)
        given = self.stages[0] if each == 1 else self.stages
        self.schedule = kind(given, microbatches, loss_fn=small_gpt.loss_of)
        self.first = any(stage.is_first for stage in self.stages)
        self.last = any(stage.is_last for stage in self.stages)
        parameters = [p for stage in self.stages for p in stage.submod.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step(self, x, y, ids=None):
        """Runs a training step. Returns the loss on the rank of the last stage, else None."""
        self.optimizer.zero_grad()
        named, losses = {}, []
        if self.first and ids is not None:
            named["sample_ids"] = ids
        if self.last:
            named.update(target=y, losses=losses)
        self.schedule.step(*((x,) if self.first else ()), **named)
        self.optimizer.step()
        return torch.stack(losses).mean().item() if self.last else None

    def steps(self, n=1, length=32):
        """Runs n steps with the first eight samples, whose ids are 0 to 7. Returns their losses."""
        x, y = small_gpt.samples(8, length)
        return [self.step(x, y, torch.arange(8)) for _ in range(n)]

    def saved(self):
        """The bytes of a file with the state of all stages, their models and the optimizer."""
        disk = io.BytesIO()
        held = [stage.compression_state_dict() for stage in self.stages]
        models = [stage.submod.state_dict() for stage in self.stages]
        torch.save((held, models, self.optimizer.state_dict()), disk)
        return disk.getvalue()

    def load(self, disk, with_compression=True):
        held, models, optimizer = torch.load(io.BytesIO(disk), weights_only=True)
        for stage, model in zip(self.stages, models):
            stage.submod.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        for stage, state in zip(self.stages, held) if with_compression else ():
            stage.load_compression_state_dict(state)

    def evaluate(self, x, y):
        named, losses = {}, []
        if self.last:
            named.update(target=y, losses=losses)
        with torch.no_grad():
            self.schedule.eval(*((x,) if self.first else ()), **named)
        return torch.stack(losses).mean().item() if self.last else None

    def stats(self):
        return [s.compression_stats() for s in self.stages if hasattr(s, "compression_stats")]


def train(rank, world, name, options, epochs=2, count=16, batch=8, **named):
    """Trains. Returns the loss of each step, the statistics of each stage, and the warnings."""
    pipe = Pipe(rank, world, name, options=options, **named)
    x, y = small_gpt.samples(count, 32)
    losses = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(epochs):
            for start in range(0, count, batch):
                part = slice(start, start + batch)
                ids = torch.arange(count)[part] if options is not None else None
                losses.append(pipe.step(x[part], y[part], ids))
    spoken = [str(w.message) for w in said if "deltawire" in str(w.filename)]
    return losses, pipe.stats(), spoken


def last_losses(answers):
    """Returns the losses of the rank that has the last stage."""
    return next(losses for losses, *_ in answers if losses and losses[0] is not None)
