# SPDX-License-Identifier: Apache-2.0
# agreement.py - Agreement: what the stages of a pipeline tell each other before the first step.
"""The stages write to the key-value store of torch.distributed. Writing never waits; reading waits
until the value is there. So the stages may start in any order, and a rank may have several."""

from __future__ import annotations

import json
import time
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from deltawire.errors import DeltawireError, Status
from deltawire.torch import processes

# For each process group and stage index: the number of pipelines made so far. It tells pipelines of
# the same process group apart.
_counts: "weakref.WeakKeyDictionary[Any, dict[int, int]]" = weakref.WeakKeyDictionary()


def group_of(group: Any) -> Any:
    """Returns the process group, or the default group for None.

    Errors: ARGUMENT (it belongs to the process from which this one was forked)."""
    group = group if group is not None else dist.group.WORLD
    processes.refuse_inherited(group)
    return group


def timeout_of(group: Any) -> float:
    """Returns the timeout of a process group in seconds."""
    for device in ("cpu", "cuda"):
        try:
            return group._get_backend(torch.device(device)).options._timeout.total_seconds()
        except (RuntimeError, AttributeError):
            continue
    return dist.distributed_c10d.default_pg_timeout.total_seconds()


class Agreement:
    """What one stage tells the others, and learns from them."""

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
        """Waits for the value that another stage has told, and returns it. Errors: TIMEOUT.

        It polls, because the store's own wait would block all other threads of this process that
        use the store, and one of them may have to write what the other stage waits for."""
        key, pause = f"{self._prefix}/{stage_index}/{what}", 0.001
        end = time.monotonic() + self._store.timeout.total_seconds()
        try:
            while not self._store.check([key]):
                if time.monotonic() > end:
                    raise RuntimeError("the timeout of torch.distributed is over")
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            return json.loads(self._store.get(key))
        except (RuntimeError, ConnectionError) as error:
            raise DeltawireError(
                Status["TIMEOUT"],
                f"stage {self.stage_index} waited in vain for stage {stage_index} before the first "
                "step: make every stage of the pipeline with compress_stage, and look in the log "
                f"of that rank for what stopped it ({_short(error)})",
            ) from error

    def compare(self, mine: "dict[str, Any]") -> None:
        """Compares the options of all stages with those of this one.

        Errors: MISMATCH, with the option that differs and the stage."""
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
