# SPDX-License-Identifier: Apache-2.0
# ids.py - the sample ids of a step: taken from keyword arguments, checked, split, passed on.
"""The first rank calls `schedule.step(x, sample_ids=ids)`, or gives x by keyword. torch splits
keyword arguments that are tensors into microbatches, as it splits x. Later stages read the ids from
the messages. Between two stages on the same rank, the ids are an attribute of the tensors."""

from __future__ import annotations

from typing import Any, Iterable, Optional

import torch

from deltawire.errors import refuse

NAME = "sample_ids"
_MARK = "_deltawire_ids"


def take(kwargs: "Optional[dict[str, Any]]") -> "tuple[dict[str, Any], Any]":
    """Returns the keyword arguments without the ids, and the ids or None."""
    if not kwargs or NAME not in kwargs:
        return kwargs or {}, None
    rest = dict(kwargs)
    return rest, rest.pop(NAME)


def listed(given: Any) -> "list[int]":
    """Converts the ids to a list of ints. Errors: ARGUMENT."""
    if isinstance(given, torch.Tensor):
        if given.dtype.is_floating_point or given.dtype in (torch.bool, torch.complex64):
            refuse(f"{NAME} is a tensor of {given.dtype}: give an int64 tensor, one id per sample")
        if given.dim() != 1:
            refuse(f"{NAME} has {given.dim()} dimensions: give a one-dimensional tensor of ids")
        found = given.tolist()
    elif hasattr(given, "tolist"):
        found = given.tolist()
    elif isinstance(given, (list, tuple)):
        found = list(given)
    else:
        refuse(f"{NAME} must be an int64 tensor with one id per sample, not {type(given)!r}")
    for one in found:
        if not isinstance(one, int) or not 0 <= one < 2**64:
            refuse(f"{one!r} in {NAME} is not an id: an id is an integer from 0 to 2**64 - 1")
    return found


def _sizes(given: "Iterable[Any]") -> "list[int]":
    return [len(one) for one in given if isinstance(one, torch.Tensor) and one.dim() > 0]


def samples(
    given: Any, args: "tuple[Any, ...]", kwargs: "dict[str, Any]", microbatch: int, of: int
) -> int:
    """Returns the number of samples of one of `of` microbatches with this input: that of the first
    positional tensor. If there is none, the ids say it, if any keyword argument has as many."""
    sizes = _sizes(args)
    if sizes:
        return sizes[0]
    sizes, ids = _sizes(kwargs.values()), len(listed(given))
    share = ids // of + (microbatch < ids % of)  # as torch splits tensors
    for n in (ids,) if isinstance(given, torch.Tensor) else (share, ids):
        if not sizes or n in sizes:
            return n
    return sizes[0]


class Cutter:
    """Splits the ids of a step into those of each microbatch. torch does that only if they are a
    tensor; otherwise it passes all ids to each microbatch, unless the program has split them."""

    def __init__(self) -> None:
        self._before = 0
        self._first: "Optional[list[int]]" = None  # what was given with the first microbatch

    def cut(self, given: Any, n: int, microbatch: int, of: int) -> "list[int]":
        """Returns the ids of the next microbatch of so many, which has n samples.

        Errors: ARGUMENT."""
        found = listed(given)
        start, self._before = self._before, self._before + n
        are_all = len(found) != n if self._first is None else found == self._first
        self._first = found if self._first is None else self._first
        if are_all and not isinstance(given, torch.Tensor):
            found = found[start : None if microbatch == of - 1 else start + n]
        if len(found) != n:
            refuse(
                f"microbatch {microbatch} has {n} samples but {len(found)} ids: give {NAME} as "
                "many ids as x has samples, in the same order"
            )
        if len(set(found)) != n:
            twice = next(one for one in found if found.count(one) > 1)
            refuse(
                f"id {twice} occurs twice in microbatch {microbatch}, but ids in a microbatch must "
                "be different: sample without replacement, or give copies other ids"
            )
        return found


class StepIds:
    """The ids of the microbatches of a step. It owns them.

    stage: torch's stage. on_missing: that option."""

    def __init__(self, stage: Any, on_missing: str) -> None:
        self._stage, self._on_missing = stage, on_missing
        self._ids: "dict[int, Optional[list[int]]]" = {}
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self._ids.clear()
        self._given: "dict[int, Any]" = {}  # on later stages, to compare
        self._cutter = Cutter()

    def of(self, microbatch: int) -> "Optional[list[int]]":
        return self._ids.get(microbatch)

    def are_missing(self) -> bool:
        """Whether the last step had no ids."""
        return bool(self._ids) and all(ids is None for ids in self._ids.values())

    def give(
        self,
        microbatch: int,
        given: Any,
        args: "tuple[Any, ...]",
        kwargs: "dict[str, Any]",
        of: int,
    ) -> None:
        """Takes the ids of one of `of` microbatches, as the program has given them, or None.

        args, kwargs: the inputs of the first stage."""
        if not self._stage.is_first:
            self._given[microbatch] = given
            return
        if given is None:
            if self._stage.has_backward and self._on_missing == "error":
                refuse(
                    "a training step has no ids: call schedule.step(x, sample_ids=ids) on the "
                    "first rank, where ids is an int64 tensor with one id for each sample, or "
                    'allow steps without ids with on_missing_ids="direct"'
                )
            self._ids[microbatch] = None
            return
        n = samples(given, args, kwargs, microbatch, of)
        self._ids[microbatch] = self._cutter.cut(given, n, microbatch, of)

    def learn(self, microbatch: int, ids: "Optional[list[int]]") -> None:
        """Takes the ids of a microbatch from the stage before this one."""
        given = self._given.pop(microbatch, None)
        if ids is not None and isinstance(given, torch.Tensor) and given.tolist() != ids:
            refuse(
                f"stage {self._stage.stage_index} was given other {NAME} for microbatch "
                f"{microbatch} than the first rank: give {NAME} on the first rank only"
            )
        self._ids[microbatch] = ids


def mark(output: Any, ids: "Optional[list[int]]") -> None:
    """Attaches the ids of a microbatch to its tensors, for the next stage on this rank."""
    for tensor in output if isinstance(output, (tuple, list)) else (output,):
        if isinstance(tensor, torch.Tensor):
            setattr(tensor, _MARK, ids)


def marked(output: Any) -> "Optional[list[int]]":
    """Returns the ids that mark attached, or None."""
    for tensor in output if isinstance(output, (tuple, list)) else (output,):
        found = getattr(tensor, _MARK, None)
        if found is not None:
            return found
    return None
