# SPDX-License-Identifier: Apache-2.0
# ids.py - the ids of a step's samples: taken from what the schedule hands on, cut, carried.
"""The first rank says `schedule.step(x, sample_ids=ids)`. torch cuts keyword arguments that are
tensors as it cuts x, and hands every microbatch its part; later stages read ids out of messages.
From a stage to the next one on the same rank they travel on the tensors themselves."""

from __future__ import annotations

from typing import Any, Optional

import torch

from deltawire.errors import refuse

NAME = "sample_ids"
_MARK = "_deltawire_ids"


def take(kwargs: "Optional[dict[str, Any]]") -> "tuple[dict[str, Any], Any]":
    """(the keyword arguments without ids, the ids or None)."""
    if not kwargs or NAME not in kwargs:
        return kwargs or {}, None
    rest = dict(kwargs)
    return rest, rest.pop(NAME)


def listed(given: Any) -> "list[int]":
    """ids as ints. Errors: ARGUMENT."""
    if isinstance(given, torch.Tensor):
        if given.dtype.is_floating_point or given.dtype in (torch.bool, torch.complex64):
            refuse(f"{NAME} holds {given.dtype}: give a tensor of int64, one id for each sample")
        if given.dim() != 1:
            refuse(f"{NAME} has {given.dim()} extents: give one id for each sample, one extent")
        found = given.tolist()
    elif hasattr(given, "tolist"):
        found = given.tolist()
    elif isinstance(given, (list, tuple)):
        found = list(given)
    else:
        refuse(f"{NAME} is a tensor of int64 with one id for each sample, not {type(given)!r}")
    for one in found:
        if not isinstance(one, int) or not 0 <= one < 2**64:
            refuse(f"{one!r} in {NAME} is no id: an id is an integer from 0 to 2**64 - 1")
    return found


class Cutter:
    """Gives each microbatch of a step its ids, also where torch handed all of them to each one, as
    it does with what is no tensor."""

    def __init__(self) -> None:
        self._before = 0

    def cut(self, given: Any, n: int, microbatch: int) -> "list[int]":
        """The ids of the next microbatch, which has n samples. Errors: ARGUMENT."""
        found = listed(given)
        if not isinstance(given, torch.Tensor) and len(found) != n:
            start, self._before = self._before, self._before + n
            found = found[start : start + n]
        if len(found) != n:
            refuse(
                f"microbatch {microbatch} has {n} samples and {len(found)} ids: give {NAME} as "
                "many as x has samples, in x's order"
            )
        if len(set(found)) != n:
            twice = next(one for one in found if found.count(one) > 1)
            refuse(
                f"id {twice} stands twice in microbatch {microbatch}: a sample may be in a "
                "microbatch once, so draw without replacement, or give copies ids of their own"
            )
        return found


def mark(output: Any, ids: "Optional[list[int]]") -> None:
    """Writes the ids of a microbatch onto its tensors, for the next stage on this rank."""
    for tensor in output if isinstance(output, (tuple, list)) else (output,):
        if isinstance(tensor, torch.Tensor):
            setattr(tensor, _MARK, ids)


def marked(output: Any) -> "Optional[list[int]]":
    for tensor in output if isinstance(output, (tuple, list)) else (output,):
        found = getattr(tensor, _MARK, None)
        if found is not None:
            return found
    return None
