# SPDX-License-Identifier: Apache-2.0
# rendezvous.py - Words and Agreement: what ranks tell each other before the first step.
"""The members of a pipeline or of a hook write to the key-value store of torch.distributed. Writing
never waits; reading waits until the value is there. So they may start in any order, and a rank may
have several stages."""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
import threading
import time
import weakref
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from deltawire.errors import DeltawireError, Status
from deltawire.torch.common import forks

# For each process group and stage index: the number of pipelines made so far. It tells pipelines of
# the same process group apart.
_counts: "weakref.WeakKeyDictionary[Any, dict[int, int]]" = weakref.WeakKeyDictionary()
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds between two queries of the store
FIRST_STEP = "the first step"  # a word of a rank; all others of an Agreement are of a stage
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


class Words:
    """What the members of a pipeline or of a hook tell each other.

    A member that refuses to go on tells the reason. Whoever waits for a word of any member then
    ends with this reason. Refusals are a log in the store, which all members read in one order. One
    is void if its member has gone on since, or if this member has refused as often: then all ranks
    run a program that catches the error.

    place: the beginning of all keys. me: the number of this member. rank: its rank in the group.
    timeout: the maximum time in seconds to wait for a word.
    """

    def __init__(self, place: str, me: int, rank: int, timeout: float) -> None:
        store = distributed_c10d._get_default_store()
        self._store: Any = dist.PrefixStore(place, store)
        self._me, self._rank, self.timeout = me, rank, timeout
        self._read = 0  # entries of the log
        self._times: "dict[int, int]" = {}  # how often each member has refused
        # Refusals of others: the time when this member read it, its number, and the error.
        self._open: "dict[int, tuple[float, int, DeltawireError]]" = {}
        self.error: Any = None  # the last one that was told or heard
        self._refuses, self._lock = False, threading.Lock()
        _all.add(self)

    def tell(self, what: str, value: Any, member: "int | None" = None) -> None:
        """Tells all members a word, and does not wait. Any thread may call."""
        self._store.set(f"{what}/{self._me if member is None else member}", json.dumps(value))

    def word_of(self, what: str, other: int) -> Any:
        """Waits for the word of another member. Errors: TIMEOUT, and that of a member that refuses.

        It polls, because the store's own wait would block all other threads of this process that
        use the store, and one of them may have to write what the other member waits for."""
        key, pause = f"{what}/{other}", FIRST_PAUSE
        end = time.monotonic() + self.timeout
        try:
            while not self._store.check([key]):
                self.look()
                if time.monotonic() > end:
                    raise self.late(what, other, "")
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            return json.loads(self._store.get(key))
        except DeltawireError:
            raise
        except (RuntimeError, ConnectionError) as error:  # the rank that has the store has ended
            for _, _, refusal in self._open.values():
                raise refusal from error
            raise self.late(what, other, f" ({_short(error)})") from error

    def wait_out(self, other: int) -> None:
        """If another member has refused after its word, waits until it goes on. Errors: its own."""
        self.look()
        while (refusal := self._open.get(other)) and self._is_new(refusal[1]):
            time.sleep(LONGEST_PAUSE)
            self.look()

    def late(self, what: str, other: int, reason: str) -> DeltawireError:
        """Returns the error for a member whose word does not come."""
        raise NotImplementedError

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
        self._log([self._me, self._rank, status, why])

    def go_on(self) -> None:
        """Withdraws the refusal of this member, whose program has caught the error. Others that
        have refused may do so, too."""
        now = time.monotonic()
        with self._lock:
            self._open = {who: (now, *refusal[1:]) for who, refusal in self._open.items()}
        if self._refuses:
            self._refuses = False
            self._log([self._me, self._rank, None, ""])

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


class Agreement(Words):
    """What one stage tells the others, and learns from them."""

    def __init__(self, stage: Any) -> None:
        group, self.stage_index = group_of(stage.group), stage.stage_index
        counts = _counts.setdefault(group, {})
        self.pipeline = counts.get(self.stage_index, 0)
        counts[self.stage_index] = self.pipeline + 1
        place = f"deltawire/{group.group_name}/{stage.num_stages}/{self.pipeline}/"
        super().__init__(place, self.stage_index, dist.get_rank(group), timeout_of(group))
        self._num_stages = stage.num_stages

    def late(self, what: str, other: int, reason: str) -> DeltawireError:
        kind = "rank" if what == FIRST_STEP else "stage"
        return DeltawireError(
            Status["TIMEOUT"],
            f"stage {self.stage_index} waited in vain for {kind} {other} before the first step: "
            "make every stage of the pipeline with compress_stage, and look in the log of that "
            f"rank for what stopped it{reason}",
        )

    def compare(self, mine: "dict[str, Any]") -> None:
        """Compares the options of all stages with those of this one.

        Errors: MISMATCH, with the option that differs and the stage."""
        for other in range(self._num_stages):
            theirs = self.word_of("options", other)
            for name, value in mine.items():
                if theirs.get(name) != value:
                    raise DeltawireError(
                        Status["MISMATCH"],
                        f"stage {other} has {name} = {theirs.get(name)!r} and stage "
                        f"{self.stage_index} has {value!r}: give all ranks the same options and "
                        "the same deltawire",
                    )

    def meet(self, ranks: "set[int]") -> None:
        """Waits until all ranks of the group that have stages begin their first step."""
        self.tell(FIRST_STEP, None, self._rank)
        for rank in sorted(ranks):
            self.word_of(FIRST_STEP, rank)


_all: "weakref.WeakSet[Words]" = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Tells others about an exception that ends this process, for at most a second."""
    error: Any = getattr(sys, "last_value", None)

    def tell() -> None:
        for words in list(_all):
            words.refuse(error)

    if error is not None and _all:
        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        telling.join(1.0)


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
