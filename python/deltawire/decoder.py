# SPDX-License-Identifier: Apache-2.0
# decoder.py - Decoder: frames to tensors.
from __future__ import annotations

from typing import Any, NamedTuple, Optional, Union

from deltawire._library import core, ffi, native
from deltawire.bytes_in import Bytes
from deltawire.codec import Codec
from deltawire.config import Config
from deltawire.errors import fail, new_why, refuse, text_of
from deltawire.keys import Id, Ids, pack_any, unpack
from deltawire.profile import Profile
from deltawire.tensor import NAMES, Tensor
from deltawire.storage import Storage
from deltawire.threads import Threads
from deltawire.views import ROWS, WRITES, View, refuse_overlap, shape_view


class Decoded(NamedTuple):
    """The result of Decoder.decode.

    tensor: `out`, or a new Tensor of shape (N, T, C).
    ids: the ids of its N samples; 0, 1, 2, ... if they were encoded without ids.
    reply: bytes for Encoder.feedback, or None if there is nothing to send back.
    """

    tensor: Any
    ids: "list[Id]"
    reply: Optional[bytes]


class Decoder(Codec):
    """Turns frames into tensors.

    config: must agree with the encoder's config; see Config.agreement.
    threads, device, place, state: as for Encoder. The errors are those of Encoder, too.
    """

    _noun = "decoder"

    def __init__(
        self,
        config: Union[str, Config],
        threads: Union[int, Threads] = 0,
        *,
        device: Any = None,
        place: str = "device",
        state: Union[None, str, Storage] = None,
    ) -> None:
        super().__init__(config, threads, device, place, state)
        self._y = View("out", self._stream)
        self._info = ffi.new("dw_frame_info *", {"struct_size": ffi.sizeof("dw_frame_info")})
        self._length, self._why = ffi.new("size_t *"), new_why()
        self._options = ffi.new(
            "dw_decode_options *", {"struct_size": ffi.sizeof("dw_decode_options")}
        )
        self._keys, self._reply = ffi.new("dw_key[]", 1), ffi.new("char[]", 0)
        self._answers = 0  # the number of samples for which the reply buffer is large enough
        self._nothing = ffi.new("dw_tensor *", (ffi.NULL, core.DW_F32, 1, 1, 1, 1, 1))

    def decode(
        self,
        frame: Any,
        out: Any = None,
        *,
        dtype: Optional[str] = None,
        add: Optional[float] = None,
        reply: bool = True,
        bypass_caches: bool = False,
        rows_are_samples: bool = False,
    ) -> Decoded:
        """Decodes a frame and updates the state of its ids, as the encoder did.

        frame: bytes, a buffer or a uint8 tensor. It may come from an untrusted source.
        out: a writable tensor of the frame's shape (N, T, C), of any kind that Encoder.encode
            accepts. None: the result is a new Tensor; a decoder on a GPU needs out.
        dtype: the dtype of the new Tensor: "f32", "f16" or "bf16". None: the dtype that was
            encoded.
        add: computes out[i] += add * value instead of out[i] = value. Needs out, and a CPU.
        reply: whether to make a reply for the encoder.
        bypass_caches: out is stored past the caches, because it will not be read soon. Only the
            speed depends on it; a GPU ignores it.
        rows_are_samples: a two-dimensional out has the shape (N, C), not (T, C).

        Returns Decoded(tensor, ids, reply).
        Errors: FORMAT, VERSION, CORRUPT, SHAPE, MISMATCH, LIMIT, NO_MEMORY, STALE (the frame was
        decoded before), BASE, STATE, ARGUMENT, UNSUPPORTED, IO (the GPU failed). After an error the
        frame is rejected, and out and the state are unchanged; a GPU may have written to out. If
        possible, the `reply` attribute of the exception holds the answer to send to the encoder.
        """
        self._enter()
        try:
            with Bytes(frame, "the frame") as given:
                if self._stream:
                    self._refuse_options(given, out, add)
                if out is None:
                    if add is not None:
                        refuse("add needs a tensor to add to: give out=")
                    info = self._read(given, reply)
                    out = Tensor((info.n, info.t, info.c), dtype or NAMES[info.x])
                    y = out._view
                else:
                    y = self._y.take(out, WRITES | (ROWS if rows_are_samples else 0))
                    refuse_overlap(y, given.pointer, given.length, "out and the frame")
                options = ffi.NULL
                if not self._stream and (add is not None or bypass_caches):
                    options = self._options
                    options.adds = add is not None
                    options.factor = 0 if add is None else _factor(add)
                    options.bypass_caches = bool(bypass_caches)
                    options.only_checks = False
                said = self._run(given, y, options, reply)
                return Decoded(out, self._ids_of(given, y.n), said)
        finally:
            self._y.drop()
            self._busy.release()

    def _refuse_options(self, frame: Bytes, out: Any, add: Optional[float]) -> None:
        if add is not None:
            self._refuse_on_device("add=", "decode into a tensor of its own, and add that")
        if out is None:
            assert self._stream is not None
            info, device = self._read(frame, False), f"cuda:{self._stream.number}"
            shape = (info.n, info.t, info.c)
            refuse(f"a decoder on a GPU needs out=, a tensor on {device} of the shape {shape}")

    def check(self, frame: Any) -> None:
        """Says whether decode would accept this frame now, and changes nothing.

        Errors: those of decode, and UNSUPPORTED for a decoder on a GPU. No reply is made."""
        self._enter()
        try:
            with Bytes(frame, "the frame") as given:
                if self._stream:
                    self._refuse_on_device("check", "decode the frame into a tensor of its own")
                options = self._options
                options.adds, options.only_checks = False, True
                info = self._read(given, False, options)
                n, t, c = info.n, info.t, info.c
                y = ffi.new("dw_tensor *", (ffi.NULL, core.DW_F32, n, t, c, t * c, c))
                self._run(given, y, options, False)
        finally:
            self._busy.release()

    def advance(self, frame: Any, *, reply: bool = True) -> Decoded:
        """Updates the state of the frame's ids as decode does, but writes no tensor.

        The tensor of the returned Decoded is None; peek returns the new reconstructions.
        Errors: those of decode."""
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

    def _read(self, frame: Bytes, wants: bool, options: Any = ffi.NULL) -> Any:
        """The frame's dw_frame_info. A frame that cannot even be read is counted as rejected, and
        answered if possible, unless the options say that it is only checked."""
        info = self._info
        if core.dw_frame_read(frame.pointer, frame.length, info, self._why) < 0:
            self._run(frame, self._nothing, options, wants)
            refuse("the head of this frame cannot be read: give the bytes of encode, whole")
        return info

    def _run(self, frame: Bytes, y: Any, options: Any, wants: bool) -> Any:
        n, said = y.n, self._length
        status = self._decode(frame, y, options, n, wants)
        if status < 0 and wants and not said[0]:
            info = self._info  # the frame has more samples than y, so its reply is longer
            read = core.dw_frame_read(frame.pointer, frame.length, info, self._why)
            if read == 0 and info.n > self._answers:
                status = self._decode(frame, y, options, info.n, wants)
        reply = ffi.buffer(self._reply, said[0])[:] if wants and said[0] else None
        if status < 0 and self._stream:
            fail(status, text_of(self._stream.why.text), reply)
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
        if self._stream:
            call, why = self._stream.reserve(frame.length or 1), self._stream.why
            return native.dw_decode_on_device(
                *(call, self._handle, frame.pointer, frame.length),
                *(y, room, cap, said, why),
            )
        return core.dw_decode(
            self._handle, frame.pointer, frame.length, y, options, room, cap, said
        )

    def _ids_of(self, frame: Bytes, n: int) -> "list[Id]":
        if len(self._keys) != n:
            self._keys = ffi.new("dw_key[]", n)
        core.dw_frame_keys(frame.pointer, frame.length, n, self._keys)
        return unpack(self._keys)

    def add_profile(self, profile: Profile) -> None:
        """Frames with this profile of channels can be decoded from now on. A decoder knows the one
        of its config and the last four different ones that were added.

        Errors: CONFIG (the form is not step, or cannot have a profile), ARGUMENT (a frame is in
        flight on a GPU), NO_MEMORY.
        """
        self._enter()
        try:
            self._check(core.dw_decoder_add_profile(self._handle, profile._handle))
        finally:
            self._busy.release()

    def expect(self, ids: Ids, x: Any, dtype: Optional[str] = None) -> int:
        """The maximum size in bytes of the next frame for these ids, to post a receive with.

        x: a tensor like the one that will be encoded, or its shape (N, T, C).
        dtype: the dtype that belongs to a shape: "f32", "f16" or "bf16".
        To guarantee this size, the encoder passes the same number as `limit=`.
        Errors: ARGUMENT, LIMIT.
        """
        shape = shape_view(x, dtype)
        keys, n = pack_any(ids)
        if n != shape.n:
            refuse(f"there are {n} ids for {shape.n} samples: give one id for each sample")
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
        refuse(f"add must be a number, the factor of what is added, not {add!r}")
