# SPDX-License-Identifier: Apache-2.0
# carrier_link.py - LinkLane: messages over a link of deltawire, which reconnects and encrypts.
"""Between neighbouring stages there is one link, on which each direction has a tag. The earlier
stage listens, at an address of its own rank, and tells the later one by the agreement which port it
got. A link delivers whole messages, once and in order, and opens broken connections anew, so that
encoders and decoders can stay with the stage: its state can be saved, and the messages are the same
as over the process group."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Any, Callable, Optional

from deltawire.errors import DeltawireError, Status
from deltawire.link import Link
from deltawire.torch.lane import Lane
from deltawire.torch.step_end import StepEnd

FORWARD, BACKWARD = 1, 2  # tags
_lanes: "weakref.WeakSet[LinkLane]" = weakref.WeakSet()


class LinkLane(Lane):
    """uri: where this rank listens, if listens; else address() tells where to go, and may wait.
    bound: called with the URI that was bound. timeout: seconds, for opening and for receives."""

    def __init__(
        self,
        me: int,
        other: int,
        uri: str,
        listens: bool,
        bound: "Callable[[str], None]",
        address: "Callable[[], str]",
        end: StepEnd,
        timeout: float,
        options: "dict[str, Any]",
    ) -> None:
        super().__init__(me, other)
        self._timeout, self._end = timeout, end
        self._out, self._in = (FORWARD, BACKWARD) if listens else (BACKWARD, FORWARD)
        self._link: Optional[Link] = None
        self._error: Optional[BaseException] = None
        made: "list[Link]" = []
        options = {"open_timeout": timeout, **options}

        def open_it() -> None:
            try:
                if listens:
                    made.append(Link(uri, True, on_listening=bound, **options))
                else:
                    made.append(Link(address(), **options))
                self._link = made[0]
            except BaseException as error:  # told to whoever first needs the link
                self._error = error

        self._opening = threading.Thread(target=open_it, daemon=True, name="deltawire-link")
        self._opening.start()
        _lanes.add(self)
        weakref.finalize(self, _close, made)

    def _opened(self) -> Link:
        if self._link is None:
            self._opening.join()
            if self._error is not None:
                error = self._error
                status = getattr(error, "status", Status["ADDRESS"])
                raise DeltawireError(
                    status,
                    f"the link between stages {self.me} and {self.other} did not open: "
                    f"{getattr(error, 'why', error)}",
                ) from error
        assert self._link is not None
        return self._link

    def send(self, data: bytearray, waits: bool = True) -> None:
        link = self._opened()
        try:
            link.send(self._out, data, timeout=self._timeout)
        except DeltawireError as error:
            self.lost(error)
        if waits:
            self._end.later(self._flush)

    def _flush(self) -> None:
        try:
            self._opened().flush(timeout=self._timeout)
        except DeltawireError as error:
            self.lost(error)

    def take(self) -> memoryview:
        link = self._opened()
        try:
            data = link.recv(self._in, timeout=self._timeout)
        except DeltawireError as error:
            self.lost(error)
        if data is None:
            raise DeltawireError(
                Status["TIMEOUT"],
                f"stage {self.me} waited {self._timeout:.0f} seconds for stage {self.other}: look "
                "what that rank does, or give torch's process group a longer timeout",
            )
        return memoryview(data)

    def close(self) -> None:
        self._opening.join(0.1)
        if self._link is not None:
            self._link.close()

    def counters(self) -> Any:
        return self._opened().counters()


def _close(links: "list[Link]") -> None:
    for link in links:
        try:
            link.close()
        except DeltawireError:
            pass  # the peer is gone


@atexit.register
def _at_exit() -> None:
    for lane in list(_lanes):
        try:
            lane.close()
        except DeltawireError:
            pass
