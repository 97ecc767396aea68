# SPDX-License-Identifier: Apache-2.0
# test_links.py - links and channels: messages, tensors, interrupted waits, and close.
import copy
import gc
import pickle
import threading
import warnings

import numpy
import pytest
from processes import in_child, interrupt, printed_by
from rig import normal, refused, refuses, same

import deltawire
from deltawire import Channel, Config, DeltawireError, Link, Tls, _waiting

KEY = bytes(range(32))


def both(uri="tcp://127.0.0.1:0", mine=None, theirs=None, **options):
    """Opens both ends of a link. Returns (the end that listens, the end that connects).

    mine, theirs: more options of the two ends."""
    bound, made = threading.Event(), {}

    def listening(at):
        made["uri"] = at
        bound.set()

    def listen():
        try:
            made["link"] = Link(uri, listen=True, on_listening=listening, **(mine or {}), **options)
        except DeltawireError as error:
            made["error"] = error
            bound.set()

    thread = threading.Thread(target=listen)
    thread.start()
    bound.wait(60)
    try:
        other = Link(made["uri"], **(theirs or {}), **options)
    finally:
        thread.join()
    return made["link"], other


def channels(links, config="delta:bits=4", **options):
    made = {}
    thread = threading.Thread(
        target=lambda: made.update(to=Channel(links[0], 5, recv=config, **options))
    )
    thread.start()
    sends = Channel(links[1], 5, send=config, **options)
    thread.join()
    return sends, made["to"]


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:0", "loop://python", "shaped:delay=1ms/loop://p"])
def test_messages_arrive_over_each_transport(uri):
    one, other = both(uri)
    with one, other:
        other.send(3, b"hello")
        other.send(4, numpy.arange(5, dtype=numpy.uint8))
        other.send(3, bytearray())
        assert one.recv(4) == bytes(range(5)) and one.recv(3) == b"hello" and one.recv(3) == b""
        assert one.recv(3, timeout=0) is None and one.recv(3, timeout=0.01) is None
        assert other.flush() and one.flush(5)
        one.send(1, bytes(3_000_000), timeout=30)
        assert other.recv(1) == bytes(3_000_000)
        counters = other.counters()
        assert counters.messages_sent == 3 and counters.bytes_received > 3_000_000
        assert one.why == "" and one.peer_name == ""
    one.close()
    for call in (
        lambda: one.send(3, b""),
        lambda: one.recv(3),
        one.flush,
        one.counters,
        one.cancel,
    ):
        refuses(call, "ARGUMENT", "closed")


def test_what_a_link_refuses():
    for uri in (None, 5, "tcp://\0"):
        refuses(lambda: Link(uri), "ARGUMENT", "URI")
    refuses(lambda: Link("nothing://x"), "UNSUPPORTED", "no transport")
    refuses(lambda: Link("tcp://192.0.2.1:9", open_timeout=0.2), "AUTH")
    refuses(lambda: Link("tcp://127.0.0.1:9", tls="secret"), "ARGUMENT", "Tls")
    for name in ("open_timeout", "peer_timeout", "close_timeout"):
        for wrong in (0, -1, "soon", float("nan"), 1e99):
            refuses(lambda: Link("tcp://127.0.0.1:9", **{name: wrong}), "ARGUMENT", name)
    refuses(lambda: Link("tcp://127.0.0.1:9", max_queued_bytes=-1), "ARGUMENT", "max_queued_bytes")
    refuses(lambda: Link("tcp://127.0.0.1:0", listen=True, open_timeout=0.05), "TIMEOUT")
    one, other = both()
    with one, other:
        for tag in (-1, 2**32, "three", 1.5):
            refuses(lambda: one.send(tag, b""), "ARGUMENT", "tag")
            refuses(lambda: one.recv(tag), "ARGUMENT", "tag")
        for timeout in (-1, "soon", float("nan")):
            refuses(lambda: one.recv(3, timeout=timeout), "ARGUMENT", "timeout")
        for data in (None, 3, "text"):
            refuses(lambda: one.send(3, data), "ARGUMENT", "holds no bytes")


def test_a_dead_peer_is_an_error():
    one, other = both()
    with one:
        other.close()
        with pytest.raises(DeltawireError) as caught:
            one.recv(3)
        assert caught.value.status.name == "PEER" and one.why
    one, other = both()
    with one, other:
        one.cancel()
        refuses(lambda: one.recv(3), "CANCELLED")


def test_tls_names_both_ends():
    one, other = both(
        mine={"tls": Tls(own_name="rank/0", group_key=KEY)},
        theirs={"tls": Tls(own_name="rank/1", peer_name="rank/0", group_key=KEY)},
    )
    with one, other:
        assert one.peer_name == "rank/1" and other.peer_name == "rank/0"
        other.send(3, b"secret")
        assert one.recv(3) == b"secret"
    text = repr(Tls(own_name="rank/0", group_key=KEY))
    assert "rank/0" in text and str(KEY) not in text and "group_key" not in text
    with refused("ARGUMENT"):
        Link("tcp://127.0.0.1:9", tls=Tls(own_name="a", peer_name="b", group_key=b"short"))
    with refused("ARGUMENT", "group_key_file"):
        Link("tcp://127.0.0.1:9", tls=Tls(own_name="a", peer_name="b", group_key="text"))
    with refused("IO"):
        Link("tcp://127.0.0.1:9", tls=Tls(own_name="a", peer_name="b", group_key_file="/nowhere"))
    refuses(lambda: Link("tcp://127.0.0.1:9", tls=Tls(own_name="a\0")), "ARGUMENT", "zero byte")


@pytest.mark.parametrize("threads", [0, 2])
def test_tensors_arrive_through_a_channel(threads):
    links = both(close_timeout=0.3)  # short, because the last tensor is never received
    with links[0], links[1]:
        to, back = channels(links, threads=threads)
        for visit in range(3):
            x = normal((2, 8, 64), visit)
            to.send(x, [4, (5, 1)])
            y, ids = back.recv(shape=(2, 8, 64), dtype="f32", timeout=30)
            assert ids == [4, (5, 1)] and y.dtype == "f32"
            assert abs(numpy.from_dlpack(y) - x).max() < 1
        out = numpy.zeros((2, 8, 64), numpy.float32)
        to.forget(4)
        to.send(x, [4, (5, 1)], timeout=5)
        assert back.recv(out).tensor is out and out.any()
        assert to.sent().frames == back.received().frames == 4
        assert back.recv(out, timeout=0.01) is None and back.why == ""
        refuses(lambda: to.send(x), "ARGUMENT", "give ids")
        refuses(lambda: to.send(x, [1]), "ARGUMENT", "1 ids for 2")
        refuses(lambda: back.send(x, [1, 2]), "ARGUMENT", "sends nothing")
        refuses(lambda: to.recv(out), "ARGUMENT", "receives nothing")
        refuses(back.recv, "ARGUMENT", "either out")
        refuses(lambda: back.recv(memoryview(bytes(4)).cast("f")), "ARGUMENT", "read-only")
        to.send(x, [4, (5, 1)])
        refuses(lambda: back.recv(shape=(2, 8, 63), timeout=30), "SHAPE")
    for channel in (to, back):
        channel.close()
        refuses(channel.sent, "ARGUMENT", "closed")


def test_direct_channels_need_no_ids():
    links = both("loop://direct")
    with links[0], links[1]:
        to, back = channels(links, Config("direct:bits=8"))
        with to, back:
            to.send(normal((3, 2, 64)))
            assert back.recv(shape=(3, 2, 64)).ids == [0, 1, 2]


def test_a_channel_reads_its_state_from_a_file(tmp_path):
    one, other = both("loop://filed")
    with one, other, deltawire.Storage(f"file:{tmp_path}/prev,cache=0") as storage:
        sends, receives = channels((one, other), state=storage)
        for visit in range(12):
            ids, x = [visit % 3, 10 + visit % 4], normal((2, 4, 64), visit % 3)
            sends.prefetch(ids)
            receives.prefetch(ids)
            sends.send(x, ids)
            assert receives.recv(shape=x.shape).ids == ids
        assert sends.sent().delta_entries > 0 and sends.sent().lost_copies == 0
        assert storage.counters().reads >= 2 * sends.sent().delta_entries
        sends.close()
        receives.close()


def test_a_channel_that_was_not_opened_gives_back_what_it_borrowed(tmp_path):
    one, other = both("loop://lent")
    text, pool = f"file:{tmp_path}/prev", deltawire.Threads(2)
    with one, other, deltawire.Storage(text) as storage:
        refuses(lambda: Channel(one, 3, send="raw", threads=pool, state=text), "IO", "in use")
        with refused("TIMEOUT"):
            Channel(one, 3, send="raw", threads=pool, state=storage, open_timeout=0.05)
    pool.close()


def test_a_channel_shows_its_frames():
    shown = []
    links = both("loop://shown")
    with links[0], links[1]:
        config = Config("topk:keep=0.1")
        to, back = channels(links, config, on_frame=lambda *frame: shown.append(frame))
        with to, back:
            to.send(normal((3, 2, 64)))
            y = back.recv(shape=(3, 2, 64)).tensor
    assert [is_sent for is_sent, _ in shown] == [True, False]
    assert shown[0][1] == shown[1][1]
    with deltawire.Decoder(config) as decoder:
        assert same(decoder.decode(shown[0][1]).tensor, numpy.from_dlpack(y))


def test_what_a_channel_refuses():
    one, other = both()
    with one, other:
        for id in (0, 65536, "one"):
            refuses(lambda: Channel(one, id, send="raw"), "ARGUMENT", "id")
        refuses(lambda: Channel("link", 1, send="raw"), "ARGUMENT", "Link")
        refuses(lambda: Channel(one, 1, send="delta:bits=9"), "CONFIG")
        refuses(lambda: Channel(one, 1, recv=["raw"]), "ARGUMENT", "a config is a text")
        with refused("ARGUMENT", "on_frame must be callable"):
            Channel(one, 1, send="raw", on_frame=b"file")
        refuses(lambda: Channel(one, 9, send="raw", open_timeout=0.05), "TIMEOUT")
        said = {}

        def theirs():
            try:
                Channel(other, 7, recv="delta:bits=3", open_timeout=30)
            except DeltawireError as error:
                said["error"] = error

        thread = threading.Thread(target=theirs)
        thread.start()
        refuses(lambda: Channel(one, 7, send="delta:bits=4", open_timeout=30), "MISMATCH", "bits")
        thread.join()
        assert said["error"].status.name == "MISMATCH"
    refuses(lambda: Channel(one, 3, send="raw"), "ARGUMENT", "closed")


def test_a_close_ends_the_waits_of_other_threads():
    one, other = both()
    with other:
        said = []

        def wait():
            try:
                one.recv(3)
            except DeltawireError as error:
                said.append(error.status.name)

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
        threads.append(threading.Thread(target=one.close, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert set(said) <= {"CANCELLED", "ARGUMENT"} and len(said) == 3


def test_a_close_waits_for_the_calls_of_other_threads():
    one, other = both()
    entered, leave, closed = threading.Event(), threading.Event(), threading.Event()

    def question(handle):
        entered.set()
        leave.wait(60)

    def close():
        one.close()
        closed.set()

    with other:
        threads = [threading.Thread(target=one._ask, args=(question,), daemon=True)]
        threads[0].start()
        entered.wait(60)
        threads.append(threading.Thread(target=close, daemon=True))
        threads[1].start()
        assert not closed.wait(0.2)
        refuses(one.counters, "ARGUMENT", "closed")
        leave.set()
        assert closed.wait(60)
        for thread in threads:
            thread.join()


def test_waits_are_cut_into_slices(monkeypatch):
    """No C call waits longer than one slice. Between two slices, Python runs signal handlers."""
    assert _waiting.SLICE_S <= 0.05
    slices = []
    real = _waiting.Deadline.slice_ms
    monkeypatch.setattr(
        _waiting.Deadline, "slice_ms", lambda self: slices.append(real(self)) or slices[-1]
    )
    one, other = both()
    with one, other:
        assert one.recv(3, timeout=2) is None
        assert one.flush(timeout=0)
    assert len(slices) > 3 and max(slices) <= 50
    assert _waiting.Deadline(1e9).slice_ms() == _waiting.Deadline(None).slice_ms() == 50
    assert _waiting.Deadline(0).slice_ms() == 0


PAIR = """
import deltawire, threading
bound, uri = threading.Event(), []
def listen(**options):
    return deltawire.Link("tcp://127.0.0.1:0", listen=True,
        on_listening=lambda at: (uri.append(at), bound.set()), **options)
def pair():
    made = []
    thread = threading.Thread(target=lambda: made.append(listen(max_queued_bytes=100000)))
    thread.start(); bound.wait()
    other = deltawire.Link(uri[0], max_queued_bytes=100000)
    thread.join()
    return made[0], other
def fill(link):
    while True: link.send(3, bytes(50000))
"""
WAITS = {
    "listen": "wait = lambda: listen(open_timeout=600)",
    "recv": "one, other = pair(); wait = lambda: one.recv(3)",
    "send": "one, other = pair(); wait = lambda: fill(other)",
    "channel": "one, other = pair(); wait = lambda: deltawire.Channel(one, 4, send='raw')",
    "close": """
one, other = pair()
try:
    while True: other.send(3, bytes(50000), timeout=0.1)
except deltawire.DeltawireError: pass
other._close_timeout = 600
wait = other.close
""",
}


@pytest.mark.parametrize("name", WAITS)
def test_an_interrupt_ends_a_wait(name):
    interrupt(PAIR + WAITS[name])


def test_after_a_fork_links_are_refused():
    one, other = both()
    with one, other:
        to, back = channels((one, other))

        def check():
            for call in (
                lambda: one.send(3, b""),
                lambda: one.recv(3),
                one.counters,
                lambda: to.send(normal((1, 2, 3)), [1]),
                back.received,
            ):
                refuses(call, "ARGUMENT", "belongs to the process that made it")
            for thing in (to, back, one, other):
                thing.close()
                assert thing._open  # close did nothing

        in_child(check)
        x = normal((1, 2, 64))
        to.send(x, [1])
        assert back.recv(shape=(1, 2, 64), timeout=30).ids == [1]


def test_keys_are_not_pickled():
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with refused("ARGUMENT", "cannot be pickled", "keys"):
            attempt(Tls(own_name="rank/0", group_key=KEY))


def test_nothing_is_pickled():
    one, other = both("loop://pickle")
    with one, other:
        refuses(lambda: pickle.dumps(one), "ARGUMENT", "cannot be pickled")


def test_a_link_that_was_never_closed_warns():
    one, other = both("loop://dropped")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del one
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]
    with other, pytest.raises(DeltawireError):
        other.recv(3)


def test_the_interpreter_ends_with_links_open():
    program = """
import deltawire, threading
made = []
thread = threading.Thread(target=lambda: made.append(deltawire.Link("loop://end", listen=True)))
thread.start()
made.append(deltawire.Link("loop://end"))
thread.join()
thread = threading.Thread(target=lambda: made.append(deltawire.Channel(made[0], 3, send="raw")))
thread.start()
made.append(deltawire.Channel(made[1], 3, recv="raw"))
thread.join()
threading.Thread(target=lambda: made[0].recv(3), daemon=True).start()
print("end")
"""
    assert printed_by(program) == "end\n"
    assert deltawire.Link and same


# OpenSSL begins with whoever uses it first, and frees its tables when the interpreter has ended.
# Links shake hands meanwhile, each several times, for its connections.
@pytest.mark.parametrize("first, last", [("import ssl", ""), ("", "import ssl")])
def test_the_interpreter_ends_while_links_shake_hands(first, last):
    program = """
%s
import deltawire, queue, threading
def tls(own, peer):
    return deltawire.Tls(own_name=own, peer_name=peer, group_key=bytes(range(32)))
def begin(*given, **options):
    threading.Thread(target=lambda: deltawire.Link(*given, **options), daemon=True).start()
bound = queue.Queue()
for link in range(12):
    begin("tcp://127.0.0.1:0", listen=True, tls=tls("a", "b"), on_listening=bound.put)
uris = [bound.get() for link in range(12)]
for uri in uris:
    begin(uri, tls=tls("b", "a"))
%s
print("end")
"""
    for _ in range(8):
        assert printed_by(program % (first, last)) == "end\n"
