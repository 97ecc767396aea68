# SPDX-License-Identifier: Apache-2.0
# decoder.py - Decoder: frames to tensors.
from __future__ import annotations

from typing import Any, NamedTuple, Optional, Union

from deltawire._library import core, ffi
from deltawire.bytes_in import Bytes
from deltawire.codec import Codec
from deltawire.config import Config
from deltawire.errors import new_why, refuse
from deltawire.keys import Id, Ids, pack_any, unpack
from deltawire.tensor import NAMES, Tensor
from deltawire.threads import Threads
from deltawire.views import ROWS, WRITES, View, refuse_overlap, shape_view


class Decoded(NamedTuple):
    """What decode gives.

    tensor: (N, T, C): out, or a new Tensor.
    ids: of its N samples; 0, 1, 2, ... where they were encoded without ids.
    reply: bytes for Encoder.feedback, or None where there is nothing to send back.
    """

    tensor: Any
    ids: "list[Id]"
    reply: Optional[bytes]


class Decoder(Codec):
    """Turns frames into tensors. Its config must agree with the encoder's (Config.agreement).

    config, threads and errors: as Encoder's.
    """

    _noun = "decoder"

    def __init__(self, config: Union[str, Config], threads: Union[int, Threads] = 0) -> None:
        super().__init__(config, threads)
        self._y = View("out")
        self._info = ffi.new("dw_frame_info *", {"struct_size": ffi.sizeof("dw_frame_info")})
        self._length, self._why = ffi.new("size_t *"), new_why()
        self._options = ffi.new(
            "dw_decode_options *", {"struct_size": ffi.sizeof("dw_decode_options"), "adds": 1}
        )
        self._keys, self._reply = ffi.new("dw_key[]", 1), ffi.new("char[]", 0)
        self._answers = 0  # samples that the room for replies is enough for
        self._nothing = ffi.new("dw_tensor *", (ffi.NULL, core.DW_F32, 1, 1, 1, 1, 1))

    def decode(
        self,
        frame: Any,
        out: Any = None,
        *,
        dtype: Optional[str] = None,
        add: Optional[float] = None,
        reply: bool = True,
        rows_are_samples: bool = False,
    ) -> Decoded:
        """Turns a frame into a tensor, and advances what is held of its ids as the encoder did.

        frame: any bytes at all: bytes, a buffer, or a tensor of uint8.
        out: a writable tensor of the frame's shape (N, T, C), as encode takes them. None: a new
            Tensor.
        dtype: of the new Tensor: "f32", "f16" or "bf16"; None: x's own.
        add: out[i] += add * value instead of out[i] = value; needs out.
        reply: whether to make a reply.
        rows_are_samples: two extents of out are (N, C), not (T, C).

        Returns Decoded(tensor, ids, reply).
        Errors: FORMAT, VERSION, CORRUPT, SHAPE, MISMATCH, LIMIT, NO_MEMORY, STALE, BASE, STATE,
        ARGUMENT, UNSUPPORTED. The frame is then rejected, out and state are as they were, and the
        error's reply is what to send back, where it can be told. STALE: it was here before.
        """
        self._enter()
        try:
            with Bytes(frame, "the frame") as given:
                if out is None:
                    if add is not None:
                        refuse("add needs a tensor to add to: give out")
                    info = self._read(given, reply)
                    out = Tensor((info.n, info.t, info.c), dtype or NAMES[info.x])
                    y = out._view
                else:
                    y = self._y.take(out, WRITES | (ROWS if rows_are_samples else 0))
                    refuse_overlap(y, given.pointer, given.length, "out and the frame")
                options = ffi.NULL
                if add is not None:
                    options = self._options
                    options.factor = _factor(add)
                said = self._run(given, y, options, reply)
                return Decoded(out, self._ids_of(given, y.n), said)
        finally:
            self._y.drop()
            self._busy.release()

    def advance(self, frame: Any, *, reply: bool = True) -> Decoded:
        """As decode, but gives no tensor: what is held of the ids is all that advances. peek gives
        it. Errors: as decode's."""
        self._enter()
        try:
            with Bytes(frame, "the frame") as given:
                info = self._read(given, reply)
                n, t, c = info.n, info.t, info.c
                y = ffi.new("dw_tensor *", (ffi.NULL, core.DW_F32, n, t, c, t * c, c))
                said = self._run(given, y, ffi.NULL, reply)
                return Decoded(None, self._ids_of(given, n), said)
        finally:
            self._busy.release()

    def _read(self, frame: Bytes, wants: bool) -> Any:
        """The frame's dw_frame_info. What cannot even be read is counted as rejected, and answered
        where that is possible."""
        info = self._info
        if core.dw_frame_read(frame.pointer, frame.length, info, self._why) < 0:
            self._run(frame, self._nothing, ffi.NULL, wants)
            refuse("this frame cannot be read")
        return info

    def _run(self, frame: Bytes, y: Any, options: Any, wants: bool) -> Any:
        n, said = y.n, self._length
        status = self._decode(frame, y, options, n, wants)
        if status < 0 and wants and not said[0]:
            info = self._info  # of more samples than y: its answer is longer
            read = core.dw_frame_read(frame.pointer, frame.length, info, self._why)
            if read == 0 and info.n > self._answers:
                status = self._decode(frame, y, options, info.n, wants)
        reply = ffi.buffer(self._reply, said[0])[:] if wants and said[0] else None
        if status < 0:
            self._fail(status, reply)
        return reply

    def _decode(self, frame: Bytes, y: Any, options: Any, n: int, wants: bool) -> int:
        if n > self._answers:
            self._reply = ffi.new("char[]", core.dw_reply_bound(n))
            self._answers = n
        room = self._reply if wants else ffi.NULL
        cap = len(self._reply) if wants else 0
        said = self._length
        said[0] = 0
        return core.dw_decode_with(
            self._handle, frame.pointer, frame.length, y, options, room, cap, said
        )

    def _ids_of(self, frame: Bytes, n: int) -> "list[Id]":
        if len(self._keys) != n:
            self._keys = ffi.new("dw_key[]", n)
        core.dw_frame_keys(frame.pointer, frame.length, n, self._keys)
        return unpack(self._keys)

    def expect(self, ids: Ids, x: Any, dtype: Optional[str] = None) -> int:
        """How many bytes the next frame for these ids takes at most: room to post a receive with.

        x: the shape (N, T, C) of the tensor that the encoder gets, with its dtype, or a tensor like
            it. The encoder keeps to it with `limit=`.
        Errors: ARGUMENT, LIMIT.
        """
        shape = shape_view(x, dtype)
        keys, n = pack_any(ids)
        if n != shape.n:
            refuse(f"there are {n} ids for {shape.n} samples: give one for each")
        self._enter()
        try:
            self._check(core.dw_decoder_expect(self._handle, keys, shape, self._length))
            return self._length[0]
        finally:
            self._busy.release()


def _factor(add: Any) -> float:
    try:
        return float(add)
    except (TypeError, ValueError):
        refuse(f"add is a factor, a number, not {add!r}")
