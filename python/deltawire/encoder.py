# SPDX-License-Identifier: Apache-2.0
# encoder.py - Encoder: tensors to frames.
from __future__ import annotations

from typing import Any, Optional, Union, overload

from deltawire._library import core, ffi, native
from deltawire.bytes_in import Bytes
from deltawire.codec import Codec
from deltawire.config import Config
from deltawire.errors import NO_MEMORY, check, fail, refuse
from deltawire.frame import bound
from deltawire.keys import Id, Ids, key_of, pack, pack_any
from deltawire.profile import Profile
from deltawire.storage import Storage
from deltawire.threads import Threads
from deltawire.views import ROWS, WRITES, View, reach, refuse_overlap


def _places(places: int) -> int:
    if not isinstance(places, int) or not 0 <= places < 2**64:
        refuse(f"places must be an int from 0 to 2**64 - 1, not {places!r}")
    return places


class Encoder(Codec):
    """Turns tensors into frames. Make one for each tensor that a model sends, in each direction.

    config: a Config or its text, for example "delta:bits=4".
    threads: the number of threads that share the work of a call, or a Threads. With 0 or 1, the
        calling thread does all the work. The frames do not depend on it.
    device: None or "cpu"; or "cuda", "cuda:1" and so on for a GPU, which makes the same frames.
        Tensors must be on this device then.
    place: where a GPU keeps the state: "device" (its memory) or "pinned" (main memory).
    state: a Storage, or the text of one ("file:/path,cache=4GiB"), for state that does not fit in
        memory, or in that of the GPU. The frames do not depend on it.
    Errors: CONFIG, ARGUMENT, NO_MEMORY, IO, UNSUPPORTED (this device, or this codec on a GPU).

    Only one thread at a time may use an encoder, and only the process that made it. It is a context
    manager.
    """

    _noun = "encoder"

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
        self._needs_ids = self._config._needs_ids()
        self._x, self._made = View("x", self._stream), View("reconstruction")
        self._length = ffi.new("size_t *")
        self._options = ffi.new(
            "dw_encode_options *", {"struct_size": ffi.sizeof("dw_encode_options")}
        )
        self._room: Any = None
        self._cap = 0

    @overload
    def encode(
        self,
        x: Any,
        ids: Optional[Ids] = None,
        out: None = None,
        *,
        stateless: bool = False,
        limit: int = 0,
        reconstruction: Any = None,
        places: int = 0,
        bypass_caches: bool = False,
        rows_are_samples: bool = False,
    ) -> bytes: ...

    @overload
    def encode(
        self,
        x: Any,
        ids: Optional[Ids] = None,
        out: Any = None,
        *,
        stateless: bool = False,
        limit: int = 0,
        reconstruction: Any = None,
        places: int = 0,
        bypass_caches: bool = False,
        rows_are_samples: bool = False,
    ) -> Any: ...

    def encode(
        self,
        x: Any,
        ids: Optional[Ids] = None,
        out: Any = None,
        *,
        stateless: bool = False,
        limit: int = 0,
        reconstruction: Any = None,
        places: int = 0,
        bypass_caches: bool = False,
        rows_are_samples: bool = False,
    ) -> Any:
        """Encodes x as one frame and updates the state of its ids, as the decoder will.

        x: a tensor (N, T, C) of f32, f16 or bf16 that supports DLPack or the buffer protocol. The
            shapes (C), (T, C) and (N, A, B, C) are accepted, too. There may be gaps between samples
            and between tokens.
        ids: N different ids; see docs/python.md. None is allowed only if no state is used.
        out: a writable buffer for the frame; self.bound(x) bytes are always enough. None: the
            frame is returned as new bytes.
        stateless: do not read or change the state. The same ids may be encoded with state later.
        limit: the maximum size of the frame in bytes; 0: no limit.
        reconstruction: a tensor of x's shape that receives what the decoder will reconstruct.
        places: not 0: the codecs randk and cocktail draw the places of what they send by this
            number and the ids alone, so that encoders with the same one send the same places. Give
            each frame of an id another number.
        bypass_caches: the new state is stored past the caches, because it will have left them
            before it is needed again. Only the speed depends on it; a GPU ignores it.
        rows_are_samples: a two-dimensional x has the shape (N, C), not (T, C).

        Returns the frame: bytes, or the part of out that holds it (for a buffer, a memoryview).
        Errors: ARGUMENT, UNSUPPORTED (device, dtype, or an option on a GPU), BUFFER_TOO_SMALL,
        LIMIT, SHAPE (of reconstruction), NO_MEMORY, IO (the GPU failed); nothing has changed then.
        NaN and infinity are not errors: their group arrives as NaN and is counted in
        poisoned_groups.
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
                    f'the codec "{self._config.codec}" sends the change of each sample since its '
                    "last visit: give ids, or stateless=True"
                    if self._config._facts.keeps_prev
                    else "feedback adds what was not sent of each tensor to the next one with the "
                    "same id: give ids, or stateless=True"
                )
            options = ffi.NULL
            if self._stream:
                self._refuse_options(stateless, limit, reconstruction)
            elif stateless or limit or places or bypass_caches or reconstruction is not None:
                options = self._told(stateless, limit, reconstruction, rows)
                options.places = _places(places)
                options.bypass_caches = bool(bypass_caches)
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
            refuse(f"limit must be a number of bytes, an int of at least 0, not {limit!r}")
        options.limit = limit
        options.reconstruction = ffi.NULL
        if reconstruction is not None:
            made = self._made.take(reconstruction, rows | WRITES)
            refuse_overlap(self._x.tensor, *reach(made), "x and reconstruction")
            options.reconstruction = made
        return options

    def _refuse_options(self, stateless: bool, limit: int, reconstruction: Any) -> None:
        if stateless and self._needs_ids:
            self._refuse_on_device(
                f'stateless=True with the codec "{self._config.codec}"',
                'use another encoder with a config such as "direct:bits=8"',
            )
        if limit:
            self._refuse_on_device("limit=", "use the codec direct, whose frames have one size")
        if reconstruction is not None:
            self._refuse_on_device("reconstruction=", "decode the frame")

    def _on_device(self, keys: Any, tensor: Any, cap: int) -> Any:
        """Encodes a tensor on the GPU into at most `cap` bytes of pinned host memory.

        Returns the frame as a buffer, which is valid until the next call."""
        stream = self._stream
        assert stream is not None
        call = stream.reserve(max(cap, 1))
        status = native.dw_encode_on_device(
            call, self._handle, keys, tensor, self._length, stream.why
        )
        check(status, stream.why)
        return ffi.buffer(call.room, self._length[0])

    def _encode_new(self, keys: Any, tensor: Any, options: Any) -> bytes:
        # Where the bound is 0, dw_encode refuses the tensor and says why.
        cap = max(core.dw_frame_bound(self._config._struct, tensor), 1)
        if self._stream:
            return self._on_device(keys, tensor, cap)[:]
        if cap > self._cap:
            made = native.dw_memory_create(cap)
            if not made:
                fail(NO_MEMORY, f"there is no memory for a frame of {cap} bytes")
            self._room, self._cap = ffi.gc(made, native.dw_memory_drop), cap
        length = self._length
        status = core.dw_encode(
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
            if self._stream:
                bound = core.dw_frame_bound(self._config._struct, tensor)
                frame = self._on_device(keys, tensor, min(bound, room.length))
                ffi.memmove(room.pointer, frame, length[0])
                return _cut(out, length[0])
            status = core.dw_encode(
                self._handle, keys, tensor, options, room.pointer, room.length, length
            )
            if status < 0:
                self._fail(status)
        return _cut(out, length[0])

    def take_reply(self, reply: Any) -> None:
        """Processes a reply of the decoder. Pass replies in the order in which they arrived.

        reply: the bytes that Decoder.decode returned. None does nothing.
        Errors: FORMAT, VERSION, CORRUPT; nothing has changed then.
        """
        if reply is None:
            return
        with Bytes(reply, "the reply") as given:
            self._enter()
            try:
                self._check(core.dw_encoder_take_reply(self._handle, given.pointer, given.length))
            finally:
                self._busy.release()

    def resync(self, ids: Ids) -> bytes:
        """A frame with the exact last reconstructions of ids, for a decoder that missed frames.

        With prev=8 and prev=4, with the rounded ones that are kept.

        ids: different ids that were encoded before, all with samples of one shape.
        Errors: ARGUMENT (nothing is held for an id), NO_MEMORY.
        """
        keys, n = pack_any(ids)
        if n == 0:
            refuse("there are no ids: give the ids to send again")
        self._enter()
        try:
            prev = ffi.new("dw_tensor *")
            if core.dw_encoder_peek(self._handle, keys[0], prev) < 0:
                refuse("nothing is held for the first of these ids: give ids that were sent")
            prev.n, prev.stride_n = n, prev.t * prev.c
            whole = ffi.new("dw_config *", self._config._struct[0])
            whole.key, whole.key_error, whole.rate = core.DW_KEY_F32, 0, 0
            cap = core.dw_frame_bound(whole, prev)
            length = self._length
            if self._stream:
                call, why = self._stream.reserve(cap), self._stream.why
                check(native.dw_resync_on_device(call, self._handle, keys, n, length, why), why)
                return ffi.buffer(call.room, length[0])[:]
            room = ffi.new("char[]", cap)
            self._check(core.dw_encoder_resync(self._handle, keys, n, room, cap, length))
            return ffi.buffer(room, length[0])[:]
        finally:
            self._busy.release()

    def forget(self, id: Id) -> None:
        """Forgets an id. The next frames tell the decoder to forget it, too. An unknown id is no
        error."""
        key = key_of(id)
        self._enter()
        try:
            self._check(core.dw_encoder_forget(self._handle, key[0]))
        finally:
            self._busy.release()

    def give_back(self, frame: Any) -> None:
        """With feedback=ef: adds what a frame carried back to the residuals of its ids. For frames
        that certainly do not arrive; each once, in the order in which they were made.

        frame: the bytes that encode returned, not of a stateless frame.
        Errors: ARGUMENT (no feedback; the residuals do not contain this frame), those of
        Decoder.decode; nothing has changed then.
        """
        with Bytes(frame, "the frame") as given:
            self._enter()
            try:
                self._check(
                    core.dw_encoder_give_back(self._handle, given.pointer, given.length, ffi.NULL)
                )
            finally:
                self._busy.release()

    def undo(self, frame: Any, x: Any, *, rows_are_samples: bool = False) -> None:
        """With feedback=ef: the residuals of a frame's ids become what they were before the frame
        was made, up to rounding. For frames that certainly do not arrive and whose x will be
        encoded again; each once, and only the last one of its ids.

        frame: the bytes that encode returned, not of a stateless frame.
        x: the tensor that it was made of, unchanged.
        Errors: those of give_back, and ARGUMENT (a later frame of an id was made), SHAPE; nothing
        has changed then.
        """
        self._enter()
        try:
            tensor = self._x.take(x, ROWS if rows_are_samples else 0)
            with Bytes(frame, "the frame") as given:
                self._check(
                    core.dw_encoder_give_back(self._handle, given.pointer, given.length, tensor)
                )
        finally:
            self._x.drop()
            self._busy.release()

    def reset(self) -> None:
        """Forgets all ids and starts again, as a new encoder would. With the next frame, the
        decoder drops its state, too."""
        self._enter()
        try:
            self._check(core.dw_encoder_reset(self._handle))
        finally:
            self._busy.release()

    def use_profile(self, profile: Optional[Profile]) -> None:
        """Later frames have this profile of channels, or none, in place of the one before.

        What is held of ids stays as it is. The decoder must have been given the profile with
        add_profile before such a frame arrives.
        Errors: CONFIG (the form is not step, or cannot have a profile), ARGUMENT (a frame is in
        flight on a GPU), NO_MEMORY.
        """
        self._enter()
        try:
            given = ffi.NULL if profile is None else profile._handle
            self._check(core.dw_encoder_use_profile(self._handle, given))
            self._config = self._config._with(profile)
        finally:
            self._busy.release()

    def bound(self, x: Any, dtype: Optional[str] = None, *, rows_are_samples: bool = False) -> int:
        """An upper bound, in bytes, of the size of any frame of x.

        x: a tensor, or a shape (N, T, C) with a dtype.
        Errors: ARGUMENT, UNSUPPORTED.
        """
        return bound(self._config, x, dtype, rows_are_samples=rows_are_samples)


def _cut(out: Any, length: int) -> Any:
    try:
        return memoryview(out).cast("B")[:length]
    except TypeError:
        return out[:length]
