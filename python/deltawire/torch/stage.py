# SPDX-License-Identifier: Apache-2.0
# stage.py - PipelineStage and compress_stage: torch's pipeline stages, compressed.
"""A stage sends and receives by itself, when torch's schedule asks it for its operations, and gives
the schedule none. So all schedules work as they are, in their own order, and what differs between
torch's releases, how operations are batched and waited for, does not matter."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional

import torch
from torch.distributed import pipelining

from deltawire.errors import refuse
from deltawire.torch import ids, torch_stage
from deltawire.torch.compression import Compression
from deltawire.torch.options import Options

OPTIONS = (
    *("forward", "backward", "evaluate", "carrier", "on_missing_ids", "threads"),
    *("dataset_size", "equal_counts", "link"),
)


class Overridden:
    """The methods that are overridden. A subclass of torch's class gets them one by one, for an
    object's class can only be changed to one with a single base."""

    _compression: Optional[Compression] = None
    _compressed_class: Any = None

    def _torchs(self: Any) -> Any:
        """The methods of torch's class."""
        return super(self._compressed_class, self)

    @contextlib.contextmanager
    def _step_of(self: Any) -> Iterator[Compression]:
        """Whatever goes wrong within ends the step for the neighbours too."""
        compression = self._compression
        assert compression is not None
        try:
            yield compression
        except Exception as error:
            compression.give_up(error)
            raise

    # --- torch's methods -----------------------------------------------------------------------

    def _prepare_forward_infra(
        self: Any, num_microbatches: int, args: Any, kwargs: Any = None, *rest: Any, **named: Any
    ) -> Any:
        with self._step_of() as compression:
            compression.start()
            kwargs = ids.take(kwargs)[0]
            made = self._torchs()._prepare_forward_infra(
                num_microbatches, args, kwargs, *rest, **named
            )
            compression.prepared(num_microbatches)
            return made

    def clear_runtime_states(self: Any) -> None:
        self._torchs().clear_runtime_states()
        if self._compression is not None:
            self._compression.begin()

    def forward_one_chunk(
        self: Any, fwd_chunk_id: int, args: Any, kwargs: Any = None, *rest: Any, **named: Any
    ) -> Any:
        with self._step_of() as compression:
            kwargs, given = ids.take(kwargs)
            compression.give_ids(fwd_chunk_id, given, args)
            output = self._torchs().forward_one_chunk(
                fwd_chunk_id, args, kwargs, *rest, **named
            )
            if not self.is_last and torch_stage.is_here(self, self.stage_index + 1):
                ids.mark(output, compression.ids.get(fwd_chunk_id))
            return output

    def backward_one_chunk(self: Any, *args: Any, **named: Any) -> Any:
        with self._step_of():
            return self._torchs().backward_one_chunk(*args, **named)

    def set_local_fwd_input(self: Any, prev_stage_outputs: Any, mb_index: int) -> None:
        with self._step_of() as compression:
            compression.hand_over(mb_index, ids.marked(prev_stage_outputs))
            self._torchs().set_local_fwd_input(prev_stage_outputs, mb_index)

    def get_fwd_recv_ops(self: Any, fwd_chunk_id: int) -> "list[Any]":
        with self._step_of() as compression:
            compression.post_forward()
        return []

    def get_bwd_recv_ops(self: Any, bwd_chunk_id: int) -> "list[Any]":
        if self.has_backward:
            with self._step_of() as compression:
                compression.post_backward()
        return []

    def get_fwd_send_ops(self: Any, fwd_chunk_id: int) -> "list[Any]":
        with self._step_of() as compression:
            ops = self._torchs().get_fwd_send_ops(fwd_chunk_id)
            if compression.after:
                compression.send_forward(fwd_chunk_id, [op.tensor for op in ops])
        return []

    def get_bwd_send_ops(self: Any, bwd_chunk_id: int) -> "list[Any]":
        with self._step_of() as compression:
            ops = self._torchs().get_bwd_send_ops(bwd_chunk_id)
            if compression.before and self.has_backward:
                compression.send_backward(bwd_chunk_id, [op.tensor for op in ops])
        return []

    def _retrieve_recv_activations(self: Any, fwd_chunk_id: int) -> Any:
        compression = self._compression
        assert compression is not None
        if compression.before:
            self._fill(
                self.args_recv_info[fwd_chunk_id],
                compression.take_forward(fwd_chunk_id),
                self.has_backward,
            )
        return self._torchs()._retrieve_recv_activations(fwd_chunk_id)

    def _retrieve_recv_grads(self: Any, bwd_chunk_id: int) -> Any:
        compression = self._compression
        assert compression is not None
        if compression.after:
            self._fill(
                self.grad_recv_info[bwd_chunk_id],
                compression.take_backward(bwd_chunk_id),
                False,
            )
        return self._torchs()._retrieve_recv_grads(bwd_chunk_id)

    def _fill(self, infos: Any, tensors: "list[torch.Tensor]", wants_grad: bool) -> None:
        if not torch_stage.fill(self, infos, tensors, wants_grad):
            refuse(
                f"stage {self.stage_index} got {len(tensors)} tensors in a message and expects "
                "another number: a stage must give as many outputs in every step as in the first"
            )

    def _validate_fwd_input(self: Any, args: Any, kwargs: Any) -> None:
        """torch 2.6 asks for the first microbatch's shape in all; a last batch may be shorter."""

    def _validate_fwd_outputs(self: Any, outputs: Any) -> None:
        """As above: whatever the shape is, its message says it."""

    # --- ours ----------------------------------------------------------------------------------

    def compression_stats(self: Any) -> "dict[str, Any]":
        """What travelled so far, by direction: forward_sent, forward_received, backward_sent,
        backward_received, as far as the neighbour lies on another rank. Each has config, messages,
        message_bytes (all that was handed to the carrier), frame_bytes (the frames in it),
        tensor_bytes (before), exact_tensors (that no codec takes: integers, and tensors whose first
        extent is not the number of samples), samples, key_entries, delta_entries (the hits),
        stateless_entries, poisoned_groups (with NaN or infinities), hit_rate (0 to 1), keys_held,
        state_bytes."""
        with self._ours() as compression:
            return compression.stats()

    def compression_state_dict(self: Any) -> "dict[str, Any]":
        """What the ends on this rank hold, for torch.save. Call it on all ranks between the same
        two steps."""
        with self._ours() as compression:
            return compression.save()

    def load_compression_state_dict(self: Any, state: "dict[str, Any]") -> None:
        """Takes what compression_state_dict gave, before the first step and after the schedule was
        made; on all ranks. Where only some have theirs, every id begins anew, with a warning.

        Errors: MISMATCH (of another stage or config), CORRUPT, LIMIT."""
        with self._ours() as compression:
            compression.load(state)

    def reset_compression(self: Any) -> None:
        """Forgets what is held: every id begins anew. Each rank may do it alone."""
        with self._ours() as compression:
            compression.reset()

    @contextlib.contextmanager
    def _ours(self: Any) -> Iterator[Compression]:
        assert self._compression is not None
        yield self._compression


def compressed(plain: type) -> type:
    """The subclass of one of torch's classes."""
    if plain not in _classes:
        own = ("__dict__", "__weakref__", "__doc__", "__qualname__")
        body = {name: what for name, what in vars(Overridden).items() if name not in own}
        made: Any = type("Compressed" + plain.__name__, (plain,), body)
        made._compressed_class = made
        _classes[plain] = made
    return _classes[plain]


_classes: "dict[type, type]" = {}


class PipelineStage(compressed(pipelining.PipelineStage)):
    """torch.distributed.pipelining.PipelineStage with the options of compress_stage."""

    def __init__(self, *args: Any, **named: Any) -> None:
        options = Options(**{name: named.pop(name) for name in OPTIONS if name in named})
        super().__init__(*args, **named)
        self._compression = Compression(self, options)


def compress_stage(
    stage: Any,
    forward: Any = "delta:bits=4",
    backward: Any = "direct:bits=4",
    evaluate: Any = "direct:bits=8",
    carrier: str = "group",
    on_missing_ids: str = "error",
    *,
    threads: int = 0,
    dataset_size: Optional[int] = None,
    equal_counts: Optional[bool] = None,
    link: "Optional[dict[str, Any]]" = None,
) -> Any:
    """Makes a pipeline stage of torch compress what it exchanges with its neighbours.

        stage = deltawire.torch.compress_stage(PipelineStage(module, index, stages, device))
        schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss)
        schedule.step(x, sample_ids=ids)               # on the first rank
        schedule.step(target=y, losses=losses)         # on the last

    stage: a PipelineStage, before its first step. On every rank, with the same options.
    forward: the config of activations; docs/codecs.md has all.
    backward: of their gradients.
    evaluate: of activations in steps without ids; it keeps no state.
    carrier: "group": torch's process group. An address such as "tcp://10.0.0.7": links of
        deltawire, which reconnect and encrypt; it is this rank's own, at which the next stage finds
        it, with a port or without one.
    on_missing_ids: of a training step without ids: "error", or "direct": as evaluate.
    threads: threads that share the work of a call; 0: the caller alone.
    dataset_size: how many samples the data set has, for warnings where ids do not come again.
    equal_counts: whether the length of a message travels before it, for backends that want equal
        counts at both ends; None: where the backend is not gloo.
    link: what else a deltawire.Link is to be told: {"tls": Tls(...)}.

    Returns the same stage, whose class is now a subclass of what it was, with compression_stats(),
    compression_state_dict(), load_compression_state_dict() and reset_compression().
    Errors: CONFIG, ARGUMENT (compressed before, or already in use), DeltawireError all.
    """
    if hasattr(stage, "_compression"):
        refuse("this stage is compressed already: call compress_stage once for each stage")
    if not hasattr(stage, "get_fwd_send_ops") or not hasattr(stage, "stage_index"):
        refuse(f"compress_stage takes a PipelineStage of torch, not {type(stage).__name__}")
    if stage.args_recv_info:
        refuse("this stage has run a step already: compress it before its first step")
    options = Options(
        *(forward, backward, evaluate, carrier, on_missing_ids),
        *(threads, dataset_size, equal_counts, link),
    )
    plain = type(stage)
    stage.__class__ = compressed(plain)
    try:
        stage._compression = Compression(stage, options)
    except BaseException:
        stage.__class__ = plain
        raise
    return stage
