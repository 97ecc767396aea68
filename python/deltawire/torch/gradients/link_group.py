# SPDX-License-Identifier: Apache-2.0
# link_group.py - Sums: a deltawire.Group of the ranks, over links that they open to each other.
"""Each rank has a link to every other one. The lower rank of two listens at the address of its
carrier and tells the other one the port through torch's store. The links are opened in the order of
their pairs of ranks, so no ranks wait for each other in a circle.

Links reconnect when a connection breaks, and can encrypt. The group sums what all ranks contribute
in one hop or two; docs/collective.md says how."""

from __future__ import annotations

from typing import Any, Optional

from deltawire.config import Config
from deltawire.errors import DeltawireError, Status
from deltawire.group import Group
from deltawire.link import Link
from deltawire.torch.common import address
from deltawire.torch.common.links import open_link
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.gradients.options import Options

ADVICE = (
    "the states of the ranks may differ now, so start all of them again from a checkpoint, with "
    "the compression state that was saved there"
)


class Sums:
    """A group over links, and the links.

    options: those of the hook. result: the config of the sums.
    Errors: those of Link, which name the rank, and of Group.
    """

    def __init__(
        self, rendezvous: Rendezvous, options: Options, result: Config, hops: int
    ) -> None:
        self._rank, self._timeout = rendezvous.rank, rendezvous.timeout
        self._configs, self._hops = (options.codec, result), hops
        self._threads = options.threads
        self._links: "list[Optional[Link]]" = []
        self._made = 0
        self._group: Optional[Group] = None
        try:
            for other in range(len(rendezvous.ranks)):
                mine = other == rendezvous.rank
                self._links.append(None if mine else _opened(rendezvous, other, options))
            # A group would hear that a rank is gone, and not why.
            rendezvous.hear("the links", None)
            self.renew()
        except BaseException:
            self.close()
            raise

    @property
    def group(self) -> Group:
        assert self._group is not None
        return self._group

    def renew(self) -> None:
        """Replaces the group by one without state. All ranks must call it."""
        if self._group is not None:
            self._group.close()
        self._made += 1
        self._group = Group(
            self._links,
            *self._configs,
            id=self._made,  # each number can be used once on a link
            threads=self._threads,
            timeout=self._timeout,
            open_timeout=self._timeout,
            hops=self._hops,
        )

    def start(self, operation: str, slot: int, x: Any, out: Any, mean: bool) -> Any:
        """Starts an operation; call finish with what this returns."""
        try:
            return self.group.start(operation, x, out, slot, mean=mean)
        except DeltawireError as error:
            raise failed(error) from error

    def finish(self, operation: Any) -> None:
        """Waits for an operation. Errors: that of a group that has failed, with its rank."""
        try:
            operation.wait()
        except DeltawireError as error:
            raise failed(error) from error

    def flush(self) -> None:
        """Waits until the other ranks have all that this one has sent, so that this process may end
        at any time after that."""
        for link in self._links:
            try:
                if link is not None:
                    link.flush(timeout=self._timeout)
            except DeltawireError as error:
                # PEER is no error here, because this rank has received all that it needs. The
                # other rank may have finished its last step and closed the link. If it has died
                # instead, the next step fails.
                if error.status != Status["PEER"]:
                    raise failed(error) from error

    def states(self) -> "dict[int, list[bytes]]":
        """Returns what the codecs keep, by slot. Errors: those of Group.state_dict."""
        for operation in list(self.group._pending.values()):  # of a group that has failed
            try:
                operation.wait()
            except DeltawireError:
                pass
        found: "dict[int, list[bytes]]" = {}
        for slot, piece in self.group._export():
            found.setdefault(slot, []).append(piece)
        return found

    def close(self) -> None:
        """Closes the group and the links. Calling it again does nothing."""
        for one in (self._group, *self._links):
            try:
                if one is not None:
                    one.close()
            except RuntimeError:
                pass  # the other rank is gone, or the interpreter ends


def _opened(rendezvous: Rendezvous, other: int, options: Options) -> Link:
    """Opens the link to another rank. The lower one of both listens."""
    me, carrier, more = rendezvous.rank, options.carrier, options.link
    at = address.listening(carrier, other - me - 1) if me < other else None
    between = f"ranks {min(me, other)} and {max(me, other)}"
    try:
        given = more(other) if callable(more) else more or {}
        return open_link(rendezvous, between, other, at, carrier, given)
    except DeltawireError as error:
        error.rank = other if error.rank is None else error.rank
        raise


def failed(error: DeltawireError) -> DeltawireError:
    """Adds to an error of a group what the ranks must do. Its rank stays."""
    made = DeltawireError(error.status, f"{error.why}: {ADVICE}")
    made.rank = error.rank
    return made
