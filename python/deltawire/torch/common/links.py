# SPDX-License-Identifier: Apache-2.0
# links.py - open_link: a deltawire.Link between two members of a rendezvous.
"""One of both listens at the address of its own rank, and tells the other one the port through the
rendezvous. An error of one of them ends the waits of all."""

from __future__ import annotations

import functools
from typing import Any, Mapping, Optional

from deltawire.errors import DeltawireError, fail, refuse
from deltawire.link import Link
from deltawire.torch.common import address
from deltawire.torch.common.rendezvous import Rendezvous


def open_link(
    rendezvous: Rendezvous,
    between: str,
    other: int,
    listens_at: Optional[str],
    carrier: str,
    more: "Mapping[str, Any]",
) -> Link:
    """Opens the link to another member.

    between: names both, in the same way at both ends. listens_at: the address at which this member
    listens. None: the other one listens. carrier: this rank's address. more: arguments of Link.
    Errors: ARGUMENT, those of Link, which name both, and that of a member that refuses."""
    topic = f"the link between {between}"
    given: "dict[str, Any]" = {"open_timeout": rendezvous.timeout, "_look": rendezvous.look, **more}
    try:
        if listens_at is not None:
            told = functools.partial(rendezvous.tell, topic)
            return Link(listens_at, True, on_listening=told, **given)
        uri = rendezvous.word_of(topic, other)
        return Link(address.seen_here(uri, carrier), **given)
    except TypeError as error:
        refuse(f"link has an argument that deltawire.Link does not take ({error})")
    except DeltawireError as error:
        if error is rendezvous.error:  # another member refuses
            raise
        fail(error.status, f"{topic} could not be opened: {error.why}")
