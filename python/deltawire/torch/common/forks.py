# SPDX-License-Identifier: Apache-2.0
# forks.py - refuses objects and process groups of torch that belong to a parent process.
"""After os.fork(), the child has copies of the sockets of its parent's process groups. What it
would send or receive there is missing in the parent, or waits forever. So every call on an object
that was made before the fork, or on a process group that was, is an error in the child."""

from __future__ import annotations

import os
import weakref
from typing import Any

import torch.distributed as dist

from deltawire.errors import refuse
from deltawire.owner import Life

_inherited: "weakref.WeakSet[Any]" = weakref.WeakSet()  # the process groups of the parent


def _forked() -> None:
    if dist.is_available():
        _inherited.update(dist.distributed_c10d._world.pg_map)


os.register_at_fork(after_in_child=_forked)


def is_ours(life: Any) -> bool:
    """Whether an object that was made in this life belongs to this process."""
    return life is Life.now


def refuse_fork(life: Any, noun: str) -> None:
    """Raises an error if an object that was made in this life belongs to a parent process."""
    if not is_ours(life):
        refuse(
            f"this {noun} belongs to the process that made it, and this is another process that "
            f"was forked from it: make a new process group and a new {noun} here"
        )


def refuse_inherited(group: Any) -> None:
    """Raises an error if a process group belongs to a parent process."""
    if group in _inherited:
        refuse(
            "this process group belongs to the process that made it, and this is another process "
            "that was forked from it: call torch.distributed.init_process_group here, after "
            "destroy_process_group"
        )
