# SPDX-License-Identifier: Apache-2.0
# hook_ranks.py - HookRanks: the ranks of one hook, after they have met.
from __future__ import annotations

import uuid
import warnings
from typing import Any, Callable

import deltawire
from deltawire.errors import refuse
from deltawire.torch.common.gathered_state import own
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.gradients import saved_state


class HookRanks:
    """It owns the peers, and the mark of the state that was loaded.

    kind: "ddp" or "fsdp". same: what must be equal on all ranks and in a state that is loaded.
    more: what must be equal on all ranks besides. make: makes the peers, given a text that all
    ranks have, another one for each hook.
    Errors: MISMATCH, TIMEOUT, and those of make.
    """

    def __init__(
        self,
        kind: str,
        rendezvous: Rendezvous,
        same: "dict[str, Any]",
        more: "dict[str, Any]",
        make: "Callable[[str], Any]",
    ) -> None:
        record = {
            "the function": rendezvous.function,
            "the version of deltawire": deltawire.__version__,
            **same,
            **more,
        }
        rendezvous.compare("the beginning", record)
        self._kind, self.rendezvous = kind, rendezvous
        self._same = {"world": len(rendezvous.ranks), "rank": rendezvous.rank, **same}
        self._nonce = rendezvous.hear("the nonce", uuid.uuid4().hex)[0]
        self.peers = make(self._nonce)
        self._mark: Any = None  # of the state that was loaded
        self._agreed = False

    def stats(self) -> "dict[str, Any]":
        """What all hooks say of their exchanges."""
        traffic = self.peers.traffic()
        return {
            "frames": traffic.frames,
            "frame_bytes": traffic.frame_bytes,
            "sent_bytes": traffic.sent_bytes,
            "state_bytes": traffic.state_bytes,
            "codec_seconds": traffic.codec_seconds,
            "wire_seconds": self.peers.wire.sum,
        }

    def save(
        self, held: "list[tuple[Any, Any, Any]]", count: int, failed: bool
    ) -> "dict[str, Any]":
        """Returns a state. held: (layout, dtype, exchange) of each bucket. count: of what has been
        exchanged, equal on all ranks. failed: whether an exchange has failed.

        Before the first exchange it is the loaded state, with the mark of that, because the ranks
        have not compared their marks yet."""
        waits = self._mark is not None and not count and not failed
        if waits and self.peers.spoiled:
            refuse(
                "several compression states were loaded, and they are put in order with the first "
                "backward: save the state after that, or load a single one"
            )
        states = self.peers.states([exchange for _, _, exchange in held])
        buckets = [(layout, dtype, kept) for (layout, dtype, _), kept in zip(held, states)]
        mark = self._mark if waits else saved_state.mark_of(self._nonce, count, failed)
        return saved_state.whole(self._kind, self._same, mark, buckets)

    def load(self, state: Any, take: "Callable[[list[Any]], None]") -> None:
        """Loads what save returned. take: takes (layout, dtype, exchange) of each bucket, or
        refuses them. If this rank refuses, the others hear it."""
        self.rendezvous.go_on()
        with self.rendezvous.refusing():
            state = own(state)
            saved_state.check(state, self._kind, self._same)
            self.peers.begin_loading()
            take(saved_state.read_buckets(state, self.peers.exchange))
            self._mark = state["mark"]
            self.peers.end_loading()

    def agree(self, things: str) -> bool:
        """Before the first exchange, checks that all ranks have loaded states of the same step.
        Otherwise none uses what it has loaded: then it returns False."""
        if self._agreed:
            return True
        self._agreed = True
        self.rendezvous.go_on()
        heard = self.rendezvous.hear("the compression states", [self._mark, self.peers.spoiled])
        if any(mark != heard[0][0] for mark, _ in heard):
            warnings.warn(
                "the ranks have loaded compression states that do not belong together, so all "
                f"{things} begin without state: save the state of all ranks after the same step, "
                "and load it on all ranks",
                RuntimeWarning,
                stacklevel=2,
            )
            self.peers.begin_anew()
            return False
        if any(spoiled for _, spoiled in heard):
            self.peers.load_again()
        return True
