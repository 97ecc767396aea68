# SPDX-License-Identifier: Apache-2.0
# ddp_agree.py - Meeting: checks that all ranks agree before they start a collective.
"""The ranks compare through the key-value store of torch.distributed and not with a collective.
Ranks that disagree might call different collectives, and gloo terminates a process that receives
more than it expects."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import torch.distributed as dist

from deltawire.errors import DeltawireError, Status

FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds between two queries of the store


class Meeting:
    """Compares records of the ranks of one hook.

    ranks: the global ranks, in the order of the hook's group. rank: the position of this rank.
    timeout: the maximum time in seconds that a rank waits for the others.
    function: the function that made the hook, for messages.
    """

    def __init__(
        self, ranks: "list[int]", rank: int, timeout: float, function: str = "ddp_hook"
    ) -> None:
        self.ranks, self.rank, self.timeout = ranks, rank, timeout
        self.function = function
        group = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
        store = dist.distributed_c10d._get_default_store()
        store = dist.PrefixStore(f"deltawire/{function}/{group}/", store)
        # The number of hooks that this rank has made. All ranks make their hooks in the same order.
        number = store.add(f"hooks/{rank}", 1)
        self._store = dist.PrefixStore(f"{number}/", store)

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

    def tell(self, topic: str, word: Any) -> None:
        """Tells all ranks a word on this topic, and does not wait. Any thread may call."""
        self._store.set(f"{topic}/{self.rank}", json.dumps(word))

    def word_of(self, topic: str, other: int) -> Any:
        """Waits for the word of another rank on this topic. Errors: TIMEOUT."""
        key, pause = f"{topic}/{other}", FIRST_PAUSE
        deadline = time.monotonic() + self.timeout
        while not self._store.check([key]):
            if time.monotonic() > deadline:
                raise DeltawireError(
                    Status["TIMEOUT"],
                    f"rank {self.ranks[other]} did not reach {topic} of {self.function} "
                    f"within {self.timeout:g} seconds: call {self.function} on every rank, and run "
                    "the same number of steps on all of them",
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return json.loads(self._store.get(key))


def _same(mine: Any, theirs: Any, rank: int, other: int, advice: str) -> None:
    for name in sorted({*mine, *theirs}):
        here, there = mine.get(name, "nothing"), theirs.get(name, "nothing")
        if here != there:
            raise DeltawireError(
                Status["MISMATCH"],
                f"the ranks have different values of {name}: {there} on rank {other} of the group "
                f"but {here} on rank {rank}; {advice}",
            )
