# SPDX-License-Identifier: Apache-2.0
# gloo_group.py - groups_of_ours: process groups with the backend gloo for ranks that have met.
from __future__ import annotations

import datetime
from typing import Any

import torch.distributed as dist

from deltawire.errors import DeltawireError, Status, fail
from deltawire.torch.common.rendezvous import Rendezvous


def groups_of_ours(rendezvous: Rendezvous) -> "tuple[Any, Any]":
    """Makes two process groups of the ranks of a rendezvous. Errors: UNSUPPORTED, PEER."""
    if not dist.is_gloo_available():
        fail(
            Status["UNSUPPORTED"],
            f"{rendezvous.function} needs the backend gloo: install a torch that has it",
        )
    timeout = datetime.timedelta(seconds=rendezvous.timeout)
    own = len(rendezvous.ranks) < dist.get_world_size()

    def make() -> Any:
        return dist.new_group(
            rendezvous.ranks, timeout=timeout, backend="gloo", use_local_synchronization=own
        )

    try:
        return make(), make()
    except RuntimeError as error:
        text = str(error).strip().split("\n")[0]
        raise DeltawireError(
            Status["PEER"],
            f"gloo could not connect the ranks ({text}): call {rendezvous.function} on every rank "
            "of the group, and check that the ranks can reach each other by TCP",
        ) from error
