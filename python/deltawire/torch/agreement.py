# SPDX-License-Identifier: Apache-2.0
# agreement.py - what the ranks of a pipeline tell each other before the first microbatch.
"""Through the store with which torch's ranks found each other: to write never waits, to read waits
until it is there. So stages may come in any order, and several may lie on one rank."""

from __future__ import annotations

import json
import time
import weakref
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from deltawire.errors import DeltawireError, Status

# Per process group, how many pipelines of it each stage index has been part of.
_counts: "weakref.WeakKeyDictionary[Any, dict[int, int]]" = weakref.WeakKeyDictionary()


def group_of(group: Any) -> Any:
    return group if group is not None else dist.group.WORLD


class Agreement:
    """One stage's part in it."""

    def __init__(self, group: Any, stage_index: int, num_stages: int) -> None:
        group = group_of(group)
        counts = _counts.setdefault(group, {})
        self.pipeline = counts.get(stage_index, 0)
        counts[stage_index] = self.pipeline + 1
        self._prefix = f"deltawire/{group.group_name}/{num_stages}/{self.pipeline}"
        self._store = distributed_c10d._get_default_store()
        self.stage_index, self.num_stages = stage_index, num_stages

    def tell(self, what: str, value: Any) -> None:
        self._store.set(f"{self._prefix}/{self.stage_index}/{what}", json.dumps(value))

    def hear(self, stage_index: int, what: str) -> Any:
        """Waits for what that stage told. Errors: TIMEOUT.

        It asks again and again: a store that waits itself lets no other thread of this process in
        meanwhile, which may have the very thing to tell that the peer waits for."""
        key, pause = f"{self._prefix}/{stage_index}/{what}", 0.001
        end = time.monotonic() + self._store.timeout.total_seconds()
        try:
            while not self._store.check([key]):
                if time.monotonic() > end:
                    raise RuntimeError("torch's timeout is over")
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            return json.loads(self._store.get(key))
        except (RuntimeError, ConnectionError) as error:
            raise DeltawireError(
                Status["TIMEOUT"],
                f"stage {self.stage_index} heard nothing from stage {stage_index} at the start: "
                "make every stage of the pipeline with compress_stage, and look why that rank "
                f"did not come so far ({_short(error)})",
            ) from error

    def compare(self, mine: "dict[str, Any]") -> None:
        """All stages against this one. Errors: MISMATCH, with what differs and where."""
        for other in range(self.num_stages):
            theirs = self.hear(other, "options")
            for name, value in mine.items():
                if theirs.get(name) != value:
                    raise DeltawireError(
                        Status["MISMATCH"],
                        f"stage {other} has {name} = {theirs.get(name)!r} and stage "
                        f"{self.stage_index} has {value!r}: give all ranks the same options and "
                        "the same deltawire",
                    )


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
