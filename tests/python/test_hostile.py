# SPDX-License-Identifier: Apache-2.0
# test_hostile.py - wrong input is refused with an error message, and changes nothing.
import numpy
import pytest
from rig import normal, pair, refused, refuses, same

import deltawire
from deltawire import Decoder, DeltawireError, Encoder, Tensor


class Ends:
    """An encoder and a decoder with the same state, and all state that an error may not change."""

    def __init__(self, text="delta:bits=4"):
        self.encoder, self.decoder = pair(text)
        self.x = normal((2, 4, 64))
        self.ids = [1, 2]
        for visit in range(2):
            self.step(visit)

    def step(self, seed):
        x = normal((2, 4, 64), seed)
        made = numpy.empty_like(x)
        frame = self.encoder.encode(x, self.ids, reconstruction=made)
        y, ids, reply = self.decoder.decode(frame)
        assert same(y, made) and ids == self.ids
        self.encoder.take_reply(reply)

    def states(self):
        return self.encoder.export_states(), self.decoder.export_states()


def test_a_rejected_frame_is_answered():
    ends = Ends()
    frame = bytearray(ends.encoder.encode(ends.x, ends.ids))
    frame[-1] ^= 1
    out = numpy.full((2, 4, 64), 3, numpy.float32)
    with refused("CORRUPT") as caught:
        ends.decoder.decode(frame, out)
    assert (out == 3).all() and ends.decoder.counters().rejected_frames == 1
    assert not deltawire.reply_info(caught.value.reply).accepted
    ends.encoder.take_reply(caught.value.reply)
    ends.step(5)
    frame[-2] ^= 1
    with pytest.raises(DeltawireError) as caught:
        ends.decoder.decode(frame, reply=False)
    assert caught.value.reply is None


def test_tensors_and_ids_that_do_not_fit():
    ends = Ends()
    before = ends.states()
    x, encoder = ends.x, ends.encoder
    for ids, words in (
        ([1], "1 ids for 2 samples"),
        ([1, 2, 3], "3 ids for 2 samples"),
        ([], "0 ids"),
        ([1, 1], "same key"),
        ([1, -1], "-1 is not an id"),
        ([1, 2**64], "not an id"),
        ([1, 2.5], "2.5 is not an id"),
        ([1, "two"], "not an id"),
        ([1, None], "not an id"),
        ([1, (2, -1)], "not an id"),
        ([1, (2, 2**32)], "not an id"),
        ([1, (2, 3, 4)], "not an id"),
        ([[1], [2]], "not an id"),
        ("ab", "sequence of ints"),
        (b"ab", "sequence of ints"),
        (7, "sequence of ints"),
        (object(), "sequence of ints"),
        (numpy.int64(7), "single number"),
        (numpy.array([[1, 2]]), "1 ids for 2 samples"),
        (numpy.array([1.0, 2.0]), "not an id"),
        (numpy.array([1, -2]), "not an id"),
    ):
        refuses(lambda: encoder.encode(x, ids), "ARGUMENT", words)
    for wrong in (x.astype(float), x.astype(int)):
        refuses(lambda: encoder.encode(wrong, ends.ids), "UNSUPPORTED")
    for made in (numpy.zeros((2, 4, 63), "f4"), numpy.zeros((3, 4, 64), "f4")):
        refuses(lambda: encoder.encode(x, ends.ids, reconstruction=made), "SHAPE")
    assert ends.states() == before
    frame = encoder.encode(x, ends.ids)
    held = ends.decoder.export_states()
    for out in (numpy.zeros((2, 4, 63), "f4"), numpy.zeros((1, 4, 64), "f4"), Tensor((2, 5, 64))):
        refuses(lambda: ends.decoder.decode(frame, out), "SHAPE")
    assert ends.decoder.export_states() == held
    ends.encoder.take_reply(ends.decoder.decode(frame).reply)
    ends.step(9)


def test_memory_that_overlaps_or_cannot_be_written():
    ends = Ends()
    before = ends.states()
    x, encoder = ends.x, ends.encoder
    both = bytearray(20000)
    inside = numpy.frombuffer(both, numpy.float32)[100:612].reshape(2, 4, 64)
    both_ways = numpy.zeros((3, 4, 64), numpy.float32)
    refuses(lambda: encoder.encode(inside, ends.ids, out=both), "ARGUMENT", "x and out")
    with refused("ARGUMENT", "x and reconstruction"):
        encoder.encode(x, ends.ids, reconstruction=x)
    with refused("ARGUMENT", "x and reconstruction"):
        encoder.encode(both_ways[1:3], ends.ids, reconstruction=both_ways[:2])
    with refused("ARGUMENT", "reconstruction and out"):
        encoder.encode(x, ends.ids, reconstruction=inside, out=both)
    refuses(lambda: encoder.encode(x, ends.ids, out=bytes(20000)), "ARGUMENT", "written")
    with refused("ARGUMENT"):
        encoder.encode(x, ends.ids, out=numpy.zeros(40000, numpy.uint8)[::2])
    fixed = x.copy()
    fixed.flags.writeable = False
    refuses(lambda: encoder.encode(x, ends.ids, reconstruction=fixed), "ARGUMENT", "read-only")
    assert ends.states() == before
    frame = encoder.encode(x, ends.ids)
    both[: len(frame)] = frame
    held = ends.decoder.export_states()
    with refused("ARGUMENT", "out and the frame"):
        ends.decoder.decode(memoryview(both)[: len(frame)], inside)
    refuses(lambda: ends.decoder.decode(frame, fixed), "ARGUMENT", "read-only")
    woven = numpy.lib.stride_tricks.as_strided(x, (2, 4, 64), (256, 256, 4))
    refuses(lambda: ends.decoder.decode(frame, woven), "ARGUMENT")
    assert ends.decoder.export_states() == held
    ends.decoder.decode(memoryview(both)[: len(frame)], numpy.empty_like(x))


def test_closed_objects_refuse_all_calls():
    encoder, decoder = pair()
    x = normal((1, 2, 64))
    with encoder as same_one:
        assert same_one is encoder
        frame = encoder.encode(x, [1])
    decoder.close()
    for thing, calls in (
        (
            encoder,
            [
                lambda: encoder.encode(x, [1]),
                lambda: encoder.take_reply(b""),
                lambda: encoder.forget(1),
                lambda: encoder.reset(),
                lambda: encoder.resync([1]),
                lambda: encoder.counters(),
                lambda: encoder.peek(1),
                lambda: encoder.export_state(1),
                lambda: encoder.export_states(),
                lambda: encoder.import_state(b"x"),
                lambda: encoder.__enter__(),
            ],
        ),
        (
            decoder,
            [
                lambda: decoder.decode(frame),
                lambda: decoder.advance(frame),
                lambda: decoder.expect([1], x),
                lambda: decoder.counters(),
                lambda: decoder.__enter__(),
            ],
        ),
    ):
        for call in calls:
            refuses(call, "ARGUMENT", "is closed: make another one")
        thing.close()
        assert thing.config.codec == "delta"
    assert encoder.bound(x) > 0


def test_constructors_refuse_bad_configs():
    for text in ("delta:bits=9", "nothing", ""):
        for kind in (Encoder, Decoder):
            refuses(lambda: kind(text), "CONFIG")
    for kind in (Encoder, Decoder):
        kind.__new__(kind).__del__()
