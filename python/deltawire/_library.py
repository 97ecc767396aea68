# SPDX-License-Identifier: Apache-2.0
# _library.py - finds and loads the C libraries that belong to this package.
"""In a wheel, the libraries lie beside this file. Otherwise the dynamic linker finds them. Tests
name folders in DW_TEST_LIBRARIES, separated by colons."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any, Callable

from deltawire._declarations import VERSION, ffi

SUFFIX = ".so.0"
# A consumer of a DLPack capsule may call its deleter after the last Python object is gone, so the
# code must stay loaded.
FLAGS = os.RTLD_NOW | getattr(os, "RTLD_NODELETE", 0)


def _candidates(name: str) -> list[str]:
    folders = [pathlib.Path(__file__).parent]
    folders += [pathlib.Path(f) for f in os.environ.get("DW_TEST_LIBRARIES", "").split(":") if f]
    found = [
        str(folder / stem)
        for folder in folders
        for stem in (f"lib{name}{SUFFIX}", f"lib{name}.so")
        if (folder / stem).exists()
    ]
    return found[:1] or [f"lib{name}{SUFFIX}", f"lib{name}.so"]


def _load(name: str, load: Callable[[str, int], Any] = ffi.dlopen) -> Any:
    reasons = []
    for candidate in _candidates(name):
        try:
            return load(candidate, FLAGS)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        f"deltawire's library lib{name}{SUFFIX} cannot be loaded ({'; '.join(reasons)}): install "
        "the wheel, or install deltawire in a folder that the dynamic linker searches"
    )


core = _load("deltawire")
try:
    found = ffi.string(core.dw_version()).decode()
except (AttributeError, ffi.error) as error:
    raise ImportError(f"the library that was found does not belong to deltawire: {error}") from None
if found != VERSION:
    raise ImportError(
        f"this Python package belongs to deltawire {VERSION}, but the libdeltawire that was found "
        f"is version {found}: install both from the same release"
    )
net = _load("deltawire-net")
pools = _load("deltawire-threads")
native = _load("deltawire-python")
# The same library, for the functions that must be called with the interpreter lock (GIL) held.
locked = _load("deltawire-python", ctypes.PyDLL)
