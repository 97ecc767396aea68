# SPDX-License-Identifier: Apache-2.0
# encoder.py - Encoder: tensors to frames.
from __future__ import annotations

from typing import Any, Optional, Union

from deltawire._library import core, ffi, native
from deltawire.bytes_in import Bytes
from deltawire.codec import Codec
from deltawire.config import Config
from deltawire.errors import NO_MEMORY, fail, refuse
from deltawire.frame import bound
from deltawire.keys import Id, Ids, key_of, pack, pack_any
from deltawire.threads import Threads
from deltawire.views import ROWS, WRITES, View, reach, refuse_overlap


class Encoder(Codec):
    """Turns tensors into frames. One for each direction and tensor of a model.

    config: a Config or its text, "delta:bits=4" for instance.
    threads: how many threads share the work of a call, or a Threads; 0 and 1: the caller alone. The
        frames do not depend on it.
    Errors: CONFIG, ARGUMENT, NO_MEMORY.

    One thread at a time may use it; it belongs to the process that made it; it can be a context
    manager.
    """

    _noun = "encoder"

    def __init__(self, config: Union[str, Config], threads: Union[int, Threads] = 0) -> None:
        super().__init__(config, threads)
        self._needs_ids = self._config.codec == "delta"
        self._x, self._made = View("x"), View("reconstruction")
        self._length = ffi.new("size_t *")
        self._options = ffi.new(
            "dw_encode_options *", {"struct_size": ffi.sizeof("dw_encode_options")}
        )
        self._room: Any = None
        self._cap = 0

    def encode(
        self,
        x: Any,
        ids: Optional[Ids] = None,
        out: Any = None,
        *,
        stateless: bool = False,
        limit: int = 0,
        reconstruction: Any = None,
        rows_are_samples: bool = False,
    ) -> Any:
        """Turns x into one frame, and advances what is held of its ids as the decoder will.

        x: (N, T, C) of f32, f16 or bf16, by DLPack or the buffer protocol; also (C), (T, C) and
            (N, A, B, C). Samples and tokens may have gaps between them.
        ids: N ids, all different; see docs/python.md. None: only where no state is touched.
        out: room for the frame, writable bytes; self.bound(x) is enough. None: the frame is new
            bytes.
        stateless: no entry touches state; the same id may be encoded with state later.
        limit: the frame takes at most so many bytes; 0: as many as it needs.
        reconstruction: a tensor of x's shape that gets what the decoder will make of the frame.
        rows_are_samples: two extents are (N, C), not (T, C).

        Returns the frame: bytes, or out cut to the frame's length (a memoryview of a buffer).
        Errors: ARGUMENT, UNSUPPORTED (device, dtype), NO_ROOM, LIMIT, SHAPE (of reconstruction),
        NO_MEMORY; then nothing has changed. NaN and Inf are no error: their group arrives as NaN,
        and is counted.
        """
        self._enter()
        try:
            rows = ROWS if rows_are_samples else 0
            tensor = self._x.take(x, rows)
            if ids is not None:
                keys = pack(ids, tensor.n)
            elif stateless or not self._needs_ids:
                keys, stateless = ffi.NULL, True
            else:
                refuse(
                    f'the codec "{self._config.codec}" builds on the last visit of each sample: '
                    "give ids, or stateless=True"
                )
            options = ffi.NULL
            if stateless or limit or reconstruction is not None:
                options = self._told(stateless, limit, reconstruction, rows)
            if out is None:
                return self._encode_new(keys, tensor, options)
            return self._encode_into(keys, tensor, options, out)
        finally:
            self._x.drop()
            self._made.drop()
            self._busy.release()

    def _told(self, stateless: bool, limit: int, reconstruction: Any, rows: int) -> Any:
        options = self._options
        options.stateless = bool(stateless)
        if not isinstance(limit, int) or not 0 <= limit < 2**63:
            refuse(f"limit is a number of bytes, not {limit!r}")
        options.limit = limit
        options.reconstruction = ffi.NULL
        if reconstruction is not None:
            made = self._made.take(reconstruction, rows | WRITES)
            refuse_overlap(self._x.tensor, *reach(made), "x and reconstruction")
            options.reconstruction = made
        return options

    def _encode_new(self, keys: Any, tensor: Any, options: Any) -> bytes:
        cap = core.dw_frame_bound(self._struct, tensor)
        if cap > self._cap:
            made = native.dw_memory_create(cap)
            if not made:
                fail(NO_MEMORY, f"there is no memory for a frame of {cap} bytes")
            self._room, self._cap = ffi.gc(made, native.dw_memory_drop), cap
        length = self._length
        status = core.dw_encode_with(
            self._handle, keys, tensor, options, self._room or ffi.NULL, self._cap, length
        )
        if status < 0:
            self._fail(status)
        return ffi.buffer(self._room, length[0])[:]

    def _encode_into(self, keys: Any, tensor: Any, options: Any, out: Any) -> Any:
        with Bytes(out, "out", writes=True) as room:
            refuse_overlap(tensor, room.pointer, room.length, "x and out")
            if options and options.reconstruction:
                made = options.reconstruction
                refuse_overlap(made, room.pointer, room.length, "reconstruction and out")
            length = self._length
            status = core.dw_encode_with(
                self._handle, keys, tensor, options, room.pointer, room.length, length
            )
            if status < 0:
                self._fail(status)
        return _cut(out, length[0])

    def feedback(self, reply: Any) -> None:
        """Takes the decoder's reply, in the order in which they came.

        reply: bytes, as decode gave them; None: there was nothing to send back, and nothing is
            done.
        Errors: FORMAT, VERSION, CORRUPT; then nothing has changed.
        """
        if reply is None:
            return
        with Bytes(reply, "the reply") as given:
            self._enter()
            try:
                self._check(core.dw_encoder_feedback(self._handle, given.pointer, given.length))
            finally:
                self._busy.release()

    def resync(self, ids: Ids) -> bytes:
        """A frame that carries prev itself, exactly: for a decoder that has missed frames.

        ids: of one shape, encoded before, all different.
        Errors: ARGUMENT (an id that is not held), NO_MEMORY.
        """
        keys, n = pack_any(ids)
        if n == 0:
            refuse("there are no ids: give those to send again")
        self._enter()
        try:
            prev = ffi.new("dw_tensor *")
            if core.dw_encoder_peek(self._handle, keys[0], prev) < 0:
                refuse("nothing is held of the first of these ids")
            prev.n, prev.stride_n = n, prev.t * prev.c
            whole = ffi.new("dw_config *", self._struct[0])
            whole.key = core.DW_KEY_F32
            cap = core.dw_frame_bound(whole, prev)
            room = ffi.new("char[]", cap)
            length = self._length
            self._check(core.dw_encoder_resync(self._handle, keys, n, room, cap, length))
            return ffi.buffer(room, length[0])[:]
        finally:
            self._busy.release()

    def forget(self, id: Id) -> None:
        """Forgets an id here and, told in the next frames, at the decoder. Unknown ones are
        fine."""
        key = key_of(id)
        self._enter()
        try:
            self._check(core.dw_encoder_forget(self._handle, key[0]))
        finally:
            self._busy.release()

    def reset(self) -> None:
        """Forgets everything and begins a new life; the decoder drops what it held of this one."""
        self._enter()
        try:
            self._check(core.dw_encoder_reset(self._handle))
        finally:
            self._busy.release()

    def bound(self, x: Any, dtype: Optional[str] = None, *, rows_are_samples: bool = False) -> int:
        """Bytes that are enough for any frame of x: a tensor, or a shape (N, T, C) with a dtype.

        Errors: ARGUMENT, UNSUPPORTED.
        """
        return bound(self._config, x, dtype, rows_are_samples=rows_are_samples)


def _cut(out: Any, length: int) -> Any:
    try:
        return memoryview(out).cast("B")[:length]
    except TypeError:
        return out[:length]
