# SPDX-License-Identifier: Apache-2.0
# codec.py - what Encoder and Decoder have in common: their making and end, counters, saved states.
from __future__ import annotations

from typing import Any, Iterable, Mapping, NoReturn, Union

from deltawire._library import core, ffi
from deltawire.bytes_in import Bytes
from deltawire.config import Config, struct_with
from deltawire.counters import Counters, codec_counters
from deltawire.errors import ARGUMENT, check, fail, new_why, text_of
from deltawire.keys import Id, key_of, unpack_one
from deltawire.owner import Life, Owned
from deltawire.tensor import BYTES, NAMES, Tensor
from deltawire.threads import Threads, pool_of


class Codec(Owned):
    """Base of Encoder and Decoder. The functions of C are found by the noun: dw_NOUN_create_why."""

    def __init__(self, config: Union[str, Config], threads: Union[int, Threads] = 0) -> None:
        super().__init__()
        self._config = Config(config)
        self._pool = pool_of(threads)
        self._struct = struct_with(self._config, self._pool._take() if self._pool else None)
        made, why = ffi.new(f"dw_{self._noun} **"), new_why()
        status = self._call("create_why")(made, self._struct, why)
        if status < 0 and self._pool:
            self._pool._give_back()
        check(status, why)
        self._handle = made[0]
        self._end = self._call("destroy")
        self._open = True

    def _call(self, name: str) -> Any:
        return getattr(core, f"dw_{self._noun}_{name}")

    def _fail(self, status: int, reply: Any = None) -> NoReturn:
        fail(status, text_of(self._call("why")(self._handle)), reply)

    def _check(self, status: int) -> None:
        if status < 0:
            self._fail(status)

    @property
    def config(self) -> Config:
        """What it was made of."""
        return self._config

    def close(self) -> None:
        """Ends it and gives its memory back. May be called again, and does nothing in a forked
        process."""
        if not self._open or self._life is not Life.now:
            return
        self._enter()
        try:
            self._open = False
            self._end(self._handle)
            if self._pool:
                self._pool._give_back()
        finally:
            self._busy.release()

    def __del__(self, life: Any = Life) -> None:
        if getattr(self, "_open", False) and self._life is life.now:
            self._open = False
            self._end(self._handle)
            if self._pool:
                self._pool._give_back()

    def counters(self) -> Counters:
        """What it has done since it was made, as a named tuple; see Counters."""
        self._enter()
        try:
            struct = ffi.new("dw_counters *", {"struct_size": ffi.sizeof("dw_counters")})
            self._check(self._call("counters")(self._handle, struct))
            return codec_counters(struct)
        finally:
            self._busy.release()

    def peek(self, id: Id) -> Tensor:
        """A copy (1, T, C) of prev, the last reconstruction of an id, in the dtype it is kept in.

        Errors: ARGUMENT (nothing is held of this id).
        """
        key = key_of(id)
        self._enter()
        try:
            prev = ffi.new("dw_tensor *")
            status = self._call("peek")(self._handle, key[0], prev)
            if status < 0:
                fail(status, f"nothing is held of the id {id!r}")
            return _copy(prev)
        finally:
            self._busy.release()

    def export_state(self, id: Id) -> bytes:
        """What is held of one id, for a checkpoint; import_state of a new object takes it.

        Errors: ARGUMENT (nothing is held of this id), NO_MEMORY.
        """
        key = key_of(id)
        self._enter()
        try:
            length = ffi.new("size_t *")
            export = self._call("export")
            self._check(export(self._handle, key[0], ffi.NULL, 0, length))
            room = ffi.new("char[]", length[0])
            self._check(export(self._handle, key[0], room, length[0], length))
            return ffi.buffer(room, length[0])[:]
        finally:
            self._busy.release()

    def export_states(self) -> "dict[Id, bytes]":
        """What is held of every id. Save both ends between the same two frames."""
        states: "dict[Id, bytes]" = {}

        def visit(_: Any, key: Any, saved: Any, length: int) -> int:
            states[unpack_one(key)] = ffi.buffer(saved, length)[:]
            return 0

        self._enter()
        try:
            callback = ffi.callback("dw_saved_visit", visit, error=ARGUMENT)
            self._check(self._call("export_all")(self._handle, callback, ffi.NULL))
            return states
        finally:
            self._busy.release()

    def import_state(self, saved: Any) -> None:
        """Takes what export_state gave, in the place of what is held of that id.

        saved: bytes, or a buffer. The first import gives a new object the saved incarnation.
        Errors: FORMAT, VERSION, CORRUPT, MISMATCH (of the other end, or of another life), LIMIT
        (quota_bytes), NO_MEMORY.
        """
        with Bytes(saved, "the saved state") as given:
            self._enter()
            try:
                self._check(self._call("import")(self._handle, given.pointer, given.length))
            finally:
                self._busy.release()

    def import_states(self, states: "Union[Mapping[Id, bytes], Iterable[bytes]]") -> None:
        """import_state of each: of what export_states gave, or of any states. What comes before one
        that is refused stays taken."""
        for saved in states.values() if isinstance(states, Mapping) else states:
            self.import_state(saved)


def _copy(view: Any) -> Tensor:
    made = Tensor((view.n, view.t, view.c), NAMES[view.dtype])
    size = BYTES[made.dtype]
    to, source = ffi.cast("char *", made._view.data), ffi.cast("char *", view.data)
    row = view.c * size
    if view.stride_t == view.c or view.t == 1:
        ffi.memmove(to, source, made.nbytes)
    else:
        for t in range(view.t):
            ffi.memmove(to + t * row, source + t * view.stride_t * size, row)
    return made
