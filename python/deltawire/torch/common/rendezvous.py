# SPDX-License-Identifier: Apache-2.0
# rendezvous.py - Rendezvous: what ranks tell each other through torch's store, and how one refuses.
"""Pipelines and hooks compare their options, tell addresses, and refuse to go on through the
key-value store of torch.distributed, not with a collective. Ranks that disagree might call
different collectives, and gloo terminates a process that receives more than it expects.

Writing never waits; reading waits until the value is there. So members may begin in any order, and
a rank may have several stages."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import sys
import threading
import time
import weakref
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from deltawire.errors import DeltawireError, Status, refuse
from deltawire.torch.common import forks

FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds between two queries of the store
GRACE_S = 0.5  # for a program that catches the error of a refusal, and goes on


def group_of(group: Any) -> Any:
    """Returns the process group, or the default group for None.

    Errors: ARGUMENT (it belongs to the process from which this one was forked)."""
    group = group if group is not None else dist.group.WORLD
    forks.refuse_inherited(group)
    return group


def timeout_of(group: Any) -> float:
    """Returns the timeout of a process group in seconds."""
    for device in ("cpu", "cuda"):
        try:
            return group._get_backend(torch.device(device)).options._timeout.total_seconds()
        except (RuntimeError, AttributeError):
            continue
    return dist.distributed_c10d.default_pg_timeout.total_seconds()


class Rendezvous:
    """The members of a pipeline, which are its stages, or of a hook, which are its ranks.

    A member that refuses to go on tells the reason. Whoever waits for a word of any member then
    ends with this reason. Refusals are a log in the store, which all members read in one order. One
    is void if its member has gone on since, or if this member has refused as often: then all ranks
    run a program that catches the error.

    function: the one that is called to be a member.
    group: a process group. ranks: its global ranks. rank: this one's place among them.
    place: a name in the store. number: counts what a member has made at this place, in the same
        order on all ranks.
    noun: "stage" or "rank". me, members: this member's number, and how many there are.
    timeout: the maximum time in seconds to wait for a word. None: that of the group.
    Errors: ARGUMENT (this rank is not in the group).
    """

    def __init__(
        self,
        function: str,
        group: Any,
        place: str,
        noun: str,
        me: int,
        members: int,
        timeout: "float | None" = None,
    ) -> None:
        self.ranks, self.rank = dist.get_process_group_ranks(group), dist.get_rank(group)
        if self.rank < 0:
            refuse(
                f"this rank is not a member of process_group: call {function} only on its members"
            )
        self.function, self._noun, self._me, self._members = function, noun, me, members
        self.timeout = timeout or timeout_of(group)
        store = distributed_c10d._get_default_store()
        self.number = store.add(f"{place}/made/{me}", 1) - 1
        self._store: Any = dist.PrefixStore(f"{place}/{members}/{self.number}/", store)
        self._read = 0  # entries of the log
        self._times: "dict[int, int]" = {}  # how often each member has refused
        # Refusals of others: the time when this member read it, its number, and the error.
        self._open: "dict[int, tuple[float, int, DeltawireError]]" = {}
        self.error: Any = None  # the last one that was told or heard
        self._refuses, self._lock = False, threading.Lock()
        _all.add(self)

    @classmethod
    def of_ranks(cls, function: str, group: Any, timeout: "float | None" = None) -> "Rendezvous":
        """The ranks of a process group, each of which calls the function."""
        group = group_of(group)
        ranks = dist.get_process_group_ranks(group)
        digest = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
        place = f"deltawire/hooks/{digest}"
        return cls(function, group, place, "rank", dist.get_rank(group), len(ranks), timeout)

    @classmethod
    def of_stages(cls, function: str, group: Any, me: int, stages: int) -> "Rendezvous":
        """The stages of a pipeline over a process group."""
        group = group_of(group)
        place = f"deltawire/stages/{group.group_name}"
        return cls(function, group, place, "stage", me, stages)

    def hear(self, topic: str, word: Any) -> "list[Any]":
        """Tells all members a word on this topic, and returns the words of all, by their numbers.

        Errors: those of word_of."""
        self.tell(topic, word)
        members = range(self._members)
        return [word if one == self._me else self.word_of(topic, one) for one in members]

    def compare(self, topic: str, record: "dict[str, Any]", advice: str = "") -> None:
        """Compares the records of all members on this topic with this one's.

        Errors: MISMATCH, with the field and the member that differ, and the advice; those of
        word_of."""
        advice = advice or (
            f"call {self.function} with the same arguments on all ranks, and use the same version "
            "of deltawire"
        )
        self.tell(topic, record)
        for other in range(self._members):
            theirs = record if other == self._me else self.word_of(topic, other)
            for name in {**record, **theirs}:
                there, here = theirs.get(name, "nothing"), record.get(name, "nothing")
                if there != here:
                    raise DeltawireError(
                        Status["MISMATCH"],
                        f"the {self._noun}s have different values of {name}: {there} on "
                        f"{self.named(other)} but {here} on {self.named(self._me)}; {advice}",
                    )

    def named(self, member: int) -> str:
        return f"{self._noun} {member}" + " of the group" * (self._noun == "rank")

    def tell(self, what: str, value: Any, member: "int | None" = None) -> None:
        """Tells all members a word, and does not wait. Any thread may call."""
        self._store.set(f"{what}/{self._me if member is None else member}", json.dumps(value))

    def word_of(self, what: str, other: int) -> Any:
        """Waits for the word of another member.

        Errors: TIMEOUT; PEER, if torch's store is gone; and that of a member that refuses.

        It polls, because the store's own wait would block all other threads of this process that
        use the store, and one of them may have to write what the other member waits for."""
        key, pause = f"{what}/{other}", FIRST_PAUSE
        end = time.monotonic() + self.timeout
        try:
            while not self._store.check([key]):
                self.look()
                if time.monotonic() > end:
                    raise self._late(what, other)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            return json.loads(self._store.get(key))
        except DeltawireError:
            raise
        except (RuntimeError, ConnectionError) as error:  # the rank that has the store has ended
            for _, _, refusal in self._open.values():
                raise refusal from error
            raise DeltawireError(
                Status["PEER"],
                f"this rank cannot learn whether {self.named(other)} has reached {what}, because "
                "the process that has torch's store (mostly rank 0) has ended or cannot be "
                f"reached: look in the logs of all ranks for what stopped it ({_short(error)})",
            ) from error

    def wait_out(self, other: int) -> None:
        """If another member has refused after its word, waits until it goes on. Errors: its own."""
        self.look()
        while (refusal := self._open.get(other)) and self._is_new(refusal[1]):
            time.sleep(LONGEST_PAUSE)
            self.look()

    def _late(self, what: str, other: int) -> DeltawireError:
        """Returns the error for a member whose word does not come."""
        return DeltawireError(
            Status["TIMEOUT"],
            f"{self.named(other)} did not reach {what} within {self.timeout:g} seconds: call "
            f"{self.function} on every rank, run the same number of steps on all of them, and look "
            "in the log of that one for what stopped it",
        )

    @contextlib.contextmanager
    def refusing(self) -> "Iterator[None]":
        """If an exception leaves the block, this member refuses."""
        try:
            yield
        except BaseException as error:  # KeyboardInterrupt, too
            self.refuse(error)
            raise

    def refuse(self, error: BaseException) -> None:
        """Tells all members that this one cannot go on, unless that is known already."""
        if error is self.error:
            return
        self.error, self._refuses = error, True
        status = error.status if isinstance(error, DeltawireError) else Status["PEER"]
        why = getattr(error, "why", None) or f"{type(error).__name__}: {_short(error)}"
        self._log([self._me, self.rank, status, why])

    def go_on(self) -> None:
        """Withdraws the refusal of this member, whose program has caught the error. Others that
        have refused may do so, too."""
        now = time.monotonic()
        with self._lock:
            self._open = {who: (now, *refusal[1:]) for who, refusal in self._open.items()}
        if self._refuses:
            self._refuses = False
            self._log([self._me, self.rank, None, ""])

    def _log(self, entry: "list[Any]") -> None:
        try:
            number = self._store.add("refusals", 1)
            self._store.set(f"refusal/{number}", json.dumps(entry))
        except (RuntimeError, ConnectionError):
            pass  # the rank that has the store has ended

    def look(self) -> None:
        """Raises the error of a member that refuses."""
        with self._lock:
            while self._store.check([f"refusal/{self._read + 1}"]):
                self._read += 1
                self._take(*json.loads(self._store.get(f"refusal/{self._read}")))
            for since, times, error in self._open.values():
                if self._is_new(times) and time.monotonic() - since > GRACE_S:
                    self.error = error
                    raise error

    def _is_new(self, times: int) -> bool:
        """Whether another member has refused more often than this one."""
        return times > self._times.get(self._me, 0)

    def _take(self, member: int, rank: int, status: Any, why: str) -> None:
        """Takes an entry of the log."""
        self._open.pop(member, None)
        if status is None:
            return
        times = self._times[member] = self._times.get(member, 0) + 1
        if member != self._me:
            error = DeltawireError(status, f"rank {rank} of the group refused: {why}")
            error.rank = rank
            self._open[member] = time.monotonic(), times, error


_all: "weakref.WeakSet[Rendezvous]" = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Tells others about an exception that ends this process, for at most a second."""
    error: Any = getattr(sys, "last_value", None)

    def tell() -> None:
        for rendezvous in list(_all):
            rendezvous.refuse(error)

    if error is not None and _all:
        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        telling.join(1.0)


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
