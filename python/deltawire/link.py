# SPDX-License-Identifier: Apache-2.0
# link.py - Link: messages between two ranks.
from __future__ import annotations

import threading
import warnings
import weakref
from typing import Any, Callable, Optional

from deltawire._library import ffi, links
from deltawire._waiting import SLICE_S, Deadline, milliseconds, watched
from deltawire.bytes_in import Bytes
from deltawire.counters import LinkCounters, link_counters
from deltawire.errors import CANCELLED, PENDING, TIMEOUT, check, fail, new_why, refuse, text_of
from deltawire.owner import Life, Owned
from deltawire.tls import Tls


class Shared(Owned):
    """Base of Link and Channel: several threads may be in a call; the end waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self._users = 0
        self._left = threading.Condition(threading.Lock())

    def _begin(self) -> None:
        if self._life is not Life.now:
            self._refuse_fork()
        with self._left:
            if not self._open:
                self._refuse_closed()
            self._users += 1

    def _finish(self) -> None:
        with self._left:
            self._users -= 1
            self._left.notify_all()

    def _shut(self) -> bool:
        """Lets nobody in any more, and waits until all are out. False: it was shut before."""
        with self._left:
            if not self._open:
                return False
            self._open = False
            while self._users:
                self._left.wait(SLICE_S)
        return True


class Link(Shared):
    """Two ranks, one transport. Messages arrive whole, once and in order per tag, or the link
    fails: from then on every call gives the same error. Any thread may call.

    uri: "tcp://127.0.0.1:7000", "tcp://[::1]:0" (0: any port, see on_listening), "loop://name",
        "shaped:rate=100mbit,delay=20ms/tcp://host:7000?stripes=4"; docs/transports.md has all.
    listen: True: waits for the other end; False: goes to it.
    tls: a Tls. Without it tcp stays on loopback, unless insecure_plaintext=True, which lets
        whoever is on the way read, change and join.
    open_timeout: seconds until both ends have met.
    peer_timeout: seconds that a send, or a peer that owes bytes, may go without progress.
    close_timeout: seconds that close may take to get rid of what is queued.
    max_message_bytes: a longer message is an error at either end (1 GiB).
    max_queued_bytes: sends wait past this (1 GiB).
    on_listening: called with the URI that is bound, before the peer is waited for.
    Errors: ARGUMENT, CONFIG, ADDRESS, TIMEOUT, PEER, PROTOCOL, VERSION, UNSUPPORTED, AUTH.

    Blocks until both ends have agreed. KeyboardInterrupt ends every wait within 100 ms. Times are
    seconds; None waits as long as the link lives.
    """

    _noun = "link"

    def __init__(
        self,
        uri: str,
        listen: bool = False,
        *,
        tls: Optional[Tls] = None,
        insecure_plaintext: bool = False,
        open_timeout: float = 60.0,
        peer_timeout: float = 60.0,
        close_timeout: float = 5.0,
        max_message_bytes: int = 0,
        max_queued_bytes: int = 0,
        on_listening: Optional[Callable[[str], None]] = None,
    ) -> None:
        super().__init__()
        if not isinstance(uri, str) or "\0" in uri:
            refuse(f'a link needs an URI such as "tcp://127.0.0.1:7000", not {uri!r}')
        if tls is not None and not isinstance(tls, Tls):
            refuse(f"tls is a deltawire.Tls, not {type(tls).__name__}")
        self._close_timeout = close_timeout
        self._channels: "weakref.WeakSet[Any]" = weakref.WeakSet()
        options = ffi.new("dw_link_options *", {"struct_size": ffi.sizeof("dw_link_options")})
        options.role = links.DW_LINK_LISTEN if listen else links.DW_LINK_CONNECT
        options.open_timeout_ms = milliseconds(open_timeout, "open_timeout")
        options.peer_timeout_ms = milliseconds(peer_timeout, "peer_timeout")
        options.close_timeout_ms = milliseconds(close_timeout, "close_timeout")
        for name, given in (
            ("max_message_bytes", max_message_bytes),
            ("max_queued_bytes", max_queued_bytes),
        ):
            if not isinstance(given, int) or not 0 <= given < 2**63:
                refuse(f"{name} is a number of bytes, not {given!r}")
            setattr(options, name, given)
        options.insecure_plaintext = bool(insecure_plaintext)
        kept: "list[Any]" = []
        if tls is not None:
            options.tls, kept = tls._struct()
        if on_listening is not None:
            told = _listener(on_listening)
            options.on_listening = told
            kept.append(told)
        cancelled = ffi.new("int *")
        options.cancelled = cancelled
        kept.append(cancelled)  # an open that is left to itself goes on reading it
        self._handle = watched(
            lambda: _open(uri, options, kept),
            lambda: cancelled.__setitem__(0, 1),
            _close_now,
        )
        self._open = True

    def send(self, tag: int, data: Any, timeout: Optional[float] = None) -> None:
        """Queues a copy of a message and returns; the link's own thread moves the bytes.

        tag: 0 to 255 of the caller's; others belong to channels. data: bytes, a buffer, or a tensor
        of uint8. timeout: seconds to wait while the queue is full.
        Errors: ARGUMENT, LIMIT, TIMEOUT (nothing was taken), and the link's.
        """
        deadline, number = Deadline(timeout), _tag(tag)
        with Bytes(data, "the message") as given:
            self._begin()
            try:
                while True:
                    status = links.dw_link_send(self._handle, number, given.pointer, given.length)
                    if status != PENDING:
                        self._check(status)
                        return
                    self._still_open()
                    if deadline.is_over():
                        fail(TIMEOUT, "the link's queue stayed full: wait longer, or send less")
                    slice_ms = deadline.slice_ms()
                    self._check(links.dw_link_wait_room(self._handle, given.length, slice_ms))
            finally:
                self._finish()

    def recv(self, tag: int, timeout: Optional[float] = None) -> Optional[bytes]:
        """The next message with this tag; None: nothing came within so many seconds.

        Errors: ARGUMENT, and the link's."""
        deadline, number = Deadline(timeout), _tag(tag)
        data, length = ffi.new("void **"), ffi.new("size_t *")
        self._begin()
        try:
            while True:
                slice_ms = deadline.slice_ms()
                status = links.dw_link_recv(self._handle, number, slice_ms, data, length)
                if status != PENDING:
                    break
                self._still_open()
                if deadline.is_over():
                    return None
            self._check(status)
            try:
                return ffi.buffer(data[0], length[0])[:] if length[0] else b""
            finally:
                links.dw_link_release(self._handle, data[0])
        finally:
            self._finish()

    def flush(self, timeout: Optional[float] = None) -> bool:
        """Waits until what is queued is in the hands of the operating system; over tcp, until the
        peer's end has it. False: not within so many seconds."""
        deadline = Deadline(timeout)
        self._begin()
        try:
            while True:
                status = links.dw_link_flush(self._handle, deadline.slice_ms())
                if status != PENDING:
                    self._check(status)
                    return True
                self._still_open()
                if deadline.is_over():
                    return False
        finally:
            self._finish()

    def cancel(self) -> None:
        """Makes every call on the link, in any thread, fail with CANCELLED. Then close it."""
        self._begin()
        try:
            links.dw_link_cancel(self._handle)
        finally:
            self._finish()

    def counters(self) -> LinkCounters:
        """What it has carried, as a named tuple; see LinkCounters."""
        self._begin()
        try:
            size = ffi.sizeof("dw_link_counters")
            struct = ffi.new("dw_link_counters *", {"struct_size": size})
            check(links.dw_link_count(self._handle, struct))
            return link_counters(struct)
        finally:
            self._finish()

    @property
    def peer_name(self) -> str:
        """Who the other end has proven to be; "" without TLS."""
        self._begin()
        try:
            return text_of(links.dw_link_peer_name(self._handle))
        finally:
            self._finish()

    @property
    def why(self) -> str:
        """Why the link failed, in a sentence; "" while it lives."""
        self._begin()
        try:
            return text_of(links.dw_link_why(self._handle))
        finally:
            self._finish()

    def close(self) -> None:
        """Closes its channels, sends what is queued, for close_timeout at most, and ends the link.
        Waits of other threads end with an error. May be called again; in a forked process it does
        nothing. KeyboardInterrupt ends it at once, with what is queued."""
        if self._life is not Life.now:
            return
        for channel in list(self._channels):
            channel.close()
        if not self._shut():
            return
        handle, deadline = self._handle, Deadline(self._close_timeout)
        try:
            while links.dw_link_flush(handle, deadline.slice_ms()) == PENDING:
                if deadline.is_over():
                    links.dw_link_cancel(handle)
        except BaseException:  # an interrupt
            links.dw_link_cancel(handle)
            raise
        finally:
            links.dw_link_close(handle)

    def _drop(self) -> None:
        """Ends it without waiting."""
        if self._life is Life.now and self._open:
            self._open = False
            _close_now(self._handle)

    def __del__(self, warn: Any = warnings.warn) -> None:
        if getattr(self, "_open", False) and self._life is Life.now:
            warn(f"{self!r} was never closed", ResourceWarning, source=self)
            self._drop()

    def _still_open(self) -> None:
        if not self._open:
            fail(CANCELLED, "the link was closed by another thread")

    def _check(self, status: int) -> None:
        if status < 0:
            fail(status, text_of(links.dw_link_why(self._handle)))


def _listener(function: Callable[[str], None]) -> Any:
    def tell(_: Any, uri: Any) -> None:
        function(text_of(uri))

    return ffi.callback("void(void *, const char *)", tell)


def _tag(tag: int) -> int:
    if not isinstance(tag, int) or not 0 <= tag < 2**32:
        refuse(f"a tag is an int from 0 to 2**32 - 1, not {tag!r}")
    return tag


def _open(uri: str, options: Any, kept: Any) -> Any:
    made, why = ffi.new("dw_link **"), new_why()
    check(links.dw_link_open(made, uri.encode(), options, why), why)
    del kept  # lived as long as the call
    return made[0]


def _close_now(
    handle: Any, cancel: Any = links.dw_link_cancel, end: Any = links.dw_link_close
) -> None:
    cancel(handle)
    end(handle)
