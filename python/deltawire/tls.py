# SPDX-License-Identifier: Apache-2.0
# tls.py - Tls: the TLS keys and names of one end of a link.
from __future__ import annotations

import dataclasses
import os
from typing import Any, Optional, Union

from deltawire._library import ffi
from deltawire.errors import refuse

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True, repr=False)
class Tls:
    """How one end of a link authenticates itself and checks the other end. Give either a group key,
    which is a secret that all ranks have, or a certificate with its key and CA.

    own_name: the name of this end, for example "rank/3".
    peer_name: the name that the other end must have. The end that connects needs it.
    group_key: 32 bytes to 4 KiB of random data, never a password.
    group_key_file: a file with such a key, instead of group_key.
    certificate_file, key_file, ca_file: the paths of PEM files.
    certificate_pem, key_pem, ca_pem: the same as PEM text, instead of files.
    docs/deploy.md has the commands that make keys and certificates.
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

    def __repr__(self) -> str:  # without the keys, so that they do not get into logs
        return f"Tls(own_name={self.own_name!r}, peer_name={self.peer_name!r}, ...)"

    def __reduce__(self) -> Any:
        refuse("a Tls cannot be pickled or copied, because it may hold keys: make another one")

    def _struct(self) -> "tuple[Any, list[Any]]":
        """Returns a dw_tls_options * and a list of the objects that own its memory."""
        made = ffi.new("dw_tls_options *", {"struct_size": ffi.sizeof("dw_tls_options")})
        kept = [made]  # a struct of cffi that points to it would not keep it alive
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
            refuse("group_key must be bytes: give the path of a key file as group_key_file")
        return bytes(given)
    try:
        raw = os.fsencode(given)
    except TypeError:
        refuse(f"{name} of Tls must be a str or a path, not {type(given).__name__}")
    if b"\0" in raw:
        refuse(f"{name} of Tls must not contain a zero byte")
    return raw
