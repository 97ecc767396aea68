# SPDX-License-Identifier: Apache-2.0
# gloo_group.py - groups_of_ours: process groups with the backend gloo for ranks that have met.
from __future__ import annotations

import datetime
from typing import Any

import torch.distributed as dist

from deltawire.errors import DeltawireError, Status, fail
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.gradients.hop import GROUPS


def groups_of_ours(rendezvous: Rendezvous) -> "list[Any]":
    """Makes the process groups of a Hop for ranks that have met. Errors: UNSUPPORTED, PEER."""
    if not dist.is_gloo_available():
        fail(
            Status["UNSUPPORTED"],
            f"{rendezvous.function} needs the backend gloo: install a torch that has it",
        )
    timeout = datetime.timedelta(seconds=rendezvous.timeout)
    own = len(rendezvous.ranks) < dist.get_world_size()

    made: "list[Any]" = []
    try:
        for _ in range(GROUPS):
            made.append(
                dist.new_group(
                    rendezvous.ranks, timeout=timeout, backend="gloo", use_local_synchronization=own
                )
            )
        return made
    except RuntimeError as error:
        for group in made:
            dist.destroy_process_group(group)
        text = str(error).strip().split("\n")[0]
        raise DeltawireError(
            Status["PEER"],
            f"gloo could not connect the ranks ({text}): call {rendezvous.function} on every rank "
            "of the group, and check that the ranks can reach each other by TCP",
        ) from error
