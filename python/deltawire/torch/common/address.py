# SPDX-License-Identifier: Apache-2.0
# address.py - the option carrier: torch's process group, or the address at which a rank listens.
from __future__ import annotations

import re

from deltawire.errors import refuse

GROUP = "group"
LAST_PORT = 65535


def check(carrier: object) -> None:
    """Raises ARGUMENT if carrier is neither "group" nor an address."""
    if carrier != GROUP and "://" not in str(carrier):
        refuse(
            'carrier must be "group" or the address at which this rank listens for its '
            f'neighbours, such as "tcp://10.0.0.7", not {carrier!r}'
        )


def kind(carrier: str) -> str:
    """Returns "group" or "link", which must be the same on all ranks."""
    return GROUP if carrier == GROUP else "link"


def seen_here(uri: str, carrier: str) -> str:
    """Returns the address at which another rank listens, with the scope of this rank's.

    A link-local address of IPv6, as "tcp://[fe80::1%eth0]:7000", names an interface of the machine
    on which it is used."""
    scope = re.compile(r"(?<=\[)([^\]%]*)%([^\]]*)")
    own = scope.search(carrier)
    if own is None:
        return uri
    here = own[2]
    return scope.sub(lambda theirs: f"{theirs[1]}%{here}", uri)


def listening(uri: str, number: int = 0) -> str:
    """Returns the address for the link with this number of the rank, counted from 0.

    If the address has no port, or port 0, every link takes any free port. Otherwise the links take
    this port and those after it. Errors: ARGUMENT (there are not so many ports)."""
    head, _, rest = uri.rpartition("://")
    place, question, query = rest.partition("?")
    host, colon, port = place.rpartition(":")
    if not colon or "]" in port:
        place += ":0"
    elif port.isdigit() and int(port):
        if int(port) + number > LAST_PORT:
            refuse(
                f"carrier is {uri!r}, but link {number} of this rank needs port "
                f"{int(port) + number}: give a lower port, or none"
            )
        place = f"{host}:{int(port) + number}"
    return f"{head}://{place}{question}{query}"
