# SPDX-License-Identifier: Apache-2.0
# test_devices.py - encoders and decoders on a GPU. It is emulated, and the host cannot access its
# memory, so a tensor that the package reads or copies itself ends the test with a signal.
import os
from unittest import mock

import numpy
import pytest
from fake_gpu import Array, ffi, leftovers, state
from rig import CUDA, bits, normal, pair, refused, refuses

import deltawire
from deltawire import Decoder, DeltawireError, Encoder, Storage, frame_info

IDS = [5, (7, 3), 2**63]
SHAPE = (3, 4, 96)
CONFIGS = [
    "delta:bits=4",
    "delta:bits=2,key=8,prev=bf16",
    "direct:bits=3",
    "raw:f32",
    "mx:element=e4m3",
    "delta:form=step,group=sample,rounding=stochastic,seed=4",
    "direct:form=step,group=sample,step=4,rounding=dither,incarnation=7",
    "delta:form=step,group=sample,key=f32,entropy=rans",
    "direct:form=step,group=sample,step=4,rounding=dither,incarnation=7,entropy=rans",
    "delta:bits=3,transform=hadamard,rotate=16",
]


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = leftovers()
    yield
    state.fail_at, state.broken_stream = -1, False
    assert leftovers() == before


def on_gpu(text="delta:bits=4", **options):
    return pair(text, device="cuda:0", **options)


def payloads(frame):
    """The payloads of a frame, without the header and the table, which begin with a random
    number."""
    entries = frame_info(frame).entries
    return [e.role for e in entries], bytes(frame)[entries[0].payload_offset :]


@pytest.mark.parametrize("place", ["device", "pinned"])
@pytest.mark.parametrize("text", CONFIGS)
def test_frames_and_results_have_the_bits_of_the_cpu(text, place):
    here, there = pair(text), on_gpu(text, place=place)
    given = normal(SHAPE)
    x, y, made = Array(given), Array(numpy.zeros_like(given)), numpy.empty_like(given)
    for visit in range(3):
        given = normal(SHAPE, 1) + numpy.float32(0.1) * normal(SHAPE, visit)
        x.write(given)
        ours, theirs = there[0].encode(x, IDS), here[0].encode(given, IDS)
        assert type(ours) is bytes and payloads(ours) == payloads(theirs)
        got = there[1].decode(theirs, out=y)
        assert got.tensor is y and got.ids == IDS
        here[0].take_reply(got.reply)
        there[0].take_reply(here[1].decode(ours, out=made).reply)
        assert (bits(y.read()) == bits(made)).all()
    assert there[0].counters().frames == 3


def test_bf16_and_rows_that_are_samples():
    given = (normal((4, 64)).view(numpy.uint32) >> 16).astype(numpy.uint16)
    x, y = Array(given, bfloat=True), Array(numpy.zeros_like(given), bfloat=True)
    (encoder, decoder), (_, here) = on_gpu("direct:bits=8"), pair("direct:bits=8")
    frame = encoder.encode(x, rows_are_samples=True)
    assert frame_info(frame).dtype == "bf16" and frame_info(frame).shape == (4, 1, 64)
    decoder.decode(frame, out=y, rows_are_samples=True)
    assert (y.read().reshape(4, 1, 64) == bits(here.decode(frame).tensor)).all()


def test_the_stream_that_works_is_the_one_that_waits_for_the_tensor():
    encoder, decoder = on_gpu("direct:bits=4")
    x, y = Array(normal(SHAPE)), Array(normal(SHAPE))
    frame = encoder.encode(x)
    assert x.streams == [int(ffi.cast("uintptr_t", state.last_stream))] and x.streams[0] > 2
    decoder.decode(frame, y)
    assert y.streams == [int(ffi.cast("uintptr_t", state.last_stream))]


def test_a_buffer_for_the_frame():
    encoder, decoder = on_gpu()
    x, y = Array(normal(SHAPE)), Array(normal(SHAPE))
    room = bytearray(encoder.bound(x))
    frame = encoder.encode(x, IDS, out=room)
    assert isinstance(frame, memoryview) and frame.obj is room
    decoder.decode(frame, out=y)
    for size in (0, 1, 100, len(frame) // 8):
        refuses(lambda: encoder.encode(x, IDS, out=bytearray(size)), "BUFFER_TOO_SMALL")
    decoder.decode(encoder.encode(x, IDS, out=room), out=y)  # no frame was skipped
    assert encoder.counters().frames == 2
    assert {e.role for e in frame_info(room).entries} == {"delta"}


def test_what_a_gpu_refuses_changes_nothing():
    encoder, decoder = on_gpu()
    x = Array(normal(SHAPE))
    for given, place in ((normal(SHAPE), "main memory"), (deltawire.Tensor(SHAPE), "main memory")):
        with refused("UNSUPPORTED", f"x is in {place}", "works on cuda:0"):
            encoder.encode(given, IDS)
    x.number = 1
    refuses(lambda: encoder.encode(x, IDS), "UNSUPPORTED", "x is on cuda:1", "works on cuda:0")
    x.number = 0
    asked = iter((0, 1))
    with mock.patch.object(Array, "__dlpack_device__", lambda self: (CUDA, next(asked))):
        refuses(lambda: encoder.encode(x, IDS), "ARGUMENT", "is on cuda:0", "but on cuda:1")
    with refused("UNSUPPORTED", "stateless=True", "direct"):
        encoder.encode(x, IDS, stateless=True)
    refuses(lambda: encoder.encode(x, IDS, limit=10**6), "UNSUPPORTED", "limit=")
    refuses(lambda: encoder.encode(x, IDS, reconstruction=x), "UNSUPPORTED", "reconstruction=")
    refuses(lambda: encoder.encode(x), "ARGUMENT", "give ids")
    with refused("UNSUPPORTED", "x is on cuda:0", 'device="cuda:0"'):
        Encoder("direct:bits=4").encode(x)
    refuses(lambda: encoder.peek(5), "UNSUPPORTED", "peek", "export_state", "pinned")
    assert encoder.counters().frames == 0 and encoder.counters().keys_held == 0
    frame = encoder.encode(x, IDS)
    refuses(lambda: decoder.decode(frame), "ARGUMENT", "needs out=", "cuda:0", "(3, 4, 96)")
    refuses(lambda: decoder.decode(frame, out=x, add=1.0), "UNSUPPORTED", "add=")
    with refused("UNSUPPORTED", "out is in main memory"):
        decoder.decode(frame, out=normal(SHAPE))
    refuses(lambda: decoder.decode(x, out=x), "UNSUPPORTED", "the frame is not in main memory")
    x.flags = 1
    refuses(lambda: decoder.decode(frame, out=x), "ARGUMENT", "read-only")
    x.flags = 0
    decoder.decode(frame, out=x)


def test_objects_that_cannot_be_made():
    for device in ("cuda:", "cuda:-1", "gpu", 0, "cuda:0:1"):
        refuses(lambda: Encoder("direct:bits=4", device=device), "ARGUMENT", 'device must be "cpu"')
    with refused("ARGUMENT", "place must be"):
        Decoder("direct:bits=4", device="cuda", place="host")
    refuses(lambda: Decoder("direct:bits=4", place="pinned"), "ARGUMENT", "give device=")
    refuses(lambda: Decoder("direct:bits=4", 2, device="cuda"), "ARGUMENT", "threads")
    refuses(lambda: Encoder("direct:bits=4", device="cuda:1"), "UNSUPPORTED", "no device 1")
    refuses(lambda: Encoder("direct:bits=40", device="cuda"), "CONFIG")
    assert Encoder("direct:bits=4", device="cpu").encode(normal(SHAPE))


@pytest.mark.parametrize("made", [Encoder, Decoder])
@pytest.mark.parametrize("place", ["device", "pinned"])
def test_an_object_that_cannot_be_made_leaves_nothing(made, place):
    before = leftovers()
    kept = []  # an exception holds the frames that it passed, and with them the object
    for _ in range(3):
        try:
            made("direct:form=step,group=sample,deadzone=0.6", device="cuda:0", place=place)
        except DeltawireError as error:
            assert error.status.name == "UNSUPPORTED" and "deadzone" in error.why, error
            kept.append(error)
        assert leftovers() == before
    assert len(kept) == 3


@pytest.mark.parametrize("place", ["device", "pinned"])
def test_a_file_has_the_state_that_finds_no_room_on_the_gpu(place, tmp_path):
    with Storage(f"file:{tmp_path}/prev,cache=0") as storage:
        here, there = pair(), on_gpu(place=place, state=storage)
        x, y = Array(normal(SHAPE)), Array(normal(SHAPE))
        for visit in range(6):
            given, ids = normal(SHAPE, visit), IDS if visit % 2 else [1, 2, 3]
            x.write(given)
            ours, theirs = there[0].encode(x, ids), here[0].encode(given, ids)
            assert payloads(ours) == payloads(theirs)
            there[0].take_reply(there[1].decode(ours, out=y).reply)
            here[0].take_reply(here[1].decode(theirs).reply)
        assert storage.counters().reads >= 4 * len(IDS)
        for end in there:
            end.close()


def test_states_go_from_a_gpu_to_a_cpu_and_back():
    encoder, decoder = on_gpu()
    x, y = Array(normal(SHAPE)), Array(normal(SHAPE))
    for visit in range(2):
        x.write(normal(SHAPE, visit))
        decoder.decode(encoder.encode(x, IDS), out=y)
    states = encoder.export_states(), decoder.export_states()
    here = pair()
    here[0].import_states(states[0])
    here[1].import_states(states[1])
    there = on_gpu(place="pinned")
    there[0].import_states(here[0].export_states())
    there[1].import_states(here[1].export_states())
    assert (bits(there[1].peek(5)) == bits(here[1].peek(5))).all()
    given = normal(SHAPE, 9)
    x.write(given)
    ours, theirs = there[0].encode(x, IDS), here[0].encode(given, IDS)
    assert ours == theirs
    there[1].decode(theirs, out=y)
    assert (bits(y.read()) == bits(here[1].decode(ours).tensor)).all()


def test_a_stream_that_fails_is_an_error():
    encoder, _ = on_gpu()
    x = Array(normal(SHAPE))
    state.broken_stream = True
    refuses(lambda: encoder.encode(x, IDS), "IO", "the stream failed")


def test_a_forked_child_leaves_the_gpu_alone():
    encoder, decoder = on_gpu()
    x, y = Array(normal(SHAPE)), Array(normal(SHAPE))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            encoder.encode(x, IDS)
        except DeltawireError as error:
            status = 0 if "forked" in error.why else 2
        calls = state.calls
        encoder.close()
        del encoder
        os._exit(status or 3 * (state.calls != calls))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    decoder.decode(encoder.encode(x, IDS), out=y)


def test_closing_gives_everything_back():
    before = leftovers()
    with Encoder("delta:bits=4", device="cuda") as encoder, Decoder(
        "delta:bits=4", device="cuda"
    ) as decoder:
        x = Array(normal(SHAPE))
        decoder.decode(encoder.encode(x, IDS), out=x)
        assert leftovers()[1] == before[1] + 2
    del x
    encoder.close()
    refuses(lambda: encoder.encode(None), "ARGUMENT", "closed")
    assert leftovers() == before


def test_objects_that_are_collected_together():
    given = Array(normal(SHAPE))
    for _ in range(20):
        encoder, decoder = on_gpu()
        decoder.decode(encoder.encode(given, IDS), out=given)
        ring = [encoder, decoder]
        ring.append(ring)  # only the garbage collector frees a ring, in an order of its own
        del encoder, decoder, ring
