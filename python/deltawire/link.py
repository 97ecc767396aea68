# SPDX-License-Identifier: Apache-2.0
# link.py - Link: a connection that carries messages between two ranks.
from __future__ import annotations

import warnings
import weakref
from typing import Any, Callable, Optional

from deltawire._library import ffi, net
from deltawire._waiting import Deadline, milliseconds, watched
from deltawire.bytes_in import Bytes
from deltawire.counters import LinkCounters, link_counters
from deltawire.errors import PENDING, TIMEOUT, check, fail, new_why, refuse, text_of
from deltawire.owner import Shared
from deltawire.tls import Tls

QUEUE_FULL = (
    "the queue of the link stayed full: give a longer timeout, or let the other end receive faster"
)


class Link(Shared):
    """A connection to one other rank, over any transport.

    Messages with the same tag arrive whole, once and in order. Otherwise the link fails, and from
    then on every call raises the same error. Any thread may call.

    uri: the address, for example "tcp://127.0.0.1:7000", "tcp://[::1]:0" (port 0 means any free
        port; see on_listening), "loop://name" (both ends in one process) or
        "shaped:rate=100mbit,delay=20ms/tcp://host:7000?stripes=4" (a simulated slow network).
        docs/transports.md lists all transports and their options.
    listen: True waits for the other end to connect; False connects to it.
    tls: a Tls. Without it, tcp works on the loopback interface only, unless insecure_plaintext=True
        is given. Then everybody on the network path can read and change the data, or connect.
    open_timeout: the maximum time in seconds until both ends are connected.
    peer_timeout: the maximum time in seconds without progress, while data is being sent or the rest
        of a message is missing.
    close_timeout: the maximum time in seconds that close waits for queued messages to be sent.
    max_message_bytes: a longer message is an error, at either end. 0: 1 GiB.
    max_queued_bytes: send waits while more bytes than this are queued. 0: 1 GiB.
    on_listening: a function that is called with the URI, including the actual port, as soon as the
        link listens and before the other end has connected.
    Errors: ARGUMENT, CONFIG, ADDRESS, TIMEOUT, PEER, PROTOCOL, VERSION, UNSUPPORTED, AUTH.

    The constructor returns when both ends are connected. KeyboardInterrupt ends every wait within
    100 ms. All times are in seconds; the timeout None means no limit.
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
        _look: Optional[Callable[[], None]] = None,  # see watched
    ) -> None:
        super().__init__()
        if not isinstance(uri, str) or "\0" in uri:
            refuse(f'uri must be a URI such as "tcp://127.0.0.1:7000", not {uri!r}')
        if tls is not None and not isinstance(tls, Tls):
            refuse(f"tls must be a deltawire.Tls or None, not {type(tls).__name__}")
        self._close_timeout = close_timeout
        self._channels: "weakref.WeakSet[Any]" = weakref.WeakSet()  # and groups
        self._endings: "list[Any]" = []  # of groups; see Ending
        options = ffi.new("dw_link_options *", {"struct_size": ffi.sizeof("dw_link_options")})
        options.role = net.DW_LINK_LISTEN if listen else net.DW_LINK_CONNECT
        options.open_timeout_ms = milliseconds(open_timeout, "open_timeout")
        options.peer_timeout_ms = milliseconds(peer_timeout, "peer_timeout")
        options.close_timeout_ms = milliseconds(close_timeout, "close_timeout")
        for name, given in (
            ("max_message_bytes", max_message_bytes),
            ("max_queued_bytes", max_queued_bytes),
        ):
            if not isinstance(given, int) or not 0 <= given < 2**63:
                refuse(f"{name} must be a number of bytes, an int of at least 0, not {given!r}")
            setattr(options, name, given)
        options.insecure_plaintext = bool(insecure_plaintext)
        kept: "list[Any]" = []
        if tls is not None:
            options.tls, kept = tls._struct()
        if on_listening is not None:
            callback = _listener(on_listening)
            options.on_listening = callback
            kept.append(callback)
        cancelled = ffi.new("int *")
        options.cancelled = cancelled
        kept.append(cancelled)  # dw_link_open may still read it after an interrupt
        self._handle = watched(
            lambda: _open(uri, options, kept),
            lambda: cancelled.__setitem__(0, 1),
            _close_now,
            _look,
        )
        self._open = True

    def send(self, tag: int, data: Any, timeout: Optional[float] = None) -> None:
        """Queues a copy of a message. A thread of the link sends it in the background.

        tag: a number from 0 to 255; larger ones are used by channels.
        data: bytes, a buffer or a uint8 tensor.
        timeout: the maximum time in seconds to wait while the queue is full.
        Errors: ARGUMENT, LIMIT, TIMEOUT (the message was not queued), and those of a failed link.
        """
        deadline, number = Deadline(timeout), _tag(tag)
        with Bytes(data, "the message") as given:
            self._begin()
            try:
                while True:
                    status = net.dw_link_send(self._handle, number, given.pointer, given.length)
                    if status != PENDING:
                        self._check(status)
                        return
                    self._still_open()
                    if deadline.is_over():
                        fail(TIMEOUT, QUEUE_FULL)
                    slice_ms = deadline.slice_ms()
                    self._check(net.dw_link_wait_room(self._handle, given.length, slice_ms))
            finally:
                self._finish()

    def recv(self, tag: int, timeout: Optional[float] = None) -> Optional[bytes]:
        """Returns the next message with this tag, or None if none came within timeout seconds.

        Errors: ARGUMENT, and those of a failed link."""
        deadline, number = Deadline(timeout), _tag(tag)
        data, length = ffi.new("void **"), ffi.new("size_t *")
        self._begin()
        try:
            status = self._wait(
                lambda ms: net.dw_link_recv(self._handle, number, ms, data, length), deadline
            )
            if status == PENDING:
                return None
            self._check(status)
            try:
                return ffi.buffer(data[0], length[0])[:] if length[0] else b""
            finally:
                net.dw_link_release(self._handle, data[0])
        finally:
            self._finish()

    def flush(self, timeout: Optional[float] = None) -> bool:
        """Waits until all queued messages have been handed to the operating system or, with tcp,
        have reached the other end. Returns False if that takes longer than timeout seconds.

        Errors: those of a failed link."""
        deadline = Deadline(timeout)
        self._begin()
        try:
            status = self._wait(lambda ms: net.dw_link_flush(self._handle, ms), deadline)
            self._check(status)
            return status != PENDING
        finally:
            self._finish()

    def cancel(self) -> None:
        """Makes every call on the link, in all threads, fail with CANCELLED. Close it after
        that."""
        self._ask(net.dw_link_cancel)

    def counters(self) -> LinkCounters:
        """Statistics since the link was opened; see LinkCounters."""
        return self._ask(_count)

    @property
    def peer_name(self) -> str:
        """The name of the other end, which TLS has authenticated; "" without TLS."""
        return self._ask(lambda handle: text_of(net.dw_link_peer_name(handle)))

    def close(self) -> None:
        """Closes the channels of the link, sends what is queued, for at most close_timeout seconds,
        and closes the link. Calls that wait in other threads end with an error.

        KeyboardInterrupt closes the link at once; queued messages are lost then. Calling close
        again does nothing, and neither does calling it in a forked process."""
        for channel in list(self._channels):
            channel.close()
        if not self._shut():
            return
        for ending in list(self._endings):  # groups whose close was interrupted
            ending()
        handle, deadline = self._handle, Deadline(self._close_timeout)
        try:
            while net.dw_link_flush(handle, deadline.slice_ms()) == PENDING:
                if deadline.is_over():
                    net.dw_link_cancel(handle)
        except BaseException:  # such as KeyboardInterrupt
            net.dw_link_cancel(handle)
            raise
        finally:
            net.dw_link_close(handle)

    # Default arguments stay valid when the interpreter ends and has emptied the modules.
    def _abandon(self, warn: Any = warnings.warn) -> None:
        warn(f"{self!r} was never closed", ResourceWarning, source=self)
        for ending in list(self._endings):
            ending()
        _close_now(self._handle)


def _count(handle: Any) -> LinkCounters:
    size = ffi.sizeof("dw_link_counters")
    struct = ffi.new("dw_link_counters *", {"struct_size": size})
    check(net.dw_link_count(handle, struct))
    return link_counters(struct)


def _listener(function: Callable[[str], None]) -> Any:
    def listening(_: Any, uri: Any) -> None:
        function(text_of(uri))

    return ffi.callback("void(void *, const char *)", listening)


def _tag(tag: int) -> int:
    if not isinstance(tag, int) or not 0 <= tag < 2**32:
        refuse(f"a tag must be an int from 0 to 2**32 - 1, not {tag!r}")
    return tag


def _open(uri: str, options: Any, kept: Any) -> Any:
    made, why = ffi.new("dw_link **"), new_why()
    check(net.dw_link_open(made, uri.encode(), options, why), why)
    del kept  # which the call needed until here
    return made[0]


def _close_now(
    handle: Any, cancel: Any = net.dw_link_cancel, end: Any = net.dw_link_close
) -> None:
    cancel(handle)
    end(handle)
