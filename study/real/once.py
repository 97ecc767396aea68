# SPDX-License-Identifier: Apache-2.0
# once.py - forward passes of a pretrained model through codecs, beside the same without them.
from __future__ import annotations

import sys
import time
from typing import Optional

import torch

import profiles
from boundaries import Baseline, Boundary, autocast, between
from intervals import mean_of
from models import Model

BATCH = 8  # rows in a forward pass, and in a frame
LOGITS = 2**26  # that are held at a time: with 262,144 words a whole batch would take gigabytes
SCALE = 20.0  # of similarities in front of their softmax, as such models are trained


def _last(model: Model, batch: torch.Tensor, codec: list[Boundary]) -> torch.Tensor:
    with between(model, model.source.boundaries, codec):
        words = {"use_cache": False} if model.source.is_causal else {}
        return model.body(input_ids=batch, **words).last_hidden_state


def _log_probabilities(model: Model, hidden: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(model.net.lm_head(hidden).float(), -1)


def _words(model: Model, batch: torch.Tensor, lasts: dict[Optional[str], torch.Tensor]) -> dict:
    """{codec: {what: a figure for each row}} of one batch; the key None is the raw model."""
    found: dict = {codec: {"loss": [], "kl": [], "flips": []} for codec in lasts}
    each = max(1, LOGITS // (batch.shape[1] * model.net.config.vocab_size))
    for start in range(0, len(batch), each):
        part = slice(start, start + each)
        target = batch[part, 1:]
        raw = _log_probabilities(model, lasts[None][part, :-1])
        best = raw.argmax(-1)
        for codec, hidden in lasts.items():
            its = found[codec]
            ours = raw if codec is None else _log_probabilities(model, hidden[part, :-1])
            its["loss"] += (-ours.gather(-1, target[..., None])[..., 0]).mean(-1).tolist()
            if codec is not None:
                its["flips"] += (ours.argmax(-1) != best).float().mean(-1).tolist()
                kl = torch.nn.functional.kl_div(ours, raw, reduction="none", log_target=True)
                its["kl"] += kl.sum(-1).mean(-1).tolist()
    return found


def _sentences(embeddings: dict[Optional[str], torch.Tensor]) -> dict:
    """The same for a model of sentences, from the embeddings of all rows: 1 - cosine, the KL
    divergence between softmaxes of the similarities to all other rows, and whether another row is
    the nearest one."""
    found = {}
    own = torch.eye(len(embeddings[None]), dtype=torch.bool, device=embeddings[None].device)

    def similar(e):
        return torch.log_softmax((SCALE * e @ e.T).masked_fill(own, -torch.inf), -1)

    raw = similar(embeddings[None])
    for codec, e in embeddings.items():
        its = similar(e)
        terms = (raw.exp() * (raw - its)).masked_fill(own, 0)
        found[codec] = {
            "apart": (1 - (e * embeddings[None]).sum(-1)).tolist(),
            "kl": terms.sum(-1).tolist(),
            "flips": (its.argmax(-1) != raw.argmax(-1)).float().tolist(),
        }
    return found


def _figures(rows: dict, raw: dict, boundaries: list[Boundary]) -> dict:
    """The figures of one codec, from those of its rows."""
    wires = [boundary.forward for boundary in boundaries]
    errors = [wire.errors() for wire in wires]
    codecs = [wire for wire in wires if not isinstance(wire, Baseline)]
    counters = [wire.encoder.counters() for wire in codecs]
    bits = [wire.take_bits() for wire in wires]
    its = {
        "bits": sum(bits) / len(bits),
        "bits_at": bits,
        "error_at": [mean for mean, _ in errors],
        "largest_error_at": [largest for _, largest in errors],
        "bulk_error_at": [counter.bulk_error for counter in counters],
        "misfit": [wire.encoder.config.misfit(wire.encoder.counters()) for wire in codecs],
        "escaped_values": [counter.escaped_values for counter in counters],
        "poisoned_groups": [counter.poisoned_groups for counter in counters],
        "kl": mean_of(rows["kl"]),
        "flips_percent": mean_of([100 * value for value in rows["flips"]]),
    }
    if "loss" in rows:
        base = sum(raw["loss"]) / len(raw["loss"])
        its["loss"] = sum(rows["loss"]) / len(rows["loss"])
        its["over_raw_percent"] = mean_of(
            [100 * (a - b) / base for a, b in zip(rows["loss"], raw["loss"])]
        )
    else:
        its["apart"] = mean_of(rows["apart"])
    return its


def _progress(model: Model, done: int, rows: int, began: float) -> None:
    left = (time.monotonic() - began) * (rows - done) / done
    name = model.source.name
    print(f"{name}: {done} of {rows} rows, about {left:.0f} s left", file=sys.stderr, flush=True)


@torch.no_grad()
def measure(
    model: Model, codecs: list[str], rows: torch.Tensor, fit: torch.Tensor
) -> dict:
    """Sends the rows through the model without and with each codec. All codecs see a batch before
    the next one, so the logits of the raw model are computed once, and never kept. fit: rows for
    the profiles of codecs that have one.

    Returns {"model", "rows", "loss" (raw, None for a model of sentences), "codecs": {codec:
    figures}}. An interval [mean, half its width] has the rows as its units."""
    its = profiles.of_codecs(model, codecs, model.source.boundaries, fit)
    ends = {
        codec: [Boundary(codec, keeps_errors=True, profile=profile) for profile in its]
        for codec in codecs
    }
    ends[None] = []
    gathered: dict = {codec: {} for codec in ends}
    began = time.monotonic()
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH].to(model.device)
        with autocast(model.f32, model.device.type):
            lasts = {codec: _last(model, batch, its) for codec, its in ends.items()}
            if model.source.is_causal:
                found = _words(model, batch, lasts)
            else:
                means = {codec: last.float().mean(1) for codec, last in lasts.items()}
                found = {
                    codec: {"e": list(mean / mean.norm(dim=-1, keepdim=True))}
                    for codec, mean in means.items()
                }
        for codec, its in found.items():
            for what, values in its.items():
                gathered[codec].setdefault(what, []).extend(values)
        _progress(model, start + len(batch), len(rows), began)
    if not model.source.is_causal:
        gathered = _sentences({codec: torch.stack(its["e"]) for codec, its in gathered.items()})
    raw = gathered.pop(None)
    return {
        "model": model.source.name,
        "rows": len(rows),
        "dtype": model.dtype,
        "loss": sum(raw["loss"]) / len(raw["loss"]) if "loss" in raw else None,
        "codecs": {codec: _figures(its, raw, ends[codec]) for codec, its in gathered.items()},
    }
