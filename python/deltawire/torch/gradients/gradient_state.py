# SPDX-License-Identifier: Apache-2.0
# gradient_state.py - GradientState: what DdpState and FsdpState say about themselves.
from __future__ import annotations

from typing import Any

from deltawire.torch.common import report
from deltawire.torch.common.gathered_state import Gathered


class GradientState(Gathered):
    """The base class of DdpState and FsdpState. It owns nothing."""

    _title = _name = ""
    _options: Any

    def compression_report(self: Any) -> str:
        """Returns the sums of stats() as a table, to print."""
        stats = self.stats()
        row = {"config": self._options.codec.text, **stats}
        return report.table(f"{self._title}, {stats['steps']} steps", {"gradients": row})

    def compression_scalars(self: Any, prefix: str = "deltawire") -> "dict[str, float]":
        """Returns stats() with names like "deltawire/ddp/sent_bytes", or "deltawire/fsdp/...", for
        TensorBoard, W&B and the like."""
        return report.scalars(f"{prefix}/{self._name}", self.stats())
