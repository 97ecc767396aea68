# SPDX-License-Identifier: Apache-2.0
# gathered_state.py - Gathered: the state of hooks and stages for programs that save checkpoints.
"""Such a program calls state_dict() on all ranks. Many then write what the first rank has, and load
it on all ranks; torch.distributed.checkpoint writes each key once. So the state is a dict with a
key for each rank, "rank 0", "rank 1" and so on. The first rank has all of them, and the others only
their own.

A value is a list of bytes, which together are what torch.save writes of the rank's own state. A
list of bytes is one value for torch.distributed.checkpoint, which could not load tensors of other
sizes than those that a new hook has."""

from __future__ import annotations

import io
from typing import Any, Optional

import torch
import torch.distributed as dist

from deltawire.errors import DeltawireError, Status, fail, line_of
from deltawire.torch.common import tensors
from deltawire.torch.common.rendezvous import group_of
from deltawire.torch.common.waits import Wait

PIECE = 1 << 30  # bytes; pickle could not write pieces of more than 4 GiB


class Gathered:
    """The methods that hooks and stages have for such programs."""

    def state_dict(self: Any) -> "dict[str, list[bytes]]":
        """Returns gathered_state_dict()."""
        return self.gathered_state_dict()

    def load_state_dict(self: Any, state: "dict[str, Any]") -> None:
        """Does what load_compression_state_dict does."""
        self.load_compression_state_dict(state)

    def gathered_state_dict(self: Any, group: Any = None) -> "dict[str, list[bytes]]":
        """Returns the compression states of all ranks on the first rank of a process group, and on
        each other rank its own. load_compression_state_dict loads both, as long as there are as
        many ranks as before.

        group: a process group. None: all ranks. Call it on all its ranks, after the same step.

        Errors: those of compression_state_dict of any rank; PEER (a rank did not call, or has
        raised another exception)."""
        group = group_of(group)
        error: Optional[Exception] = None
        mine, is_made = b"", False
        try:
            try:
                state = self.compression_state_dict()
                is_made = True
                file = io.BytesIO()
                torch.save(state, file)
                mine = file.getvalue()
            except Exception as caught:  # the other ranks wait
                error = caught
            states = _gathered(group, error, mine)
        except BaseException:
            if is_made:
                self._not_saved()
            raise
        return {
            f"rank {rank}": [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
            for rank, data in states.items()
        }

    def _not_saved(self) -> None:
        """What compression_state_dict returned last is of no use, because another rank has none."""


def own(state: Any) -> Any:
    """Returns this rank's part of what gathered_state_dict returned. Other states stay as they are.

    Errors: MISMATCH (it has no state of this rank), FORMAT."""
    if not isinstance(state, dict) or not any(str(key).startswith("rank ") for key in state):
        return state
    name = f"rank {dist.get_rank()}"
    if name not in state:
        fail(
            Status["MISMATCH"],
            f"this checkpoint has the compression states of {len(state)} ranks, and none of "
            f"{name}: resume with the ranks that saved it, and save what state_dict() returns on "
            "the first rank",
        )
    try:
        return torch.load(io.BytesIO(b"".join(state[name])), weights_only=True)
    except Exception as error:
        raise DeltawireError(
            Status["FORMAT"],
            f"the compression state of {name} is damaged ({line_of(error)}): load what "
            "state_dict() returned",
        ) from error


def _gathered(group: Any, error: Optional[Exception], mine: bytes) -> "dict[int, bytes]":
    """Returns the states by global rank. If a rank has an error, all ranks raise it."""
    ranks, told = dist.get_process_group_ranks(group), None
    if isinstance(error, DeltawireError):
        told = (int(error.status), error.why)
    elif error is not None:
        told = (int(Status["PEER"]), f"{type(error).__name__}: {line_of(error)}")
    errors: "list[Any]" = [None] * len(ranks)
    _wait(group, lambda: dist.all_gather_object(errors, told, group=group))
    if error is not None:
        raise error
    for rank, other in zip(ranks, errors):
        if other is not None:
            fail(other[0], f"rank {rank} could not save its compression state: {other[1]}")
    first = ranks[0] == dist.get_rank()
    states: "Optional[list[Any]]" = [None] * len(ranks) if first else None
    _wait(group, lambda: dist.gather_object(mine, states, dst=ranks[0], group=group))
    return dict(zip(ranks, states)) if states is not None else {dist.get_rank(): mine}


def _wait(group: Any, call: Any) -> None:
    here = tensors.device_for(group).type != "cpu"  # each thread has a current GPU of its own
    try:
        Wait(call, None, here).end()
    except RuntimeError as error:
        raise DeltawireError(
            Status["PEER"],
            f"not all ranks have saved their compression state ({line_of(error)}): call "
            "state_dict() on every rank, also where only one writes the file",
        ) from error
