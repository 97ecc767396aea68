# SPDX-License-Identifier: Apache-2.0
# state.py - compress_fsdp: compresses the gradients of modules that fully_shard has sharded.
"""docs/pytorch_details.md explains what is computed, and what is kept of a module."""

from __future__ import annotations

import uuid
import warnings
import weakref
from typing import Any, Iterable, Optional, Union

import torch
import torch.distributed as dist

import deltawire
from deltawire.config import Config
from deltawire.errors import DeltawireError, Status, fail, refuse
from deltawire.owner import Life
from deltawire.threads import pool_of
from deltawire.torch.common import address, forks, report, tensors
from deltawire.torch.common.configs import of_flat
from deltawire.torch.common.gathered_state import Gathered, own
from deltawire.torch.common.misfit import Fit
from deltawire.torch.fsdp.scatter import LinkedShardPeers, ShardPeers
from deltawire.torch.gradients import saved_state
from deltawire.torch.gradients.failure import as_ours
from deltawire.torch.gradients.layout import Layout
from deltawire.torch.gradients.link_group import More
from deltawire.torch.common.rendezvous import Rendezvous

ADVICE = (
    "call compress_fsdp with the same arguments and the same model on all ranks, and use the same "
    "version of deltawire"
)


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

    Errors: ARGUMENT, CONFIG, MISMATCH (the ranks differ), TIMEOUT, UNSUPPORTED (this torch has no
    set_custom_reduce_scatter, or a gradient has a dtype or an operation without codec); those of
    Link and Group.
    """
    return FsdpState(model, codec, threads, timeout, carrier, link)


class FsdpState(Gathered):
    """The state of the reduce-scatters of one model, which compress_fsdp makes."""

    def __init__(
        self,
        model: torch.nn.Module,
        codec: Union[str, Config],
        threads: Any,
        timeout: Optional[float],
        carrier: str,
        link: More,
    ) -> None:
        self._rendezvous, modules = _meet(model, timeout)
        with self._rendezvous.refusing():
            self._begin(modules, codec, threads, timeout, carrier, link)
        # FSDP gathers parameters in the first forward. There a rank would wait for one that refuses
        # to load its state, without noticing that.
        first = model.register_forward_pre_hook(lambda *_: self._meet_again(), prepend=True)
        self._unhook = first.remove

    def _begin(
        self,
        modules: "list[tuple[str, Any, Any]]",
        codec: Union[str, Config],
        threads: Any,
        timeout: Optional[float],
        carrier: str,
        link: More,
    ) -> None:
        """Compares the arguments with the other ranks, and registers the reduce-scatters."""
        address.check(carrier)
        if carrier == address.GROUP and link is not None:
            refuse('link has arguments of links, but carrier is "group": give an address, too')
        if timeout is not None and not timeout > 0:
            refuse(f"timeout must be a number of seconds above 0, not {timeout!r}")
        self._codec, self._carrier = of_flat(codec), carrier
        made = [Gradients(self, name, param_group) for name, _, param_group in modules]
        self._layouts = {one.layout.digest: one.layout for one in made}
        record = {
            "the function": "compress_fsdp",
            "the version of deltawire": deltawire.__version__,
            "codec": self._codec.agreement,
            "carrier": address.kind(carrier),
            "the sharded modules": f"{_all_of(self._layouts.values()).digest:016x}",
        }
        self._rendezvous.compare("the beginning", record, ADVICE)
        self._nonce = self._rendezvous.hear("the nonce", uuid.uuid4().hex)[0]
        pool = pool_of(threads) or 0
        self._peers: Any = (
            ShardPeers(self._rendezvous, self._codec, self._codec, pool, self._nonce)
            if carrier == address.GROUP
            else LinkedShardPeers(self._rendezvous, carrier, link, self._codec, self._codec, pool)
        )
        self._held: "dict[int, Any]" = {}  # the exchanges of modules, by digest
        self._dtypes: "dict[int, torch.dtype]" = {}
        self._compared: "set[Any]" = set()
        self._mark: Optional[list] = None  # of the state that was loaded
        self._error: Optional[DeltawireError] = None
        self._to_flush = self._closed = False
        self._life = Life.now
        self._steps = self._calls = self._raw_bytes = 0
        self.waiting = report.Seconds()
        self._fit = Fit("gradients", "by this FsdpState")
        self._end = weakref.finalize(self, self._peers.close)
        for (_, module, _), one in zip(modules, made):
            module.set_custom_reduce_scatter(one)

    def _meet_again(self) -> None:
        self._unhook()
        self._rendezvous.go_on()
        self._rendezvous.hear("the first forward", None)

    def stats(self) -> "dict[str, Any]":
        """Returns statistics of this rank.

        steps: the number of backward passes that exchanged gradients. calls: of reduce-scatters.
        modules: the number of modules of which something was exchanged. raw_bytes, frames,
        frame_bytes, sent_bytes: as in the stats of ddp_hook. codec_seconds: the time inside encode
        and decode. wire_seconds: the time of waits for frames to arrive and to leave, over links
        for the group. waiting_seconds: the time in which backward waited for reduce-scatters,
        which is that of both and of what lies between.
        """
        forks.refuse_fork(self._life, "FsdpState")
        traffic = self._peers.traffic()
        return {
            "steps": self._steps,
            "calls": self._calls,
            "modules": len(self._held),
            "raw_bytes": self._raw_bytes,
            "frames": traffic.frames,
            "frame_bytes": traffic.frame_bytes,
            "sent_bytes": traffic.sent_bytes,
            "codec_seconds": traffic.codec_seconds,
            "wire_seconds": self._peers.wire.sum,
            "waiting_seconds": self.waiting.sum,
        }

    def compression_report(self) -> str:
        """Returns the sums of stats() as a table, to print."""
        stats = self.stats()
        row = {"config": self._codec.text, **stats}
        return report.table(f"FSDP, {stats['steps']} steps", {"gradients": row})

    def compression_scalars(self, prefix: str = "deltawire") -> "dict[str, float]":
        """Returns stats() with names like "deltawire/fsdp/sent_bytes", for TensorBoard, W&B and the
        like."""
        return report.scalars(f"{prefix}/fsdp", self.stats())

    def compression_state_dict(self) -> "dict[str, Any]":
        """Returns the state of all modules on this rank, for torch.save. Call it on all ranks after
        the same backward.

        Errors: ARGUMENT (a backward is under way)."""
        self._refuse_unusable()
        if self._to_flush and self._error is None:
            refuse("save the compression state between two backward passes")
        mark = saved_state.mark_of(self._nonce, self._calls, self._error is not None)
        states = self._peers.states(list(self._held.values()))
        held = [
            (self._layouts[digest], self._dtypes[digest], state)
            for digest, state in zip(self._held, states)
        ]
        return saved_state.whole("fsdp", self._same(), mark, held)

    def load_compression_state_dict(self, state: "dict[str, Any]") -> None:
        """Loads what compression_state_dict or state_dict returned. Call it on all ranks, before
        the first backward. If the ranks load states of different steps, or some load none, there is
        a warning and all modules begin without state.

        Errors: MISMATCH (another world size, rank, codec, carrier or model), FORMAT, CORRUPT,
        ARGUMENT (it is too late)."""
        self._refuse_unusable()
        if self._calls:
            refuse("load the compression state before the first backward")
        self._rendezvous.go_on()
        with self._rendezvous.refusing():
            self._load(own(state))

    def _load(self, state: "dict[str, Any]") -> None:
        saved_state.check(state, "fsdp", self._same())
        self._peers.begin_loading()
        read = saved_state.read_buckets(state, self._peers.exchange)
        for layout, _, _ in read:
            if layout.digest not in self._layouts:
                fail(
                    Status["MISMATCH"],
                    "this compression state is of another model, whose parameters include "
                    f"{layout.parameters[0][0]} of {layout.parameters[0][1][0]} elements: load "
                    "what was saved with this model, or load nothing",
                )
        self._held = {layout.digest: exchange for layout, _, exchange in read}
        self._dtypes = {layout.digest: dtype for layout, dtype, _ in read}
        self._mark = state["mark"]
        self._peers.end_loading()

    def close_compression(self) -> None:
        """Closes the links and gives their ports back. Calling it again does nothing, and neither
        does calling it in a forked process. A state that is collected, or alive when the
        interpreter ends, is closed, too."""
        self._closed = True
        self._end()

    def _same(self) -> "dict[str, Any]":
        """Returns what must be equal in a saved state and here."""
        return {
            "world": len(self._rendezvous.ranks),
            "rank": self._rendezvous.rank,
            "codec": self._codec.agreement,
            "carrier": address.kind(self._carrier),
        }

    def _refuse_unusable(self) -> None:
        forks.refuse_fork(self._life, "FsdpState")
        if self._closed:
            refuse("this compression was closed: shard a new model, and call compress_fsdp for it")

    def reduce(self, layout: Layout, x: torch.Tensor, out: torch.Tensor, mean: bool) -> None:
        """The reduce-scatter of a module. After an error, all further ones raise it, too, because
        the ranks may have different states."""
        self._refuse_unusable()
        if self._error is not None:
            raise self._error
        try:
            if not self._calls:
                self._compare_marks()
            exchange, lasts = self._exchange(layout, x)
            if x.device.type == "cpu":
                exchange(x, out, mean)
            else:
                part = torch.empty(out.shape, dtype=out.dtype, device="cpu")
                exchange(x.cpu(), part, mean)
                out.copy_(part)
            if not lasts:
                self._peers.forget(exchange)
        except BaseException as error:
            self._error = as_ours(error)
            self._rendezvous.refuse(self._error)
            if not isinstance(error, Exception):
                raise  # KeyboardInterrupt; the next backward raises _error
            raise self._error from error
        self._calls += 1
        self._raw_bytes += x.numel() * x.element_size()
        self._end_later()

    def _exchange(self, layout: Layout, x: torch.Tensor) -> "tuple[Any, bool]":
        """Returns the exchange for x, and whether it lasts.

        If some parameters of a module have no gradients, x has only those of the others, and what
        is kept of the module does not fit. Such an x is exchanged without state."""
        self._layouts.setdefault(layout.digest, layout)
        key = (layout.digest, x.numel(), x.dtype)
        if key not in self._compared:
            if x.dtype not in tensors.CODED:
                fail(
                    Status["UNSUPPORTED"],
                    f"gradients of {x.dtype} cannot be compressed: set reduce_dtype of the "
                    "MixedPrecisionPolicy to float32, float16 or bfloat16",
                )
            record = {"elements": str(x.numel()), "dtype": str(x.dtype)}
            topic = f"module {layout.digest:016x} with {x.numel()} of {x.dtype}"
            self._rendezvous.compare(topic, record, ADVICE)
            self._compared.add(key)
        dtype = self._dtypes.setdefault(layout.digest, x.dtype)
        if x.numel() != layout.elements() or x.dtype != dtype:
            part = Layout([(f"{layout.digest:016x} in part", (x.numel(),))])
            return self._peers.exchange(part, x.dtype), False
        if layout.digest not in self._held:
            self._held[layout.digest] = self._peers.exchange(layout, x.dtype)
        return self._held[layout.digest], True

    def _compare_marks(self) -> None:
        """Checks, before the first exchange, that all ranks have loaded states of the same step."""
        self._rendezvous.go_on()
        heard = self._rendezvous.hear("the compression states", [self._mark, self._peers.spoiled])
        if any(mark != heard[0][0] for mark, _ in heard):
            warnings.warn(
                "the ranks have loaded compression states that do not belong together, so all "
                "modules begin without state: save the state of all ranks after the same step, and "
                "load it on all ranks",
                RuntimeWarning,
                stacklevel=2,
            )
            self._held, self._dtypes = {}, {}
            self._peers.begin_anew()
        elif any(spoiled for _, spoiled in heard):
            self._peers.load_again()

    def _end_later(self) -> None:
        """Asks torch to call _end_backward at the end of this backward. Every call asks, because
        torch drops earlier requests if a backward ends with an exception."""
        self._to_flush = True
        try:
            engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
            engine.queue_callback(self._end_backward)
        except RuntimeError:  # no backward is under way
            self._end_backward()

    def _end_backward(self) -> None:
        if self._to_flush:
            self.waiting.time(self._peers.flush)
            self._to_flush = False
            self._steps += 1
            self._fit.look(lambda: self._peers.encoders(self._held.values()))


class Gradients:
    """The custom reduce-scatter of one module. It has the methods of torch's ReduceScatter.

    Frozen parameters have no gradients, so only the others count (LoRA: a small part of a module).
    """

    def __init__(self, state: FsdpState, name: str, param_group: Any) -> None:
        self._state = state
        world = len(state._rendezvous.ranks)
        self._sizes = []  # (name, elements) on all ranks together, padded, and the parameter
        for at, parameter in enumerate(param_group.fsdp_params):
            elements = world * parameter.padded_sharded_param_size.numel()
            own = getattr(getattr(parameter, "_module_info", None), "param_name", str(at))
            self._sizes.append((f"{name}.{own}", (elements,), parameter))
        self._made: "dict[tuple[str, ...], Layout]" = {}

    @property
    def layout(self) -> Layout:
        """The parameters that are trained now."""
        trained = [one[:2] for one in self._sizes if one[2].sharded_param.requires_grad]
        names = tuple(name for name, _ in trained)
        if names not in self._made:
            self._made[names] = Layout(trained)
        return self._made[names]

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        if op != dist.ReduceOp.AVG and op != dist.ReduceOp.SUM:
            fail(
                Status["UNSUPPORTED"],
                f"FSDP asks for the reduction {op}, but compress_fsdp knows sums and means: call "
                "set_force_sum_reduction_for_comms(True) of the module, or leave out "
                "set_gradient_divide_factor",
            )
        mean = op == dist.ReduceOp.AVG
        self._state.waiting.time(
            self._state.reduce, self.layout, input_tensor, output_tensor, mean
        )


def _all_of(layouts: "Iterable[Layout]") -> Layout:
    return Layout(one for layout in layouts for one in layout.parameters)


def _meet(model: torch.nn.Module, timeout: Optional[float]) -> "tuple[Rendezvous, list[Any]]":
    """Returns the rendezvous of the ranks of a sharded model, and its sharded modules."""
    try:
        modules = _sharded(model)
        group = _group_of([param_group for _, _, param_group in modules])
    except DeltawireError as error:
        if dist.is_initialized():
            Rendezvous.of_ranks("compress_fsdp", None, timeout).refuse(error)
        raise
    return Rendezvous.of_ranks("compress_fsdp", group, timeout), modules


def _sharded(model: torch.nn.Module) -> "list[tuple[str, Any, Any]]":
    """Returns (name, module, group of parameters) of each sharded module that has parameters."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        _lacks("no fully_shard")
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        _lacks("no FSDPModule.set_custom_reduce_scatter")
    found = []
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        groups = _param_groups(module)
        if len(groups) > 1:
            fail(
                Status["UNSUPPORTED"],
                f"module {name!r} has parameters on {len(groups)} meshes: shard those of each mesh "
                "in a module of their own",
            )
        if groups and isinstance(getattr(groups[0], "_reduce_scatter_comm", None), Gradients):
            refuse("this model is compressed already: call compress_fsdp once for a model")
        found += [(name, module, one) for one in groups]
    if not found:
        refuse("the model has no sharded parameters: call fully_shard before compress_fsdp")
    return found


def _param_groups(module: Any) -> "list[Any]":
    """The groups of parameters of a module, which torch keeps to itself: one, or none."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        one = getattr(state, "_fsdp_param_group", None)
        groups = [one] if one is not None else []
    for one in groups:
        if not all(hasattr(p, "padded_sharded_param_size") for p in one.fsdp_params):
            _lacks("no size of a parameter's part in FSDP")
    return list(groups)


def _group_of(param_groups: "list[Any]") -> Any:
    """The process group over which all modules are sharded."""
    found = [one._reduce_scatter_process_group for one in param_groups]
    if any(
        dist.get_process_group_ranks(one) != dist.get_process_group_ranks(found[0]) for one in found
    ):
        fail(
            Status["UNSUPPORTED"],
            "the modules are sharded over different ranks: call fully_shard with the same mesh for "
            "all of them",
        )
    return found[0]


def _lacks(what: str) -> Any:
    fail(
        Status["UNSUPPORTED"],
        f"torch {torch.__version__} has {what}, which compress_fsdp needs: install a later torch; "
        "2.15 has been tested",
    )
