# SPDX-License-Identifier: Apache-2.0
# lifetime.py - Lifetime: refuses calls on what was closed, or belongs to a parent process.
from __future__ import annotations

from deltawire.errors import refuse
from deltawire.owner import Life
from deltawire.torch.common import forks


class Lifetime:
    """How long a stage or a hook may be used. It owns whether it was closed.

    noun: what it is. instead: what to do when it was closed."""

    def __init__(self, noun: str, instead: str) -> None:
        self._noun, self._instead = noun, instead
        self._life, self._closed = Life.now, False

    def is_ours(self) -> bool:
        """Whether this process has made it."""
        return forks.is_ours(self._life)

    def refuse_fork(self) -> None:
        """Raises an error in a process that was forked from the one that made it."""
        forks.refuse_fork(self._life, self._noun)

    def refuse_unusable(self) -> None:
        """The same, also if it was closed."""
        self.refuse_fork()
        if self._closed:
            refuse(f"this {self._noun} was closed: {self._instead}")

    def close(self) -> None:
        self._closed = True
