# SPDX-License-Identifier: Apache-2.0
# stage.py - compress_stage and PipelineStage: pipeline stages of torch with compression.
"""torch's schedule asks each stage for its send and receive operations. A compressed stage sends
and receives by itself at that moment and returns no operations. So every schedule of torch works,
in its own order. How the schedule batches operations and waits for them, which differs between
releases of torch, does not matter."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Union

import torch
import torch.distributed as dist
from torch.distributed import pipelining

from deltawire.errors import DeltawireError, refuse
from deltawire.profile import Profile
from deltawire.storage import Storage
from deltawire.torch.common import report
from deltawire.torch.common.gathered_state import Gathered
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.pipeline import ids, torch_stage
from deltawire.torch.pipeline.compression import Compression
from deltawire.torch.pipeline.options import FORWARD, Options


class Added(Gathered):
    """The methods that a compressed stage has besides those of torch's class."""

    _compression: Optional[Compression] = None

    def __reduce__(self: Any) -> Any:
        refuse(
            "a compressed stage cannot be pickled or copied: save its submod and what "
            "compression_state_dict() returns, and make a new stage in the process that uses it"
        )

    def compression_stats(self: Any) -> "dict[str, Any]":
        """Returns statistics as a dictionary: the index of the stage, the number of steps, and a
        dictionary for each direction in which the neighbour is on another rank: forward_sent,
        forward_received, backward_sent, backward_received. These have the entries

        config: the text of the config.
        messages, message_bytes: the messages, and their size, including frames, ids and headers:
            all bytes that the carrier was given.
        frame_bytes: the size of the frames. tensor_bytes: the size of the tensors, uncompressed.
        profile_bytes: the size of the profiles of channels.
        exact_tensors: the number of tensors sent without compression, because no codec accepts
            them: integers, or a first dimension that is not the number of samples. exact_bytes:
            their size in messages; one that has not changed since the last one travels only once.
        samples, key_entries, delta_entries, stateless_entries, skipped_entries: the number of
            samples with ids, and how entries were coded. hit_rate: the fraction of delta and
            skipped entries among these and key entries.
        poisoned_groups: the number of groups that contained NaN or infinity.
        keys_held, state_bytes: the number of ids with state, and the memory that it takes.
        lost_copies, evicted_keys: as in deltawire.Counters.
        codec_seconds: the time inside encode or decode.
        wire_seconds: of what is sent, the time in which this rank handed messages over, and waited
            at the end of a step until they had left.
        waiting_seconds: of what is received, the time in which this rank waited for messages: for
            the network, or for the other stage to compute."""
        with self._ours() as compression:
            return compression.stats()

    def compression_report(self: Any) -> str:
        """Returns the sums of compression_stats() as a table, to print."""
        stats = self.compression_stats()
        ways = {name: its for name, its in stats.items() if isinstance(its, dict)}
        return report.table(f"stage {stats['stage']}, {stats['steps']} steps", ways)

    def compression_scalars(self: Any, prefix: str = "deltawire") -> "dict[str, float]":
        """Returns the numbers of compression_stats() in a flat dictionary, for TensorBoard, W&B and
        the like: "deltawire/stage0/forward_sent/hit_rate" and so on."""
        stats = self.compression_stats()
        return report.scalars(f"{prefix}/stage{stats.pop('stage')}", stats)

    def compression_state_dict(self: Any) -> "dict[str, Any]":
        """Returns the compression state of this stage, for torch.save. Call it on all ranks, after
        the same step. With the text of a file as state=, it names the copies that the file has, and
        the file keeps those of the last two states.

        Errors: ARGUMENT (a step is under way, or it was closed, and its state was in a file), IO,
        NO_MEMORY."""
        with self._ours() as compression:
            return compression.save()

    def _not_saved(self: Any) -> None:
        self._compression.sides.snapshots.take_back()

    def load_compression_state_dict(self: Any, state: "dict[str, Any]") -> None:
        """Restores what compression_state_dict or state_dict returned. Call it on all ranks, after
        the schedule is made and before its first step. If only some ranks restore their state,
        there is a warning and all ids start without state.

        Errors: MISMATCH (saved by another stage, with another config, or with copies that the file
        of state= does not have), FORMAT, VERSION, ARGUMENT (after the first step), CORRUPT, LIMIT,
        IO. Nothing has changed then, and the stage can go on without."""
        with self._ours() as compression:
            compression.load(state)

    def prefetch(self: Any, ids: Any) -> None:
        """With state=: begins to read what is held of these ids, so that their step need not wait
        for it. Call it before a step with the ids of the next one, on every rank that knows
        them."""
        with self._ours() as compression:
            compression.lifetime.refuse_unusable()
            compression.sides.prefetch(ids)

    def reset_compression(self: Any) -> None:
        """Discards the state of what this stage sends, so that all ids start without state. It may
        be called on a single rank."""
        with self._ours() as compression:
            compression.sides.reset()

    def close_compression(self: Any) -> None:
        """Closes the links of this stage, so that a new stage can listen at the same port, for
        example after another rank has died. No step can follow. Can be called twice, and does
        nothing in a forked process."""
        assert self._compression is not None
        self._compression.close()

    @contextlib.contextmanager
    def _ours(self: Any) -> Iterator[Compression]:
        assert self._compression is not None
        self._compression.lifetime.refuse_fork()
        yield self._compression


class Overridden:
    """The methods of torch's class that are overridden.

    compressed() copies them and those of Added into a subclass of torch's class. Neither can be a
    second base class, because compress_stage changes the class of an existing object, and Python
    allows that only for classes with the same memory layout."""

    _compression: Optional[Compression]
    _compressed_class: Any = None
    stage_index: int

    def _torchs(self: Any) -> Any:
        """Returns a proxy for calling the methods of torch's class, as super() does."""
        return super(self._compressed_class, self)

    @contextlib.contextmanager
    def _step_of(self: Any) -> Iterator[Compression]:
        """If an exception leaves the block, the step ends with an error on the neighbours, too."""
        compression = self._compression
        assert compression is not None
        compression.lifetime.refuse_fork()
        try:
            yield compression
        except BaseException as error:  # KeyboardInterrupt, too
            compression.give_up(error)
            raise

    # --- methods of torch ----------------------------------------------------------------------

    def _prepare_forward_infra(
        self: Any, num_microbatches: int, args: Any, kwargs: Any = None, *rest: Any, **named: Any
    ) -> Any:
        with self._step_of() as compression, compression.rendezvous.refusing():
            compression.start()
            kwargs = ids.take(kwargs)[0]
            made = self._torchs()._prepare_forward_infra(
                num_microbatches, args, kwargs, *rest, **named
            )
            compression.prepared(num_microbatches)
            return made

    def _prepare_backward_infra(self: Any, *args: Any, **named: Any) -> Any:
        with self._step_of() as compression, compression.rendezvous.refusing():
            return self._torchs()._prepare_backward_infra(*args, **named)

    def _send_meta(self: Any, meta: Any, dst_stage: int) -> None:
        """Sends shapes; torch 2.6 sends them elsewhere. torch would wait for the other rank without
        noticing that a rank has refused."""
        self._compression.tell_shapes(dst_stage, meta)

    def _recv_meta(self: Any, src_stage: int) -> Any:
        return self._compression.shapes_of(src_stage)

    def clear_runtime_states(self: Any) -> None:
        self._torchs().clear_runtime_states()
        if self._compression is not None:
            torch_stage.split_ids(ids.NAME)
            self._compression.begin()

    def forward_one_chunk(
        self: Any, fwd_chunk_id: int, args: Any, kwargs: Any = None, *rest: Any, **named: Any
    ) -> Any:
        with self._step_of() as compression:
            kwargs, given = ids.take(kwargs)
            compression.give_ids(fwd_chunk_id, given, args, kwargs)
            output = self._torchs().forward_one_chunk(
                fwd_chunk_id, args, kwargs, *rest, **named
            )
            if compression.sides.after:
                compression.needs.made(fwd_chunk_id, output)
            if not self.is_last and torch_stage.is_here(self, self.stage_index + 1):
                ids.mark(output, compression.ids.of(fwd_chunk_id))
            return output

    def backward_one_chunk(self: Any, *args: Any, **named: Any) -> Any:
        with self._step_of():
            return self._torchs().backward_one_chunk(*args, **named)

    def set_local_fwd_input(self: Any, prev_stage_outputs: Any, mb_index: int) -> None:
        with self._step_of() as compression:
            compression.ids.learn(mb_index, ids.marked(prev_stage_outputs))
            compression.needs.handed_over(mb_index, prev_stage_outputs)
            self._torchs().set_local_fwd_input(prev_stage_outputs, mb_index)

    def get_fwd_recv_ops(self: Any, fwd_chunk_id: int) -> "list[Any]":
        with self._step_of() as compression:
            if compression.sides.before:
                compression.sides.before.post()
        return []

    def get_bwd_recv_ops(self: Any, bwd_chunk_id: int) -> "list[Any]":
        if self.has_backward:
            with self._step_of() as compression:
                if compression.sides.after:
                    compression.sides.after.post()
        return []

    def get_fwd_send_ops(self: Any, fwd_chunk_id: int) -> "list[Any]":
        with self._step_of() as compression:
            ops = self._torchs().get_fwd_send_ops(fwd_chunk_id)
            if compression.sides.after:
                compression.send_forward(fwd_chunk_id, [op.tensor for op in ops])
        return []

    def get_bwd_send_ops(self: Any, bwd_chunk_id: int) -> "list[Any]":
        with self._step_of() as compression:
            ops = self._torchs().get_bwd_send_ops(bwd_chunk_id)
            if compression.sides.before and self.has_backward:
                compression.send_backward(bwd_chunk_id, [op.tensor for op in ops])
        return []

    def _retrieve_recv_activations(self: Any, fwd_chunk_id: int) -> Any:
        compression = self._compression
        assert compression is not None
        if compression.sides.before:
            self._fill(
                self.args_recv_info[fwd_chunk_id],
                compression.take_forward(fwd_chunk_id),
                self.has_backward,
            )
        made = self._torchs()._retrieve_recv_activations(fwd_chunk_id)
        compression.needs.stop(fwd_chunk_id, self.args_recv_info[fwd_chunk_id], made)
        return made

    def _retrieve_recv_grads(self: Any, bwd_chunk_id: int) -> Any:
        compression = self._compression
        assert compression is not None
        if compression.sides.after:
            self._fill(
                self.grad_recv_info[bwd_chunk_id],
                compression.take_backward(bwd_chunk_id),
                False,
            )
        return self._torchs()._retrieve_recv_grads(bwd_chunk_id)

    def _fill(self, infos: Any, tensors: "list[torch.Tensor]", wants_grad: bool) -> None:
        if not torch_stage.fill(self, infos, tensors, wants_grad):
            refuse(
                f"stage {self.stage_index} received {len(tensors)} tensors but expected another "
                "number: a stage must have as many outputs in every step as in the first one"
            )

    def _validate_fwd_input(self: Any, args: Any, kwargs: Any) -> None:
        """Does nothing. torch 2.6 would require that all microbatches have the same shape, but the
        last batch may be shorter."""

    def _validate_fwd_outputs(self: Any, outputs: Any) -> None:
        """Does nothing, like _validate_fwd_input: the message tells the shape."""


def compressed(plain: type) -> type:
    """Returns the compressed subclass of one of torch's stage classes."""
    if plain not in _classes:
        own = ("__dict__", "__weakref__", "__doc__", "__qualname__")
        methods = {**vars(Gathered), **vars(Added), **vars(Overridden)}
        body = {name: what for name, what in methods.items() if name not in own}
        made: Any = type("Compressed" + plain.__name__, (plain,), body)
        made._compressed_class = made
        _classes[plain] = made
    return _classes[plain]


_classes: "dict[type, type]" = {}


if TYPE_CHECKING:
    from torch.distributed.pipelining.stage import _PipelineStageBase

    class CompressedStage(Added, _PipelineStageBase):
        """What compress_stage returns, as far as a type checker can know."""

    class _PlainStage(Added, pipelining.PipelineStage):
        """What PipelineStage extends."""

else:
    _PlainStage = compressed(pipelining.PipelineStage)


class PipelineStage(_PlainStage):
    """torch.distributed.pipelining.PipelineStage, with the options of compress_stage as additional
    keyword arguments."""

    def __init__(self, *args: Any, **named: Any) -> None:
        given = {name: named.pop(name, default) for name, default in DEFAULTS.items()}
        super().__init__(*args, **named)
        self._compression = _compression(self, given)


def _compression(stage: Any, given: "dict[str, Any]") -> Compression:
    """Makes what compresses a stage. given: the options. If one is refused, other ranks hear it."""
    try:
        options = Options(**given)
    except DeltawireError as error:
        if dist.is_initialized():
            _met(stage).refuse(error)
        raise
    rendezvous = _met(stage)
    with rendezvous.refusing():
        return Compression(stage, options, rendezvous)


def _met(stage: Any) -> Rendezvous:
    place = (stage.group, stage.stage_index, stage.num_stages)
    return Rendezvous.of_stages("compress_stage", *place)


def compress_stage(
    stage: Any,
    forward: Any = FORWARD,
    backward: Any = "direct:form=step,step=0.25,entropy=rans",
    evaluate: Any = "direct:form=step,step=0.15,entropy=rans",
    carrier: str = "group",
    on_missing_ids: str = "error",
    *,
    threads: int = 0,
    dataset_size: Optional[int] = None,
    equal_counts: Optional[bool] = None,
    link: "Optional[dict[str, Any]]" = None,
    profiles: "Union[Mapping[int, Profile], str, None]" = None,
    state: "Union[Storage, str, None]" = None,
) -> "CompressedStage":
    """Makes a pipeline stage of torch compress the tensors that it exchanges with its neighbours.

        stage = deltawire.torch.compress_stage(PipelineStage(module, index, stages, device))
        schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss)
        schedule.step(x, sample_ids=ids)               # on the first rank
        schedule.step(target=y, losses=losses)         # on the last rank

    Call it on every rank, with the same options.

    stage: a PipelineStage before its first step.
    forward: the config of activations. docs/codecs.md has all configs.
    backward: the config of gradients with respect to activations.
    evaluate: the config of activations in steps without ids. It must not keep state.
    carrier: "group" uses torch's process group. An address of this rank such as "tcp://10.0.0.7",
        with a port or without one, uses links of deltawire, which reconnect and can encrypt; this
        rank listens there for the rank of the next stage.
    on_missing_ids: what happens in a training step without ids. "error": an error. "direct": the
        step uses the config `evaluate`.
    threads: the number of threads that share the work of a call. 0: the calling thread alone.
    dataset_size: the number of samples in the data set. It is used to warn if ids do not recur.
    equal_counts: whether the length of each message is sent before it, for backends that require
        equal sizes at both ends. None: yes if the backend is not gloo.
    link: more arguments for each deltawire.Link, for example {"tls": Tls(...)}.
    profiles: profiles of channels for activations (the first output tensor of each stage), where
        forward or evaluate has form=step. "fit": each stage fits them to what it sends and to the
        gradients that come back, before its first tensor and after training steps 1, 2, 4, 8 and so
        on, and sends them along. {stage: deltawire.Profile}: profiles that were fitted before, for
        the stages that send; give all ranks the same. {}: none. None: "fit" where forward can have
        profiles.
    state: a Storage, or the text of one ("file:/path,cache=4GiB"), for state that does not fit in
        memory. The number of the stage is added to the path of a text. See prefetch, and
        docs/state.md for what checkpoints have then.

    Returns the same stage. Its class is now a subclass of what it was, with the additional methods
    compression_stats, compression_report, compression_scalars, compression_state_dict,
    load_compression_state_dict, state_dict, load_state_dict, gathered_state_dict, prefetch,
    reset_compression and close_compression.
    Errors: CONFIG, ARGUMENT (the stage is already compressed, or has run a step).
    """
    if hasattr(stage, "_compression"):
        refuse("this stage is already compressed: call compress_stage only once for each stage")
    if not hasattr(stage, "get_fwd_send_ops") or not hasattr(stage, "stage_index"):
        refuse(f"stage must be a PipelineStage of torch, not {type(stage).__name__}")
    if stage.args_recv_info:
        refuse("this stage has already run a step: compress it before its first step")
    given = {
        "forward": forward,
        "backward": backward,
        "evaluate": evaluate,
        "carrier": carrier,
        "on_missing_ids": on_missing_ids,
        "threads": threads,
        "dataset_size": dataset_size,
        "equal_counts": equal_counts,
        "link": link,
        "profiles": profiles,
        "state": state,
    }
    made = _compression(stage, given)
    stage.__class__ = compressed(type(stage))
    stage._compression = made
    return stage


# The options and their defaults, also for PipelineStage.
DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(compress_stage).parameters.items()
    if name != "stage"
}
