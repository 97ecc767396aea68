# SPDX-License-Identifier: Apache-2.0
# channel.py - Channel: tensors between two ranks, through a codec in each direction.
from __future__ import annotations

import threading
from typing import Any, NamedTuple, Optional, Union

from deltawire._library import core, ffi, links
from deltawire._waiting import Deadline, milliseconds, watched
from deltawire.config import Config, struct_with
from deltawire.counters import Counters, codec_counters
from deltawire.errors import CANCELLED, PENDING, TIMEOUT, check, fail, new_why, refuse, text_of
from deltawire.keys import Id, Ids, key_of, pack, unpack
from deltawire.link import Link, Shared
from deltawire.owner import Life
from deltawire.tensor import Tensor
from deltawire.threads import Threads, pool_of
from deltawire.views import ROWS, WRITES, View


class Received(NamedTuple):
    """tensor: out, or a new Tensor (N, T, C). ids: of its N samples."""

    tensor: Any
    ids: "list[Id]"


class Channel(Shared):
    """A codec pair on a link: what is sent goes through an encoder, what is received through a
    decoder. Replies are given and taken by themselves, and what was lost or rejected is sent anew.

    link: a Link, whose other end opens a channel of the same id.
    id: 1 to 65535, used once on a link.
    send, recv: configs or their texts; one end's send is the other's recv. None: nothing goes that
        way.
    threads: how many share the work of the codecs, or a Threads.
    open_timeout: seconds until the other end has opened the same id.
    Errors: ARGUMENT, CONFIG, MISMATCH (with both configs), TIMEOUT, NO_MEMORY, and the link's.

    One thread may send while another receives. Close it before its link; Link.close does that. An
    open or a close that KeyboardInterrupt ends takes the link with it.
    """

    _noun = "channel"

    def __init__(
        self,
        link: Link,
        id: int,
        send: Union[str, Config, None] = None,
        recv: Union[str, Config, None] = None,
        *,
        threads: Union[int, Threads] = 0,
        open_timeout: float = 60.0,
    ) -> None:
        super().__init__()
        if not isinstance(link, Link):
            refuse(f"a channel needs a deltawire.Link, not {type(link).__name__}")
        if not isinstance(id, int) or not 1 <= id <= 0xFFFF:
            refuse(f"a channel's id is an int from 1 to 65535, not {id!r}")
        self._link = link
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._x, self._y = View("x"), View("out")
        self._needs_ids = send is not None and Config(send).codec == "delta"
        timeout_ms = milliseconds(open_timeout, "open_timeout")
        configs = [None if c is None else Config(c) for c in (send, recv)]
        self._pool = pool_of(threads)
        pool = self._pool._take() if self._pool else None
        structs = [ffi.NULL if c is None else struct_with(c, pool) for c in configs]
        how = ffi.new("dw_channel_config *", {"struct_size": ffi.sizeof("dw_channel_config")})
        how.id, how.send, how.recv, how.open_timeout_ms = id, structs[0], structs[1], timeout_ms
        self._structs = structs
        try:
            link._begin()
            try:
                handle = link._handle
                self._handle = watched(
                    lambda: _open(handle, how),
                    lambda: links.dw_link_cancel(handle),
                    links.dw_channel_close,
                )
            finally:
                link._finish()
        except BaseException:
            if self._pool:
                self._pool._give_back()
            raise
        self._open = True
        link._channels.add(self)

    def send(
        self,
        x: Any,
        ids: Optional[Ids] = None,
        timeout: Optional[float] = None,
        *,
        rows_are_samples: bool = False,
    ) -> None:
        """Encodes x and queues the frame; x is the caller's again on return.

        x, ids: as Encoder.encode takes them; without ids a sample's number stands for it, but for
        "delta", which needs them. timeout: seconds to wait while the link's queue is full.
        Errors: ARGUMENT, UNSUPPORTED, TIMEOUT (nothing was sent), NO_MEMORY, and the link's.
        """
        deadline = Deadline(timeout)
        self._start(self._sending)
        try:
            if self._structs[0] == ffi.NULL:
                refuse("this channel sends nothing: open it with send=")
            tensor = self._x.take(x, ROWS if rows_are_samples else 0)
            if ids is None and self._needs_ids:
                refuse('the codec "delta" builds on the last visit of each sample: give ids')
            keys = pack(range(tensor.n) if ids is None else ids, tensor.n)
            cap = core.dw_frame_bound(self._structs[0], tensor)
            while True:  # what follows waits only while the queue is full
                slice_ms = deadline.slice_ms()
                status = links.dw_link_wait_room(self._link._handle, cap, slice_ms)
                if status != PENDING:
                    break
                self._still_open()
                if deadline.is_over():
                    fail(TIMEOUT, "the link's queue stayed full: wait longer, or send less")
            self._check(links.dw_channel_send(self._handle, keys, tensor))
        finally:
            self._x.drop()
            self._stop(self._sending)

    def recv(
        self,
        out: Any = None,
        *,
        shape: Any = None,
        dtype: str = "f32",
        timeout: Optional[float] = None,
        rows_are_samples: bool = False,
    ) -> Optional[Received]:
        """The next tensor, as Received(tensor, ids); None: nothing came within so many seconds.

        out: a writable tensor of the sender's shape; or shape, with dtype, for a new Tensor.
        Errors: ARGUMENT, SHAPE, UNSUPPORTED, and the link's. A frame that was rejected is asked for
        again without the caller's help.
        """
        deadline = Deadline(timeout)
        if (out is None) == (shape is None):
            refuse("recv needs either out, a tensor to write into, or the shape of a new one")
        self._start(self._receiving)
        try:
            if self._structs[1] == ffi.NULL:
                refuse("this channel receives nothing: open it with recv=")
            to = Tensor(shape, dtype) if out is None else out
            y = self._y.take(to, WRITES | (ROWS if rows_are_samples else 0))
            keys = ffi.new("dw_key[]", y.n)
            while True:
                status = links.dw_channel_recv(self._handle, deadline.slice_ms(), keys, y)
                if status != PENDING:
                    break
                self._still_open()
                if deadline.is_over():
                    return None
            self._check(status)
            return Received(to, unpack(keys))
        finally:
            self._y.drop()
            self._stop(self._receiving)

    def forget(self, id: Id) -> None:
        """Forgets an id of what is sent, here and, with the next frame, at the peer."""
        key = key_of(id)
        self._start(self._sending)
        try:
            self._check(links.dw_channel_forget(self._handle, key[0]))
        finally:
            self._stop(self._sending)

    def sent(self) -> Counters:
        """Counters of the encoder."""
        return self._counters(links.dw_channel_sent)

    def received(self) -> Counters:
        """Counters of the decoder."""
        return self._counters(links.dw_channel_received)

    def _counters(self, function: Any) -> Counters:
        self._begin()
        try:
            return codec_counters(function(self._handle))
        finally:
            self._finish()

    @property
    def why(self) -> str:
        """The last error, in a sentence; "" where there was none."""
        self._begin()
        try:
            return text_of(links.dw_channel_why(self._handle))
        finally:
            self._finish()

    def close(self) -> None:
        """Waits, for the link's close_timeout at most, until the peer has what was sent, and ends
        the channel. May be called again; in a forked process it does nothing."""
        if self._life is not Life.now or not self._shut():
            return
        self._link._channels.discard(self)
        handle, link = self._handle, self._link._handle
        try:
            watched(
                lambda: links.dw_channel_close(handle),
                lambda: links.dw_link_cancel(link),
                lambda _: None,
            )
        finally:
            if self._pool:
                self._pool._give_back()

    def _drop(self) -> None:
        """Ends it without waiting, and the link with it."""
        if self._life is Life.now and self._open:
            self._open = False
            if self._link._open:  # else it went first, in a circle of garbage, and the channel too
                links.dw_link_cancel(self._link._handle)
                links.dw_channel_close(self._handle)

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self._drop()

    def _start(self, lock: Any) -> None:
        self._begin()
        if not lock.acquire(False):
            self._finish()
            refuse(
                "another thread is in the same call of this channel: let one thread send, and one "
                "receive"
            )

    def _stop(self, lock: Any) -> None:
        lock.release()
        self._finish()

    def _still_open(self) -> None:
        if not self._open:
            fail(CANCELLED, "the channel was closed by another thread")

    def _check(self, status: int) -> None:
        if status < 0:
            fail(status, text_of(links.dw_channel_why(self._handle)))


def _open(link: Any, how: Any) -> Any:
    made, why = ffi.new("dw_channel **"), new_why()
    check(links.dw_channel_open(made, link, how, why), why)
    return made[0]
