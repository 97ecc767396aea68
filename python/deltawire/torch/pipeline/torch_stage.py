# SPDX-License-Identifier: Apache-2.0
# torch_stage.py - access to private attributes of torch's pipeline stages, which vary by release.
from __future__ import annotations

import sys
from typing import Any, Iterator, Sequence

import torch
from torch.distributed.pipelining import microbatch
from torch.utils._pytree import tree_map


def receives(info: Any) -> bool:
    """Whether an input or gradient with this description is received from another rank."""
    if getattr(info, "is_root_arg", False) or not hasattr(info, "buffer"):
        return False
    return getattr(info, "tensor_meta", info) is not None


def described(info: Any) -> "tuple[torch.dtype, tuple[int, ...]]":
    """The dtype and shape of a received tensor."""
    meta = getattr(info, "tensor_meta", None)
    meta = info.buffer if meta is None else meta
    return meta.dtype, tuple(meta.shape)


def inputs(stage: Any) -> "list[tuple[torch.dtype, tuple[int, ...]]]":
    """The dtypes and shapes of the tensors that the previous stage sends for one microbatch."""
    return [described(info) for info in stage.args_recv_info[0] if receives(info)]


def outputs(stage: Any) -> "list[tuple[torch.dtype, tuple[int, ...]]]":
    """The dtypes and shapes of the tensors for the next stage; empty if torch does not tell."""
    known = getattr(getattr(stage, "_stage_meta", None), "outputs", None)
    if known is None:
        known = getattr(stage, "_outputs_meta", None)
    return [(meta.dtype, tuple(meta.shape)) for meta in known or ()]


def fill(stage: Any, infos: Any, tensors: "list[torch.Tensor]", wants_grad: bool) -> bool:
    """Stores received tensors where torch expects them. Returns False if their number is wrong."""
    wanting = [info for info in infos if receives(info)]
    if len(wanting) != len(tensors):
        return False
    for info, tensor in zip(wanting, tensors):
        tensor = tensor.to(stage.device)
        if wants_grad and not hasattr(info, "tensor_meta") and tensor.dtype.is_floating_point:
            tensor.requires_grad_(True)  # torch 2.6 does not do it itself
        info.buffer = tensor
    return True


def that_need_gradients(stage: Any, output: Any) -> "list[bool]":
    """Of each tensor for other stages, in torch's order of sends: whether it needs gradients."""
    made = output if isinstance(output, (tuple, list)) else (output,)
    sent = stage.act_send_info
    return [
        bool(getattr(tensor, "requires_grad", False))
        for at, tensor in enumerate(made)
        for to in sent.get(at) or ()
        if to is not None
    ]


def stop_gradients(
    stage: Any, infos: Any, activations: Any, still: "Sequence[int]"
) -> "tuple[frozenset[int], int]":
    """A traced stage computes gradients of all that it receives, also of masks, cosines and sines.
    Switches that off for those at these positions. Returns the positions of their gradients among
    those that torch sends, which are zeros then, and how many it sends.

    torch 2.6 would refuse a missing gradient, and with TORCH_DISTRIBUTED_DEBUG=DETAIL all releases
    do, so nothing is switched off there."""
    received = [at for at, info in enumerate(infos) if receives(info)]
    metas = [getattr(infos[at], "tensor_meta", None) for at in received]
    sent = [slot for slot, meta in enumerate(metas) if getattr(meta, "requires_grad", False)]
    if getattr(stage, "_runtime_validate", False):
        still = ()
    zeros = [at for at, slot in enumerate(sent) if slot in still]
    for at in zeros:
        activations[received[sent[at]]].requires_grad_(False)
    return frozenset(zeros), len(sent)


def is_here(stage: Any, index: int) -> bool:
    """Whether the stage with this index is on the same rank."""
    return stage.stage_index_to_group_rank[index] == stage.group_rank


def far_neighbours(stage: Any) -> "Iterator[int]":
    """Yields stages that are not neighbours but exchange tensors with this one."""
    for infos in stage.args_recv_info.values():
        for info in infos:
            source = getattr(info, "source", None)
            if source is not None and source != stage.stage_index - 1:
                yield source
    for destinations in getattr(stage, "act_send_info", {}).values():
        for destination in destinations or ():
            if destination is not None and destination != stage.stage_index + 1:
                yield destination


def _schedule() -> "tuple[Any, dict[str, Any]]":
    """Returns the schedule that is beginning a step now, and the keyword arguments of its input;
    None if there is none. A stage has no reference to its schedule, so the schedule is looked for
    among the callers."""
    frame = sys._getframe()
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(getattr(found, "_internal_losses", None), list):
            return found, frame.f_locals.get("kwargs") or {}
        frame = frame.f_back  # type: ignore[assignment]
    return None, {}


def forget_losses() -> None:
    """Clears the losses that a failed step has left in the schedule that is beginning a step now.

    torch clears them only at the end of a step, and would take them for those of the next one."""
    losses = getattr(_schedule()[0], "_internal_losses", None)
    if losses:
        losses.clear()


def split_ids(name: str) -> None:
    """Gives the argument of this name its place in the kwargs_chunk_spec of the schedule that is
    beginning a step now, if it has one: torch wants there exactly the arguments of this step."""
    schedule, given = _schedule()
    spec = getattr(schedule, "_kwargs_chunk_spec", None)
    if spec is None:
        return
    spec = {key: one for key, one in spec.items() if key != name}
    if isinstance(given.get(name), torch.Tensor):
        spec[name] = microbatch.TensorChunkSpec(0)
    elif name in given:
        spec[name] = tree_map(lambda _: microbatch._Replicate(), given[name])
    schedule._kwargs_chunk_spec = spec
