# SPDX-License-Identifier: Apache-2.0
# channel.py - Channel: sends and receives tensors over a link, encoded.
from __future__ import annotations

import threading
from typing import Any, Callable, NamedTuple, Optional, Union

from deltawire._library import core, ffi, net
from deltawire._waiting import Deadline, milliseconds, watched
from deltawire.config import Config, host_with
from deltawire.counters import Counters, codec_counters
from deltawire.errors import PENDING, TIMEOUT, check, fail, new_why, refuse
from deltawire.keys import Id, Ids, key_of, pack, pack_any, unpack
from deltawire.link import QUEUE_FULL, Link
from deltawire.owner import Shared
from deltawire.tensor import Tensor
from deltawire.storage import Storage, storage_of
from deltawire.threads import Threads, pool_of
from deltawire.views import ROWS, WRITES, View


class Received(NamedTuple):
    """What Channel.recv returns.

    tensor: out, or a new Tensor (N, T, C).
    ids: the ids of its N samples.
    """

    tensor: Any
    ids: "list[Id]"


class Channel(Shared):
    """Sends tensors through an encoder and receives tensors through a decoder, over a link.

    The channel exchanges replies by itself, and sends again what was lost or rejected.

    link: a Link. The other end of it opens a channel with the same id.
    id: an int from 1 to 65535, used only once on a link.
    send, recv: the configs, or their texts, of the two directions. The send of one end is the recv
        of the other. None: no tensors are sent in this direction.
    threads: the number of threads that share the work of the codecs, or a Threads.
    state: as for Encoder; both directions use it.
    open_timeout: the maximum time in seconds until the other end has opened the channel.
    on_frame: a function that is called with (is_sent, frame) for every frame that was encoded or
        decoded, frame being its bytes, before send or recv returns and by their thread. It must
        not use the channel. The message of an exception that it raises goes to stderr.
    Errors: ARGUMENT, CONFIG, MISMATCH (the configs of the two ends differ; the message has both),
    TIMEOUT, NO_MEMORY, and those of a failed link.

    One thread may send while another one receives. Close a channel before its link; Link.close does
    that. If KeyboardInterrupt ends the constructor or close, the link fails, too.
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
        state: Union[None, str, Storage] = None,
        open_timeout: float = 60.0,
        on_frame: Optional[Callable[[bool, bytes], Any]] = None,
    ) -> None:
        super().__init__()
        if not isinstance(link, Link):
            refuse(f"link must be a deltawire.Link, not {type(link).__name__}")
        if not isinstance(id, int) or not 1 <= id <= 0xFFFF:
            refuse(f"the id of a channel must be an int from 1 to 65535, not {id!r}")
        self._link = link
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        self._x, self._y = View("x"), View("out")
        timeout_ms = milliseconds(open_timeout, "open_timeout")
        sends = self._sends = None if send is None else Config(send)
        receives = self._receives = None if recv is None else Config(recv)
        self._needs_ids = sends is not None and sends._needs_ids()
        if on_frame is not None and not callable(on_frame):
            refuse(f"on_frame must be callable, not {type(on_frame).__name__}")
        try:
            pool, storage = self._borrow(pool_of(threads)), self._borrow(storage_of(state))
            how = ffi.new("dw_channel_config *", {"struct_size": ffi.sizeof("dw_channel_config")})
            how.id, how.open_timeout_ms = id, timeout_ms
            how.send = ffi.NULL if sends is None else sends._struct
            how.recv = ffi.NULL if receives is None else receives._struct
            host = how.host = host_with(pool, storage)
            how.on_frame = self._on_frame = _shown(on_frame)
            link._begin()
            try:
                handle = link._handle
                self._handle = watched(
                    lambda: _open(handle, how, host),
                    lambda: net.dw_link_cancel(handle),
                    net.dw_channel_close,
                )
            finally:
                link._finish()
        except BaseException:
            self._return_lent()
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
        """Encodes x and queues the frame. When send returns, x may be changed.

        x, ids: as for Encoder.encode. Without ids, the samples have the ids 0, 1, 2, ...; the codec
            "delta" does not allow that.
        timeout: the maximum time in seconds to wait while the queue of the link is full.
        rows_are_samples: a two-dimensional x has the shape (N, C), not (T, C).
        Errors: ARGUMENT, UNSUPPORTED, TIMEOUT (nothing was sent), NO_MEMORY, and those of a failed
        link.
        """
        deadline = Deadline(timeout)
        self._start(self._sending)
        try:
            if self._sends is None:
                refuse("this channel sends nothing: open it with send=, a config for sending")
            tensor = self._x.take(x, ROWS if rows_are_samples else 0)
            if ids is None and self._needs_ids:
                refuse(
                    'the codec "delta" sends the change of each sample since its last visit: give '
                    "ids"
                )
            keys = pack(range(tensor.n) if ids is None else ids, tensor.n)
            cap = core.dw_frame_bound(self._sends._struct, tensor)
            # dw_channel_send waits for room in the queue, too, but Ctrl-C could not interrupt it.
            link = self._link._handle
            status = self._wait(lambda ms: net.dw_link_wait_room(link, cap, ms), deadline)
            if status == PENDING:
                fail(TIMEOUT, QUEUE_FULL)
            self._check(net.dw_channel_send(self._handle, keys, tensor, ffi.NULL))
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
        """Returns the next tensor as Received(tensor, ids), or None if none came in time.

        out: a writable tensor of the sender's shape. Or give shape and dtype, for a new Tensor.
        timeout: the maximum time in seconds to wait. None: no limit.
        rows_are_samples: a two-dimensional out has the shape (N, C), not (T, C).
        Errors: ARGUMENT, SHAPE, UNSUPPORTED, and those of a failed link. A frame that was rejected
        is no error here: the channel asks the other end to send it again.
        """
        deadline = Deadline(timeout)
        if (out is None) == (shape is None):
            refuse("recv needs either out=, a tensor to write into, or shape=, for a new tensor")
        self._start(self._receiving)
        try:
            if self._receives is None:
                refuse("this channel receives nothing: open it with recv=, the sender's config")
            to = Tensor(shape, dtype) if out is None else out
            y = self._y.take(to, WRITES | (ROWS if rows_are_samples else 0))
            keys = ffi.new("dw_key[]", y.n)
            status = self._wait(
                lambda ms: net.dw_channel_recv(self._handle, ms, keys, y, ffi.NULL), deadline
            )
            if status == PENDING:
                return None
            self._check(status)
            return Received(to, unpack(keys))
        finally:
            self._y.drop()
            self._stop(self._receiving)

    def forget(self, id: Id) -> None:
        """Forgets an id of the sent tensors. The next frame tells the other end to forget it,
        too."""
        key = key_of(id)
        self._start(self._sending)
        try:
            self._check(net.dw_channel_forget(self._handle, key[0]))
        finally:
            self._stop(self._sending)

    def prefetch(self, ids: Ids) -> None:
        """Begins to read the state of ids that will soon be sent or received; see
        Encoder.prefetch."""
        keys, n = pack_any(ids)
        self._ask(lambda handle: self._check(net.dw_channel_prefetch(handle, keys, n)))

    def sent(self) -> Counters:
        """Statistics of the encoder."""
        return self._count(0)

    def received(self) -> Counters:
        """Statistics of the decoder."""
        return self._count(1)

    def _count(self, end: int) -> Counters:
        counters = ffi.new("dw_counters *", {"struct_size": ffi.sizeof("dw_counters")})
        given = [ffi.NULL, ffi.NULL]
        given[end] = counters
        self._ask(lambda handle: check(net.dw_channel_count(handle, *given)))
        return codec_counters(counters)

    def close(self) -> None:
        """Waits until the other end has received what was sent, for at most the link's
        close_timeout, and closes the channel. Calling it again does nothing, and neither does
        calling it in a forked process."""
        if not self._shut():
            return
        self._link._channels.discard(self)
        handle, link = self._handle, self._link._handle

        def end() -> None:  # in a helper thread, which an interrupt may leave running
            net.dw_channel_close(handle)
            self._return_lent()

        watched(end, lambda: net.dw_link_cancel(link), lambda _: None)

    def _abandon(self) -> None:
        # If the garbage collector took the link first, closing it has closed the channel, too.
        if self._link._open:
            net.dw_link_cancel(self._link._handle)
            net.dw_channel_close(self._handle)
        self._return_lent()

    def _start(self, lock: Any) -> None:
        self._begin()
        if not lock.acquire(False):
            self._finish()
            refuse(
                "another thread is in the same call of this channel: let one thread send and one "
                "thread receive"
            )

    def _stop(self, lock: Any) -> None:
        lock.release()
        self._finish()


def _shown(on_frame: Optional[Callable[[bool, bytes], Any]]) -> Any:
    """Returns a C callback that passes frames to on_frame; NULL if on_frame is None."""
    if on_frame is None:
        return ffi.NULL
    function = on_frame

    def show(_context: Any, is_sent: int, frame: Any, length: int) -> None:
        function(bool(is_sent), ffi.buffer(frame, length)[:])

    return ffi.callback("void(void *, int, const void *, size_t)", show)


def _open(link: Any, how: Any, _kept: Any) -> Any:
    made, why = ffi.new("dw_channel **"), new_why()
    check(net.dw_channel_open(made, link, how, why), why)
    return made[0]
