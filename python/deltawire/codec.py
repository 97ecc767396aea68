# SPDX-License-Identifier: Apache-2.0
# codec.py - Codec: what Encoder and Decoder have in common: creation, close, counters, saved state.
from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, NoReturn, Optional, Union

from deltawire._library import core, ffi
from deltawire.bytes_in import Bytes
from deltawire.config import Config, host_with
from deltawire.counters import Counters, codec_counters
from deltawire.device import PLACES, Stream, device_number
from deltawire.errors import ARGUMENT, UNSUPPORTED, check, fail, new_why, refuse, text_of
from deltawire.keys import Id, Ids, key_of, pack_any, unpack_one
from deltawire.owner import Life, Owned
from deltawire.tensor import BYTES, NAMES, Tensor
from deltawire.storage import Storage, storage_of
from deltawire.threads import Threads, pool_of


class Codec(Owned):
    """The base class of Encoder and Decoder.

    Its C functions are found by the name of the object, for example dw_encoder_create."""

    def __init__(
        self,
        config: Union[str, Config],
        threads: Union[int, Threads] = 0,
        device: Any = None,
        place: str = "device",
        state: Union[None, str, Storage] = None,
    ) -> None:
        super().__init__()
        self._config = Config(config)
        self._stream, self._place = _stream_of(device, place, threads), place
        try:
            self._make(threads, state)
        except BaseException:
            self._return_lent()
            if self._stream:
                self._stream.close()
            raise
        self._end = self._call("destroy")
        self._open = True

    def _make(self, threads: Union[int, Threads], state: Union[None, str, Storage]) -> None:
        pool, storage = pool_of(threads), storage_of(state)
        host = host_with(self._borrow(pool), self._borrow(storage))
        if self._stream:
            host.cuda, host.place = self._stream.cuda, PLACES[self._place]
        made, why = ffi.new(f"dw_{self._noun} **"), new_why()
        check(self._call("create")(made, self._config._struct, host, why), why)
        self._made_of = self._config  # the object points to its profile
        self._handle = made[0]

    def _destroy(self) -> None:
        self._open = False
        self._end(self._handle)
        if self._stream:
            self._stream.close()
        self._return_lent()

    def _call(self, name: str) -> Any:
        return getattr(core, f"dw_{self._noun}_{name}")

    def _fail(self, status: int, reply: Any = None) -> NoReturn:
        fail(status, text_of(self._call("why")(self._handle)), reply)

    def _check(self, status: int) -> None:
        if status < 0:
            self._fail(status)

    def _refuse_on_device(self, what: str, remedy: str) -> None:
        """Raises if this object works on a GPU, where `what` is not possible."""
        if self._stream:
            fail(UNSUPPORTED, f"{what} is not possible on a GPU: {remedy}")

    @property
    def config(self) -> Config:
        """The Config that it was made with; of an encoder, with the profile that it uses."""
        return self._config

    def close(self) -> None:
        """Closes the object and frees its memory. Calling it again does nothing, and neither does
        calling it in a forked process."""
        if not self._open or self._life is not Life.now:
            return
        self._enter()
        try:
            self._destroy()
        finally:
            self._busy.release()

    def __del__(self, life: Any = Life) -> None:
        if getattr(self, "_open", False) and self._life is life.now:
            self._destroy()

    def counters(self) -> Counters:
        """Statistics since the object was made; see Counters."""
        self._enter()
        try:
            struct = ffi.new("dw_counters *", {"struct_size": ffi.sizeof("dw_counters")})
            self._check(self._call("count")(self._handle, struct))
            return codec_counters(struct)
        finally:
            self._busy.release()

    def peek(self, id: Id) -> Tensor:
        """A copy, of shape (1, T, C), of the last reconstruction of an id.

        Its dtype is the one in which the reconstruction is kept in memory; of prev=8 and prev=4,
        which keep it rounded, bf16.
        Errors: ARGUMENT (nothing is held for this id), UNSUPPORTED (the state is in the memory of
        a GPU).
        """
        key = key_of(id)
        if self._place == "device":
            self._refuse_on_device("peek", 'use export_state, or give place="pinned"')
        self._enter()
        try:
            prev = ffi.new("dw_tensor *")
            status = self._call("peek")(self._handle, key[0], prev)
            if status == ARGUMENT:
                fail(status, f"nothing is held for the id {id!r}: give one that was sent")
            self._check(status)
            return _copy(prev)
        finally:
            self._busy.release()

    def prefetch(self, ids: Ids) -> None:
        """Begins to read the state of ids from a storage, for a call that will soon need it. Ids
        whose state is in memory, or of which none is held, are passed over."""
        keys, n = pack_any(ids)
        self._enter()
        try:
            self._check(self._call("prefetch")(self._handle, keys, n))
        finally:
            self._busy.release()

    def export_state(self, id: Id) -> bytes:
        """The state of one id as bytes, for a checkpoint. Pass it to import_state of a new object.

        Errors: ARGUMENT (nothing is held for this id), NO_MEMORY.
        """
        return next(iter(self._export(key_of(id)).values()))

    def export_states(self) -> "dict[Id, bytes]":
        """The states of all ids, by id, those included that the decoder has still to forget. Save
        encoder and decoder between the same two frames. An encoder with the option rate, or one
        that draws numbers and keeps nothing of any id, has one state more, under the id
        (2**64 - 1, 2**32 - 1): with what it goes on."""
        return self._export(ffi.NULL)

    def _export(self, key: Any) -> "dict[Id, bytes]":
        states: "dict[Id, bytes]" = {}
        self._visit_states(states.__setitem__, key)
        return states

    def _visit_states(self, take: Callable[[Id, bytes], Any], key: Any = ffi.NULL) -> None:
        """Calls take with the ids and states that export_states returns, one after the other, so
        that they need not be in memory together. Errors: those of export_state, and of take."""
        errors: "list[BaseException]" = []

        def visit(_: Any, its: Any, saved: Any, length: int) -> int:
            try:
                take(unpack_one(its), ffi.buffer(saved, length)[:])
            except BaseException as error:
                errors.append(error)
            return ARGUMENT if errors else 0

        self._enter()
        try:
            callback = ffi.callback("dw_saved_visit", visit, error=ARGUMENT)
            status = self._call("export")(self._handle, key, callback, ffi.NULL)
            for error in errors:
                raise error
            self._check(status)
        finally:
            self._busy.release()

    def import_state(self, saved: Any) -> None:
        """Loads a state that export_state returned, and replaces what is held for its id.

        saved: bytes or a buffer. The first state that a new object loads also sets its incarnation
            (the random number that identifies the encoder).
        Errors: FORMAT, VERSION, CORRUPT, MISMATCH (saved by the other end, or under another
        incarnation), LIMIT (quota_bytes is exceeded), NO_MEMORY.
        """
        with Bytes(saved, "the saved state") as given:
            self._enter()
            try:
                self._check(self._call("import")(self._handle, given.pointer, given.length))
            finally:
                self._busy.release()

    def import_states(self, states: "Union[Mapping[Id, bytes], Iterable[bytes]]") -> None:
        """Calls import_state for each state. If one of them is refused, those before it stay
        loaded.

        states: what export_states returned, or any iterable of states."""
        for saved in states.values() if isinstance(states, Mapping) else states:
            self.import_state(saved)


def _stream_of(device: Any, place: str, threads: Any) -> Optional[Stream]:
    number = device_number(device)
    if place not in PLACES:
        refuse(f'place must be "device" or "pinned", not {place!r}')
    if number is None:
        if place != "device":
            refuse("place says where the state lies on a GPU: give device=, too")
        return None
    if threads:
        refuse("threads share the work of a CPU: leave out threads= or device=")
    return Stream(number)


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
