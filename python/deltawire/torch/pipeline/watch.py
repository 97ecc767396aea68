# SPDX-License-Identifier: Apache-2.0
# watch.py - warnings of a stage: Watch, if ids do not recur or are not those of samples, which
# costs bandwidth and memory; Exact, if much is sent without compression.
"""Watch assumes that an epoch ends when dataset_size samples have been sent or, if dataset_size is
not given, when an evaluation begins."""

from __future__ import annotations

import warnings
from typing import Any, Iterable, Optional, Sequence

import torch

from deltawire.errors import DeltawireError
from deltawire.torch.common import tensors
from deltawire.torch.common.misfit import Fit

ADVICE = (
    "Give a sample the same id in every epoch: its index in the data set, not its position in the "
    "batch or in a shuffled order. If samples are augmented differently in every epoch, "
    'forward="direct:form=step,step=0.15,entropy=rans" is the better choice'
)


class Nearness:
    """Whether a sample is nearer to what is held for its id than to what is held for another one.

    Samples with ids of their own are, with any learning rate, with dropout and with most
    augmentations: the other one has changed by as much. Otherwise half of them are, by chance.
    Neither the size of the change nor the share of groups that are coded directly tells it: both
    depend on the learning rate and on what all samples have in common.

    pairs, nearer: the comparisons until now, and how many were in favour of the own id."""

    PAIRS = 128

    def __init__(self) -> None:
        self.pairs = self.nearer = 0
        self._own = self._others = 0.0  # sums of distances
        self._other: "Optional[tuple[int, torch.Tensor]]" = None  # was held for the last sample

    def compare(self, encoder: Any, id: int, sample: torch.Tensor) -> None:
        """Compares a sample that the encoder will encode next with this id."""
        try:
            held = torch.from_dlpack(encoder.peek(id)).flatten().float()
        except DeltawireError:
            return  # its first visit
        other, self._other = self._other, (id, held)
        x = sample.detach().flatten().to("cpu", torch.float32)
        if other is None or other[0] == id or not x.shape == held.shape == other[1].shape:
            return
        own, others = ((x - one).norm().item() for one in (held, other[1]))
        if own + others < float("inf"):
            self.pairs += 1
            self.nearer += own < others
            self._own, self._others = self._own + own, self._others + others

    def is_chance(self) -> bool:
        return 3 * self.nearer < 2 * self.pairs and self._own > 0.9 * self._others


class Exact:
    """Warns once if a stage sends much without compression, after its first step, in which tensors
    travel that do not come again.

    stage: its index."""

    STEPS, MOST = 8, 0.1

    def __init__(self, stage: int) -> None:
        self._stage, self._steps = stage, 0
        self._at_first = (0, 0)  # exact bytes, and all

    def look(self, senders: "Iterable[Any]") -> None:
        """Called once for a step that has not failed. senders: those of the stage."""
        senders = list(senders)
        exact, whole = (
            sum(getattr(sender, name) for sender in senders) - first
            for name, first in zip(("exact_bytes", "message_bytes"), self._at_first)
        )
        if not whole or self._steps > self.STEPS:
            return
        self._steps += 1
        if self._steps == 1:
            self._at_first = (exact, whole)
        elif self._steps > self.STEPS and exact > self.MOST * whole:
            warnings.warn(
                f"stage {self._stage} sends {100 * exact / whole:.0f} % of its bytes without "
                "compression, in tensors that no codec accepts and that change: codecs accept "
                "float32, float16 and bfloat16 with samples first and channels last, so convert "
                "such tensors, or compute masks, positions and indices in each stage",
                RuntimeWarning,
                stacklevel=2,
            )


class Watch:
    """Watches one Sender; look is called at the beginning of every step, sends before a message.

    dataset_size: the number of samples in the data set, or None. kind, where: as for Fit."""

    def __init__(self, dataset_size: Optional[int], kind: str, where: str) -> None:
        self._size, self._where = dataset_size, where
        # Gradients of a sample differ from epoch to epoch as those of two samples do.
        self._nearness = Nearness() if kind == "activations" else None
        self._fit = Fit(kind, where)
        self._epochs = 0
        self._at_epoch = (0, 0)  # hits and visits
        self._visits_at_epoch = 0
        self._evaluated = False
        self._said: "set[str]" = set()

    def look(self, sender: Any, evaluates: bool) -> None:
        """Warns if necessary. evaluates: whether the last step had no ids."""
        self._fit.look(sender.encoders)
        keyed = [end.counters() for end in sender.stateful().values()]
        if not keyed:
            return
        hits = sum(c.delta_entries + c.skipped_entries for c in keyed)
        visits = hits + sum(c.key_entries for c in keyed)
        held = max(c.keys_held for c in keyed)
        if self._size is not None:
            if held > self._size:
                self._say(
                    "keys",
                    f"{held} ids are held for what is sent {self._where}, but the data set has "
                    f"{self._size} samples, so memory grows without end. {ADVICE}.",
                )
            over = visits - self._visits_at_epoch >= self._size * len(keyed)
        else:
            over = evaluates and not self._evaluated and visits > self._visits_at_epoch
        self._evaluated = evaluates
        if not over:
            return
        before, self._at_epoch = self._at_epoch, (hits, visits)
        self._visits_at_epoch = visits
        self._epochs += 1
        new = visits - before[1]
        if self._epochs >= 2 and new and (hits - before[0]) / new < 0.05:
            unless = (
                ""
                if self._size is not None
                else "An evaluation counts as the end of an epoch: if there are more of them, give "
                "dataset_size=, the number of samples of the data set. "
            )
            self._say(
                "hits",
                f"after {self._epochs} epochs, only {hits} of {visits} samples sent "
                f"{self._where} could be coded as a change since their last visit. {unless}"
                f"{ADVICE}.",
            )

    def sends(
        self, sender: Any, given: "Sequence[torch.Tensor]", ids: "Optional[list[int]]"
    ) -> None:
        """Warns if necessary. given, ids: what the sender will encode next."""
        nearness, encoder = self._nearness, sender.stateful().get(0)
        if nearness is None or encoder is None or not ids or len(given[0]) != len(ids):
            return
        nearness.compare(encoder, ids[0], tensors.samples(given[0][:1]))
        if nearness.pairs < Nearness.PAIRS:
            return
        self._nearness = None
        if nearness.is_chance():
            self._say(
                "chance",
                f"of {nearness.pairs} samples sent {self._where}, {nearness.nearer} are nearer to "
                "what was last sent with their id than to what was sent with another id, as chance "
                "would have it, so these are not the ids of samples, or samples have nothing in "
                f"common with their last visit. {ADVICE}.",
            )

    def _say(self, what: str, sentence: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
