# SPDX-License-Identifier: Apache-2.0
# options.py - Options: the arguments of ddp_hook and compress_fsdp, after they have been checked.
from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Union

from deltawire.errors import refuse
from deltawire.threads import pool_of
from deltawire.torch.common import address
from deltawire.torch.common.configs import of_flat

More = Union[Mapping[str, Any], Callable[[int], Mapping[str, Any]], None]


class Options:
    """ddp_hook documents them. threads: as encoders take it. Errors: ARGUMENT, CONFIG."""

    def __init__(
        self, codec: Any, threads: Any, timeout: Optional[float], carrier: str, link: More
    ) -> None:
        if timeout is not None and not timeout > 0:
            refuse(f"timeout must be a number of seconds above 0, not {timeout!r}")
        address.check(carrier)
        self.is_grouped = carrier == address.GROUP
        if self.is_grouped and link is not None:
            refuse('link has arguments of links, but carrier is "group": give an address, too')
        self.codec, self.threads = of_flat(codec), pool_of(threads) or 0
        self.timeout, self.carrier, self.link = timeout, carrier, link

    def agreed(self) -> "dict[str, Any]":
        """What must be equal on all ranks, and in a state that is loaded."""
        return {"codec": self.codec.agreement, "carrier": address.kind(self.carrier)}
