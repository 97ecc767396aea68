# SPDX-License-Identifier: Apache-2.0
# state.py - compress_fsdp: compresses the gradients of modules that fully_shard has sharded.
"""docs/pytorch_details.md explains what is computed, and what is kept of a module."""

from __future__ import annotations

import weakref
from typing import Any, Optional, Union

import torch
import torch.distributed as dist

from deltawire.config import Config
from deltawire.errors import DeltawireError
from deltawire.torch.common import address
from deltawire.torch.common.lifetime import Lifetime
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.fsdp.backward import Backward
from deltawire.torch.fsdp.modules import group_of, sharded
from deltawire.torch.fsdp.reduce_scatter import ReduceScatter, Trained
from deltawire.torch.fsdp.scatter import LinkedShardPeers, ShardPeers
from deltawire.torch.fsdp.shards import Shards
from deltawire.torch.gradients.gradient_state import GradientState
from deltawire.torch.gradients.hook_ranks import HookRanks
from deltawire.torch.gradients.layout import Layout
from deltawire.torch.gradients.options import More, Options


def compress_fsdp(
    model: torch.nn.Module,
    codec: Union[str, Config] = "direct:bits=4",
    *,
    threads: Any = 0,
    timeout: Optional[float] = None,
    carrier: str = address.GROUP,
    link: More = None,
) -> "FsdpState":
    """Makes the reduce-scatter of FSDP2 compress the gradients of a model.

    Call it once, on every rank, after fully_shard and before the first backward. It registers a
    custom reduce-scatter in every sharded module (set_custom_reduce_scatter) and returns the state
    of all of them. Each rank encodes one part of a module's gradients for each other rank, which
    adds up what it receives, in f32 and in the order of the ranks.

    model: a module with modules that fully_shard has sharded, over the same ranks.
    codec: the config of gradients. "direct:..." keeps no state; "direct:...,feedback=ef" keeps what
        was not sent of a module, at the rank that sends, and adds it to the module's next
        gradients; "delta:..." keeps the last reconstruction at both ends.
    threads: the number of threads that share the work of a codec, or a deltawire.Threads.
    timeout: the maximum time in seconds that a rank waits for the others. None: torch's default.
    carrier, link: those of ddp_hook: process groups with the backend gloo, or links.

    Errors: ARGUMENT, CONFIG, MISMATCH (the ranks differ), TIMEOUT, PEER, UNSUPPORTED (this torch
    has no set_custom_reduce_scatter, or a gradient has a dtype or an operation without codec);
    those of Link and Group.
    """
    rendezvous, modules = _meet(model, timeout)
    with rendezvous.refusing():
        options = Options(codec, threads, timeout, carrier, link)
        return FsdpState(model, modules, rendezvous, options)


def _meet(model: torch.nn.Module, timeout: Optional[float]) -> "tuple[Rendezvous, list[Any]]":
    """Returns the rendezvous of the ranks of a sharded model, and its sharded modules."""
    try:
        modules = sharded(model)
        group = group_of([param_group for _, _, param_group in modules])
    except DeltawireError as error:
        if dist.is_initialized():
            Rendezvous.of_ranks("compress_fsdp", None, timeout).refuse(error)
        raise
    return Rendezvous.of_ranks("compress_fsdp", group, timeout), modules


class FsdpState(GradientState):
    """The state of the reduce-scatters of one model, which compress_fsdp makes.

    It owns what the ranks have made when they met.
    """

    _title, _name = "FSDP", "fsdp"

    def __init__(
        self,
        model: torch.nn.Module,
        modules: "list[tuple[str, Any, Any]]",
        rendezvous: Rendezvous,
        options: Options,
    ) -> None:
        self._options = options
        world = len(rendezvous.ranks)
        trained = [Trained(world, name, param_group) for name, _, param_group in modules]
        of_all = Layout(one for module in trained for one in module.layout.parameters)
        more = {"the sharded modules": f"{of_all.digest:016x}"}

        def peers(nonce: str) -> Any:
            if options.is_grouped:
                return ShardPeers(rendezvous, options, options.codec, nonce)
            return LinkedShardPeers(rendezvous, options, options.codec)

        self._ranks = HookRanks("fsdp", rendezvous, options.agreed(), more, peers)
        self._lifetime = Lifetime("FsdpState", "shard a new model, and call compress_fsdp for it")
        self._shards = Shards(self._ranks, [module.layout for module in trained])
        self._backward = Backward(self._ranks, self._shards, self._lifetime)
        # Modules keep their reduce-scatters, and so the links, also where nobody keeps this state.
        self._end = weakref.finalize(self._backward, self._ranks.peers.close)
        for (_, module, _), its in zip(modules, trained):
            module.set_custom_reduce_scatter(ReduceScatter(its, self._backward))
        # FSDP gathers parameters in the first forward. There a rank would wait for one that refuses
        # to load its state, without noticing that.
        first = model.register_forward_pre_hook(lambda *_: self._meet_again(), prepend=True)
        self._unhook = first.remove

    def _meet_again(self) -> None:
        self._unhook()
        self._ranks.rendezvous.go_on()
        self._ranks.rendezvous.hear("the first forward", None)

    def stats(self) -> "dict[str, Any]":
        """Returns statistics of this rank.

        steps: the number of backward passes that exchanged gradients, where all that belong to a
        step of a pipeline's schedule are one. calls: of reduce-scatters. modules: the number of
        modules of which something was exchanged. raw_bytes, frames, frame_bytes, sent_bytes,
        state_bytes: as in the stats of ddp_hook. codec_seconds: the time inside encode and decode.
        wire_seconds: the time of waits for frames to arrive and to leave, over links for the group.
        waiting_seconds: the time in which backward waited for reduce-scatters, which is that of
        both and of what lies between.
        """
        self._lifetime.refuse_fork()
        counted = self._backward.stats()
        waiting = counted.pop("waiting_seconds")
        return {**counted, **self._ranks.stats(), "waiting_seconds": waiting}

    def compression_state_dict(self) -> "dict[str, Any]":
        """Returns the state of all modules on this rank, for torch.save. Call it on all ranks after
        the same backward.

        Errors: ARGUMENT (a backward is under way)."""
        self._lifetime.refuse_unusable()
        return self._backward.save()

    def load_compression_state_dict(self, state: "dict[str, Any]") -> None:
        """Loads what compression_state_dict or state_dict returned. Call it on all ranks, before
        the first backward. If the ranks load states of different steps, or some load none, there is
        a warning and all modules begin without state.

        Errors: MISMATCH (another world size, rank, codec, carrier or model), FORMAT, CORRUPT,
        ARGUMENT (it is too late)."""
        self._lifetime.refuse_unusable()
        self._backward.load(state)

    def close_compression(self) -> None:
        """Closes the links and gives their ports back. Calling it again does nothing, and neither
        does calling it in a forked process. A state that is collected, or alive when the
        interpreter ends, is closed, too."""
        self._lifetime.close()
        self._end()
