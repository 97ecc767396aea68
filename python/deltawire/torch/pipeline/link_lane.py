# SPDX-License-Identifier: Apache-2.0
# link_lane.py - LinkLane: carries messages of pipeline stages over a deltawire.Link.
"""Two neighbouring stages share one link, with one tag for each direction. The earlier stage
listens.

A link delivers whole messages, once and in order, reconnects when a connection breaks, and can
encrypt. It carries the same messages as the process group. It is not a deltawire.Channel, because
encoders and decoders belong to the stage, which saves their state."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Any, Optional

from deltawire._waiting import SLICE_S
from deltawire.errors import DeltawireError, Status
from deltawire.link import Link
from deltawire.torch.common import address
from deltawire.torch.common.links import open_link
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.pipeline.lane import Lane
from deltawire.torch.pipeline.step_end import StepEnd

FORWARD, BACKWARD = 1, 2  # tags
_lanes: "weakref.WeakSet[LinkLane]" = weakref.WeakSet()


class LinkLane(Lane):
    """A lane over a link, which a background thread opens.

    rendezvous: that of the stages. carrier: the address of this rank, where it listens if listens.
    more: arguments of deltawire.Link.
    """

    def __init__(
        self,
        me: int,
        other: int,
        rendezvous: Rendezvous,
        carrier: str,
        listens: bool,
        end: StepEnd,
        more: "dict[str, Any]",
    ) -> None:
        super().__init__(me, other)
        self._timeout, self._end, self._rendezvous = rendezvous.timeout, end, rendezvous
        self._out, self._in = (FORWARD, BACKWARD) if listens else (BACKWARD, FORWARD)
        self._link: Optional[Link] = None
        self._error: Optional[BaseException] = None
        self._closed = False
        made: "list[Link]" = []
        between = f"stages {min(me, other)} and {max(me, other)}"
        at = address.listening(carrier) if listens else None

        def open_it() -> None:
            try:
                made.append(open_link(rendezvous, between, other, at, carrier, more))
                self._link = made[0]
                if self._closed:
                    _close(made)
            except BaseException as error:  # raised in the first call that needs the link
                self._error = error
                rendezvous.refuse(error)

        self._opening = threading.Thread(target=open_it, daemon=True, name="deltawire-link")
        self._opening.start()
        _lanes.add(self)
        weakref.finalize(self, _close, made)

    def _opened(self) -> Link:
        if self._link is None:
            while self._opening.is_alive():
                self._rendezvous.look()
                self._opening.join(SLICE_S)
            if self._error is not None:
                self._rendezvous.look()
                raise self._error
        assert self._link is not None
        return self._link

    def send(self, data: bytearray, waits: bool = True) -> int:
        link = self._opened()
        try:
            link.send(self._out, data, timeout=self._timeout)
        except DeltawireError as error:
            self.lost(error)
        if waits:
            self._end.later(self._flush)
        return len(data)

    def _flush(self) -> None:
        try:
            self.sending.time(self._opened().flush, self._timeout)
        except DeltawireError as error:
            # PEER is no error here, because this rank has received all that it needs. The
            # neighbour may have finished its last step and closed the link. If it has died instead,
            # the next step fails.
            if error.status != Status["PEER"]:
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
                f"stage {self.me} waited {self._timeout:.0f} seconds for stage {self.other}: find "
                "out why that rank is slow, or give torch's process group a longer timeout",
            )
        return memoryview(data)

    def close(self) -> None:
        self._closed = True
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
            pass  # the other end is gone already


@atexit.register
def _at_exit() -> None:
    for lane in list(_lanes):
        try:
            lane.close()
        except DeltawireError:
            pass
