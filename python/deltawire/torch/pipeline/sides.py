# SPDX-License-Identifier: Apache-2.0
# sides.py - Sides: the neighbours of a stage that are on other ranks, with their codecs.
from __future__ import annotations

from typing import Any, Iterator, Optional

from deltawire.errors import DeltawireError
from deltawire.storage import Storage
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.pipeline import torch_stage
from deltawire.torch.pipeline.options import Options
from deltawire.torch.pipeline.receiver import Receiver
from deltawire.torch.pipeline.sender import Sender
from deltawire.torch.pipeline.side import Side
from deltawire.torch.pipeline.snapshots import Snapshots
from deltawire.torch.pipeline.watch import Watch


class Sides:
    """It owns both sides and their storage.

    before, after: None if that stage is on this rank, or does not exist."""

    def __init__(self) -> None:
        self.before: Optional[Side] = None
        self.after: Optional[Side] = None
        self._storage: Optional[Storage] = None
        self._owns_storage = False
        self.snapshots = Snapshots()

    def __iter__(self) -> "Iterator[Side]":
        return (side for side in (self.before, self.after) if side is not None)

    def make(self, stage: Any, options: Options, rendezvous: Rendezvous) -> None:
        """Makes those that are missing. torch must know which stage is on which rank."""
        me = stage.stage_index
        forward = (options.forward, options.evaluate, options.threads)
        backward = (options.backward, None, options.threads)
        if self._storage is None:
            self._storage = options.storage_of(me)
            self._owns_storage = isinstance(options.state, str)
            self.snapshots = Snapshots(self._storage, makes=self._owns_storage)
        to: "dict[str, Any]" = {"storage": self._storage}
        if self.before is None and not stage.is_first and not torch_stage.is_here(stage, me - 1):
            codecs = (
                Sender(*backward, f"{me} to {me - 1}", keeps=False, **to),
                Receiver(*forward, profile=options.profile_of(me - 1), **to),
            )
            watch = Watch(options.dataset_size, "gradients", f"backward by stage {me}")
            self.before = Side(me, me - 1, codecs, watch, rendezvous)
        if self.after is None and not stage.is_last and not torch_stage.is_here(stage, me + 1):
            sender = Sender(*forward, f"{me} to {me + 1}", options.profile_of(me), **to)
            watch = Watch(options.dataset_size, "activations", f"forward by stage {me}")
            self.after = Side(me, me + 1, (sender, Receiver(*backward, **to)), watch, rendezvous)

    def ends(self) -> "dict[str, tuple[Any, Side]]":
        """Returns senders and receivers by name, each with its side."""
        made: "dict[str, tuple[Any, Side]]" = {}
        if self.after:
            made["forward_sent"] = self.after.sender, self.after
            made["backward_received"] = self.after.receiver, self.after
        if self.before:
            made["forward_received"] = self.before.receiver, self.before
            made["backward_sent"] = self.before.sender, self.before
        return made

    def stats(self) -> "dict[str, Any]":
        return {
            name: {**end.stats(), **side.seconds(name.endswith("sent"))}
            for name, (end, side) in self.ends().items()
        }

    def prefetch(self, ids: Any) -> None:
        """Begins to read the state of these ids, where it is in a file."""
        for end, _ in self.ends().values():
            end.prefetch(ids)

    def reset(self) -> None:
        for side in self:
            side.sender.reset()

    def close(self) -> None:
        for side in self:
            try:
                side.close()
            except DeltawireError:
                pass  # the neighbour is gone
        for end, _ in self.ends().values():
            end.close()
        if self._storage is not None and self._owns_storage:
            self._storage.close()
