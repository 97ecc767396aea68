# SPDX-License-Identifier: Apache-2.0
# _library.py - finds the C libraries that belong to this package, and loads them.
"""In a wheel they lie beside this file. Elsewhere the dynamic linker finds them; tests name folders
in DW_TEST_LIBRARIES, apart by colons."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any, Callable

from deltawire._declarations import VERSION, ffi

SUFFIX = ".so.0"
# What DLPack gave away may be freed after the last Python object is gone: the code must stay.
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
        "the wheel, or deltawire itself where the dynamic linker finds it"
    )


core = _load("deltawire")
try:
    found = ffi.string(core.dw_version()).decode()
except (AttributeError, ffi.error) as error:
    raise ImportError(f"the library that was found is not deltawire's: {error}") from None
if found != VERSION:
    raise ImportError(
        f"this Python package is of deltawire {VERSION}, and the libdeltawire that was found is "
        f"{found}: install both from the same release"
    )
links = _load("deltawire-link")
pools = _load("deltawire-threads")
native = _load("deltawire-python")
# The same library, for the functions that are called while the interpreter's lock is held.
locked = _load("deltawire-python", ctypes.PyDLL)
