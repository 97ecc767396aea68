# SPDX-License-Identifier: Apache-2.0
# training.py - fine-tunes a pretrained model with codecs at its boundaries, in one process.
from __future__ import annotations

import contextlib
import sys
import time
from typing import Callable, Optional

import torch

import profiles
from boundaries import Boundary, autocast, between
from models import Model
from replicas import REPLICAS, Replicas

BATCH = 8  # rows in a step, and in a frame
CLIP = 1.0  # gradients are scaled so that the norm of all of them is at most this
LOGITS = 2**26  # that are held at a time, with their gradients
RATES = {"smollm2": 5e-5, "gemma": 2e-5}


def _losses(
    model: Model, hidden: torch.Tensor, batch: torch.Tensor, learns: bool
) -> tuple[list[float], Optional[torch.Tensor]]:
    """The loss of each row, and, if the model learns, the gradient of their mean with respect to
    the last hidden state. The gradient of the weights behind it is added to theirs.

    Logits are made for some rows at a time: those of a whole batch would take gigabytes."""
    cut = hidden.detach().requires_grad_(learns)
    losses = []
    each = max(1, LOGITS // (batch.shape[1] * model.net.config.vocab_size))
    for start in range(0, len(batch), each):
        part = slice(start, start + each)
        with autocast(model.f32, model.device.type):
            logits = model.net.lm_head(cut[part, :-1]).float()
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch[part, 1:].flatten(), reduction="none"
        ).view(-1, batch.shape[1] - 1)
        losses += loss.detach().mean(-1).tolist()
        if learns:
            (loss.mean(-1).sum() / len(batch)).backward()
    return losses, cut.grad


def _passed(
    model: Model,
    batch: torch.Tensor,
    boundaries: list[Boundary],
    places: tuple[int, ...],
    learns: bool,
) -> list[float]:
    """Sends a batch forward and, if the model learns, its gradient backward. Returns the loss of
    each row."""
    batch = batch.to(model.device)
    with contextlib.nullcontext() if learns else torch.no_grad():
        with between(model, places, boundaries):
            with autocast(model.f32, model.device.type):
                hidden = model.body(input_ids=batch, use_cache=False).last_hidden_state
            losses, gradient = _losses(model, hidden, batch, learns)
            if learns:
                hidden.backward(gradient)
    return losses


def evaluated(
    model: Model,
    held: torch.Tensor,
    forward: str,
    places: tuple[int, ...],
    trained: list[Boundary],
) -> float:
    """The mean loss of rows that are held out. They pass encoders and decoders of their own, which
    are given no ids, so the state of the training is not touched; profiles are those of the
    training."""
    profiles_now = [boundary.forward.profile if boundary.forward else None for boundary in trained]
    boundaries = [Boundary(forward, profile=profile) for profile in profiles_now]
    losses = []
    for batch in held.split(BATCH):
        losses += _passed(model, batch, boundaries, places, learns=False)
    return sum(losses) / len(losses)


def _bits(boundaries: list[Boundary], way: str) -> Optional[list[float]]:
    wires = [getattr(boundary, way) for boundary in boundaries]
    return [wire.take_bits() for wire in wires] if None not in wires else None


def places_of(model: Model, stages: int) -> tuple[int, ...]:
    """After which layers the model is cut."""
    every = model.source.boundaries
    return every if stages == 4 else every[1:2]


def train(
    model: Model,
    settings: dict,
    shares: dict[str, torch.Tensor],
    say: Callable[[int, dict, float], None],
) -> list[dict]:
    """Fine-tunes the model, which must have its first weights. settings: what results.py writes.

    The seed draws the rows and their order, so runs with the same seed differ by their codecs only.
    After each epoch say(epoch, figures, seconds since the start) is called. Returns the figures."""
    forward, backward, *weights = settings["pair"].split("/")
    places = places_of(model, settings["stages"])
    its = profiles.of_codecs(model, [forward], places, shares["fit"])  # before the first step
    boundaries = [Boundary(forward, backward, profile=profile) for profile in its]
    drawn = torch.Generator().manual_seed(settings["seed"])
    taken = torch.randperm(len(shares["train"]), generator=drawn)[: settings["samples"]]
    rows = shares["train"][taken]
    parameters = list(model.net.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=settings["rate"])
    replicas = Replicas(weights[0]) if weights else None
    parts = REPLICAS if replicas else 1
    torch.manual_seed(settings["seed"])
    epochs, began = [], time.monotonic()
    for epoch in range(settings["epochs"]):
        losses = []
        for ids in torch.randperm(len(rows), generator=drawn).split(BATCH):
            optimizer.zero_grad(set_to_none=True)
            for its in ids.chunk(parts):
                for boundary in boundaries:
                    boundary.begin(its.tolist())
                losses += _passed(model, rows[its], boundaries, places, learns=True)
                if replicas:
                    replicas.came(parameters)
            if replicas:
                replicas.mean(parameters)
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
        epochs.append(
            {
                "training_loss": sum(losses) / len(losses),
                "held_out_loss": evaluated(model, shares["held"], forward, places, boundaries),
                "bits_forward": _bits(boundaries, "forward"),
                "bits_backward": _bits(boundaries, "backward"),
                "bits_weights": [replicas.take_bits()] if replicas else None,
            }
        )
        say(epoch + 1, epochs[-1], time.monotonic() - began)
    if replicas:
        replicas.close()
    return epochs


class Trainings:
    """Runs trainings of one model, whose first weights are restored before each."""

    def __init__(self, model: Model, shares: dict[str, torch.Tensor], left: int) -> None:
        self.model, self.shares = model, shares
        self.left = left  # trainings, with the next one
        self.first = {name: t.clone() for name, t in model.net.state_dict().items()}

    def run(self, settings: dict) -> list[dict]:
        self.model.net.load_state_dict(self.first)

        def say(epoch: int, its: dict, seconds: float) -> None:
            rest = seconds / epoch * (self.left * settings["epochs"] - epoch)
            print(
                f"{settings['model']} {settings['pair']} seed {settings['seed']}, epoch {epoch}: "
                f"training {its['training_loss']:.4f}, held out {its['held_out_loss']:.4f}; about "
                f"{rest / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )

        epochs = train(self.model, settings, self.shares, say)
        self.left -= 1
        return epochs
