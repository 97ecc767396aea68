# SPDX-License-Identifier: Apache-2.0
# report.py - Seconds: how long something took; table and scalars: statistics to print and to plot.
from __future__ import annotations

import re
import threading
import time
from typing import Any, Callable

TITLES = ("raw MB", "sent MB", "raw/sent", "hits", "codec s", "wire s", "waiting s", "config")


class Seconds:
    """The time that calls took together. Any thread may add to it."""

    def __init__(self) -> None:
        self.sum = 0.0
        self._lock = threading.Lock()

    def time(self, call: "Callable[..., Any]", *given: Any) -> Any:
        begun = time.perf_counter()
        try:
            return call(*given)
        finally:
            with self._lock:
                self.sum += time.perf_counter() - begun


def table(title: str, rows: "dict[str, dict[str, Any]]") -> str:
    """Returns a table with a line for each of these statistics; "-" is what one does not have."""
    lines = [(title, *TITLES)] + [(name, *_cells(its)) for name, its in rows.items()]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:])),
                line[-1],
            ]
        )
        for line in lines
    )


def _cells(its: "dict[str, Any]") -> "tuple[str, ...]":
    raw = its.get("tensor_bytes", its.get("raw_bytes", 0))
    sent = its.get("message_bytes", its.get("sent_bytes", 0))
    visits = sum(its.get(f"{kind}_entries", 0) for kind in ("key", "delta", "skipped"))
    times = (its.get(name) for name in ("codec_seconds", "wire_seconds", "waiting_seconds"))
    return (
        *(f"{raw / 1e6:.2f}", f"{sent / 1e6:.2f}", f"{raw / sent:.1f}" if sent else "-"),
        f"{100 * its['hit_rate']:.0f} %" if visits else "-",
        *("-" if one is None else f"{one:.3f}" for one in times),
        re.sub("[:,]replies=never", "", its["config"]),
    )


def scalars(prefix: str, stats: "dict[str, Any]") -> "dict[str, float]":
    """Returns the numbers in nested statistics, each by the names that lead to it."""
    made: "dict[str, float]" = {}
    for name, value in stats.items():
        if isinstance(value, dict):
            made.update(scalars(f"{prefix}/{name}", value))
        elif isinstance(value, (int, float)):
            made[f"{prefix}/{name}"] = value
    return made
