# SPDX-License-Identifier: Apache-2.0
# state.py - DdpState: what a program sees of a communication hook.
from __future__ import annotations

import weakref
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deltawire.config import Config
from deltawire.errors import refuse
from deltawire.torch.common import address
from deltawire.torch.common.configs import of_flat
from deltawire.torch.common.lifetime import Lifetime
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.ddp.backward import Backward
from deltawire.torch.ddp.buckets import Buckets
from deltawire.torch.ddp.crew import Crew
from deltawire.torch.ddp.exchange import DdpPeers, gathers
from deltawire.torch.ddp.parameters import Parameters
from deltawire.torch.ddp.unused_hook import end_expecting, expect_calls
from deltawire.torch.gradients.gradient_state import GradientState
from deltawire.torch.gradients.hook_ranks import HookRanks
from deltawire.torch.gradients.link_peers import LinkedPeers
from deltawire.torch.gradients.options import More, Options

WAYS = ("auto", "gather", "parts")
STATISTICS = (
    *("steps", "buckets", "new_buckets", "raw_bytes", "frames", "frame_bytes", "sent_bytes"),
    *("state_bytes", "codec_seconds", "wire_seconds", "waiting_seconds"),
)


class DdpOptions(Options):
    """The arguments of ddp_hook. sums, way: those called sums and exchange."""

    def __init__(
        self, codec: Any, sums: Any, exchange: str, threads: Any, *rest: Any
    ) -> None:
        if exchange not in WAYS:
            refuse(f'exchange must be "auto", "gather" or "parts", not {exchange!r}')
        super().__init__(codec, threads, *rest)
        self.sums, self.way = self.codec if sums is None else of_flat(sums), exchange

    def agreed(self) -> "dict[str, Any]":
        of_all = super().agreed()
        mine = {"sums": self.sums.agreement, "exchange": self.way}
        return {"codec": of_all.pop("codec"), **mine, **of_all}


class DdpState(GradientState):
    """The state of a communication hook, which ddp_hook makes for one model.

    Pickling keeps only the arguments of ddp_hook. An unpickled DdpState starts without state, in
    the default process group.

    It owns the arguments, and what the ranks make when they have met.
    """

    _title, _name = "hook", "ddp"

    def __init__(
        self,
        codec: Union[str, Config],
        sums: Union[str, Config, None],
        exchange: str,
        model: Optional[torch.nn.Module],
        process_group: Optional[dist.ProcessGroup],
        threads: Any,
        timeout: Optional[float],
        carrier: str = address.GROUP,
        link: More = None,
    ) -> None:
        self._options = DdpOptions(codec, sums, exchange, threads, timeout, carrier, link)
        self._group = group_of(model, process_group)
        self._parameters = Parameters(model)
        self._lifetime = Lifetime("hook", "make a new ddp_hook for a new model")
        self._ranks: Optional[HookRanks] = None  # None: the ranks have not met
        self._backward: Optional[Backward] = None
        self._end: Any = None  # closes the hook
        expect_calls(self)

    def __reduce__(self) -> Any:
        options = self._options
        if options.link is not None:
            refuse(
                "a hook with link= cannot be pickled, because that may hold keys: make the hook in "
                "the process that uses it"
            )
        codecs, where = (options.codec.text, options.sums.text), (options.timeout, options.carrier)
        return DdpState, (*codecs, options.way, None, None, 0, *where)

    def stats(self) -> "dict[str, Any]":
        """Returns statistics of this rank since the hook was made.

        steps: the number of backward passes that exchanged gradients.
        buckets: the number of buckets that the hook knows now.
        new_buckets: how often a bucket started without state (with delta, by a key frame).
        raw_bytes: the size of the gradients.
        frames, frame_bytes: the number and the size of the frames that this rank has encoded.
        sent_bytes: the size of the frames and of the lengths before them, each counted as often as
            it was sent. With links, the size of all messages.
        state_bytes: the memory that the state of encoders and decoders takes now.
        codec_seconds: the time inside encode and decode, in the threads of the hook.
        wire_seconds: the time in which these threads waited for frames to arrive and to leave, over
            links for the group, which encodes and decodes meanwhile.
        waiting_seconds: the time in which backward waited at its end for the exchange.
        """
        self._lifetime.refuse_fork()
        found = dict.fromkeys(STATISTICS, 0)
        if self._backward is not None and self._ranks is not None:
            found.update({**self._backward.stats(), **self._ranks.stats()})
        return found

    def close_compression(self) -> None:
        """Ends the hook: closes its links and gives their ports back. Calling it again does
        nothing, and neither does calling it in a forked process. A hook that is collected, or
        alive when the interpreter ends, is closed, too."""
        self._lifetime.close()
        end_expecting(self)
        if self._end is not None:
            self._end()

    def compression_state_dict(self) -> "dict[str, Any]":
        """Returns the state of all buckets on this rank, for torch.save. Call it on all ranks after
        the same step.

        Errors: ARGUMENT (torch.distributed was not initialized, or a backward is under way)."""
        self._lifetime.refuse_unusable()
        if self._backward is None:
            refuse("save the compression state after the ranks have met, between two steps")
        return self._backward.save()

    def load_compression_state_dict(self, state: "dict[str, Any]") -> None:
        """Loads what compression_state_dict or state_dict returned. Call it on all ranks, before
        the first backward. If the ranks load states of different steps, or some load none, there is
        a warning and all buckets begin with key frames.

        Errors: MISMATCH (a state of another world size, rank, codec, exchange or model; the model
        is checked in the first backward if model= was not given), FORMAT, CORRUPT, ARGUMENT (it is
        too late)."""
        self._lifetime.refuse_unusable()
        self._met().load(state)

    def may_have(self, parameter: torch.nn.Parameter) -> bool:
        """Whether the parameter can be one of the model's."""
        return self._parameters.may_have(parameter)

    def _begin(self, rendezvous: Rendezvous) -> Backward:
        """Compares the arguments with the other ranks, and makes the process groups."""
        options, names = self._options, self._parameters.origin
        same = {**options.agreed(), "names": names}

        def peers(nonce: str) -> Any:
            if options.is_grouped:
                return DdpPeers(options.way, rendezvous, options, options.sums, nonce)
            hops = 1 if gathers(options.way, len(rendezvous.ranks)) else 2
            return LinkedPeers(rendezvous, options, options.sums, hops)

        self._ranks = ranks = HookRanks("ddp", rendezvous, same, {}, peers)
        crew = Crew()
        buckets = Buckets(ranks)
        self._backward = Backward(ranks, self._parameters, buckets, crew)
        self._end = weakref.finalize(self, _end, crew, ranks.peers)
        return self._backward

    def _exchange(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        """Takes a bucket of a backward. Returns the future of its means."""
        self._lifetime.refuse_unusable()
        end_expecting(self)
        return self._met().take(bucket)

    def _met(self) -> Backward:
        """The ranks meet, if they have not met yet."""
        if self._backward is not None:
            return self._backward
        rendezvous = Rendezvous.of_ranks("ddp_hook", self._group, self._options.timeout)
        with rendezvous.refusing():
            return self._begin(rendezvous)


def group_of(model: Any, process_group: Any) -> Any:
    """The process group of a hook; None: the default group."""
    if process_group is None and isinstance(model, DistributedDataParallel):
        return model.process_group
    return process_group


def _end(crew: Crew, peers: Any) -> None:
    crew.close()
    peers.close()
