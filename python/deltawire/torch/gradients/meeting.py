# SPDX-License-Identifier: Apache-2.0
# meeting.py - Meeting: checks that all ranks agree before they start a collective.
"""The ranks compare through the key-value store of torch.distributed and not with a collective.
Ranks that disagree might call different collectives, and gloo terminates a process that receives
more than it expects."""

from __future__ import annotations

import hashlib
from typing import Any

import torch.distributed as dist

from deltawire.errors import DeltawireError, Status, refuse
from deltawire.torch.common.rendezvous import Words, group_of, timeout_of


class Meeting(Words):
    """Compares records of the ranks of one hook.

    group: a process group; its ranks number the members. timeout: None: that of the group.
    function: the function that makes the hook, for messages.
    Errors: ARGUMENT (this rank is not in the group).
    """

    def __init__(self, group: Any, timeout: "float | None", function: str) -> None:
        group = group_of(group)
        self.ranks, self.rank = dist.get_process_group_ranks(group), dist.get_rank(group)
        if self.rank < 0:
            refuse(
                f"this rank is not a member of process_group: call {function} only on its members"
            )
        self.function = function
        digest = hashlib.sha256(repr(self.ranks).encode()).hexdigest()[:16]
        place = f"deltawire/hooks/{digest}"
        # The number of hooks that this rank has made or refused to make. All ranks make their hooks
        # in the same order.
        store = dist.distributed_c10d._get_default_store()
        number = store.add(f"{place}/hooks/{self.rank}", 1)
        super().__init__(f"{place}/{number}/", self.rank, self.rank, timeout or timeout_of(group))

    def compare(self, topic: str, record: "dict[str, str]", advice: str) -> None:
        """Waits for the records of all ranks on this topic, and compares them with this rank's.

        Errors: MISMATCH, with the field and the rank that differ, and the advice; TIMEOUT.
        """
        self.tell(topic, record)
        for other in range(len(self.ranks)):
            if other != self.rank:
                _same(record, self.word_of(topic, other), self.rank, other, advice)

    def hear(self, topic: str, word: Any) -> "list[Any]":
        """Tells all ranks a word on this topic, and returns the words of all, in rank order.

        Errors: TIMEOUT."""
        self.tell(topic, word)
        ranks = range(len(self.ranks))
        return [word if rank == self.rank else self.word_of(topic, rank) for rank in ranks]

    def late(self, what: str, other: int, reason: str) -> DeltawireError:
        return DeltawireError(
            Status["TIMEOUT"],
            f"rank {self.ranks[other]} did not reach {what} of {self.function} within "
            f"{self.timeout:g} seconds: call {self.function} on every rank, and run the same "
            f"number of steps on all of them{reason}",
        )


def _same(mine: Any, theirs: Any, rank: int, other: int, advice: str) -> None:
    for name in {**mine, **theirs}:
        here, there = mine.get(name, "nothing"), theirs.get(name, "nothing")
        if here != there:
            raise DeltawireError(
                Status["MISMATCH"],
                f"the ranks have different values of {name}: {there} on rank {other} of the group "
                f"but {here} on rank {rank}; {advice}",
            )
