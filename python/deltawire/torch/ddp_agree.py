# SPDX-License-Identifier: Apache-2.0
# ddp_agree.py - ranks compare what they must have in common, before a collective could go wrong.
"""They meet in the store of torch.distributed, not in a collective: ranks that disagree may call
different collectives, and gloo ends a process that receives more than it expects."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import torch.distributed as dist

from deltawire.errors import DeltawireError, Status

FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds between two looks into the store


class Meeting:
    """Where the ranks of one hook meet.

    ranks: of the default group, in the order of the hook's group. rank: this one's place in it.
    timeout: seconds that one rank waits for the others.
    """

    def __init__(self, ranks: "list[int]", rank: int, timeout: float) -> None:
        self.ranks, self.rank, self.timeout = ranks, rank, timeout
        group = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
        store = dist.distributed_c10d._get_default_store()
        store = dist.PrefixStore(f"deltawire/ddp/{group}/", store)
        # How many hooks this rank has made: all ranks make theirs in the same order.
        number = store.add(f"hooks/{rank}", 1)
        self._store = dist.PrefixStore(f"{number}/", store)

    def compare(self, topic: str, record: "dict[str, str]", advice: str) -> None:
        """Returns when every rank has come to this topic with the same record.

        Errors: MISMATCH, which names the first field and rank that differ, then advice; TIMEOUT.
        """
        self._store.set(f"{topic}/{self.rank}", json.dumps(record))
        for other in range(len(self.ranks)):
            if other != self.rank:
                _same(record, self._record_of(topic, other), self.rank, other, advice)

    def _record_of(self, topic: str, other: int) -> "dict[str, Any]":
        key, pause = f"{topic}/{other}", FIRST_PAUSE
        deadline = time.monotonic() + self.timeout
        while not self._store.check([key]):
            if time.monotonic() > deadline:
                raise DeltawireError(
                    Status["TIMEOUT"],
                    f"rank {self.ranks[other]} has not come to {topic} of ddp_hook within "
                    f"{self.timeout:g} s: every rank must register one, and take the same steps",
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
                f"the ranks differ in {name}: {there} at rank {other} of the group, {here} at "
                f"rank {rank}; {advice}",
            )
