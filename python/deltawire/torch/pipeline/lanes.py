# SPDX-License-Identifier: Apache-2.0
# lanes.py - which lane a stage has to a neighbour, and how large its receive buffers are.
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from deltawire.torch.common import address, tensors
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.pipeline import group_lane, message
from deltawire.torch.pipeline.ends import bytes_for
from deltawire.torch.pipeline.group_lane import EqualCountsLane, GroupLane
from deltawire.torch.pipeline.lane import Lane
from deltawire.torch.pipeline.link_lane import LinkLane
from deltawire.torch.pipeline.options import Options
from deltawire.torch.pipeline.side import Side
from deltawire.torch.pipeline.step_end import StepEnd


def room(options: Options, described: "list[tuple[torch.dtype, tuple[int, ...]]]") -> int:
    """The size in bytes of a receive buffer that is enough for tensors with these shapes."""
    parts = []
    for dtype, shape in described:
        both = (
            bytes_for(options.forward, options.evaluate, dtype, shape),
            bytes_for(options.backward, None, dtype, shape),
        )
        parts.append((max(both), len(shape)))
    if options.fits and described and described[0][1]:
        size = message.PROFILE_BYTES * described[0][1][-1] + message.NAMED_BYTES
        parts.append((size, 3))
    samples = max((shape[0] for _, shape in described if shape), default=0)
    return message.room(parts, samples)


def counts_are_equal(options: Options, group: Any) -> bool:
    """Whether messages travel over a group that wants equal sizes at both ends."""
    if options.carrier != address.GROUP:
        return False
    asked = options.equal_counts
    return group_lane.wants_equal_counts(group) if asked is None else asked


def make(
    stage: Any, side: Side, options: Options, rendezvous: Rendezvous, group: Any, room: int
) -> Lane:
    """Makes the lane of a side. group: the process group of the stages."""
    me, other, after, end = stage.stage_index, side.other, side.is_after, StepEnd.of(group)
    if options.carrier != address.GROUP:
        return LinkLane(me, other, rendezvous, options.carrier, after, end, options.link)
    base = group_lane.TAGS + ((rendezvous.number * 1024 + min(me, other)) << 2)
    tags = (base, base + 2) if after else (base + 2, base)
    rank = stage.stage_index_to_group_rank[other]
    theirs = "before" if after else "after"
    common = (me, other, group, rank, tags, room, lambda: side.ready()["rooms"][theirs])
    if counts_are_equal(options, group):
        device = tensors.device_for(group)
        return EqualCountsLane(*common, device=device, my_rank=dist.get_rank(group))
    return GroupLane(*common)
