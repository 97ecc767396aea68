# SPDX-License-Identifier: Apache-2.0
# options.py - Options: what compress_stage was told, checked.
from __future__ import annotations

from typing import Any, Optional

from deltawire.errors import refuse
from deltawire.torch.ends import without_replies


class Options:
    """See compress_stage for the meaning of each."""

    def __init__(
        self,
        forward: Any = "delta:bits=4",
        backward: Any = "direct:bits=4",
        evaluate: Any = "direct:bits=8",
        carrier: str = "group",
        on_missing_ids: str = "error",
        threads: int = 0,
        dataset_size: Optional[int] = None,
        equal_counts: Optional[bool] = None,
        link: "Optional[dict[str, Any]]" = None,
    ) -> None:
        self.forward = without_replies(forward)
        self.backward = without_replies(backward)
        self.evaluate = without_replies(evaluate)
        if self.evaluate.codec == "delta":
            refuse(
                "evaluate is for what has no ids, and delta needs them: give a config such as "
                '"direct:bits=8"'
            )
        if carrier != "group" and "://" not in str(carrier):
            refuse(
                f'carrier is "group", or the address at which this rank listens for its '
                f'neighbours, such as "tcp://10.0.0.7", not {carrier!r}'
            )
        if on_missing_ids not in ("error", "direct"):
            refuse(f'on_missing_ids is "error" or "direct", not {on_missing_ids!r}')
        if dataset_size is not None and (not isinstance(dataset_size, int) or dataset_size < 1):
            refuse(f"dataset_size is the number of samples in the data set, not {dataset_size!r}")
        self.carrier, self.on_missing_ids = carrier, on_missing_ids
        self.threads, self.dataset_size = threads, dataset_size
        self.equal_counts, self.link = equal_counts, dict(link or {})

    def agreed(self) -> "dict[str, Any]":
        """What all ranks must have alike."""
        return {
            "forward": self.forward.agreement,
            "backward": self.backward.agreement,
            "evaluate": self.evaluate.agreement,
            "carrier": "group" if self.carrier == "group" else "link",
            "on_missing_ids": self.on_missing_ids,
            "equal_counts": self.equal_counts,
        }
