# SPDX-License-Identifier: Apache-2.0
# tls.py - Tls: who may be the other end of a link.
from __future__ import annotations

import dataclasses
import os
from typing import Any, Optional, Union

from deltawire._library import ffi
from deltawire.errors import refuse

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True, repr=False)
class Tls:
    """What one end of a link shows and demands: a group key that all ranks hold, or a certificate.

    own_name: this end, as "rank/3". peer_name: who the other end must be; needed to connect.
    group_key: 32 bytes to 4 KiB of randomness, never a password; or group_key_file with it.
    certificate_file, key_file, ca_file: PEM files; or certificate_pem, key_pem, ca_pem as text.
    docs/deploy.md has the commands that make them.
    """

    own_name: Optional[str] = None
    peer_name: Optional[str] = None
    group_key: Optional[bytes] = None
    group_key_file: Optional[Path] = None
    certificate_file: Optional[Path] = None
    key_file: Optional[Path] = None
    ca_file: Optional[Path] = None
    certificate_pem: Optional[str] = None
    key_pem: Optional[str] = None
    ca_pem: Optional[str] = None

    def __repr__(self) -> str:  # no keys in logs
        return f"Tls(own_name={self.own_name!r}, peer_name={self.peer_name!r}, ...)"

    def _struct(self) -> "tuple[Any, list[Any]]":
        """(dw_tls_options *, what keeps its texts)."""
        made = ffi.new("dw_tls_options *", {"struct_size": ffi.sizeof("dw_tls_options")})
        kept = [made]  # what holds a pointer to it does not keep it
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            if given is None:
                continue
            raw = _raw(field.name, given)
            text = ffi.new("char[]", raw)
            kept.append(text)
            setattr(made, field.name, text)
            if field.name == "group_key":
                made.group_key_bytes = len(raw)
        return made, kept


def _raw(name: str, given: Any) -> bytes:
    if name == "group_key":
        if not isinstance(given, (bytes, bytearray)):
            refuse("group_key is bytes: give its file as group_key_file")
        return bytes(given)
    try:
        raw = os.fsencode(given)
    except TypeError:
        refuse(f"{name} of Tls is a text, not {type(given).__name__}")
    if b"\0" in raw:
        refuse(f"{name} of Tls has a zero byte in it")
    return raw
